"""Elements of products that are out of their bounds are judged by their own terms."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from torch_ir import IR, parse, validate
from torch_ir.debug.reference.denotation import Meanings, errors_of
from torch_ir.debug.reference.eager_call import call_plainly
from torch_ir.semantics import denotation
from torch_ir.semantics.arguments import arguments_of, as_array
from torch_ir.semantics.bounds.algebra import single_elements
from torch_ir.semantics.bounds.call import BoundedCall
from torch_ir.semantics.bounds.table import RULES

UNIT = 2.0**-24
CALLS = {
    "mm.default(%x, %w)": "x[1, 3000] w[3000, 2] -> [1, 2]",
    "bmm.default(%x, %w)": "x[2, 1, 3000] w[2, 3000, 2] -> [2, 1, 2]",
    "matmul.default(%x, %w)": "x[2, 1, 1, 3000] w[3, 3000, 2] -> [2, 3, 1, 2]",
    "mv.default(%x, %w)": "x[2, 3000] w[3000] -> [2]",
    "dot.default(%x, %w)": "x[3000] w[3000] -> []",
    "linear.default(%x, %w, %b)": "x[2, 1, 3000] w[2, 3000] b[2] -> [2, 1, 2]",
    "addmm.default(%b, %x, %w, beta=0.5, alpha=2)": "b[2] x[1, 3000] w[3000, 2] -> [1, 2]",
    "addmv.default(%b, %x, %w)": "b[2] x[2, 3000] w[3000] -> [2]",
    "baddbmm.default(%b, %x, %w)": "b[1, 2] x[2, 1, 3000] w[2, 3000, 2] -> [2, 1, 2]",
    "conv1d.default(%x, %w, %b, [2], [1], [2])": "x[1, 3, 2050] w[2, 3, 1000] b[2] -> [1, 2, 27]",
    "conv2d.default(%x, %w, None, [1, 2], [2, 1], [1, 1], 2)": (
        "x[2, 4, 9, 30] w[6, 2, 5, 30] -> [2, 6, 9, 2]"
    ),
    "conv2d.default(%x, %w)": "x[3, 30, 40] w[2, 3, 29, 40] -> [2, 2, 1]",
    "convolution.default(%x, %w, %b, [1], [0], [1], False, [0], 1)": (
        "x[1, 300, 11] w[2, 300, 10] b[2] -> [1, 2, 2]"
    ),
}


def _program(call: str, dtype: str = "f32") -> IR:
    given, made = CALLS[call].split(" -> ")
    shapes = re.findall(r"(\w)(\[.*?\])", given)
    inputs = "\n".join(f"input %{name}: {dtype}{sizes}" for name, sizes in shapes)
    return parse(f"ir {{\n {inputs}\n %y: {dtype}{made} = aten.{call}\n return %y\n}}")


def _inputs(ir: IR, *, small: bool) -> list[torch.Tensor]:
    """Drawn numbers; or lines of one large and many that vanish behind it, times others."""
    generator = torch.Generator().manual_seed(0)
    shapes = [[int(size) for size in meta.shape] for meta in ir.graph_inputs]
    if not small:
        return [torch.randn(shape, generator=generator) for shape in shapes]
    made = [torch.rand(shape, generator=generator) / 2 + 0.5 for shape in shapes]
    first = next(i for i, meta in enumerate(ir.graph_inputs) if meta.name == "x")
    made[first] = torch.rand(shapes[first], generator=generator) * UNIT * 0.4
    made[first][..., 0] = 1
    return made


def _call(ir: IR, inputs: list[torch.Tensor]) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    (node,) = ir.nodes
    values = {m.name: as_array(t) for m, t in zip(ir.graph_inputs, inputs, strict=True)}
    arguments = arguments_of(node, values.__getitem__, {})
    return arguments, denotation(node.op_type).function(**arguments)


@pytest.mark.parametrize("call", CALLS)
def test_the_terms_of_elements_add_up_to_them(call: str) -> None:
    ir = _program(call)
    arguments, meant = _call(ir, _inputs(ir, small=False))
    op_type = ir.nodes[0].op_type
    places = np.arange(meant.size)[::-1]
    terms = single_elements.TERMS[RULES[op_type]](BoundedCall(op_type, arguments, [meant]), places)
    assert terms is not None
    np.testing.assert_allclose(terms.sum(1), meant.reshape(-1)[places], rtol=1e-3, atol=1e-4)


def _reason(ir: IR, inputs: list[torch.Tensor], factor: float) -> str:
    """Why a result is wrong that loses some times of what all small terms are."""
    (node,) = ir.nodes
    named = dict(zip(ir.input_names, inputs, strict=True))
    given = [named[meta.name] for meta in node.inputs]
    made = call_plainly(node, [t.double() for t in given], {}, {}, torch.device("cpu"))[0]
    named["x"] = torch.where(named["x"] == 1, named["x"], 0.0)
    large = [named[meta.name].double() for meta in node.inputs]
    behind = call_plainly(node, large, {}, {}, torch.device("cpu"))[0]
    got = (made + factor * (behind - made)).float()
    meaning = Meanings(ir).of(node)
    assert not isinstance(meaning, str)
    ((_, error),) = errors_of(meaning, node, given, {}, [got], {}, drew=False)
    return error.reason


LINES = [call for call in CALLS if "conv" not in call]


@pytest.mark.parametrize("call", LINES)
def test_a_kernel_may_lose_what_vanishes_behind_a_large_term(call: str) -> None:
    ir = _program(call)
    inputs = _inputs(ir, small=True)
    assert not _reason(ir, inputs, 1.0)
    assert _reason(ir, inputs, 2.0)
    assert _reason(ir, inputs, -2.0)


@pytest.mark.parametrize("call", CALLS)
def test_own_errors_of_products_of_small_terms_agree(call: str) -> None:
    ir = _program(call)
    for small in (False, True):
        report = validate(ir, {}, _inputs(ir, small=small), against=["denotation"])
        assert report.verdict == "agree"


def test_terms_are_looked_at_up_to_the_first_that_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ir = parse("""ir {
      input %x: f32[300, 50]
      input %w: f32[50, 300]
      %y: f32[300, 300] = aten.mm.default(%x, %w)
      return %y
    }""")
    looked: list[int] = []
    known = single_elements.of_product

    def counting(call: BoundedCall, places: np.ndarray[Any, Any]) -> Any:
        looked.append(len(places))
        return known(call, places)

    monkeypatch.setitem(single_elements.TERMS, RULES["aten.mm.default"], counting)
    inputs = _inputs(ir, small=False)
    (node,) = ir.nodes
    meaning = Meanings(ir).of(node)
    assert not isinstance(meaning, str)
    right = inputs[0] @ inputs[1]
    for got, most in ((right, 0), (right + 1, 64)):
        looked.clear()
        ((_, error),) = errors_of(meaning, node, inputs, {}, [got], {}, drew=False)
        assert bool(error.reason) == bool(most)
        assert sum(looked) == most
