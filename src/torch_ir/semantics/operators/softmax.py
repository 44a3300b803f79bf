"""Softmax along one dimension, its logarithm, and the gradients of both.

Source: torch.softmax and torch.log_softmax in torch's documentation, and their derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.axes import axis
from torch_ir.semantics.dtypes import Array, is_float, rounded, widened, working
from torch_ir.semantics.registry import declare, denotes


def _axes(dim: int, rank: int) -> tuple[int, ...]:
    place = axis(dim, rank)
    return (place,) if rank else ()


def _below(wide: Array, axes: tuple[int, ...]) -> Array:
    """Values less their line's largest: ``exp`` does not overflow, and inf − inf is NaN."""
    return wide - np.max(wide, axis=axes, keepdims=True, initial=-np.inf)


def wide_log_softmax(wide: Array, dim: int) -> Array:
    """``x − log Σ exp(x)`` along a dimension, in working precision."""
    axes = _axes(dim, wide.ndim)
    below = _below(wide, axes)
    return below - np.log(np.sum(np.exp(below), axis=axes, keepdims=True))


def wide_softmax(wide: Array, dim: int) -> Array:
    """``exp(x) / Σ exp(x)`` along a dimension, in working precision."""
    axes = _axes(dim, wide.ndim)
    powers = np.exp(_below(wide, axes))
    return powers / np.sum(powers, axis=axes, keepdims=True)


def _taken(self: Array, dtype: np.dtype[Any] | None) -> np.dtype[Any]:
    return self.dtype if dtype is None else dtype


def _floating(self: Array, dtype: np.dtype[Any] | None) -> Array:
    """The elements as the dtype asked for, in working precision."""
    taken = _taken(self, dtype)
    if not is_float(taken):
        raise InvalidIRError(f"softmax is floating, not {taken}")
    return rounded(self, taken).astype(working(taken))


def _declare(name: str, wide: Callable[[Array, int], Array], meaning: str) -> None:
    def of_widened(self: Array, dim: int, half_to_float: bool = False) -> Array:
        return rounded(wide(_floating(self, None), dim), _widened(self, half_to_float))

    def of_converted(self: Array, dim: int, dtype: np.dtype[Any] | None = None) -> Array:
        return rounded(wide(_floating(self, dtype), dim), _taken(self, dtype))

    declare(of_widened, meaning, f"aten._{name}.default")
    form = f"``_{name}`` of the elements converted to ``dtype`` where it is given."
    declare(of_converted, form, f"aten.{name}.int", f"aten.special_{name}.default")


_declare(
    "softmax",
    wide_softmax,
    """``exp(xᵢ) / Σⱼ exp(xⱼ)`` along ``dim``; of no elements, none.

    Dtype: the operand's, or float32 for float16 with ``half_to_float``. A line is NaN where it has
    NaN or inf, or only −inf. A tensor without dimensions gives 1.

    Raises:
        InvalidIRError: The operand is not floating, or ``half_to_float`` is set for another type.
    """,
)
_declare(
    "log_softmax",
    wide_log_softmax,
    """``xᵢ − log Σⱼ exp(xⱼ)`` along ``dim``, rounded once; otherwise as ``_softmax``.

    0 in a line of one element, −inf for −inf beside finite elements.
    """,
)


def _widened(self: Array, half_to_float: bool) -> np.dtype[Any]:
    if half_to_float and self.dtype.itemsize != 2:
        raise InvalidIRError(f"{self.dtype} is no half of a float32")
    return np.dtype("float32") if half_to_float else self.dtype


@denotes("aten._safe_softmax.default")
def safe_softmax(self: Array, dim: int, dtype: np.dtype[Any] | None = None) -> Array:
    """``_softmax``, but 0 along a line that is all −inf."""
    wide = _floating(self, dtype)
    axes = _axes(dim, wide.ndim)
    masked = np.all(wide == -np.inf, axis=axes, keepdims=True)
    return rounded(np.where(masked, 0, wide_softmax(wide, dim)), _taken(self, dtype))


@denotes("aten._masked_softmax.default")
def masked_softmax(
    self: Array, mask: Array, dim: int | None = None, mask_type: int | None = None
) -> Array:
    """``_softmax`` of the elements where the mask is false, and 0 where it is true.

    A line that is masked as a whole is NaN. ``dim`` is the last by default. A mask of four-
    dimensional scores may be one matrix: of queries and keys (``mask_type`` 0), or of samples and
    keys (1); else it has the shape of the operand.
    """
    place, hidden = -1 if dim is None else dim, hidden_by(self, mask, mask_type)
    wide = np.where(hidden, -np.inf, _floating(self, None))
    axes = _axes(place, wide.ndim)
    lost = np.all(hidden, axis=axes, keepdims=True)
    made = np.where(hidden, 0, wide_softmax(wide, place))
    return rounded(np.where(lost, np.nan, made), self.dtype)


def hidden_by(values: Array, mask: Array, mask_type: int | None) -> Array:
    """Return the mask of each element: true where it is left out."""
    shape, kind = values.shape, mask_type if values.ndim == 4 and mask.ndim == 2 else 2
    wanted = {0: (*shape[2:3] * 2,), 1: (*shape[:1], *shape[2:3]), 2: shape}.get(kind or 0)
    if mask.dtype != bool or kind is None or mask.shape != wanted:
        raise InvalidIRError(
            f"a mask of {mask.dtype} {list(mask.shape)} hides no elements of {list(shape)}"
        )
    ways = {0: mask[None, None], 1: mask[:, None, None] if mask.ndim else mask, 2: mask}
    return np.broadcast_to(ways[kind], shape)


# -- gradients ------------------------------------------------------------------------------------


@denotes("aten._softmax_backward_data.default")
def softmax_backward(
    grad_output: Array, output: Array, dim: int, input_dtype: np.dtype[Any]
) -> Array:
    """``(gᵢ − Σⱼ gⱼ yⱼ) yᵢ`` along ``dim``, of a given softmax y."""
    gradient, made = widened(grad_output), widened(output)
    total = np.sum(gradient * made, axis=_axes(dim, made.ndim), keepdims=True)
    return rounded((gradient - total) * made, input_dtype)


@denotes("aten._masked_softmax_backward.default")
def masked_softmax_backward(
    grad_output: Array, output: Array, mask: Array, dim: int | None = None
) -> Array:
    """``(gᵢ − Σⱼ gⱼ yⱼ) yᵢ`` over what is not masked, and 0 where it is."""
    gradient, made = (np.where(mask, 0, widened(values)) for values in (grad_output, output))
    axes = _axes(-1 if dim is None else dim, made.ndim)
    total = np.sum(gradient * made, axis=axes, keepdims=True)
    return rounded(np.where(mask, 0, (gradient - total) * made), grad_output.dtype)


@denotes("aten._log_softmax_backward_data.default")
def log_softmax_backward(
    grad_output: Array, output: Array, dim: int, input_dtype: np.dtype[Any]
) -> Array:
    """``gᵢ − exp(yᵢ) Σⱼ gⱼ`` along ``dim``, of a given logarithm y."""
    gradient, made = widened(grad_output), widened(output)
    total = np.sum(gradient, axis=_axes(dim, made.ndim), keepdims=True)
    return rounded(gradient - np.exp(made) * total, input_dtype)
