"""What Edge allows, case by case of the conformance list: E2, E3, E9, E10, E14-E20."""

import pytest
import torch
from torch import nn

import torch_ir
from dialects.custom import OPERATORS, op, registered
from dialects.graphs import graph, rules, value
from torch_ir import IR, OpNode
from torch_ir.dialects import verify
from torch_ir.dialects.edge.dialect import edge_dialect
from torch_ir.dialects.rules import DIM_ORDER_SCHEMAS
from torch_ir.edge import to_edge
from torch_ir.ir import Container, Signature, TensorLeaf, ValueLeaf

X, Y = value("x"), value("y")
LIBRARY = registered()
INT = value("x", dtype="int32")


@pytest.mark.parametrize("op_type", ["aten.add.Tensor", "aten.scalar_tensor.default"])
def test_e2_a_program_of_raw_aten_operators_is_not_edge(op_type):
    inputs, attrs = ([X, X], {}) if "add" in op_type else ([], {"s": 1.0})
    shape = () if "scalar" in op_type else (2, 3)
    ir = graph(op_type, inputs, [value("y", shape)], attrs, dialect="core_aten")
    assert [str(v) for v in verify(ir, "edge")] == [
        "[not-edge] the operators of the program are those of 'core_aten', not of Edge "
        "(expected edge, got core_aten)\n    Lower the program with to_edge."
    ]


def test_e3_a_sigmoid_of_integers_gives_float_and_nothing_else():
    assert rules(graph("aten.sigmoid.default", [INT], [Y])) == []
    lie = graph("aten.sigmoid.default", [INT], [value("y", dtype="int32")])
    first, second = verify(lie)
    assert str(first) == (
        "[dtype-constraint] node 'y': aten.sigmoid.default does not give __ret_0: int32 for "
        "self: int32 (expected __ret_0: float32, got __ret_0: int32)"
    )
    assert second.code == "wrong-type"


def test_e9_a_list_has_tensors_of_one_dtype():
    other = value("z", (2, 3), "int64")
    assert rules(graph("aten.cat.default", [X, value("z")], [value("y", (4, 3))])) == []
    assert rules(graph("aten.cat.default", [X, other], [value("y", (4, 3))])) == ["mixed-dtypes"]
    empty = graph("aten.cat.default", [], [value("y", (0,))], operands={"tensors": ()})
    assert rules(empty) == ["refused-arguments"]


def test_e10_log1p_of_float_gives_float():
    assert rules(graph("aten.log1p.default", [X], [Y])) == []
    lie = graph("aten.log1p.default", [X], [value("y", dtype="int64")])
    assert rules(lie) == ["dtype-constraint", "wrong-type"]


@pytest.mark.parametrize("dtype", ["int8", "float16", "uint16", "bool"])
def test_e10_an_operator_without_rows_takes_any_dtype_of_edge(dtype):
    x = value("x", dtype=dtype)
    result = value("y.0", dtype=dtype)
    given = {"self": 0, "other_list": (1,), "other_optional": 2}
    ir = graph(op("u"), [x, x, x], [result], operands=given, operators=OPERATORS)
    assert rules(ir) == []
    missing = graph(op("u"), [x], [result], operands={"self": 0}, operators=OPERATORS)
    assert rules(missing) == ["missing-argument", "missing-argument"]


@pytest.mark.parametrize("name", ["add.Tensor", "exp.default"])
def test_e14_complex_numbers_are_not_computed_with(name):
    x = value("x", dtype="complex64")
    inputs = [x, x] if "add" in name else [x]
    ir = graph(f"aten.{name}", inputs, [value("y", dtype="complex64")])
    assert rules(ir) == ["dtype-constraint"]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(
    ("name", "attrs", "shape"),
    [
        ("expand_copy.default", {"size": [2, 3]}, (2, 3)),
        ("permute_copy.default", {"dims": [1, 0]}, (3, 2)),
        ("slice_copy.Tensor", {}, (2, 3)),
        ("squeeze_copy.dim", {"dim": 0}, (2, 3)),
        ("squeeze_copy.dims", {"dim": [0]}, (2, 3)),
        ("unsqueeze_copy.default", {"dim": 0}, (1, 2, 3)),
    ],
)
def test_e14_complex_numbers_are_moved(dtype, name, attrs, shape):
    x, y = value("x", dtype=dtype), value("y", shape, dtype)
    assert rules(graph(f"aten.{name}", [x], [y], attrs)) == []


@pytest.mark.parametrize("dtype", ["uint32", "uint64", "float8_e4m3fn", "complex32"])
def test_e14_dtypes_that_edge_does_not_have_are_not_legal_anywhere(dtype):
    x, y = value("x", dtype=dtype), value("y", (6,), dtype)
    assert rules(graph("aten.view_copy.default", [x], [y], {"size": [6]})) == ["dtype-constraint"]


def test_e15_layout_is_said_in_the_way_of_the_mode():
    by_order = graph(
        "dim_order_ops._clone_dim_order.default",
        [X],
        [Y],
        {"dim_order": [0, 1]},
        operands={"self": 0},
        operators=DIM_ORDER_SCHEMAS,
    )
    by_strides = graph("aten.clone.default", [X], [Y])
    strides = edge_dialect(dim_order=False)
    assert rules(by_order) == [] == rules(by_strides, strides)
    assert rules(by_order, strides) == ["dim-order-operator"]
    assert rules(by_strides) == ["implicit-layout"]


def test_e16_a_custom_operator_is_legal_if_it_is_functional_and_gives_tensors():
    def custom(name, outputs=(Y,)):
        ir = graph(op(name), [X], list(outputs), operands={"x": 0}, operators=OPERATORS)
        return rules(ir)

    assert custom("id") == []
    assert custom("pieces", [value("y.0"), value("y.1")]) == []
    assert custom("nothing", []) == []
    assert custom("no_meta") == ["no-meta-kernel"]
    assert custom("mut_")[0] == "writes-argument"
    assert custom("alias")[0] == "aliases-argument"
    assert custom("number", []) == ["number-result"]
    assert "foreign-operator" in rules(graph("prims.sin.default", [X], [Y], operands={"self": 0}))


def test_e17_a_result_that_is_none_may_be_absent():
    shapes = {"x": (2, 3), "mean": (2, 1), "rstd": (2, 1)}
    grad, x, mean, rstd = (value(n, shapes.get(n, (2, 3))) for n in ("g", "x", "mean", "rstd"))
    ir = graph(
        "aten.native_layer_norm_backward.default",
        [grad, x, mean, rstd],
        [value("y.0")],
        {
            "normalized_shape": [3],
            "weight": None,
            "bias": None,
            "output_mask": [True, False, False],
        },
        operands={"grad_out": 0, "input": 1, "mean": 2, "rstd": 3},
    )
    assert rules(ir) == []


def branching():
    class Model(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: x.sigmoid(), lambda x: x.cos(), (x,))

    return torch_ir.extract_ir(Model(), (torch.ones(2, 3),))


def test_e18_a_lie_in_a_branch_is_found_with_the_path_of_the_branch():
    ir = branching()
    (name,) = [n for n, f in ir.functions.items() if f.nodes[0].op_type == "aten.sigmoid.default"]
    body = ir.functions[name]
    node = body.nodes[0]
    lie = node.replace(outputs=[node.outputs[0].replace(dtype="int32")])
    body = body.replace(nodes=[lie], graph_outputs=lie.outputs)
    wrong = ir.replace(functions={**ir.functions, name: body}, dialect="edge")
    found = [v for v in verify(wrong) if v.node == f"{name}/{node.name}"]
    assert [v.code for v in found] == ["dtype-constraint", "wrong-type"]


def test_e18_a_lie_after_the_call_of_a_function_is_found():
    ir = branching().replace(dialect="edge")
    (made,) = ir.graph_outputs
    late = OpNode(
        "late",
        "aten.sigmoid.default",
        [made],
        [value("late", dtype="int32").replace(producer_node="late")],
    )
    found = verify(ir.replace(nodes=[*ir.nodes, late]))
    assert [v.code for v in found if v.node == "late"] == ["dtype-constraint", "wrong-type"]


def test_sizes_that_data_decides_are_tried_as_the_program_asserts_them():
    class Model(nn.Module):
        def forward(self, x, counts):
            sizes = counts.tolist()
            for size in sizes:
                torch._check(size >= 0)
            torch._check(sum(sizes) == x.shape[0])
            return [part.sum() for part in torch.split(x, sizes)]

    exported = torch.export.export(Model(), (torch.randn(32), torch.tensor([8, 8, 9, 7])))
    assert to_edge(exported).ir().symbols.keys() >= {"u0", "u1", "u2", "u3"}
    lie = to_edge(exported).ir()
    nodes = [
        n.replace(outputs=[n.outputs[0].replace(shape=(2,))]) if "sum" in n.op_type else n
        for n in lie.nodes
    ]
    assert rules(lie.replace(nodes=nodes)).count("wrong-type") == 4


def test_e19_dead_code_counts_and_every_bad_node_is_reported():
    lie = value("y", dtype="int32")
    nodes = [
        OpNode(n, "aten.sigmoid.default", [INT], [lie.replace(name=n, producer_node=n)])
        for n in ("a", "b")
    ]
    found = verify(IR(nodes, [INT], [INT], [], dialect="edge"))
    assert [v.node for v in found if v.code == "dtype-constraint"] == ["a", "b"]


def test_e20_shapes_are_derived_and_impossible_calls_refused():
    assert rules(graph("aten.sigmoid.default", [X], [value("y", (7,))])) == ["wrong-type"]
    mm = graph("aten.mm.default", [X, value("z")], [value("y", (2, 3))])
    assert rules(mm) == ["refused-arguments"]


def test_a_number_for_a_tensor_is_not_legal():
    ir = graph("aten.add.Tensor", [X], [Y], {"other": 1}, operands={"self": 0})
    assert rules(ir) == ["number-for-tensor"]


def test_the_strict_reading_has_no_numbers_at_all():
    ir = graph("aten.add.Scalar", [X], [Y], {"other": 1.0})
    signature = Signature(
        Container(
            "tuple", (Container("tuple", (TensorLeaf("x"), ValueLeaf(3))), Container("dict"))
        ),
        TensorLeaf("y"),
    )
    ir = ir.replace(signature=signature)
    assert rules(ir) == []
    assert rules(ir, edge_dialect(strict=True)) == ["number-in-signature", "number-argument"]
