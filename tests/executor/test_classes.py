"""Named tuples, torch's result types and registered classes, in arguments and results."""

from __future__ import annotations

import sys
from collections import namedtuple
from typing import NamedTuple

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir.errors import ExecutionError, InputError
from torch_ir.executor import IRExecutor, execute_ir
from whole_way import kept, runs_as_eager, same


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


class Sums(nn.Module):
    """A named tuple in and out, inside other structures."""

    def forward(self, pairs):
        total = sum(pair.left @ pair.right for pair in pairs["all"])
        return {"out": [Pair(total, total.T)], "first": pairs["all"][0]}


class Results(nn.Module):
    """What torch's own operators return, as results."""

    def forward(self, x):
        return x.max(1), torch.linalg.qr(x), [torch.sort(x), x.topk(2)], torch.frexp(x)


X = torch.arange(9.0).reshape(3, 3).sin()
PAIRS = ({"all": [Pair(X, X + 1), Pair(X * 2, X - 1)]},)


def test_named_tuples_go_in_and_come_out():
    runs_as_eager(lambda: Sums().eval(), PAIRS, ({"all": [Pair(-X, X), Pair(X, X)]},))
    result = IRExecutor(torch_ir.extract_ir(Sums().eval(), PAIRS))(*PAIRS)
    assert type(result["out"][0]) is Pair
    assert result["first"].left is PAIRS[0]["all"][0].left


def test_results_of_torch_keep_their_class():
    runs_as_eager(lambda: Results().eval(), (X,), (X.cos(),))
    result = IRExecutor(torch_ir.extract_ir(Results().eval(), (X,)))(X)
    assert type(result[0]) is torch.return_types.max
    assert torch.equal(result[0].indices, X.argmax(1))


def test_another_class_in_its_place_is_refused():
    executor = IRExecutor(torch_ir.extract_ir(Sums().eval(), PAIRS))
    for given, kind in (((X, X), "tuple"), ([X, X], "list"), (X, "Tensor")):
        with pytest.raises(InputError) as caught:
            executor({"all": [Pair(X, X), given]})
        assert str(caught.value) == f"args[0]['all'][1] must be a Pair, got {kind}"


def test_a_named_tuple_class_that_is_not_imported_is_named(monkeypatch):
    module = type(sys)("torch_ir_test_shapes")
    module.Box = namedtuple("Box", ["width", "height"], module="torch_ir_test_shapes")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    class Boxes(nn.Module):
        def forward(self, x):
            return module.Box(x + 1, x - 1)

    ir = kept(torch_ir.extract_ir(Boxes().eval(), (X,)))
    assert same(IRExecutor(ir)(X), module.Box(X + 1, X - 1))
    monkeypatch.delitem(sys.modules, module.__name__)
    with pytest.raises(ExecutionError) as caught:
        IRExecutor(ir)(X)
    assert str(caught.value) == (
        "no named tuple 'torch_ir_test_shapes.Box' with the fields width, height is imported\n"
        "Import the module that defines it, or use execute(), which takes and returns plain "
        "tensors."
    )
    assert same(execute_ir(ir, (X,), {}), (X + 1, X - 1))
    module.Box = namedtuple("Box", ["height", "width"], module="torch_ir_test_shapes")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(ExecutionError, match="with the fields width, height is imported"):
        IRExecutor(ir)(X)  # the fields are in another order


def test_a_registered_class_that_is_not_imported_is_named():
    ir = torch_ir.extract_ir(Sums().eval(), PAIRS)
    outputs = torch_ir.ir.Container("some.library.Thing", ir.signature.outputs.children)
    changed = ir.replace(signature=torch_ir.ir.Signature(ir.signature.inputs, outputs))
    with pytest.raises(ExecutionError) as caught:
        IRExecutor(changed)(*PAIRS)
    assert str(caught.value) == (
        "no class is registered with torch's pytree under the name 'some.library.Thing'\n"
        "Import the module that registers it, or use execute(), which takes and returns plain "
        "tensors."
    )
