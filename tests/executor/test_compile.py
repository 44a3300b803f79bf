"""The compiled graph: what its source is, which calls it makes, what it holds in memory."""

from __future__ import annotations

import ast
import importlib.util
import traceback
import warnings

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import IR, ExecGraph, OpNode, TensorMeta, compile_graph, parse, serde
from torch_ir.errors import CompileError, ExecutionError, InvalidIRError
from torch_ir.executor import register_executor, unregister_executor
from torch_ir.infer.dispatch import twin_of
from torch_ir.ir import Location

X = TensorMeta("x", (4,), "float32")


def value(name, shape=(4,), dtype="float32"):
    return TensorMeta(name, shape, dtype, name)


def chain(length, op_type="aten.relu.default"):
    """A graph of one operator after the other."""
    metas = [X, *(value(f"r{i}") for i in range(length))]
    nodes = [OpNode(f"r{i}", op_type, [metas[i]], [metas[i + 1]], {}) for i in range(length)]
    return IR(nodes, [X], [metas[-1]], [], model_name="Chain")


class Net(nn.Module):
    """A layer whose result is used twice, so that one use must not overwrite it."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        y = self.fc(x)
        return torch.relu(y) + y * 2, y.view(2, 4)


def net():
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(2, 4)
    return model, x, compile_graph(torch_ir.extract_ir(model, (x,)), model.state_dict())


def test_the_source_is_a_module_that_runs_without_the_graph(tmp_path):
    model, x, graph = net()
    path = tmp_path / "generated.py"
    path.write_text(graph.source)
    spec = importlib.util.spec_from_file_location("generated", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    weights = {"p_fc_weight": model.fc.weight.detach(), "p_fc_bias": model.fc.bias.detach()}
    assert module.accepts(x) == ()
    assert module.accepts(x.double()) is None
    with torch.no_grad():
        assert all(map(torch.equal, module.bind(weights, {})(x), model(x)))


def test_a_line_of_the_source_says_type_operator_and_place():
    _, _, graph = net()
    (line,) = [line for line in graph.source.splitlines() if "nn_linear(" in line]
    code, _, comment = line.strip().partition("  # ")
    assert code == "linear = nn_linear(x, p_fc_weight, p_fc_bias)"
    assert comment.startswith("f32[2, 4] aten.linear.default  ")
    assert comment.endswith("in fc (Linear): y = self.fc(x)")


def test_a_value_that_is_read_again_keeps_its_place():
    model, x, graph = net()
    with torch.no_grad():
        assert all(map(torch.equal, graph.eval((x,)), model(x)))
    assert graph.run_stats.in_place == 1  # the sum takes the place of one of its terms
    assert str(graph.run_stats).startswith("5 nodes: 5 by Python bindings, 1 in place")


HOSTILE = (
    "import os",
    "x'); raise SystemExit(",
    "lambda",
    "torch",
    "run",
    "payload",
    "a\nb",
    "ä",
    "",
    "__class__",
    "9",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_from_a_file_cannot_become_code(name):
    x, y = TensorMeta("in " + name, (4,), "float32"), value(name)
    location = Location("a.py\nraise SystemExit", 1, "x = 1\rraise SystemExit", name)
    node = OpNode(name, "aten.relu.default", [x], [y], location=location)
    weight = TensorMeta(name + "!", (4,), "float32")
    total = value(name + "?")
    ir = IR(
        [node, OpNode(name + "?", "aten.add.Tensor", [y, weight], [total])],
        [x],
        [total],
        [weight],
        model_name=name,
    )
    graph = compile_graph(ir, {name + "!": torch.ones(4)})
    assert len(ast.parse(graph.source).body) == 5  # title, import, two functions, one binding
    (made,) = graph.eval((torch.tensor([-1.0, 0.0, 1.0, 2.0]),))
    assert made.tolist() == [1.0, 1.0, 2.0, 3.0]


def test_a_deep_graph_compiles_and_runs():
    graph = compile_graph(chain(12_000))
    assert graph.source.count("def run") == 4  # three parts, and what calls them
    x = torch.tensor([-1.0, 0.0, 1.0, 2.0])
    assert torch.equal(graph.eval((x,))[0], x.relu())


def test_believed_types_cost_no_more_in_a_long_chain():
    # what each result may share with its ancestors would fill the memory
    graph = compile_graph(chain(30_000), check_types=False)
    assert graph.eval((torch.tensor([-1.0, 0.0, 1.0, 2.0]),))[0].tolist() == [0, 0, 1, 2]


def test_values_that_cross_the_parts_of_a_long_function():
    class Long(nn.Module):
        def forward(self, x):
            first = x + 1
            for _ in range(5_100):
                x = x.neg()
            return x * first, first

    x = torch.tensor([1.0, 2.0])
    graph = compile_graph(torch_ir.extract_ir(Long(), (x,)))
    assert [t.tolist() for t in graph.eval((x,))] == [[2.0, 6.0], [2.0, 3.0]]


# -- values of nodes ------------------------------------------------------------------------------


def test_every_value_by_name():
    model, x, graph = net()
    values = graph.eval_all((x,))
    assert list(values) == ["x", "linear", "relu", "mul", "add", "view"]
    with torch.no_grad():
        assert torch.equal(values["linear"], model.fc(x))
        assert torch.equal(values["relu"], model.fc(x).relu())
    assert list(graph.eval_all((x,), stop_at="relu")) == ["x", "linear", "relu"]
    assert list(graph.values((x,), ["mul", "linear"])) == ["linear", "mul"]
    assert graph.values((x,), []) == {}


def test_values_are_those_of_their_time_where_operators_write_in_place():
    class Writes(nn.Module):
        def forward(self, x):
            y = x + 1
            z = y[0:1]
            y.mul_(10)
            return y.sum() + z

    x = torch.tensor([1.0, 2.0])
    graph = compile_graph(torch_ir.extract_ir(Writes(), (x,)))
    values = graph.eval_all((x,))
    assert values["add"].tolist() == [2.0, 3.0]
    assert values["mul_"].tolist() == [20.0, 30.0]


def test_a_name_that_no_node_has():
    _, x, graph = net()
    with pytest.raises(InvalidIRError) as caught:
        graph.values((x,), ["linea"])
    assert str(caught.value) == "no node makes a value 'linea'\nDid you mean linear?"
    with pytest.raises(InvalidIRError, match="there is no node 'nope'"):
        graph.eval_all((x,), stop_at="nope")


class Count:
    """A listener that writes down what it is told."""

    def __init__(self, fails_at=""):
        self.told = []
        self.fails_at = fails_at

    def will_run(self, node, inputs):
        self.told.append(("will", node.name, len(inputs)))

    def did_run(self, node, outputs):
        self.told.append(("did", node.name, len(outputs)))
        if node.name == self.fails_at:
            raise LookupError("the listener's own")


def test_a_listener_hears_of_every_node_and_costs_nothing_when_absent():
    _, x, graph = net()
    count = Count()
    told = graph.eval((x,), listener=count)
    assert count.told[:3] == [("will", "linear", 3), ("did", "linear", 1), ("will", "relu", 1)]
    assert len(count.told) == 10
    assert all(map(torch.equal, told, graph.eval((x,))))
    assert "did_run" not in graph.source


def test_what_a_listener_raises_is_its_own():
    _, x, graph = net()
    with pytest.raises(LookupError, match="the listener's own"):
        graph.eval((x,), listener=Count(fails_at="relu"))


# -- the same bits by cheaper calls ---------------------------------------------------------------

SPECIAL = [0.1, -0.0, 3.5, float("inf"), float("-inf"), float("nan"), 1e-40, 3e38, -7.25, 1.0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int64"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("number", [1, -3, 0.1, 1e30, float("inf"), float("nan"), 2**24 + 1])
def test_a_number_gives_the_bits_that_eager_gives(name, dtype, number):
    kind = getattr(torch, dtype)
    x = torch.tensor(SPECIAL * 7, dtype=torch.float64)
    x = x.nan_to_num(1.0, 100.0, -100.0).to(kind) if "int" in dtype else x.to(kind)
    operator = getattr(torch.ops.aten, name).Tensor
    expected = operator(x, number)
    meta = TensorMeta("x", (70,), dtype)
    made = value("y", (70,), str(expected.dtype).removeprefix("torch."))
    node = OpNode("y", f"aten.{name}.Tensor", [meta], [made], {"other": number}, {"self": 0})
    (got,) = compile_graph(IR([node], [meta], [made], [])).eval((x,))
    assert got.dtype == expected.dtype
    same = (got == expected) | ((got != got) & (expected != expected))
    assert same.all()
    if expected.is_floating_point():
        assert torch.equal(got.signbit(), expected.signbit())


@pytest.mark.parametrize(("place", "stands"), [("run", True), ("cpu", True), ("cuda:0", False)])
def test_a_tensor_stands_for_a_number_on_the_cpu_alone(place, stands):
    graph = compile_graph(
        parse(f"""ir {{
  input %x: f32[4]
  %a: f32[4] = aten._to_copy.default(%x, device=device("{place}"))
  %y: f32[4] = aten.div.Tensor(%a, 2.302585092994046)
  return %y
}}""")
    )
    assert ("torch.tensor(" in graph.source) is stands


def pointwise():
    """Every unary pointwise operator that has an in-place twin."""
    for name in sorted(dir(torch.ops.aten)):
        operator = getattr(getattr(torch.ops.aten, name), "default", None)
        if operator is None or torch.Tag.pointwise not in operator.tags:
            continue
        required = [a for a in operator._schema.arguments if not a.has_default_value()]
        if len(required) == 1 and twin_of(operator) is not None:
            yield operator


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_a_result_in_the_place_of_its_argument_has_the_same_bits(dtype):
    x = torch.tensor(SPECIAL * 33, dtype=torch.float64)
    x = x.nan_to_num(1.0, 100.0, -100.0).to(dtype)
    compared = 0
    for operator in pointwise():
        try:
            expected = operator(x)
        except (RuntimeError, NotImplementedError):
            continue  # torch has no kernel for this type
        if expected.dtype != dtype:
            continue
        got = twin_of(operator)(x.clone())
        assert torch.equal(got.nan_to_num(7.0), expected.nan_to_num(7.0)), operator
        compared += 1
    assert compared > (10 if dtype == torch.int64 else 30)


# -- memory ---------------------------------------------------------------------------------------


class Biggest(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts the bytes of the storages that are alive at once."""

    def __init__(self):
        super().__init__()
        self.alive = {}
        self.most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            storage = tensor.untyped_storage()
            self.alive[storage._cdata] = torch.multiprocessing.reductions.StorageWeakRef(storage)
        living = [ref for ref in self.alive.values() if not ref.expired()]
        self.most = max(self.most, len(living))
        return made


def test_a_chain_holds_two_activations_at_once():
    relus = chain(50)
    flips = [
        node.replace(op_type="aten.flip.default", attrs={"dims": (0,)}) for node in relus.nodes
    ]
    graph = compile_graph(relus.replace(nodes=flips))  # nothing flips in place
    x = torch.ones(4)
    with Biggest() as biggest:
        graph.eval((x,))
    assert biggest.most == 2


def test_a_weight_that_is_not_strided():
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("matrix", torch.eye(3).to_sparse_csr())

        def forward(self, x):
            return self.matrix @ x + 1

    x = torch.ones(3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says once in a process that these are new
        model = Sparse().eval()
    graph = compile_graph(torch_ir.extract_ir(model, (x,)), model.state_dict())
    assert torch.equal(graph.eval((x,))[0], model(x))


@pytest.mark.parametrize(
    ("traced", "expected"), [("to_dense", "a dense tensor"), ("to_sparse", "a sparse_coo tensor")]
)
def test_a_sparse_weight_where_another_was_traced(traced, expected):
    class Holds(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("matrix", getattr(torch.eye(3), traced)())

        def forward(self, x):
            return self.matrix @ x

    x = torch.ones(3, 2)
    ir = torch_ir.extract_ir(Holds().eval(), (x,))
    ir = serde.loads(serde.dumps(ir))
    assert torch.equal(compile_graph(ir, {"matrix": Holds().matrix}).eval((x,))[0], x)
    with pytest.raises(CompileError) as caught:
        compile_graph(ir, {"matrix": torch.eye(3).to_sparse_csr()})
    (finding,) = caught.value.findings
    assert finding.message == (
        "'matrix' is not what the program was extracted with. Make it dense with to_dense(), or "
        "extract the model as it is now."
    )
    assert (finding.expected, finding.found) == (expected, "a sparse_csr one")


def test_a_layout_that_only_the_real_kernel_gives():
    class Attends(nn.Module):
        def forward(self, x):
            heads = x.view(2, 5, 4, 8).transpose(1, 2)
            seen = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
            return seen.transpose(1, 2).view(2, 5, 32)  # of a result in row-major order: refused

    x = torch.randn(2, 5, 32)
    graph = compile_graph(torch_ir.extract_ir(Attends().eval(), (x,)))
    assert torch.equal(graph.eval((x,))[0], Attends()(x))


# -- errors ---------------------------------------------------------------------------------------


def test_a_kernel_that_fails_shows_the_node_and_the_generated_line():
    @register_executor("aten.relu.default")
    def fails(inputs, attrs):
        raise RuntimeError("out of order")

    try:
        graph = compile_graph(chain(3))
        with pytest.raises(ExecutionError) as caught:
            graph.eval((torch.ones(4),))
    finally:
        unregister_executor("aten.relu.default")
    assert str(caught.value) == (
        "node 'r0': aten.relu.default failed: out of order\n"
        "    %r0: f32[4] = aten.relu.default(%x)"
    )
    shown = "".join(traceback.format_exception(caught.value))
    assert "(r0,) = results(kernels['r0']([x]), (0,))" in shown
    assert 'File "torch-ir: Chain ' in shown


def test_a_kernel_registered_later_is_used_by_the_next_compilation():
    ir = chain(1)
    assert compile_graph(ir).eval((torch.ones(4),))[0].tolist() == [1.0] * 4
    register_executor("aten.relu.default")(lambda inputs, attrs: [inputs[0] * 5])
    try:
        assert compile_graph(ir).eval((torch.ones(4),))[0].tolist() == [5.0] * 4
    finally:
        unregister_executor("aten.relu.default")
    assert isinstance(compile_graph(ir), ExecGraph)
    assert compile_graph(ir).eval((torch.ones(4),))[0].tolist() == [1.0] * 4


def test_autocast_outside_does_not_change_what_the_graph_says():
    model, x, graph = net()
    with torch.no_grad():
        expected = model(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert all(map(torch.equal, graph.eval((x,)), expected))


def test_results_are_plain_tensors_that_gradients_may_use():
    _, x, graph = net()
    made = graph.eval((x,))[0]
    assert not made.is_inference()
    weight = torch.ones(4, requires_grad=True)
    (made * weight).sum().backward()
    assert torch.equal(weight.grad, made.sum(0))


def test_an_operator_whose_one_kernel_is_autograds_runs():
    op_type = "quantized_decomposed.fake_quant_per_channel.default"
    ir = parse(f"""ir {{
      input %x: f32[2, 3]
      input %scales: f32[2]
      input %zeros: i32[2]
      %y: f32[2, 3] = {op_type}(%x, %scales, %zeros, axis=0, quant_min=-8, quant_max=7)
      return %y
    }}""")
    x, scales = torch.linspace(-2, 2, 6).reshape(2, 3), torch.tensor([0.5, 0.25])
    zeros = torch.tensor([0, 1], dtype=torch.int32)
    expected = torch.fake_quantize_per_channel_affine(x, scales, zeros, 0, -8, 7)
    assert torch.equal(compile_graph(ir).eval((x, scales, zeros))[0], expected)
