"""The rules of calls that move, join and pick elements of operands in parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch_ir.ir.symbols import Dim
from torch_ir.passes.sharding.placements import (
    PlacedCall,
    Placement,
    ShardingRule,
    ShardStep,
    Split,
    aligned,
    dims_of,
    positive,
    product_of,
)


def shifted(split: int, removed: Sequence[int]) -> int:
    """Return where a dimension stands when others are removed."""
    return split - sum(dim < split for dim in removed)


def _moved(where: Callable[[PlacedCall, int, int], int | None]) -> ShardingRule:
    """Rule for a view of one tensor, by where a dimension of it goes."""

    def rule(call: PlacedCall) -> ShardStep | None:
        split, rank = call.split("self"), len(call.node.inputs[0].shape)
        split = call.split("input") if split is None else split
        found = None if split is None else where(call, split, rank)
        return None if found is None else ShardStep(call.placements, call.given(Split(found)))

    return rule


def _transposed(call: PlacedCall, split: int, rank: int) -> int:
    first, second = (positive(call.node.argument(name, 0), rank) for name in ("dim0", "dim1"))
    return {first: second, second: first}.get(split, split)


def _permuted(call: PlacedCall, split: int, rank: int) -> int:
    return dims_of(call.node.argument("dims"), rank).index(split)


def _unsqueezed(call: PlacedCall, split: int, rank: int) -> int:
    return split + (positive(call.node.argument("dim"), rank + 1) <= split)


def _squeezed(call: PlacedCall, split: int, rank: int) -> int | None:
    named = dims_of(call.node.attrs.get("dim"), rank)
    sizes = call.node.inputs[0].shape
    if split in named and sizes[split] == call.parts:  # a part of it would go too
        return None
    return shifted(split, [dim for dim in named if sizes[dim] == 1])


def _selected(call: PlacedCall, split: int, rank: int) -> int | None:
    dim = positive(call.node.argument("dim", 0), rank)
    return None if dim == split else shifted(split, [dim])


def _apart(call: PlacedCall, split: int, rank: int) -> int | None:
    return None if positive(call.node.argument("dim", 0), rank) == split else split


def _sliced(call: PlacedCall) -> ShardStep | None:
    split, whole = call.split("self"), call.node.inputs[0].shape
    if split is None:
        return None
    kept = Split(split)
    if positive(call.node.argument("dim", 0), len(whole)) != split:
        return ShardStep(call.placements, call.given(kept))
    if call.node.outputs[0].shape != whole:
        return None
    return ShardStep(call.placements, call.given(kept), {"start": 0, "end": 2**63 - 1})


# -- other shapes ---------------------------------------------------------------------------------


def regrouped(before: Sequence[Dim], after: Sequence[Dim], split: int, parts: int) -> int | None:
    """Return which dimension of a reshaped tensor is split where one of it was.

    Dimensions are read in groups of equal size. A group may be split along its first dimension
    alone, as its elements lie in order.

    Example:
        >>> regrouped((2, 6, 8), (2, 6, 4, 2), 2, 2), regrouped((2, 6, 4, 2), (12, 8), 2, 2)
        (2, 1)
        >>> regrouped((2, 6, 8), (2, 6, 2, 4), 2, 4) is None
        True
    """
    i = j = 0
    while i < len(before) and j < len(after):
        if before[i] != after[j] and 1 in (before[i], after[j]):
            i, j = i + (before[i] == 1), j + (after[j] == 1)
            continue
        first, second = i, j
        i, j = i + 1, j + 1
        while before[first:i] != after[second:j]:
            taken, given = product_of(before[first:i]), product_of(after[second:j])
            if not taken or not given:  # symbolic, or empty
                return None
            if taken == given:
                break
            is_left = taken < given
            if (i == len(before)) if is_left else (j == len(after)):
                return None
            i, j = (i + 1, j) if is_left else (i, j + 1)
        if first <= split < i:
            places = [k for k in range(second, j) if after[k] != 1]
            leads = all(size == 1 for size in before[first:split])
            size = after[places[0]] if places and leads else None
            return places[0] if isinstance(size, int) and size % parts == 0 else None
    return None


def _local_sizes(call: PlacedCall, name: str, split: int, offset: int = 0) -> dict[str, Any]:
    """The attribute that says sizes, with that of the dimension that is split."""
    sizes = list(call.node.attrs[name])
    place = split - offset
    if 0 <= place < len(sizes) and isinstance(sizes[place], int) and sizes[place] > 1:
        sizes[place] //= call.parts
    return {name: tuple(sizes)}


def _viewed(call: PlacedCall) -> ShardStep | None:
    (whole,), (made,) = call.node.inputs, call.node.outputs
    first = call.first_split
    found = first and regrouped(whole.shape, made.shape, first[1], call.parts)
    if found is None:
        return None
    attrs: dict[str, Any] = {}
    for name in ("size", "shape"):
        if name in call.node.attrs:
            attrs = _local_sizes(call, name, found)
    if "sizes" in call.node.attrs:  # unflatten
        start = positive(call.node.argument("dim"), len(whole.shape))
        attrs = _local_sizes(call, "sizes", found, start)
    return ShardStep(call.placements, call.given(Split(found)), attrs)


def _expanded(call: PlacedCall) -> ShardStep | None:
    split = call.split("self")
    if split is None:
        return None
    found = split + len(call.node.outputs[0].shape) - len(call.node.inputs[0].shape)
    attrs = _local_sizes(call, "size", found)
    return ShardStep(call.placements, call.given(Split(found)), attrs)


def _joined(call: PlacedCall) -> ShardStep | None:
    node, first = call.node, call.first_split
    if first is None:
        return None
    split = Split(first[1])
    rank = len(node.outputs[0].shape)
    dim = positive(node.argument("dim", 0), rank)
    is_stack = node.op_type.startswith("aten.stack")
    if not is_stack and dim == split.dim:
        return None
    if any(len(meta.shape) != rank - is_stack for meta in node.inputs):
        return None
    made = split.dim + 1 if is_stack and dim <= split.dim else split.dim
    return ShardStep((split,) * len(node.inputs), call.given(Split(made)))


# -- by index -------------------------------------------------------------------------------------


def _index_places(call: PlacedCall) -> tuple[int, int, int] | None:
    """The first dimension that is indexed, their number, and the rank of the indices."""
    given = call.node.slots.get("indices")
    slots = given if isinstance(given, tuple) else ()
    places = [place for place, slot in enumerate(slots) if slot is not None]
    if not places or places != list(range(places[0], places[-1] + 1)):
        return None
    metas = call.node.tensors("indices")
    if any(meta.dtype == "bool" for meta in metas):
        return None
    return places[0], len(places), max(len(meta.shape) for meta in metas)


def _indexed_dim(call: PlacedCall, split: int) -> int | None:
    """Where a dimension of an indexed tensor stands in what is picked."""
    found = _index_places(call)
    if found is None or found[0] <= split < found[0] + found[1]:
        return None
    first, count, rank = found
    return split if split < first else split - count + rank


def _index(call: PlacedCall) -> ShardStep | None:
    split = call.split("self")
    found = None if split is None else _indexed_dim(call, split)
    if split is None or found is None:
        return None
    return ShardStep(call.taken(self=Split(split)), call.given(Split(found)))


def _index_put(call: PlacedCall) -> ShardStep | None:
    values, own = call.meta("values"), call.split("self")
    places, rank = _index_places(call), len(call.node.inputs[0].shape)
    if values is None or places is None:
        return None
    picked_rank = rank - places[1] + places[2]
    if own is None:
        dim = call.split("values")
        candidates = [d for d in range(rank) if dim is not None]
        at = None if dim is None else dim + picked_rank - len(values.shape)
        own = next((d for d in candidates if _indexed_dim(call, d) == at), None)
    picked = None if own is None else _indexed_dim(call, own)
    if own is None or picked is None or not call.divides(call.node.inputs[0].shape[own]):
        return None
    taken = call.taken(self=Split(own), values=aligned(picked_rank, picked, values))
    return ShardStep(taken, call.given(Split(own)))


def _put(source: str) -> ShardingRule:
    """Rule for what writes a tensor of the same rank into another along one dimension."""

    def rule(call: PlacedCall) -> ShardStep | None:
        whole = call.node.inputs[0].shape
        own, other = call.split("self"), call.split(source)
        split = other if own is None else own
        dim = positive(call.node.argument("dim", 0), len(whole))
        meta = call.meta(source)
        if split is None or split == dim or meta is None or len(meta.shape) != len(whole):
            return None
        if not call.divides(whole[split]):
            return None
        wanted: dict[str, Placement] = {"self": Split(split), source: Split(split)}
        return ShardStep(call.taken(**wanted), call.given(Split(split)))

    return rule


def _index_select(call: PlacedCall) -> ShardStep | None:
    split = call.split("self")
    if (
        split is None
        or positive(call.node.argument("dim"), len(call.node.inputs[0].shape)) == split
    ):
        return None
    return ShardStep(call.taken(self=Split(split)), call.given(Split(split)))


def _embedding(call: PlacedCall) -> ShardStep | None:
    if call.split("weight") != 1:
        return None
    last = len(call.node.outputs[0].shape) - 1
    return ShardStep(call.taken(weight=Split(1)), call.given(Split(last)))


LAYOUT_RULES: Mapping[str, ShardingRule] = {
    "transpose": _moved(_transposed),
    "t": _moved(lambda call, split, rank: rank - 1 - split),
    "permute": _moved(_permuted),
    "unsqueeze": _moved(_unsqueezed),
    "squeeze": _moved(_squeezed),
    "select": _moved(_selected),
    "unbind": _moved(_selected),
    **dict.fromkeys(("chunk", "split", "split_with_sizes"), _moved(_apart)),
    "slice": _sliced,
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "flatten", "unflatten"), _viewed),
    "expand": _expanded,
    **dict.fromkeys(("cat", "stack"), _joined),
    "index": _index,
    "index_put": _index_put,
    **dict.fromkeys(("index_copy", "index_add"), _put("source")),
    **dict.fromkeys(("slice_scatter",), _put("src")),
    "index_select": _index_select,
    "embedding": _embedding,
}
"""The rule of each operator, by its name without namespace and overload."""
