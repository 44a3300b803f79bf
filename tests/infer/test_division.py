"""Divisions whose quotient is no integer of the type are refused: they end the process."""

import pytest
import torch

import torch_ir
from torch_ir.errors import ExecutionError
from torch_ir.infer.preconditions.table import PRECONDITIONS
from torch_ir.ops.schema import known_operators

CALLS = {
    "aten.div.Tensor_mode": 'aten.div.Tensor_mode(%x, %y, rounding_mode="trunc")',
    "aten.div_.Tensor_mode": 'aten.div_.Tensor_mode(%x, %y, rounding_mode="trunc")',
    "aten.divide.Tensor_mode": 'aten.divide.Tensor_mode(%x, %y, rounding_mode="trunc")',
    "aten.div.Scalar_mode": 'aten.div.Scalar_mode(%x, other=-1, rounding_mode="trunc")',
    "prims.div.default": "prims.div.default(%x, %y)",
}


def program(call, dtype):
    return torch_ir.parse(f"""ir {{
      input %x: {dtype}[2, 3]
      input %y: {dtype}[2, 3]
      %z: {dtype}[2, 3] = {call}
      return %z
    }}""")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_the_least_integer_by_minus_one_is_refused(call, dtype):
    kind = {"i32": torch.int32, "i64": torch.int64}[dtype]
    least, ones = torch.iinfo(kind).min, torch.full((2, 3), -1, dtype=kind)
    x = torch.tensor([[1, -2, 3], [4, least, 6]], dtype=kind)
    graph = torch_ir.compile(program(CALLS[call], dtype), {})
    with pytest.raises(ExecutionError, match=rf"self holds {least} where other holds -1, and"):
        graph(x.clone(), ones)
    x[1, 1] += 1
    assert torch.equal(graph(x.clone(), ones)[0], -x)


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_the_least_integer_by_a_wrapped_divisor_is_refused(dtype):
    kind = {"i32": torch.int32, "i64": torch.int64}[dtype]
    least, others = torch.iinfo(kind).min, torch.full((2, 3), 3, dtype=kind)
    x = torch.tensor([[1, -2, 3], [4, least, 6]], dtype=kind)
    graph = torch_ir.compile(program("aten.lcm.default(%x, %y)", dtype), {})
    assert torch.equal(graph(x, others)[0], torch.lcm(x, others))
    wrapped = [n for n in range(1, 9) if int(torch.gcd(x[1, 1], torch.tensor(n).to(kind))) == -1]
    with pytest.raises(ExecutionError, match=rf"self holds {least}, which is divided by -1, and"):
        graph(x, torch.full_like(others, wrapped[0]))


def test_every_division_that_cuts_has_the_rule():
    cut = {
        name
        for name in known_operators()
        if name.startswith(("aten.div", "aten.floor_div", "prims.div")) and "_mode" in name
    }
    assert len(cut) > 8
    assert cut <= PRECONDITIONS.keys(), cut - PRECONDITIONS.keys()


@pytest.mark.parametrize("dtype", ["i32", "i64", "u8"])
@pytest.mark.parametrize("beta", [0.0, 0.3, -0.9, 2.5])
def test_integers_are_not_divided_by_a_width_that_is_0_as_an_integer(dtype, beta):
    call = f"aten.smooth_l1_loss_backward.default(%x, %x, %y, reduction=0, beta={beta})"
    graph = torch_ir.compile(program(call, dtype), {})
    x = (
        torch.arange(6)
        .reshape(2, 3)
        .to({"i32": torch.int32, "i64": torch.int64, "u8": torch.uint8}[dtype])
    )
    if beta < 1:
        with pytest.raises(ExecutionError, match=rf"beta is {beta}, which is 0 as an integer"):
            graph(x, x)
    else:
        whole = torch.ops.aten.smooth_l1_loss_backward(x, x, x, 0, beta)
        assert torch.equal(graph(x, x)[0], whole)
