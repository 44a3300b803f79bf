"""The places of results that an operator leaves as memory was, in which any values are right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from torch_ir.semantics.dtypes import Array
from torch_ir.semantics.operators.losses import is_written
from torch_ir.semantics.operators.matmul import behind_groups


def _of_groups(arguments: Mapping[str, Any], shape: Sequence[int]) -> Array | None:
    offs = arguments.get("offs")
    if offs is None:
        return None
    return behind_groups(shape, arguments["self"].ndim, arguments["mat2"].ndim, offs)


def _of_alignments(arguments: Mapping[str, Any], shape: Sequence[int]) -> Array | None:
    found = ~is_written(**arguments)
    return found if found.shape == tuple(shape) else None


_MARKS: Mapping[tuple[str, int], Callable[[Mapping[str, Any], Sequence[int]], Array | None]] = {
    ("aten._grouped_mm.default", 0): _of_groups,
    ("aten._ctc_loss.default", 1): _of_alignments,
    ("aten._ctc_loss.Tensor", 1): _of_alignments,
}


def may_leave(op_type: str, index: int) -> bool:
    """Return whether a result of an overload may have places that nothing writes.

    Example:
        >>> may_leave("aten._ctc_loss.default", 1), may_leave("aten._ctc_loss.default", 0)
        (True, False)
    """
    return (op_type, index) in _MARKS


def unwritten(
    op_type: str, index: int, arguments: Mapping[str, Any], shape: Sequence[int]
) -> Array:
    """Mark the places of a result that nothing writes.

    Args:
        op_type: The overload.
        index: Which of its results.
        arguments: What its denotation takes, by name.
        shape: The result's.

    Raises:
        InvalidIRError: The denotation refuses the arguments, too.
    """
    marks = _MARKS.get((op_type, index))
    found = None if marks is None else marks(arguments, shape)
    return np.zeros(shape, bool) if found is None else found
