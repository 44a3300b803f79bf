"""Views that read memory by strides, as views of all that a storage holds in row-major order.

A functional value need not lie in memory as the one in its place that was written.
"""

from __future__ import annotations

from torch_ir.infer.storage import places
from torch_ir.ir import IR, OpNode
from torch_ir.ir.builder import with_inputs

AS_STRIDED = "aten.as_strided.default"


def from_wholes(ir: IR) -> tuple[IR, frozenset[str]]:
    """Give ``as_strided`` the whole of what it reads, where that lies in row-major order.

    Args:
        ir: A program that writes.

    Returns:
        The program, and the names of the nodes that read storage in another order.
    """
    if not any(node.op_type == AS_STRIDED for node in ir.nodes):
        return ir, frozenset()
    known, left = places(ir), set[str]()

    def of_whole(node: OpNode) -> OpNode:
        if node.op_type != AS_STRIDED:
            return node
        source, offset = node.inputs[0], node.attrs.get("storage_offset")
        place = known.get(source.name)
        if place is not None and offset is None:
            offset = place.offset
        if place is None or offset is None or not known[place.whole.name].is_row_major:
            left.add(node.name)
            return node
        made = with_inputs(node, {source.name: place.whole})
        return made.replace(attrs={**node.attrs, "storage_offset": offset})

    nodes = [of_whole(node) for node in ir.nodes]
    return (ir if nodes == list(ir.nodes) else ir.replace(nodes=nodes)), frozenset(left)
