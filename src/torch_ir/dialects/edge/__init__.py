"""Edge: core ATen whose operators know which dtypes they take.

Example:
    >>> from torch_ir.dialects import edge
    >>> sigmoid = edge.ops.aten.sigmoid.default
    >>> print(sigmoid.schema)
    aten::sigmoid(Tensor self) -> Tensor
    >>> sorted(sigmoid.schema.returns[0].allowed_types)
    ['bfloat16', 'float16', 'float32', 'float64']
"""

from typing import TYPE_CHECKING

from torch_ir.dialects.edge.constraints import register_constraint
from torch_ir.dialects.edge.dialect import edge_dialect
from torch_ir.dialects.edge.ops import edge_op, ops
from torch_ir.lazy import lazy_names
from torch_ir.ops.dtype_constraints import (
    EDGE_DTYPES,
    DTypeTable,
    constraint_of,
    read_entry,
    unregister_constraint,
)

if TYPE_CHECKING:
    from torch_ir.edge import EdgeOptions, EdgeProgram

__all__ = [
    "EDGE_DTYPES",
    "DTypeTable",
    "EdgeOptions",
    "EdgeProgram",
    "constraint_of",
    "edge_dialect",
    "edge_op",
    "ops",
    "read_entry",
    "register_constraint",
    "unregister_constraint",
]

__getattr__ = lazy_names(__name__, {"torch_ir.edge": ("EdgeOptions", "EdgeProgram")})
