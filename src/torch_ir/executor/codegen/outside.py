"""The symbols that a body does not learn from its arguments, which its caller hands it."""

from __future__ import annotations

from collections.abc import Iterator

from torch_ir.executor.plan import Plan, Step
from torch_ir.infer.binder import Expression, Function, parts_of
from torch_ir.ir.queries import signature_of, told_symbols


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
    ir = plan.ir
    read = {name for step in plan.steps for name in symbols_read(plan, step)}
    told = {binding.symbol for step in plan.steps for binding in step.symbols}
    told |= {size.text for size in signature_of(ir).sizes if size.is_symbol}
    return tuple(sorted((read | ir.returned_symbols) - told - told_symbols(ir)))
