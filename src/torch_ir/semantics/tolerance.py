"""Error bounds: the difference that is allowed between a kernel's result and the denotation.

A denotation rounds once; a kernel rounds at every step, in an order of its own. How far that may
take it follows from what the operator is, stated and justified in ``docs/semantics.md``:

``|kernel - meaning| ≤ ulp · (unit in the last place of the meaning) + share · magnitude``

Integers and booleans, and all that only moves or picks elements, must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt, prod
from typing import Any, Literal

import ml_dtypes
import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, is_complex, is_float
from torch_ir.semantics.registry import denotation

Kind = Literal["exact", "rounded", "function", "sum", "steps"]
Magnitude = Literal["none", "terms", "peak", "largest", "spread", "squares"]
Class = tuple[Kind, Magnitude]

_FAMILIES: dict[Class, str] = {
    ("exact", "none"): (
        "assertions bitwise_logical comparison conversion indexing joining movement padding "
        "quantization random scattering slicing sorting"
    ),
    ("rounded", "none"): "arithmetic creation",
    ("function", "none"): "activations complex_numbers elementwise",
    ("sum", "terms"): "embeddings matmul reductions scans",
    ("steps", "terms"): "adaptive_pooling convolution folding pooling",
    ("steps", "largest"): "attention distance softmax",
    ("steps", "spread"): (
        "control_flow grid_sampling normalization normalization_backward resampling"
    ),
    ("sum", "squares"): "statistics",
    ("sum", "peak"): "spectral",
}
"""What the operators of each file of ``semantics/operators`` are, unless named below."""

_OPERATORS: dict[Class, str] = {
    # pick one of their operands' values, or change its sign or keep its whole part
    ("exact", "none"): (
        "_conj _conj_physical amax amin aminmax ceil clamp clamp_max clamp_min clip conj "
        "conj_physical copysign cummax cummin embedding fix floor fmax fmin fmod frac hardshrink "
        "hardtanh heaviside imag max maximum min minimum nan_to_num neg negative one_hot positive "
        "real relu relu6 resolve_conj resolve_neg round sign threshold trunc view_as_complex "
        "view_as_real where adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d "
        "max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d "
        "max_pool3d_with_indices upsample_nearest1d upsample_nearest2d upsample_nearest3d "
        "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d"
    ),
    ("rounded", "none"): (
        "_prelu_kernel abs absolute deg2rad leaky_relu prelu rad2deg reciprocal rsqrt sgn "
        "softshrink sqrt"
    ),
    ("function", "none"): "arctan2 atan2 hypot pow xlogy",
    ("steps", "terms"): (
        "addbmm addr index_add index_put index_reduce put scatter_add scatter_reduce "
        "max_pool2d_with_indices_backward max_pool3d_with_indices_backward prod cumprod"
    ),
    # their result may be much smaller than what it is computed from
    ("steps", "largest"): (
        "addcdiv addcmul dist gelu lerp lgamma linalg_vector_norm linspace logaddexp logcumsumexp "
        "logit logsumexp norm softplus special_gammaln special_logit special_logsumexp"
    ),
    ("steps", "spread"): "sinc special_sinc",
}
"""Operators that are something else than the rest of their file, by the middle of their name."""

_ULP: dict[Kind, float] = {"exact": 0, "rounded": 1, "function": 4, "sum": 1, "steps": 1}
_COMPLEX: dict[Kind, float] = {"exact": 1, "rounded": 3, "function": 16, "sum": 3, "steps": 3}
"""How much more units complex numbers need: a product has error √5, a function is several."""

_STEPS = 4
"""How many roundings to the result's own type a kernel of kind "steps" may make on the way."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a result may be off; both 0 where it must be equal.

    Attributes:
        ulp: In units in the last place of the meaning, in the result's type.
        share: Of the magnitude of what was summed; see :func:`magnitudes`.
    """

    ulp: float
    share: float


def classified(op_type: str) -> Class:
    """Return the kind of an operator, and the magnitude that its rounding errors grow with.

    Raises:
        InvalidIRError: It has no denotation, or its file is not classified.
    """
    family = _family(op_type)
    base = op_type.split(".")[1]
    found = _inverse(_OPERATORS).get(base) or _inverse(_FAMILIES).get(family)
    if found is None:
        raise InvalidIRError(f"no tolerance is stated for {op_type}, of {family}")
    return found


def _family(op_type: str) -> str:
    """The file that says what it means."""
    return denotation(op_type).function.__module__.rpartition(".")[2]


def _inverse(table: Mapping[Class, str]) -> dict[str, Class]:
    return {name: kind for kind, names in table.items() for name in names.split()}


def tolerance(op_type: str, dtype: np.dtype[Any], length: int = 1) -> Tolerance:
    """Return the difference that is allowed between a kernel's result and the denotation.

    Args:
        op_type: The exact overload.
        dtype: Of the result.
        length: How many terms its longest sum has.

    Raises:
        InvalidIRError: The operator has no denotation or is not classified.

    Example:
        >>> tolerance("aten.view.default", np.dtype("float32"))
        Tolerance(ulp=0, share=0)
        >>> tolerance("aten.exp.default", np.dtype("float32"))
        Tolerance(ulp=4, share=0)
        >>> tolerance("aten.mm.default", np.dtype("float32"), 384).share * 2**23
        21.0
    """
    kind, _ = classified(op_type)
    if kind == "exact" or not (is_float(dtype) or is_complex(dtype)):
        return Tolerance(0, 0)
    ulp = _ULP[kind] * (_COMPLEX[kind] if is_complex(dtype) else 1)
    if kind in ("rounded", "function"):
        return Tolerance(ulp, 0)
    share = (2 + isqrt(length)) * _epsilon(_accumulated_in(dtype))
    return Tolerance(ulp, share + (_STEPS * _epsilon(dtype) if kind == "steps" else 0))


def _accumulated_in(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Kernels sum numbers of half precision in float32."""
    return np.dtype("float32") if dtype.itemsize < 4 else dtype


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if not is_complex(dtype):
        return dtype
    return np.dtype("float64" if dtype.itemsize == 16 else "float32")


def _epsilon(dtype: np.dtype[Any]) -> float:
    return float(ml_dtypes.finfo(_real(dtype)).eps)


def allowed_error(
    op_type: str, arguments: Mapping[str, Any], results: Sequence[Any]
) -> list[Array]:
    """Compute the error that is allowed in each element of each result.

    Args:
        op_type: The exact overload.
        arguments: What its denotation took, by name.
        results: What it gave.

    Returns:
        For each result that is an array, float64 bounds of its shape, 0 where it must be equal.
    """
    arrays = [result for result in results if isinstance(result, np.ndarray)]
    length = reduction_length(op_type, arguments, arrays)
    bounds: list[Array] = []
    sizes: list[Any] | None = None
    for index, result in enumerate(arrays):
        allowed = tolerance(op_type, result.dtype, length)
        bound = allowed.ulp * spacing(result) if allowed.ulp else np.zeros(result.shape)
        if allowed.share:
            sizes = magnitudes(op_type, arguments, arrays) if sizes is None else sizes
            bound = bound + allowed.share * sizes[index]
        elif allowed.ulp and _rounds_an_operand(arguments, result.dtype):
            bound = bound + _epsilon(result.dtype) * _scaled_operand(arguments)
        bounds.append(bound)
    return bounds


def spacing(values: Array) -> Array:
    """Return one unit in the last place of each value's modulus, in float64.

    Of what is less than twice the least normal number (of float32, for half precision), all of
    that: vector kernels may make it 0.
    """
    info: Any = ml_dtypes.finfo(_real(values.dtype))
    normal = float(ml_dtypes.finfo(_accumulated_in(_real(values.dtype))).smallest_normal)
    sizes = _moduli(values)
    _, exponents = np.frexp(np.where(np.isfinite(sizes), sizes, 0))
    units = np.maximum(np.ldexp(1.0, exponents - 1 - info.nmant), float(info.smallest_subnormal))
    return np.where(sizes < 2 * normal, max(2 * normal, float(info.smallest_subnormal)), units)


def _moduli(values: Array) -> Array:
    wide = np.abs(values.astype("complex128" if is_complex(values.dtype) else "float64"))
    return np.asarray(wide)


def magnitudes(op_type: str, arguments: Mapping[str, Any], results: Sequence[Array]) -> list[Any]:
    """Return the magnitude that a sum's rounding errors grow with: an array or number a result.

    * "terms" (or "none"): Σ |terms|, which is what the operator gives for the absolute values of
      its arguments, as it is linear in each of them;
    * "peak": the greatest of these;
    * "largest": the greatest finite modulus among arguments and results;
    * "spread": three times that (weights of both signs may add up to more than 1), and as much
      more as a norm divides by less than 1;
    * "squares": the square of that.
    """
    _, magnitude = classified(op_type)
    largest = _largest([*arguments.values(), *results])
    if magnitude == "squares":
        return [largest * max(largest, 1)] * len(results)
    if magnitude == "largest":
        return [largest] * len(results)
    if magnitude == "spread":
        divided = _largest(results[2:]) if len(results) == 3 else 1
        return [3 * largest * max(divided, 1)] * len(results)
    absolute = {name: _absolute(value) for name, value in arguments.items()}
    with np.errstate(all="ignore"):
        given = denotation(op_type).function(**absolute)
    parts = [
        part for part in (given if isinstance(given, tuple) else (given,)) if part is not None
    ]
    sizes = [_moduli(part) for part in parts if isinstance(part, np.ndarray)]
    sizes = [np.where(np.isfinite(size), size, largest) for size in sizes]
    return [size.max(initial=0) for size in sizes] if magnitude == "peak" else sizes


def _largest(values: Sequence[Any]) -> float:
    greatest = 0.0
    for value in values:
        if isinstance(value, list | tuple):
            greatest = max(greatest, _largest(value))
        elif isinstance(value, np.ndarray):
            sizes = _moduli(value)
            greatest = max(greatest, float(sizes.max(initial=0, where=np.isfinite(sizes))))
    return greatest


def _rounds_an_operand(arguments: Mapping[str, Any], dtype: np.dtype[Any]) -> bool:
    """Whether kernels round ``alpha · other`` by itself, or a number to half precision."""
    number = isinstance(arguments.get("other"), float) and dtype.itemsize == 2
    return number or arguments.get("alpha", 1) != 1


def _scaled_operand(arguments: Mapping[str, Any]) -> float:
    """The greatest modulus of ``alpha · other``, or of ``alpha · self`` where that is scaled."""
    operands = [np.asarray(arguments[name]) for name in ("self", "other") if name in arguments]
    return _largest(operands) * max(abs(arguments.get("alpha", 1)), 1)


def _absolute(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_absolute, value))
    if isinstance(value, np.ndarray) and (is_float(value.dtype) or is_complex(value.dtype)):
        return np.abs(value).astype(value.dtype)
    return abs(value) if isinstance(value, float | complex) else value


# -- lengths --------------------------------------------------------------------------------------


def reduction_length(op_type: str, arguments: Mapping[str, Any], results: Sequence[Array]) -> int:
    """Count the terms of the longest sum that the operator makes.

    Known for products of matrices and convolutions; of reductions and norms as the elements of
    the greatest argument to one of the least result; along an axis, as its size.
    """
    family = _family(op_type)
    sizes = [value for value in arguments.values() if isinstance(value, np.ndarray)]
    if family in _LENGTHS:
        return _LENGTHS[family](arguments, sizes)
    greatest = max((value.size for value in sizes), default=1)
    least = min((result.size for result in results if result.size), default=1)
    return max(greatest // least, 1)


def _contracted(arguments: Mapping[str, Any], arrays: Sequence[Array]) -> int:
    """The last axis of the first factor; ``self`` comes before it where there is a sum."""
    factors = [value for name, value in arguments.items() if name not in ("self", "bias")]
    only = [value for value in factors if isinstance(value, np.ndarray)]
    first = only[0] if len(only) > 1 else arrays[0]
    return max(first.shape[-1:] or (1,)) * (first.shape[0] if first.ndim == 3 else 1)


def _filtered(arguments: Mapping[str, Any], arrays: Sequence[Array]) -> int:
    weight: Array = arguments["weight"]
    taps = prod(weight.shape[1:]) + prod(weight.shape[2:]) * weight.shape[0]
    places = arguments.get("grad_output")
    return taps if places is None else taps + places.size


def _longest_axis(arguments: Mapping[str, Any], arrays: Sequence[Array]) -> int:
    return max((size for array in arrays for size in array.shape), default=1)


def _window(arguments: Mapping[str, Any], arrays: Sequence[Array]) -> int:
    kernel = arguments.get("kernel_size", 8)
    return max(kernel if isinstance(kernel, int) else prod(kernel), 8)


_LENGTHS: dict[str, Callable[[Mapping[str, Any], Sequence[Array]], int]] = {
    "matmul": _contracted,
    "convolution": _filtered,
    **dict.fromkeys(("attention", "distance", "scans", "softmax", "spectral"), _longest_axis),
    **dict.fromkeys(("folding", "pooling", "resampling", "grid_sampling"), _window),
}
