"""Sparse tensors in programs: types do not tell them, and decompositions are of dense ones."""

from __future__ import annotations

from torch_ir.errors import PassError
from torch_ir.ir import IR, Layout, OpNode
from torch_ir.ir.queries import layout_of
from torch_ir.ops.layouts import MAKES_SPARSE

_DENSE = Layout("strided")

_CORE_FORMS = {"aten.to_dense.default": "aten._to_dense.default"}
"""Operators on sparse tensors by others that are core, with the same arguments."""

_GIVES_DENSE = frozenset({"aten._to_dense.default"})


class SparseValues:
    """The values of a graph that may be sparse: those that it makes, and what is made of them.

    Args:
        ir: The graph.
    """

    def __init__(self, ir: IR):
        self._names = {
            name
            for name, (key, _) in ir.external_values().items()
            if layout_of(ir, key) != _DENSE.name
        }

    def core_form(self, node: OpNode) -> OpNode:
        """Return a node that takes a sparse tensor with an operator of the core set, if it can."""
        core = _CORE_FORMS.get(node.op_type)
        return node if core is None or not self._takes(node) else node.replace(op_type=core)

    def keep(self, node: OpNode) -> None:
        """Note what a node makes that stays as it is."""
        is_made = node.op_type in MAKES_SPARSE or node.attrs.get("layout", _DENSE) not in (
            _DENSE,
            None,
        )
        if is_made or (self._takes(node) and node.op_type not in _GIVES_DENSE):
            self._names.update([meta.name for meta in node.outputs])

    def require_none(self, node: OpNode) -> None:
        """Refuse to replace a node that takes a sparse tensor.

        Raises:
            PassError: It takes one.
        """
        if self._takes(node):
            raise PassError("it may take a sparse tensor, and decompositions are of dense ones")

    def _takes(self, node: OpNode) -> bool:
        return any(meta.name in self._names for meta in node.inputs)
