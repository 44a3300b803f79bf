"""Sparse tensors in programs: decompositions are of dense ones."""

from __future__ import annotations

from collections.abc import Sequence

from torch_ir.errors import PassError
from torch_ir.ir import OpNode
from torch_ir.ir.analysis.sparse import SparseValues

_CORE_FORMS = {"aten.to_dense.default": "aten._to_dense.default"}
"""Operators on sparse tensors by others that are core, with the same arguments."""

_PRODUCTS = frozenset(f"aten.{name}.default" for name in ("mm", "bmm", "addmm"))
"""What ``matmul`` and ``_sparse_mm`` become, for tensors of any layout."""


class UndecomposedValues(SparseValues):
    """The values of a graph that may be sparse, which nodes that are replaced may not take."""

    def core_form(self, node: OpNode) -> OpNode:
        """Return a node that takes a sparse tensor with an operator of the core set, if it can."""
        core = _CORE_FORMS.get(node.op_type)
        return node if core is None or not self.takes(node) else node.replace(op_type=core)

    def require_none(self, node: OpNode, unless: Sequence[OpNode] = ()) -> None:
        """Refuse to replace a node that takes a sparse tensor.

        Args:
            node: The node.
            unless: What stands for it, which is right if it is a product of matrices alone.

        Raises:
            PassError: It takes one.
        """
        is_product = bool(unless) and all(part.op_type in _PRODUCTS for part in unless)
        if self.takes(node) and not is_product:
            raise PassError("it may take a sparse tensor, and decompositions are of dense ones")
