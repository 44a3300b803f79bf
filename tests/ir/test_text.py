"""IR text: what is printed, and the law that it reads back as the same IR."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from counting import growth
from strategies import arbitrary_irs, constants, locations, well_formed_irs
from torch_ir.errors import InvalidIRError, ParseError
from torch_ir.ir import IR, Constant, Location, OpNode, SymbolRange, TensorMeta
from torch_ir.ir.text import ir_text, node_text, parse

law = settings(derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


@given(well_formed_irs())
@settings(law, max_examples=80)
def test_a_well_formed_ir_is_read_back(ir: IR):
    assert parse(str(ir)) == ir


@given(arbitrary_irs())
@settings(law, max_examples=100)
def test_any_ir_is_read_back(ir: IR):
    assert parse(str(ir)) == ir


@given(arbitrary_irs())
@settings(law, max_examples=15)
def test_equal_irs_have_equal_text(ir: IR):
    assert str(parse(str(ir))) == str(ir)


@given(constants())
@settings(law, max_examples=200)
def test_a_constant_is_read_back_with_its_bytes_if_it_is_small(constant: Constant):
    back = parse(str(IR([], [], [], [], constants={"c": constant}))).constants["c"]
    assert back == constant
    assert (back.data is None) == ("sha256:" in str(IR([], [], [], [], constants={"c": constant})))


@given(locations())
@settings(law, max_examples=200)
def test_a_location_is_read_back(location: Location):
    ir = IR([OpNode("n", "my.op", [], [], {}, {}, location)], [], [], [])
    assert parse(str(ir)).nodes[0].location == location


EVERYTHING = """\
ir "Everything" {
  torch "2.13.0"
  dialect "aten"
  symbol s0: 2..16
  symbol u0: 0..
  symbol u1: ..-1
  weight @fc.weight: f32[8, 8] as %p_fc_weight
  weight @tied: f32[8, 8] as %p_a, %p_b
  weight @unused: f32[2]
  constant @big: u8[17] as %c_big = sha256:bad3ee8a7f10f4914ea9fd3c50d0beeae9e2e23fb2a0f11e0ea4d3ac1cfdcea0
  constant @empty: f32[0, 3] = []
  constant @idx: i64[2] as %c_idx = [1, 0]
  constant @nan: f32[] = bytes:0100c07f
  constant @scale: bf16[2] = [0.1, nan]
  name %p_gone = @gone
  alias @lm_head.weight = @tied
  metadata "author" = ["me", 1, 0.5, None, (1+2j), -inf, torch.bfloat16, device("cuda:1"), `s0 + 1`]
  mutate %x = %add
  signature ((%x, 3), {"mask": None}) -> my.Output([%split.0, value([1, 2])], OrderedDict({"k": %x}), context="[]")
  func &body "Body" {
    input %a: f32[8]
    %relu: f32[8] = aten.relu.default(%a)
    return %relu
  }
  input %x: f32[s0, 8]
  %linear: f32[s0, 8] = aten.linear.default(%x, @fc.weight)  # net.py:9 in fc (torch.nn.modules.linear.Linear): x = self.fc(x)
  %add: f32[s0, 8] = aten.add.Tensor(%linear, %x, alpha=2)  # net.py:10
  %tied: f32[s0, 8] = aten.linear.default(%add, @tied, %p_b)
  %split.0: f32[s0, 4], %split.1: f32[s0, 4] = aten.split.Tensor(%add, split_size=4, dim=1)
  %index: f32[2, 4] = aten.index.Tensor(%split.0, [None, @idx])
  %clamp: f32[s0, 8] = aten.clamp.Tensor(%x, max=%add)
  %cat: f32[s0, 8] = aten.cat.default([%split.0, %split.1], dim=1)
  check: aten._assert_async.msg(%x, assert_msg="x")
  %twice: f32[s0, 8] = aten.add.Tensor(#0, #0) of [%x]
  %cond: f32[8] = higher_order.cond(args=[3, %x], false_fn=&body, "none"=%None, nothing=%[], true_fn=&body)
  %unbound: f32[2] = my.op.default(*[%x, %y: f32[2] from nowhere#1], k=3)
  %lie: f32[2] = aten.relu.default(%x: f32[3])
  %odd: f32[2] from other#3 = "node name": "my op"("an argument"=`s0`)
  %item: i64[] = aten.item.default(%x) -> u0
  %pair.0: i64[], %pair.1: i64[] = my.sizes.default(input=%x) -> "a b", u1#1  # net.py:11
  return %split.0, %x
}"""  # noqa: E501  # one statement is one line


def test_every_construct_prints_as_it_is_read():
    assert str(parse(EVERYTHING)) == EVERYTHING


def test_what_the_constructs_mean():
    ir = parse(EVERYTHING)
    nodes = {node.name: node for node in ir.nodes}
    assert nodes["clamp"].operands == {"self": 0, "max": 1}
    assert nodes["index"].operands == {"self": 0, "indices": (None, 1)}
    assert nodes["index"].inputs[1] == TensorMeta("c_idx", (2,), "int64")
    assert nodes["tied"].inputs[1].name == "p_a"
    assert nodes["tied"].inputs[2].name == "p_b"
    assert nodes["split"].outputs[1] == TensorMeta("split.1", ("s0", 4), "float32", "split", 1)
    assert nodes["twice"].operands == {"self": 0, "other": 0}
    assert nodes["cond"].operands == {"args": (None, 0), "none": None, "nothing": ()}
    assert nodes["cond"].attrs["args"] == (3, None)
    assert nodes["unbound"].operands is None
    assert nodes["unbound"].inputs[1] == TensorMeta("y", (2,), "float32", "nowhere", 1)
    assert nodes["lie"].inputs == (TensorMeta("x", (3,), "float32"),)
    assert nodes["node name"].outputs == (TensorMeta("odd", (2,), "float32", "other", 3),)
    assert nodes["check"].outputs == ()
    assert nodes["item"].binds == {"u0": 0}
    assert nodes["pair"].binds == {"a b": 0, "u1": 1}
    assert ir.symbols["u1"] == SymbolRange(None, -1)
    assert ir.weight_name_mapping["p_gone"] == "gone"
    assert ir.functions["body"].model_name == "Body"
    assert nodes["linear"].location == Location(
        "net.py", 9, "x = self.fc(x)", "fc", "torch.nn.modules.linear.Linear"
    )


def test_hand_written_text_may_be_looser_than_what_is_printed():
    ir = parse(
        """
        # a comment
        ir "Loose" {
            return %y   # forward references are read; check() reports them
            %y: f32[4] = aten.view.default(%x, [4])  # by position
            %z : float32[ 2,2 ] = aten.add.Tensor(alpha=2,other=%y,self=%x)
            input %x: f32[2, 2]
            constant @c: f32[2] = [1, 2]
        }
        """
    )
    assert ir.graph_outputs == ir.nodes[0].outputs
    assert ir.nodes[0].attrs == {"size": (4,)}
    assert ir.nodes[1].operands == {"self": 0, "other": 1}
    assert ir.constants["c"].tolist() == [1.0, 2.0]
    assert [node.location for node in ir.nodes] == [None, None]
    assert parse(str(ir)) == ir


def test_a_reference_shows_what_it_claims_where_its_name_means_something_else():
    weight = TensorMeta("x", (3,), "float32")
    x = TensorMeta("x", (2,), "float32")
    y = TensorMeta("y", (2,), "float32", "y")
    ir = IR([OpNode("y", "aten.add.Tensor", [x, weight], [y])], [x], [y], [weight])
    assert "aten.add.Tensor(%x, %x: f32[3])" in str(ir)
    assert parse(str(ir)) == ir


def test_large_constants_are_named_by_hash_and_their_values_can_be_given():
    big = Constant("uint8", (17,), bytes(range(17)))
    inner = IR([], [], [], [], constants={"c": big})
    ir = IR([], [], [], [], constants={"c": big}, functions={"body": inner})
    back = parse(str(ir))
    assert back == ir
    assert back.constants["c"].data is None
    whole = parse(str(ir), constants={"c": big, "body/c": big})
    assert whole.constants["c"].tobytes() == bytes(range(17))
    assert whole.functions["body"].constants["c"].tobytes() == bytes(range(17))


def test_node_text_is_the_call_without_its_location():
    node = parse(EVERYTHING).nodes[0]
    assert str(node) == "%linear: f32[s0, 8] = aten.linear.default(%x, %p_fc_weight)"
    assert node_text(node) == str(node)


def test_folding_shows_modules_instead_of_nodes():
    text = """\
ir {
  weight @w: f32[2]
  input %x: f32[2]
  %a: f32[2] = aten.mul.Tensor(%x, @w)  # in layers.0.fc (nn.Linear)
  %b: f32[2] = aten.relu.default(%a)  # in layers.0 (net.Layer)
  %c: f32[2] = aten.relu.default(%b)  # in layers.1.fc (nn.Linear)
  %d: f32[2] = aten.relu.default(%c)
  return %d
}"""
    ir = parse(text)
    assert ir_text(ir, fold=2).splitlines()[3:6] == [
        "  # layers.0 (Layer): 2 nodes, %x: f32[2] -> %b: f32[2]",
        "  # layers.1: 1 node, %b: f32[2] -> %c: f32[2]",
        "  %d: f32[2] = aten.relu.default(%c)",
    ]
    assert ir_text(ir, fold=1).splitlines()[3] == "  # layers: 3 nodes, %x: f32[2] -> %c: f32[2]"
    with pytest.raises(InvalidIRError, match="the depth of folding is at least 1, got 0"):
        ir_text(ir, fold=0)


def long_graph(count: int) -> IR:
    metas = [TensorMeta("v0", (2,), "float32")]
    nodes: list[OpNode] = []
    for number in range(1, count + 1):
        result = TensorMeta(f"v{number}", (2,), "float32", f"v{number}")
        nodes.append(OpNode(result.name, "aten.add.Tensor", [metas[-1], metas[0]], [result]))
        metas.append(result)
    return IR(nodes, metas[:1], metas[-1:], [])


def test_a_long_graph_needs_no_recursion_and_linear_time():
    ir = long_graph(6000)
    assert parse(str(ir)) == ir
    assert growth(lambda count: parse(str(long_graph(count))), 500) < 2.5


def test_the_example_of_the_documentation_is_what_is_printed():
    page = (Path(__file__).parents[2] / "docs" / "text.md").read_text("utf-8")
    blocks = [block.strip() for block in page.split("```")[1::2]]
    (example,) = [block for block in blocks if block.startswith("ir ")]
    assert str(parse(example)) == example
    with pytest.raises(ParseError) as caught:
        parse("ir {\n  input %x: f23[2]\n}")
    assert str(caught.value) in blocks
