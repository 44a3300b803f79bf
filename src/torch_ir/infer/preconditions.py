"""Operators whose kernels trust their caller, and what has to hold before they are called.

Such a kernel reads or writes as far as an index or a size says, without a look at where its
tensors end. :data:`PRECONDITIONS` has a rule for each of them, overload by overload. Rules about
shapes are asked when a graph is compiled, and again with the tensors of each call, as sizes may
depend on its inputs; rules about values are asked in the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from torch_ir.errors import ExecutionError, InvalidIRError
from torch_ir.infer.recurrent_rules import (
    Arguments,
    Faults,
    one_layer,
    packed_sequences,
    recurrent,
)
from torch_ir.ops.schema import lookup
from torch_ir.torch_api import FakeTensor


@dataclass(frozen=True, slots=True)
class Precondition:
    """What has to hold before an operator is called.

    Attributes:
        op_type: The exact overload.
        shapes: Yields what does not fit in the shapes, numbers and list lengths of a call.
        values: Yields what does not fit in the values of its tensors; asked after ``shapes``.
    """

    op_type: str
    shapes: Callable[[Arguments], Faults] | None = None
    values: Callable[[Arguments], Faults] | None = None


def find_shape_fault(op_type: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the shapes of a call; None if nothing is, or no rule is known.

    Args:
        op_type: The overload.
        args: Its positional arguments; a tensor may be anything that has its ``shape``.
        kwargs: Its keyword arguments.

    Example:
        >>> lstm = torch.nn.LSTM(8, 6)
        >>> x, states = torch.ones(5, 2, 8), [torch.ones(1, 3, 6), torch.ones(1, 3, 6)]
        >>> rest = (lstm._flat_weights, True, 1, 0.0, False, False, False)
        >>> find_shape_fault("aten.lstm.input", (x, states, *rest), {})
        'hx[0] is [1, 3, 6], and has to be [1, 2, 6]'
    """
    rule = PRECONDITIONS.get(op_type)
    if rule is None or rule.shapes is None:
        return None
    return next(rule.shapes(_named(op_type, args, kwargs)), None)


def require_arguments(op_type: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a call whose kernel would read or write where it must not.

    Args:
        op_type: The overload; nothing is asked of one without a rule.
        args: Its positional arguments, with tensors that have data.
        kwargs: Its keyword arguments.

    Raises:
        ExecutionError: It would; the message names the argument, the value and what is allowed.
    """
    rule = PRECONDITIONS.get(op_type)
    if rule is None:
        return
    named = _named(op_type, args, kwargs)
    fault = next(rule.shapes(named), None) if rule.shapes is not None else None
    if fault is None and rule.values is not None and not any(map(_has_no_data, named.values())):
        fault = next(rule.values(named), None)
    if fault is not None:
        raise ExecutionError(f"{op_type} cannot take these arguments: {fault}")


def _has_no_data(value: Any) -> bool:
    """Whether somebody traces the run: there is nothing to read then."""
    return isinstance(value, FakeTensor) or (isinstance(value, torch.Tensor) and value.is_meta)


def _named(op_type: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {**dict(zip(_names(op_type), args, strict=False)), **kwargs}


@cache
def _names(op_type: str) -> tuple[str, ...]:
    schema = lookup(op_type)
    if schema is None:
        raise InvalidIRError(f"a rule is for {op_type!r}, which is not in the table of operators")
    return tuple([argument.name for argument in schema.arguments])


# -- the table ------------------------------------------------------------------------------------

_RECURRENT = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def _table() -> dict[str, Precondition]:
    rules: list[Precondition] = []
    for name, gates in _RECURRENT.items():
        rules.append(Precondition(f"aten.{name}.input", recurrent(gates)))
        rules.append(Precondition(f"aten.{name}.data", recurrent(gates), packed_sequences))
    for overload in ("default", "out"):
        rules.append(Precondition(f"aten.mkldnn_rnn_layer.{overload}", one_layer))
    return {rule.op_type: rule for rule in rules}


PRECONDITIONS: Mapping[str, Precondition] = _table()
"""The rule of each operator whose kernel trusts its caller."""
