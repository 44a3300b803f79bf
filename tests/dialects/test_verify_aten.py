"""What ATen and core ATen allow, case by case of the conformance list C1-C14."""

import pytest
import torch
from torch import nn

import torch_ir
from dialects.custom import OPERATORS, op, registered
from dialects.graphs import graph, rules, value
from torch_ir import IR, OpNode, SymExpr
from torch_ir.dialects import dialect, spec_of, verify
from torch_ir.errors import DialectError
from torch_ir.ir import MemoryFormat, SymbolRange
from torch_ir.ops.schema import known_operators
from torch_ir.passes.functionalization.copies import with_own_results

X, Y = value("x"), value("y")
LIBRARY = registered()
BOTH = ("aten", "core_aten")


def aten(op_type, inputs=(X,), outputs=(Y,), attrs=None, **fields):
    return graph(op_type, inputs, outputs, attrs, dialect="aten", **fields)


@pytest.mark.parametrize("name", BOTH)
def test_c1_a_core_functional_operator_is_legal(name):
    assert rules(aten("aten.sigmoid.default"), name) == []


def test_c1_every_functional_operator_that_torch_tags_as_core_is_in_the_set():
    core = [
        name
        for name in known_operators()
        if "core" in spec_of(name).traits and spec_of(name).is_functional
    ]
    assert len(core) > 170
    for name in core:
        codes = rules(graph(name, [], [], dialect="aten"), "core_aten", types=False)
        assert not {"not-core", "foreign-operator", "writes-argument"} & set(codes), name


def test_c2_an_operator_outside_the_core_set_is_named_with_the_remedy():
    weight = value("w", (4, 3))
    linear = aten("aten.linear.default", [X, weight], [value("y", (2, 4))])
    assert [str(v) for v in verify(linear, "core_aten")] == [
        "[not-core] node 'y': aten.linear.default is not in the core ATen set\n"
        "    Decompose it with the pass decompose, keep it there with preserve=, or allow it: "
        "verify(..., allow=('aten.linear.default',))."
    ]
    assert rules(aten("aten.silu.default"), "core_aten") == ["not-core"]
    assert rules(linear, "aten") == []


def test_c3_an_operator_that_the_caller_allows_is_legal():
    assert rules(aten("aten.silu.default"), "core_aten", allow=["aten.silu.default"]) == []


@pytest.mark.parametrize("name", [*BOTH, "edge"])
@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs"),
    [
        ("aten.add_.Tensor", [X, value("z")], {}),
        ("aten.resize_.default", [X], {"size": [2, 3]}),
        ("aten.atan2.out", [X, value("z"), value("o")], {}),
    ],
)
def test_c4_an_operator_that_writes_is_not_legal(name, op_type, inputs, attrs):
    ir = graph(op_type, inputs, [Y], attrs, dialect=name)
    assert "writes-argument" in rules(ir, name)


@pytest.mark.parametrize("name", [*BOTH, "edge"])
def test_c5_an_operator_that_returns_a_view_is_not_legal_and_its_copy_is(name):
    x, y = value("x", (2, 2)), value("y", (4,))
    view = graph("aten.view.default", [x], [y], {"size": [4]}, dialect=name)
    assert rules(view, name) == ["aliases-argument"]
    copy = graph("aten.view_copy.default", [x], [y], {"size": [4]}, dialect=name)
    assert rules(copy, name) == []


def test_c5_the_copy_to_give_away_is_named():
    x, y = value("x", (2, 2)), value("y", (4,))
    (found,) = verify(graph("aten.view.default", [x], [y], {"size": [4]}, dialect="aten"))
    assert str(found) == (
        "[aliases-argument] node 'y': the result %y is a view of %x: aten.view.default returns "
        "memory of its argument (expected a result with memory of its own, got "
        "aten.view.default)\n"
        "    Give away a copy (aten.view_copy.default), as the pass functionalize does."
    )


VIEWS = """
ir {{
  dialect "{}"
  weight @w: f32[2, 2]
  input %x: f32[2, 2]
  %a: f32[2, 2] = aten.relu.default(%x)
  %of_a: f32[4] = aten.view.default(%a, size=[4])
  %again: f32[4] = aten.view.default(%a, size=[4])
  %of_w: f32[4] = aten.view.default(@w, size=[4])
  %twice: f32[2, 2] = aten.view.default(%of_w, size=[2, 2])
  %of_x: f32[4] = aten.view.default(%x, size=[4])
  %sum: f32[4] = aten.add.Tensor(%of_x, %of_w)
  return {}
}}
"""


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(
    ("results", "wrong"),
    [
        ("%sum", []),
        ("%x, %a, %a", []),
        ("%of_a", []),
        ("%of_a, %of_a", []),
        ("%of_a, %again", ["again"]),
        ("%of_a, %a", ["of_a"]),
        ("%sum, %of_x", ["of_x"]),
        ("%twice", ["twice"]),
    ],
)
def test_c5_only_a_view_that_is_given_away_can_be_told_from_its_copy(name, results, wrong):
    ir = torch_ir.parse(VIEWS.format(name, results))
    found = verify(ir)
    assert [v.node for v in found] == wrong
    assert {v.code for v in found} <= {"aliases-argument"}
    assert verify(with_own_results(ir)) == ()
    assert "aliases-argument" in {v.code for v in verify(ir.replace(dialect="edge"))}


@pytest.mark.parametrize("name", BOTH)
def test_c6_a_custom_operator_with_a_meta_kernel_is_legal(name):
    assert rules(aten(op("id"), operators=OPERATORS, operands={"x": 0}), name) == []


@pytest.mark.parametrize("name", BOTH)
def test_c7_a_custom_operator_without_a_meta_kernel_is_not(name):
    ir = aten(op("no_meta"), operators=OPERATORS, operands={"x": 0})
    assert [str(v) for v in verify(ir, name)] == [
        "[no-meta-kernel] node 'y': torch_ir_test_dialects.no_meta.default cannot say what it "
        "gives without data (expected an operator with a meta kernel)\n"
        '    Register one: torch.library.register_fake("torch_ir_test_dialects::no_meta").'
    ]


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(
    ("custom", "rule"),
    [
        ("mut_", "writes-argument"),
        ("alias", "aliases-argument"),
        ("sly_alias", "aliases-argument"),
    ],
)
def test_c8_a_custom_operator_that_writes_or_aliases_is_not_legal(name, custom, rule):
    ir = aten(op(custom), operators=OPERATORS, operands={"x": 0})
    assert rule in rules(ir, name)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(
    ("op_type", "rule"),
    [
        ("nn.functional.relu", "unregistered-operator"),
        ("dim_order_ops._clone_dim_order.default", "foreign-operator"),
        ("prims.sin.default", "foreign-operator"),
        ("aten.relu", "unknown-operator"),
    ],
)
def test_c9_what_is_no_overload_of_this_dialect_is_not_legal(name, op_type, rule):
    ir = aten(op_type, operands={"self": 0})
    assert rule in rules(ir, name)


def test_c10_a_call_without_the_type_of_its_result_is_not_legal():
    assert rules(aten("aten.sigmoid.default", outputs=[]), "aten") == ["missing-result"]
    with pytest.raises(torch_ir.InvalidIRError):
        value("y", dtype=object())


def test_c11_a_buffer_or_an_input_with_other_strides_is_taken_as_contiguous():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", torch.randn(3, 2).t())

        def forward(self, image, matrix):
            return image * 2 + self.b.sum(), matrix @ self.b

    model = Model()
    image = torch.randn(1, 3, 4, 4).to(memory_format=torch.channels_last)
    matrix = torch.randn(2, 4).t()
    ir = torch_ir.extract_ir(model, (image, matrix))
    got = torch_ir.IRExecutor(ir, model.state_dict())(image, matrix)
    for left, right in zip(got, model(image, matrix), strict=True):
        assert torch.equal(left, right)


def test_c11_a_call_that_asks_for_another_memory_format_is_not_legal():
    x, y = value("x", (1, 3, 4, 4)), value("y", (1, 3, 4, 4))
    attrs = {"memory_format": MemoryFormat("channels_last")}
    ir = graph("aten.clone.default", [x], [y], attrs, dialect="aten")
    assert rules(ir, "aten") == ["not-contiguous"]


def test_c12_python_arithmetic_on_tensors_is_no_operator_and_on_sizes_is_an_expression():
    assert "unregistered-operator" in rules(aten("_operator.add.default"), "aten")
    x, y = value("x", ("s0", 3)), value("y", ("max(1, 2*s0 + 3) % 5", 3))
    size = [SymExpr("max(1, 2*s0 + 3) % 5"), 3]
    ir = graph("aten.full.default", [], [y], {"size": size, "fill_value": 1.0}, dialect="aten")
    ir = ir.replace(graph_inputs=[x], symbols={"s0": SymbolRange(2, 9)})
    assert rules(ir, "aten") == []


class Unregistered:
    def __init__(self, tensor):
        self.tensor = tensor


def test_c13_an_argument_that_is_no_tree_of_tensors_is_refused():
    class Model(nn.Module):
        def forward(self, options):
            return options.tensor * 2

    with pytest.raises(torch_ir.ExportError):
        torch_ir.extract_ir(Model(), (Unregistered(torch.ones(2)),))


def test_c13_dicts_lists_tuples_and_none_are_trees():
    class Model(nn.Module):
        def forward(self, d, items, nothing):
            return {"sum": d["a"] + items[0], "same": (items[1], None)}

    args = ({"a": torch.ones(2)}, [torch.ones(2), torch.zeros(2)], None)
    ir = torch_ir.extract_ir(Model(), args)
    assert rules(ir, "aten") == []


@pytest.mark.parametrize(
    ("op_type", "dtypes", "result"),
    [
        ("aten.add.Tensor", ("float32", "int64"), "float32"),
        ("aten.mul.Tensor", ("float32", "float64"), "float64"),
    ],
)
def test_c14_promotion_is_implicit(op_type, dtypes, result):
    inputs = [value(f"x{i}", dtype=dtype) for i, dtype in enumerate(dtypes)]
    assert rules(aten(op_type, inputs, [value("y", dtype=result)]), "core_aten") == []


def test_c14_a_number_for_a_tensor_is_legal():
    ir = aten("aten.add.Tensor", attrs={"other": 2}, operands={"self": 0})
    assert rules(ir, "core_aten") == []


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("lie", [value("y", (7,)), value("y", dtype="int32")])
def test_c14_a_lie_on_shape_or_dtype_is_found(name, lie):
    assert rules(aten("aten.sigmoid.default", outputs=[lie]), name) == ["wrong-type"]


def test_all_violations_are_reported_in_dead_code_too_with_their_source_line():
    location = torch_ir.ir.Location("net.py", 7, "x.sigmoid()")
    nodes = [
        OpNode(
            name,
            "aten.sigmoid.default",
            [X],
            [value(name, (7,)).replace(producer_node=name)],
            location=location,
        )
        for name in ("a", "b")
    ]
    found = verify(IR(nodes, [X], [X], []), "aten")
    assert [(v.node, v.code, v.location) for v in found] == [
        ("a", "wrong-type", location),
        ("b", "wrong-type", location),
    ]


def test_require_raises_one_error_that_lists_them():
    ir = aten("aten.silu.default", outputs=[value("y", (7,))]).replace(model_name="Net")
    with pytest.raises(DialectError) as caught:
        dialect("core_aten").require(ir, method="forward")
    assert [v.code for v in caught.value.violations] == ["not-core", "wrong-type"]
    assert str(caught.value).splitlines()[0] == (
        "the method 'forward' breaks the rules of the dialect 'core_aten' in 2 places"
    )


def test_an_unknown_dialect_names_the_closest():
    with pytest.raises(torch_ir.InvalidIRError) as caught:
        dialect("egde")
    assert str(caught.value) == "there is no dialect 'egde'\nDid you mean edge?"


def test_prims_takes_primitive_operators_only():
    ir = graph("prims.sin.default", [X], [Y], dialect="prims", operands={"self": 0})
    assert rules(ir) == []
    assert rules(aten("aten.sin.default"), "prims") == ["foreign-operator"]
