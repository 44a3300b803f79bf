"""The order that kernels may choose is no divergence, nor is what follows from it."""

from __future__ import annotations

import pytest
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


SIDES = ("aten", "eager")
OPEN = """ir {
  input %x: f32[64]
  %a: f32[64] = aten.dropout.default(%x, 0.5, True)
  %b: f32[64] = aten.rand_like.default(%a)
  %c: f32[64] = aten.empty_like.default(%x)
  %d: f32[64] = aten.mul.Tensor(%a, %b)
  return %a, %b, %c, %d
}"""


def test_torch_agrees_with_itself_in_draws_and_in_memory_that_nothing_has_written():
    program, x = torch_ir.parse(OPEN), torch.ones(64)
    before = torch.get_rng_state()
    for run in SIDES:
        for against in SIDES:
            for given in (torch.zeros(64), torch.full((64,), 7.0)):  # what empty_like may find
                del given
                report = torch_ir.compare(program, {}, (x,), run=run, against=against)
                assert (report.verdict, report.compared) == ("agree", ("a", "b", "d"))
    assert torch.equal(torch.get_rng_state(), before)


def test_memory_that_happens_to_be_equal_is_not_compared():
    torch.use_deterministic_algorithms(True)  # fills what nothing has written with NaN
    try:
        report = torch_ir.compare(
            torch_ir.parse(OPEN), {}, (torch.ones(64),), run="eager", against="aten"
        )
        assert report.compared == ("a", "b", "d")
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_kernel_that_draws_otherwise_is_a_fault():
    program, x = torch_ir.parse(OPEN), torch.ones(64)
    torch_ir.register_executor("aten.rand_like.default")(
        lambda inputs, attributes: [torch.rand_like(inputs[0]) / 2]
    )
    try:
        graph = torch_ir.compile_graph(program)
        assert torch_ir.compare(program, {}, (x,), run=graph, against="eager").first.node == "b"
    finally:
        torch_ir.executor.unregister_executor("aten.rand_like.default")


@pytest.mark.parametrize("after", ["neg.default(%d)", "abs.default(%d)", "sum.default(%d)"])
def test_what_follows_from_an_open_nan_is_not_compared(after):
    shape = "" if "sum" in after else "2"
    ir = torch_ir.parse(f"""ir {{
      input %a: f32[2]
      input %b: f32[2]
      input %c: f32[2]
      %d: f32[2] = aten._dirichlet_grad.default(%a, %b, %c)
      %e: f32[{shape}] = aten.{after}
      return %e
    }}""")
    beyond = torch.tensor([-1.0, 0.3]), torch.tensor([-2.0, 5e8]), torch.tensor([-1.0, -2.0])
    for run, against in (("aten", "reference"), ("reference", "aten")):
        report = torch_ir.compare(ir, {}, beyond, run=run, against=against)
        assert report.verdict == "not compared", str(report)
