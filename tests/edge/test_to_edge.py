"""Lowering to Edge, case by case of the conformance list: E1, E9, E11-E13, E21-E27."""

import importlib
import itertools

import pytest
import torch
from torch import nn
from torch.export import Dim, export

import torch_ir
from dialects.graphs import graph, value
from older_torch import since_2_13
from torch_ir import IR, IRExecutor, OpNode
from torch_ir.dialects import edge, verify
from torch_ir.edge import to_edge
from torch_ir.errors import DialectError, InvalidIRError, PassError
from torch_ir.ir import DType
from torch_ir.passes import PassResult
from torch_ir.passes.edge.promotion import COMPUTES_WIDE, PROMOTING


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def lowered(function, *args, **options):
    """The Edge program of a function, after it was checked to give eager's bits."""
    made = to_edge(export(Function(function), args), **options)
    assert_same(made.ir(), function(*args), *args)
    return made.ir()


def assert_same(ir, expected, *args, weights=None):
    got = IRExecutor(ir, weights or {})(*args)
    leaves = torch.utils._pytree.tree_leaves
    for left, right in zip(leaves(got), leaves(expected), strict=True):
        assert left.dtype == right.dtype
        torch.testing.assert_close(left, right, rtol=0, atol=0, equal_nan=True)


def test_e1_every_call_is_an_edge_operator_and_the_program_runs_as_eager():
    model = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 2)).eval()
    x = torch.randn(3, 4)
    ir = to_edge(export(model, (x,))).ir()
    assert ir.dialect == "edge"
    for node in ir.nodes:
        assert str(edge.edge_op(node.op_type).schema).startswith("aten::")
    assert_same(ir, model(x), x, weights=model.state_dict())
    assert torch_ir.parse(str(ir)) == ir


def test_e9_a_concatenation_of_two_dtypes_converts_the_narrower_first():
    ir = lowered(lambda a, b: torch.cat([a, b]), torch.tensor([7.5]), torch.tensor([9]))
    assert [node.op_type for node in ir.nodes] == [
        "dim_order_ops._to_dim_order_copy.default",
        "aten.cat.default",
    ]


HALF = torch.float16


@pytest.mark.parametrize(
    ("function", "argument", "expected"),
    [
        (lambda x: x * 2.1, torch.tensor([1e6, 3], dtype=torch.float64), [2.1e6, 3 * 2.1]),
        (lambda x: x + 0.1, torch.tensor([0.0], dtype=torch.float64), [0.1]),
        (lambda x: x * 2.5, torch.tensor(1.5, dtype=HALF), 3.75),
        (lambda x: x + 1, torch.tensor(1, dtype=torch.int32), 2),
        (lambda x: x * 2, torch.tensor(200, dtype=torch.uint8), 144),
        (lambda x: x.sum() + 1.0, torch.ones(4, dtype=torch.bfloat16), 5.0),
        (lambda x: x.max() + 1, torch.arange(4, dtype=torch.int32), 4),
        (lambda x: x * 1e5, torch.tensor([1e-5], dtype=HALF), [1.0009765625]),
        (lambda x: x * 2, torch.tensor(True), 2),
        (lambda x: x + 2**40, torch.tensor([1]), [2**40 + 1]),
        (
            lambda x: torch.where(x > 5, x, 0.1),
            torch.tensor([9, 1], dtype=torch.float64),
            [9, 0.1],
        ),
        (lambda x: x // 2, torch.tensor([7, -7]), [3, -4]),
        (lambda x: x / 2, torch.tensor([7, -7]), [3.5, -3.5]),
    ],
)
def test_e11_numbers_become_the_constants_that_eager_computes_with(function, argument, expected):
    ir = lowered(function, argument)
    assert function(argument).tolist() == expected
    assert not [v for node in ir.nodes for v in node.attrs.values() if v == 2.1]


@pytest.mark.parametrize("function", [lambda x: x + 1, lambda x: x / 2, lambda x: 1 - x])
def test_e11_a_number_costs_no_node(function):
    ir = lowered(function, torch.randn(2, 3))
    assert len(ir.nodes) == 1
    assert [constant.dtype for constant in ir.constants.values()] == ["float32"]


@pytest.mark.parametrize("first", [torch.bool, torch.int64, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("second", [torch.bool, torch.uint8, torch.float16, torch.float32])
def test_conversions_are_said_with_their_order_of_dimensions(first, second):
    x = torch.tensor([[0, 1, 2], [3, 0, 5]]).to(first)
    ir = lowered(lambda x: x.t().to(second).clone(), x)
    cast = ir.nodes[1]
    if first is not second:
        assert cast.op_type == "dim_order_ops._to_dim_order_copy.default"
        assert cast.attrs["dim_order"] == (1, 0)


class Layouts(nn.Module):
    def forward(self, x):
        image = x.contiguous(memory_format=torch.channels_last)
        return x.clone() + 1, x.to(torch.float64), image.permute(0, 2, 3, 1).contiguous(), image


@pytest.mark.parametrize("strict", [False, True])
def test_layouts_are_said_by_memory_formats_where_that_is_asked_for(strict):
    x = torch.randn(2, 3, 4, 5)
    source = torch_ir.extract_ir(Layouts(), (x,))
    edge = to_edge(source, dim_order=False, strict=strict).ir()
    assert not [n for n in edge.nodes if n.op_type.startswith("dim_order_ops.")]
    made = IRExecutor(edge, {})(x)
    for result, expected in zip(made, Layouts()(x), strict=True):
        assert torch.equal(result, expected)
        assert result.stride() == expected.stride()


def test_e12_a_size_becomes_a_scalar_tensor():
    def mean(x):
        return x.sum() / x.shape[0]

    exported = export(
        Function(mean), (torch.ones(4),), dynamic_shapes=(({0: Dim("n", min=2, max=64)},),)
    )
    ir = to_edge(exported).ir()
    (scalar,) = [node for node in ir.nodes if node.op_type == "aten.scalar_tensor.default"]
    assert scalar.attrs["dtype"] == DType("float32")
    for size in range(2, 65):
        x = torch.randn(size)
        assert_same(ir, mean(x), x)


DTYPES = (
    *(torch.bool, torch.uint8, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)


def operator(op_type):
    _, packet, overload = op_type.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


def arguments_of(op_type, values):
    if op_type == "aten.where.self":
        return (torch.tensor([True, False, True]), *values)
    if op_type in ("aten.cat.default", "aten.stack.default"):
        return ([v if v.dim() else v.reshape(1).expand(3) for v in values],)
    count = len(PROMOTING[op_type])
    return (*values, values[0])[:count]


def drawn(dtype, shape, generator):
    made = torch.randint(1, 5, shape, generator=generator).to(torch.float64)
    return (made + 0.3 if dtype.is_floating_point else made).to(dtype)


MIXED = tuple(dtype for dtype in DTYPES if dtype is not torch.int64)
SHAPES = (((3,), (3,)), ((3,), ()), ((), (3,)), ((), ()))


@pytest.mark.parametrize("op_type", sorted(PROMOTING))
def test_e13_what_eager_promotes_is_converted_explicitly(op_type):
    """Every pair of dtypes, with and without dimensions, gives eager's bits with like operands."""
    generator = torch.Generator().manual_seed(0)
    options = {"rounding_mode": "floor"} if op_type.endswith("Tensor_mode") else {}
    nodes, given, expected = [], [], []
    for first, second, shapes in itertools.product(MIXED, MIXED, SHAPES):
        values = [
            drawn(dtype, shape, generator)
            for dtype, shape in zip((first, second), shapes, strict=True)
        ]
        args = arguments_of(op_type, values)
        try:
            result = operator(op_type)(*args, **options)
        except RuntimeError:
            continue
        nodes.append(hand_made(len(nodes), op_type, args, options, result))
        given += flat(args)
        expected.append(result)
    assert len(nodes) >= 30
    inputs = [meta for node in nodes for meta in node.inputs]
    outputs = [node.outputs[0] for node in nodes]
    ir = to_edge(IR(nodes, inputs, outputs, [], dialect="core_aten"), verify=False).ir()
    assert_one_dtype(ir)
    assert_same(ir, expected, *given)


def flat(args):
    return [t for a in args for t in (a if isinstance(a, list) else [a])]


def meta_of(name, tensor):
    return value(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def hand_made(index, op_type, args, options, result):
    name = f"y{index}"
    metas = [meta_of(f"x{index}_{i}", tensor) for i, tensor in enumerate(flat(args))]
    made = meta_of(name, result).replace(producer_node=name)
    return OpNode(name, op_type, metas, [made], options)


def assert_one_dtype(ir):
    for node in ir.nodes:
        if node.op_type in PROMOTING:
            promoted = PROMOTING[node.op_type]
            dtypes = {
                node.inputs[i].dtype
                for name in promoted
                for slot in [node.operands.get(name)]
                for i in (slot if isinstance(slot, tuple) else [slot])
                if i is not None
            }
            assert len(dtypes) == 1, str(node)


@pytest.mark.parametrize("op_type", sorted(COMPUTES_WIDE))
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_e13_a_number_beside_a_half_is_not_rounded_first_where_eager_does_not(op_type, dtype):
    call = operator(op_type)
    options = {"rounding_mode": "trunc"} if op_type.endswith("Tensor_mode") else {}

    def function(vector, scalar):
        numbers = (0.1, 1e5, 70000.0, 1 / 3, 3)
        return [call(x, number, **options) for x in (vector, scalar) for number in numbers]

    lowered(function, torch.linspace(-3, 3, 97).to(dtype), torch.tensor(1.7, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_e13_numbers_beside_every_dtype(dtype):
    def function(x):
        return [
            (x + n, x * n, n - x, x / n, x == n, x // n, torch.clamp(x, n))
            for n in (0.1, 1e3, -1, 3)
        ]

    lowered(function, torch.tensor([1, 2, 3]).to(dtype))


def test_e21_what_is_empty_is_left_out_of_a_concatenation():
    ir = lowered(lambda x: torch.cat([x[:0], x]), torch.randn(3, 2))
    (cat,) = [node for node in ir.nodes if node.op_type == "aten.cat.default"]
    assert len(cat.inputs) == 1
    ir = lowered(lambda x: torch.cat([x[:0], x[:0]]), torch.randn(3, 2))
    assert ir.nodes[-1].op_type == "aten.full.default"


def test_e22_a_slice_of_everything_and_a_copy_of_the_same_are_no_nodes():
    ir = lowered(lambda x: x[:].relu(), torch.randn(3, 2))
    assert [node.op_type for node in ir.nodes] == ["aten.relu.default"]
    x, y = value("x"), value("y")
    same = graph("aten._to_copy.default", [x], [y], {"dtype": DType("float32")}, dialect="aten")
    ir = to_edge(same).ir()
    assert ir.nodes == ()
    assert [meta.name for meta in ir.graph_outputs] == ["x"]


def test_e23_a_parameter_that_nothing_uses_is_not_in_the_result():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.used = nn.Parameter(torch.ones(2))
            self.unused = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return x + self.used

    model = Model()
    before = torch_ir.extract_ir(model, (torch.ones(2),))
    ir = to_edge(before).ir()
    assert [meta.name for meta in ir.weights] == ["used"]
    assert [meta.name for meta in before.weights] == ["used", "unused"]
    assert_same(ir, model(torch.ones(2)), torch.ones(2), weights=model.state_dict())


def two_methods():
    x = torch.ones(2)
    return to_edge(
        {
            "a": export(Function(lambda x: x + 1), (x,)),
            "b": export(Function(lambda x: x * 2), (x,)),
        }
    )


def as_relu(ir):
    node = ir.nodes[0].replace(
        op_type="aten.relu.default", inputs=ir.nodes[0].inputs[:1], operands={"self": 0}
    )
    return ir.replace(nodes=[node])


def test_e24_a_pass_changes_the_method_that_it_is_for_and_nothing_else():
    program = two_methods()
    assert program.methods == ("a", "b")
    changed = program.transform({"a": [as_relu]})
    assert changed.ir("a").nodes[0].op_type == "aten.relu.default"
    assert changed.ir("b") is program.ir("b")
    assert program.ir("a").nodes[0].op_type == "aten.add.Tensor"
    assert program.transform({}) is program is program.transform([])


def forged(ir):
    wrong = ir.nodes[0].outputs[0].replace(shape=(77,), dtype="int8")
    return ir.replace(nodes=[ir.nodes[0].replace(outputs=[wrong])], graph_outputs=[wrong])


def test_e25_a_pass_that_lies_is_refused_and_the_program_stays_as_it_was():
    program = two_methods()
    before = str(program)
    with pytest.raises(DialectError) as caught:
        program.transform({"b": [forged]})
    assert [v.code for v in caught.value.violations] == ["dtype-constraint", "wrong-type"]
    assert caught.value.message.startswith("the method 'b' breaks the rules of the dialect 'edge'")
    assert str(program) == before


def test_e25_a_pass_may_give_nothing_and_may_not_change_what_the_program_takes_or_gives():
    program = two_methods()
    assert program.transform([lambda ir: None]) is program
    assert program.transform([lambda ir: PassResult(ir, False)]) is program

    def twice(ir):
        return ir.replace(graph_outputs=[*ir.graph_outputs, *ir.graph_outputs])

    with pytest.raises(PassError) as caught:
        program.transform([twice])
    assert str(caught.value) == (
        "the pass twice changed what method 'a' gives: 1 output before, 2 after\n"
        "A pass keeps what a program takes and gives; the program is unchanged."
    )

    def counts(ir):
        return len(ir.nodes)

    with pytest.raises(PassError) as caught:
        program.transform([counts])
    assert str(caught.value) == (
        "the pass counts gives a int for method 'a'\n"
        "A pass gives the changed program, a PassResult, or None for no change."
    )


def test_e26_a_preserved_operator_is_kept():
    model = nn.Linear(4, 2).eval()
    x = torch.randn(3, 4)
    preserve = ["aten.linear.default"]
    for _ in range(5):
        ir = to_edge(export(model, (x,)), preserve=preserve).ir()
    assert preserve == ["aten.linear.default"]
    assert [node.op_type for node in ir.nodes] == ["aten.linear.default"]
    assert_same(ir, model(x), x, weights=model.state_dict())


@pytest.mark.parametrize(
    ("op_type", "reason"),
    [
        ("aten.view.default", "it writes or aliases what it is given"),
        ("aten.relu_.default", "it writes or aliases what it is given"),
        ("prims.add.default", "only operators of ATen and of libraries are decomposed"),
    ],
)
def test_e26_what_cannot_be_preserved_is_refused(op_type, reason):
    with pytest.raises(InvalidIRError) as caught:
        to_edge(graph("aten.relu.default", [value("x")], [value("y")]), preserve=[op_type])
    assert caught.value.message == f"{op_type} cannot be preserved: {reason}"


def test_e27_an_edge_program_is_not_made_of_aten():
    ir = graph("aten.relu.default", [value("x")], [value("y")], dialect="aten")
    with pytest.raises(DialectError) as caught:
        edge.EdgeProgram({"forward": ir})
    assert [v.code for v in caught.value.violations] == ["not-edge"]


def test_state_is_kept_and_its_first_value_counts():
    class Average(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("ema", torch.ones(3))

        def forward(self, x):
            self.ema.mul_(0.9).add_(0.1 * x)
            return x / self.ema

    model = Average()
    x = torch.full((3,), 2.0)
    executor = IRExecutor(to_edge(export(model, (x,))).ir(), dict(model.state_dict()))
    for _ in range(3):
        assert torch.equal(executor(x), model(x))


def test_a_program_runs_with_views_and_gives_away_copies():
    model = nn.Linear(5, 3).eval()
    x = torch.randn(4, 5)
    program = to_edge(export(nn.Sequential(model), (x,)))
    assert "aten.permute_copy.default" in [node.op_type for node in program.ir().nodes]
    assert_same(program.ir(), model(x), x, weights=nn.Sequential(model).state_dict())
    ir = lowered(lambda x: x.t(), x)
    given_away = IRExecutor(ir, {})(x)
    given_away.zero_()
    assert x.abs().sum() > 0


def test_control_flow_is_lowered_inside_its_branches():
    class Model(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2.5, (x,))

    model = Model()
    ir = to_edge(export(model, (torch.ones(2, 2),))).ir()
    assert verify(ir) == ()
    for x in (torch.ones(2, 2), -torch.ones(2, 2)):
        assert_same(ir, model(x), x)


def test_lowering_twice_gives_the_same_bytes_and_the_program_shows_itself():
    exported = export(Function(lambda x: (x + 1).half() * 0.1), (torch.ones(2),))
    first, second = to_edge(exported), to_edge(exported)
    assert first == second
    assert torch_ir.serialize_ir(first.ir()) == torch_ir.serialize_ir(second.ir())
    assert repr(first) == "EdgeProgram(forward: 5 nodes)"
    assert str(first).startswith("method 'forward':\nir {\n")
    with pytest.raises(InvalidIRError) as caught:
        first.ir("backward")
    assert str(caught.value) == "there is no method 'backward'\nThe methods are forward."


@pytest.mark.parametrize("in_dim", [0, 2, -1])
def test_copies_in_the_bodies_that_vmap_runs_have_a_rule_of_their_own(in_dim, capfd):
    x = torch.randn(2, 3, 4, 4, 5)
    importlib.import_module("torch_ir.dialects.edge.dim_order_kernels")  # registers them
    copy = torch.ops.dim_order_ops._to_dim_order_copy
    given = x.movedim(-1, in_dim)
    options = {"dtype": torch.float64, "dim_order": [0, 2, 3, 1]}
    made = torch.vmap(lambda one: copy(one, **options), in_dim)(given)
    twice = torch.vmap(torch.vmap(torch.ops.dim_order_ops._clone_dim_order))(x)
    assert torch.equal(made, x.movedim(-1, 0).double())
    assert made[0].stride() == copy(x[..., 0], **options).stride()
    assert torch.equal(twice, x)
    assert capfd.readouterr().err == ""


class Ring(nn.Module):
    """A cache that is written from a place in another buffer on."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, 3))
        self.register_buffer("place", torch.tensor(0))

    def forward(self, x):
        self.cache[:, self.place : self.place + 1] = x.sum()
        self.place += 1
        self.place %= 3
        return x + 1


@since_2_13("refuses a slice between places from data")
def test_a_slice_between_places_from_data_has_a_size_of_its_own():
    model = Ring()
    lowered = to_edge(torch_ir.extract_ir(Ring(), (torch.ones(2),))).ir()
    run = IRExecutor(lowered, Ring().state_dict())
    for _ in range(4):
        x = torch.randn(2)
        assert torch.equal(run(x), model(x))
        assert torch.equal(run.buffers["cache"], model.cache)
        assert torch.equal(run.buffers["place"], model.place)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float16])
def test_a_single_value_of_another_dtype_is_converted_where_it_is_put(dtype):
    class Put(nn.Module):
        def forward(self, x, value):
            x = x.clone()
            x[x > 1] = value[0]
            return x

    x = torch.arange(4).to(dtype)
    for single in (torch.tensor([7]), torch.tensor([2.5]), torch.tensor([True])):
        lowered = to_edge(torch_ir.extract_ir(Put(), (x, single))).ir()
        assert torch.equal(IRExecutor(lowered, {})(x, single), Put()(x, single))
