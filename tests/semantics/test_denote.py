"""Programs as what they mean: every node's value, errors, symbols, functions, draws."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim
from torch.utils import _pytree as pytree

import torch_ir
from torch_ir.errors import ExecutionError, InputError, WeightLoadError
from torch_ir.ir import IR, Location, OpNode, TensorMeta
from torch_ir.semantics import denote, denote_all
from whole_way import Lambda

X = torch.arange(16.0).reshape(4, 4) / 8 - 0.9


def meta(
    name: str, *shape: Any, dtype: str = "float32", producer: str | None = None
) -> TensorMeta:
    return TensorMeta(name, shape, dtype, producer)


def core(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[IR, nn.Module]:
    """The program of a function in core ATen, and its module."""
    torch.manual_seed(0)
    model = Lambda(function).requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model, args, **options).run_decompositions()
    return torch_ir.convert_exported_program(program), model


def means_what_eager_gives(function: Callable[..., Any], *inputs: torch.Tensor) -> IR:
    """The program of a function of one tensor, denoted for several of one shape."""
    ir, model = core(function, inputs[0])
    for x in inputs:
        got = denote(ir, model.state_dict(), [x])
        expected = pytree.tree_leaves(model(x))
        assert len(got) == len(expected)
        for mine, theirs in zip(got, expected, strict=True):
            assert mine.dtype == theirs.numpy().dtype
            np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5, atol=1e-6)
    return ir


def test_every_value_by_its_name() -> None:
    x, y = meta("x", 2), meta("y", 2, producer="y")
    values, indices = meta("s.0", 2, producer="s"), meta("s.1", 2, dtype="int64", producer="s")
    ir = IR(
        [
            OpNode("y", "aten.mul.Tensor", [x, meta("w", 2)], [y]),
            OpNode(
                "s", "aten.sort.default", [y], [values, indices.replace(producer_output_idx=1)]
            ),
            OpNode("n", "aten.sym_size.int", [x], [], {"dim": 0}),
        ],
        [x],
        [values],
        [meta("layer.w", 2)],
        {"w": "layer.w"},
    )
    given, weight = np.array([1, -1], "float32"), np.array([2, 3], "float32")
    made = denote_all(ir, {"layer.w": weight}, [given])
    assert {name: np.asarray(value).tolist() for name, value in made.items()} == {
        "y": [2, -3],
        "s.0": [-3, 2],
        "s.1": [1, 0],
        "n": 2,
    }
    assert (given.tolist(), weight.tolist()) == ([1, -1], [2, 3])
    assert denote(ir, {"layer.w": torch.tensor([2.0, 3.0])}, {"x": given})[0].tolist() == [-3, 2]


# -- errors ---------------------------------------------------------------------------------------


def one_node(op_type: str, out: TensorMeta, **attrs: Any) -> IR:
    x = meta("x", 2)
    place = Location("net.py", 7, "y = f(x)", "block")
    return IR([OpNode("y", op_type, [x], [out], attrs, location=place)], [x], [out], [])


ONES = [np.ones(2, "float32")]


@pytest.mark.parametrize(
    ("ir", "message"),
    [
        (
            one_node("aten.relu.default", meta("y", 3, producer="y")),
            "node 'y': %y is declared f32[3], and means float32 of shape [2]\n"
            "    %y: f32[3] = aten.relu.default(%x)\n"
            "    at net.py:7 in block: y = f(x)",
        ),
        (
            one_node("aten.relu.default", meta("y", 2, dtype="float64", producer="y")),
            "node 'y': %y is declared f64[2], and means float32 of shape [2]\n"
            "    %y: f64[2] = aten.relu.default(%x)\n"
            "    at net.py:7 in block: y = f(x)",
        ),
        (
            one_node("aten.select.int", meta("y", producer="y"), dim=1, index=0),
            "node 'y': a tensor of 1 dimension has no dimension 1\n"
            "    %y: f32[] = aten.select.int(%x, dim=1, index=0)\n"
            "    at net.py:7 in block: y = f(x)",
        ),
        (
            one_node("aten.select.int", meta("y", producer="y"), dim=0),
            "node 'y': aten.select.int failed: select() missing 1 required positional argument: "
            "'index'\n"
            "    %y: f32[] = aten.select.int(%x, dim=0)\n"
            "    at net.py:7 in block: y = f(x)",
        ),
        (
            one_node("aten.relu_.default", meta("y", 2, producer="y")),
            "node 'y': aten.relu_.default has no denotation.\n"
            "    %y: f32[2] = aten.relu_.default(%x)\n"
            "    at net.py:7 in block: y = f(x)\n"
            "Make the program functional and decompose it to core ATen first.",
        ),
    ],
)
def test_an_error_shows_the_node(ir: IR, message: str) -> None:
    with pytest.raises(ExecutionError) as caught:
        denote(ir, {}, ONES)
    assert str(caught.value) == message


def test_all_operators_without_a_denotation_are_named() -> None:
    x, a, b = meta("x", 2), meta("a", 2, producer="a"), meta("b", 2, producer="b")
    nodes = [
        OpNode("a", "aten._fw_primal_copy.default", [x], [a]),
        OpNode("r", "aten.relu.default", [a], [meta("r", 2, producer="r")]),
        OpNode("b", "aten._spdiags.default", [a], [b]),
        OpNode("c", "aten._fw_primal_copy.default", [a], [meta("c", 2, producer="c")]),
    ]
    with pytest.raises(ExecutionError) as caught:
        denote(IR(nodes, [x], [b], []), {}, ONES)
    assert str(caught.value) == (
        "node 'a': aten._fw_primal_copy.default has no denotation. "
        "Neither have aten._spdiags.default.\n"
        "    %a: f32[2] = aten._fw_primal_copy.default(%x)\n"
        "Decompose it to core ATen first."
    )


def test_weights_may_stand_under_any_of_their_keys() -> None:
    x, a = meta("x", 2), meta("a", 2, producer="a")
    ir = IR(
        [OpNode("a", "aten.add.Tensor", [meta("p_w", 2), meta("c", 2)], [a])],
        [x],
        [a],
        [meta("w", 2)],
        {"p_w": "w"},
        {"c": np.array([1, 2], "float32")},
        weight_aliases={"tied.w": "w"},
    )
    half = np.array([0.5, 0.5], "float32")
    assert denote(ir, {"tied.w": half}, ONES)[0].tolist() == [1.5, 2.5]
    assert denote(ir, {"w": half, "c": half, "more": half}, ONES)[0].tolist() == [1, 1]
    bfloat16 = torch.tensor([1.5, 2.5], dtype=torch.bfloat16)
    half_ir = IR([], [x], [meta("w", 2, dtype="bfloat16")], [meta("w", 2, dtype="bfloat16")])
    (got,) = denote(half_ir, {"w": bfloat16}, ONES)
    assert (got.dtype.name, got.tolist()) == ("bfloat16", [1.5, 2.5])


def test_weights_are_those_of_the_program() -> None:
    x, w = meta("x", 2), meta("w", 2)
    ir = IR([], [x], [x], [w, meta("v", 3)], model_name="Net")
    with pytest.raises(WeightLoadError) as caught:
        denote(ir, {"w": np.ones(3, "float32")}, ONES)
    assert str(caught.value) == (
        "the weights are not those of 'Net': 2 faults\n"
        "    wrong: w must be f32[2], got float32 of shape [3]\n"
        "    missing: v f32[3]"
    )


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "the program takes 1 tensor, got 0\nThey are %x: f32[s0, 4]."),
        ({"y": X}, "the program has no input 'y'"),
        ([X[0]], "input 'x' must be f32[s0, 4], got float32 of shape [4]"),
        ([X.double()], "input 'x' must be f32[s0, 4], got float64 of shape [4, 4]"),
        ([X[:, :3]], "dimension 1 of input 'x' must be 4, got 3"),
        ([X[:1]], "the symbol s0 is 1, which is outside its range 2..8"),
        (
            [torch.ones(5, 4)],
            "the program was traced under the condition (s0 % 2) == 0, which does not hold for "
            "s0 = 5",
        ),
    ],
)
def test_inputs_are_those_of_the_program(inputs: Any, message: str) -> None:
    x = meta("x", "s0", 4)
    ir = IR(
        [],
        [x],
        [x],
        [],
        symbols={"s0": torch_ir.ir.SymbolRange(2, 8)},
        guards=[torch_ir.ir.SymExpr("s0 % 2 == 0")],
    )
    with pytest.raises(InputError) as caught:
        denote(ir, {}, inputs)
    assert str(caught.value) == message
    assert denote(ir, {}, [X])[0].tolist() == X.tolist()


# -- models ---------------------------------------------------------------------------------------


def test_layers() -> None:
    def network(m: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.gelu(m.first(x))
        return torch.nn.functional.layer_norm(m.second(hidden).softmax(-1) @ m.weight, (4,))

    means_what_eager_gives(network, X)


def test_symbolic_sizes() -> None:
    def network(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = m.first(x).reshape(-1)
        return torch.cat([y, y]) + x.shape[0] * torch.ones(2 * x.shape[0] * 4)

    ir, model = core(network, X, dynamic_shapes={"args": ({0: Dim("n", max=64)},)})
    assert ir.symbols
    for length in (2, 4, 7):
        x = torch.randn(length, 4, generator=torch.Generator().manual_seed(length))
        (got,) = denote(ir, model.state_dict(), [x])
        np.testing.assert_allclose(got, model(x).numpy(), rtol=1e-5, atol=1e-6)


def test_sizes_that_values_decide() -> None:
    def chosen(m: Any, x: torch.Tensor) -> torch.Tensor:
        count = x.argmax().item()
        torch._check(count >= 0)
        torch._check(count <= 100)
        return torch.ones(count) * 2, x.nonzero() + 1

    ir, model = core(chosen, X[0])
    for x in (X[0], X[0].flip(0), torch.zeros(4)):
        got = denote(ir, model.state_dict(), [x])
        for mine, theirs in zip(got, model(x), strict=True):
            assert mine.tolist() == theirs.tolist()
    made = denote_all(ir, model.state_dict(), [X[0]])
    assert 3 in [value for value in made.values() if isinstance(value, int)]


def test_buffers_and_inputs_that_the_program_writes() -> None:
    def network(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.total.add_(x.sum(0))
        x.mul_(2)
        return m.total * 1

    ir, model = core(network, X.clone())
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    given = X.numpy().copy()
    made = denote_all(ir, weights, [given])
    left = {mutation.target: made[mutation.value.name] for mutation in ir.mutations}
    model(expected := X.clone())
    assert len(left) == 2
    np.testing.assert_allclose(left["args_0"], expected)
    np.testing.assert_allclose(left["b_total"], model.total, rtol=1e-6)
    np.testing.assert_array_equal(given, X)
    assert not weights["total"].any()


def branch(m: Any, x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: (m.first(x), x + 1), lambda x: (x.sin(), x * 2), (x,))


def loop(m: Any, x: torch.Tensor) -> Any:
    def body(count: torch.Tensor, x: torch.Tensor) -> Any:
        return count + 1, torch.cond(count % 2 == 0, m.first, lambda x: x + m.total, (x,))

    return while_loop(lambda count, x: count < 4, body, (torch.tensor(0), x))


def running(m: Any, x: torch.Tensor) -> Any:
    return scan(lambda carry, row: (carry + m.first(row), carry * row), x[0], x, dim=0)


def rows(m: Any, x: torch.Tensor) -> Any:
    return map_over(lambda row, weight: row @ weight, x, m.weight)


@pytest.mark.parametrize("function", [branch, loop, running, rows])
def test_branches_and_loops(function: Callable[..., Any]) -> None:
    ir = means_what_eager_gives(function, X, X.abs(), -X)
    assert any(node.op_type.startswith("higher_order.") for node in ir.nodes)


# -- draws ----------------------------------------------------------------------------------------


def drawing(m: Any, x: torch.Tensor) -> Any:
    return torch.rand(5), torch.rand(5), map_over(lambda row: row + torch.rand_like(row), x)


def test_draws_depend_on_seed_and_node() -> None:
    ir, model = core(drawing, X)
    first, second, mapped = denote(ir, model.state_dict(), [X], seed=3)
    assert len({*first, *second}) == 10
    noise = mapped - X.numpy()
    assert len({*noise.reshape(-1).round(4)}) > 12, "each row has its own draws"
    again = denote(ir, model.state_dict(), [X], seed=3)
    assert [a.tolist() for a in again] == [a.tolist() for a in (first, second, mapped)]
    assert denote(ir, model.state_dict(), [X], seed=4)[0].tolist() != first.tolist()
    dead = next(node for node in ir.nodes if node.outputs[0].name == ir.graph_outputs[0].name)
    pruned = ir.replace(
        nodes=[node for node in ir.nodes if node is not dead],
        graph_outputs=ir.graph_outputs[1:],
        signature=None,
    )
    assert denote(pruned, model.state_dict(), [X], seed=3)[0].tolist() == second.tolist()


def test_a_node_is_evaluated_for_given_values() -> None:
    """As a comparison node by node does, with the inputs that another run gave."""
    from torch_ir.semantics import Evaluation

    ir, model = core(lambda m, x: m.first(x).relu(), X)
    evaluation = Evaluation(ir, model.state_dict(), [X])
    relu = next(node for node in ir.nodes if node.op_type == "aten.relu.default")
    given = {relu.inputs[0].name: np.full((4, 4), -2.0, "float32")}
    assert evaluation.evaluate(relu, given)[0].tolist() == np.zeros((4, 4)).tolist()
    ran = [node.name for node, _ in evaluation.run(keep=False)]
    assert ran == [node.name for node in ir.nodes]
    assert evaluation.tensor(ir.graph_outputs[0].name).shape == (4, 4)
    with pytest.raises(ExecutionError, match=f"%{relu.inputs[0].name} has no value"):
        evaluation.value(relu.inputs[0].name)
