"""The Backend dialect: Edge, and operators that only a target knows."""

from __future__ import annotations

from torch_ir.dialects.edge.edge_rules import (
    dtype_rows,
    lowered,
    no_number_for_tensor,
    one_dtype_in_lists,
)
from torch_ir.dialects.registry import Dialect
from torch_ir.dialects.rules import core, functional, known_operator, namespaces, results

BACKEND = Dialect(
    "backend",
    "Edge with operators and layouts of a target",
    (
        namespaces("aten", "higher_order", "dim_order_ops", "executorch_prims", custom=True),
        known_operator,
        functional,
        core,
        results,
        no_number_for_tensor,
        dtype_rows,
        one_dtype_in_lists,
    ),
    (lowered,),
)
