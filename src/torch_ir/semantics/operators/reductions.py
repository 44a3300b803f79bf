"""Sums, products, extremes and truth over dimensions.

``dim`` is one dimension or several; none named (absent, or an empty list) means all, except where
a docstring says otherwise. With ``keepdim`` those reduced stay, with size 1. A tensor without
dimensions is one element, and takes 0 and −1 as dimensions. The order of the summands is not part
of the meaning: sums are of real numbers, rounded once (in float64 and complex128, which nothing
wider computes, as exactly as pairwise summation is).

Source: "Reduction Ops" in torch's documentation, and each function's page there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.axes import axis, reduced_axes
from torch_ir.semantics.dtypes import (
    DEFAULT_FLOAT,
    Array,
    is_bool,
    is_complex,
    is_inexact,
    is_integer,
    real_of,
    result_dtype,
    rounded,
    widened,
)
from torch_ir.semantics.registry import denotes

Dims: TypeAlias = int | Sequence[int] | None


def _wide(values: Array, dtype: np.dtype[Any] | None = None) -> Array:
    """The elements in working precision, first as the given type where there is one."""
    if dtype is not None:
        values = rounded(values, dtype)
    return widened(values)


def accumulated(self: Array, dtype: np.dtype[Any] | None) -> np.dtype[Any]:
    """The type of a sum: the one asked for; int64 of integers and booleans; else its own."""
    if dtype is not None:
        return dtype
    return np.dtype("int64") if self.dtype.kind in "biu" else self.dtype


# -- sums and products ----------------------------------------------------------------------------


@denotes("aten.sum.default", "aten.sum.dim_IntList")
def total(
    self: Array, dim: Dims = None, keepdim: bool = False, *, dtype: np.dtype[Any] | None = None
) -> Array:
    """Sum of the elements, each converted to the result's dtype first; of none, 0.

    Dtype: the one asked for, or int64 for integers and booleans, or the operand's. Integers wrap;
    among booleans (when asked for) + is "or". inf − inf is NaN, and NaN stays.
    """
    dtype = accumulated(self, dtype)
    axes = reduced_axes(dim, self.ndim)
    return rounded(np.sum(_wide(self, dtype), axis=axes, keepdims=keepdim), dtype)


@denotes("aten.nansum.default")
def nansum(
    self: Array, dim: Dims = None, keepdim: bool = False, *, dtype: np.dtype[Any] | None = None
) -> Array:
    """Sum of the elements that are not NaN; see ``sum``."""
    return total(np.where(self != self, np.zeros_like(self), self), dim, keepdim, dtype=dtype)


@denotes("aten.mean.default", "aten.mean.dim")
def mean(
    self: Array, dim: Dims = None, keepdim: bool = False, *, dtype: np.dtype[Any] | None = None
) -> Array:
    """Sum divided by the number of elements, rounded once; of none, 0 / 0 = NaN.

    Dtype: the one asked for, or the operand's.
    """
    taken = _mean_dtype(self, dtype)
    wide = _wide(self, taken)
    return rounded(wide_mean(wide, reduced_axes(dim, self.ndim), keepdim), taken)


def _mean_dtype(self: Array, dtype: np.dtype[Any] | None) -> np.dtype[Any]:
    taken = self.dtype if dtype is None else dtype
    if not is_inexact(taken):
        raise InvalidIRError(f"a mean is floating or complex, not {taken}")
    return taken


def wide_mean(wide: Array, axes: tuple[int, ...], keepdim: bool = True) -> Array:
    """Mean of values in working precision, not rounded."""
    return np.sum(wide, axis=axes, keepdims=keepdim) / count(wide.shape, axes)


def count(shape: Sequence[int], axes: Sequence[int]) -> np.float64:
    """How many elements a reduction over these axes takes together."""
    return np.float64(np.prod([shape[place] for place in axes], dtype="int64"))


@denotes("aten.nanmean.default")
def nanmean(
    self: Array, dim: Dims = None, keepdim: bool = False, *, dtype: np.dtype[Any] | None = None
) -> Array:
    """Mean of the elements that are not NaN; of none, NaN. See ``mean``."""
    taken = _mean_dtype(self, dtype)
    wide = _wide(self, taken)
    axes = reduced_axes(dim, self.ndim)
    present = wide == wide
    sums = np.sum(np.where(present, wide, 0), axis=axes, keepdims=keepdim)
    return rounded(sums / np.sum(present, axis=axes, keepdims=keepdim), taken)


@denotes("aten.prod.default", "aten.prod.dim_int")
def product(
    self: Array, dim: Dims = None, keepdim: bool = False, *, dtype: np.dtype[Any] | None = None
) -> Array:
    """Product of the elements, each converted to the result's dtype first; of none, 1.

    Dtype as for ``sum``. Integers wrap; 0 · inf is NaN.
    """
    dtype = accumulated(self, dtype)
    axes = reduced_axes(dim, self.ndim)
    return rounded(np.prod(_wide(self, dtype), axis=axes, keepdims=keepdim), dtype)


@denotes("aten.trace.default")
def trace(self: Array) -> Array:
    """Sum of a matrix's diagonal; dtype as for ``sum``."""
    if self.ndim != 2:
        raise InvalidIRError(f"a tensor of shape {list(self.shape)} is no matrix")
    return total(np.diagonal(self))


@denotes("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(self: Array, dim: Dims = None) -> Array:
    """How many elements are not 0; NaN is not. Dtype int64."""
    axes = reduced_axes(dim, self.ndim)
    return np.asarray(np.sum(self != 0, axis=axes, dtype="int64"))


# -- truth ----------------------------------------------------------------------------------------


def _declare_truth(name: str, reduce: Callable[..., Any]) -> None:
    @denotes(
        *[f"aten.{name}.{overload}" for overload in ("default", "dim", "dims")],
        f"aten._is_{name}_true.default",
    )
    def truth(self: Array, dim: Dims = None, keepdim: bool = False) -> Array:
        """Whether some (every) element is not 0; NaN is not. Of none: false (true).

        Dtype bool, but uint8 for uint8. An empty list of dimensions reduces none.
        """
        axes = () if dim is not None and dim in ([], ()) else reduced_axes(dim, self.ndim)
        found = np.asarray(reduce(self != 0, axis=axes, keepdims=keepdim))
        return found.astype(self.dtype if self.dtype == np.uint8 else bool)


_declare_truth("any", np.any)
_declare_truth("all", np.all)


# -- extremes -------------------------------------------------------------------------------------


def _ordered(self: Array) -> Array:
    """Elements that NumPy can compare, in an order that is theirs."""
    if is_complex(self.dtype):
        raise InvalidIRError(f"{self.dtype} has no order")
    return widened(self)


def _require_elements(self: Array, axes: Sequence[int]) -> None:
    if any(self.shape[place] == 0 for place in axes):
        raise InvalidIRError(f"shape {list(self.shape)} has no extreme over a size of 0")


def _extreme_place(wide: Array, place: int, largest: bool) -> Array:
    """The first index of a line's largest (smallest) element; a NaN is larger (smaller) than all.

    Returns:
        int64 indices, the dimension ``place`` kept with size 1.
    """
    nan = wide != wide
    if is_bool(wide.dtype):
        wide = wide.astype("uint8")
    found = np.argmax(wide, axis=place) if largest else np.argmin(wide, axis=place)
    first_nan = np.argmax(nan, axis=place)
    return np.expand_dims(np.where(nan.any(axis=place), first_nan, found), place)


def _extreme(self: Array, dim: Dims, keepdim: bool, largest: bool) -> Array:
    """The value over dimensions: NaN where one is."""
    axes = reduced_axes(dim, self.ndim)
    _require_elements(self, axes)
    reduce = np.max if largest else np.min
    return rounded(reduce(_ordered(self), axis=axes, keepdims=keepdim), self.dtype)


@denotes("aten.aminmax.default", "aten._aminmax.default", "aten._aminmax.dim")
def aminmax(self: Array, *, dim: int | None = None, keepdim: bool = False) -> tuple[Array, Array]:
    """The smallest and the largest element; see ``amax``."""
    return _extreme(self, dim, keepdim, largest=False), _extreme(self, dim, keepdim, largest=True)


def _value_and_place(self: Array, dim: int, keepdim: bool, largest: bool) -> tuple[Array, Array]:
    values = np.atleast_1d(self)
    place = axis(dim, self.ndim)
    _require_elements(values, [place])
    places = _extreme_place(_ordered(values), place, largest)
    found = np.take_along_axis(values, places, place)
    shape = list(found.shape) if keepdim else [*found.shape[:place], *found.shape[place + 1 :]]
    shape = shape if self.ndim else []
    return found.reshape(shape), places.reshape(shape)


def _declare_extremes(name: str, largest: bool) -> None:
    @denotes(f"aten.a{name}.default", f"aten.{name}.default")
    def value(self: Array, dim: Dims = (), keepdim: bool = False) -> Array:
        """The largest (smallest) element; NaN where there is one.

        Which of +0 and −0 it is, is undefined.
        """
        return _extreme(self, dim, keepdim, largest)

    @denotes(f"aten.{name}.dim")
    def in_lines(self: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
        """Each line's largest (smallest) element, and the first index where it stands (int64).

        A NaN counts as largest (smallest): the first one, if there is any.
        """
        return _value_and_place(self, dim, keepdim, largest)

    @denotes(f"aten.arg{name}.default")
    def place(self: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        """The first index of the largest (smallest) element, a NaN being that; int64.

        Without ``dim``, the index among all elements row by row.
        """
        if is_bool(self.dtype):
            raise InvalidIRError("booleans have no place of an extreme")
        if dim is not None:
            return _value_and_place(self, dim, keepdim, largest)[1]
        found = _value_and_place(self.reshape(-1), 0, False, largest)[1]
        return found.reshape([1] * self.ndim) if keepdim else found


_declare_extremes("max", largest=True)
_declare_extremes("min", largest=False)


# -- logarithm of sums ----------------------------------------------------------------------------


def wide_log_sum(wide: Array, axes: int | tuple[int, ...]) -> Array:
    """Return ``log Σ exp`` over axes, which stay with size 1; of nothing but -inf, -inf.

    What is raised are values less the largest, so that it does not overflow.
    """
    peak = np.max(np.real(wide), axis=axes, keepdims=True, initial=-np.inf)
    peak = np.where(np.isinf(peak), 0, peak)
    return np.log(np.sum(np.exp(wide - peak), axis=axes, keepdims=True)) + peak


@denotes("aten.logsumexp.default", "aten.special_logsumexp.default")
def logsumexp(self: Array, dim: Dims, keepdim: bool = False) -> Array:
    """``log Σ exp(self)``, without overflow between; of no elements, −inf.

    inf where an element is inf, −inf where all are. Dtype: the operand's, float32 for integers.
    """
    dtype = DEFAULT_FLOAT if is_integer(self.dtype) or is_bool(self.dtype) else self.dtype
    axes = reduced_axes(dim, self.ndim)
    result = wide_log_sum(_wide(self, dtype), axes)
    return rounded(result if keepdim else np.squeeze(result, axes), dtype)


# -- norms ----------------------------------------------------------------------------------------


def wide_norm(magnitude: Array, order: float, axes: tuple[int, ...], keepdim: bool) -> Array:
    """``(Σ |x|ᵖ)^(1/p)`` in working precision; p = 0 counts what is not 0, ±inf is an extreme."""
    if order == 0:
        return np.sum(magnitude != 0, axis=axes, keepdims=keepdim).astype("float64")
    if np.isinf(order):
        reduce = np.max if order > 0 else np.min
        return reduce(magnitude, axis=axes, keepdims=keepdim)
    if order == 1:
        return np.sum(magnitude, axis=axes, keepdims=keepdim)
    powers = np.sum(np.power(magnitude, order), axis=axes, keepdims=keepdim)
    return np.sqrt(powers) if order == 2 else np.power(powers, 1 / order)


@denotes("aten.linalg_vector_norm.default")
def vector_norm(
    self: Array,
    ord: float = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """``(Σ |x|ᵖ)^(1/p)`` over dimensions, for p = ``ord``.

    p = inf is the largest |x|, −inf the smallest, 0 how many are not 0. Dtype: real, of the
    operand's precision or that of the one asked for. Of no elements: 0.
    """
    if not is_inexact(self.dtype):
        raise InvalidIRError(f"{self.dtype} has no norm")
    if dtype is not None and is_complex(dtype) != is_complex(self.dtype):
        raise InvalidIRError(f"a norm of {self.dtype} is not taken in {dtype}")
    axes = reduced_axes(dim, self.ndim)
    if ord < 0 or ord == np.inf:
        _require_elements(self, axes)
    taken = self.dtype if dtype is None else dtype
    magnitude = np.abs(_wide(self, taken))
    result = wide_norm(magnitude, float(ord), axes, keepdim)
    return rounded(result, real_of(taken))


@denotes("aten.linalg__powsum.default")
def power_sum(
    self: Array,
    ord: float = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: np.dtype[Any] | None = None,
) -> Array:
    """``Σ |x|ᵖ`` over dimensions, for p = ``ord``; type and shape as of ``linalg_vector_norm``.

    Of moduli in the type asked for: integers are taken in it, and complex numbers in a real one.
    """
    taken = self.dtype if dtype is None else dtype
    if not is_inexact(taken):
        raise InvalidIRError(f"{taken} has no sum of powers")
    powers = np.power(_wide(np.abs(widened(self)), real_of(taken)), float(ord))
    return rounded(
        np.sum(powers, axis=reduced_axes(dim, self.ndim), keepdims=keepdim), real_of(taken)
    )


@denotes(
    *("aten.norm.Scalar", "aten.norm.ScalarOpt_dim"),
    *("aten.norm.ScalarOpt_dtype", "aten.norm.ScalarOpt_dim_dtype"),
)
def norm(self: Array, p: float | None = 2, **arguments: Any) -> Array:
    """The norm of order ``p``, 2 where absent; see ``linalg_vector_norm``."""
    return vector_norm(self, 2 if p is None else p, **arguments)


@denotes("aten.dist.default")
def dist(self: Array, other: Array, p: float = 2) -> Array:
    """The norm of the difference of two tensors, which broadcast; shape []."""
    difference = _wide(self) - _wide(other)
    dtype = real_of(result_dtype(self, other))
    if not difference.size:
        return rounded(0.0, dtype)
    magnitude = np.abs(difference)
    axes = reduced_axes(None, magnitude.ndim)
    return rounded(wide_norm(magnitude, float(p), axes, False), dtype)
