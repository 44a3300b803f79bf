"""Complex numbers: their parts, how they are made, conjugates.

Source: the operator's page in torch's documentation.
"""

from __future__ import annotations

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, complex_of, is_complex, real_of, rounded
from torch_ir.semantics.pointwise import floating, is_real_number, pointwise, require_type
from torch_ir.semantics.registry import denotes


def log_of_one_and(x: Array) -> Array:
    """Return ``ln(1 + x)`` without cancellation near 0, of complex numbers too."""
    if not is_complex(x.dtype):
        return np.log1p(x)
    real, imag = x.real, x.imag
    squared = real * (2 + real) + imag * imag  # |1 + x|² - 1
    near = np.log1p(squared) / 2 + 1j * np.arctan2(imag, 1 + real)
    return np.where(np.abs(x) < 0.5, near, np.log(1 + x)).astype(x.dtype)


def complex_log_sum(first: Array, second: Array) -> Array:
    """Return ``high + log(1 + exp(low - high))``, of which the real part of high is the larger.

    The imaginary part is that of high and an angle, as torch has it: it is on no branch. Of equal
    real parts the first operand is the high one.
    """
    is_less = first.real < second.real
    low, high = np.where(is_less, (first, second), (second, first))
    apart = low - high
    powers = np.where(np.isneginf(apart.real), 0, np.exp(apart))
    total = high + log_of_one_and(powers)
    equal = np.isinf(low.real) & (low.real == high.real)
    both = np.where(low.real < 0, low, np.log(np.exp(low) + np.exp(high)))
    lost = np.isnan(first) | np.isnan(second)
    return np.where(lost, np.nan + 1j * np.nan, np.where(equal, both, total))


@denotes("aten.real.default")
def real(self: Array) -> Array:
    """The real part; a real number itself."""
    return self.real.copy() if is_complex(self.dtype) else self.copy()


@denotes("aten.imag.default")
def imag(self: Array) -> Array:
    """The imaginary part; of complex numbers alone."""
    require_type("imag", is_complex, self)
    return self.imag.copy()


@denotes(
    "aten.conj.default",
    "aten._conj.default",
    "aten._conj_copy.default",
    "aten.conj_physical.default",
    "aten._conj_physical.default",
)
def conj(self: Array) -> Array:
    """The complex conjugate; a real number itself."""
    return np.asarray(np.conjugate(self)) if is_complex(self.dtype) else self.copy()


@denotes("aten.angle.default")
def angle(self: Array) -> Array:
    """The argument in [−π, π]; of a real number 0 or π, NaN for NaN."""
    if is_complex(self.dtype):
        return pointwise(lambda z: np.arctan2(z.imag, z.real), self, result=real_of(self.dtype))
    return pointwise(
        lambda x: np.where(np.isnan(x), x, np.where(x < 0, np.pi, 0.0)), self, dtype=floating(self)
    )


@denotes("aten.complex.default")
def complex(real: Array, imag: Array) -> Array:
    """``real + i · imag``; both of one real type, float32 or float64."""
    if real.dtype != imag.dtype or real.dtype.name not in ("float32", "float64"):
        raise InvalidIRError(
            f"complex takes two float32 or two float64 tensors, not {real.dtype} and {imag.dtype}"
        )
    result = complex_of(real.dtype)
    return pointwise(_joined, real, imag, result=result)


@denotes("aten.polar.default")
def polar(abs: Array, angle: Array) -> Array:
    """``abs · (cos angle + i · sin angle)``; both of one real type."""
    require_type("polar", is_real_number, abs, angle)
    result = complex_of(abs.dtype)
    return pointwise(lambda r, t: _joined(r * np.cos(t), r * np.sin(t)), abs, angle, result=result)


def _joined(real: Array, imag: Array) -> Array:
    values = np.empty(real.shape, np.complex128)
    values.real, values.imag = real, imag
    return values


@denotes("aten.view_as_real.default", "aten.view_as_real_copy.default")
def view_as_real(self: Array) -> Array:
    """Shape ``[…, 2]``: the real and the imaginary part side by side."""
    require_type("view_as_real", is_complex, self)
    return np.stack([self.real, self.imag], axis=-1)


@denotes("aten.view_as_complex.default", "aten.view_as_complex_copy.default")
def view_as_complex(self: Array) -> Array:
    """Complex numbers of the pairs along the last dimension, whose size is 2."""
    if self.ndim == 0 or self.shape[-1] != 2:
        raise InvalidIRError(
            f"view_as_complex takes a last dimension of size 2, not shape {list(self.shape)}"
        )
    result = complex_of(self.dtype)
    return rounded(_joined(self[..., 0], self[..., 1]), result)
