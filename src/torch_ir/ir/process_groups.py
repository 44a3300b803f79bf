"""The groups of processes that a program names."""

from __future__ import annotations

from collections.abc import Mapping

from torch_ir.ir.graph import IR
from torch_ir.ir.node import OpNode
from torch_ir.ops.collectives import GROUP, is_collective


def groups_of(ir: IR) -> dict[str, OpNode]:
    """Return the first collective of each group that a program names, functions included.

    Example:
        >>> from torch_ir.ir import TensorMeta
        >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> attrs = {"reduce_op": "sum", "group_name": "tp"}
        >>> node = OpNode("y", "_c10d_functional.all_reduce.default", [x], [y], attrs)
        >>> list(groups_of(IR([node], [x], [y], [])))
        ['tp']
    """
    found: dict[str, OpNode] = {}
    for _, _, node in ir.walk():
        if is_collective(node.op_type) and GROUP in node.attrs:
            found.setdefault(str(node.attrs[GROUP]), node)
    return found


def with_group_names(ir: IR, names: Mapping[str, str]) -> IR:
    """Return the program with other names of groups, in functions too.

    Args:
        ir: The program; the same object is returned if it names none.
        names: The new name of each group.
    """
    if not groups_of(ir):
        return ir
    nodes = [
        node.replace(attrs={**node.attrs, GROUP: names[str(node.attrs[GROUP])]})
        if is_collective(node.op_type) and GROUP in node.attrs
        else node
        for node in ir.nodes
    ]
    functions = {name: with_group_names(body, names) for name, body in ir.functions.items()}
    return ir.replace(nodes=nodes, functions=functions)
