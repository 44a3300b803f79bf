"""What programs compute with numbers, as an ``ExportedProgram`` and back."""

from __future__ import annotations

import pytest
import torch

from torch_ir import IRExecutor, extract_ir, parse, to_exported_program
from torch_ir.errors import PassError
from torch_ir.ir.expressions import FUNCTIONS
from torch_ir.ir.expressions.language import ARITHMETIC, BITWISE, COMPARISONS

TRUTHS = [*(f"u0 {sign} u1" for sign in COMPARISONS), "u2 == 1", "s0 > 3", "z0 > 0.5"]
OF_TWO = ("min", "max", *BITWISE)
EXPRESSIONS = [
    *(f"u0 {sign} {2 if sign == '**' else 'u1'}" for sign in ARITHMETIC),
    *(f"{name}(u0, u1)" if name in OF_TWO else f"{name}(u1 / 2)" for name in FUNCTIONS),
    *(f"{name}(z0)" for name in ("int", "floor", "ceil", "round", "abs")),
    *TRUTHS,
    *(f"not ({truth})" for truth in TRUTHS),
    *(f"int({truth})" for truth in TRUTHS),
    *(f"({truth}) {word} (u1 > 2)" for truth in TRUTHS for word in ("and", "or", "==")),
    *("int(u2 == 1) + int(u0 < u1)", "min(s0, u0, u1)", "u0 * z0", "s0 * u0 - 1", "-u0"),
]
NOT_THERE = ("exp", "log", "sinh", "cosh", "tanh")
"""Functions that torch's numbers do not have at all."""

NOT_STORED = ("log2", "sin", "cos", "tan", "asin", "acos", "atan")
"""Functions that torch's numbers have, and its exported programs do not."""

CALLS = [
    (torch.tensor(a), torch.tensor(b), torch.tensor(c), torch.tensor(f), torch.ones(n))
    for a, b, c, f, n in ((3, 2, True, 0.75, 5), (1, 1, False, -1.5, 3), (2, 2, True, 0.25, 4))
]


def program(expression):
    """A program that gives the value of an expression, over numbers from data and a size."""
    return parse(
        f"""
        ir "Numbers" {{
          symbol s0: 2..9
          symbol u0: 0..7
          symbol u1: 1..7
          symbol u2: 0..1
          symbol z0: ..
          signature ((%i, %j, %b, %f, %x), {{}}) -> (`{expression}`, %y)
          input %i: i64[]
          input %j: i64[]
          input %b: b8[]
          input %f: f32[]
          input %x: f32[s0]
          first: aten.item.default(%i) -> u0
          second: aten.item.default(%j) -> u1
          truth: aten.item.default(%b) -> u2
          real: aten.item.default(%f) -> z0
          %y: f32[s0] = aten.mul.Tensor(%x, other=2)
          return %y
        }}
        """
    )


def numbers(run):
    """The number that each call gives, with its type."""
    found = [run(*call)[0] for call in CALLS]
    return [(type(number), number) for number in found]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_number_is_the_same_there_and_back_or_is_refused(expression):
    ir = program(expression)
    name = expression.partition("(")[0]
    if name in (*NOT_THERE, *NOT_STORED, "bit_xor"):
        with pytest.raises(PassError) as caught:
            to_exported_program(ir)
        what = {"bit_xor": "xor"}.get(name, name)
        assert (
            str(caught.value)
            == (
                f"'{expression}' cannot be computed symbolically\n"
                if name in NOT_THERE
                else f"an ExportedProgram does not compute {what} of numbers\n"
            )
            + "Compute it with tensors in the model, or outside of the model."
        )
        return
    exported = to_exported_program(ir)
    expected = numbers(IRExecutor(ir))
    assert numbers(exported.module()) == expected
    assert numbers(IRExecutor(extract_ir(exported))) == expected


def test_a_number_that_nothing_uses_needs_no_range():
    text = str(program("u0")).replace("  symbol z0: ..\n", "")
    assert text != str(program("u0"))
    ir = parse(text)
    assert not ir.check()
    assert numbers(to_exported_program(ir).module()) == numbers(IRExecutor(ir))
