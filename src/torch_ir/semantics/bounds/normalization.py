"""Bounds of normalizations, by the values of the row or group normalized together.

The mean is off by ``u · d(n) · mean|x|``, a centered value by ``u · |x|`` more; the variance by
``d(n)`` relatively, and where kernels take it as the difference of squares, by as much of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import sqrt
from typing import Any

import ml_dtypes
import numpy as np

from torch_ir.semantics.bounds.call import (
    BLOCK,
    STREAM,
    BoundedCall,
    Errors,
    Rule,
    length_along,
    moduli,
)
from torch_ir.semantics.dtypes import Array, is_complex, widened
from torch_ir.semantics.operators.normalization_backward import batch_statistics

FEW = 4
LANES = 16
"""Parts of a row, each with a mean of its own, that kernels join one after the other. What is left
over is the first of them, so that the mean may start as far off as the greatest element."""


def layer_norm(call: BoundedCall) -> Errors:
    """Bound by rows: the last dimensions."""
    axes = _trailing(call)
    shape = call["normalized_shape"]
    return _normalized(
        call,
        call.wide("input"),
        axes,
        _parameter(call, "weight", shape),
        _parameter(call, "bias", shape),
        float(call.arguments.get("eps", 1e-5)),
    )


def group_norm(call: BoundedCall) -> Errors:
    """Bound by rows: a group of channels of one sample."""
    values = call["input"]
    groups = call["group"] if "group" in call.arguments else call["num_groups"]
    return _grouped(call, values, groups, folds=True)


def beside_weights(rule: Rule) -> Callable[[BoundedCall], list[Array] | None]:
    """Return what marks infinite weights of numbers that may be 0, or of either sign."""

    def marks(call: BoundedCall) -> list[Array] | None:
        weight = call["weight"]
        if weight is None or np.isfinite(weight).all():
            return None
        plain = {**call.arguments, "weight": np.ones_like(weight), "bias": None}
        pairs = zip(call.meant(**plain), call.results, strict=True)
        made = [part.astype(result.dtype) for part, result in pairs]
        error = rule(replace(call, arguments=plain, results=made, _wide={}))[0]
        lost = ~np.isfinite(call.results[0]) & ~(moduli(made[0]) > error)
        return [lost, *[np.zeros(result.shape, bool) for result in made[1:]]]

    return marks


_BY_LANES = frozenset(("aten.group_norm.default", "aten.native_group_norm.default"))


def _grouped(call: BoundedCall, values: Array, groups: int, *, folds: bool = False) -> Errors:
    if not values.size:
        return [0.0] * len(call.results)
    samples = call.arguments.get("N", values.shape[0])
    channels = call.arguments.get("C", values.shape[1] if values.ndim > 1 else 1)
    places = values.size // max(samples * channels, 1)
    parts = call.wide("input").reshape(samples, groups, channels // groups, places)
    shape = [1, groups, channels // groups, 1]
    eps = float(call.arguments.get("eps", 1e-5))
    weight, bias = _parameter(call, "weight", shape), _parameter(call, "bias", shape)
    block = STREAM if call.dtype != np.float64 or call.op_type in _BY_LANES else BLOCK
    errors = _normalized(
        *(call, parts, (2, 3), weight, bias, eps), squares=True, block=block, folds=folds
    )
    shapes = [result.shape for result in call.results]
    return [np.reshape(error, s) for error, s in zip(errors, shapes, strict=True)]


def batch_norm(call: BoundedCall) -> Errors:
    """Bound by rows: a channel, by its own statistics in training; else by those given."""
    values = call["input"]
    shape = [1, values.shape[1]] + [1] * (values.ndim - 2)
    weight, bias = _parameter(call, "weight", shape), _parameter(call, "bias", shape)
    eps = float(call["eps"])
    running = call["running_mean"] is not None and not _trains(call)
    if running:
        return _by_given(call, weight, bias, shape, eps)
    axes = (0, *range(2, values.ndim))
    block = _added_by(call)
    wide = call.wide("input")
    errors = _normalized(call, wide, axes, weight, bias, eps, block=block, folds=True)
    errors = [errors[0], *(np.reshape(e, -1) for e in errors[1:])]
    moved, steeper = _rounded_statistics(call, axes, weight, bias, eps)
    errors[0] = errors[0] + moved
    if len(errors) > 2:
        errors[2] = errors[2] + np.reshape(steeper, -1)
    if len(call.results) > 4:
        errors += [*[None] * (len(call.results) - 5), *_moved(call, axes, block)]
    return errors


def _added_by(call: BoundedCall) -> float:
    """How the sums of a channel are made: in float64 where its places lie together, as float32.

    Channels that come last in memory are added a row after the other in the type itself.
    """
    values: Array = call["input"]
    lies_together = values.ndim > 2 and values.flags.c_contiguous
    return STREAM if lies_together and call.dtype != np.float64 else BLOCK


def _rounded_statistics(
    call: BoundedCall, axes: tuple[int, ...], weight: Array, bias: Array, eps: float
) -> tuple[Array | float, Array | float]:
    """What the result and 1 / √(variance + eps) move where statistics are rounded to a half type.

    By what the rounded mean is off, squared, the variance about it is greater.
    """
    given = [call[n] for n in ("weight", "bias", "running_mean", "running_var")]
    if not call.is_narrow or any(a is not None and a.dtype == np.float32 for a in given):
        return 0.0, 0.0
    wide = call.wide("input")
    mean = np.mean(wide, axis=axes, keepdims=True)
    rstd = 1 / np.sqrt(np.mean((wide - mean) ** 2, axis=axes, keepdims=True) + eps)
    steeper = (call.result_unit * np.abs(mean) * rstd) ** 2 / 2
    moved = (2 * np.abs(mean) + (2 + steeper / call.result_unit) * np.abs(wide - mean)) * rstd
    moved = moved * weight
    least = float(ml_dtypes.finfo(call.results[0].dtype).smallest_subnormal)
    lost = least * (1 + np.abs(wide - mean) * rstd**2) * rstd * weight
    return call.result_unit * (moved + bias) + lost, rstd * steeper


def _trains(call: BoundedCall) -> bool:
    if call.op_type in _BY_GIVEN:
        return False
    return bool(call.arguments.get("training", call.arguments.get("use_input_stats", True)))


_BY_GIVEN = frozenset(
    f"aten.{name}.default"
    for name in ("_native_batch_norm_legit_no_training", "_batch_norm_no_update")
)
"""Those that never take statistics of the batch."""


def instance_norm(call: BoundedCall) -> Errors:
    """Bound by rows: a channel of one sample, or by given statistics as :func:`batch_norm`."""
    if not _trains(call):
        return batch_norm(call)
    (error,) = _grouped(call, call["input"], call["input"].shape[1], folds=True)
    shape = [1, call["input"].shape[1]] + [1] * (call["input"].ndim - 2)
    weight, bias = _parameter(call, "weight", shape), _parameter(call, "bias", shape)
    axes, eps = tuple(range(2, call["input"].ndim)), float(call["eps"])
    return [error + _rounded_statistics(call, axes, weight, bias, eps)[0]]


def rms_norm(call: BoundedCall) -> Errors:
    """Bound relative to the result: nothing is subtracted, but from complex squares.

    What is left of these is off by as much more as they are larger; open by the root's branch.
    """
    axes = _trailing(call)
    wide = call.wide("input")
    count = FEW + call.depth(length_along(wide, axes))
    sizes = np.abs(wide)
    greatest = np.max(sizes, axis=axes, keepdims=True, initial=0, where=np.isfinite(sizes))
    count = count * np.ones(())
    if is_complex(wide.dtype):
        left = np.mean(wide**2, axis=axes, keepdims=True) + (call["eps"] or 0)
        from_cut = np.where(left.real < 0, np.abs(left.imag), np.abs(left))
        added = np.mean(sizes**2, axis=axes, keepdims=True)
        is_sure = call.unit * 4 * count * added < from_cut
        count = 4 * count * np.where(is_sure, 1 + added / np.abs(left), np.inf)
    errors = [call.unit * count * moduli(result) for result in call.results]
    return [call.opened(error, length_along(wide, axes) * greatest**2) for error in errors]


BY_STEPS = 5
"""Roundings of a variance and eps, their root, its inverse, a difference and a product."""


def _is_laid_out(call: BoundedCall) -> bool:
    """Whether channels come second or last in memory, and what is given for each lies together.

    torch knows channels that come last of images and volumes alone.
    """
    values = call["input"]
    given = [call[name] for name in ("weight", "bias", "running_mean", "running_var")]
    if not all(a is None or a.flags.c_contiguous for a in given):
        return False
    is_last = values.ndim > 3 and np.moveaxis(values, 1, -1).flags.c_contiguous
    return values.flags.c_contiguous or is_last


def _by_given(
    call: BoundedCall, weight: Array, bias: Array, shape: list[int], eps: float
) -> Errors:
    mean = call.wide("running_mean").reshape(shape)
    rstd = 1 / np.sqrt(call.wide("running_var").reshape(shape) + eps)
    scaled = (call.size("input") + np.abs(mean)) * rstd * weight
    error = call.unit * FEW * (scaled + bias)
    if call.is_narrow and not _is_laid_out(call):  # each step rounds to the type
        apart = np.abs(call.wide("input") - mean) * rstd * weight
        error = error + call.result_unit * BY_STEPS * apart
    way = _folded(call.size("input"), mean, rstd * weight)
    return [call.opened(error, way), *[None] * (len(call.results) - 1)]


def _folded(sizes: Array, mean: Array, slope: Array) -> Array:
    """The greatest number on the way of ``x · slope + (bias − mean · slope)``, or by steps."""
    return (sizes + np.abs(mean) + 1) * np.maximum(slope, 1)


def _normalized(
    call: BoundedCall,
    wide: Array,
    axes: tuple[int, ...],
    weight: Array,
    bias: Array,
    eps: float,
    *,
    squares: bool = False,
    block: float = STREAM,
    folds: bool = False,
) -> list[Any]:
    """The errors of the result, the mean and 1 / √(variance + eps)."""
    if not wide.size:
        return [None if r.size == 0 else np.zeros(r.shape) for r in call.results]
    mean = np.mean(wide, axis=axes, keepdims=True)
    center, sizes = wide - mean, np.abs(wide)
    variance = np.mean(center**2, axis=axes, keepdims=True)
    rstd = 1 / np.sqrt(variance + eps)
    reach = np.mean(sizes, axis=axes, keepdims=True)
    one_way = call.repeats(wide, axes, zeros=True, keepdims=True)
    light = np.maximum(call.drift(wide, axes), call.drift(center**2, axes))
    d = call.unit * (FEW + call.depth(length_along(wide, axes), block, one_way) + light)
    greatest = np.max(sizes, axis=axes, keepdims=True)
    off = d * reach + call.unit * LANES * greatest / length_along(wide, axes)
    off = call.opened(off, length_along(wide, axes) * reach)
    relative = d * (1 + 2 * reach * rstd)
    if squares:
        relative = relative + d * mean**2 * rstd**2
    relative = relative + (off * rstd) ** 2
    normal = np.abs(center) * rstd
    moved = call.unit * sizes * rstd + off * rstd
    error = weight * (moved + normal * relative) + call.unit * FEW * (weight * normal + bias)
    way = length_along(wide, axes) * greatest**2
    affine = np.maximum(way, _folded(sizes, mean, rstd * weight)) if folds else way
    errors = [call.opened(error, affine), off, call.opened(rstd * relative, way)]
    return errors[: len(call.results)]


def _moved(call: BoundedCall, axes: tuple[int, ...], block: float) -> list[Any]:
    """The running statistics after a batch: of the mean and of the variance."""
    wide, momentum = call.wide("input"), abs(call["momentum"])
    count = length_along(wide, axes)
    d = call.unit * (FEW + call.depth(count, block, call.repeats("input", axes, zeros=True)))
    mean = np.mean(wide, axis=axes, keepdims=True)
    reach = np.mean(np.abs(wide), axis=axes)
    spread = np.sum(np.abs(wide - mean) * (np.abs(wide) + np.abs(mean)), axis=axes)
    kept = [
        call.unit * FEW * abs(1 - momentum) * call.size(name)
        for name in ("running_mean", "running_var")
    ]
    off = (d * spread + count * (d * reach) ** 2) / max(count - 1, 1)
    off = call.opened(off, count * np.max(np.abs(wide), axis=axes, initial=0) ** 2)
    found = [kept[0] + momentum * d * reach, kept[1] + momentum * off]
    names, own = ("running_mean", "running_var"), call.result_unit
    if any(call[name].dtype.itemsize > 2 for name in names):
        return found
    # in a half type statistics are rounded, and each product before they are added
    batch = np.abs(mean).reshape(-1), np.var(wide, axis=axes) * count / max(count - 1, 1)
    parts = [abs(1 - momentum) * call.size(name) for name in names]
    return [
        error + own * (part + 2 * momentum * size)
        for error, part, size in zip(found, parts, batch, strict=True)
    ]


def weight_norm_backward(call: BoundedCall) -> Errors:
    """Bound ``g / ‖v‖ · (grad - v (Σ grad · v) / ‖v‖²)`` and ``(Σ grad · v) / ‖v‖`` by terms.

    n is how many elements have one norm.
    """
    gradient, v, g, norms = (
        call.size(name) for name in ("grad_w", "saved_v", "saved_g", "saved_norms")
    )
    axes = tuple(i for i in range(v.ndim) if i != call["dim"] % v.ndim)
    terms = gradient * v
    shared = np.sum(terms, axis=axes, keepdims=True) / norms
    one_way = call.repeats(terms, axes, keepdims=True)
    d = call.unit * (2 * FEW + call.depth(length_along(v, axes), BLOCK, one_way))
    whole = g / norms * (gradient + v * shared / norms)
    way = np.maximum(shared * norms, g / norms)
    return [call.opened(d * whole, np.maximum(whole, way)), call.opened(d * shared, way)]


# -- backward -------------------------------------------------------------------------------------


def layer_norm_backward(call: BoundedCall) -> Errors:
    """Bound rows as :func:`layer_norm`; the gradients of the parameters are sums over all rows."""
    axes = _trailing(call)
    weight = _parameter(call, "weight", call["normalized_shape"])
    mean, rstd = call.wide("mean"), call.wide("rstd")
    others = tuple(range(axes[0]))
    values, gradient = call.wide("input"), call.wide("grad_out")
    # torch adds up the gradients of parameters in their own type, a row at a time
    own = call.result_unit if call.is_narrow else call.unit
    errors = _gradients(call, values, gradient, weight, mean, rstd, axes, others, own)
    present = [call[name] is not None for name in ("input", "weight", "bias")]
    kept = zip(errors, call["output_mask"], present, strict=True)
    return [error for error, asked, given in kept if asked and given]


def group_norm_backward(call: BoundedCall) -> Errors:
    """Bound rows as :func:`group_norm`; the gradients of the parameters are sums over samples."""
    samples, channels, places, groups = (call[name] for name in ("N", "C", "HxW", "group"))
    shape = (samples, groups, channels // groups, places)
    mean, rstd = (call.wide(name).reshape(samples, groups, 1, 1) for name in ("mean", "rstd"))
    weight = _parameter(call, "weight", [1, groups, channels // groups, 1])
    values, gradient = (call.wide(name).reshape(shape) for name in ("input", "grad_out"))
    errors = _gradients(call, values, gradient, weight, mean, rstd, (2, 3), (0, 3), call.unit)
    pairs = zip(call.asked(errors), call.results, strict=True)
    return [np.reshape(error, result.shape) for error, result in pairs]


def batch_norm_backward(call: BoundedCall) -> Errors:
    """Bound channels as :func:`batch_norm`; without training, by what is multiplied alone."""
    values, axes = call.wide("input"), (0, *range(2, call["input"].ndim))
    shape = [1, values.shape[1]] + [1] * (values.ndim - 2)
    names = ("running_mean", "running_var", "save_mean", "save_invstd")
    others = {"save_invstd": call["save_var"]} if "save_var" in call.arguments else {}
    trains = bool(call["update" if others else "train"])
    given = [others.get(name, call[name]) for name in names]
    found = batch_statistics(*given, train=trains, eps=float(call["eps"]))
    mean, rstd = (part.reshape(shape) for part in found)
    weight, gradient = _parameter(call, "weight", shape), call.wide("grad_out")
    sums = (values, gradient, weight, mean, rstd, axes, axes, call.unit)
    errors = _gradients(call, *sums, block=_added_by(call))
    if not trains:
        errors[0] = call.unit * (FEW + 2) * np.abs(gradient) * weight * np.abs(rstd)
    if call["input"].dtype.itemsize == 2 and not _lie_alike(call["input"], call["grad_out"]):
        own = float(ml_dtypes.finfo(call["input"].dtype).eps) / 2
        steps = _steps_of_channels(
            values - mean, np.abs(gradient), weight, rstd, axes, trains=trains
        )
        errors = [e + own * FEW * terms for e, terms in zip(errors, steps, strict=True)]
    return call.asked(errors)


def _lie_alike(first: Array, second: Array) -> bool:
    """Whether two tensors lie one element after the other, in rows or with channels last."""
    pairs = [(a, np.moveaxis(a, 1, -1)) for a in (first, second)]
    return any(all(ways[i].flags.c_contiguous for ways in pairs) for i in (0, 1))


def _steps_of_channels(
    center: Array,
    gradient: Array,
    weight: Array,
    rstd: Array,
    axes: tuple[int, ...],
    *,
    trains: bool,
) -> tuple[Array, Array, Array]:
    """Σ of the moduli that a kernel for any layout rounds to the type of a half operand."""
    normal, scaled = np.abs(center * rstd), gradient * weight
    terms = scaled
    if trains:
        terms = scaled + np.mean(scaled, axis=axes, keepdims=True)
        terms = terms + normal * np.mean(scaled * normal, axis=axes, keepdims=True)
    sums = np.sum(gradient * normal, axis=axes), np.sum(gradient, axis=axes)
    return np.abs(rstd) * terms, *sums


def _gradients(
    call: BoundedCall,
    values: Array,
    gradient: Array,
    weight: Array,
    mean: Array,
    rstd: Array,
    axes: tuple[int, ...],
    others: tuple[int, ...],
    adds_in: float,
    block: float = STREAM,
) -> list[Any]:
    """Σ of the moduli of what is added, kernels taking ``(x - mean) · rstd`` apart.

    ``adds_in`` is the unit of the type in which the gradients of parameters are added up.
    """
    added = _added(values, gradient, mean, rstd)
    drift = _greatest(call.drift(part * weight, axes) for part in added)
    rows, own = length_along(values, others), adds_in if adds_in > call.unit else 0.0
    aside = _greatest(call.drift(part, others, own, keepdims=False) for part in added)
    gradient = np.abs(gradient)
    reach = (np.abs(values) + np.abs(mean)) * np.abs(rstd)
    scaled = gradient * weight
    terms = scaled + np.mean(scaled, axis=axes, keepdims=True)
    terms = terms + reach * np.mean(scaled * reach, axis=axes, keepdims=True)
    length = length_along(values, axes)
    steps = call.depth_in_lanes(length) if block == STREAM else call.depth(length, block)
    d = call.unit * (2 * FEW + steps + drift)
    count = call.unit * (FEW + call.depth(rows, BLOCK)) + adds_in * aside
    parameter = np.sum(gradient * reach, axis=others), np.sum(gradient, axis=others)
    sums = [call.opened(count * sizes, sizes) for sizes in parameter]
    if own:
        few = [
            call.stepped(1 + sqrt(rows), sizes) + call.stepped(rows, 0.0) for sizes in parameter
        ]
        pairs = zip(sums, few, parameter, strict=True)
        sums = [call.opened(e + part, sizes, call.results[0].dtype) for e, part, sizes in pairs]
    # sums with the operand and with its mean come before what makes them small, or large
    sizes, steep = np.abs(values) + np.abs(mean), np.abs(rstd)
    lost = np.maximum(np.sum(gradient * sizes, axis=others), np.max(reach, axis=others, initial=0))
    sums[0] = call.opened(sums[0], lost)
    way = np.sum(scaled * sizes, axis=axes, keepdims=True)
    way = np.maximum(way, np.maximum(way * (sizes + 1) * steep**3, steep**3))
    return [call.opened(d * steep * terms, way), *sums]


def _added(values: Array, gradient: Array, mean: Array, rstd: Array) -> list[Array]:
    """What kernels add up: gradients, and these times operands, centered or normalized ones."""
    center = values - mean
    return [gradient, *(gradient * factor for factor in (values, center, center * rstd))]


def _greatest(parts: Iterable[Array]) -> Array:
    return np.maximum.reduce([*parts])


def _parameter(call: BoundedCall, name: str, shape: Any) -> Array:
    """The moduli of a parameter; absent, a weight is 1 and a bias 0."""
    given = call[name]
    if given is None:
        return np.full((), float(name == "weight"))
    return np.abs(widened(given)).reshape(shape)


def _trailing(call: BoundedCall) -> tuple[int, ...]:
    rank = call["input"].ndim
    return tuple(range(rank - len(call["normalized_shape"]), rank))
