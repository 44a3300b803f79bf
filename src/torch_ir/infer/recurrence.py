"""Ask a recurrent layer about two of its steps: what it gives for more differs in one size.

torch's Python implementations, which fake and meta tensors run, call each step by itself, so that
an outcome would cost as much as the sequence is long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from torch_ir.infer.types import CallSignature, Outcome, TensorType
from torch_ir.ir import Dim
from torch_ir.ops.flops import GATES

O = TypeVar("O", bound=Outcome)  # noqa: E741  # of an outcome, or of what is more

_STEPPING = frozenset(f"aten.{name}.input" for name in GATES)
_ENOUGH = 2
"""Steps: a dimension of size 1 may have another stride than a longer one."""


def in_two_steps(find: Callable[[CallSignature], O], signature: CallSignature) -> O:
    """Return what a function finds about a call; a long recurrent one is asked about as a short.

    Args:
        find: Takes the signature of a call.
        signature: The call.

    Example:
        >>> from torch_ir.infer.engine import evaluate
        >>> from torch_ir.ir import FrozenDict
        >>> x, hx, w = ((9, 1, 4), (4, 4, 1)), ((1, 1, 2), (2, 2, 1)), ((2, 4), (4, 1))
        >>> types = [TensorType(s, "float32", t) for s, t in (x, hx, w, ((2, 2), (2, 1)))]
        >>> flags = dict(has_biases=False, num_layers=1, dropout=0.0, train=False)
        >>> flags |= dict(bidirectional=False, batch_first=False)
        >>> places = FrozenDict(input=0, hx=1, params=(2, 3))
        >>> call = CallSignature("aten.rnn_tanh.input", FrozenDict(flags), places, tuple(types))
        >>> [made.shape for made in evaluate(call).results]
        [(9, 1, 2), (1, 1, 2)]
    """
    if signature.op_type not in _STEPPING:
        return find(signature)
    operands, dim = signature.operands, 1 if signature.attrs.get("batch_first") else 0
    place = operands.get("input") if operands else None
    if not isinstance(place, int) or len(signature.types[place].shape) != 3:
        return find(signature)
    given = signature.types[place]
    steps = given.shape[dim]
    if not isinstance(steps, int) or steps <= _ENOUGH:
        return find(signature)
    types = list(signature.types)
    types[place] = _with_steps(given, dim, _ENOUGH)
    found = find(signature._replace(types=tuple(types)))
    if found.kind != "ok" or found.results[0] is None:
        return find(signature)  # a refusal names the sizes of the call
    first = _with_steps(found.results[0], dim, steps)
    return replace(found, results=(first, *found.results[1:]))


def _with_steps(kind: TensorType, dim: int, steps: Dim) -> TensorType:
    shape = list(kind.shape)
    shape[dim] = steps
    return kind._replace(shape=tuple(shape))
