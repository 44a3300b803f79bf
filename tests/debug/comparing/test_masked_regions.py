"""Regions with masked attention: what is masked out moves nothing."""

import torch

from torch_ir import DelegateBackend, compare, compile_graph, parse
from torch_ir.backends import SUPPORTED

MASKED = parse("""ir {
  input %x: f32[2, 4]
  input %m: f32[2, 4]
  %e: f32[2, 4] = aten.mul.Tensor(%x, %x)
  %a: f32[2, 4] = aten.add.Tensor(%e, %m)
  %s: f32[2, 4] = aten._softmax.default(%a, 1, False)
  return %s
}""")


class Device(DelegateBackend):
    name = "device"

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        graph = compile_graph(ir)
        # another order of rounding, as a fused kernel has one
        return lambda *given: [t * (1 + 2**-23) for t in graph.eval(given)]


def test_a_fused_kernel_may_round_where_a_mask_is():
    mask = torch.tensor([[0.0, 0.0, float("-inf"), 0.0]] * 2)
    torch.manual_seed(0)
    report = compare(MASKED, {}, (torch.randn(2, 4), mask), run=Device(), mode="isolated")
    assert report.verdict == "agree", report


def test_what_the_denotation_refuses_is_not_compared():
    ir = parse("""ir {
      input %x: bf16[2, 2]
      %y: bf16[2, 2] = aten.linalg_matrix_exp.default(%x)
      return %y
    }""")
    report = compare(ir, {}, (torch.zeros(2, 2, dtype=torch.bfloat16),), mode="isolated")
    assert report.verdict == "not compared"
    assert report.not_compared["y"].startswith("the denotation refuses it: ")
