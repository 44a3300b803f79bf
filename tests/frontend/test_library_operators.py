"""Operators that libraries register: their schemas stay with the program."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir.errors import ExecutionError
from torch_ir.executor import IRExecutor, check_types
from whole_way import Lambda, extracted, kept, runs_as_eager, same

X = torch.arange(16.0).reshape(4, 4) / 8 - 0.9


@torch.library.custom_op("torch_ir_tests::scaled", mutates_args=())
def scaled(
    x: torch.Tensor, weights: list[torch.Tensor], by: float = 2.0, mode: str = "add"
) -> torch.Tensor:
    """An operator with a list of tensors, a number and a word."""
    total = x * by
    for weight in weights:
        total = total + weight if mode == "add" else total @ weight
    return total.contiguous()


@scaled.register_fake
def _(x, weights, by=2.0, mode="add"):
    return torch.empty_like(x)


@torch.library.custom_op("torch_ir_tests::halves", mutates_args=())
def halves(x: torch.Tensor, skip: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """An operator with two results and an optional tensor."""
    left, right = x.chunk(2)
    return left.clone(), right.clone() if skip is None else right + skip


@halves.register_fake
def _(x, skip=None):
    left, right = x.chunk(2)
    return torch.empty_like(left), torch.empty_like(right)


@torch.library.custom_op("torch_ir_tests::count_up", mutates_args={"total"})
def count_up(total: torch.Tensor, by: int) -> None:
    """An operator that writes its argument and returns nothing."""
    total.add_(by)


@count_up.register_fake
def _(total, by):
    return None


def all_of_them(m, x):
    y = scaled(x, [m.weight, x.T], 0.5, mode="matmul")
    left, right = halves(y, skip=x[:2])
    count_up(m.total, 3)
    return left, right, halves(scaled(y, []))[1], m.total + 0


def test_operators_of_a_library_run_as_in_eager():
    ir = runs_as_eager(lambda: Lambda(all_of_them).eval(), (X,), (-X,), (X * 3,))
    assert dict(ir.operators) == {
        f"torch_ir_tests.{name}.default": str(operator._opoverload._schema)
        for name, operator in (("count_up", count_up), ("halves", halves), ("scaled", scaled))
    }
    assert [(m.target, m.value.name) for m in ir.mutations] == [("b_total", "b_total")]


def test_their_arguments_are_told_by_the_names_of_the_schema():
    ir, _ = extracted(lambda: Lambda(all_of_them).eval(), (X,))
    node = next(n for n in ir.nodes if n.op_type == "torch_ir_tests.scaled.default")
    assert node.operands == {"x": 0, "weights": (1, 2)}
    assert dict(node.attrs) == {"by": 0.5, "mode": "matmul"}


def test_operators_inside_a_branch_are_kept_too():
    def choose(m, x):
        return torch.cond(x.sum() > 0, lambda x: scaled(x, [m.weight]), lambda x: x + 1, (x,))

    runs_as_eager(lambda: Lambda(choose).eval(), (X,), (-X,))


def test_a_missing_operator_names_its_library():
    class Doubles(nn.Module):
        def forward(self, x):
            return torch.ops.torch_ir_tests_gone.double(x)

    with torch.library._scoped_library("torch_ir_tests_gone", "FRAGMENT") as library:
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda x: x * 2, "CompositeExplicitAutograd")
        ir = kept(torch_ir.extract_ir(Doubles().eval(), (X,)))
        assert same(IRExecutor(ir)(X), X * 2)
    assert ir.check() == ()  # the schema is in the program
    (node,) = ir.nodes
    with pytest.raises(ExecutionError) as caught:
        IRExecutor(ir)(X)
    assert str(caught.value) == (
        "node 'double': torch has no operator 'torch_ir_tests_gone.double.default'. Import the "
        "library that registers the operators of 'torch_ir_tests_gone' before running: "
        "--import MODULE on the command line, or an entry point 'torch_ir_tests_gone' of the "
        "group torch_ir.operators in its package.\n"
        f"    {node}\n"
        f"    at {node.location}"
    )
    (finding,) = check_types(ir)
    assert finding.code == "unknown-operator"


def test_operators_that_come_with_torch_need_no_import():
    def quantized(m, x):
        q = torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.1, 3, -128, 127, torch.int8)
        return torch.ops.quantized_decomposed.dequantize_per_tensor(
            q, 0.1, 3, -128, 127, torch.int8
        )

    import torch.ao.quantization.fx._decomposed  # registers them for eager

    runs_as_eager(lambda: Lambda(quantized).eval(), (X,), (X * 9,))
