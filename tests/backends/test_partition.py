"""What a partitioner promises: convex subgraphs, the fewest there can be, and reasons."""

from itertools import chain as concatenate

import pytest
from hypothesis import given, settings

from backends.graphs import Named, chain, node, programs
from counting import growth
from torch_ir import PassError, check_types, parse, to_backend
from torch_ir.backends import Partitioner, Support
from torch_ir.errors import ExecutionError
from torch_ir.ir import IR, Location, TensorMeta

SETTINGS = settings(derandomize=True, max_examples=150, deadline=None)


def names(partition):
    return [[n.name for n in nodes] for nodes in partition.subgraphs]


def reachable(ir):
    """The names of all nodes after each node."""
    after = {n.name: set() for n in ir.nodes}
    for maker in reversed(ir.nodes):
        for user in ir.users.get(maker.name, ()):
            after[maker.name] |= {user.name} | after[user.name]
    return after


def changes(ir, taken):
    """The most subgraphs that lie one after the other on a path: no partition has fewer."""
    best = {}
    for made in ir.nodes:
        before = [ir.producers[m.name].name for m in made.inputs if m.name in ir.producers]
        longest = max([best[name] for name in before], default=0)
        if made.name in taken:
            own = [best[n] + (n not in taken) for n in before]
            longest = max([1, *own])
        best[made.name] = longest
    return max(best.values())


@SETTINGS
@given(programs())
def test_no_path_leaves_a_subgraph_and_comes_back(case):
    ir, taken = case
    partition = Partitioner(Named(taken))(ir)
    after = reachable(ir)
    for subgraph in names(partition):
        inside = set(subgraph)
        for outside in set(after) - inside:
            leaves = any(outside in after[name] for name in inside)
            returns = bool(after[outside] & inside)
            assert not (leaves and returns), (subgraph, outside)


@SETTINGS
@given(programs())
def test_every_supported_node_is_in_one_of_the_fewest_subgraphs(case):
    ir, taken = case
    partition = Partitioner(Named(taken))(ir)
    assert sorted(concatenate(*names(partition))) == sorted(taken)
    assert set(partition.reasons) == {n.name for n in ir.nodes} - taken
    assert len(partition.subgraphs) == (changes(ir, taken) if taken else 0)


@SETTINGS
@given(programs())
def test_the_order_runs_and_keeps_subgraphs_together(case):
    ir, taken = case
    partition = Partitioner(Named(taken))(ir)
    assert ir.replace(nodes=partition.order).check() == ()
    positions = {node.name: i for i, node in enumerate(partition.order)}
    for subgraph in names(partition):
        places = [positions[name] for name in subgraph]
        assert places == list(range(places[0], places[0] + len(places)))


def test_a_path_around_splits_a_subgraph():
    x = TensorMeta("x", (4,), "float32")
    a = node("a", "aten.relu.default", [x])
    b = node("b", "aten.neg.default", [a.outputs[0]])
    c = node("c", "aten.add.Tensor", [a.outputs[0], b.outputs[0]])
    ir = IR([a, b, c], [x], c.outputs, [])
    assert names(Partitioner(Named({"a", "c"}))(ir)) == [["a"], ["c"]]
    assert names(Partitioner(Named({"a", "b", "c"}))(ir)) == [["a", "b", "c"]]


def test_independent_branches_are_one_subgraph():
    x, y = (TensorMeta(name, (4,), "float32") for name in "xy")
    a, b = node("a", "aten.relu.default", [x]), node("b", "aten.relu.default", [y])
    ir = IR([a, b], [x, y], [*a.outputs, *b.outputs], [])
    assert names(Partitioner(Named({"a", "b"}))(ir)) == [["a", "b"]]


def test_what_weights_alone_decide_goes_to_its_use():
    text = """ir {
      input %x: f32[4]
      weight @k: f32[4]
      %a: f32[4] = aten.relu.default(%x)
      %early: f32[4] = aten.neg.default(@k)
      %b: f32[4] = aten.tanh.default(%a)
      %c: f32[4] = aten.mul.Tensor(%b, %early)
      return %c
    }"""
    assert names(Partitioner(Named({"a", "early", "c"}))(parse(text))) == [["a"], ["early", "c"]]


def test_small_subgraphs_can_be_left_to_torch():
    ir = chain("a", "b", "c", "d")
    partition = Partitioner(Named({"a", "b", "d"}), min_nodes=2)(ir)
    assert names(partition) == [["a", "b"]]
    assert partition.reasons == {
        "c": "it is not among the names",
        "d": "its subgraph has 1 node, fewer than 2",
    }
    assert repr(partition) == "Partition(backend='named', subgraphs=1, nodes=2/4)"


def test_what_never_leaves_torch():
    ir = parse("""ir {
      symbol u0: 0..4
      func &body {
        input %v: f32[4]
        %w: f32[4] = aten.relu.default(%v)
        return %w
      }
      input %x: f32[4]
      %draw: f32[4] = aten.rand_like.default(%x)
      %which: i64[u0, 1] = aten.nonzero.default(%draw)
      check: aten._assert_async.default(%x)
      %called: f32[4] = higher_order.invoke_subgraph(operands=[%x], identifier="b", subgraph=&body)
      %other: f32[4] = mylib.op.default() of [%x]
      return %which, %called, %other
    }""")
    partition = Partitioner(Named({node.name for node in ir.nodes}))(ir)
    assert partition.subgraphs == ()
    named = Partitioner(Named({"called.w"}))(ir)
    assert [node.location for nodes in named.subgraphs for node in nodes] == [None]
    assert partition.reasons == {
        "draw": "it draws random numbers",
        "which": "data decides the size of its result",
        "check": "it gives no tensor",
        "called.w": "it is not among the names",
        "other": "nobody recorded the schema of the operator",
    }


def test_dropout_that_is_turned_off_draws_nothing():
    ir = parse("""ir {
      input %x: f32[1, 2, 4, 4]
      %off: f32[1, 2, 4, 4] = aten.dropout.default(%x, p=0.5, train=False)
      %on: f32[1, 2, 4, 4] = aten.dropout.default(%off, p=0.5, train=True)
      %plain: f32[1, 2, 4, 4] = aten.scaled_dot_product_attention.default(%on, %on, %on)
      %drop: f32[1, 2, 4, 4] = aten.scaled_dot_product_attention.default(%plain, %on, %on, \
dropout_p=0.5)
      return %drop
    }""")
    partition = Partitioner(Named({"off", "on", "plain", "drop"}))(ir)
    assert names(partition) == [["off"], ["plain"]]
    assert set(partition.reasons.values()) == {"it draws random numbers"}


def test_random_numbers_are_drawn_in_the_order_of_the_program():
    ir = parse("""ir {
      input %x: f32[4]
      %a: f32[4] = aten.relu.default(%x)
      %b: f32[4] = aten.neg.default(%a)
      %late: f32[4] = aten.rand_like.default(%b)
      %early: f32[4] = aten.rand_like.default(%x)
      %c: f32[4] = aten.relu.default(%early)
      return %late, %c
    }""")
    order = [n.name for n in Partitioner(Named({"a", "c"}))(ir).order]
    assert order.index("late") < order.index("early")


def test_a_node_that_reads_a_size_comes_after_the_one_that_decides_it():
    ir = parse("""ir {
      symbol u0: 0..4
      input %x: f32[4]
      %a: f32[4] = aten.relu.default(%x)
      %which: i64[u0, 1] = aten.nonzero.default(%a)
      %fill: f32[u0] = aten.full.default(size=[`u0`], fill_value=1.0)
      %b: f32[u0] = aten.relu.default(%fill)
      return %b
    }""")
    partition = Partitioner(Named({"a", "b", "fill", "which"}))(ir)
    assert names(partition) == [["a"], ["fill", "b"]]
    assert partition.reasons == {"which": "data decides the size of its result"}
    assert [n.name for n in partition.order] == ["a", "which", "fill", "b"]


def test_a_program_that_writes_is_refused():
    ir = parse("""ir {
      input %x: f32[4]
      %a: f32[4] = aten.relu.default(%x)
      %b: f32[4] = aten.add_.Tensor(%a, %x)
      return %b
    }""")
    first, second = ir.nodes
    ir = ir.replace(nodes=[first, second.replace(location=Location("net.py", 7))])
    with pytest.raises(PassError) as error:
        Partitioner(Named({"a"}))(ir)
    assert str(error.value) == (
        "partitioning needs a functional program, and 1 node of this one writes to memory\n"
        "    b: aten.add_.Tensor at net.py:7\n"
        "Make it functional first: torch_ir.functionalize(ir), or torch-ir lower --to aten."
    )


def test_a_refusal_has_a_reason():
    with pytest.raises(ExecutionError, match=r"^a backend that refuses a node says why$"):
        Support(False)


def test_partitioning_is_linear():
    def partitioned(count: int):
        backend = Named({f"n{i}" for i in range(count) if i % 7})
        return Partitioner(backend)(chain(*[f"n{i}" for i in range(count)]))

    assert growth(partitioned, 1000) < 2.5
    assert len(partitioned(40_000).subgraphs) == 5_715


def test_each_part_keeps_the_types_of_a_program():
    ir = parse("""ir {
      symbol u0: 0..6
      input %x: f32[6]
      input %mask: b8[6]
      %found: f32[u0] = aten.index.Tensor(%x, [%mask])
      %twice: f32[u0] = aten.mul.Tensor(%found, 2)
      %again: f32[u0] = aten.index.Tensor(%x, [%mask])
      %both: f32[u0] = aten.add.Tensor(%again, %twice)
      return %both
    }""")
    partitioner = Partitioner(Named({node.name for node in ir.nodes}))
    reason = "data decides the size of its result"
    assert partitioner(ir).reasons == {"found": reason, "again": reason}
    assert not check_types(to_backend(ir, partitioner))
