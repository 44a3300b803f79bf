"""The builder of changed graphs, over generated programs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import constants, well_formed_irs
from torch_ir import parse
from torch_ir.ir import IR, Constant, Mutation, OpNode, TensorMeta
from torch_ir.ir.builder import (
    Builder,
    map_values,
    subgraph,
    with_state_as_arguments,
    with_weights_as_inputs,
)


def kept(ir, builder=None):
    builder = builder or Builder(ir)
    for node in ir.nodes:
        builder.keep(node)
    return builder


@given(well_formed_irs())
def test_a_graph_of_which_everything_is_kept_is_the_same_object(ir):
    builder = kept(ir)
    builder.map_functions(lambda body: kept(body).finish())
    assert builder.finish() is ir


@given(well_formed_irs())
def test_a_value_in_the_place_of_another_leaves_a_well_formed_graph(ir):
    builder = Builder(ir)
    replaced = {}
    for node in ir.nodes:
        builder.keep(node)
        for meta in node.outputs:
            types = [(meta.shape, meta.dtype)]
            arguments = {"self": builder.value(meta)}
            (copy,) = builder.emit("aten.clone.default", arguments, like=node, results=types)
            builder.replace(meta, copy)
            replaced[meta.name] = copy
    result = builder.finish()
    assert result.check() == ()
    assert result.output_names == tuple(
        replaced[name].name if name in replaced else name for name in ir.output_names
    )
    assert all(mutation.value == builder.value(mutation.value) for mutation in result.mutations)
    for name, copy in replaced.items():
        takers = [node.op_type for node in result.users.get(name, ())]
        assert takers == ["aten.clone.default"], copy


@given(well_formed_irs(), st.data())
def test_a_graph_without_a_node_that_nothing_needs_is_well_formed(ir, data):
    returned = {*ir.output_names, *(mutation.value.name for mutation in ir.mutations)}
    free = [
        node
        for node in ir.nodes
        if not node.binds
        and not node.symbols
        and not any(meta.name in returned or meta.name in ir.users for meta in node.outputs)
    ]
    if not free:
        return
    gone = data.draw(st.sampled_from(free))
    builder = Builder(ir)
    for node in ir.nodes:
        if node is not gone:
            builder.keep(node)
    result = builder.finish()
    assert result.check() == ()
    assert len(result.nodes) == len(ir.nodes) - 1
    assert gone.name not in result.by_name


@given(st.lists(constants(), min_size=1, max_size=4))
def test_equal_constants_are_stored_once(values):
    ir = parse("ir {\n  input %x: f32[2]\n  return %x\n}")
    builder = kept(ir)
    names = [builder.constant(value, "number").name for value in (*values, *values)]
    assert names[: len(values)] == names[len(values) :]
    for name, value in zip(names, values, strict=False):
        assert builder.finish().constants[name] == value
    assert len(builder.finish().constants) == len(set(names))


def test_constants_of_their_own_are_stored_apart():
    ir = parse("ir {\n  input %x: f32[2]\n  return %x\n}")
    builder, value = kept(ir), Constant.from_list([1.0], "float32")
    names = [builder.constant(value, "x", shared=False).name for _ in range(2)]
    assert names == ["x_1", "x_2"]


@given(well_formed_irs())
def test_the_nodes_of_a_graph_alone_are_well_formed(ir):
    for node in ir.nodes:
        alone = subgraph(ir, [node], node.outputs)
        given_names = dict.fromkeys(meta.name for meta in node.inputs)
        assert alone.input_names == tuple(given_names)
        assert [finding for finding in alone.check() if finding.code != "unbound-symbol"] == []


@given(well_formed_irs())
def test_the_results_of_part_of_a_graph_are_those_used_elsewhere(ir):
    half = ir.nodes[: len(ir.nodes) // 2]
    made = {meta.name for node in half for meta in node.outputs}
    used = {meta.name for node in ir.nodes[len(half) :] for meta in node.inputs}
    used |= {*ir.output_names, *(mutation.value.name for mutation in ir.mutations)}
    assert set(subgraph(ir, half).output_names) == made & used


@given(well_formed_irs())
def test_values_that_are_described_as_before_leave_an_equal_graph(ir):
    assert map_values(ir, lambda meta: meta) == ir


class TestWhatIsUnused:
    TEXT = """ir {
      constant @one: f32[2] = [1.0, 1.0]
      constant @two: f32[2] = [2.0, 2.0]
      input %x: f32[2]
      %a: f32[2] = aten.add.Tensor(%x, @one)
      %b: f32[2] = aten.mul.Tensor(%x, %x)
      return %b
    }"""

    def test_constants_that_were_used_and_are_no_more_go(self):
        ir = parse(self.TEXT)
        builder = Builder(ir)
        builder.keep(ir.node("b"))
        assert list(builder.finish().constants) == ["two"]

    def test_a_base_stays_as_long_as_a_view_of_it_is_used(self):
        base = Constant.from_list([1.0, 2.0, 3.0, 4.0], "float32")
        view = base.view_of("base", (2,), strides=(1,))
        whole, part = TensorMeta("base", (4,), "float32"), TensorMeta("part", (2,), "float32")
        y, z = TensorMeta("y", (4,), "float32", "y"), TensorMeta("z", (2,), "float32", "z")
        nodes = [
            OpNode("y", "aten.relu.default", [whole], [y]),
            OpNode("z", "aten.relu.default", [part], [z]),
        ]
        ir = IR(nodes, [], [z], [], constants={"base": base, "part": view})
        builder = Builder(ir)
        builder.keep(ir.node("z"))
        assert builder.finish().constants.keys() == {"base", "part"}
        builder = Builder(ir)
        builder.returns([], None)
        assert builder.finish().constants.keys() == set()

    @pytest.mark.parametrize("name", ["body", "other"])
    def test_functions_that_nothing_calls_any_more_go(self, name):
        x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        body = IR([OpNode("y", "aten.relu.default", [x], [y])], [x], [y], [])
        ir = IR([], [x], [x], [], functions={"body": body})
        builder = Builder(ir)
        added = builder.add_function(body, name)
        assert added == ("body_1" if name == "body" else "other")
        assert builder.finish().functions.keys() == {"body"}

    def test_schemas_of_operators_go_with_their_last_call(self):
        schema = "mylib::twice(Tensor x) -> Tensor"
        x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        call = OpNode("y", "mylib.twice.default", [x], [y], {}, {"x": 0})
        ir = IR([call], [x], [y], [], operators={"mylib.twice.default": schema})
        builder = Builder(ir)
        builder.emit("aten.neg.default", {"self": x}, like=call)
        result = builder.finish()
        assert result.operators == {}
        assert str(result.nodes[0]) == "%y: f32[2] = aten.neg.default(%x)"


def test_a_write_gives_what_stands_for_its_value():
    x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
    ir = IR(
        [OpNode("y", "aten.relu.default", [x], [y])], [x], [], [], mutations=[Mutation("x", y)]
    )
    builder = kept(ir)
    (z,) = builder.emit("aten.neg.default", {"self": y}, results=[((2,), "float32")], name="z")
    builder.replace(y, z)
    assert builder.finish().mutations == (Mutation("x", z),)


def test_a_call_may_have_several_results_and_lists_of_tensors():
    x = TensorMeta("x", (4,), "float32")
    builder = Builder(IR([], [x], [x], []))
    types = [((2,), "float32"), ((2,), "float32")]
    arguments = {"self": x, "split_size": 2}
    parts = builder.emit("aten.split.Tensor", arguments, results=types)
    (both,) = builder.emit("aten.cat.default", {"tensors": parts}, results=types[:1])
    assert [str(node) for node in builder.nodes] == [
        "%split.0: f32[2], %split.1: f32[2] = aten.split.Tensor(%x, split_size=2)",
        "%cat: f32[2] = aten.cat.default([%split.0, %split.1])",
    ]
    assert both.name == "cat"


@given(well_formed_irs())
def test_weights_as_arguments_and_state_as_results_leave_a_well_formed_graph(ir):
    known = ir.external_values()
    used = {known[name][0] for name in [*ir.users, *ir.output_names] if name in known}
    given = with_weights_as_inputs(ir)
    assert given.check() == ()
    assert not given.weights
    assert len(given.graph_inputs) >= len(ir.graph_inputs) + len(used - ir.constants.keys())
    if ir.signature is not None:
        flat = ir.replace(signature=ir.signature.flat())
        plain = with_state_as_arguments(flat)
        assert plain.check() == ()
        assert len(plain.output_names) == len(ir.output_names) + len(ir.mutations)


def test_a_weight_named_as_a_node_is_an_argument_of_another_name():
    made = with_weights_as_inputs(
        parse("""ir {
          weight @add: f32[2] as %b_add
          mutate @add = %add: f32[2]
          input %x: f32[2]
          %add: f32[2] = aten.add.Tensor(%x, @add)
          return %add, @add
        }""")
    )
    assert made.check() == ()
    assert made.input_names == ("x", "add_1")
    assert made.output_names == ("add", "add_1")
    assert [(m.target, m.value.name) for m in made.mutations] == [("add_1", "add")]
