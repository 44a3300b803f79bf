"""Programs in the core set do what torch's own decomposition of them does, bit for bit."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.utils._pytree import tree_leaves

import torch_ir
from older_torch import since_2_13
from passes.equal import assert_same, operators
from small_models import CASES
from torch_ir import (
    IRExecutor,
    convert_exported_program,
    decompose,
    extract_ir,
    operator_rule,
    parse,
    to_edge,
    validate,
)
from torch_ir.dialects import verify
from torch_ir.errors import PassError
from torch_ir.passes.decomposition.engine import is_core
from torch_ir.torch_api import bytes_of


def same(one, other):
    if not isinstance(one, torch.Tensor):
        return one == other
    return one.dtype == other.dtype and torch.equal(bytes_of(one), bytes_of(other))


@pytest.mark.parametrize("name", CASES)
def test_models_give_what_torch_gives_after_its_decompositions(name):
    case = CASES[name]
    args, kwargs = case.inputs()
    exported = torch.export.export(case.model(), args, kwargs, strict=False)
    done = decompose(convert_exported_program(exported))
    assert done.dialect == "core_aten"
    assert verify(done) == ()
    assert {op for op in operators(done) if not is_core(op)} == set()
    weights = case.model().state_dict()
    expected = exported.run_decompositions().module()(*case.inputs()[0], **case.inputs()[1])
    got = IRExecutor(done, weights)(*case.inputs()[0], **case.inputs()[1])
    for one, other in zip(tree_leaves(expected), tree_leaves(got), strict=True):
        assert same(one, other)


class Positions(nn.Module):
    """A copy that a decomposition lays out as channels last, since its input is."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        image = nn.functional.interpolate(x.permute(0, 3, 1, 2), size=(9, 11), mode="bicubic")
        return self.conv(image), image.flatten(2).transpose(1, 2)


def test_a_layout_that_torch_guesses_is_no_memory_format_and_rounds_as_torchs():
    torch.manual_seed(0)
    model, x = Positions().eval().requires_grad_(False), torch.randn(1, 6, 7, 3)
    exported = torch.export.export(model, (x,))
    done = decompose(convert_exported_program(exported))
    assert verify(done) == ()
    got = IRExecutor(done, model.state_dict())(x)
    for one, other in zip(got, exported.run_decompositions().module()(x), strict=True):
        assert same(one, other)


class Transposed(nn.Module):
    """A batch norm whose kernel lays its result out otherwise than torch says that it does."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(32)
        self.head = nn.Linear(32, 8)

    def forward(self, x):
        return self.head(self.norm(x.transpose(1, 2)).transpose(1, 2))


@pytest.mark.parametrize("lower", [decompose, lambda ir: to_edge(ir).ir()])
def test_a_program_runs_whatever_the_strides_of_what_it_reshapes(lower):
    torch.manual_seed(0)
    model, x = Transposed().eval().requires_grad_(False), torch.randn(4, 4, 32)
    exported = torch.export.export(model, (x,))
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        exported.run_decompositions().module()(x)
    done = lower(convert_exported_program(exported))
    assert torch.allclose(IRExecutor(done, model.state_dict())(x), model(x), rtol=0, atol=1e-6)


def test_what_was_decomposed_before_changes_nothing():
    ir = extract_ir(nn.Sequential(nn.Linear(2, 3), nn.SiLU()), (torch.ones(1, 2),))
    first = decompose(ir)
    kept = decompose(ir, preserve=["aten.linear.default"])
    own = decompose(ir, table={"aten.silu.default": lambda x: x.relu()})
    assert decompose(ir) == first
    assert [n.op_type for n in kept.nodes] == ["aten.linear.default", *OPERATORS[-2:]]
    assert [n.op_type for n in first.nodes] == OPERATORS
    assert [n.op_type for n in own.nodes] == [*OPERATORS[:2], "aten.relu.default"]


OPERATORS = [
    *("aten.permute.default", "aten.addmm.default"),
    *("aten.sigmoid.default", "aten.mul.Tensor"),
]


def test_each_node_has_the_place_of_the_one_that_it_stands_for_and_the_last_its_name():
    ir = extract_ir(nn.Sequential(nn.Linear(2, 3), nn.SiLU()), (torch.ones(1, 2),))
    done = decompose(ir)
    assert [node.name for node in done.nodes] == [
        "linear_permute",
        "linear",
        "silu_sigmoid",
        "silu",
    ]
    places = [ir.by_name["linear"].location] * 2 + [ir.by_name["silu"].location] * 2
    assert [node.location for node in done.nodes] == places
    assert decompose(ir) == done


def test_operators_are_kept_whole_on_request():
    ir = extract_ir(nn.Sequential(nn.Linear(2, 3), nn.SiLU()), (torch.ones(1, 2),))
    done = decompose(ir, preserve=["aten.linear.default"])
    assert [node.op_type for node in done.nodes] == [
        "aten.linear.default",
        "aten.sigmoid.default",
        "aten.mul.Tensor",
    ]


def test_a_table_of_ones_own_comes_first():
    ir = parse("""
ir "Relu" {
  input %x: f32[2]
  %y: f32[2] = aten.relu.default(%x)
  return %y
}
""")
    done = decompose(ir, table={"aten.relu.default": lambda x: torch.clamp(x, min=0)})
    assert [node.op_type for node in done.nodes] == ["aten.clamp.default"]


def test_everything_that_cannot_be_decomposed_is_listed():
    ir = parse("""
ir "Odd" {
  input %x: f32[4]
  %a: f32[4] = aten.relu.default(%x)
  %b: f32[4] = aten.silu.default(%a)
  %c: f32[4] = aten.neg.default(%b)
  return %c
}
""")

    def refuse(x):
        raise NotImplementedError("not on this device")

    def shorten(x):
        return x.sum()

    table = {"aten.relu.default": refuse, "aten.silu.default": shorten}
    with pytest.raises(PassError) as caught:
        decompose(ir, table=table)
    assert str(caught.value) == (
        "2 nodes cannot be decomposed into core_aten\n"
        "    - node 'a': aten.relu.default: torch cannot decompose it: not on this device\n"
        "    - node 'b': aten.silu.default: its decomposition makes %b: f32[], not %b: f32[4]\n"
        "Keep operators whole with preserve=, or give their decomposition in table=."
    )


def test_an_operator_that_does_not_exist_is_refused():
    ir = parse('ir "X" {\n  input %x: f32[2]\n  return %x\n}')
    with pytest.raises(PassError) as caught:
        decompose(ir, preserve=["aten.linear"])
    assert str(caught.value) == (
        "there is no operator 'aten.linear'\nIt is aten.linear.default or aten.linear.out."
    )
    with pytest.raises(PassError) as caught:
        decompose(ir, table={"aten.squaer.default": torch.square})
    assert str(caught.value) == (
        "there is no operator 'aten.squaer.default'\n"
        "Did you mean aten.square.default or aten.square_.default?"
    )


WRONG_DECOMPOSITIONS = {
    "of another shape": (lambda x: x[:1], "makes %y: f32[1, 3], not %y: f32[2, 3]"),
    "an argument": (lambda x: x.t(), "makes %y: f32[3, 2], not %y: f32[2, 3]"),
    "of another dtype": (torch.Tensor.double, "makes %y: f64[2, 3], not %y: f32[2, 3]"),
    "of more dimensions": (lambda x: x[None], "makes %y: f32[1, 2, 3], not %y: f32[2, 3]"),
    "one more": (lambda x: (x.neg(), x), "gives 2 results, not 1"),
    "nothing": (lambda x: None, "makes no tensor as %y"),
    "fails": (lambda x: x @ x, "torch cannot decompose it: "),
}


@pytest.mark.parametrize("name", WRONG_DECOMPOSITIONS)
def test_a_decomposition_that_gives_something_else_is_refused(name):
    function, told = WRONG_DECOMPOSITIONS[name]
    text = (
        'ir "X" {\n  input %x: f32[2, 3]\n  %y: f32[2, 3] = aten.abs.default(%x)\n  return %y\n}'
    )
    with pytest.raises(PassError) as caught:
        decompose(parse(text), table={"aten.abs.default": function})
    line = str(caught.value).splitlines()[1]
    assert line.startswith("    - node 'y': aten.abs.default: ")
    assert told in line


def test_a_set_of_operators_that_does_not_exist_is_refused():
    ir = parse('ir "X" {\n  input %x: f32[2]\n  return %x\n}')
    with pytest.raises(PassError, match="there is no operator set 'core'"):
        decompose(ir, "core")


class Flatten(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, x):
        y = self.fc(x.transpose(0, 1).reshape(x.shape[1], x.shape[0], 6))
        y[0] = x.shape[0] * 2.0
        return nn.functional.gelu(y).flatten().softmax(0)


@pytest.mark.parametrize("sizes", [(3, 5), (4, 2), (7, 7)])
def test_sizes_may_vary(sizes):
    model = Flatten()
    shapes = {"x": {0: Dim("a", min=2, max=64), 1: Dim("b", min=2, max=64)}}
    ir = extract_ir(model, (torch.randn(3, 5, 6),), dynamic_shapes=shapes)
    done = decompose(ir)
    assert done.guards == ir.guards
    assert_same(ir, done, model.state_dict(), (torch.randn(*sizes, 6),))


class Branch(nn.Module):
    def forward(self, x):
        return torch.cond(
            x.sum() > 0, lambda v: nn.functional.silu(v), lambda v: v.t().t() * 2, (x,)
        )


def test_branches_are_decomposed_too():
    ir = extract_ir(Branch(), (torch.ones(2, 3),))
    done = decompose(ir)
    assert all(is_core(op) or op.startswith("higher_order.") for op in operators(done))
    for sign in (1, -1):
        assert_same(ir, done, {}, (torch.full((2, 3), 0.5) * sign,))


class Lowered(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.fc(x).relu()


def test_regions_under_autocast_are_written_out_with_their_conversions():
    model = Lowered()
    ir = extract_ir(model, (torch.randn(2, 3),))
    done = decompose(ir)
    assert "aten._to_copy.default" in operators(done)
    assert "higher_order.wrap_with_autocast" not in operators(done)
    assert_same(ir, done, model.state_dict(), (torch.randn(2, 3),))


@pytest.mark.parametrize("device", ["cuda", "xpu", "mps"])
def test_regions_without_autocast_for_other_devices_are_written_out(device):
    class Off(nn.Module):
        def forward(self, x):
            with torch.autocast(device, enabled=False):
                x = x.float().sin()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    return x @ x.T

    ir = extract_ir(Off(), (torch.randn(2, 3),))
    done = decompose(ir)
    assert "higher_order.wrap_with_autocast" not in operators(done)
    assert_same(ir, done, {}, (torch.randn(2, 3),))
    on = [n.replace(attrs={**n.attrs, "enabled": True}) if n.functions else n for n in ir.nodes]
    with pytest.raises(PassError, match=f"autocast for '{device}' is not written out"):
        decompose(ir.replace(nodes=on))


# -- prims ----------------------------------------------------------------------------------------

PRIMS = torch.ops.prims


@pytest.mark.parametrize("form", [decompose, lambda ir: to_edge(ir).ir()])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.xlogy(x, 2.0),
        lambda x: torch.xlogy(2.0, x),
        lambda x: torch.special.xlog1py(x, 2),
        lambda x: torch.special.xlog1py(2, x),
        lambda x: PRIMS.sum(x, [0]) + PRIMS.scalar_tensor(2.0, dtype=x.dtype, device=x.device),
        lambda x: PRIMS.broadcast_in_dim(PRIMS.rev(x, [0]), [4, 2, 3], [1, 2]),
        lambda x: PRIMS.where(x > 1, PRIMS.add(x, x), PRIMS.split_dim(x, 1, 3).squeeze(-1)),
        lambda x: PRIMS.transpose(PRIMS.var(x[None], [0], 0.0), [1, 0]),
    ],
)
def test_prims_that_a_decomposition_or_a_program_calls_are_calls_of_aten(function, form):
    class Calls(torch.nn.Module):
        def forward(self, x):
            return function(x)

    x = torch.rand(2, 3) + 0.5
    ir = form(extract_ir(Calls(), (x,)))
    assert not [node for node in ir.nodes if node.op_type.startswith("prims.")]
    assert verify(ir) == ()
    torch.testing.assert_close(IRExecutor(ir, {})(x), function(x))


@since_2_13("has no linear_cross_entropy")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("chunk", [1, 4, 9])
def test_what_torch_writes_in_python_is_taken_apart_as_its_kernel_computes(reduction, chunk):
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

    class Chunked(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(12, 8))

        def forward(self, x, target):
            options = LinearCrossEntropyOptions(batch_chunk_size=chunk)
            loss = nn.functional.linear_cross_entropy
            return loss(x, self.weight, target, reduction=reduction, options=options)

    torch.manual_seed(0)
    model, args = Chunked().requires_grad_(False), (torch.randn(9, 8), torch.randint(0, 12, (9,)))
    ir, weights = extract_ir(model, args), model.state_dict()
    (node,) = [node for node in ir.nodes if node.op_type.startswith("torch_nn.")]
    assert operator_rule(node.op_type).rule.startswith("rule 5")
    assert same(IRExecutor(ir, weights)(*args), model(*args))
    core = decompose(ir)
    assert verify(core) == ()
    assert {op for op in operators(core) if not is_core(op)} == set()
    torch.testing.assert_close(IRExecutor(core, weights)(*args), model(*args))
    assert str(validate(ir, weights, args)).startswith("all readers agree")
    assert operators(decompose(ir, preserve=[node.op_type])) >= {node.op_type}


@pytest.mark.parametrize(
    ("short", "dtype"),
    [("b8", torch.bool), ("u8", torch.uint8), ("i8", torch.int8), ("i64", torch.int64)],
)
@pytest.mark.parametrize("alpha", [1, 2, 0, 0.5, 2.7, True])
def test_a_factor_of_added_elements_has_their_type(short, dtype, alpha):
    ir = parse(f"""ir {{
      input %x: {short}[3, 2]
      input %i: i64[4]
      input %s: {short}[4, 2]
      %y: {short}[3, 2] = aten.index_add.default(%x, 0, %i, %s, alpha={alpha})
      return %y
    }}""")
    x, s = torch.tensor([[0, 1]] * 3, dtype=dtype), torch.tensor([[1, 3]] * 4, dtype=dtype)
    inputs = (x, torch.tensor([0, 1, 1, 2]), s)
    (made,) = IRExecutor(decompose(ir), {})(*inputs)
    assert same(made, torch.ops.aten.index_add(x, 0, inputs[1], s, alpha=alpha))


@pytest.mark.parametrize("preserved", [(), ("aten.conv2d.default",)], ids=str)
def test_a_convolution_takes_any_batch(preserved):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    sizes = ({0: torch.export.Dim("batch", max=99)},)
    ir = torch_ir.extract_ir(model, (torch.ones(3, 3, 8, 8),), dynamic_shapes=sizes)
    plain = torch_ir.decompose(ir, preserve=preserved)
    assert plain.guards == ir.guards == ()
    x = torch.randn(20, 3, 8, 8)
    torch.testing.assert_close(torch_ir.compile(plain, model.state_dict())(x), model(x))


MODES = """
import sys
import torch
from torch_ir import decompose, extract_ir

layers = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()
ir = extract_ir(torch.nn.Sequential(*layers).eval(), (torch.rand(2, 3, 8, 8),))
modes = {
    "none": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}
with modes[sys.argv[1]]():
    inside = decompose(ir)
assert inside == decompose(ir)
print(len(inside.nodes))
"""


@pytest.mark.parametrize("mode", ["none", "no_grad", "inference", "autocast"])
def test_the_callers_modes_do_not_matter(mode):
    """In a process of its own, as torch remembers what it was asked first."""
    command = [sys.executable, "-c", MODES, mode]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == ["3"]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_classes_behind_the_end_of_a_list_of_labels_do_not_count(reduction):
    class Loss(nn.Module):
        def forward(self, x, classes):
            return nn.functional.multilabel_margin_loss(x, classes, reduction=reduction)

    x = torch.randn(4, 5)
    classes = torch.tensor([[3, 0, -1, 1, 4], [-1] * 5, [1, 1, 2, -1, -1], [0, 1, 2, 3, 4]])
    ir = extract_ir(Loss(), (x, classes))
    made = IRExecutor(decompose(ir), {})(x, classes)
    torch.testing.assert_close(made, Loss()(x, classes))
    assert validate(ir, {}, (x, classes)).verdict == "agree"


def test_what_is_not_finite_is_computed_as_kernels_do():
    class Losses(nn.Module):
        def forward(self, x, classes, lines):
            loss = nn.functional.multi_margin_loss(x, classes, reduction="none")
            return loss, nn.functional.interpolate(lines, size=7, mode="linear")

    x, lines = torch.randn(3, 5), torch.randn(1, 2, 4)
    x[0, 1], x[1, 2], lines[0, 0, 1], lines[0, 1, 2] = torch.nan, torch.inf, -torch.inf, torch.inf
    given = (x, torch.tensor([1, 0, 3]), lines)
    ir = extract_ir(Losses(), given)
    made = IRExecutor(decompose(ir), {})(*given)
    for one, other in zip(made, Losses()(*given), strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)
    assert validate(ir, {}, given).verdict == "agree"


def test_complex_numbers_that_are_not_finite_are_replaced_in_both_parts():
    ir = parse("""ir {
      input %x: c64[3]
      %y: c64[3] = aten.nan_to_num.default(%x, nan=1.5, posinf=3.0)
      return %y
    }""")
    x = torch.tensor([complex("nan"), complex(2, float("inf")), complex("-inf+nanj")])
    lowered = decompose(ir)
    assert "aten.nan_to_num.default" not in [node.op_type for node in lowered.nodes]
    (made,), (wanted,) = (torch_ir.execute_ir(p, (x,), weights={}) for p in (lowered, ir))
    assert torch.equal(made, wanted)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.view(torch.int32) & 0x7FFFFFFF).view(torch.float32),
        lambda x: x.view(torch.float64).view(torch.int16)[1:].sum(),
        lambda x: x.t().view(torch.int32) ^ 1,
        lambda x: x.abs().to(torch.uint16).view(torch.uint8),
    ],
)
def test_elements_that_are_read_in_another_type_are_copied(function):
    class Read(nn.Module):
        def forward(self, x):
            return function(x)

    x = torch.arange(-4.0, 8.0).view(2, 6)
    ir = extract_ir(Read(), (x,))
    lowered = decompose(ir)
    assert "aten.view_copy.dtype" in operators(lowered)
    assert same(IRExecutor(lowered)(x), function(x))
    assert validate(lowered, {}, (x,)).verdict == "agree"
