"""Large values are read in blocks: the same errors as at once, in a part of the memory."""

from __future__ import annotations

import re
import tracemalloc

import pytest
import torch

from torch_ir import IR, parse, validate
from torch_ir.debug.reference import denotation
from torch_ir.debug.reference.blocks import BLOCK, blocks
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


def _agrees(ir: IR, named: dict[str, torch.Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read in blocks is read in several, and as at once, where it is right and wrong."""
    (node,) = ir.nodes
    meaning = Meanings(ir).of(node)
    assert not isinstance(meaning, str)
    inputs = [named[meta.name] for meta in node.inputs]
    (made,) = call_plainly(node, inputs, {}, {}, torch.device("cpu"))
    assert len([*blocks(node, inputs, [made])]) > 1
    wrong = made.clone()
    last = (-1,) * made.dim()
    wrong[last] = made[last].logical_not() if made.dtype == torch.bool else 1e6
    for got in (made, wrong):
        given = meaning, node, inputs, {}, [got], {}
        (whole,) = allowances(*given, drew=False)
        ((name, error),) = errors_of(*given, drew=False)
        assert (name, error) == ("y", whole.error(whole.bound))
        assert bool(error.reason) == (got is wrong)
    with monkeypatch.context() as patched:  # no block calls a right value wrong
        patched.setattr(denotation, "allowances", lambda *_, **__: pytest.fail("read at once"))
        assert [name for name, _ in errors_of(meaning, node, inputs, {}, [made], {}, drew=False)]


@pytest.mark.parametrize("call", CALLS)
def test_errors_in_blocks_are_those_at_once(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _agrees(_program(call), _inputs(), monkeypatch)


SHAPED = {
    "aten.mm.default(%x, %x)": "x[384, 384] -> [384, 384]",
    "aten.addmm.default(%b, %x, %w, beta=2, alpha=3)": (
        "b[1, 256] x[300, 512] w[512, 256] -> [300, 256]"
    ),
    "aten.baddbmm.default(%b, %x, %w)": (
        "b[3, 1, 256] x[3, 256, 64] w[3, 64, 256] -> [3, 256, 256]"
    ),
    "aten.matmul.default(%x, %w)": "x[5, 1, 64, 128] w[7, 128, 64] -> [5, 7, 64, 64]",
    "aten.linear.default(%x, %w, %b)": "x[4, 16] w[9000, 16] b[9000] -> [4, 9000]",
    "aten.conv2d.default(%x, %w, %b, [2, 1], [1, 2], [2, 1])": (
        "x[2, 3, 300, 90] w[4, 3, 3, 3] b[4] -> [2, 4, 149, 92]"
    ),
    "aten.conv1d.default(%x, %w, None, [3], [200])": "x[2, 140000] w[3, 2, 5] -> [3, 46799]",
    "aten.conv_transpose2d.input(%x, %w, %b, [2, 2])": (
        "x[3, 4, 50, 50] w[4, 6, 2, 2] b[6] -> [3, 6, 100, 100]"
    ),
    "aten.batch_norm.default(%x, %w, %w, %w, %v, False, 0.1, 1e-05, False)": (
        "x[2, 4, 160, 160] w[4] v[4] -> [2, 4, 160, 160]"
    ),
    "aten.avg_pool2d.default(%x, [3, 3], [2, 2], [1, 1])": "x[2, 4, 160, 160] -> [2, 4, 80, 80]",
    "aten.upsample_bilinear2d.vec(%x, [160, 160], False, None)": (
        "x[2, 4, 20, 20] -> [2, 4, 160, 160]"
    ),
    "aten.sum.dim_IntList(%x, [1])": "x[500, 3, 200] -> [500, 200]",
    "aten.scaled_dot_product_attention.default(%x, %w, %v, %b)": (
        "x[2, 3, 200, 8] w[2, 3, 200, 8] v[2, 3, 200, 8] b[1, 200, 200] -> [2, 3, 200, 8]"
    ),
    "aten.scaled_dot_product_attention.default(%x, %x, %x, is_causal=True)": (
        "x[2, 3, 300, 8] -> [2, 3, 300, 8]"
    ),
}


@pytest.mark.parametrize("call", SHAPED)
def test_all_axes_that_may_be_cut_give_the_same_errors(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, made = SHAPED[call].split(" -> ")
    shapes = {
        name: [*map(int, sizes.split(","))] for name, sizes in re.findall(r"(\w)\[(.*?)\]", given)
    }
    inputs = "\n".join(f"input %{name}: f32{sizes}" for name, sizes in shapes.items())
    ir = parse(f"ir {{\n {inputs}\n %y: f32{made} = {call}\n return %y\n}}")
    generator = torch.Generator().manual_seed(0)
    values = {name: torch.rand(sizes, generator=generator) for name, sizes in shapes.items()}
    _agrees(ir, values, monkeypatch)


@pytest.mark.parametrize(
    ("call", "made"),
    [
        ("exp.default(%x)", "[{rows}, 256]"),
        ("_softmax.default(%x, 1, False)", "[{rows}, 256]"),
        ("linear.default(%w, %x)", "[8, {rows}]"),  # a large weight
    ],
)
def test_a_reading_takes_blocks_and_not_whole_values(call: str, made: str) -> None:
    def program(rows: int) -> IR:
        inputs = f"input %x: f32[{rows}, 256]\n input %w: f32[8, 256]"
        result = f"f32{made.format(rows=rows)}"
        return parse(f"ir {{\n {inputs}\n %y: {result} = aten.{call}\n return %y\n}}")

    validate(program(2), {}, (torch.ones(2, 256), torch.ones(8, 256)))  # imports what it needs
    ir = program(16384)
    x = torch.randn(16384, 256, generator=torch.Generator().manual_seed(0))
    tracemalloc.start()  # sees NumPy's memory, and not torch's
    try:
        report = validate(ir, {}, (x, x[:8].clone()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.verdict == "agree"
    assert peak < x.nbytes


@pytest.mark.parametrize("size", [60, 400])
def test_what_is_open_everywhere_is_not_said_to_agree_in_blocks_either(size: int) -> None:
    square = f"[{size}, {size}]"
    overflows = parse(f"""ir {{
      input %x: f32{square}
      %y: f32{square} = aten.mm.default(%x, %x)
      return %y
    }}""")
    bytes_as_truth = parse(f"""ir {{
      input %x: u8{square}
      %b: b8{square} = aten.view.dtype(%x, torch.bool)
      %y: b8{square} = aten.logical_not.default(%b)
      return %y
    }}""")
    twos = torch.full((size, size), 2, dtype=torch.uint8)
    for ir, x in ((overflows, torch.full((size, size), 1e25)), (bytes_as_truth, twos)):
        report = validate(ir, {}, (x,), against=["denotation"])
        assert dict(report.not_compared) == {"y": "its values are open"}
        assert report.verdict == "not compared"


@pytest.mark.parametrize(
    ("call", "made"),
    [
        ("mm.default(%x, %w)", "0, 500"),
        ("mm.default(%w, %z)", "500, 0"),
        ("linear.default(%x, %w)", "0, 500"),
        ("mul.Tensor(%x, %w)", "0, 500, 500"),
    ],
)
def test_results_without_elements_of_large_operands_agree(call: str, made: str) -> None:
    given = {"w": (500, 500), "z": (500, 0), "x": (0, 1, 500) if "mul" in call else (0, 500)}
    inputs = "\n".join(f"input %{name}: f32{[*shape]}" for name, shape in given.items())
    ir = parse(f"ir {{\n {inputs}\n %y: f32[{made}] = aten.{call}\n return %y\n}}")
    report = validate(ir, {}, [torch.ones(shape) for shape in given.values()])
    assert report.verdict == "agree"
