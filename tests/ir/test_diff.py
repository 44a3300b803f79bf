"""What a diff says, and that names do not matter to it."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings

from counting import growth
from strategies import arbitrary_irs, rename_values, well_formed_irs
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.diff import diff
from torch_ir.ir.diff.alignment import align
from torch_ir.ir.text import parse

law = settings(derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))

BASE = """\
ir "Net" {
  symbol s0: 2..16
  weight @fc.weight: f32[8, 8] as %p_fc
  weight @buffer: f32[8]
  weight @unused: f32[2]
  constant @idx: i64[2] = [1, 0]
  alias @tied = @fc.weight
  mutate @buffer = %pool
  signature ((%x,), {}) -> {"y": %out}
  func &body {
    input %a: f32[8]
    %b: f32[8] = aten.relu.default(%a)
    return %b
  }
  input %x: f32[s0, 8]
  %h: f32[s0, 8] = aten.linear.default(%x, @fc.weight)  # net.py:3 in fc (nn.Linear): h = self.fc(x)
  %act: f32[s0, 8] = aten.relu.default(%h)  # net.py:4: h = relu(h)
  %pool: f32[8] = aten.mean.dim(%act, dim=[0])
  %out: f32[s0, 8] = aten.add.Tensor(%act, %x, alpha=2)
  return %out
}"""  # noqa: E501  # one statement is one line


def report(old: str, new: str) -> list[str]:
    """The lines of the report after replacing a part of the base text."""
    assert BASE.count(old) == 1
    difference = diff(parse(BASE), parse(BASE.replace(old, new)))
    assert bool(difference) == (str(difference) != "no difference")
    return str(difference).splitlines()


def test_equal_irs_have_no_difference():
    same = diff(parse(BASE), parse(BASE))
    assert not same
    assert str(same) == "no difference"
    assert same.to_dict() == {"equal": True, "changes": []}


def test_a_changed_attribute_is_said_precisely():
    assert report("alpha=2", "alpha=3") == [
        "1 changed",
        "~ %out: f32[s0, 8] = aten.add.Tensor(%act, %x, alpha=3)",
        "    alpha 2 -> 3",
    ]
    assert report(", alpha=2", "") == [
        "1 changed",
        "~ %out: f32[s0, 8] = aten.add.Tensor(%act, %x)",
        "    alpha 2 -> unset",
    ]


def test_a_changed_operand_is_said_by_argument():
    assert report("(%act, %x, alpha=2)", "(%act, %h, alpha=2)") == [
        "1 changed",
        "~ %out: f32[s0, 8] = aten.add.Tensor(%act, %h, alpha=2)",
        "    other %x -> %h",
    ]


def test_another_operator_replaces_the_node_and_its_users_stay_as_they_are():
    assert report("aten.relu.default(%h)", "aten.gelu.default(%h)") == [
        "1 replaced",
        "- %act: f32[s0, 8] = aten.relu.default(%h)  # net.py:4: h = relu(h)",
        "+ %act: f32[s0, 8] = aten.gelu.default(%h)  # net.py:4: h = relu(h)",
    ]


def test_an_added_node_shows_itself_and_who_uses_it_now():
    added = "  %pool: f32[8] = aten.mean.dim(%act, dim=[0])\n"
    assert report(
        added, f"  %n: f32[s0, 8] = aten.neg.default(%act)\n{added.replace('%act', '%n')}"
    ) == [
        "1 changed, 1 added",
        "+ %n: f32[s0, 8] = aten.neg.default(%act)",
        "~ %pool: f32[8] = aten.mean.dim(%n, dim=[0])",
        "    self %act -> %n",
    ]


def test_a_changed_weight_is_said_once():
    assert report("@fc.weight: f32[8, 8] as", "@fc.weight: f32[8, 4] as") == [
        "1 replaced",
        "- weight @fc.weight: f32[8, 8]",
        "+ weight @fc.weight: f32[8, 4]",
    ]


def test_every_other_part_is_compared():
    for old, new, before, after in [
        ("s0: 2..16", "s0: 2..", "symbol s0: 2..16", "symbol s0: 2.."),
        ("[1, 0]", "[0, 1]", "constant @idx: i64[2] = [1, 0]", "constant @idx: i64[2] = [0, 1]"),
        (
            "@tied = @fc.weight",
            "@tied = @buffer",
            "alias @tied = @fc.weight",
            "alias @tied = @buffer",
        ),
        (
            "mutate @buffer = %pool",
            "mutate @buffer = @buffer",
            "mutate @buffer = %pool",
            "mutate @buffer = @buffer",
        ),
        (
            '{"y": %out}',
            '{"z": %out}',
            'signature outputs: {"y": %out}',
            'signature outputs: {"z": %out}',
        ),
        (
            "  return %out",
            "  return %act",
            "output 0: %out: f32[s0, 8]",
            "output 0: %act: f32[s0, 8]",
        ),
        ("  symbol", '  dialect "aten"\n  symbol', 'dialect "export"', 'dialect "aten"'),
    ]:
        lines = report(old, new)[1:]
        assert lines == [f"- {before}", f"+ {after}"], (old, new)
    assert report("  return %out", "  return %out, %x")[1:] == ["+ output 1: %x: f32[s0, 8]"]
    assert report("  weight @unused: f32[2]\n", "")[1:] == ["- weight @unused: f32[2]"]
    assert report("input %x: f32[s0, 8]", "input %x: f32[4, 8]")[1:] == [
        "- input 0: %x: f32[s0, 8]",
        "+ input 0: %x: f32[4, 8]",
    ]


def test_the_symbol_that_takes_a_result_is_compared():
    text = "ir {{\n  input %x: i64[]\n  %n: i64[] = aten.item.default(%x){}\n}}"
    difference = diff(parse(text.format("")), parse(text.format(" -> u0")))
    assert str(difference).splitlines()[1:] == [
        "~ %n: i64[] = aten.item.default(%x) -> u0",
        "    binds nothing -> u0#0",
    ]


def test_functions_are_compared_inside():
    assert report("aten.relu.default(%a)", "aten.relu.default(%b)") == [
        "1 changed",
        "in &body:",
        "~ %b: f32[8] = aten.relu.default(%b)",
        "    self %a -> %b",
    ]
    assert report("func &body", "func &other")[1:] == ["- func &body", "+ func &other"]


def test_what_does_not_change_the_program_is_not_a_difference():
    for old, new in [
        ("net.py:3", "net.py:30"),
        ('ir "Net" {', 'ir "Other" {\n  torch "3.0"\n  metadata "a" = 1'),
        ("as %p_fc", "as %another_name"),
    ]:
        assert report(old, new) == ["no difference"]


def test_the_report_as_data_is_json():
    changed = parse(
        BASE.replace("alpha=2", "alpha=3").replace(
            "%b: f32[8] = aten.relu", "%b: f32[8] = aten.neg"
        )
    )
    data = diff(parse(BASE), changed).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data == {
        "equal": False,
        "changes": [
            {
                "kind": "changed",
                "what": "node",
                "name": "out",
                "function": "",
                "before": "%out: f32[s0, 8] = aten.add.Tensor(%act, %x, alpha=2)",
                "after": "%out: f32[s0, 8] = aten.add.Tensor(%act, %x, alpha=3)",
                "details": ["alpha 2 -> 3"],
            },
            {
                "kind": "replaced",
                "what": "node",
                "name": "b",
                "function": "body",
                "before": "%b: f32[8] = aten.relu.default(%a)",
                "after": "%b: f32[8] = aten.neg.default(%a)",
                "details": [],
            },
        ],
    }


@given(well_formed_irs())
@settings(law, max_examples=80)
def test_renaming_every_value_changes_nothing(ir: IR):
    renamed = rename_values(ir)
    assert str(diff(ir, renamed)) == "no difference"
    assert str(diff(renamed, ir)) == "no difference"


@given(arbitrary_irs())
@settings(law, max_examples=30)
def test_any_ir_equals_itself(ir: IR):
    assert not diff(ir, parse(str(ir)))


@given(well_formed_irs(), well_formed_irs())
@settings(law, max_examples=80)
def test_a_difference_is_seen_from_both_sides(a: IR, b: IR):
    assert bool(diff(a, b)) == bool(diff(b, a))
    if len(a.nodes) != len(b.nodes) or [n.op_type for n in a.nodes] != [
        n.op_type for n in b.nodes
    ]:
        assert diff(a, b)


@given(well_formed_irs(max_nodes=6))
@settings(law, max_examples=60)
def test_a_node_that_is_left_out_is_named(ir: IR):
    for index, node in enumerate(ir.nodes):
        shorter = ir.replace(nodes=ir.nodes[:index] + ir.nodes[index + 1 :])
        removed = [change for change in diff(ir, shorter).changes if change.kind == "removed"]
        assert [change.what for change in removed] == ["node"], node


def chain(operators: list[str]) -> IR:
    x = TensorMeta("v0", (2,), "float32")
    nodes: list[OpNode] = []
    for number, operator in enumerate(operators, 1):
        result = TensorMeta(f"v{number}", (2,), "float32", f"v{number}")
        taken = nodes[-1].outputs[0] if nodes else x
        nodes.append(OpNode(result.name, operator, [taken], [result]))
    return IR(nodes, [x], nodes[-1].outputs, [])


def test_large_graphs_without_locations_are_compared_in_linear_time():
    names = ("relu", "neg", "neg", "exp")

    def compared(times: int):
        repeated = [f"aten.{name}.default" for name in names] * times
        fewer = [op for number, op in enumerate(repeated) if number % 40 != 3]
        return diff(chain(repeated), chain(fewer))

    assert growth(compared, 200) < 3
    difference = compared(1500)
    kinds = [change.kind for change in difference.changes]
    assert (kinds.count("removed"), kinds.count("added"), kinds.count("replaced")) == (150, 0, 0)


def test_an_alignment_is_exact_for_small_edits_and_in_order_for_large_ones():
    assert align([("abcabba", "cbabac")]) == [(2, 0), (3, 2), (4, 3), (6, 4)]
    many = [list(range(500)) * 2, [n for n in range(500) if n % 3] * 2]
    pairs = align([(many[0], many[1])])
    assert all(many[0][i] == many[1][j] for i, j in pairs)
    assert pairs == sorted(pairs, key=lambda pair: pair[1])
    assert len(pairs) == len(many[1])
