"""Results whose sizes data decides: what is recorded of them is derived, and sizes are checked."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim

import torch_ir
from older_torch import since_2_13
from torch_ir import compile_graph, parse
from torch_ir.dialects import verify
from torch_ir.errors import CompileError, ExecutionError
from torch_ir.ir import SymbolRange, SymExpr, TensorMeta

X = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [1.0, 0.0, 2.0], [4.0, 0.0, 2.0]])
COUNTS = torch.tensor([1, 0, 2, 1])


def select(x):
    return x[x > 0]


def select_rows(x):
    return x[x.sum(1) > 2]


def select_columns(x):
    return x[:, x[0] > 0]


CALLS = {
    "nonzero": (torch.nonzero, (X,)),
    "nonzero of a vector": (torch.nonzero, (X[0],)),
    "nonzero_numpy": (lambda x: x.nonzero(as_tuple=True), (X,)),
    "argwhere": (torch.argwhere, (X,)),
    "where": (torch.where, (X > 0,)),
    "masked_select": (lambda x: x.masked_select(x > 1), (X,)),
    "index": (select, (X,)),
    "index of rows": (select_rows, (X,)),
    "index of columns": (select_columns, (X,)),
    "_unique2": (lambda x: torch._unique2(x, True, True, True), (X,)),
    "_unique2, counts": (lambda x: torch.unique(x, return_counts=True), (X,)),
    "unique_dim": (lambda x: torch.unique(x, dim=0, return_inverse=True), (X,)),
    "unique_consecutive": (
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
        (X,),
    ),
    "unique_consecutive, dim": (lambda x: torch.unique_consecutive(x, dim=1), (X,)),
    "repeat_interleave": (torch.repeat_interleave, (COUNTS,)),
    "repeat_interleave, self": (
        lambda x, counts: torch.repeat_interleave(x, counts, dim=0),
        (X, COUNTS),
    ),
    "bincount": (torch.bincount, (COUNTS,)),
    "bincount, weights": (lambda x, w: torch.bincount(x, w, 6), (COUNTS, X[:, 0])),
}


class Calls(nn.Module):
    """A function as a model."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def program(name, *, varies=False):
    """The program of a function, and the node that has a result whose size data decides."""
    function, inputs = CALLS[name]
    shapes = None
    if varies:
        first = Dim("first", min=2, max=64)
        shapes = (tuple({0: first} for _ in inputs),)
    ir = torch_ir.extract_ir(Calls(function).eval(), inputs, dynamic_shapes=shapes)
    given = ir.given_symbols
    (node,) = [
        node
        for node in ir.nodes
        if any(set(meta.shape) - {*map(SymExpr, given)} - {*range(9)} for meta in node.outputs)
    ]
    return ir, node


def recording(ir, node, index, meta):
    """The program with another record of one result."""
    outputs = [*node.outputs]
    outputs[index] = meta
    nodes = [*ir.nodes]
    nodes[ir.nodes.index(node)] = node.replace(outputs=outputs)
    results = [meta if other.name == meta.name else other for other in ir.graph_outputs]
    symbols = {**ir.symbols, "s9": SymbolRange(2, 8), "u9": SymbolRange(0, None)}
    changed = ir.replace(nodes=nodes, graph_outputs=results, symbols=symbols, signature=None)
    extra = TensorMeta("extra", ("s9",), "float32")
    return changed.replace(graph_inputs=[*ir.graph_inputs, extra])


def wrong_records(meta, found):
    """Other records of a result; ``found`` is the symbol of the sizes that data decides."""
    for dtype in ("float32", "float64", "int32", "int64", "bool"):
        if dtype != meta.dtype:
            yield meta.replace(dtype=dtype)
    yield meta.replace(shape=(*meta.shape, 1))
    yield meta.replace(shape=(1, *meta.shape))
    yield meta.replace(shape=meta.shape[:-1])
    for axis, dim in enumerate(meta.shape):
        others = [0, 1, 5, "u9 + 1", f"2*{found}", f"{found} + s9", "s9", "2*s9"]
        if dim != SymExpr(found):
            others += [found, "u9"]
        for other in others:
            if other != dim:
                yield meta.replace(shape=(*meta.shape[:axis], other, *meta.shape[axis + 1 :]))


@pytest.mark.parametrize("varies", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_what_is_recorded_of_a_result_whose_size_data_decides_is_derived(name, varies):
    ir, node = program(name, varies=varies)
    for made, expected in zip(
        compile_graph(ir).eval(CALLS[name][1]), _flat(CALLS[name]), strict=True
    ):
        assert torch.equal(made, expected)
    (found,) = {
        name
        for meta in node.outputs
        for dim in meta.shape
        if isinstance(dim, SymExpr)
        for name in dim.symbols
        if name.startswith("u")
    }
    tried = 0
    for index, meta in enumerate(node.outputs):
        for record in wrong_records(meta, found):
            changed = recording(ir, node, index, record)
            assert {f.code for f in changed.check()} <= {"wrong-metadata", "unbound-symbol"}
            with pytest.raises(CompileError):
                compile_graph(changed)
            tried += 1
    assert tried > 10
    compile_graph(recording(ir, node, 0, node.outputs[0]))


def _flat(call):
    function, inputs = call
    made = function(*inputs)
    return made if isinstance(made, tuple) else (made,)


TWICE = """ir "twice" {
  symbol u0: 0..
  input %x: f32[4]
  input %y: f32[4]
  %a: i64[u0, 1] = aten.nonzero.default(%x)
  %b: i64[u0, 1] = aten.nonzero.default(%y)
  return %a, %b
}"""


def test_a_symbol_is_the_size_of_one_result_only():
    with pytest.raises(CompileError) as caught:
        compile_graph(parse(TWICE))
    assert str(caught.value).startswith(
        "node 'b': data decides dimension 0 of %b (expected a new symbol, got u0)"
    )


def every_call(x, counts):
    """Every call on the same data, in turn: torch gives equal counts one symbol."""
    mask = x > 0
    rows = mask.any(1)
    counted = [
        torch.argwhere(mask),
        *torch.where(mask),
        mask.nonzero(),
        x[mask],
        x.flip(0)[mask.to(torch.bool).contiguous()],
        x[rows.bool()],
        x.masked_select(mask),
        x[rows],
        x[rows] + x.neg()[rows],
        x.t()[:, rows],
        rows.nonzero(),
        torch.unique(x),
        *torch._unique2(x, True, True, True),
        torch.unique(x, dim=0),
        torch.unique_consecutive(x),
        torch.unique_consecutive(x, dim=1),
        torch.repeat_interleave(counts),
        torch.bincount(counts),
    ]
    mask = mask.clone()
    before = x[mask]
    mask.logical_not_()
    return (*counted, before, x[mask])


def test_what_is_counted_twice_in_the_same_data_is_one_size():
    def twice(x, counts):
        return (*every_call(x, counts), *every_call(x, counts))

    ir = torch_ir.extract_ir(Calls(twice).eval(), (X, COUNTS))
    graph = compile_graph(ir)
    for scale in (1, -1, 0):
        expected = twice(X * scale, COUNTS)
        for made, right in zip(graph.eval((X * scale, COUNTS)), expected, strict=True):
            assert torch.equal(made, right)


def test_what_is_counted_in_data_that_changed_is_another_size():
    write = "  %w: f32[4] = aten.neg_.default(%x)\n  %b"
    same = TWICE.replace("(%y)", "(%x)")
    changed = same.replace("  %b", write, 1).replace("  return", "  mutate %x = %x\n  return")
    compile_graph(parse(same))
    with pytest.raises(CompileError, match="data decides dimension 0 of %b"):
        compile_graph(parse(changed.replace("  mutate %x = %x\n", "")))


def test_a_mask_beside_another_index_counts_nothing():
    """One true place is broadcast to the other index: the result has another size than that."""
    program = """ir "beside" {
      symbol u0: 0..
      input %x: f32[4, 4]
      input %m: b8[4]
      input %n: b8[4]
      input %i: i64[3]
      %a: f32[u0] = aten.index.Tensor(%x, [%m, INDEX])
      %b: f32[u0, 4] = aten.index.Tensor(%x, [%m])
      return %a, %b
    }"""
    compile_graph(parse(program.replace("INDEX", "%m")))
    for index in ("%n", "%i"):
        with pytest.raises(CompileError):
            compile_graph(parse(program.replace("INDEX", index)))


def equal_sizes(x, y):
    """Two sizes that data decides, and one that it must be."""
    found = x.nonzero()
    torch._check(found.shape[0] == y.shape[0])
    return found.sum(1) + y


@pytest.mark.parametrize("dims", [None, ({0: Dim.AUTO}, {0: Dim.AUTO})])
def test_a_size_that_the_program_asserts_is_accepted(dims):
    x, y = X[:2], torch.ones(3)
    shapes = None if dims is None else (dims,)
    ir = torch_ir.extract_ir(Calls(equal_sizes).eval(), (x, y), dynamic_shapes=shapes)
    graph = compile_graph(ir)
    assert torch.equal(graph.eval((x, y))[0], equal_sizes(x, y))
    with pytest.raises(ExecutionError):
        graph.eval((x + 1, y))
    bare = [node for node in ir.nodes if not node.name.startswith("nonzero_")]
    bare = [node for node in bare if node.op_type != "aten._assert_scalar.default"]
    with pytest.raises(CompileError):
        compile_graph(ir.replace(nodes=bare))


NARROW = """ir "narrow" {
  symbol u0: 1..2
  input %x: f32[4]
  %n: i64[u0, 1] = aten.nonzero.default(%x)
  %m: i64[u0, 1] = aten.neg.default(%n)
  return %m
}"""


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=4))
def test_a_size_outside_its_range_is_refused_where_it_is_found(values):
    graph = compile_graph(parse(NARROW))
    x, count = torch.tensor(values), int(sum(values))
    if count in (1, 2):
        assert torch.equal(graph.eval((x,))[0], -x.nonzero())
        return
    with pytest.raises(ExecutionError) as caught:
        graph.eval((x,))
    assert caught.value.node == "n"
    assert str(caught.value).startswith(
        f"node 'n': the value of u0, dimension 0 of %n, is {count}, which is outside its range "
    )


FOLLOWING = """ir "following" {{
  symbol u0: 0..
  symbol u1: 0..
  input %x: f32[4]
  input %y: f32[4]
  %n: i64[u0, 1] = aten.nonzero.default(%x)
  %m: i64[u1, 1] = aten.nonzero.default(%y)
  %c: i64[{joined}, 1] = aten.cat.default([%n, %m, %n])
  return %c
}}"""


@pytest.mark.parametrize("joined", ["2*u0 + u1", "u0 + u1", "2*u0", "u0", "u1"])
def test_a_size_that_follows_from_found_ones_is_derived(joined):
    ir = parse(FOLLOWING.format(joined=joined))
    if joined == "2*u0 + u1":
        x, y = torch.tensor([1.0, 0, 1, 0]), torch.ones(4)
        assert compile_graph(ir).eval((x, y))[0].tolist() == [
            [0],
            [2],
            [0],
            [1],
            [2],
            [3],
            [0],
            [2],
        ]
        return
    with pytest.raises(CompileError, match=r"is not what aten\.cat\.default gives"):
        compile_graph(ir)


class At(nn.Module):
    def forward(self, x, i):
        return (x * 2)[i] + 1, x.select(0, i) * 2


@since_2_13("exports no index of a 0-dimensional tensor")
def test_an_index_that_data_gives_is_not_tried_before():
    x = torch.randn(4, 2)
    run = torch_ir.compile(torch_ir.extract_ir(At(), (x, torch.tensor(1))), {})
    for index in map(torch.tensor, (0, 2, 1)):
        for got, expected in zip(run(x, index), At()(x, index), strict=True):
            assert torch.equal(got, expected)
    with pytest.raises(ExecutionError, match="out of range"):
        run(x, torch.tensor(4))


def test_a_number_that_a_loop_carries_is_not_tried_before():
    class Walk(nn.Module):
        def forward(self, x):
            def step(i, total):
                return i + 1, total + x[i].sin()

            return while_loop(lambda i, total: i < x.shape[0], step, (0, torch.zeros(3)))

    ir = torch_ir.extract_ir(Walk(), (torch.ones(4, 3),), dynamic_shapes=({0: Dim.DYNAMIC},))
    for program in (ir, torch_ir.decompose(ir), torch_ir.to_edge(ir).ir()):
        assert not [*verify(program), *torch_ir.check_types(program)]
        for rows in (2, 5):
            x = torch.randn(rows, 3)
            count, total = torch_ir.IRExecutor(program)(x)
            assert count == rows
            assert torch.equal(total, Walk()(x)[1])
