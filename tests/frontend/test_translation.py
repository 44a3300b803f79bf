"""How a traced program is told: arguments, weights, constants, results, source lines."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn

import torch_ir
from older_torch import since_2_13
from small_models import CASES
from torch_ir.errors import ConversionError, TorchIRError, WeightLoadError
from torch_ir.executor import IRExecutor, compile_graph
from torch_ir.ir import Container, Device, DType, MemoryFormat, TensorLeaf, ValueLeaf
from torch_ir.torch_api import pytree
from whole_way import runs_as_eager


def extract(name, meta=False):
    case = CASES[name]
    args, kwargs = case.meta_inputs() if meta else case.inputs()
    return torch_ir.extract_ir(case.meta() if meta else case.model(), args, kwargs=kwargs)


class Lambda(nn.Module):
    """A module of one function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


# -- structure --------------------------------------------------------------------------------


def test_arguments_and_results_keep_their_structure():
    ir = extract("nested")
    positional, named = ir.signature.inputs.children
    pair = Container("tuple", (TensorLeaf("pair_0"), TensorLeaf("pair_1")))
    options = Container("dict", (Container("list", (TensorLeaf("options_bias_0"),)),), ("bias",))
    assert positional == Container("tuple", (pair, options, ValueLeaf(2.5), ValueLeaf("net")))
    shift = Container("dict", (TensorLeaf("extra_shift"),), ("shift",))
    assert named == Container("dict", (shift,), ("extra",))
    out = ir.signature.outputs
    assert out.type == "dict"
    assert out.keys == ("sum", "name", "none", "count", "again")
    total = out.children[0].children[0]
    assert out.children[1:] == (
        ValueLeaf("net"),
        ValueLeaf(None),
        ValueLeaf(3),
        Container("list", (total,)),
    )
    names = [meta.name for meta in ir.graph_outputs]
    assert names == [total.name, "pair_1", total.name]


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda x: [x, (x + 1,)], "list"),
        (lambda x: (x,), "tuple"),
        (lambda x: {"b": x, "a": x * 2}, "dict"),
        (lambda x: OrderedDict(z=x, a=x * 2), "OrderedDict"),
    ],
)
def test_each_container_comes_back_as_itself(make, kind):
    x = torch.ones(2)
    ir = torch_ir.extract_ir(Lambda(make).eval(), (x,))
    assert ir.signature.outputs.type == kind
    result = IRExecutor(ir)(x)
    assert type(result) is type(make(x))
    assert pytree.tree_flatten(result)[1] == pytree.tree_flatten(make(x))[1]


@dataclass
class Point:
    left: torch.Tensor
    right: torch.Tensor


torch.export.register_dataclass(Point, serialized_type_name="tests.frontend.Point")


def test_a_registered_class_goes_through_a_file(tmp_path):
    model = Lambda(lambda p: Point(p.left + p.right, p.left)).eval()
    given = Point(torch.ones(2), torch.ones(2) * 2)
    torch_ir.extract_ir(model, (given,)).save(tmp_path / "m.json")
    made = IRExecutor(torch_ir.load_ir(tmp_path / "m.json"))(given)
    assert type(made) is Point
    assert made.left.tolist() == [3.0, 3.0]
    assert made.right.tolist() == [1.0, 1.0]


@dataclass
class Unnamed:
    """Registered as torch's documentation shows it: without a serialized name."""

    left: torch.Tensor
    scale: float = 1.0
    right: torch.Tensor | None = None


torch.export.register_dataclass(Unnamed)


def test_a_class_that_is_registered_without_a_name_is_told_by_its_own(tmp_path):
    model = Lambda(lambda p: [Unnamed(p.left * p.scale, right=p.left + 1), Unnamed(p.left)]).eval()
    given = Unnamed(torch.ones(2), 3.0)
    ir = torch_ir.extract_ir(model, (given,))
    assert torch_ir.parse(str(ir), constants=ir.constants) == ir
    ir.save(tmp_path / "m.json")
    first, second = IRExecutor(torch_ir.load_ir(tmp_path / "m.json"))(given)
    assert (first.left.tolist(), first.scale) == ([3.0, 3.0], 1.0)
    assert first.right.tolist() == [2.0, 2.0]
    assert second.right is None


def test_a_class_without_a_name_that_is_nowhere_to_be_found_is_refused():
    @dataclass
    class Local:
        left: torch.Tensor

    torch.export.register_dataclass(Local)
    with pytest.raises(ConversionError) as caught:
        torch_ir.extract_ir(Lambda(lambda p: p.left + 1).eval(), (Local(torch.ones(2)),))
    assert str(caught.value).partition("\n")[2] == (
        "    - the structure has a Local, which has no serialized form\n"
        "Define the class at the top of a module, or register it with "
        "torch.export.register_dataclass or torch.utils._pytree.register_pytree_node and a "
        "serialized_type_name=."
    )


# -- weights and constants --------------------------------------------------------------------


def test_outputs_may_be_an_input_a_weight_a_constant_or_one_value_twice():
    ir = extract("passing")
    assert [meta.name for meta in ir.graph_outputs] == [
        "x",
        "p_weight",
        "add",
        "add",
        "c_table",
        "add_1",
    ]


def test_a_tied_weight_is_one_weight_under_every_key():
    ir = extract("embedding")
    assert ir.weight_aliases == {"head.weight": "words.weight"}
    assert [meta.name for meta in ir.weights].count("words.weight") == 1
    model, (args, _) = CASES["embedding"].model(), CASES["embedding"].inputs()
    state = model.state_dict()
    for missing in ("head.weight", "words.weight"):
        given = {key: value for key, value in state.items() if key != missing}
        result = IRExecutor(ir, given)(*args)
        assert torch.equal(result[0], model(*args)[0])
    assert extract("embedding", meta=True).weight_aliases == ir.weight_aliases


def test_what_no_state_dict_has_is_kept_where_it_is_known_and_asked_for_where_not():
    real, meta = extract("passing"), extract("passing", meta=True)
    assert real.constants.keys() == {"offset", "table"}
    assert [w.name for w in real.weights] == ["weight"]
    assert {w.name for w in meta.weights} >= {"weight", "offset"}
    with pytest.raises(WeightLoadError) as caught:
        IRExecutor(meta, CASES["passing"].model().state_dict())
    assert "give such values with constants= (--constants) for 'offset'" in str(caught.value)


def test_a_table_written_in_forward_is_a_constant_also_on_meta():
    class Table(nn.Module):
        def forward(self, x):
            return x * torch.tensor([0.5, 0.25, 0.125], device=x.device)

    with torch.device("meta"):
        ir = torch_ir.extract_ir(Table(), (torch.ones(3),))
    (constant,) = ir.constants.values()
    assert constant.tolist() == [0.5, 0.25, 0.125]
    assert IRExecutor(ir)(torch.ones(3)).tolist() == [0.5, 0.25, 0.125]


# -- calls ------------------------------------------------------------------------------------


def only(ir, op_type):
    (node,) = [node for node in ir.nodes if node.op_type == op_type]
    return node


def test_an_optional_tensor_in_the_middle_leaves_no_gap():
    node = only(extract("optional"), "aten.layer_norm.default")
    assert node.operands == {"input": 0, "bias": 1}
    assert [meta.name for meta in node.inputs] == ["clamp", "p_bias"]
    assert node.attrs["normalized_shape"] == (4,)


def test_a_list_of_optional_tensors_keeps_its_gaps():
    ir = torch_ir.extract_ir(
        Lambda(lambda x, i: x[:, i]).eval(), (torch.ones(3, 4), torch.tensor([1, 0]))
    )
    node = only(ir, "aten.index.Tensor")
    assert node.operands == {"self": 0, "indices": (None, 1)}


def test_a_result_that_nobody_takes_is_absent_or_unused_but_positions_are_right():
    ir = extract("dropping")
    outputs = only(ir, "aten.split_with_sizes.default").outputs
    assert [(m.name.rpartition(".")[2], m.producer_output_idx) for m in outputs] == [
        ("0", 0),
        ("1", 1),
        ("2", 2),
    ]
    assert only(ir, "aten.max.dim").outputs[1].dtype == "int64"
    assert [type(o.producer_output_idx) for o in outputs] == [int] * 3


def test_scopes_are_functions_of_the_program():
    ir = extract("scopes")
    kinds = [n.op_type for n in ir.nodes if n.op_type.startswith("higher_order")]
    assert set(kinds) <= {
        "higher_order.wrap_with_set_grad_enabled",
        "higher_order.wrap_with_autocast",
    }
    assert len(kinds) >= 2
    assert len(ir.functions) >= 2
    assert any(body.functions for body in ir.functions.values()), "scopes are nested"


def test_enumerations_of_torch_are_values():
    ir = extract("casts")
    text = str(ir)
    attributes = [value for node in ir.nodes for value in node.attrs.values()]
    assert DType("float16") in attributes
    assert MemoryFormat("channels_last") in attributes
    assert Device("run") in attributes
    for spelled in ("torch.float16", "torch.channels_last", 'device("run")'):
        assert spelled in text


def test_numbers_are_exact_whatever_their_type():
    ir = torch_ir.extract_ir(
        Lambda(lambda x: (x * float("inf") + -0.0, x.pow(2), x * True)).eval(), (torch.ones(1),)
    )
    values = [
        repr(v) for node in ir.nodes for k, v in node.attrs.items() if k in ("other", "exponent")
    ]
    assert values == ["inf", "-0.0", "2", "True"]


# -- where it came from -----------------------------------------------------------------------


class Inner(nn.Module):
    def forward(self, x):
        return torch.tanh(x)  # the tanh line


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Inner(), Inner()])
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return F.gelu(self.fc(x))  # the gelu line


def line_of(module, marker):
    source, first = inspect.getsourcelines(module)
    (offset,) = [i for i, line in enumerate(source) if marker in line]
    return first + offset, source[offset].strip()


@pytest.mark.parametrize("meta", [False, True], ids=["real", "meta"])
def test_each_node_knows_the_line_and_the_module_that_made_it(meta):
    with torch.device("meta" if meta else "cpu"):
        ir = torch_ir.extract_ir(Outer().eval(), (torch.ones(1, 2),))
    first, second, linear, gelu = ir.nodes
    line, code = line_of(Inner, "the tanh line")
    for node, path in ((first, "blocks.0"), (second, "blocks.1")):
        place = node.location
        assert place.file.endswith("frontend/test_translation.py")
        assert (place.line, place.code) == (line, code.partition("  #")[0]) or (
            place.line,
            place.code,
        ) == (line, code)
        assert place.module == path
        assert place.module_type == f"{Inner.__module__}.Inner"
    line, _ = line_of(Outer, "the gelu line")
    assert (linear.location.line, gelu.location.line) == (line, line)
    assert (linear.location.module, gelu.location.module) == ("fc", "")
    assert linear.location.module_type == "torch.nn.modules.linear.Linear"


class Difference(nn.Module):
    def forward(self, a, b):
        return a.add_(1) - b * 2


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_one_tensor_given_twice_is_two_arguments(device):
    x = torch.ones(3, device=device)
    ir = torch_ir.extract_ir(Difference().eval(), (x, x))
    executor, model = torch_ir.IRExecutor(ir, {}), Difference()
    a, b = torch.arange(3.0), torch.tensor([5.0, 7.0, 9.0])
    assert torch.equal(executor(a.clone(), b), model(a.clone(), b))
    ours, eager = a.clone(), a.clone()
    assert torch.equal(executor(ours, ours), model(eager, eager))
    assert torch.equal(ours, eager)


class Held(nn.Module):
    """Does something with what it is made with, which is neither parameter nor buffer."""

    def __init__(self, held, function):
        super().__init__()
        self.held, self.function = held, function

    def forward(self, x):
        return self.function(self, x)


def written(model, x):
    model.held.add_(1)
    return x + model.held


def written_in_a_list(model, x):
    model.held[0].mul_(2)
    return x + model.held[0]


@pytest.mark.parametrize(
    ("make", "function"),
    [
        (lambda: torch.ones(3, 3), written),
        (lambda: torch.tensor([float("nan"), 1, 2]), written),
        (lambda: [torch.ones(3)], written_in_a_list),
    ],
)
def test_a_tensor_that_the_model_writes_is_as_it_was_after_extraction(make, function):
    model, x = Held(make(), function), torch.ones(3, 3)
    ir = torch_ir.extract_ir(model.eval(), (x,))
    expected = make()[0] if isinstance(model.held, list) else make()
    held = model.held[0] if isinstance(model.held, list) else model.held
    assert torch.equal(held.nan_to_num(), expected.nan_to_num())
    executor = torch_ir.IRExecutor(ir, {})
    for _ in range(3):
        assert torch.equal(executor(x).nan_to_num(), model(x).nan_to_num())


@pytest.mark.parametrize(
    ("make", "function", "message"),
    [
        pytest.param(
            lambda: torch.Generator(),
            lambda model, x: x + torch.rand(3, 3, generator=model.held),
            "the model draws from a torch.Generator that it holds, whose state no program has; "
            "draw from the default generator, without generator=",
            marks=since_2_13("does not export it, and says so"),
        ),
        (
            lambda: torch.eye(3).to_sparse(),
            lambda model, x: torch.sparse.mm(model.held, x),
            "'held' is a torch.sparse_coo tensor, which has no plain values to keep as a "
            "constant; a buffer may be sparse: register it as one",
        ),
        (
            lambda: None,
            lambda model, x: (x * 2).data + 1,
            "it reads a tensor that no node makes and that is no weight, as .data of a value "
            "gives while a model is traced; write .detach()",
        ),
    ],
    ids=["generator", "sparse constant", "data of an intermediate"],
)
def test_what_a_model_holds_and_no_program_can_is_said(make, function, message):
    with pytest.raises(ConversionError) as caught:
        torch_ir.extract_ir(Held(make(), function).eval(), (torch.ones(3, 3),))
    assert str(caught.value).endswith(f": {message}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float64])
def test_a_buffer_that_the_model_counts_in(dtype):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", torch.zeros((), dtype=dtype))

        def forward(self, x):
            self.n += 1
            return x * self.n

    runs_as_eager(Counts, (torch.ones(3),), (torch.ones(3),))


TABLE = torch.zeros(3)
HELD = {"in a dict": [torch.zeros(3)]}


def writes_a_global(x):
    TABLE.add_(1)
    return x + TABLE


def writes_a_view_of_what_a_container_holds(x):
    HELD["in a dict"][0][1:].mul_(2).add_(x[0])
    return x * HELD["in a dict"][0]


def writes_a_default(x, held=TABLE):
    torch.add(x, 1, out=held)
    return held * 2


@pytest.mark.parametrize(
    ("function", "held"),
    [
        (writes_a_global, TABLE),
        (writes_a_view_of_what_a_container_holds, HELD["in a dict"][0]),
        (writes_a_default, TABLE),
    ],
)
def test_what_a_model_writes_outside_of_itself_is_left_as_it_was(function, held):
    class Model(nn.Module):
        def forward(self, x):
            return function(x)

    x, before = torch.tensor([1.0, 2.0, 3.0]), held.clone()
    ir = torch_ir.extract_ir(Model(), (x,))
    assert torch.equal(held, before)
    (mutation,) = ir.mutations
    got = compile_graph(ir).eval((x,))[0]
    expected = Model()(x)
    held.copy_(before)
    assert mutation.target == "c_lifted_tensor_0"
    assert torch.equal(got, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_have_the_types_that_they_have_without_gradients(mode, dtype):
    bag = nn.EmbeddingBag(10, 3, mode=mode, include_last_offset=True, dtype=dtype)
    given = torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2, 4])
    ir = torch_ir.extract_ir(bag, given)
    (got,) = torch_ir.execute_ir(ir, given, bag.state_dict())
    assert torch.equal(got, bag(*given))


class Holder(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner, *_):
        return Holder(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        given = pytree.tree_map_only(cls, lambda holder: holder.inner, (args, kwargs or {}))
        made = func(*given[0], **given[1])
        return cls(made) if func is torch.ops.aten.detach.default else made


def test_weights_that_hold_tensors_are_refused():
    model, x = nn.Linear(2, 2, bias=False), torch.randn(1, 2)
    model.weight = nn.Parameter(Holder(torch.randn(2, 2)), requires_grad=False)
    for regions in (None, "auto"):
        with pytest.raises(TorchIRError, match="is of the class Holder, which") as caught:
            torch_ir.extract_ir(model, (x,), regions=regions)
        assert "unwrap_tensor_subclass" in caught.value.remedy
