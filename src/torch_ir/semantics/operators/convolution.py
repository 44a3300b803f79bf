"""Convolution on any number of axes, transposed convolution, and their backward pass.

torch's convolution is a correlation: the kernel is not flipped.

Source: torch.nn.Conv2d, torch.nn.ConvTranspose2d; "A guide to convolution arithmetic for deep
learning", arXiv:1603.07285.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, rounded, working
from torch_ir.semantics.registry import denotes
from torch_ir.semantics.windows import at_least, extent, padded, per_axis, taps, window_counts


@dataclass(frozen=True, slots=True)
class Geometry:
    """How the windows of a convolution lie: one number for each spatial axis.

    The three methods are one trilinear form Σ result · weight · values, solved for each of its
    arguments. ``values`` is the padded side [n, channels, *sizes], ``result`` the side with one
    element for each window [n, out_channels, *counts], and the weight is
    [out_channels, channels / groups, *kernel]. All compute in their arguments' dtype.
    """

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def correlate(self, values: Array, weight: Array) -> Array:
        """``result[n, o, p] = Σ_{c, k} weight[o, c, k] · values[n, c, p·stride + k·dilation]``."""
        sides = padded(values, self.padding, self.padding)
        kernel = weight.shape[2:]
        spans = extent(kernel, self.dilation)
        counts = window_counts(sides.shape[2:], spans, self.stride)
        filters, grouped = self._filters(weight), self._grouped(sides)
        total = np.zeros((len(values), *filters.shape[:2], prod(counts)), values.dtype)
        for place, window in taps(kernel, counts, self.stride, self.dilation):
            part = grouped[(..., *window)]
            total += filters[(..., *place)] @ part.reshape(*part.shape[:3], prod(counts))
        return total.reshape(len(values), len(weight), *counts)

    def spread(self, result: Array, weight: Array, sizes: Sequence[int]) -> Array:
        """The adjoint of :meth:`correlate` in ``values``, of ``sizes`` without padding."""
        wide = [size + 2 * pad for size, pad in zip(sizes, self.padding, strict=True)]
        filters, grouped = self._filters(weight), self._grouped(result)
        flat = grouped.reshape(*grouped.shape[:3], prod(result.shape[2:]))
        shape = (len(result), self.groups, weight.shape[1], *wide)
        total, counts = np.zeros(shape, result.dtype), result.shape[2:]
        for place, window in taps(weight.shape[2:], counts, self.stride, self.dilation):
            part = filters[(..., *place)].swapaxes(-1, -2) @ flat
            total[(..., *window)] += part.reshape(*part.shape[:3], *counts)
        inside = tuple(slice(p, p + size) for size, p in zip(sizes, self.padding, strict=True))
        channels = self.groups * weight.shape[1]
        return total[(..., *inside)].reshape(len(result), channels, *sizes)

    def relate(self, values: Array, result: Array, kernel: Sequence[int]) -> Array:
        """The adjoint of :meth:`correlate` in ``weight``."""
        sides = self._grouped(padded(values, self.padding, self.padding))
        counts, grouped = result.shape[2:], self._grouped(result)
        flat = grouped.reshape(*grouped.shape[:3], prod(counts))
        total = np.zeros((self.groups, grouped.shape[2], sides.shape[2], *kernel), values.dtype)
        for place, window in taps(kernel, counts, self.stride, self.dilation):
            part = sides[(..., *window)]
            part = part.reshape(*part.shape[:3], prod(counts))
            total[(..., *place)] = (flat @ part.swapaxes(-1, -2)).sum(0, dtype=values.dtype)
        return total.reshape(result.shape[1], sides.shape[2], *kernel)

    def _grouped(self, values: Array) -> Array:
        """[n, groups, channels / groups, *sizes]."""
        channels = values.shape[1] // self.groups
        return values.reshape(len(values), self.groups, channels, *values.shape[2:])

    def _filters(self, weight: Array) -> Array:
        """[groups, out_channels / groups, channels / groups, *kernel]."""
        return weight.reshape(self.groups, len(weight) // self.groups, *weight.shape[1:])


def _geometry(
    input: Array,
    weight: Array,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    groups: int,
    *,
    transposed: bool = False,
) -> Geometry:
    """The geometry, if the tensors fit it.

    Raises:
        InvalidIRError: Ranks, channels, groups or dtypes do not match, or a number is too small.
    """
    rank = weight.ndim - 2
    if input.ndim != weight.ndim or rank < 1:
        shapes = f"input {list(input.shape)} and weight {list(weight.shape)}"
        raise InvalidIRError(f"{shapes} are not both [n, channels, *sizes]")
    if input.dtype != weight.dtype:
        raise InvalidIRError(f"input {input.dtype} and weight {weight.dtype} differ in dtype")
    at_least([groups], 1, "groups")
    channels = weight.shape[0] if transposed else weight.shape[1] * groups
    if input.shape[1] != channels or weight.shape[0] % groups:
        shapes = f"weight {list(weight.shape)} in {groups} groups"
        raise InvalidIRError(f"{shapes} does not take the channels of {list(input.shape)}")
    return Geometry(
        per_axis(stride, rank, "stride", 1),
        per_axis(padding, rank, "padding", 0),
        per_axis(dilation, rank, "dilation", 1),
        groups,
    )


def _transposed_sizes(
    geometry: Geometry, sizes: Sequence[int], kernel: Sequence[int], extra: Sequence[int]
) -> list[int]:
    """For each axis ``(size - 1)·stride - 2·padding + dilation·(kernel - 1) + extra + 1``."""
    for more, step, spread in zip(extra, geometry.stride, geometry.dilation, strict=True):
        if not 0 <= more < max(step, spread):
            raise InvalidIRError(
                f"output_padding {list(extra)} must be less than stride {list(geometry.stride)} "
                f"or dilation {list(geometry.dilation)}"
            )
    spans = extent(kernel, geometry.dilation)
    axes = zip(sizes, geometry.stride, geometry.padding, spans, extra, strict=True)
    result = [(n - 1) * step - 2 * pad + span + more for n, step, pad, span, more in axes]
    at_least(result, 0, "output sizes")
    return result


@denotes("aten.convolution.default", "aten._convolution.default", "aten._convolution.deprecated")
def convolution(
    input: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    **_flags: bool,
) -> Array:
    """Correlation of the padded input with each filter, plus the filter's bias; rounded once.

    ``result[n, o, p] = bias[o] + Σ_{c, k} weight[o, c, k] · input[n, c', p·stride + k·dilation -
    padding]``, with 0 outside the input; c' is the c-th channel of the group that filter o
    belongs to. Shapes: [n, c, *sizes], [out, c / groups, *kernel], [out] → [n, out, *counts] with
    ``counts = ⌊(size + 2·padding - dilation·(kernel - 1) - 1) / stride⌋ + 1``.

    Transposed, it is the adjoint: element p of the input adds ``weight[c, o, k] · input[n, c, p]``
    to ``result[n, o, p·stride + k·dilation - padding]``. The weight is [c, out / groups, *kernel],
    a size ``(size - 1)·stride - 2·padding + dilation·(kernel - 1) + output_padding + 1``.

    dtype: the input's, which is the weight's. Of an input without channels the result has none
    either, whatever the weight's. Padding is 0 times a weight: NaN where that is inf. The flags
    of ``_convolution`` choose a kernel, not a meaning.
    """
    geometry = _geometry(input, weight, stride, padding, dilation, groups, transposed=transposed)
    wide = working(input.dtype)
    values, filters = input.astype(wide), weight.astype(wide)
    if transposed:
        extra = per_axis(output_padding, weight.ndim - 2, "output_padding")
        sizes = _transposed_sizes(geometry, input.shape[2:], weight.shape[2:], extra)
        total = geometry.spread(values, filters, sizes)
    else:
        total = geometry.correlate(values, filters)
    if bias is not None:
        if bias.shape != (total.shape[1],):
            raise InvalidIRError(f"bias {list(bias.shape)} is not one for each of the filters")
        total = total + bias.astype(wide).reshape(-1, *[1] * (weight.ndim - 2))
    return rounded(total if input.shape[1] else total[:, :0], input.dtype)


@denotes("aten.convolution_backward.default")
def convolution_backward(
    grad_output: Array,
    input: Array,
    weight: Array,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Array | None, Array | None, Array | None]:
    """The gradients of :func:`convolution` in its input, weight and bias.

    The convolution is linear in each of them, so each gradient is the adjoint of that linear map
    at ``grad_output``; complex ones with the conjugate of the other argument. The bias's is
    ``Σ_{n, p} grad_output[n, o, p]``, and 0 of an empty input. What ``output_mask`` leaves out is
    None.
    """
    geometry = _geometry(input, weight, stride, padding, dilation, groups, transposed=transposed)
    wide = working(input.dtype)
    upper = grad_output.astype(wide)
    values, filters = np.conjugate(input.astype(wide)), np.conjugate(weight.astype(wide))
    kernel, sizes = weight.shape[2:], input.shape[2:]
    gradients: list[Array | None] = [None, None, None]
    if output_mask[0]:
        gradients[0] = (
            geometry.correlate(upper, filters)[(..., *map(slice, sizes))]
            if transposed
            else geometry.spread(upper, filters, sizes)
        )
    if output_mask[1]:
        small, large = (upper, values) if transposed else (values, upper)
        gradients[1] = geometry.relate(small, large, kernel)
    if output_mask[2]:
        gradients[2] = upper.sum(axis=(0, *range(2, upper.ndim)), dtype=wide)
        gradients[2] = gradients[2] * (input.size > 0)
    first, second, third = (g if g is None else rounded(g, input.dtype) for g in gradients)
    return first, second, third


def _unbatched(input: Array, weight: Array, bias: Array | None, *arguments: Any) -> Array:
    """:func:`convolution` of one sample, if there is no batch axis."""
    if input.ndim != weight.ndim - 1:
        return convolution(input, weight, bias, *arguments)
    return convolution(input[None], weight, bias, *arguments)[0]


@denotes("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default")
def conv(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Array:
    """:func:`convolution`, not transposed; without a batch axis the result has none either."""
    return _unbatched(input, weight, bias, stride, padding, dilation, False, (0,), groups)


@denotes("aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding")
def conv_named_padding(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: str = "valid",
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Array:
    """:func:`conv` with padding by name: "valid" is none, "same" keeps the sizes.

    "same" adds ``dilation · (kernel - 1)`` elements, the odd one at the end; its stride is 1.
    """
    rank = weight.ndim - 2
    if padding == "valid":
        return conv(input, weight, bias, stride, 0, dilation, groups)
    if padding != "same" or any(step != 1 for step in per_axis(stride, rank, "stride")):
        raise InvalidIRError(f'padding {padding!r} with stride {stride} is not "valid" or "same"')
    spans = extent(weight.shape[2:], per_axis(dilation, rank, "dilation"))
    before = [(span - 1) // 2 for span in spans]
    after = [span - 1 - left for span, left in zip(spans, before, strict=True)]
    return conv(padded(input, before, after), weight, bias, 1, 0, dilation, groups)


@denotes(
    "aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input"
)
def conv_transpose(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Array:
    """:func:`convolution`, transposed; without a batch axis the result has none either."""
    kind = (stride, padding, dilation, True, output_padding, groups)
    return _unbatched(input, weight, bias, *kind)


@denotes(
    *("aten._slow_conv2d_forward.default", "aten.slow_conv3d_forward.default"),
    *("aten.slow_conv_dilated2d.default", "aten.slow_conv_dilated3d.default"),
)
def slow_conv(
    *, self: Array, weight: Array, kernel_size: Sequence[int], **arguments: Any
) -> Array:
    """:func:`conv` of one group; the kernel's size is said twice.

    Of an input without channels the result has as many as there are filters: their biases, or 0.
    """
    _require_kernel(weight, kernel_size)
    return conv(*with_channels(self, weight), **arguments)


def with_channels(self: Array, weight: Array) -> tuple[Array, Array]:
    """Return an input and filters; for none of their channels one of zeros, which adds nothing."""
    axis = 1 - weight.ndim
    if weight.shape[1] or self.shape[axis]:
        return self, weight
    whole, filters = (np.insert(array, 0, 0, axis) for array in (self, weight))
    return whole, filters


@denotes("aten.slow_conv_transpose2d.default", "aten.slow_conv_transpose3d.default")
def slow_conv_transpose(
    *, self: Array, weight: Array, kernel_size: Sequence[int], **arguments: Any
) -> Array:
    """:func:`conv_transpose` of one group."""
    _require_kernel(weight, kernel_size)
    return conv_transpose(self, weight, **arguments)


@denotes("aten.mkldnn_convolution.default")
def mkldnn_convolution(*, self: Array, **arguments: Any) -> Array:
    """:func:`convolution`, not transposed."""
    return convolution(self, transposed=False, output_padding=(0,), **arguments)


def _require_kernel(weight: Array, kernel_size: Sequence[int]) -> None:
    if tuple(per_axis(kernel_size, weight.ndim - 2, "kernel_size")) != weight.shape[2:]:
        raise InvalidIRError(f"filters {list(weight.shape)} have no kernel {list(kernel_size)}")


@denotes("aten.conv_tbc.default")
def conv_tbc(self: Array, weight: Array, bias: Array, pad: int = 0) -> Array:
    """A convolution of sequences, time first.

    Shapes: [t, n, c], weight [k, c, o] → [t + 2 pad - k + 1, n, o].
    """
    if self.ndim != 3 or weight.ndim != 3:
        raise InvalidIRError(f"no sequences of {list(self.shape)} by {list(weight.shape)}")
    moved, turned = self.transpose(1, 2, 0), weight.transpose(2, 1, 0)
    made = convolution(moved, turned, bias, [1], [pad], [1], False, [0], 1)
    return made.transpose(2, 0, 1)
