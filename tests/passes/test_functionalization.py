"""Functional programs do what the original does, to its results, inputs and buffers."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim

from counting import growth
from passes.equal import assert_same
from small_models import CASES
from torch_ir import (
    IR,
    IRExecutor,
    OpNode,
    TensorMeta,
    execute_ir,
    extract_ir,
    functionalize,
    parse,
)
from torch_ir.dialects import verify
from torch_ir.errors import PassError
from torch_ir.infer.binder import bind
from torch_ir.ir import DType, Mutation
from torch_ir.ops.schema import lookup
from torch_ir.passes.functionalization.scatter import RULES
from torch_ir.torch_api import overload


def writes(ir):
    return [n.name for n in ir.nodes if ir.effects(n).writes] + [
        name for body in ir.functions.values() for name in writes(body)
    ]


@pytest.mark.parametrize("name", CASES)
def test_models_do_the_same(name):
    case = CASES[name]
    args, kwargs = case.inputs()
    ir = extract_ir(case.model(), args, kwargs=kwargs)
    done = functionalize(ir)
    assert done.dialect == "aten"
    assert done.check() == ()
    assert writes(done) == []
    assert functionalize(ir) == done
    assert functionalize(done) is done
    assert verify(done) == ()
    assert_same(ir, done, case.model().state_dict(), args, kwargs)


class Module(nn.Module):
    """A function as a module with a buffer of zeros."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("buffer", torch.zeros(4, 3))

    def forward(self, *args):
        return self.function(self, *args)


def rows(m, x):
    x[0] = 1.0
    x[:, 1:] *= 2
    return x.sum()


def transposed(m, x):
    x.T.add_(1)
    return x * 2


def diagonal(m, x):
    x.diagonal().fill_(7.0)
    x.fill_diagonal_(3.0)
    return x


def split(m, x):
    first, second = x.split([1, 3])
    one, two, three = second.unbind(1)
    two.mul_(first.sum())
    three.copy_(torch.arange(3))
    return one + two, x


def indexed(m, x):
    x[torch.tensor([0, 2])] += 1.0
    x.masked_fill_(x > 1, 0.5)
    x.index_copy_(0, torch.tensor([1]), torch.ones(1, 3))
    return x.view(-1)


def cache(m, x):
    m.buffer[1:3] = x[:2]
    m.buffer.view(-1)[0:2].add_(1)
    return m.buffer @ x.t()


def swapped(m, x):
    old = m.buffer.clone()
    m.buffer.copy_(x)
    return old


def reshaped(m, x):
    flat = x.reshape(-1)  # memory of x
    copied = x.t().reshape(-1)  # a copy
    x.add_(1)
    flat.mul_(2)
    copied.mul_(3)
    return flat, copied, x.contiguous().relu_(), x


def dropped(m, x):
    same = nn.functional.dropout(x, 0.5, training=False)
    same.add_(1)
    return x


def widened(m, x):
    half = x.to(torch.bfloat16)
    half.add_(x)
    x.gt_(0.5)
    count = torch.zeros(4, 3, dtype=torch.int64)
    count.copy_(x * 3)
    return half, x, count


def given_out(m, x):
    made = torch.empty(0)
    torch.mul(x, 2, out=made)
    torch.add(x, 1, out=m.buffer)
    return made


def windows(m, x):
    x.unfold(0, 2, 2)[1].add_(1)
    m.buffer.unfold(0, 1, 3).copy_(x.unfold(0, 2, 2)[..., :1])
    m.buffer.T.unfold(-1, 2, 2).mul_(x.sum())
    torch.linalg.diagonal(x, offset=-1).fill_(5)
    return m.buffer * x


def strided(m, x):
    x.as_strided((2, 2), (3, 1), 1).zero_()
    return x + x.as_strided((3,), (4,))


def drawn(m, x):
    x.uniform_()
    x[0].normal_(1.0, 2.0)
    x.bernoulli_(0.5)
    return x * 2


def scoped(m, x):
    with torch.no_grad():
        x.add_(1)
        m.buffer.mul_(0.5).add_(x)
        row = x[1]
    row.zero_()
    return m.buffer * x


def components(m, x):
    z = torch.complex(x, x + 1)
    z.real.zero_()
    torch.view_as_real(z)[..., 1].mul_(2)
    z.conj().imag.mul_(3)
    return z


def branches(m, x):
    def yes(v):
        y = v.clone()
        y[0].add_(1)
        return y

    return torch.cond(x.sum() > 0, yes, lambda v: v * 2, (x,)).add_(1)


def counted(m, x):
    n = (x * 3).to(torch.int32)
    n.cumsum_(0)
    n[1:].cumprod_(-1)
    return n


def single(m, x):
    """A number has no dimension, and torch takes 0 for one."""
    y = x.sum()
    y.transpose(0, -1).add_(1)
    y.movedim(0, 0).mul_(2)
    torch.moveaxis(y, -1, 0).sub_(3)
    y.swapaxes(0, 0).squeeze(0).mul_(y.permute(()))
    return y


FUNCTIONS = [
    *(rows, transposed, diagonal, split, indexed, cache, swapped, reshaped, dropped, widened),
    *(given_out, windows, strided, drawn, scoped, components, branches, counted, single),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_writes_of_every_kind(function):
    model, x = (
        Module(function).eval(),
        torch.randn(4, 3, generator=torch.Generator().manual_seed(1)),
    )
    ir = extract_ir(model, (x.clone(),))
    done = functionalize(ir)
    assert done.check() == ()
    assert writes(done) == []
    assert_same(ir, done, {"buffer": torch.zeros(4, 3)}, (x,), calls=3)


@pytest.mark.filterwarnings("ignore:the model is in training mode")
@pytest.mark.parametrize("is_affine", [True, False])
@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 3, 4, 2), (3, 5)])
def test_instance_norm_in_training_writes_its_statistics(shape, is_affine):
    kind = nn.InstanceNorm2d if len(shape) == 4 else nn.InstanceNorm1d
    net = kind(3, momentum=0.3, affine=is_affine, track_running_stats=True)
    model = nn.Sequential(net, nn.ReLU(inplace=True), net)  # writes them twice
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    ir = extract_ir(model, (x,))
    done = functionalize(ir)
    assert writes(done) == []
    kinds = [mutation.target.rpartition("running_")[2] for mutation in done.mutations]
    assert sorted(kinds) == ["mean", "var"]
    assert_same(ir, done, model.state_dict(), (x,))


@pytest.mark.filterwarnings("ignore:the model is in training mode")
@pytest.mark.parametrize("kinds", ["bfloat16 float32", "bfloat16 bfloat16", "float64 float32"])
def test_instance_norm_in_training_converts_statistics_of_another_type(kinds):
    class Norm(nn.Module):
        def forward(self, x, mean, var):
            return nn.functional.instance_norm(x, mean, var)

    given, held = [getattr(torch, kind) for kind in kinds.split()]
    x = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)).to(given)
    args = (x, torch.zeros(5, dtype=held), torch.ones(5, dtype=held))
    ir = extract_ir(Norm(), tuple([arg.clone() for arg in args]))
    assert_same(ir, functionalize(ir), {}, args)


@pytest.mark.filterwarnings("ignore:the model is in training mode")
@pytest.mark.parametrize("size", [24, 30])
def test_instance_norm_takes_its_input_in_row_major_order_as_torch_does(size):
    class Norm(nn.InstanceNorm1d):
        def forward(self, x):
            return super().forward(x.reshape(1, 1, -1).expand(1, 2, -1))

    model = Norm(2, affine=True, track_running_stats=True)
    x = torch.randn(size, generator=torch.Generator().manual_seed(0))
    ir = extract_ir(model, (x,))
    assert_same(ir, functionalize(ir), model.state_dict(), (x,))


@pytest.mark.filterwarnings("ignore:the model is in training mode")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("is_updated", [True, False])
def test_batch_norm_in_training_keeps_the_type_of_its_statistics(dtype, is_updated):
    class Norm(nn.BatchNorm2d):
        def forward(self, x):
            if not is_updated:
                return super().forward(x)
            state = (self.weight, self.bias, self.running_mean, self.running_var)
            return torch.ops.aten._batch_norm_with_update(x, *state, 0.1, 1e-5)[0]

    model = Norm(3).to(dtype)
    x = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(1)).to(dtype)
    ir = extract_ir(model, (x,))
    done = functionalize(ir)
    assert verify(done) == ()
    assert_same(ir, done, model.state_dict(), (x,), calls=3)


def test_a_write_to_what_nothing_shares_stays_one_node_with_its_name_and_place():
    ir = extract_ir(nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True)), (torch.ones(1, 2),))
    done = functionalize(ir)
    assert [(n.name, n.op_type) for n in done.nodes] == [
        ("linear", "aten.linear.default"),
        ("relu_", "aten.relu.default"),
    ]
    assert [n.location for n in done.nodes] == [n.location for n in ir.nodes]


def test_a_view_is_derived_anew_where_it_is_used_after_a_write():
    ir = parse("""
ir "Row" {
  input %x: f32[2, 3]
  %row: f32[3] = aten.select.int(%x, dim=0, index=1)
  %x_: f32[2, 3] = aten.add_.Tensor(%x, 1)
  %y: f32[3] = aten.neg.default(%row)
  return %y
}
""")
    assert str(functionalize(ir)) == (
        """ir "Row" {
  dialect "aten"
  mutate %x = %x_
  input %x: f32[2, 3]
  %x_: f32[2, 3] = aten.add.Tensor(%x, other=1)
  %row_1: f32[3] = aten.select.int(%x_, dim=0, index=1)
  %y: f32[3] = aten.neg.default(%row_1)
  return %y
}"""
    )


def test_results_have_memory_of_their_own_and_eagers_values():
    """A view that is also computed with keeps its strides, on which the rounding depends."""

    class Views(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3))

        def forward(self, x, y):
            t = x.t()
            first, second = (x + 1).split(2)
            same = y.to(torch.float32)
            return t, t @ self.weight, self.weight.view(-1), first, second, same, x, y.half()

    model = Views().eval()
    args = (torch.randn(4, 4), torch.randn(3))
    ir = extract_ir(model, args)
    done = functionalize(ir)
    assert verify(done) == ()
    assert_same(ir, done, model.state_dict(), args)
    results = IRExecutor(done, model.state_dict())(*args)
    kept = [result.clone() for result in results]
    memory = [result.untyped_storage()._cdata for result in results]
    assert len(set(memory)) == len(memory)
    for result in results[:6]:
        result.zero_()
    assert torch.equal(args[0], kept[6])
    assert args[1].abs().sum() > 0
    assert torch.equal(results[7], kept[7])


def test_everything_that_cannot_be_followed_is_listed():
    ir = parse("""
ir "Odd" {
  input %x: f32[2, 3]
  input %i: i64[2]
  %r: f32[4] = aten.resize_.default(%x, [4])
  %e: f32[2, 2, 3] = aten.expand.default(%i, [2, 2])
  %u: f32[2, 2, 2] = aten.unfold.default(%x, 1, 2, 1)
  %w: f32[2, 2, 2] = aten.zero_.default(%u)
  return %w
}
""")
    with pytest.raises(PassError) as caught:
        functionalize(ir)
    assert str(caught.value) == (
        "2 nodes cannot be made functional\n"
        "    - node 'r': aten.resize_.default: it gives %x another shape, and others show its "
        "memory\n"
        "    - node 'w': aten.zero_.default: it writes through node 'u' (aten.unfold.default)"
    )


def writes_through_views(count: int) -> IR:
    x = TensorMeta("x", (8, 8), "float32")
    nodes = []
    for i in range(count):
        row = TensorMeta(f"row{i}", (8,), "float32", f"row{i}")
        written = TensorMeta(f"add{i}", (8,), "float32", f"add{i}")
        used = TensorMeta(f"neg{i}", (8, 8), "float32", f"neg{i}")
        nodes += [
            OpNode(row.name, "aten.select.int", [x], [row], {"dim": 0, "index": i % 8}),
            OpNode(written.name, "aten.add_.Tensor", [row], [written], {"other": 1}),
            OpNode(used.name, "aten.neg.default", [x], [used]),
        ]
    return IR(nodes, [x], [used], [])


def test_writes_are_followed_in_linear_time():
    assert growth(lambda count: functionalize(writes_through_views(count)), 200) < 2.5


# -- random programs ------------------------------------------------------------------------------

VIEWS = [
    ("aten.view.default", {"size": [-1]}),
    ("aten.reshape.default", {"shape": [-1]}),
    ("aten.t.default", {}),
    ("aten.transpose.int", {"dim0": 0, "dim1": -1}),
    ("aten.permute.default", {"dims": [1, 0]}),
    ("aten.unsqueeze.default", {"dim": 0}),
    ("aten.squeeze.default", {}),
    ("aten.select.int", {"dim": 0, "index": -1}),
    ("aten.slice.Tensor", {"dim": 0, "start": 1, "end": 3}),
    ("aten.slice.Tensor", {"dim": -1, "start": 0, "step": 2}),
    ("aten.narrow.default", {"dim": 0, "start": -1, "length": 1}),
    ("aten.diagonal.default", {}),
    ("aten.split.Tensor", {"split_size": 2, "dim": 0}),
    ("aten.unbind.int", {"dim": 0}),
    ("aten.chunk.default", {"chunks": 2, "dim": -1}),
    ("aten.tensor_split.sections", {"sections": 2}),
    ("aten.detach.default", {}),
    ("aten.contiguous.default", {}),
    ("aten.to.dtype", {"dtype": DType("float32")}),
    ("aten.expand_as.default", None),
    ("aten.movedim.int", {"source": 0, "destination": -1}),
    ("aten.swapaxes.default", {"axis0": 0, "axis1": 1}),
    ("aten.flatten.using_ints", {}),
    ("aten.view.dtype", {"dtype": DType("int32")}),
    ("aten.unfold.default", {"dimension": 0, "size": 2, "step": 2}),
    ("aten.unfold.default", {"dimension": -1, "size": 1, "step": 2}),
]
WRITES = [
    ("aten.add_.Tensor", {"other": 1}),
    ("aten.mul_.Tensor", {"other": 3}),
    ("aten.zero_.default", {}),
    ("aten.fill_.Scalar", {"value": 2}),
    ("aten.relu_.default", {}),
    ("aten.ge_.Scalar", {"other": 1}),
    ("aten.add_.Tensor", None),
    ("aten.copy_.default", None),
]
FRESH = [("aten.neg.default", {}), ("aten.clone.default", {}), ("aten.add.Tensor", {"other": 5})]


@st.composite
def programs(draw):
    """A random chain of views, writes and reads of an input and a buffer, as torch runs it."""
    tensors = {"x": torch.arange(12.0).reshape(4, 3), "b": torch.arange(6.0).reshape(2, 3)}
    metas = {k: TensorMeta(k, tuple(v.shape), "float32") for k, v in tensors.items()}
    x, b = metas["x"], metas["b"]
    nodes = []
    for number in range(draw(st.integers(1, 12))):
        op_type, attrs = draw(st.sampled_from([*VIEWS, *WRITES, *WRITES, *FRESH]))
        inputs = [draw(st.sampled_from(sorted(metas)))]
        if attrs is None:
            inputs.append(draw(st.sampled_from(sorted(metas))))
        taken = [metas[name] for name in inputs]
        node = OpNode(f"n{number}", op_type, taken, [], attrs or {})
        try:
            made = _run(node, [tensors[name] for name in inputs])
        except (RuntimeError, IndexError):
            continue  # torch refuses it
        is_list = isinstance(made, list | tuple)
        outputs = []
        for index, tensor in enumerate(made if is_list else [made]):
            name = f"{node.name}.{index}" if is_list else node.name
            dtype = str(tensor.dtype).removeprefix("torch.")
            metas[name] = TensorMeta(name, tuple(tensor.shape), dtype, node.name, index)
            tensors[name] = tensor
            outputs.append(metas[name])
        nodes.append(node.replace(outputs=outputs))
    names = draw(st.lists(st.sampled_from(sorted(metas)), min_size=1, max_size=4))
    weights = [b]
    ir = IR(nodes, [x], [metas[name] for name in names], weights, model_name="Random")
    return ir.replace(mutations=[Mutation(n, metas[n]) for n in sorted(ir.aliases.written)])


def _run(node, tensors):
    args, kwargs = bind(node, tensors)
    return overload(*node.op_type.split("."))(*args, **kwargs)


@settings(
    max_examples=250,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(programs())
def test_random_programs_do_the_same(ir):
    x, b = torch.arange(12.0).reshape(4, 3) - 4, torch.arange(6.0).reshape(2, 3) * 0.5
    done = functionalize(ir)
    assert done.check() == ()
    assert writes(done) == []
    assert_same(ir, done, {"b": b}, (x,))


@pytest.mark.parametrize(
    "same", [lambda x: x.contiguous(), lambda x: x.float(), lambda x: torch.dropout(x, 0.0, True)]
)
def test_a_shape_is_changed_of_the_very_tensor_of_the_caller_under_another_name(same):
    ir = extract_ir(Module(lambda m, x: same(x).t_() * 2).eval(), (torch.ones(2, 3),))
    with pytest.raises(PassError, match=r"aten.t_.default: it gives a tensor of the caller"):
        functionalize(ir)
    model = Module(lambda m, x: same(x * 1).t_() * 2).eval()
    own = extract_ir(model, (torch.ones(2, 3),))
    x = torch.rand(2, 3)
    result = execute_ir(functionalize(own), (x,), weights=model.state_dict())[0]
    assert torch.equal(result, x.t() * 2)


def test_every_rule_for_writes_through_views_is_of_an_operator():
    assert [name for name in RULES if lookup(name) is None] == []


@pytest.mark.parametrize("sections", [1, 2, 3])
def test_writes_through_sections_of_a_dimension_that_varies(sections):
    def written(m, x):
        y = x * 1
        y.tensor_split(sections, 1)[-1].mul_(2)
        y.hsplit(1)[0].add_(1)
        return y

    model, columns = Module(written).eval(), torch.export.Dim.DYNAMIC
    ir = extract_ir(model, (torch.rand(2, 6),), dynamic_shapes=((({1: columns},)),))
    for size in (6, 12, 18):
        x = torch.rand(2, size)
        result = execute_ir(functionalize(ir), (x,), weights=model.state_dict())[0]
        assert torch.equal(result, model(x))


def test_a_change_of_shape_in_place_of_a_size_that_varies_is_followed():
    """torch ends the process where it is asked for squeeze_ on such a size."""

    def squeezed(m, x):
        y = x.repeat_interleave(2, -1)
        y.squeeze_(-2)
        y.reshape(-1).relu_()
        return y

    model, rows = Module(squeezed).eval(), torch.export.Dim.DYNAMIC
    ir = extract_ir(model, (torch.rand(2, 6, 3),), dynamic_shapes=((({1: rows},)),))
    x = torch.rand(2, 4, 3) - 0.5
    result = execute_ir(functionalize(ir), (x,), weights=model.state_dict())[0]
    assert torch.equal(result, model(x))


def test_writes_through_a_view_whose_elements_lie_together_are_not_followed():
    class Twice(nn.Module):
        def forward(self, x):
            x.as_strided((2, 2), (1, 1)).mul_(2)
            return x + 1

    class Rows(nn.Module):
        def forward(self, x):
            x.as_strided((x.shape[0], x.shape[1]), (x.shape[1], 1)).mul_(2)
            x.as_strided((2, 2), (x.shape[1], 2)).add_(1)
            return x + 1

    x = torch.ones(4, 5)
    with pytest.raises(PassError) as raised:
        functionalize(extract_ir(Twice(), (x.clone(),)))
    assert "it writes through node 'as_strided' (aten.as_strided.default)" in str(raised.value)
    assert_same(ir := extract_ir(Rows(), (x.clone(),)), functionalize(ir), {}, (x,))


def test_writes_through_turned_strides_of_sizes_that_vary_are_followed():
    class Turned(nn.Module):
        def forward(self, x):
            x.as_strided((x.shape[1], x.shape[0]), (1, x.shape[1])).mul_(2)
            x.as_strided((3, 2), (2, 3)).add_(1)
            return x + 1

    rows = {"x": {0: Dim("n", min=3), 1: Dim("m", min=3)}}
    ir = extract_ir(Turned(), (torch.ones(4, 5),), dynamic_shapes=rows)
    for sizes in ((4, 5), (6, 3)):
        assert_same(ir, functionalize(ir), {}, (torch.rand(sizes),))
