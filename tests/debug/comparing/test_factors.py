"""Factors of a matrix may have other signs: what they make up is judged, also of one another."""

from __future__ import annotations

import pytest
import torch

import torch_ir
from torch_ir.backends import SUPPORTED
from torch_ir.ir.builder import subgraph

TURNED = {
    "aten._linalg_svd.default": (0, 2),
    "aten.linalg_qr.default": (0, 1),
    "aten._linalg_eigh.default": (1,),
    "aten.linalg_eig.default": (1,),
}
"""The results of which all signs may be others."""


class Turning(torch_ir.DelegateBackend):
    """Runs on torch, node by node, and gives factors other signs: all that belong together."""

    name = "turning"

    def __init__(self, is_wrong=False):
        self.is_wrong = is_wrong

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        steps = [
            (node, torch_ir.IRExecutor(subgraph(ir, [node], node.outputs), {}))
            for node in ir.nodes
        ]

        def call(*given):
            values = dict(zip(ir.input_names, given, strict=True))
            for node, run in steps:
                names = dict.fromkeys(meta.name for meta in node.inputs)
                made = run(*[values[name] for name in names])
                made = list(made) if isinstance(made, tuple) else [made]
                for place in TURNED.get(node.op_type, ()):
                    made[place] = made[place] * -1
                    if self.is_wrong:
                        made[place] = made[place].roll(1, -1)
                        break
                values |= dict(zip([meta.name for meta in node.outputs], made, strict=True))
            return [values[name] for name in ir.output_names]

        return call


def chain(operator: str, *, shows: bool) -> torch_ir.IR:
    """A matrix of factors taken apart once more."""
    types = {
        "aten._linalg_svd.default": ("f32[4, 4]", "f32[4]", "f32[4, 4]"),
        "aten.linalg_qr.default": ("f32[4, 4]", "f32[4, 4]"),
        "aten._linalg_eigh.default": ("f32[4]", "f32[4, 4]"),
        "aten.linalg_eig.default": ("c64[4]", "c64[4, 4]"),
    }[operator]
    place = TURNED[operator][-1]
    first, second = (
        ", ".join(f"%{name}.{i}: {dtype}" for i, dtype in enumerate(types)) for name in "ab"
    )
    shown = [f"%{name}.{i}" for name in ("ab" if shows else "b") for i in range(len(types))]
    return torch_ir.parse(f"""ir {{
      input %x: f32[4, 4]
      {first} = {operator}(%x)
      {second} = {operator}(%a.{place})
      return {", ".join(shown)}
    }}""")


@pytest.mark.parametrize("shows", [True, False])
@pytest.mark.parametrize("operator", TURNED)
def test_factors_with_other_signs_are_right(operator, shows):
    ir, x = chain(operator, shows=shows), torch.randn(4, 4, generator=torch.manual_seed(3))
    for mode in ("isolated", "accumulated"):
        report = torch_ir.validate(ir, {}, (x,), backend=Turning(), mode=mode)
        assert report.verdict != "disagree", str(report)
        wrong = torch_ir.validate(ir, {}, (x,), backend=Turning(is_wrong=True), mode=mode)
        # where what a second factorization takes is hidden, nothing is known of its signs
        open_ones = () if shows or mode == "isolated" else ("not compared",)
        assert wrong.verdict in ("disagree", *open_ones)
    for against in ("reference", "aten"):
        report = torch_ir.compare(ir, {}, (x,), run=Turning(), against=against)
        assert report.verdict != "disagree", str(report)
        wrong = torch_ir.compare(ir, {}, (x,), run=Turning(is_wrong=True), against=against)
        assert wrong.verdict == "disagree"


@pytest.mark.parametrize("operator", TURNED)
def test_what_follows_from_factors_alone_is_not_called_wrong(operator):
    place = TURNED[operator][-1]
    parts = list(map(str, chain(operator, shows=False).nodes[0].outputs))
    ir = torch_ir.parse(f"""ir {{
      input %x: f32[4, 4]
      {", ".join(parts)} = {operator}(%x)
      %c: {parts[place].split(": ")[1]} = aten.neg.default(%a.{place})
      return %c
    }}""")
    x = torch.randn(4, 4, generator=torch.manual_seed(3))
    for mode in ("isolated", "accumulated"):
        report = torch_ir.validate(ir, {}, (x,), backend=Turning(), mode=mode)
        assert report.verdict == "not compared"
    assert torch_ir.compare(ir, {}, (x,), run=Turning()).verdict != "disagree"
