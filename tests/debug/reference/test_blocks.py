"""Large values are read in blocks: the same errors as at once, in a part of the memory."""

from __future__ import annotations

import tracemalloc

import pytest
import torch

from torch_ir import IR, parse, validate
from torch_ir.debug.reference.blocks import BLOCK
from torch_ir.debug.reference.denotation import Meanings, allowances, errors_of
from torch_ir.debug.reference.eager_call import call_plainly

ROWS = 2 * BLOCK // 256 + 3
CALLS = (
    "aten.add.Tensor(%x, %b, alpha=3)",
    "aten.add.Tensor(%b, %x)",
    "aten.gelu.default(%x)",
    "aten.gt.Scalar(%x, 0.5)",
    "aten._softmax.default(%x, 1, False)",
    "aten._log_softmax.default(%x, -1, False)",
    "aten.layer_norm.default(%x, [256])",
    "aten.mm.default(%x, %w)",
    "aten.linear.default(%x, %w, %b)",
)


def _program(call: str) -> IR:
    dtype = "bool" if "gt" in call else "f32"
    return parse(f"""ir {{
      input %x: f32[{ROWS}, 256]
      input %w: f32[256, 256]
      input %b: f32[256]
      %y: {dtype}[{ROWS}, 256] = {call}
      return %y
    }}""")


def _inputs() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"x": (ROWS, 256), "w": (256, 256), "b": (256,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.mark.parametrize("call", CALLS)
def test_errors_in_blocks_are_those_at_once(call: str) -> None:
    ir = _program(call)
    (node,) = ir.nodes
    meaning = Meanings(ir).of(node)
    assert not isinstance(meaning, str)
    inputs = [_inputs()[meta.name] for meta in node.inputs]
    (made,) = call_plainly(node, inputs, {}, {}, torch.device("cpu"))
    wrong = made.clone()
    wrong[-1, -1] = made[-1, -1].logical_not() if made.dtype == torch.bool else 1e6
    for got in (made, wrong):
        given = meaning, node, inputs, {}, [got], {}
        (whole,) = allowances(*given, drew=False)
        ((name, error),) = errors_of(*given, drew=False)
        assert (name, error) == ("y", whole.error(whole.bound))
        assert bool(error.reason) == (got is wrong)


@pytest.mark.parametrize("call", ["exp.default(%x)", "_softmax.default(%x, 1, False)"])
def test_a_reading_takes_blocks_and_not_whole_values(call: str) -> None:
    def program(rows: int) -> IR:
        sizes = f"f32[{rows}, 256]"
        return parse(f"ir {{\n input %x: {sizes}\n %y: {sizes} = aten.{call}\n return %y\n}}")

    validate(program(2), {}, (torch.ones(2, 256),))  # imports what it needs
    ir = program(16384)
    x = torch.randn(16384, 256, generator=torch.Generator().manual_seed(0))
    tracemalloc.start()  # sees NumPy's memory, and not torch's
    try:
        report = validate(ir, {}, (x,))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.verdict == "agree"
    assert peak < x.nbytes
