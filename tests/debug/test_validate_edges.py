"""Calls at the edge of what torch defines, which only random programs made."""

from __future__ import annotations

import pytest
import torch

import torch_ir

LANCZOS = """ir {
  input %x: f32[1, 1, 4, 4]
  %y: f32[1, 1, 8, 8] = aten._upsample_lanczos2d_aa.vec(\
%x, output_size=[8, 8], align_corners=True, scale_factors=None)
  return %y
}"""
PART_OF_A_SIZE = """ir {
  input %x: f32[4]
  %y: f32[4] = aten._functional_sym_constrain_range.default(\
size=0.5, min=None, max=0, dep_token=%x)
  return %y
}"""
ONE_NUMBER = """ir {
  input %g: bf16[1]
  input %x: bf16[]
  input %s: bf16[1]
  input %z: bf16[1]
  %y.0: f32[1], %y.1: f32[1], %y.2: f32[1] = y: \
aten._fake_quantize_learnable_per_tensor_affine_backward.default(\
%g, %x, %s, %z, quant_min=0, quant_max=1, grad_factor=2.0)
  return %y.0, %y.1, %y.2
}"""
LARGE_SHAPES = """ir {
  input %a: f32[4]
  input %x: f32[4]
  %y: f32[4] = aten._standard_gamma_grad.default(%a, %x)
  return %y
}"""
NO_BINS = """ir {
  input %x: f32[4, 2]
  %y.0: f32[1], %y.1: f32[3] = y: aten._histogramdd_bin_edges.default(%x, bins=[0, 2])
  return %y.0, %y.1
}"""
ONE_COMPLEX = """ir {
  %y: c64[1] = aten.hamming_window.default(window_length=1, dtype=torch.complex64)
  return %y
}"""
BY_EDGES = """ir {
  input %e: f32[5]
  input %x: f32[4]
  %y.0: f32[4], %y.1: f32[5] = y: aten.histogram.bins_tensor(%x, %e)
  return %y.0, %y.1
}"""
NEAR_ZERO = torch.zeros(1, 1, 4, 4)
NEAR_ZERO[0, 0, 2, 2] = 100.0
ONE = torch.ones(1, dtype=torch.bfloat16)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        (LANCZOS, [NEAR_ZERO]),  # weights along both axes are nothing but rounding
        (PART_OF_A_SIZE, [torch.ones(4)]),
        (ONE_NUMBER, [ONE, ONE[0] * 0.3, ONE, ONE * 0]),
        # the power of a sample is no normal number in the first two
        (
            LARGE_SHAPES,
            [torch.tensor([457.0, 3566.0, 2.0, 30.0]), torch.tensor([0.08, 0.56, 3, 0.7])],
        ),
        (NO_BINS, [torch.randn(4, 2)]),
        (ONE_COMPLEX, []),
        (BY_EDGES, [torch.tensor([0.0, 1, 1, 2, 5]), torch.arange(4.0)]),
    ],
    ids=[
        "lanczos",
        "part of a size",
        "one number",
        "large shapes",
        "no bins",
        "one complex",
        "equal edges",
    ],
)
def test_torch_agrees_with_the_meaning(text, inputs):
    if text == LANCZOS and not hasattr(torch.ops.aten, "_upsample_lanczos2d_aa"):
        pytest.skip("this version of torch has no such operator")
    assert torch_ir.validate(torch_ir.parse(text), {}, inputs).verdict == "agree"


def test_counts_between_edges_in_no_order_are_open():
    edges = torch.tensor([3.0, 1, 2, 5, 0])
    report = torch_ir.validate(torch_ir.parse(BY_EDGES), {}, [edges, torch.arange(4.0)])
    assert report.verdict != "disagree"


@pytest.mark.parametrize("dtype", ["f32", "c64", "bf16", "f16", "u8", "i32"])
def test_the_second_derivative_of_a_gated_unit_in_each_dtype(dtype):
    whole = dtype in ("u8", "i32")
    ir = torch_ir.parse(f"""ir {{
      input %a: {dtype}[3, 4]
      input %b: {dtype}[3, 2]
      input %c: {dtype}[3, 4]
      input %d: {dtype}[3, 2]
      input %e: {dtype}[3, 4]
      %y: {"f32" if whole else dtype}[3, 4] = aten.glu_backward_jvp.default(%a, %b, %c, %d, %e, -1)
      return %y
    }}""")
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        given = [
            (torch.randn(*meta.shape, generator=generator) * 3).abs()
            if whole
            else torch.randn(*meta.shape, generator=generator, dtype=torch.complex64)
            if dtype == "c64"
            else torch.randn(*meta.shape, generator=generator)
            for meta in ir.graph_inputs
        ]
        kinds = [getattr(torch, meta.dtype) for meta in ir.graph_inputs]
        inputs = [tensor.to(kind) for tensor, kind in zip(given, kinds, strict=True)]
        assert torch_ir.validate(ir, {}, inputs).verdict == "agree"


@torch.library.custom_op("edges::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x):
    return x.new_empty(5)


def test_a_fake_kernel_that_says_another_type_than_the_kernel_gives():
    ir = torch_ir.parse("""ir {
      operator "edges::doubled(Tensor x) -> Tensor"
      input %x: f32[2, 3]
      %y: f32[5] = edges.doubled.default(x=%x)
      return %y
    }""")
    report = torch_ir.validate(ir, {}, [torch.ones(2, 3)])
    told = "its kernel gives f32[2, 3] in place of f32[5], as its fake kernel says"
    assert (report.verdict, report.divergences[0].reason) == ("disagree", told)


def test_what_has_no_elements_has_no_values_to_refuse():
    ir = torch_ir.parse("""ir {
      symbol s0: 2..64
      input %x: f32[s0]
      input %offsets: f32[s0]
      %y: f32[s0 - 1, 0] = aten._jagged_to_padded_dense_forward.default(\
        %x, [%offsets], max_lengths=[0])
      return %y
    }""")
    given = torch.ones(3), torch.tensor([0.0, 5.0, -1.0])
    assert torch_ir.validate(ir, {}, given).verdict == "agree"


def test_what_a_kernel_reads_as_it_writes_is_compared_with_eager_alone():
    class Overlaps(torch.nn.Module):
        def forward(self, x):
            x.t()[1:3].add_(x[0][None].expand(2, 4))
            return x * 1

    x = torch.arange(16.0).view(4, 4)
    report = torch_ir.validate(torch_ir.extract_ir(Overlaps(), (x.clone(),)), {}, (x,))
    assert report.verdict == "agree"
    assert str(report) == (
        "no reader disagrees on Overlaps: denotation 6 of 7, eager 7 of 7\n"
        "  denotation: 6 compared, 0 by decomposition\n"
        "  eager: 7 compared\n"
        "  without denotation: it reads what it writes, in an order of its kernel (1)"
    )
