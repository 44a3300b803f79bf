"""Lowered programs run and agree with eager whatever the order of their tensors in memory is."""

import itertools
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils import _pytree as pytree

import torch_ir
from torch_ir import IRExecutor
from torch_ir.dialects import verify

ROOT = Path(__file__).parents[2]
LOWERED = {
    "aten": torch_ir.functionalize,
    "core_aten": torch_ir.decompose,
    "edge": lambda ir: torch_ir.to_edge(ir).ir(),
}


class Function(nn.Module):
    def __init__(self, function, norm=None):
        super().__init__()
        self.function = function
        self.norm = norm

    def forward(self, x):
        made = self.function(x)
        return made if self.norm is None else self.norm(made)


def require_lowered(model, x, *, bits=True, **kwargs):
    """Every form of a model keeps its rules and gives what eager gives."""
    torch.manual_seed(0)
    expected = pytree.tree_leaves(model(x.clone()))
    ir = torch_ir.extract_ir(model, (x,))
    for stage, lower in LOWERED.items():
        lowered = lower(ir)
        assert verify(lowered) == (), stage
        assert stage == "edge" or lower(lowered) == lowered, stage
        torch.manual_seed(0)
        got = pytree.tree_leaves(IRExecutor(lowered, model.state_dict())(x.clone()))
        for a, b in zip(got, expected, strict=True):
            assert torch.equal(a, b) if bits else torch.allclose(a, b, atol=1e-5), stage
    return ir


def dims(c, s):
    return {1: "1d", 2: "2d", 3: "3d"}[len(s)]


NORMS = {
    "group": lambda c, s: nn.GroupNorm(2, c),
    "batch": lambda c, s: getattr(nn, f"BatchNorm{dims(c, s)}")(c),
    "instance": lambda c, s: getattr(nn, f"InstanceNorm{dims(c, s)}")(c, affine=True),
    "layer": lambda c, s: nn.LayerNorm([c, *s]),
    "rms": lambda c, s: nn.RMSNorm([c, *s]),
}
VIEWS = {
    "transposed": (
        lambda n, c, s: (n, math.prod(s), c),
        lambda x, n, c, s: x.transpose(1, 2).unflatten(2, s),
    ),
    "permuted": (lambda n, c, s: (n, *s, c), lambda x, n, c, s: x.movedim(-1, 1)),
    "reversed": (
        lambda n, c, s: tuple(reversed((n, c, *s))),
        lambda x, n, c, s: x.permute(*reversed(range(x.dim()))),
    ),
    "sliced": (lambda n, c, s: (n, 2 * c, *s), lambda x, n, c, s: x[:, ::2]),
    "expanded": (lambda n, c, s: (n, c, *[1] * len(s)), lambda x, n, c, s: x.expand(n, c, *s)),
    "given": (lambda n, c, s: (n, c, *s), lambda x, n, c, s: x),
}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("view", VIEWS)
def test_norms_of_views_run_after_lowering_at_any_batch_size(norm, view):
    stored, function = VIEWS[view]
    for n, s in itertools.product((1, 2), ((4, 3), (1, 5), (2, 3, 2))):
        model = Function(lambda x, n=n, s=s: function(x, n, 4, s), NORMS[norm](4, s)).eval()
        require_lowered(model, torch.randn(stored(n, 4, s)), bits=False)


RESAMPLED = {
    "mean of each channel": lambda x: nn.functional.adaptive_avg_pool2d(x, 1),
    "mean of rows": lambda x: nn.functional.adaptive_avg_pool2d(x, (2, 1)),
    "largest of each channel": lambda x: nn.functional.adaptive_max_pool2d(x, 1),
    "means": lambda x: nn.functional.avg_pool2d(x, 2, 1),
    "largest": lambda x: nn.functional.max_pool2d(x, 2, 1),
    "nearest": lambda x: nn.functional.interpolate(x, scale_factor=2),
    "between": lambda x: nn.functional.interpolate(x, (5, 7), mode="bilinear"),
    "shuffled": lambda x: nn.functional.channel_shuffle(x, 2),
}


@pytest.mark.parametrize("name", RESAMPLED)
@pytest.mark.parametrize("view", VIEWS)
def test_images_are_resampled_after_lowering_however_they_lie(name, view):
    stored, function = VIEWS[view]
    for n, s in itertools.product((1, 2), ((4, 3), (2, 5))):
        model = Function(lambda x, n=n, s=s: RESAMPLED[name](function(x, n, 4, s).relu()))
        require_lowered(model, torch.randn(stored(n, 4, s)), bits=False)


def test_a_norm_of_an_argument_in_any_order_runs_after_decompose():
    model = nn.Sequential(nn.ReLU(), nn.GroupNorm(2, 4))
    core = torch_ir.decompose(torch_ir.extract_ir(model, (torch.randn(2, 4, 3, 5),)))
    for order in itertools.permutations(range(4)):
        x = torch.randn([(2, 4, 3, 5)[dim] for dim in order]).permute(
            [order.index(dim) for dim in range(4)]
        )
        got = IRExecutor(core, model.state_dict())(x)
        assert torch.allclose(got, model(x), atol=1e-6)


def test_weights_of_norms_may_lie_in_any_order():
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8)[::2])
            self.bias = nn.Parameter(torch.randn(1).expand(4).detach())

        def forward(self, x, scale):
            return torch.group_norm(x, 2, self.weight, self.bias) + torch.group_norm(x, 2, scale)

    model, args = Norm(), (torch.randn(2, 4, 3, 3), torch.randn(8)[::2])
    core = torch_ir.decompose(torch_ir.extract_ir(model, args))
    assert torch.equal(IRExecutor(core, model.state_dict())(*args), model(*args))


READ_IN_ROW_MAJOR_ORDER = {
    "group norm": lambda x: torch.group_norm(x, 2),
    "median": lambda x: (x.median(0), x.nanmedian(1)),
    "distances": torch.pdist,
    "bag": lambda x: nn.functional.embedding_bag(x.long().abs(), torch.ones(9, 2), mode="max"),
}


@pytest.mark.parametrize("name", READ_IN_ROW_MAJOR_ORDER)
def test_a_copy_in_row_major_order_is_not_copied_again(name):
    ir = require_lowered(Function(READ_IN_ROW_MAJOR_ORDER[name]), torch.randn(3, 4))
    assert "aten.clone.default" in [node.op_type for node in torch_ir.decompose(ir).nodes]


def test_a_dense_value_is_not_copied():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.GroupNorm(2, 4))
    core = torch_ir.decompose(torch_ir.extract_ir(model, (torch.randn(1, 3, 4, 4),)))
    assert "aten.clone.default" not in [node.op_type for node in core.nodes]


LAST, LAST_3D = torch.channels_last, torch.channels_last_3d
FORMATS = {
    "to": lambda x: x.to(memory_format=LAST),
    "to double": lambda x: x.to(torch.float64, memory_format=LAST) * 2,
    "to other": lambda x: x.to(x.double(), memory_format=LAST),
    "view of rows": lambda x: x.contiguous(memory_format=LAST).permute(0, 2, 3, 1).view(-1, 3),
    "to and view": lambda x: x.to(memory_format=LAST).permute(0, 2, 3, 1).view(-1, 3),
    "zeros": lambda x: torch.zeros_like(x, memory_format=LAST) + x,
    "filled": lambda x: torch.empty(2, 3, 4, 5, memory_format=LAST).fill_(1) + x,
    "drawn": lambda x: torch.rand_like(x, memory_format=LAST),
    "drawn ints": lambda x: torch.randint_like(x, 5, memory_format=LAST),
    "dropout": lambda x: torch.dropout(x.to(memory_format=LAST), 0.5, True),
    "there and back": lambda x: x.to(memory_format=LAST).contiguous(),
    "convolution": lambda x: torch.conv2d(x.to(memory_format=LAST), torch.ones(2, 3, 2, 2)),
    "written": lambda x: x.to(memory_format=LAST).add_(1),
    "two results": lambda x: (x.contiguous(memory_format=LAST), x),
    "one row": lambda x: x[:1].to(memory_format=LAST).relu(),
    "volume": lambda x: x.unsqueeze(2).to(memory_format=LAST_3D),
    "kept": lambda x: x.to(memory_format=torch.preserve_format),
}


@pytest.mark.parametrize("name", FORMATS)
def test_what_asks_for_a_memory_format_keeps_every_rule_and_every_bit(name):
    require_lowered(Function(FORMATS[name]), torch.randn(2, 3, 4, 5))


STEPS = {
    "last": lambda x: x.contiguous(memory_format=LAST),
    "to last": lambda x: x.to(memory_format=LAST),
    "dense": lambda x: x.contiguous(),
    "transposed": lambda x: x.transpose(2, 3),
    "turned": lambda x: x.permute(0, 2, 3, 1),
    "sliced": lambda x: x[:, :, ::2],
    "one": lambda x: x[:1],
    "expanded": lambda x: x[:1].expand(2, -1, -1, -1),
    "relu": lambda x: x.relu(),
    "norm": lambda x: torch.group_norm(x, 1),
    "softmax": lambda x: x.softmax(1),
    "written": lambda x: x.clone().mul_(2),
    "flat": lambda x: x.flatten(2).unflatten(2, x.shape[2:]),
    "sum": lambda x: x + x.sum(1, keepdim=True),
}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=6))
def test_generated_programs_with_layouts_keep_the_rules_of_each_dialect(names):
    def run(x):
        for name in names:
            x = STEPS[name](x)
        return x

    require_lowered(Function(run), torch.randn(2, 4, 4, 4), bits=False)


def _spectrum(x):
    spectrum = torch.stft(x, 8, 2, window=torch.ones(8), center=False, return_complex=True)
    return torch.view_as_real(spectrum)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x.unfold(0, 2, 1), (3, 4, 5, 6)),
        (lambda x: x.unfold(-1, 3, 3), (2, 3, 4, 7)),
        (lambda x: x.unfold(2, 2, 3).unfold(1, 1, 2), (2, 3, 8, 5)),
        (lambda x: x.unfold(1, 0, 2), (2, 3)),
        (lambda x: torch.unfold_copy(x, 1, 2, 1), (4, 5)),
        (lambda x: x.unfold(0, 1, 1), ()),
        (_spectrum, (2, 40)),
    ],
)
def test_what_reads_by_strides_in_eager_takes_an_argument_in_any_order(function, shape):
    given = torch.randn(shape[::-1]).permute(tuple(reversed(range(len(shape)))))
    require_lowered(Function(function), given, bits=function is not _spectrum)
    if shape:
        size = torch.export.Dim("size", min=2, max=50)
        ir = torch_ir.extract_ir(Function(function), (given,), dynamic_shapes=({0: size},))
        lowered = torch_ir.decompose(ir)
        assert not any("strided" in node.op_type for node in lowered.nodes)
        assert torch.allclose(IRExecutor(lowered)(given), function(given))


def test_operators_on_unusual_layouts_agree_with_eager_after_lowering():
    command = [sys.executable, "-W", "ignore", str(ROOT / "tools/layouts.py"), "3", "24"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert run.stdout == "0 faults\n", run.stdout + run.stderr[-2000:]


@pytest.mark.parametrize("form", ["aten", "core_aten"])
def test_a_copy_by_layout_is_fresh_where_eager_copies(form):
    ir = torch_ir.parse("""ir {
      input %x: f32[4, 3]
      %y: f32[4, 3] = aten.contiguous.default(%x)
      return %y
    }""")
    x = torch.rand(3, 4).t()
    (made,) = IRExecutor(LOWERED[form](ir), {})(x)
    assert torch.equal(made, x)
    assert made.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
