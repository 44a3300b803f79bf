"""Changes of a program that every reader understands in the same way."""

from __future__ import annotations

from torch_ir.ir.builder import Builder
from torch_ir.ir.graph import IR
from torch_ir.ir.node import OpNode
from torch_ir.ir.values import default_attribute
from torch_ir.ops.schema import Schema


def with_defaults(ir: IR) -> IR:
    """Write out every attribute that a call leaves at its schema's default.

    A reader in another language then needs no table of schemas. Operators whose schemas nobody
    recorded stay as they are; so do arguments that take tensors, which are absent where no operand
    is given. The same object if there is nothing to do.

    Example:
        >>> from torch_ir.ir import OpNode, TensorMeta
        >>> x, y = TensorMeta("x", (2, 3), "float32"), TensorMeta("y", (2, 3), "float32", "y")
        >>> softmax = OpNode("y", "aten.add.Tensor", [x, x], [y])
        >>> print(with_defaults(IR([softmax], [x], [y], [])).nodes[0])
        %y: f32[2, 3] = aten.add.Tensor(%x, %x, alpha=1)
    """
    builder = Builder(ir)
    builder.map_functions(with_defaults)
    for node in ir.nodes:
        builder.keep(_complete(node, ir.schema_of(node.op_type)))
    return builder.finish()


def _complete(node: OpNode, schema: Schema | None) -> OpNode:
    if schema is None or node.operands is None:
        return node
    missing = {
        argument.name: default_attribute(argument)
        for argument in schema.arguments
        if argument.default is not None
        and argument.name not in node.attrs
        and argument.name not in node.slots
        and not argument.type.startswith("Tensor")
    }
    return node.replace(attrs={**node.attrs, **missing}) if missing else node
