"""The symbols that a body does not learn from its arguments, which its caller hands it."""

from __future__ import annotations

from collections.abc import Iterator

from torch_ir.executor.plan import Plan, Step
from torch_ir.infer.binder import Expression, Function, parts_of
from torch_ir.ir import SymExpr, ValueLeaf
from torch_ir.ir.queries import told_symbols
from torch_ir.ir.tree import leaves


def outside_symbols(plan: Plan) -> tuple[str, ...]:
    """Return the symbols that a body reads and that none of its arguments tells.

    Of ``f32[s0*s1]`` neither can be told.
    """
    return plan.ir.view("outside_symbols", lambda: _outside(plan))


def symbols_read(plan: Plan, step: Step) -> Iterator[str]:
    """Yield the symbols that the arguments of a call are made of, and that its bodies need."""
    for part in parts_of(step.call.operands):
        if isinstance(part, Expression):
            yield from part.value.symbols
        elif isinstance(part, Function):
            yield from outside_symbols(plan.functions[part.name])


def _outside(plan: Plan) -> tuple[str, ...]:
    ir, tree = plan.ir, plan.ir.signature
    told = set(told_symbols(ir))
    read = {name for step in plan.steps for name in symbols_read(plan, step)}
    if tree is not None:
        told |= {dim.text for dim in _expressions(leaves(tree.inputs)) if dim.is_symbol}
        read |= {name for dim in _expressions(leaves(tree.outputs)) for name in dim.symbols}
    told |= {binding.symbol for step in plan.steps for binding in step.symbols}
    return tuple(sorted(read - told))


def _expressions(found: Iterator[object]) -> Iterator[SymExpr]:
    for leaf in found:
        if isinstance(leaf, ValueLeaf) and isinstance(leaf.value, SymExpr):
            yield leaf.value
