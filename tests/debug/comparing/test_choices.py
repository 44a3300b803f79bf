"""The order that kernels may choose is no divergence, nor is what follows from it."""

from __future__ import annotations

import torch

import torch_ir
from torch_ir.backends import SUPPORTED


class Routed(torch.nn.Module):
    """Takes some elements in any order, and others by their places."""

    def forward(self, x, y):
        weights, places = torch.topk(x, 3, sorted=False)
        taken = torch.gather(y, -1, places) * weights
        return taken, taken.sum(-1)


class Ordered(torch_ir.DelegateBackend):
    """Runs on torch, and chooses in order, or in order the wrong elements."""

    name = "ordered"

    def __init__(self, largest=True, factor=1.0):
        self.largest, self.factor = largest, factor

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        asked = {"sorted": True, "largest": self.largest}
        nodes = [
            node.replace(attrs={**node.attrs, **asked}) if "topk" in node.op_type else node
            for node in ir.nodes
        ]
        run = torch_ir.IRExecutor(ir.replace(nodes=nodes, signature=None), payload)

        def call(*given):
            made = run(*given)
            if not isinstance(made, tuple) or not made[-1].is_floating_point():
                return made
            return [*made[:-1], made[-1] * (self.factor if len(ir.nodes) > 1 else 1)]

        return call


def test_another_order_is_right():
    torch.manual_seed(0)
    given = torch.randn(4, 30), torch.randn(4, 30)
    ir = torch_ir.extract_ir(Routed(), given)
    assert torch_ir.validate(ir, {}, given).verdict == "agree"
    assert torch_ir.validate(ir, {}, given, backend=Ordered()).verdict != "disagree"
    for run, against in (("aten", "reference"), ("reference", "aten"), (Ordered(), "aten")):
        for mode in ("isolated", "accumulated", "both"):
            report = torch_ir.compare(ir, {}, given, run=run, against=against, mode=mode)
            open_ones = () if mode == "isolated" else ("not compared",)
            assert report.verdict in ("agree", *open_ones)
    wrong = torch_ir.compare(ir, {}, given, run=Ordered(largest=False), against="aten")
    assert wrong.first.node == "topk"
    scaled = torch_ir.validate(ir, {}, given, backend=Ordered(factor=1.01))
    assert scaled.verdict == "disagree"
    assert "sum_1" in {found.node for found in scaled.divergences}
