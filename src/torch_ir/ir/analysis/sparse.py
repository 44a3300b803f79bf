"""Sparse tensors in programs, which types do not tell."""

from __future__ import annotations

from torch_ir.ir.graph import IR
from torch_ir.ir.node import OpNode
from torch_ir.ir.queries import external_keys, input_layout_of, layout_of
from torch_ir.ir.values import Layout
from torch_ir.ops.layouts import DENSE_WITH_DENSE, GIVES_DENSE, MAKES_SPARSE

_DENSE = Layout("strided")


class SparseValues:
    """The values of a graph that may be sparse: those that it makes, and what is made of them.

    Args:
        ir: The graph.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[2, 2]
        ...   %s: f32[2, 2] = aten.to_sparse.default(%x)
        ...   %y: f32[2, 2] = aten.to_dense.default(%s)
        ...   return %y
        ... }''')
        >>> values = SparseValues(ir)
        >>> for node in ir.nodes:
        ...     print(node.name, values.takes(node))
        ...     values.keep(node)
        s False
        y True
    """

    def __init__(self, ir: IR):
        self._names = {
            name for name, key in external_keys(ir).items() if layout_of(ir, key) != _DENSE.name
        }
        self._names |= {n for n in ir.input_names if input_layout_of(ir, n) != _DENSE.name}

    def takes(self, node: OpNode) -> bool:
        """Return whether an argument of a node may be sparse; nodes before it were kept."""
        return bool(self._names) and any(meta.name in self._names for meta in node.inputs)

    def keep(self, node: OpNode) -> None:
        """Note what a node makes."""
        is_made = node.op_type in MAKES_SPARSE or node.attrs.get("layout", _DENSE) not in (
            _DENSE,
            None,
        )
        if is_made or (self.takes(node) and not self._gives_dense(node)):
            self._names.update([meta.name for meta in node.outputs])

    def _gives_dense(self, node: OpNode) -> bool:
        is_mixed = any(meta.name not in self._names for meta in node.inputs)
        return node.op_type in GIVES_DENSE or (is_mixed and node.op_type in DENSE_WITH_DENSE)
