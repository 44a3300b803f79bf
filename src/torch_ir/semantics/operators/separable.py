"""Linear maps that work along one axis after the other: gradients of resampling, antialiasing.

Each axis has a matrix of weights [elements, places]; a gradient goes through its transpose.

Source: torch.nn.functional.interpolate and its derivative. With ``antialias`` a place takes the
elements that a triangle (or Keys' kernel with a = -½, or Lanczos') of the width of the scale
reaches, weighted so that they add up to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, is_float, rounded, widened
from torch_ir.semantics.operators.resampling import (
    Weighting,
    axis_weights,
    cubic_kernel,
    each_or_none,
    in_bytes,
    scales_of,
)
from torch_ir.semantics.registry import denotes

_RANKS = {"1d": 1, "2d": 2, "3d": 3}


def _is_antialiased(op_type: str) -> bool:
    """Whether the kernel leaves out an axis whose size stays, whatever its scale is."""
    return "_aa." in op_type


def matrices(
    op_type: str, arguments: Mapping[str, Any], how: Weighting | None = None
) -> list[Array]:
    """Return the weights [elements, places] on each resampled axis, in float64.

    Args:
        op_type: The operator.
        arguments: Its arguments by name.
        how: How weights of linear and cubic interpolation are computed; exactly by itself.
    """
    base = op_type.split(".")[1]
    rank = next(rank for name, rank in _RANKS.items() if name in base)
    given: Any = arguments.get("self", arguments.get("input"))
    sizes = arguments["input_size"][2:] if given is None else given.shape[2:]
    goal = arguments["output_size"]
    factors = scales_of(rank, arguments)
    if op_type.endswith(".vec"):
        scales = arguments["scale_factors"]
        factors = each_or_none(scales, rank)
        if goal is None:
            goal = [int(n * f) for n, f in zip(sizes, factors, strict=True)]
    stays = [size == count for size, count in zip(sizes, goal, strict=True)]
    if _is_antialiased(op_type):
        factors = [None if stay else f for f, stay in zip(factors, stays, strict=True)]
    elif base == "upsample_bicubic2d_backward" and all(stays):  # its kernel copies
        factors = [None] * rank
    align = bool(arguments.get("align_corners", False))
    weights = _antialiased if "_aa" in base else partial(axis_weights, how=how)
    return [
        weights(base, size, count, factor, align)
        for size, count, factor in zip(sizes, goal, factors, strict=True)
    ]


def _antialiased(base: str, size: int, count: int, factor: float | None, align: bool) -> Array:
    if align:
        scale = (size - 1) / (count - 1) if count > 1 else 0.0
    else:
        scale = 1 / factor if factor else size / count
    (reach, kernel), *_ = (found for kind, found in _KERNELS.items() if kind in base)
    support, stretch = (reach * scale, 1 / scale) if scale >= 1 else (float(reach), 1.0)
    middles = scale * (np.arange(count) + 0.5)
    first = np.maximum((middles - support + 0.5).astype("int64"), 0)
    last = np.minimum((middles + support + 0.5).astype("int64"), size)
    places = np.arange(size)[:, None]
    weights = kernel(np.abs((places - middles + 0.5) * stretch))
    weights = np.where((places >= first) & (places < last), weights, 0.0)
    total = weights.sum(axis=0)
    return weights / np.where(total == 0, 1, total)


def _triangle(far: Array) -> Array:
    return np.maximum(1 - far, 0)


def _sharp_cubic(far: Array) -> Array:
    return np.where(far < 2, cubic_kernel(far, -0.5), 0)


def _lanczos(far: Array) -> Array:
    return np.where(far < 3, np.sinc(far) * np.sinc(far / 3), 0)


_KERNELS: Mapping[str, tuple[int, Callable[[Array], Array]]] = {
    "bilinear": (1, _triangle),
    "bicubic": (2, _sharp_cubic),
    "lanczos": (3, _lanczos),
}
"""How far kernels of antialiased resampling reach, and their weights."""


def through(values: Array, weights: Sequence[Array], *, back: bool) -> Array:
    """Return values after each axis's matrix, or with ``back`` after its transpose.

    What has no weight adds nothing, whatever it is.
    """
    for axis, matrix in enumerate(weights, 2):
        taken = matrix.T if back else matrix
        values = np.moveaxis(_along_last(np.moveaxis(values, axis, -1), taken), -1, axis)
    return values


def _along_last(values: Array, matrix: Array) -> Array:
    """The last axis times a matrix; 0 times an infinity or NaN is 0."""
    finite = np.isfinite(values)
    if finite.all():
        return values @ matrix
    total = np.where(finite, values, 0) @ matrix
    for special in (np.inf, -np.inf):
        for sign in (1, -1):
            total = total + sign * _where_some(values == special, matrix * sign > 0, special)
    return total + _where_some(np.isnan(values), matrix != 0, np.nan)


def _where_some(marked: Array, taken: Array, value: float) -> Array:
    return np.where(marked.astype("float64") @ taken > 0, value, 0.0)


def _declare(op_type: str) -> None:
    back = op_type.endswith("_backward.default")
    operand = "grad_output" if back else "input" if op_type.endswith(".vec") else "self"

    def resampled(**arguments: Any) -> Array:
        """The operand through each axis's weights (of a gradient, their transpose), rounded once.

        Raises:
            InvalidIRError: The operand is not floating, or has other sizes.
        """
        values, weights = arguments[operand], matrices(op_type, arguments)
        sizes = [matrix.shape[back] for matrix in weights]
        if _is_antialiased(op_type) and sizes == [matrix.shape[1] for matrix in weights]:
            return values.copy()
        is_taken = is_float(values.dtype) or (values.dtype == np.uint8 and not back)
        if not is_taken or [*values.shape[2:]] != sizes:
            said = f"{values.dtype} of shape {list(values.shape)}"
            raise InvalidIRError(f"{op_type} takes no {said} for sizes {sizes}")
        if values.dtype == np.uint8:
            return in_bytes(values, weights)
        wide = widened(values)
        return rounded(through(wide, weights, back=back), values.dtype)

    denotes(op_type)(resampled)


BACKWARD = tuple(
    f"aten.{name}_backward.default"
    for name in (
        *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"),
        *("upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
        "_upsample_lanczos2d_aa",
        *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
        *(f"_upsample_nearest_exact{rank}" for rank in _RANKS),
    )
)
ANTIALIASED = tuple(
    f"aten._upsample_{kind}2d_aa.{overload}"
    for kind in _KERNELS
    for overload in ("default", "vec")
)
for _op_type in (*BACKWARD, *ANTIALIASED):
    _declare(_op_type)
