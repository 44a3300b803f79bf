"""Attention as torch's CPU runs it, decomposed with the logarithms of its sums."""

from __future__ import annotations

import pytest
import torch

import torch_ir
from torch_ir.torch_versions import torch_is


@pytest.mark.parametrize("heads", [2, 1])
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize(
    "options",
    ["dropout_p=0.0", "is_causal=True", "attn_mask=%m", "scale=0.3", "is_causal=True, scale=0.3"],
)
def test_fused_attention_and_its_logarithms(options, dtype, heads):
    if dtype == "f64" and not torch_is("2.13"):
        pytest.skip("this version's fake kernel says float32 for what its kernel gives in float64")
    mask = f"input %m: {dtype}[1, 2, 3, 5]" if "%m" in options else ""
    sums = "f64" if dtype == "f64" else "f32"
    ir = torch_ir.parse(f"""ir {{
      input %q: {dtype}[1, 2, 3, 4]
      input %k: {dtype}[1, {heads}, 5, 4]
      input %v: {dtype}[1, {heads}, 5, 4]
      {mask}
      %y.0: {dtype}[1, 2, 3, 4], %y.1: {sums}[1, 2, 3] = y: \
aten._scaled_dot_product_flash_attention_for_cpu.default(%q, %k, %v, {options})
      return %y.0, %y.1
    }}""")
    kinds = [(meta.shape, getattr(torch, meta.dtype)) for meta in ir.graph_inputs]
    torch.manual_seed(0)
    inputs = [torch.randn(*shape).to(kind) for shape, kind in kinds]
    if mask:
        inputs[3][:, :, 1] = -torch.inf  # a row that sees nothing
    lowered = torch_ir.decompose(ir)
    assert not any("attention" in node.op_type for node in lowered.nodes)
    for against in ("aten", "reference"):
        report = torch_ir.compare(ir, {}, inputs, run=lowered, against=against)
        assert report.verdict == "agree"
    made, wanted = (torch_ir.execute_ir(p, inputs, weights={}) for p in (lowered, ir))
    torch.testing.assert_close(made, wanted, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("lower", [torch_ir.decompose, lambda ir: torch_ir.to_edge(ir).ir()])
def test_a_head_of_keys_may_serve_several_of_queries(lower):
    class Grouped(torch.nn.Module):
        def forward(self, query, key):
            attend = torch.nn.functional.scaled_dot_product_attention
            return attend(query, key, key, enable_gqa=True)

    inputs = torch.randn(1, 4, 3, 8), torch.randn(1, 2, 5, 8)
    lowered = lower(torch_ir.extract_ir(Grouped(), inputs))
    torch.testing.assert_close(torch_ir.IRExecutor(lowered)(*inputs), Grouped()(*inputs))
