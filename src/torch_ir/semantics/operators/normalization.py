"""Normalization by mean and variance: of layers, groups, batches, and by the root mean square.

All are ``(x − mean) · rstd · weight + bias`` with ``rstd = 1 / √(variance + eps)``, the variance
being ``Σ (x − mean)² / n``; they differ in what mean and variance are taken over, and in which
dimension weight and bias stand for. The formula is computed in working precision and each result
rounded once: the outputs are not computed from the rounded statistics.

Statistics have the operand's dtype; where that is float16 or bfloat16 and parameters are float32,
float32.

Source: torch.nn.LayerNorm, GroupNorm, BatchNorm2d, InstanceNorm2d and RMSNorm in torch's
documentation.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, is_complex, is_float, rounded, widened
from torch_ir.semantics.operators.reductions import wide_mean
from torch_ir.semantics.operators.statistics import wide_variance
from torch_ir.semantics.registry import denotes, restate


def _require_floating(values: Array) -> None:
    if not is_float(values.dtype):
        raise InvalidIRError(f"only floating tensors are normalized, not {values.dtype}")


def statistics_dtype(input: Array, *parameters: Array | None) -> np.dtype[Any]:
    """Return float32 where parameters are and the operand is narrower; else the operand's type.

    Raises:
        InvalidIRError: A parameter has another type than these.
    """
    mixed = False
    for given in parameters:
        if given is not None and given.dtype != input.dtype:
            if given.dtype != np.float32 or input.dtype.itemsize != 2:
                raise InvalidIRError(f"{input.dtype} is not normalized with {given.dtype}")
            mixed = True
    return np.dtype("float32") if mixed else input.dtype


def _normal(wide: Array, axes: tuple[int, ...], eps: float) -> tuple[Array, Array, Array]:
    """``(x − mean) · rstd``, and both of these over axes, which stay with size 1."""
    mean, rstd = wide_mean(wide, axes), 1 / np.sqrt(wide_variance(wide, axes, 0) + eps)
    return (wide - mean) * rstd, mean, rstd


def _scaled(wide: Array, weight: Array | None, bias: Array | None, shape: Sequence[int]) -> Array:
    """``wide · weight + bias``, either left out where absent."""
    if weight is not None:
        wide = wide * widened(weight).reshape(shape)
    return wide if bias is None else wide + widened(bias).reshape(shape)


def trailing(input: Array, normalized_shape: Sequence[int]) -> tuple[int, ...]:
    """The last axes, that have such sizes.

    Raises:
        InvalidIRError: There are none, or they have other sizes.
    """
    shape = tuple(normalized_shape)
    if not shape or input.shape[-len(shape) :] != shape:
        raise InvalidIRError(f"shape {list(input.shape)} does not end with {list(shape)}")
    return tuple(range(input.ndim - len(shape), input.ndim))


@denotes("aten.native_layer_norm.default")
def native_layer_norm(
    input: Array,
    normalized_shape: Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> tuple[Array, Array, Array]:
    """Normalized over the last dimensions, of ``normalized_shape``; weight and bias have it too.

    Returns:
        The result, the mean (over no elements 0) and rstd (NaN); these with size 1 in the
        dimensions reduced.
    """
    _require_floating(input)
    axes = trailing(input, normalized_shape)
    for given in (weight, bias):
        if given is not None and given.shape != tuple(normalized_shape):
            raise InvalidIRError(f"a parameter has {list(given.shape)}, not {normalized_shape}")
    dtype = statistics_dtype(input, weight, bias)
    normal, mean, rstd = _normal(widened(input), axes, eps)
    result = _scaled(normal, weight, bias, normalized_shape)
    if not prod(normalized_shape):
        mean = np.zeros_like(mean)
    return rounded(result, input.dtype), rounded(mean, dtype), rounded(rstd, dtype)


restate(native_layer_norm, "aten.layer_norm.default", part=0, without=("cudnn_enable",))


def _channels(values: Array | None, count: int) -> None:
    if values is not None and values.shape != (count,):
        raise InvalidIRError(f"a parameter has {list(values.shape)}, not [{count}]")


def require_groups(input: Array, samples: int, channels: int, size: int, groups: int) -> None:
    """Refuse a shape that is not [samples, channels, size], or channels that are no groups."""
    if groups < 1 or channels % groups or samples * channels * size != input.size:
        raise InvalidIRError(
            f"shape {list(input.shape)} has no {groups} groups of {channels} channels "
            f"in {samples} samples"
        )


@denotes("aten.native_group_norm.default")
def native_group_norm(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    N: int,  # noqa: N803  the schema's name
    C: int,  # noqa: N803  the schema's name
    HxW: int,  # noqa: N803  the schema's name
    group: int,
    eps: float,
) -> tuple[Array, Array, Array]:
    """Normalized over each of ``group`` groups of channels of each sample.

    The operand has N · C · HxW elements, [N, C, …]; weight and bias have one number a channel.

    Returns:
        The result, the mean and rstd; these of shape [N, group].
    """
    _require_floating(input)
    require_groups(input, N, C, HxW, group)
    _channels(weight, C)
    _channels(bias, C)
    dtype = statistics_dtype(input, weight, bias)
    parts = widened(input).reshape(N, group, C // group * HxW)
    normal, mean, rstd = _normal(parts, (2,), eps)
    result = _scaled(normal.reshape(N, C, HxW), weight, bias, [C, 1]).reshape(input.shape)
    mean, rstd = (rounded(value.reshape(N, group), dtype) for value in (mean, rstd))
    return rounded(result, input.dtype), mean, rstd


@denotes("aten.group_norm.default")
def group_norm(
    input: Array,
    num_groups: int,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Array:
    """The result of ``native_group_norm`` alone, for an operand [N, C, …]."""
    if input.ndim < 2:
        raise InvalidIRError(f"shape {list(input.shape)} has no channels")
    samples, channels, *rest = input.shape
    sizes = (samples, channels, prod(rest))
    return native_group_norm(input, weight, bias, *sizes, num_groups, eps)[0]


# -- batches --------------------------------------------------------------------------------------


def over_batch(input: Array) -> tuple[tuple[int, ...], list[int]]:
    """Return the axes of a channel's elements, and a shape with one number for each channel."""
    _require_floating(input)
    if input.ndim < 2:
        raise InvalidIRError(f"shape {list(input.shape)} has no channels")
    axes = (0, *range(2, input.ndim))
    return axes, [input.shape[1]] + [1] * (input.ndim - 2)


@denotes("aten._native_batch_norm_legit_no_training.default")
def batch_norm_no_training(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    momentum: float,
    eps: float,
) -> tuple[Array, Array, Array]:
    """Each channel (dimension 1) normalized by its running mean and variance.

    Weight, bias and both statistics have one number a channel; ``momentum`` does not matter.

    Returns:
        The result, and two tensors of shape [0].
    """
    _, shape = over_batch(input)
    for given in (weight, bias, running_mean, running_var):
        _channels(given, input.shape[1])
    dtype = statistics_dtype(input, weight, bias, running_mean, running_var)
    rstd = 1 / np.sqrt(widened(running_var) + eps)
    normal = (widened(input) - widened(running_mean).reshape(shape)) * rstd.reshape(shape)
    result = rounded(_scaled(normal, weight, bias, shape), input.dtype)
    return result, np.empty(0, dtype), np.empty(0, dtype)


def _with_batch(
    input: Array, weight: Array | None, bias: Array | None, eps: float, *running: Array
) -> tuple[Array, Array, Array]:
    """Normalized by the batch's own statistics, which are the other results."""
    axes, shape = over_batch(input)
    if not input.size:
        raise InvalidIRError("a batch without elements has no statistics")
    for given in (weight, bias, *running):
        _channels(given, input.shape[1])
    dtype = statistics_dtype(input, weight, bias, *running)
    normal, mean, rstd = _normal(widened(input), axes, eps)
    result = rounded(_scaled(normal, weight, bias, shape), input.dtype)
    return result, rounded(mean.reshape(-1), dtype), rounded(rstd.reshape(-1), dtype)


@denotes("aten._native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Array, Array, Array]:
    """Each channel (dimension 1) normalized by its mean and variance in this batch.

    Returns:
        The result, the channels' means and their rstd.
    """
    if not training:
        raise InvalidIRError("without running statistics a batch is normalized in training only")
    return _with_batch(input, weight, bias, eps)


@denotes("aten._native_batch_norm_legit.default", "aten.native_batch_norm.default")
def native_batch_norm(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Array, Array, Array]:
    """By the batch's statistics in training, else by the running ones, if there are any.

    Returns:
        The result, mean and rstd, as ``no_stats`` or ``_no_training``. What torch writes into the
        running statistics is what ``_native_batch_norm_legit_functional`` returns last.
    """
    if running_mean is None or running_var is None:
        return batch_norm_no_stats(input, weight, bias, training, momentum, eps)
    if training:
        return _with_batch(input, weight, bias, eps, running_mean, running_var)
    return batch_norm_no_training(input, weight, bias, running_mean, running_var, momentum, eps)


restate(native_batch_norm, "aten.batch_norm.default", part=0, without=("cudnn_enabled",))


@denotes("aten._native_batch_norm_legit_functional.default")
def batch_norm_functional(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Array, Array, Array, Array, Array]:
    """By the batch's statistics in training, else by the running ones.

    Returns:
        The result, mean and rstd, and the running statistics as they are afterwards: in training
        ``(1 − momentum) · running + momentum · batch's``, the variance there being that divided
        by n − 1 (of one element: NaN).
    """
    results = native_batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps
    )
    if not training:
        return *results, running_mean, running_var
    axes, _ = over_batch(input)
    wide = widened(input)
    mean, variance = wide_mean(wide, axes, False), wide_variance(wide, axes, 1, False)
    return (
        *results,
        _moved(running_mean, mean, momentum),
        _moved(running_var, variance, momentum),
    )


@denotes("aten._batch_norm_with_update_functional.default")
def batch_norm_with_update(**arguments: Any) -> tuple[Array, Array, Array, Array, Array, Array]:
    """As the functional one in training; the fourth result, of uint8, keeps nothing on the CPU."""
    result, mean, rstd, *running = batch_norm_functional(training=True, **arguments)
    return result, mean, rstd, np.zeros(0, "uint8"), running[0], running[1]


@denotes("aten._batch_norm_no_update.default")
def batch_norm_no_update(**arguments: Any) -> tuple[Array, Array, Array, Array]:
    """Normalized by given statistics; the other results keep nothing on the CPU."""
    return *batch_norm_no_training(**arguments), np.zeros(0, "uint8")


def _moved(running: Array, batch: Array, momentum: float) -> Array:
    """The running statistics after a batch."""
    return rounded((1 - momentum) * widened(running) + momentum * batch, running.dtype)


@denotes("aten.instance_norm.default")
def instance_norm(
    input: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Array:
    """Each channel of each sample normalized by itself, or by running statistics."""
    if not use_input_stats:
        return native_batch_norm(
            input, weight, bias, running_mean, running_var, False, momentum, eps
        )[0]
    if input.ndim < 3 or prod(input.shape[2:]) <= 1:
        raise InvalidIRError(f"shape {list(input.shape)} has less than two elements to a channel")
    return group_norm(input, input.shape[1], weight, bias, eps)


# -- root mean square -----------------------------------------------------------------------------


@denotes("aten._fused_rms_norm.default")
def fused_rms_norm(
    input: Array,
    normalized_shape: Sequence[int],
    weight: Array | None = None,
    eps: float | None = None,
) -> tuple[Array, Array]:
    """``x / √(Σ x² / n + eps) · weight`` over the last dimensions, of ``normalized_shape``.

    Without ``eps``, that is the epsilon of the dtype computed in (float32 for float16 and
    bfloat16). Complex numbers are squared as they are, and the root is the principal one.

    Returns:
        The result, and 1 / √(Σ x² / n + eps) in that dtype, with size 1 in those dimensions.
    """
    if not is_complex(input.dtype):
        _require_floating(input)
    axes = trailing(input, normalized_shape)
    dtype = input.dtype if input.dtype.itemsize > 2 else np.dtype("float32")
    wide = widened(input)
    added = float(np.finfo(dtype).eps) if eps is None else eps
    rrms = 1 / np.sqrt(wide_mean(wide**2, axes) + added)
    result = _scaled(wide * rrms, weight, None, normalized_shape)
    return rounded(result, input.dtype), rounded(rrms, dtype)


restate(fused_rms_norm, "aten.rms_norm.default", part=0)
