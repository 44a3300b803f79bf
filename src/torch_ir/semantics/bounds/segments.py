"""Bounds of segments, bags and their gradients, histograms by edges, and rows made shorter."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np

from torch_ir.semantics.bounds.call import BLOCK, WALK, BoundedCall, Errors, least_normal, moduli
from torch_ir.semantics.bounds.sums import light_sources, summed
from torch_ir.semantics.dtypes import Array
from torch_ir.semantics.operators.embeddings import MAX, MEAN, SUM
from torch_ir.semantics.operators.segments import (
    bin_of,
    equal_edges,
    histogramdd_edges,
    volumes,
)

FEW = 4
PRODUCT = 2
"""The product of a row, and the last addition."""
OWNERS = 1
"""Which result of a bag has the bag of each index."""


def reduced(call: BoundedCall) -> Errors:
    """Bound sums and products joined one after the other in the type; extremes are picked."""
    (result,), reduce = call.results, call["reduce"]
    if reduce in ("max", "min"):
        return [None]
    ones = np.ones(call["data"].shape)
    (hits,) = call.meant(data=ones, reduce="sum", initial=0.0)
    sizes = call.size("data")
    if reduce == "prod":
        (reach,) = call.meant(data=np.maximum(sizes, 1), initial=max(abs(call["initial"] or 1), 1))
        info = ml_dtypes.finfo(result.dtype)
        least = float(info.smallest_subnormal) * reach * (hits + 1)
        error = call.result_unit * (FEW + hits) * moduli(result) + least
        return [call.opened(error, reach, result.dtype)]
    start = abs(call["initial"] or 0.0)
    (total,) = call.meant(data=sizes, reduce="sum", initial=start)
    (whole,) = call.meant(data=sizes, initial=start)
    error = call.result_unit * (FEW + hits) * np.nan_to_num(whole)
    return [call.opened(error, total, result.dtype)]


def bags(call: BoundedCall) -> Errors:
    """Bound sums and means of rows, one after the other; n is what the longest bag has.

    Of extremes, which are exact, the sum bounds more than it has to. In narrow types a mean is
    that of a sum rounded to the type. Indices behind the last offset, where that is to be the
    end, are in the last bag for some kernels of torch and in none for others: both are open.
    """
    indices, weights = call["indices"].reshape(-1), call["per_sample_weights"]
    counts = np.diff([*call["offsets"], indices.size])[: len(call.results[0]), None]
    longest = int(counts.max(initial=1))
    shares = [np.max(call.repeats(call["weight"][indices], [0]), initial=0)]
    rows = call.wide("weight")[indices]
    if weights is not None:
        shares.append(call.repeats("per_sample_weights", [0]))
        rows = rows * call.wide("per_sample_weights").reshape(-1, 1)
    errors = summed(call, [longest] * len(call.results), BLOCK, PRODUCT, min(shares))
    is_mean = call["mode"] == MEAN
    one_by_one = {"weight": rows, "indices": np.arange(len(rows)), "per_sample_weights": None}
    plain = replace(call, arguments={**call.arguments, **one_by_one}, _wide={})
    hits = [counts, *[1] * (len(call.results) - 1)]
    (light, *_) = light_sources(plain, hits, divides=is_mean)
    (terms, *_) = call.terms()
    first = errors[0] + light
    if call.is_narrow and is_mean:
        first = first + call.stepped(1, terms)
        first = call.opened(first, terms * counts, call.results[0].dtype)
    return _opened_behind(call, [first, *errors[1:]])


def _opened_behind(call: BoundedCall, errors: Errors) -> Errors:
    """Open the last bag, and whose the indices behind its end are."""
    count, offsets = call["indices"].size, call["offsets"]
    if not call["include_last_offset"] or not offsets.size or offsets[-1] == count:
        return errors
    found: list[Any] = []
    for index, (error, result) in enumerate(zip(errors, call.results, strict=True)):
        wide = np.array(np.broadcast_to(0.0 if error is None else error, result.shape))
        wide[offsets[-1] if index == OWNERS else len(offsets) - 2 :] = np.inf
        found.append(wide)
    return found


def bag_gradient(call: BoundedCall) -> Errors:
    """Bound sums of scaled rows in the gradient's own type, in which scales are rounded, too.

    Scaled by how often they occur, rows that do so as often as not all others are open: torch's
    kernel divides them by another row's count (pytorch#190063).
    """
    (result,), mode = call.results, call["mode"]
    whole = {"grad": np.ones(call["grad"].shape), "per_sample_weights": None}
    (hits,) = call.meant(**whole, scale_grad_by_freq=False, mode=SUM if mode == MEAN else mode)
    (terms,) = call.terms()
    share = float(np.max(call.repeats("grad", range(2)), initial=0))
    walk = WALK * np.sqrt(hits) + call.one_way(share, hits) * hits
    error = call.result_unit * (FEW + walk) * terms
    least = float(ml_dtypes.finfo(result.dtype).smallest_subnormal)
    found = call.opened(error + least * hits, terms, result.dtype)
    if call["scale_grad_by_freq"] and mode != MAX:
        counts = np.bincount(call["indices"].reshape(-1), minlength=len(result))
        lost = (counts > 0) & (len(set(counts[counts > 0].tolist())) > 1)
        found = np.where(lost[:, None], np.inf, found)
    return [found]


def bag_weights(call: BoundedCall) -> Errors:
    """Bound products of rows: n is the width."""
    (result,), (terms,) = call.results, call.terms()
    width = max(call["grad"].shape[-1], 1)
    one_way = min(float(np.max(call.repeats(n, [1]), initial=0)) for n in ("grad", "weight"))
    error = call.unit * (FEW + call.depth(width, np.inf, one_way)) * terms
    least = width * least_normal(call.dtype) if call.is_narrow else 0.0
    return [call.opened(error + least, terms, result.dtype)]


def histogram(call: BoundedCall) -> Errors:
    """Bound counts by what lies as near to an edge as this is off, and sums of weights.

    Where edges are in no order, all is open.
    """
    result, edges = call.results
    if not _ascends(edges):
        return [np.full(result.shape, np.inf), None]
    is_given = "bins_tensor" in call.op_type
    bins = call.arguments.get("bins", 100)  # as torch has it
    exact = edges if is_given else equal_edges(call["self"], bins, call["range"])
    ends = float(np.max(moduli(exact), initial=0))
    off = 0.0 if is_given else 4 * call.result_unit * ends
    values = call.wide("self").reshape(-1)
    weights = np.ones(values.shape) if call["weight"] is None else call.size("weight").reshape(-1)
    wide = exact.astype("float64")
    inside = (values >= wide[0] - off) & (values <= wide[-1] + off)
    values, weights = values[inside], weights[inside]
    first, last = (
        np.clip(np.searchsorted(wide, end, "right") - 1, 0, len(wide) - 2)
        for end in (values - off, values + off)
    )
    near = (first != last) | (np.min(np.abs(values[:, None] - wide), -1, initial=np.inf) <= off)
    moved = sum(
        np.bincount(place[near], weights[near], minlength=len(wide) - 1) for place in (first, last)
    )
    counts = np.bincount(first, weights, minlength=len(wide) - 1)
    own = 0 if call["weight"] is None else call.result_unit * (FEW + len(values)) * counts
    error = np.asarray(own + (moved if off else 0.0))
    if call["density"]:
        error = _as_density(call, counts, error, np.diff(wide), off)
    lost = moduli(result) + error >= 1 / call.result_unit
    return [np.where(lost & (call["density"] is not True), np.inf, error), off or None]


def _ascends(edges: Array) -> bool:
    return bool(np.all(edges[1:] >= edges[:-1]))


def _as_density(
    call: BoundedCall, counts: Array, error: Array, widths: Array, off: float
) -> Array:
    """What counts that are off come to as parts of the whole, by widths that are off too."""
    total = counts.sum()
    parts = counts / (total * widths)
    more = (error + counts * error.sum() / total) / (total * widths)
    return more + parts * (FEW * call.result_unit + 2 * off / widths + len(counts) * call.unit)


def shortened(call: BoundedCall) -> Errors:
    """Bound a row times a quotient by its norm, which 10⁻⁷ decides where it is nearly the most."""
    (result,) = call.results
    width = max(result.shape[-1], 1)
    power = abs(call["norm_type"])
    count = FEW + 8 + (width if np.isfinite(power) else 0)
    unit = call.result_unit * (FEW + 8) + call.unit * count
    largest = np.max(call.size("self"), -1, keepdims=True, initial=0)
    near = 1e-7 / max(call["max_norm"], 1e-7)
    error = (unit + near) * call.size("self")
    return [call.opened(error, width * largest ** max(power, 1) if np.isfinite(power) else 0.0)]


def backward(call: BoundedCall) -> Errors:
    """Bound quotients, and products of a segment's other elements, each rounded to the type.

    Elements that share an extreme are open where its gradient is not positive: only positive ones
    torch's kernel divides by how many they are.
    """
    (result,), reduce = call.results, call["reduce"]
    if reduce == "sum":
        return [None]
    if reduce != "prod":
        error = call.result_unit * FEW * moduli(result)
        return [error if reduce == "mean" else np.where(_unshared(call), np.inf, error)]
    marks = np.diff(call["offsets"], axis=-1) if call["lengths"] is None else call["lengths"]
    count = FEW + int(np.max(marks, initial=0))
    sizes = {name: call.size(name) for name in ("grad", "output", "data")}
    values = sizes["data"]
    (way,) = call.meant(**sizes | {"data": np.where(values == 0, 0, np.maximum(values, 1))})
    way = np.maximum(way, moduli(result) * values)
    least = float(ml_dtypes.finfo(result.dtype).smallest_subnormal)
    lost = least * count * np.maximum(np.abs(way), 1 / np.where(values == 0, 1, values))
    return [call.opened(call.result_unit * count * moduli(result) + lost, way, result.dtype)]


def _unshared(call: BoundedCall) -> Array:
    """Whether an element is one of several extremes of a segment, by no positive gradient."""
    gradient = call.wide("grad")
    (named,) = call.meant(grad=np.ones(gradient.shape))
    (lost,) = call.meant(grad=np.where(gradient > 0, 0.0, 1.0))
    return (lost > 0) & (named < 1)


def edges(call: BoundedCall) -> Errors:
    """Bound edges by the roundings of their ends."""
    return [4 * call.result_unit * float(np.max(moduli(r), initial=0)) for r in call.results]


def histograms(call: BoundedCall) -> Errors:
    """Bound counts as :func:`histogram`, of rows that may lie in other bins of some column.

    At the ends of a range that rows themselves give, none lies outside. Where edges are in no
    order, all is open.
    """
    (result,), is_given = call.results, isinstance(call["bins"][0], np.ndarray)
    if is_given and not all(map(_ascends, call["bins"])):
        return [np.full(result.shape, np.inf)]
    exact, ends = call["bins"], call["range"]
    if not is_given:
        exact = histogramdd_edges(call["self"], exact, range=ends)
    sides = [edge.astype("float64") for edge in exact]
    off = [0.0 if is_given else 4 * call.result_unit * float(np.max(np.abs(s))) for s in sides]
    rows = call.wide("self").reshape(-1, len(sides))
    weights = np.ones(len(rows)) if call["weight"] is None else call.size("weight").reshape(-1)
    columns = [*zip(rows.T, sides, off, strict=True)]
    inside = np.all([(c >= s[0] - o) & (c <= s[-1] + o) for c, s, o in columns], 0)
    inner = [(c, s if ends is not None else s[1:-1], o) for c, s, o in columns]
    near = np.any([_nearest(c, s) <= o for c, s, o in inner], 0) & (not is_given)
    counts, moved = np.zeros(result.shape), np.zeros(result.shape)
    for turn in product((-1, 1), repeat=len(sides)):
        places = [bin_of(c + t * o, s)[inside] for t, (c, s, o) in zip(turn, columns, strict=True)]
        np.add.at(moved, tuple(places), np.where(near, weights, 0)[inside])
    places = [bin_of(c, s)[inside] for c, s, _ in columns]
    np.add.at(counts, tuple(places), weights[inside])
    own = 0.0 if call["weight"] is None else call.result_unit * (FEW + len(rows)) * counts
    error = np.asarray(own + moved)
    if call["density"]:
        signed = weights if call["weight"] is None else call.wide("weight").reshape(-1)
        total, volume = np.abs(np.sum(signed[inside])), volumes(sides)
        parts, steps = counts / (total * volume), FEW * len(sides) + counts.size
        wide = sum(2 * o / np.min(np.diff(s)) for _, s, o in columns)
        more = (error + counts * error.sum() / total) / (total * volume)
        return [more + parts * (steps * call.result_unit + wide)]
    return [np.where(moduli(result) + error >= 1 / call.result_unit, np.inf, error)]


def _nearest(values: Array, edges: Array) -> Array:
    """How far each value is from the next edge."""
    return np.min(np.abs(values[:, None] - edges), -1, initial=np.inf)
