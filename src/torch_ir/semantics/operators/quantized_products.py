"""Products of matrices of 8-bit numbers, with scales.

Source: torch._int_mm, torch._scaled_mm and torch._weight_int8pack_mm, as torchao calls them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, is_float, rounded, widened
from torch_ir.semantics.registry import denotes


def _require_factors(first: Array, second: Array, axis: int = 0) -> None:
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[axis]:
        raise InvalidIRError(f"{list(first.shape)} and {list(second.shape)} have no product")


@denotes("aten._int_mm.default")
def int_mm(self: Array, mat2: Array) -> Array:
    """The product of matrices of int8, as int32."""
    _require_factors(self, mat2)
    if self.dtype != np.int8 or mat2.dtype != np.int8:
        raise InvalidIRError(f"{self.dtype} and {mat2.dtype} are not int8")
    return rounded(self.astype("int64") @ mat2.astype("int64"), np.dtype("int32"))


@denotes("aten._weight_int8pack_mm.default")
def weight_int8pack_mm(self: Array, mat2: Array, scales: Array) -> Array:
    """``(x wᵀ) · scales``: [m, k] by int8 [n, k], and a scale for each row of these."""
    _require_factors(self, mat2, 1)
    if mat2.dtype != np.int8 or not is_float(self.dtype) or scales.shape != mat2.shape[:1]:
        raise InvalidIRError(f"{self.dtype} by {mat2.dtype} with {list(scales.shape)} scales")
    return rounded(widened(self) @ mat2.T.astype("float64") * widened(scales), self.dtype)


_ONE_SCALE, _SCALE_OF_ROW = 0, 1
"""How scales are laid out (``torch.nn.functional.ScalingType``)."""


@denotes("aten._scaled_mm_v2.default")
def scaled_mm_v2(
    self: Array,
    mat2: Array,
    scale_a: Sequence[Array],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[Array],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: Array | None,
    out_dtype: np.dtype[Any] | None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Array:
    """:func:`scaled_mm` by scales of one number, or of each row of a and column of b."""
    plain = all(len(s) == 1 for s in (scale_a, scale_b)) and not any((*swizzle_a, *swizzle_b))
    if not plain or any(how not in (_ONE_SCALE, _SCALE_OF_ROW) for how in (*recipe_a, *recipe_b)):
        raise InvalidIRError("products by scales of blocks have no denotation")
    return scaled_mm(self, mat2, scale_a[0], scale_b[0], bias, None, out_dtype)


@denotes("aten._scaled_mm.default")
def scaled_mm(
    self: Array,
    mat2: Array,
    scale_a: Array,
    scale_b: Array,
    bias: Array | None = None,
    scale_result: Array | None = None,
    out_dtype: np.dtype[Any] | None = None,
    use_fast_accum: bool = False,
) -> Array:
    """``(a · scale_a) (b · scale_b) + bias`` of float8, in ``out_dtype``, or the first's type.

    Scales are one number each, or one for each row of a and column of b.
    """
    _require_factors(self, mat2)
    if scale_result is not None or not is_float(self.dtype):
        raise InvalidIRError(f"no scaled product of {self.dtype}, or a scale of the result")
    rows, columns = scale_a.reshape(-1, 1), scale_b.reshape(1, -1)
    if rows.size not in (1, len(self)) or columns.size not in (1, mat2.shape[1]):
        raise InvalidIRError(f"scales are {list(scale_a.shape)} and {list(scale_b.shape)}")
    made = (widened(self) * widened(rows)) @ (widened(mat2) * widened(columns))
    made = made if bias is None else made + widened(bias)
    return rounded(made, self.dtype if out_dtype is None else out_dtype)
