"""Bounds of operators linear in each argument: ``u · (c + d(n)) · Σ |terms|`` at each element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod, sqrt
from typing import Any

import ml_dtypes
import numpy as np

from torch_ir.ops.choices import leaves_writes_open
from torch_ir.semantics.axes import reduced_axes
from torch_ir.semantics.bounds.call import (
    BLOCK,
    STREAM,
    BoundedCall,
    Errors,
    accumulated_in,
    least_normal,
    length,
)
from torch_ir.semantics.bounds.call import moduli as sizes_of
from torch_ir.semantics.bounds.unwritten import unwritten
from torch_ir.semantics.dtypes import Array, is_complex, is_inexact
from torch_ir.semantics.numbers import flat
from torch_ir.semantics.operators.convolution import with_channels
from torch_ir.semantics.operators.sorting import histogram_range

PARTS = 4
"""How often a sum of parts is rounded to the result's own type, at most."""
FEW = 2
"""The product or quotient of a term, and the last addition."""


def summed(
    call: BoundedCall,
    lengths: list[int],
    block: float,
    few: float = FEW,
    one_way: Any = 0.0,
    *,
    divides: bool = False,
) -> Errors:
    """The errors of sums of so many terms; a mean is divided when all is added."""
    sizes, flushed = call.terms(), _of_normal_numbers(call) if call.is_narrow else None
    without = sizes if flushed is None else flushed.terms()
    errors: list[Any] = []
    for result, count, terms, kept in zip(call.results, lengths, sizes, without, strict=True):
        if not is_inexact(result.dtype):
            errors.append(None)
            continue
        scale = 3 if is_complex(result.dtype) else 1
        steps = call.depth(count, block, one_way)
        # kernels of products may take what is less than the least normal number for 0
        lost = count * least_normal(call.dtype) if call.is_narrow else 0.0
        lost = lost if flushed is None else lost + np.nan_to_num(terms - kept, nan=0.0)
        whole = terms * max(count, 1) if divides else terms
        errors.append(call.opened(call.unit * scale * (few + steps) * terms + lost, whole))
    return errors


def _of_normal_numbers(call: BoundedCall) -> BoundedCall | None:
    """The call with 0 for all that is less than normal numbers; None if that is nothing."""
    plain = {name: _flushed(value) for name, value in call.arguments.items()}
    if all(plain[name] is value for name, value in call.arguments.items()):
        return None
    return replace(call, arguments=plain, _wide={})


def _flushed(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or not is_inexact(value.dtype):
        return value
    sizes = sizes_of(value)
    is_less = (sizes > 0) & (sizes < least_normal(accumulated_in(value.dtype)))
    return np.where(is_less, np.zeros((), value.dtype), value) if is_less.any() else value


_MEANS = frozenset({"aten.mean.default", "aten.mean.dim", "aten.nanmean.default"})
_CASTING = _MEANS | {"aten.sum.default", "aten.sum.dim_IntList"}
_PARTED = frozenset({"aten.nansum.default", "aten.nanmean.default"})
"""Those that round a part's sum to the result's type wherever reduced axes do not adjoin."""


def reduction(call: BoundedCall) -> Errors:
    """Bound sums and means: torch adds in cascades, and may first round to ``dtype``, or not."""
    is_mean = call.op_type in _MEANS
    errors = summed(call, [length(call)] * len(call.results), STREAM, divides=is_mean)
    if call.op_type == "aten.nansum.default" and not is_inexact(call.results[0].dtype):
        return [_uncounted(call)]
    if call.op_type in _PARTED and call.is_narrow:
        errors = [
            e if e is None else _in_parts(call, e, terms, is_mean=is_mean)
            for e, terms in zip(errors, call.terms(), strict=True)
        ]
    dtype = call.arguments.get("dtype")
    if call.op_type not in _CASTING or dtype is None or not call.is_narrow:
        return errors
    if dtype == call["self"].dtype:
        return errors
    return [
        error if error is None else error + call.result_unit * terms
        for error, terms in zip(errors, call.terms(), strict=True)
    ]


def _in_parts(call: BoundedCall, error: Any, terms: Array, *, is_mean: bool) -> Array:
    """What sums whose parts are rounded to the type are off; a mean divides by a count in it."""
    count = length(call) if is_mean else 1
    way = np.maximum(terms * count, count)
    return call.opened(error + call.stepped(PARTS, terms), way, call.results[0].dtype)


def _uncounted(call: BoundedCall) -> Any:
    """Infinite where an infinity is among what is added up as integers: it is none of them."""
    if not is_inexact(call["self"].dtype):
        return None
    axes = reduced_axes(call["dim"], call["self"].ndim)
    lost = ~np.isfinite(call["self"])
    return np.where(lost.any(axis=axes, keepdims=bool(call["keepdim"])), np.inf, 0.0)


def stepwise(call: BoundedCall) -> Errors:
    """Bound sums whose parts are rounded to the result's own type."""
    parts = call.terms()
    errors = reduction(call)
    return [
        error if error is None else error + call.stepped(PARTS, terms)
        for error, terms in zip(errors, parts, strict=True)
    ]


def product(call: BoundedCall) -> Errors:
    """Bound products of matrices: n is the axis that they share, ``beta · self`` one term more."""
    names = [name for name in call.arguments if isinstance(call[name], np.ndarray)]
    factors = [name for name in names if name not in ("bias", "offs")]
    adds = call.op_type in _ADDING
    first: Array = call[factors[1 if adds else 0]]
    count = max(first.shape[-1:] or (1,))
    if call.op_type == "aten.addbmm.default":
        count *= first.shape[0]
    few = FEW + 2 * adds
    one_way = _repeated(call, factors[adds:], slice(-2, None))
    lengths = [max(count, 1)] * len(call.results)
    errors: Any = summed(call, lengths, BLOCK, few, one_way)
    scales = {name: abs(call.arguments.get(name, 1)) for name in ("alpha", "beta")}
    if adds and min(scales.values()) < 1:  # kernels may scale what is added up already
        whole = {name: max(scale, 1) for name, scale in scales.items()}
        ways = replace(call, arguments={**call.arguments, **whole}, _wide={}).terms()
        errors = [e if e is None else call.opened(e, w) for e, w in zip(errors, ways, strict=True)]
    if call.op_type == "aten._grouped_mm.default":
        is_open = unwritten(call.op_type, 0, call.arguments, call.results[0].shape)
        return [np.where(is_open, np.inf, error) for error in errors]
    if call.is_narrow and call.op_type == "aten.linear.default" and first.ndim > 2:
        if call["bias"] is None:
            return errors
        (result,) = call.results  # rounded before a bias is added, unless rows lie one by one
        return [
            error + call.result_unit * (sizes_of(result) + call.size("bias")) for error in errors
        ]
    if not call.is_narrow or call.op_type not in _ROUNDING_TERMS:
        return errors
    steps = first.shape[0] if call.op_type == "aten.addbmm.default" else 1
    (terms,) = call.terms()  # the product is rounded to the type before it is added
    off = call.stepped(1 + sqrt(steps), terms)
    return [call.opened(error + off, terms, call.results[0].dtype) for error in errors]


def scaled_product(call: BoundedCall) -> Errors:
    """Bound products of 8-bit matrices: n is the axis that they share; scales round once more."""
    if "scales" in call.arguments:
        terms = call.size("self") @ call.size("mat2").T * call.size("scales")
    else:
        first, second = (sizes_of(flat(call[name])[0]) for name in ("scale_a", "scale_b"))
        terms = call.size("mat2") * second.reshape(1, -1)
        terms = (call.size("self") * first.reshape(-1, 1)) @ terms
        terms = terms if call["bias"] is None else terms + call.size("bias")
    one_way = _repeated(call, ["self", "mat2"], slice(-2, None))
    steps = call.depth(max(call["self"].shape[-1], 1), BLOCK, one_way)
    return [call.opened(call.unit * (FEW + 3 + steps) * terms, terms)]


def time_first(call: BoundedCall) -> Errors:
    """Bound convolutions of sequences, time first: n is the channels times a kernel's steps.

    Products of a step may be rounded to the type before the next one's are added.
    """
    weight: Array = call["weight"]
    one_way = _repeated(call, ["self", "weight"], slice(None))
    (error,) = summed(call, [prod(weight.shape[:2])], BLOCK, FEW + 1, one_way)
    if error is None:  # of integers
        return [None]
    (terms,) = call.terms()
    steps = call.stepped(1 + sqrt(len(weight)), terms) if call.is_narrow else 0.0
    return [call.opened(error + steps, terms, call.results[0].dtype)]


def _repeated(call: BoundedCall, factors: list[str], of: slice) -> float:
    """Which part of the products of two factors may be equal, in the line of an axis with most."""
    shares: list[float] = []
    for name in sorted(factors, key=lambda name: call[name].size):
        lines = [call.repeats(name, [axis]) for axis in range(call[name].ndim)[of]]
        shares.append(max((float(np.max(line, initial=0)) for line in lines), default=0.0))
        if not shares[-1]:
            break
    return min(shares, default=0.0)


_ADDING = frozenset(
    f"aten.{name}.default" for name in ("addmm", "addmv", "baddbmm", "addbmm", "addr")
)
_ROUNDING_TERMS = frozenset(f"aten.{name}.default" for name in ("addbmm", "addmv", "addr"))


def trilinear(call: BoundedCall) -> Errors:
    """Bound sums of products of three: n is what the summed axes have; kernels add in slices."""
    factors = [(call[f"i{part}"], call[f"expand{part}"]) for part in (1, 2, 3)]
    shapes = [np.expand_dims(value, tuple(axes)).shape for value, axes in factors]
    whole = np.broadcast_shapes(*shapes)
    count = prod(whole[axis] for axis in call["sumdim"])
    errors = summed(call, [max(count, 1)], BLOCK, FEW + 1)
    if not is_inexact(call.results[0].dtype):
        return errors
    third = np.maximum(call.size("i3"), 1)  # the sum of the first two may overflow by itself
    (way,) = call.meant(i1=call.size("i1"), i2=call.size("i2"), i3=third)
    if not call.is_narrow:
        return [call.opened(error, way) for error in errors]
    (terms,) = call.terms()  # products, and the sums of slices, are rounded to the type
    slices, made = whole[call.arguments.get("unroll_dim", 1)], call.results[0].dtype
    return [call.opened(e + call.stepped(2 + sqrt(slices), terms), way, made) for e in errors]


def not_finite(call: BoundedCall) -> list[Array] | None:
    """Mark what is not finite, where an operand is not: the order of sums decides what it is."""
    if all(np.isfinite(value).all() for value in call.arrays.values()):
        return None
    return [~np.isfinite(result) for result in call.results]


def convolution(call: BoundedCall) -> Errors:
    """Bound convolutions and their gradients: n is how many products an element adds."""
    weight: Array = call["weight"]
    groups = call.arguments.get("groups", 1)
    taps = prod(weight.shape[2:])
    forward, back = prod(weight.shape[1:]), weight.shape[0] // max(groups, 1) * taps
    if "grad_output" in call.arguments:
        places = call["grad_output"].shape[0] * prod(call["grad_output"].shape[2:])
        wanted = [max(forward, back), max(places, 1), max(places, 1)]
        # columns of the operand's gradient; those of the weights add up over samples in the type
        steps = [taps, call["grad_output"].shape[0], call["grad_output"].shape[0]]
        one_way = max(
            _repeated(call, [n, "grad_output"], slice(None)) for n in ("input", "weight")
        )
        errors = summed(call, call.asked(wanted), BLOCK, FEW, one_way)
        return _columns(call, errors, call.asked(steps))
    count = max(back if _transposes(call) else forward, 1)
    one_way = _repeated(call, ["input", "weight"], slice(None))
    errors = summed(call, [count] * len(call.results), BLOCK, FEW + 1, one_way)
    if is_complex(call.results[0].dtype):  # sums of both parts are multiplied, too
        pairs = zip(errors, call.terms(), strict=True)
        errors = [call.opened(error, 2 * terms) for error, terms in pairs]
    return _columns(call, errors, [taps]) if _transposes(call) else errors


def slow_convolution(call: BoundedCall) -> Errors:
    """Bound as :func:`convolution`, which this is by another name."""
    return convolution(_named_plainly(call))


def slow_beside_zeros(call: BoundedCall) -> list[Array] | None:
    """Mark as :func:`beside_zeros`."""
    return beside_zeros(_named_plainly(call))


def _named_plainly(call: BoundedCall) -> BoundedCall:
    rank = call["weight"].ndim - 2
    is_adjoint = "transpose" in call.op_type
    plain = f"aten.conv_transpose{rank}d.input" if is_adjoint else f"aten.conv{rank}d.default"
    given = {name: value for name, value in call.arguments.items() if name != "kernel_size"}
    image, weight = given.pop("self"), given.pop("weight")
    if not is_adjoint:
        image, weight = with_channels(image, weight)
    arguments = {"input": image, "weight": weight, **given}
    return replace(call, op_type=plain, arguments=arguments, _wide={})


def beside_zeros(call: BoundedCall) -> list[Array] | None:
    """Mark the elements that have a 0 times an infinity or NaN, which kernels may leave out.

    Padding is a part of the images, and of the results' gradients where it is transposed; so are
    the zeros between images that are transposed. In narrow types kernels take places in pairs,
    the last one with a weight of 0. None where all else is finite.
    """
    is_backward = "grad_output" in call.arguments
    transposes = _transposes(call)
    images = "grad_output" if is_backward and transposes else "input"
    marks = [np.zeros(result.shape, bool) for result in call.results]
    lost = {name: ~np.isfinite(value) for name, value in call.arrays.items()}
    if not any(places.any() for places in lost.values()):
        return None
    if any(places.any() for name, places in lost.items() if name != images):
        # 0 times infinity is the only NaN that what is positive gives
        infinite = {n: np.where(places, np.inf, 1.0) for n, places in lost.items()}
        found = call.meant(**infinite | {images: np.ones(call[images].shape)})
        marks = [mark | np.isnan(made) for mark, made in zip(marks, found, strict=True)]
    ways: list[list[Array]] = []
    if transposes != is_backward and lost["weight"].any():
        ways.append(_between_images(call, lost["weight"]))
    if call.is_narrow:
        names = [n for n in ("input", "grad_output") if n in lost and lost[n].any()]
        ways += [_in_pairs(call, name, lost[name]) for name in names]
    for found in ways:
        marks = [mark | places for mark, places in zip(marks, found, strict=True)]
    return marks


def _between_images(call: BoundedCall, lost: Array) -> list[Array]:
    """Mark the channels of transposed images that have weights which are not finite.

    Those are the results, and of a convolution that does not transpose, its operand's gradients.
    """
    marks = [np.zeros(result.shape, bool) for result in call.results]
    if call.arguments.get("output_mask", (True,))[0]:
        taken = lost.any(axis=tuple(range(2, lost.ndim)), keepdims=True)
        ones = {n: np.full(v.shape, float(n != "bias")) for n, v in call.arrays.items()}
        weight = np.broadcast_to(taken, lost.shape).astype("float64")
        found = call.meant(**ones | {"weight": weight})[0]
        marks[0] |= np.any(found > 0, axis=(0, *range(2, found.ndim)), keepdims=True)
    return marks


def _in_pairs(call: BoundedCall, name: str, lost: Array) -> list[Array]:
    """Mark what has a neighbor, on the last axis, of an element that is not finite."""
    step = int(np.ravel(call.arguments.get("dilation", 1))[-1])
    near = lost.astype("float64")
    near[..., :-step] += lost[..., step:]
    near[..., step:] += lost[..., :-step]
    ones = {n: np.ones(v.shape) for n, v in call.arrays.items()}
    without, beside = (call.meant(**ones | {name: values}) for values in (near * 0, near))
    return [made > none for none, made in zip(without, beside, strict=True)]


def _transposes(call: BoundedCall) -> bool:
    return bool(call["transposed"]) or call.op_type in _TRANSPOSED


_TRANSPOSED = frozenset(
    ("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
)


def _columns(call: BoundedCall, errors: Errors, counts: list[int]) -> Errors:
    """Of narrow types, columns for each place of the kernel are rounded to it and added in it."""
    if not call.is_narrow:
        return errors
    return [
        call.opened(error + call.stepped(1 + sqrt(n), terms), terms, result.dtype)
        for error, terms, n, result in zip(errors, call.terms(), counts, call.results, strict=True)
    ]


def pooling(call: BoundedCall) -> Errors:
    """Bound means of windows, whose elements are added one after the other; n is how many."""
    kernel = call.arguments.get("kernel_size")
    if kernel is None:  # adaptive: a window is what an element of the result has of the operand
        sizes = [a.size for a in call.arrays.values()]
        count = 4 * max(sizes) // max(min(*sizes, call.results[0].size), 1)
    else:
        count = kernel**3 if isinstance(kernel, int) else prod(kernel)
    (operand, *_) = call.arrays
    one_way = np.max(call.repeats(operand, range(call[operand].ndim)[2:]), initial=0)
    divides = "backward" not in call.op_type
    counts = [max(count, 1)] * len(call.results)
    errors = summed(call, counts, BLOCK, FEW, one_way, divides=divides)
    is_in_type = call.is_narrow and call.op_type in _IN_TYPE
    if divides:
        lost = light_sources(call, counts, divides=True, is_in_type=is_in_type)
        errors = [e if e is None else e + light for e, light in zip(errors, lost, strict=True)]
    if not is_in_type:
        return errors
    (terms,) = call.terms()
    way = count * terms if divides else terms
    kept_in = call.results[0].dtype
    steps = 1 + sqrt(count) + one_way * count
    return [call.opened(e + call.stepped(steps, terms), way, kept_in) for e in errors]


_IN_TYPE = frozenset(
    f"aten.{name}.default"
    for name in (
        "_adaptive_avg_pool2d_backward",
        "_adaptive_avg_pool3d",
        "_adaptive_avg_pool3d_backward",
        "adaptive_avg_pool3d",
        "avg_pool2d_backward",
        "avg_pool3d_backward",
    )
)
"""What adds up in the operand's own type, also where that is narrow."""


def running_sum(call: BoundedCall) -> Errors:
    """Bound sums of all before: one term after the other."""
    self = call["self"]
    one_way = call.repeats("self", [call["dim"]], keepdims=True) if self.ndim else 0.0
    return summed(call, [along(call)] * len(call.results), BLOCK, FEW, one_way)


def lost_products(result: Array, reach: Array, steps: Any) -> Array:
    """Return what subnormal products lose on the way, in the type of the result.

    What is left of a product is at most the reach: no part of a greater one is subnormal.
    """
    info = ml_dtypes.finfo(result.dtype)
    lost = sizes_of(result) < float(info.smallest_normal) * reach
    return np.asarray(lost * float(info.smallest_subnormal) * steps * reach)


def along(call: BoundedCall) -> int:
    """Return how many elements a running sum or product of a dimension has, or of all."""
    self, dim = call["self"], call["dim"]
    if not self.ndim:
        return 1
    return max(self.shape[dim] if isinstance(dim, int) else self.size, 1)


def scattered(call: BoundedCall) -> Errors:
    """Bound sums in open order: n go to a place; some kernels add in the result's type.

    What is put there without adding is moved, and nothing is rounded.
    """
    if leaves_writes_open(call.op_type, call.arguments):
        return [None] * len(call.results)
    errors: list[Any] = []
    one_way, counts = _repeated_sources(call), _hits(call)
    parts = call.terms(), counts, light_sources(call, counts)
    for result, terms, hits, light in zip(call.results, *parts, strict=True):
        if not is_inexact(result.dtype):
            errors.append(None)
            continue
        walk = np.sqrt(hits) + call.one_way(one_way, hits) * hits
        error = call.unit * (FEW + walk) * terms * (3 if is_complex(result.dtype) else 1)
        if call.is_narrow:  # the first addition is the result's own rounding
            scaled = call.arguments.get("alpha", 1) != 1  # the products are rounded too
            error = error + call.result_unit * (np.where(hits > 1, walk, 0) + scaled) * terms
            error = np.where(hits > 1, call.opened(error, terms, result.dtype), error)
        errors.append(call.opened(error + light, terms))
    return errors


def light_sources(
    call: BoundedCall, hits: Sequence[Any], *, divides: bool = False, is_in_type: bool = True
) -> list[Array]:
    """What sums may lose, in any order, of terms that are less than a unit of the greatest.

    Added to a sum that is as large as the whole, as behind one large term, they are all rounded
    down, or up from half on: that is no walk. No sum loses more than half a unit with each term.

    Args:
        call: The call.
        hits: How many terms are added for each element of each result.
        divides: Whether the sums are divided by these, as means.
        is_in_type: Whether sums of a narrow type are kept in it.
    """
    is_narrow = call.is_narrow and is_in_type
    unit, whole = call.result_unit if is_narrow else call.unit, call.terms()
    sums = [t * (count + 1) if divides else t for t, count in zip(whole, hits, strict=True)]
    most = max([float(np.max(t, initial=0, where=np.isfinite(t))) for t in sums], default=0.0)
    least = 2 * unit * most / max(abs(call.arguments.get("alpha", 1)), 1)
    sizes = {name: sizes_of(v) for name, v in call.arrays.items() if is_inexact(v.dtype)}
    small = {name: np.where(size < least, size, 0) for name, size in sizes.items()}
    if not any(part.any() for part in small.values()):
        return [np.zeros(t.shape) for t in whole]
    lost = replace(call, arguments={**call.arguments, **small}, _wide={}).terms()
    return [
        np.minimum(light, unit * count * terms)
        for light, count, terms in zip(lost, hits, whole, strict=True)
    ]


def _repeated_sources(call: BoundedCall) -> float:
    """Which part of all values that are added is equal to others, of any place."""
    sources = [
        value for name, value in call.arrays.items() if name != "self" and is_inexact(value.dtype)
    ]
    return max((float(call.repeats(value, range(value.ndim))) for value in sources), default=1.0)


def _hits(call: BoundedCall) -> list[Array]:
    """How many values each element of the results is the sum of, without the one it was."""
    ones = {
        name: np.zeros(value.shape) if name == "self" else np.ones(value.shape)
        for name, value in call.arrays.items()
        if is_inexact(value.dtype)
    }
    more = {name: 1.0 for name in ("alpha", "value") if name in call.arguments}
    return call.meant(**ones, **more)


def folded(call: BoundedCall) -> Errors:
    """Bound overlapping windows added where they lie: as many as a window's elements at most."""
    count = prod(call["kernel_size"])
    errors = summed(call, [count], STREAM)
    if not call.is_narrow:
        return errors
    (terms,) = call.terms()
    return [error + call.result_unit * sqrt(count) * terms for error in errors]


def scatter_joined(call: BoundedCall) -> Errors:
    """Bound sums as :func:`scattered`; products relative to the result; extremes exact."""
    reduce = call["reduce"]
    (result,) = call.results
    if reduce in ("amax", "amin") or not is_inexact(result.dtype):
        return [None]
    counted: dict[str, Any] = {
        "self": np.zeros(result.shape),
        "reduce": "add" if call.op_type in _JOINED else "sum",
    }
    source = next((n for n in ("src", "source") if n in call.arguments), None)
    if source is not None:
        counted[source] = np.ones(call[source].shape)
    else:
        counted["value"] = 1.0
    if call.op_type == "aten.index_reduce.default":
        hits: Any = call["index"].size
    else:
        counted["include_self"] = True
        if call.op_type in _JOINED:
            del counted["include_self"]
        (hits,) = call.meant(**counted)
    walk = np.sqrt(hits) + call.one_way(_repeated_sources(call), hits) * hits
    # some kernels join in the type
    own, kept_in = (call.result_unit, result.dtype) if call.is_narrow else (call.unit, None)
    if reduce in ("multiply", "prod"):
        given = ["self", *([] if source is None else [source])]
        (way,) = call.meant(**{name: np.maximum(call.size(name), 1) for name in given})
        error = own * (FEW + walk) * sizes_of(result)
        if call.is_narrow:
            error = error + lost_products(result, way, np.sqrt(hits))
        return [call.opened(error, way, kept_in)]
    (terms,) = call.terms()
    is_mean = reduce == "mean"
    (light,) = light_sources(call, [hits], divides=is_mean)
    whole = terms * (hits + 1) if is_mean else terms
    error = own * np.where(hits > 0, FEW + walk, 0) * terms + light
    return [call.opened(error, whole, kept_in)]


_JOINED = frozenset(("aten.scatter.reduce", "aten.scatter.value_reduce"))


def counted(call: BoundedCall) -> Errors:
    """Bound numbers counted by weight: a sum for each number."""
    if call["weights"] is None:
        return [None]
    hits = np.bincount(call["self"], minlength=call.arguments.get("minlength", 0))
    longest = int(hits.max(initial=1))
    (error,) = summed(call, [longest], BLOCK, FEW, call.repeats("weights", [0]))
    return [error if error is None else error + light_sources(call, [hits])[0]]


def histogram(call: BoundedCall) -> Errors:
    """Bound counts by the elements that roundings may put into one bin or another.

    ``(x - min) · bins / (max - min)`` has three, in the type itself; where the product overflows
    in it, the bin is open. Where counts by ones reach what that holds no integer above, or the
    range has no width in it, all is.
    """
    (result,), bins = call.results, call.arguments.get("bins", 100)
    ends = [call.arguments.get(name, 0) for name in ("min", "max")]
    low, high = histogram_range(call["self"], *ends)
    if low == high:
        return [np.inf]
    values = call.wide("self").reshape(-1)
    values = values[(values >= low) & (values <= high)]
    places = (values - low) / (high - low) * bins
    off = 4 * call.result_unit * (np.abs(places) + 1)
    off = call.opened(off, (values - low) * bins, result.dtype)
    first, last = (
        np.clip(np.floor(end), 0, bins - 1).astype("int64") for end in (places - off, places + off)
    )
    steps = np.bincount(first, minlength=bins + 1) - np.bincount(last + 1, minlength=bins + 1)
    settled = np.bincount(first[first == last], minlength=bins)
    error = (np.cumsum(steps)[:-1] - settled).astype("float64")
    if call.dtype == np.float64:  # where a bound is doubled for the meaning, which counts the same
        error /= 2
    return [np.where(result.astype("float64") + error >= 1 / call.result_unit, np.inf, error)]
