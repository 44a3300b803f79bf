"""Views that read memory by strides, as views of all that a storage holds in row-major order.

A functional value need not lie in memory as the one in its place that was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from torch_ir.infer.fake import value_types
from torch_ir.infer.storage import StoragePlace, places, stride_readers
from torch_ir.infer.types import TensorType, contiguous
from torch_ir.ir import IR, OpNode
from torch_ir.ir.builder import Builder, with_inputs
from torch_ir.ir.diagnostics import Diagnostic, about
from torch_ir.ir.queries import op_types
from torch_ir.ir.values import row_major
from torch_ir.ops.variants import view_of

AS_STRIDED = "aten.as_strided.default"
_OF_WHOLES = frozenset({AS_STRIDED, "aten.as_strided_copy.default"})


def from_wholes(ir: IR) -> tuple[IR, frozenset[str]]:
    """Give ``as_strided`` the whole of what it reads, in the order in which that lies.

    Args:
        ir: A program whose values need not lie in memory as those of another that stands for it.

    Returns:
        The program, and the names of the nodes that read storage that no value fills in order.
    """
    if _OF_WHOLES.isdisjoint(op_types(ir)):
        return ir, frozenset()
    known, builder, left = places(ir), Builder(ir), set[str]()
    for node in ir.nodes:
        if node.op_type not in _OF_WHOLES:
            builder.keep(node)
            continue
        source, offset = node.inputs[0], node.attrs.get("storage_offset")
        place = known.get(source.name)
        if place is not None and offset is None:
            offset = place.offset
        order = None if place is None else _order(known[place.whole.name], value_types(ir))
        if place is None or order is None or offset is None:
            left.add(node.name)
            builder.keep(node)
            continue
        whole = place.whole
        if order:
            results = [(tuple([whole.shape[axis] for axis in order]), whole.dtype)]
            turned = {"self": whole, "dims": order}
            (whole,) = builder.emit("aten.permute.default", turned, like=node, results=results)
        made = with_inputs(node, {source.name: whole})
        builder.keep(made.replace(attrs={**node.attrs, "storage_offset": offset}))
    made = builder.finish()
    return (ir if made.nodes == ir.nodes else made), frozenset(left)


def _order(place: StoragePlace, types: Mapping[str, TensorType]) -> tuple[int, ...] | None:
    """The order of dimensions in which a value fills a storage in row-major order, if any is.

    None is the answer where there is none, an empty one says that the value itself does.
    """
    if place.is_row_major:
        return ()
    type = types.get(place.whole.name)
    if place.offset != 0 or type is None or not type.is_static:
        return None
    strides = cast("tuple[int, ...]", type.strides)
    order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
    shape = [cast(int, type.shape[axis]) for axis in order]
    pairs = zip(shape, [strides[axis] for axis in order], row_major(shape), strict=True)
    is_full = all(size == 1 or step == expected for size, step, expected in pairs)
    return tuple(order) if is_full else None


def strides_lost(before: IR, after: IR) -> Iterator[Diagnostic]:
    """Yield what is to be said of nodes that read memory by strides which it has no longer.

    Args:
        before: A program.
        after: What stands for it: nodes that are in both have their names; copies may be views.
    """
    for node in stride_readers(before):
        source, left = node.inputs[0], after.producers.get(node.outputs[0].name)
        known = value_types(before).get(source.name)
        if left is None or _plain(left) != _plain(node):
            made = contiguous(source)  # what stands for it was traced on values
        else:
            made = value_types(after).get(left.inputs[0].name)
        if known and made and known.strides != made.strides:
            reason = f"it reads memory by strides of %{source.name}, which has others when lowered"
            yield about(Diagnostic("not-decomposable", reason), node)
    for name, body in before.functions.items():
        if name in after.functions:
            yield from strides_lost(body, after.functions[name])


def _plain(node: OpNode) -> str:
    """The operator of a node, or the view whose copy it makes."""
    return view_of(node.op_type) or node.op_type
