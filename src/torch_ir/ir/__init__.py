"""The data model: tensors without data, operator calls, and the graph.

Nothing here imports torch.
"""

from torch_ir.ir.graph import IR, Mutation, SymbolRange
from torch_ir.ir.node import Location, OpNode
from torch_ir.ir.symbols import Dim, SymExpr
from torch_ir.ir.tensor import Constant, ConstantView, TensorMeta
from torch_ir.ir.tree import Container, Signature, TensorLeaf, Tree, ValueLeaf
from torch_ir.ir.values import (
    Attribute,
    Device,
    DType,
    FrozenDict,
    FunctionRef,
    Layout,
    MemoryFormat,
    OperatorRef,
)

__all__ = [
    "IR",
    "Attribute",
    "Constant",
    "ConstantView",
    "Container",
    "DType",
    "Device",
    "Dim",
    "FrozenDict",
    "FunctionRef",
    "Layout",
    "Location",
    "MemoryFormat",
    "Mutation",
    "OpNode",
    "OperatorRef",
    "Signature",
    "SymExpr",
    "SymbolRange",
    "TensorLeaf",
    "TensorMeta",
    "Tree",
    "ValueLeaf",
]
