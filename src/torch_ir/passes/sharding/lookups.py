"""Calls that look up what ranks have parts of: entries of a table, experts of a mixture."""

from __future__ import annotations

from torch_ir.ir import DType, TensorMeta
from torch_ir.ir.values import Device
from torch_ir.passes.sharding.placements import Owned, PlacedCall, Split
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
    part = _masked(program, call, found, elsewhere)
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
    _masked(program, call, found, elsewhere, own=True)
    owner = f"{indices.name} of {table.shape[0]}"
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


def _masked(
    program: RankBuilder,
    call: PlacedCall,
    found: TensorMeta,
    elsewhere: TensorMeta,
    *,
    own: bool = False,
) -> TensorMeta:
    """Append 0 in place of what lies elsewhere."""
    node, (meta,) = call.node, call.node.outputs
    wide = (*elsewhere.shape, *(1 for _ in range(len(found.shape) - len(elsewhere.shape))))
    if wide != elsewhere.shape:
        for position in range(len(elsewhere.shape), len(wide)):
            arguments = {"self": elsewhere, "dim": position}
            shape = wide[: position + 1]
            elsewhere = program.emit(
                node, "aten.unsqueeze.default", arguments, elsewhere, shape, "wide"
            )
    arguments = {"self": found, "mask": elsewhere, "value": 0}
    if own:
        program.append(node, "aten.masked_fill.Scalar", arguments, meta)
        return meta
    return program.emit(node, "aten.masked_fill.Scalar", arguments, meta, found.shape, "part")


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
    _masked(program, call, found, after, own=True)
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
