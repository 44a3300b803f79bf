"""Sparse tensors in programs: types do not tell them, and decompositions are of dense ones."""

from __future__ import annotations

from collections.abc import Sequence

from torch_ir.errors import PassError
from torch_ir.ir import IR, Layout, OpNode
from torch_ir.ir.queries import external_keys, input_layout_of, layout_of
from torch_ir.ops.layouts import DENSE_WITH_DENSE, GIVES_DENSE, MAKES_SPARSE

_DENSE = Layout("strided")

_CORE_FORMS = {"aten.to_dense.default": "aten._to_dense.default"}
"""Operators on sparse tensors by others that are core, with the same arguments."""

_PRODUCTS = frozenset(f"aten.{name}.default" for name in ("mm", "bmm", "addmm"))
"""What ``matmul`` and ``_sparse_mm`` become, for tensors of any layout."""


class SparseValues:
    """The values of a graph that may be sparse: those that it makes, and what is made of them.

    Args:
        ir: The graph.
    """

    def __init__(self, ir: IR):
        self._names = {
            name for name, key in external_keys(ir).items() if layout_of(ir, key) != _DENSE.name
        }
        self._names |= {n for n in ir.input_names if input_layout_of(ir, n) != _DENSE.name}

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
        if is_made or (self._takes(node) and not self._gives_dense(node)):
            self._names.update([meta.name for meta in node.outputs])

    def require_none(self, node: OpNode, unless: Sequence[OpNode] = ()) -> None:
        """Refuse to replace a node that takes a sparse tensor.

        Args:
            node: The node.
            unless: What stands for it, which is right if it is a product of matrices alone.

        Raises:
            PassError: It takes one.
        """
        is_product = bool(unless) and all(part.op_type in _PRODUCTS for part in unless)
        if self._takes(node) and not is_product:
            raise PassError("it may take a sparse tensor, and decompositions are of dense ones")

    def _gives_dense(self, node: OpNode) -> bool:
        is_mixed = any(meta.name not in self._names for meta in node.inputs)
        return node.op_type in GIVES_DENSE or (is_mixed and node.op_type in DENSE_WITH_DENSE)

    def _takes(self, node: OpNode) -> bool:
        return any(meta.name in self._names for meta in node.inputs)
