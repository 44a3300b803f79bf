"""Calls of runtimes that are interrupted: nothing of them is left in the next ones."""

from importlib.util import find_spec

import pytest
import torch
from torch import nn

import torch_ir
from backends.torch_again import TorchAgain
from interrupts import from_another_thread, interrupted_everywhere
from torch_ir import extract_ir
from torch_ir.errors import ExecutionError

pytestmark = pytest.mark.filterwarnings("ignore")
ROWS = 2048
"""So many rows of a buffer that a runtime may write one of them in its memory."""


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.register_buffer("rows", torch.zeros(ROWS, 8))
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x, place):
        self.rows.index_copy_(0, place, x)
        self.total.add_(x.sum(0))
        return self.fc(x).relu() + self.rows.sum(0) + self.total


def arguments(seed):
    x = torch.randn(2, 8, generator=torch.Generator().manual_seed(seed))
    return x, torch.tensor([seed, ROWS - 1])


@pytest.fixture(params=["torch_again", "onnxruntime", "openvino", "executorch"])
def backend(request):
    if request.param == "torch_again":
        return TorchAgain()
    if find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return request.param


def test_what_an_interrupted_call_was_given_is_in_no_later_one(backend):
    model, first, other = Cached().eval(), arguments(3), arguments(5)
    weights = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    run = torch_ir.compile(extract_ir(model, first), weights, backend=backend)
    assert any(verdict.used for verdict in run.verdicts)

    def called():
        run.reset()
        return run(*first)

    wanted = called()
    before, seen = run.buffers, 0
    for place in interrupted_everywhere(lambda: run(*other), called):
        assert torch.is_grad_enabled(), place
        buffers, raised = from_another_thread(lambda: (run.buffers, _raised(run, other)))
        if raised:
            assert raised.message.startswith("the buffers are half written"), place
        else:  # the interrupted call wrote all or nothing
            rows = torch.equal(buffers["rows"], before["rows"])
            assert rows == torch.equal(buffers["total"], before["total"]), place
        assert torch.equal(called(), wanted), place
        seen += 1
    assert seen > 20


def _raised(run, given):
    try:
        run(*given)
    except ExecutionError as error:
        return error
