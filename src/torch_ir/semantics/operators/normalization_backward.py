"""Backward operators of layer, group and batch normalization.

With x̂ = (x − mean) · rstd, g the gradient of the result and γ the weight (1 where absent):

* of x: ``rstd · (gγ − Σ gγ / n − x̂ · Σ gγx̂ / n)``, the sums over the n elements that share a mean;
* of the weight: ``Σ g · x̂``, of the bias: ``Σ g``, over all elements that share a weight.

mean and rstd are taken as given. A result that ``output_mask`` does not ask for is None, and so
are the gradients of parameters that a layer norm lacks.

Source: the derivative of the normalizations' definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, rounded, widened
from torch_ir.semantics.operators.normalization import (
    over_batch,
    require_groups,
    statistics_dtype,
    trailing,
)
from torch_ir.semantics.operators.reductions import wide_mean
from torch_ir.semantics.registry import denotes

Gradients = tuple[Array | None, Array | None, Array | None]


def _through(scaled: Array, normal: Array, rstd: Array, axes: tuple[int, ...]) -> Array:
    """The gradient of x, from gγ and x̂."""
    return rstd * (scaled - wide_mean(scaled, axes) - normal * wide_mean(scaled * normal, axes))


@denotes("aten.native_layer_norm_backward.default")
def native_layer_norm_backward(
    grad_out: Array,
    input: Array,
    normalized_shape: Sequence[int],
    mean: Array,
    rstd: Array,
    weight: Array | None,
    bias: Array | None,
    output_mask: Sequence[bool],
) -> Gradients:
    """The gradients of operand, weight and bias of ``native_layer_norm``.

    Shapes: those of the three. Dtypes: the operand's, and the parameters'.
    """
    axes = trailing(input, normalized_shape)
    others = tuple(range(axes[0]))
    gradient, spread = widened(grad_out), widened(rstd)
    normal = (widened(input) - widened(mean)) * spread
    scaled = gradient if weight is None else gradient * widened(weight)
    of_weight = np.sum(gradient * normal, axis=others)
    results: Gradients = (
        rounded(_through(scaled, normal, spread, axes), input.dtype),
        None if weight is None else rounded(of_weight, weight.dtype),
        None if bias is None else rounded(np.sum(gradient, axis=others), bias.dtype),
    )
    return _masked(results, output_mask)


@denotes("aten.native_group_norm_backward.default")
def native_group_norm_backward(
    grad_out: Array,
    input: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    N: int,  # noqa: N803  the schema's name
    C: int,  # noqa: N803  the schema's name
    HxW: int,  # noqa: N803  the schema's name
    group: int,
    output_mask: Sequence[bool],
) -> Gradients:
    """The gradients of operand, weight and bias of ``native_group_norm``.

    Shapes: the operand's, [C], [C]. Dtypes: the operand's, and the weight's for both parameters;
    those of a weight of ones where it is absent, which torch before 2.14 refuses.
    """
    require_groups(input, N, C, HxW, group)
    shape = (N, group, C // group, HxW)
    gradient, spread = widened(grad_out).reshape(shape), widened(rstd).reshape(N, group, 1, 1)
    normal = (widened(input).reshape(shape) - widened(mean).reshape(N, group, 1, 1)) * spread
    scaled = gradient
    if weight is not None:
        scaled = gradient * widened(weight).reshape(group, C // group, 1)
    of_weight = np.sum(gradient * normal, axis=(0, 3)).reshape(C)
    of_bias = np.sum(gradient, axis=(0, 3)).reshape(C)
    of_input = _through(scaled, normal, spread, (2, 3)).reshape(input.shape)
    dtype = input.dtype if weight is None else weight.dtype
    results = (rounded(of_input, input.dtype), rounded(of_weight, dtype), rounded(of_bias, dtype))
    return _masked(results, output_mask)


def _masked(results: Gradients, output_mask: Sequence[bool]) -> Gradients:
    first, second, third = (
        value if wanted else None for value, wanted in zip(results, output_mask, strict=True)
    )
    return first, second, third


# -- batches --------------------------------------------------------------------------------------


@denotes("aten.native_batch_norm_backward.default")
def native_batch_norm_backward(
    grad_out: Array,
    input: Array,
    weight: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    save_mean: Array | None,
    save_invstd: Array | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> Gradients:
    """The gradients of operand, weight and bias; by running statistics where it is no training.

    Those do not follow from the operand, whose gradient is ``gγ · rstd`` then. Shapes: the
    operand's, [C], [C]. Dtypes: the operand's, and for both parameters that of statistics.
    """
    axes, shape = over_batch(input)
    given = (weight, running_mean, running_var, save_mean, save_invstd)
    dtype = statistics_dtype(input, *[part for part in given if part is not None and part.size])
    mean, spread = batch_statistics(
        running_mean, running_var, save_mean, save_invstd, train=train, eps=eps
    )
    gradient, spread = widened(grad_out), spread.reshape(shape)
    normal = (widened(input) - mean.reshape(shape)) * spread
    scaled = gradient if weight is None else gradient * widened(weight).reshape(shape)
    of_input = _through(scaled, normal, spread, axes) if train else scaled * spread
    of_weight, of_bias = np.sum(gradient * normal, axis=axes), np.sum(gradient, axis=axes)
    results = (rounded(of_input, input.dtype), rounded(of_weight, dtype), rounded(of_bias, dtype))
    return _masked(results, output_mask)


def batch_statistics(
    running_mean: Array | None,
    running_var: Array | None,
    save_mean: Array | None,
    save_invstd: Array | None,
    *,
    train: bool,
    eps: float,
) -> tuple[Array, Array]:
    """Return mean and rstd of each channel by which a batch was normalized.

    Raises:
        InvalidIRError: They are absent.
    """
    mean, spread = (save_mean, save_invstd) if train else (running_mean, running_var)
    if mean is None or spread is None:
        raise InvalidIRError("the statistics of a batch are absent")
    return widened(mean), widened(spread) if train else 1 / np.sqrt(widened(spread) + eps)


@denotes("aten.batch_norm_backward.default")
def batch_norm_backward(
    *, save_var: Array | None, update: bool, reserve: Array | None = None, **arguments: Any
) -> Gradients:
    """As ``native_batch_norm_backward``; ``save_var`` is 1 / √(variance + eps)."""
    return native_batch_norm_backward(save_invstd=save_var, train=update, **arguments)


@denotes("aten._weight_norm_interface_backward.default")
def weight_norm_backward(
    grad_w: Array, saved_v: Array, saved_g: Array, saved_norms: Array, dim: int
) -> tuple[Array, Array]:
    """The gradients of ``w = v · g / ‖v‖`` by v and g, norms over all axes but the first or last.

    ``g / ‖v‖ · (grad - v · (Σ grad · v) / ‖v‖²)`` and ``(Σ grad · v) / ‖v‖``.
    """
    if dim not in (0, saved_v.ndim - 1):
        raise InvalidIRError(f"weights of {saved_v.ndim} axes have no norms for axis {dim}")
    axes = tuple(i for i in range(saved_v.ndim) if i != dim)
    gradient, v, g, norms = map(widened, (grad_w, saved_v, saved_g, saved_norms))
    shared = np.sum(gradient * v, axis=axes, keepdims=True) / norms
    return rounded(g / norms * (gradient - v * shared / norms), saved_v.dtype), rounded(
        shared, saved_g.dtype
    )
