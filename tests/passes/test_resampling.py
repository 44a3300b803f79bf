"""Resampling after decomposition is that of eager, whatever scales say beside sizes."""

import itertools

import pytest
import torch

import torch_ir
from torch_ir.executor import execute_ir

SIZES = (1, 2, 5, 7)
SCALES = (0.5, 1.0, 1.1, 2.0, 2.1)
"""Of 1.1 and 2.1, kernels take other elements than by division, where a size stays or doubles."""


class Nearest(torch.nn.Module):
    def __init__(self, name, *given):
        super().__init__()
        self.operator = getattr(torch.ops.aten, name).default
        self.given = given

    def forward(self, x):
        return self.operator(x, *self.given)


def check(name, x, *given):
    ir = torch_ir.decompose(torch_ir.extract_ir(Nearest(name, *given), (x,)))
    assert ir.check() == ()
    assert torch.equal(execute_ir(ir, (x,), {})[0], Nearest(name, *given)(x)), (name, given)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_images_by_scales_and_by_sizes(layout):
    for size, scale in itertools.product(SIZES, SCALES):
        x = (
            torch.arange(2.0 * 4 * size * 5)
            .reshape(2, 4, size, 5)
            .contiguous(memory_format=layout)
        )
        made = [int(size * scale), int(5 * scale)]
        if all(made):
            check("upsample_nearest2d", x, made, scale, scale)
            check("upsample_nearest2d", x, made)
            check("_upsample_nearest_exact2d", x, made, scale, scale)


@pytest.mark.parametrize("name", ["upsample_nearest", "_upsample_nearest_exact"])
def test_scales_that_lead_beyond_the_last_element(name):
    for rank, size in itertools.product((1, 3), (3, 5)):
        x = torch.arange(2.0 * size**rank).reshape(1, 2, *[size] * rank)
        for made, scale in ((3, 0.5), (9, 1.1), (4, None)):
            check(f"{name}{rank}d", x, [made] * rank, *[scale] * rank)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_images_whose_scales_contradict_their_sizes(layout):
    for size, made, scale in itertools.product((1, 3, 4), range(1, 9), SCALES):
        x = torch.randn(1, 3, size, 2).contiguous(memory_format=layout)
        for name in ("upsample_nearest2d", "_upsample_nearest_exact2d"):
            check(name, x, [made, 3], scale, None)


def test_lines_whose_scales_contradict_their_sizes():
    cases = itertools.product((2, 5), (1, 2, 4, 5, 10), (None, *SCALES), (False, True))
    for size, made, scale, align in cases:
        x = torch.randn(1, 2, size, dtype=torch.float64)
        model = Nearest("upsample_linear1d", [made], align, scale)
        ir = torch_ir.decompose(torch_ir.extract_ir(model, (x,)))
        torch.testing.assert_close(execute_ir(ir, (x,), {})[0], model(x))


class Interpolate(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, x):
        return torch.nn.functional.interpolate(x, **self.options)


MODES = [
    *itertools.product(("nearest", "nearest-exact"), (1, 2, 3)),
    *(("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3)),
]


@pytest.mark.parametrize(("mode", "rank"), MODES)
def test_interpolation_by_a_scale_that_leaves_or_doubles_sizes(mode, rank):
    for size, scale in itertools.product((3, 5), (0.5, 1.1, 2.0, 2.1)):
        x = torch.randn(1, 2, *[size] * rank)
        model = Interpolate(scale_factor=scale, mode=mode)
        ir = torch_ir.extract_ir(model, (x,))
        lowered = execute_ir(torch_ir.decompose(ir), (x,), {})[0]
        torch.testing.assert_close(lowered, model(x))


@pytest.mark.parametrize(("mode", "rank"), [("nearest", 1), ("linear", 1), ("trilinear", 3)])
def test_interpolation_of_any_size(mode, rank):
    x = torch.randn(1, 2, *[6] * rank)
    size = torch.export.Dim("size", min=4, max=9)
    model = Interpolate(scale_factor=2.0, mode=mode)
    ir = torch_ir.extract_ir(model, (x,), dynamic_shapes=({2: size},))
    lowered = torch_ir.decompose(ir)
    other = torch.randn(1, 2, 5, *[6] * (rank - 1))
    torch.testing.assert_close(execute_ir(lowered, (other,), {})[0], model(other))


def test_what_is_given_or_kept_comes_before_the_core_form():
    name = "aten.upsample_nearest2d.default"
    x = torch.arange(6.0).reshape(1, 1, 2, 3)
    ir = torch_ir.extract_ir(Nearest("upsample_nearest2d", [4, 6]), (x,))
    zeros = torch_ir.decompose(ir, table={name: lambda x, size: x.new_zeros(1, 1, *size)})
    assert execute_ir(zeros, (x,), {})[0].count_nonzero() == 0
    kept = torch_ir.decompose(ir, preserve=[name])
    assert [node.op_type for node in kept.nodes] == [name]


def test_one_number_for_both_sizes():
    ir = torch_ir.parse("""ir {
      input %x: f32[1, 2, 2, 2]
      %y: f32[1, 2, 3, 3] = aten.upsample_nearest2d.default(%x, output_size=3)
      return %y
    }""")
    x = torch.arange(8.0).reshape(1, 2, 2, 2)
    lowered = execute_ir(torch_ir.decompose(ir), (x,), {})
    assert torch.equal(lowered[0], execute_ir(ir, (x,), {})[0])
