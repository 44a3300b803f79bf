"""What is judged is judged at full precision, whatever torch is set to."""

import pytest
import torch

import torch_ir
from torch_ir.kernel_switches import backend_flags, flushes_subnormals, full_precision


@pytest.fixture(params=["mkldnn.matmul", "cudnn.conv"])
def shortened(request):
    """What shortens the operands of products here, or would on a GPU, set for a while."""
    home, name = request.param.split(".")
    switch = getattr(getattr(torch.backends, home), name)
    before, switch.fp32_precision = switch.fp32_precision, "bf16" if home == "mkldnn" else "ieee"
    yield switch
    switch.fp32_precision = before


def test_products_are_judged_at_full_precision_and_settings_stay(shortened):
    ir = torch_ir.parse("""
ir {
  input %x: f32[64, 256]
  input %w: f32[256, 32]
  %y: f32[64, 32] = aten.mm.default(%x, %w)
  return %y
}""")
    given, set_to = (torch.randn(64, 256), torch.randn(256, 32)), shortened.fp32_precision
    assert torch_ir.validate(ir, {}, given).verdict == "agree"
    assert torch_ir.compare(ir, {}, given, run="aten").verdict == "agree"
    assert torch_ir.decompose(ir).check() == ()
    assert shortened.fp32_precision == set_to


@pytest.mark.parametrize("products", ["highest", "high"])
def test_models_are_exported_at_full_precision(products):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(products)
    told = backend_flags()
    try:
        with full_precision():
            assert torch_ir.extract_ir(torch.nn.GELU(), (torch.ones(2),)).nodes
            assert not torch.backends.cudnn.allow_tf32
        assert torch.backends.cudnn.allow_tf32
        assert torch.get_float32_matmul_precision() == products
        assert backend_flags() == told
    finally:
        torch.set_float32_matmul_precision(before)


def test_flags_of_cudnn_that_are_locked_are_no_error(monkeypatch):
    monkeypatch.setattr(torch.backends, "__allow_nonbracketed_mutation_flag", False)
    x = torch.ones(2)
    ir = torch_ir.extract_ir(torch.nn.GELU(), (x,))
    assert torch_ir.validate(ir, {}, (x,)).verdict == "agree"


@pytest.fixture
def flushing():
    """Subnormal numbers are 0, as fast audio and recurrent models have it."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor flushes nothing")
    yield
    torch.set_flush_denormal(False)


SMALL = {
    "upsample": lambda x: torch.nn.functional.interpolate(x, scale_factor=1.5, mode="bicubic"),
    "pool": lambda x: torch.nn.functional.adaptive_avg_pool2d(x, (3, 3)),
    "group norm": lambda x: torch.nn.functional.group_norm(x, 2),
    "variance": lambda x: torch.var_mean(x, (2, 3)),
    "bessel": lambda x: torch.special.bessel_j1(x),
    "half": lambda x: x * 0.5,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SMALL)
def test_small_numbers_are_judged_whether_they_are_flushed_or_not(flushing, name, dtype):
    class Small(torch.nn.Module):
        def forward(self, x):
            return SMALL[name](x)

    x = torch.randn(1, 4, 6, 6, dtype=dtype, generator=torch.Generator().manual_seed(0))
    x = x * 3 * torch.finfo(dtype).tiny
    ir = torch_ir.extract_ir(Small().eval(), (x,))
    assert torch_ir.validate(ir, {}, (x,)).verdict == "agree"
    assert torch_ir.compare(ir, {}, (x,), run="aten").verdict == "agree"
    assert flushes_subnormals()
    assert not (torch.full((), torch.finfo(dtype).tiny, dtype=dtype) / 2).any()
