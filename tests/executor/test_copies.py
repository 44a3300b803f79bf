"""Programs can be copied and pickled whatever was derived from them; what is compiled says no."""

from __future__ import annotations

import copy
import gc
import pickle  # noqa: TID251  # of what is written and read here

import pytest
import torch
from torch import nn

import torch_ir
from backends.torch_again import TorchAgain
from torch_ir import decompose, extract_ir
from torch_ir.errors import ExecutionError


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).train()


@pytest.mark.parametrize("copied", [lambda ir: pickle.loads(pickle.dumps(ir)), copy.deepcopy])
def test_a_program_that_was_used_is_copied_whole(model, copied):
    x = torch.randn(2, 3)
    ir = extract_ir(model, (x,))
    run = torch_ir.compile(ir, model.state_dict())
    ir.check()
    decompose(ir)
    made = copied(ir)
    assert made == ir
    assert made.aliases.written == ir.aliases.written
    assert torch.equal(torch_ir.compile(made, model.state_dict())(x), run(x))


@pytest.mark.parametrize("backend", ["aten", "reference", "auto"])
@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
def test_what_is_compiled_is_not_copied(model, backend, copied):
    ir = extract_ir(model, (torch.randn(2, 3),))
    run = torch_ir.compile(
        ir, model.state_dict(), backend=backend, **({"seconds": 1} if backend == "auto" else {})
    )
    with pytest.raises(ExecutionError) as raised:
        copied(run)
    assert str(raised.value) == (
        f"objects of type {type(run).__name__} are neither copied nor pickled\n"
        "Keep the program and its weights, and compile them again where the copy is to run."
    )


def test_a_shallow_copy_runs(model):
    x = torch.randn(2, 3)
    run = torch_ir.compile(extract_ir(model, (x,)), model.state_dict(), backend="auto", seconds=1)
    assert torch.equal(copy.copy(run)(x), run(x))


@pytest.mark.parametrize("is_called", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "backend", ["aten", "reference", TorchAgain(), [TorchAgain(), "tuned"]], ids=str
)
def test_a_shallow_copy_outlives_what_it_is_a_copy_of(backend, is_called):
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), torch.randn(2, 3)
    run = torch_ir.compile(extract_ir(model, (x,)), model.state_dict(), backend=backend)
    if is_called:
        run(x)
    made = copy.copy(run)
    del run
    gc.collect()
    torch.testing.assert_close(made(x), model(x).detach())
