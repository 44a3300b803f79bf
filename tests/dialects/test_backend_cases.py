"""Bound operators, state and bytes after lowering, by the conformance list: B7, B11, B12, B15."""

import gc

import pytest
import torch
from torch import nn
from torch.export import export

import torch_ir
from torch_ir import IR, IRExecutor, OpNode, TensorMeta, to_edge
from torch_ir.dialects import dialect, verify
from torch_ir.errors import DialectError, PassError, SerializationError
from torch_ir.passes.patterns import RewritePatterns, bind_pattern_to_op, fusion

LIBRARY = torch.library.Library("casestest", "FRAGMENT")


@bind_pattern_to_op(LIBRARY, "linrelu(Tensor x, Tensor w) -> Tensor")
def linrelu(x, w):
    return torch.relu(torch.mm(x, w))


@bind_pattern_to_op(LIBRARY, "both(Tensor x, Tensor y) -> (Tensor, Tensor)")
def both(x, y):
    return x + y, x - y


LINRELU = "casestest.linrelu.default"
FUSE = RewritePatterns((fusion(LINRELU, (torch.randn(2, 3), torch.randn(3, 4))),))


class Layers(nn.Module):
    def forward(self, x, w):
        for _ in range(2):
            x = torch.relu(torch.mm(x, w))
        return x


ARGS = torch.randn(4, 4), torch.randn(4, 4)


def op_types(ir):
    return [node.op_type for node in ir.nodes]


@pytest.mark.parametrize("passes", [[FUSE], {"forward": [FUSE]}], ids=["all", "by-name"])
def test_b7_a_pass_that_lowering_is_given_does_what_transform_does(passes):
    exported = export(Layers(), ARGS)
    program = to_edge(exported, passes=passes)
    assert op_types(program.ir()) == [LINRELU] * 2
    assert program == to_edge(exported).transform([FUSE])
    assert torch.equal(IRExecutor(program.ir(), {})(*ARGS), Layers()(*ARGS))
    back = program.exported_program().run_decompositions()
    calls = [str(node.target) for node in back.graph.nodes if node.op == "call_function"]
    assert calls == ["aten.mm.default", "aten.relu.default"] * 2


def test_b7_a_pass_that_lowering_is_given_is_named_if_it_does_wrong():
    def no_results(ir):
        return ir.replace(graph_outputs=[])

    with pytest.raises(PassError) as caught:
        to_edge(export(Layers(), ARGS), passes=[no_results])
    assert caught.value.message == (
        "the pass no_results changed what method 'forward' gives: 1 output before, 0 after"
    )


def backend_program(first, second, operators=None):
    """A program of two operators, one after the other."""
    x, w = TensorMeta("x", (2, 2), "float32"), TensorMeta("w", (2, 2), "float32")
    y = TensorMeta("y", (2, 2), "float32", "y")
    z = [TensorMeta(f"z.{i}", (2, 2), "float32", "z", i) for i in (0, 1)]
    nodes = [
        OpNode("y", first, [x, w], [y], {}, {"x": 0, "w": 1}),
        OpNode("z", second, [x, y], z, {}, {"x": 0, "y": 1}),
    ]
    return IR(nodes, [x, w], z, [], operators=operators or {}, dialect="backend")


SCHEMAS = (
    "{0}::linrelu(Tensor x, Tensor w) -> Tensor",
    "{0}::both(Tensor x, Tensor y) -> (Tensor, Tensor)",
)


def operators_of(library):
    names = (f"{library}.linrelu.default", f"{library}.both.default")
    return dict(zip(names, [schema.format(library) for schema in SCHEMAS], strict=True))


def test_b11_a_bound_operator_without_a_kernel_runs_by_its_pattern_however_it_is_run():
    ir = backend_program(LINRELU, "casestest.both.default", operators_of("casestest"))
    assert verify(ir) == ()
    x, w = torch.randn(2, 2), torch.randn(2, 2)
    expected = both(x, linrelu(x, w))
    core = torch_ir.decompose(ir)
    assert op_types(core) == [
        *("aten.mm.default", "aten.relu.default", "aten.add.Tensor", "aten.sub.Tensor")
    ]
    runs = (
        IRExecutor(ir, {}),
        torch_ir.compile(ir, {}),
        torch_ir.compile(core, {}, backend="reference"),
        torch_ir.to_exported_program(ir).module(),
        torch_ir.to_exported_program(ir).run_decompositions().module(),
    )
    for run in runs:
        for got, wanted in zip(run(x, w), expected, strict=True):
            torch.testing.assert_close(torch.as_tensor(got), wanted, rtol=1e-6, atol=1e-6)


def test_b11_operators_that_nothing_can_run_are_listed_in_one_error_with_the_remedy():
    ir = backend_program(
        "nobodys.linrelu.default", "nobodys.both.default", operators_of("nobodys")
    )
    with pytest.raises(DialectError) as caught:
        dialect("backend").require(ir, method="forward")
    remedy = (
        "Import the library that registers the operators of 'nobodys' before running: --import "
        "MODULE on the command line, or an entry point 'nobodys' of the group torch_ir.operators "
        "in its package."
    )
    assert [(v.node, v.remedy) for v in caught.value.violations] == [("y", remedy), ("z", remedy)]


# -- state ----------------------------------------------------------------------------------------


class Count(nn.Module):
    """Counts from ten."""

    def __init__(self):
        super().__init__()
        self.register_buffer("c", torch.full((1,), 10.0))

    def forward(self, x):
        self.c.add_(1)
        return x + self.c


class DelayLine(nn.Module):
    """Gives what it took two calls ago."""

    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.zeros(1))
        self.register_buffer("b", torch.zeros(1))

    def forward(self, x):
        out = self.a.clone()
        self.a.copy_(self.b)
        self.b.copy_(x)
        return out


class Swap(nn.Module):
    """Exchanges two buffers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.ones(1))
        self.register_buffer("b", torch.full((1,), 2.0))

    def forward(self, x):
        kept = self.a.clone()
        self.a.copy_(self.b)
        self.b.copy_(kept)
        return x + self.a


class Cache(nn.Module):
    """A cache with a counter of positions, as attention keeps it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(6, 1))
        self.register_buffer("position", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        self.cache.index_copy_(0, self.position, x[None])
        self.position.add_(1)
        return self.cache.sum(0) * self.position, self.cache.clone()


STATEFUL = [
    (Count, [0.0, 0.0, 0.0], [11.0, 12.0, 13.0]),
    (DelayLine, [5.0, 7.0, 9.0, 11.0], [0.0, 0.0, 5.0, 7.0]),
    (Swap, [0.0, 0.0, 0.0, 0.0], [2.0, 1.0, 2.0, 1.0]),
    (Cache, [1.0, 2.0, 3.0, 4.0], [1.0, 6.0, 18.0, 40.0]),
]


def first_of(result):
    return (result[0] if isinstance(result, tuple) else result).clone()


@pytest.mark.parametrize(("make", "given", "wanted"), STATEFUL)
def test_b12_state_is_kept_from_call_to_call_as_the_exported_module_keeps_it(make, given, wanted):
    exported = export(make(), (torch.zeros(1),))
    program = to_edge(exported)
    state = {key: value.clone() for key, value in exported.state_dict.items()}
    copies = {key: value.clone() for key, value in state.items()}
    executor = IRExecutor(program.ir(), state)
    runs = (make(), export(make(), (torch.zeros(1),)).module(), executor)
    runs = (*runs, program.exported_program(weights=copies).module())
    for number, result in zip(given, wanted, strict=True):
        results = [run(torch.full((1,), number)) for run in runs]
        assert [first_of(r).item() for r in results] == [result] * len(runs)
        assert all(torch.equal(first_of(r), first_of(results[0])) for r in results)
    kept = runs[0].state_dict()
    for key, value in executor.buffers.items():
        assert torch.equal(value, kept[key])
    assert all(torch.equal(state[key], make().state_dict()[key]) for key in state)


# -- bytes ----------------------------------------------------------------------------------------


class Table(nn.Module):
    """A model with a constant that is no weight."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.table = torch.arange(2.0)

    def forward(self, x):
        return (self.linear(x) + 1).half() * 0.1 + self.table


def test_b15_lowering_twice_gives_the_same_bytes_and_leaves_what_it_is_given(tmp_path):
    model = Table().eval().requires_grad_(False)
    x = torch.randn(4, 3)
    exported = export(model, (x,))
    ir = torch_ir.extract_ir(exported)
    before, text = torch_ir.serialize_ir(ir), str(exported)
    first, second = to_edge(ir), to_edge(ir)
    assert first == second == to_edge(exported)
    assert torch_ir.serialize_ir(first.ir()) == torch_ir.serialize_ir(second.ir())
    for name, program in (("a.tir", first), ("b.tir", second)):
        program.ir().save(tmp_path / name)
    assert (tmp_path / "a.tir").read_bytes() == (tmp_path / "b.tir").read_bytes()
    assert torch_ir.serialize_ir(ir) == before
    assert str(exported) == text
    assert verify(torch_ir.functionalize(ir)) == ()
    assert torch.equal(IRExecutor(ir, model.state_dict())(x), model(x))
    assert torch.equal(exported.module()(x), model(x))
    bytes_once = torch_ir.serialize_ir(first.ir())
    first.transform([FUSE, lambda program: program.replace(model_name="other")])
    assert torch_ir.serialize_ir(first.ir()) == bytes_once
    assert verify(first.ir()) == ()


def test_b15_the_bytes_of_a_program_live_as_long_as_it_and_a_failed_save_raises(tmp_path):
    model = Table().eval().requires_grad_(False)
    x = torch.randn(4, 3)
    path = tmp_path / "program.tir"
    to_edge(export(model, (x,))).ir().save(path)
    loaded = torch_ir.load_ir(path)
    path.unlink()
    gc.collect()
    expected = IRExecutor(to_edge(export(model, (x,))).ir(), model.state_dict())(x)
    assert torch.equal(IRExecutor(loaded, model.state_dict())(x), expected)
    with pytest.raises(SerializationError):
        loaded.save(tmp_path / "nowhere" / "program.tir")
    assert list(tmp_path.iterdir()) == []
