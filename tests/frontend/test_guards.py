"""Conditions on sizes under which a program was traced: kept, printed, stored and checked."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.export import Dim

import torch_ir
from torch_ir.executor import IRExecutor, check_types
from torch_ir.ir import SymExpr


class Halves(nn.Module):
    """Another program for odd sizes."""

    def forward(self, x, rest, *, scale):
        y = x * 2 if x.shape[0] % 2 == 0 else x - 1
        if rest["y"][0].shape[1] * 2 > x.shape[0] + 3:
            y = y + 1
        return y * scale.sum() + rest["y"][0].sum()


def extracted(strict: bool = False) -> torch_ir.IR:
    free = Dim.DYNAMIC
    args = (torch.ones(4, 6), {"y": [torch.ones(2, 7)]})
    shapes = {"x": {0: free}, "rest": {"y": [{1: free}]}, "scale": {0: free}}
    exported = torch.export.export(
        Halves().eval(), args, {"scale": torch.ones(3)}, dynamic_shapes=shapes, strict=strict
    )
    return torch_ir.extract_ir(exported)


@pytest.mark.parametrize("strict", [False, True])
def test_guards_are_expressions_over_the_symbols(strict):
    ir = extracted(strict)
    x, y, _ = (next(d for d in meta.shape if not isinstance(d, int)) for meta in ir.graph_inputs)
    assert set(ir.guards) == {SymExpr(f"{x} % 2 == 0"), SymExpr(f"2*{y} > {x} + 3")}
    assert ir.check() == ()
    assert check_types(ir) == ()
    assert torch_ir.parse(str(ir)) == ir
    assert torch_ir.IR.from_dict(ir.to_dict()) == ir
    assert ir.diff(ir.replace(guards=()))


def test_a_call_that_breaks_a_guard_is_refused():
    ir = extracted()
    executor = IRExecutor(ir, {})
    model, rest, scale = Halves(), {"y": [torch.ones(2, 8)]}, torch.rand(5)
    for size in (2, 6, 12):
        x = torch.rand(size, 6)
        assert torch.equal(executor(x, rest, scale=scale), model(x, rest, scale=scale))
    symbol = ir.graph_inputs[0].shape[0]
    with pytest.raises(torch_ir.InputError) as caught:
        executor(torch.rand(5, 6), rest, scale=scale)
    assert str(caught.value) == (
        f"the program was traced for sizes where ({symbol} % 2) == 0, got {symbol} = 5 "
        f"(dimension 0 of input 0 (%x: f32[{symbol}, 6]))\n"
        "Extract the model again with such sizes: there it is another program."
    )


@dataclass
class Pair:
    """Two tensors."""

    x: torch.Tensor
    y: torch.Tensor


torch.export.register_dataclass(Pair, serialized_type_name="test_guards.Pair")


class Held(nn.Module):
    """Takes arguments in all the places where they can stand."""

    def forward(self, pair, *rest, z):
        halves = [t.reshape(-1, 2) for t in (pair.x, rest[0], z["deep"][0])]
        return *halves, pair.y


@pytest.mark.parametrize("held", [0, 1, 2], ids=["in a class", "among *rest", "below a keyword"])
def test_guards_are_kept_wherever_the_argument_stands(held):
    tensors = [torch.ones(size, 3) for size in (8, 10, 12)]
    sizes = torch.export.ShapesCollection()
    sizes[tensors[held]] = {0: Dim.DYNAMIC}
    ir = torch_ir.extract_ir(
        Held().eval(),
        (Pair(tensors[0], torch.ones(2)), tensors[1]),
        kwargs={"z": {"deep": [tensors[2]]}},
        dynamic_shapes=sizes,
    )
    assert SymExpr("(3*s0) % 2 == 0") in ir.guards
    tensors[held] = torch.ones(7, 3)
    with pytest.raises(torch_ir.InputError, match=r"got s0 = 7 \(dimension 0 of input"):
        IRExecutor(ir, {})(Pair(tensors[0], torch.ones(2)), tensors[1], z={"deep": [tensors[2]]})


class Scaled(nn.Module):
    def forward(self, x, n, mode):
        return x * n if mode == "scale" and x.shape[0] > 2 else x


def test_values_that_a_call_is_compared_with_need_no_guard():
    shapes = {"x": {0: Dim.DYNAMIC}, "n": None, "mode": None}
    ir = torch_ir.extract_ir(Scaled().eval(), (torch.ones(4), 3, "scale"), dynamic_shapes=shapes)
    assert all(set(guard.symbols) for guard in ir.guards)
    executor = IRExecutor(ir, {})
    assert torch.equal(executor(torch.ones(6), 3, "scale"), torch.full((6,), 3.0))
    with pytest.raises(torch_ir.InputError):
        executor(torch.ones(2), 3, "scale")


def test_a_guard_over_an_unknown_symbol_is_found():
    ir = torch_ir.IR([], [], [], [], guards=[SymExpr("s0 > 1")])
    assert [str(finding) for finding in ir.check()] == [
        "[unbound-symbol] the symbol s0 in the guard s0 > 1 has no range"
    ]
