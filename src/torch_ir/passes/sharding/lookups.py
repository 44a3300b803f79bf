"""Calls that look up what ranks have parts of: entries of a table, experts of a mixture."""

from __future__ import annotations

from torch_ir.ir import DType, OpNode, TensorMeta
from torch_ir.ir.values import Device
from torch_ir.passes.sharding.placements import (
    Owned,
    PlacedCall,
    Split,
    dims_of,
    positive,
    product_of,
)
from torch_ir.passes.sharding.rank_builder import RankBuilder

_GROUPED = frozenset({"grouped_mm_fallback", "_grouped_mm"})


def looked_up(program: RankBuilder, call: PlacedCall) -> bool:
    """Append what a rank knows of a lookup in what is split along its entries.

    A rank gives 0 for what another rank has.

    Returns:
        Whether the call is one; if not, nothing is appended.
    """
    namespace, name, _overload = call.node.op_type.split(".")
    if namespace not in ("aten", "transformers"):
        return False
    if name == "embedding" and call.split("weight") == 0:
        _embedding(program, call)
        return True
    slots = call.node.slots.get("indices")
    if (
        name == "index"
        and call.split("self") == 0
        and isinstance(slots, tuple)
        and len(slots) == 1
    ):
        index = call.node.tensors("indices")[0]
        if index.dtype == "bool":
            return False
        _index(program, call, index)
        return True
    if name in _GROUPED and call.meta("offs") is not None:
        weight, bias = _weight_of(call), call.meta("bias")
        is_split = call.placements[1] == Split(0) and len(weight.shape) == 3
        if is_split and bias is None and len(call.node.inputs[0].shape) == 2:
            _grouped(program, call)
            return True
    return False


def _weight_of(call: PlacedCall) -> TensorMeta:
    return call.node.inputs[1]


def _embedding(program: RankBuilder, call: PlacedCall) -> None:
    node = call.node
    table, indices = node.tensors("weight")[0], node.tensors("indices")[0]
    index, elsewhere = _own_index(program, call, table, program.form(indices, None, node))
    arguments = {
        "weight": program.form(table, Split(0), node),
        "indices": index,
    }
    (meta,) = node.outputs
    found = program.emit(node, node.op_type, arguments, meta, meta.shape, "found")
    part = masked(program, node, found, elsewhere)
    program.reduce(node, part, own=True)
    program.hold(meta, None)


def _index(program: RankBuilder, call: PlacedCall, indices: TensorMeta) -> None:
    node = call.node
    table, (meta,) = node.inputs[0], node.outputs
    given = program.form(indices, None, node)
    wrap = {"self": given, "other": table.shape[0]}
    given = program.emit(node, "aten.remainder.Scalar", wrap, indices, indices.shape, "wrapped")
    index, elsewhere = _own_index(program, call, table, given)
    arguments = {"self": program.form(table, Split(0), node), "indices": [index]}
    found = program.emit(node, node.op_type, arguments, meta, meta.shape, "found")
    owner = f"{indices.name} of {table.shape[0]}"
    program.elsewhere[owner] = elsewhere
    clear(program, node, found, owner)
    program.hold(meta, Owned(owner, rows=len(indices.shape) == 1))


def _own_index(
    program: RankBuilder, call: PlacedCall, table: TensorMeta, index: TensorMeta
) -> tuple[TensorMeta, TensorMeta]:
    """Append the positions in the part of this rank, and which of them lie elsewhere."""
    node, size, shape = call.node, program.share(table.shape[0]), index.shape
    program.depends_on_rank = True
    moved = {"self": index, "other": program.rank * size}
    here = program.emit(node, "aten.sub.Scalar", moved, index, shape, "here")
    within = {"self": here, "min": 0, "max": size - 1}
    near = program.emit(node, "aten.clamp.default", within, index, shape, "near")
    both = {"self": here, "other": near}
    return near, program.emit(node, "aten.ne.Tensor", both, index, shape, "elsewhere", "bool")


def masked(
    program: RankBuilder, node: OpNode, found: TensorMeta, elsewhere: TensorMeta
) -> TensorMeta:
    """Append 0 in place of what lies elsewhere."""
    mask = widened(program, node, elsewhere, len(found.shape))
    arguments = {"self": found, "mask": mask, "value": 0}
    (meta,) = node.outputs
    return program.emit(node, "aten.masked_fill.Scalar", arguments, meta, found.shape, "part")


def widened(program: RankBuilder, node: OpNode, mask: TensorMeta, rank: int) -> TensorMeta:
    """Append a mask of leading dimensions with as many dimensions as the value that it is for."""
    for position in range(len(mask.shape), rank):
        shape, arguments = (*mask.shape, 1), {"self": mask, "dim": position}
        mask = program.emit(node, "aten.unsqueeze.default", arguments, mask, shape, "wide")
    return mask


def clear(program: RankBuilder, node: OpNode, found: TensorMeta, owner: str) -> None:
    """Append the result of a node, with 0 for what other ranks own."""
    (meta,) = node.outputs
    mask = widened(program, node, program.elsewhere[owner], len(meta.shape))
    arguments = {"self": found, "mask": mask, "value": 0}
    program.append(node, "aten.masked_fill.Scalar", arguments, meta)


def mask_of_layout(program: RankBuilder, node: OpNode, owner: str) -> TensorMeta | None:
    """Append the mask of what a node lays out otherwise; None if it has none.

    Args:
        program: The program of the rank.
        node: The node, whose first input is owned.
        owner: The owner of that.
    """
    mask, name = program.elsewhere.get(owner), node.op_type.split(".")[1]
    if mask is None or len(node.outputs) != 1:
        return None
    given, shape = node.inputs[0].shape, node.outputs[0].shape
    leading = len(mask.shape)
    if name in ("view", "reshape", "_unsafe_view"):
        sizes = [product_of(shape[:end]) for end in range(len(shape) + 1)]
        wanted = product_of(mask.shape)
        if wanted is None or wanted not in sizes[1:]:
            return None
        size = shape[: sizes.index(wanted, 1)]
        arguments = {"self": mask, "shape": size}
        return program.emit(node, "aten.reshape.default", arguments, mask, size, "elsewhere")
    if name == "index" and leading == 1:
        slots = node.slots.get("indices")
        index = node.tensors("indices")
        if isinstance(slots, tuple) and len(slots) == len(index) == 1 and index[0].dtype != "bool":
            picked = program.form(index[0], None, node)
            arguments = {"self": mask, "indices": [picked]}
            size = index[0].shape
            return program.emit(node, "aten.index.Tensor", arguments, mask, size, "elsewhere")
    keeps = name in _BESIDE or (name == "expand" and len(shape) == len(given))
    keeps = keeps and shape[:leading] == given[:leading]
    return mask if keeps and not any(dim < leading for dim in moved_dims(node)) else None


_BESIDE = frozenset({"slice", "transpose", "unsqueeze", "squeeze"})


def moved_dims(node: OpNode) -> tuple[int, ...]:
    """Return the dimensions that a node which lays out its input touches, as far as it says."""
    rank = len(node.inputs[0].shape)
    if node.op_type.split(".")[1] == "expand":
        return ()
    if node.op_type.split(".")[1] == "unsqueeze":
        return (positive(node.argument("dim", 0), rank + 1),)
    named = [node.attrs[key] for key in ("dim", "dim0", "dim1") if key in node.attrs]
    return tuple([d for value in named or [0] for d in dims_of(value, rank)])


def _grouped(program: RankBuilder, call: PlacedCall) -> None:
    """Append the products of the groups that this rank has; rows of others are 0."""
    node, (meta,) = call.node, call.node.outputs
    weight, offsets = _weight_of(call), node.tensors("offs")[0]
    rows, size = node.inputs[0].shape[0], program.share(weight.shape[0])
    start = program.rank * size
    program.depends_on_rank = True
    owned = Owned(f"{offsets.name} of {weight.shape[0]}")
    ends = program.form(offsets, None, node)
    taken = {"self": ends, "dim": 0, "start": start, "end": start + size}
    mine = program.emit(node, "aten.slice.Tensor", taken, offsets, (size,), "mine")
    has = call.placements[0] if call.placements[0] == owned else None
    arguments = {
        **node.attrs,
        _name_of(call, 0): program.form(node.inputs[0], has, node),
        _name_of(call, 1): program.form(weight, Split(0), node),
        "offs": mine,
    }
    found = program.emit(node, node.op_type, arguments, meta, meta.shape, "found")
    count = {"end": rows, "dtype": DType("int64"), "device": Device()}
    row = program.emit(node, "aten.arange.default", count, meta, (rows,), "row", "int64")
    after = _beside(program, call, row, ends, start + size - 1, "ge", "after")
    if start:
        before = _beside(program, call, row, ends, start - 1, "lt", "before")
        either = {"self": after, "other": before}
        after = program.emit(
            node, "aten.logical_or.default", either, meta, (rows,), "elsewhere", "bool"
        )
    program.elsewhere[owned.owner] = after
    clear(program, node, found, owned.owner)
    program.hold(meta, owned)


def _beside(
    program: RankBuilder,
    call: PlacedCall,
    row: TensorMeta,
    ends: TensorMeta,
    position: int,
    comparison: str,
    part: str,
) -> TensorMeta:
    """Append which rows lie on one side of the end of a group."""
    node, like = call.node, call.node.outputs[0]
    picked = {"self": ends, "dim": 0, "index": position}
    end = program.emit(node, "aten.select.int", picked, ends, (), "end")
    both = {"self": row, "other": end}
    operator = f"aten.{comparison}.Tensor"
    return program.emit(node, operator, both, like, row.shape, part, "bool")


def _name_of(call: PlacedCall, position: int) -> str:
    return next(name for name, slot in call.node.slots.items() if slot == position)
