"""Sizes and numbers of a call against what a program was extracted for: each misfit is named."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

import torch_ir
from functions import CallOfTwo
from torch_ir.errors import ExecutionError, InputError
from torch_ir.executor import IRExecutor, execute_ir

BATCH = Dim("batch", min=2, max=8)


def extracted(function, args, dynamic_shapes=None):
    return torch_ir.extract_ir(CallOfTwo(function).eval(), args, dynamic_shapes=dynamic_shapes)


def told(ir, text):
    """The text with ``{0}``, ``{1}`` for the symbols of the program, in order."""
    return text.format(*ir.symbols)


@pytest.mark.parametrize(
    ("function", "axes", "sizes", "wrong", "message"),
    [
        (
            torch.mul,
            ({0: BATCH}, {0: BATCH}),
            (3, 3),
            (9, 9),
            "dimension 0 of input 0 (%x: f32[{0}]) is 9, which is outside the range 2..8 of {0}",
        ),
        (
            torch.mul,
            ({0: BATCH}, {0: BATCH}),
            (3, 3),
            (1, 1),
            "dimension 0 of input 0 (%x: f32[{0}]) is 1, which is outside the range 2..8 of {0}",
        ),
        (
            torch.mul,
            ({0: BATCH}, {0: BATCH}),
            (3, 3),
            (4, 5),
            "dimension 0 of input 1 (%y: f32[{0}]) is 5, expected {0} = 4",
        ),
        (
            lambda x, y: x + y[1:],
            ({0: BATCH}, {0: BATCH + 1}),
            (3, 4),
            (4, 6),
            "dimension 0 of input 1 (%y: f32[{0} + 1]) is 6, expected {0} + 1 = 5",
        ),
        (
            lambda x, y: x.sum() + y[::2],
            (None, {0: 2 * BATCH}),
            (3, 8),
            (3, 7),
            "dimension 0 of input 1 (%y: f32[2*{0}]) is 7, and 2*{0} = 7 is not solved for {0}",
        ),
        (
            lambda x, y: x.sum() + y[::2],
            (None, {0: 2 * BATCH}),
            (3, 8),
            (3, 18),
            "dimension 0 of input 1 (%y: f32[2*{0}]) is 18, "
            "which makes {0} 9, which is outside the range 2..8 of {0}",
        ),
        (
            torch.outer,
            ({0: BATCH}, None),
            (3, 4),
            (3, 5),
            "input 1 (%y: f32[4]) has the wrong shape: expected f32[4], got f32[5]",
        ),
    ],
)
def test_a_size_that_does_not_fit(function, axes, sizes, wrong, message):
    ir = extracted(function, tuple(map(torch.ones, sizes)), axes)
    runs = torch_ir.parse(str(ir))
    for run in (lambda args: IRExecutor(runs)(*args), lambda args: execute_ir(ir, args, {})):
        with pytest.raises(InputError) as caught:
            run(tuple(map(torch.ones, wrong)))
        assert str(caught.value) == told(ir, message)
    x, y = map(torch.ones, sizes)
    assert torch.equal(IRExecutor(ir)(x, y), function(x, y))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (9, "args[1] is 9, which is outside the range {1} of {0}"),
        (2.5, "args[1] must be an integer, got 2.5"),
        (True, "args[1] must be an integer, got True"),
        ("3", "args[1] must be a number, got str"),
    ],
)
def test_a_number_that_does_not_fit(given, message):
    ir = extracted(lambda x, n: x * n, (torch.ones(2), 5), (None, Dim.DYNAMIC(min=2, max=8)))
    ((symbol, bounds),) = ir.symbols.items()
    with pytest.raises(InputError) as caught:
        IRExecutor(ir)(torch.ones(2), given)
    assert str(caught.value) == message.format(symbol, bounds)


NUMBERS = """
ir "Numbers" {{
  symbol s0: 2..8
  symbol s1: 0..
  signature ((%x, {}), {{}}) -> %mul
  input %x: f32[s0]
  %mul: f32[s0] = aten.mul.Tensor(%x, other=`s1`)
  return %mul
}}
"""


@pytest.mark.parametrize(
    ("numbers", "given", "message"),
    [
        ("`2*s0`, `s1`", (6, 1), "a number of the call is 6, expected 2*s0 = 8"),
        ("`s1`, `s1`", (1, 2), "args[2] is 2, expected s1 = 1"),
        ("`2*s1`", (5,), "a number of the call is 5, and 2*s1 = 5 is not solved for s1"),
        ("`s0 + s1`", (1,), "a number of the call is 1, which makes s1 -3, which is outside the"),
    ],
)
def test_numbers_that_do_not_agree(numbers, given, message):
    ir = torch_ir.parse(NUMBERS.format(numbers))
    with pytest.raises(InputError) as caught:
        IRExecutor(ir)(torch.ones(4), *given)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("numbers", "given"), [("`2*s0`, `s1`", (8, 3)), ("`2*s1`", (6,)), ("`s0 + s1`", (7,))]
)
def test_numbers_that_follow_from_others(numbers, given):
    ir = torch_ir.parse(NUMBERS.format(numbers))
    assert torch.equal(IRExecutor(ir)(torch.ones(4), *given), torch.full((4,), 3.0))


def test_plain_tensors_for_a_program_that_takes_numbers():
    ir = torch_ir.parse(NUMBERS.format("`s1`"))
    runs = (
        lambda: execute_ir(ir, (torch.ones(4),), {}),
        lambda: torch_ir.validate(ir, {}, (torch.ones(4),)),
    )
    for run in runs:
        with pytest.raises(InputError) as caught:
            run()
        assert str(caught.value) == (
            "the program takes numbers, and nothing gives s1\n"
            "Call it with the model's own arguments."
        )


@pytest.mark.parametrize("given", [4, 3.0, True, "3", None])
def test_a_number_that_the_program_was_specialized_on(given):
    ir = extracted(lambda x, n: x.repeat(n) * n, (torch.ones(2), 3))
    assert ir.symbols == {}
    with pytest.raises(InputError) as caught:
        IRExecutor(ir)(torch.ones(2), given)
    assert str(caught.value) == (
        f"args[1] is {given!r}, the program was extracted for 3\n"
        "Extract the model again with the value that you want."
    )
    assert torch.equal(IRExecutor(ir)(torch.ones(2), 3), torch.full((6,), 3.0))


def head(x, n):
    count = n.item()
    torch._check(count >= 2)
    torch._check(count <= 4)
    return x.new_zeros(count)


@pytest.mark.parametrize("value", [1, 5, -1])
def test_a_value_that_data_gives_outside_its_range(value):
    ir = extracted(head, (torch.ones(6), torch.tensor(3)))
    with pytest.raises(ExecutionError) as caught:
        IRExecutor(ir)(torch.ones(6), torch.tensor(value))
    (node,) = [node for node in ir.nodes if node.binds]
    (symbol,) = node.binds
    assert str(caught.value) == (
        f"node 'item': the value of {symbol} is {value}, which is outside its range 2..4\n"
        f"    {node}\n"
        f"    at {node.location}"
    )
    assert IRExecutor(ir)(torch.ones(6), torch.tensor(4)).shape == (4,)


def test_a_condition_on_data_that_the_program_asserts():
    def asserts(x, n):
        count = n.item()
        torch._check(count % 2 == 0, lambda: "an even number is needed")
        return x * count

    ir = extracted(asserts, (torch.ones(2), torch.tensor(4)))
    assert torch.equal(IRExecutor(ir)(torch.ones(2), torch.tensor(6)), torch.full((2,), 6.0))
    with pytest.raises(ExecutionError) as caught:
        IRExecutor(ir)(torch.ones(2), torch.tensor(3))
    (node,) = [n for n in ir.nodes if n.op_type == "aten._assert_scalar.default"]
    assert str(caught.value) == (
        f"node {node.name!r}: {node.op_type} failed: {node.attrs['assert_msg']}\n"
        f"    {node}\n"
        f"    at {node.location}"
    )
