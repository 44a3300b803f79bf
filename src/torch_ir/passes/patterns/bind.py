"""Rewrites that put an operator of a target in place of the pattern that it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch_ir.dialects.backend.binding import bind_pattern_to_op, bindings
from torch_ir.errors import PassError, did_you_mean
from torch_ir.infer.resolve import resolve_operator
from torch_ir.passes.patterns.rewrite import Condition, Rewrite

__all__ = ["bind_pattern_to_op", "fusion"]


def fusion(
    op_type: str,
    example_inputs: Sequence[Any],
    *,
    attributes: Mapping[str, Any] | None = None,
    where: Condition | None = None,
    tolerance: float = 0.0,
    examples: Sequence[Mapping[str, Any]] = (),
) -> Rewrite:
    """Return the rewrite that puts a bound operator in place of its pattern.

    Args:
        op_type: The operator, such as ``"mylib.linrelu.default"``.
        example_inputs: Tensors to trace the pattern with: the operator's tensor arguments.
        attributes: Its other arguments, by name, with a value to try each with; any is matched.
        where: Which matches to rewrite.
        tolerance: As in :class:`Rewrite`.
        examples: As in :class:`Rewrite`.

    Raises:
        PassError: No pattern is bound to the operator; the message names the closest.
    """
    known = bindings()
    if op_type not in known:
        raise PassError(
            f"no pattern is bound to {op_type!r}",
            remedy=did_you_mean(op_type, known) or "Bind one with bind_pattern_to_op.",
        )
    operator = cast(Any, resolve_operator(op_type))
    return Rewrite(
        known[op_type].pattern,
        lambda *args, **kwargs: operator(*args, **kwargs),
        tuple(example_inputs),
        attributes or {},
        where,
        tolerance,
        examples=examples,
    )
