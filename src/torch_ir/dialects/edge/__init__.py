"""Edge: core ATen whose operators know which dtypes they take.

Example:
    >>> from torch_ir.dialects import edge
    >>> sigmoid = edge.ops.aten.sigmoid.default
    >>> print(sigmoid.schema)
    aten::sigmoid(Tensor self) -> Tensor
    >>> sorted(sigmoid.schema.returns[0].allowed_types)
    ['bfloat16', 'float16', 'float32', 'float64']
"""

from torch_ir.dialects.edge.constraints import EDGE_DTYPES, DTypeTable, constraint_of, read_entry
from torch_ir.dialects.edge.ops import edge_op, ops

__all__ = ["EDGE_DTYPES", "DTypeTable", "constraint_of", "edge_op", "ops", "read_entry"]
