"""Graph outputs that alias an input, a weight or another output.

Where nothing writes, only the caller can tell a view from a copy, who may write to what the
graph took or gave. So views are values like others inside a graph, and only those that it gives
away are a matter of its dialect.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ops.schema import lookup

Roots = frozenset[str]
"""The values whose memory a value may show."""

_SAME_DTYPE = frozenset(
    {
        "aten.to.dtype",
        "aten.to.device",
        "aten.to.dtype_layout",
        "aten.to.other",
        "aten._autocast_to_full_precision.default",
        "aten._autocast_to_reduced_precision.default",
    }
)
"""Operators that return what they are given, or a copy where they change its dtype."""


def copy_of(op_type: str) -> str | None:
    """Return the operator that copies what a view shows, or None if there is none.

    Example:
        >>> copy_of("aten.permute.default"), copy_of("aten.reshape.default")
        ('aten.permute_copy.default', None)
    """
    namespace, packet, overload = op_type.split(".", 2)
    copy = lookup(f"{namespace}.{packet}_copy.{overload}")
    return None if copy is None else copy.op_type


def shown_memory(ir: IR) -> dict[str, str]:
    """Find graph outputs that alias an input, a weight or another output.

    Each is named with an input, a weight or another result whose memory it may show, by the alias
    marks of the operators' schemas. A result that is itself an input is no view.

    Example:
        >>> x, v = TensorMeta("x", (4,), "float32"), TensorMeta("v", (2, 2), "float32", "v")
        >>> view = OpNode("v", "aten.view.default", [x], [v], {"size": [2, 2]})
        >>> shown_memory(IR([view], [x], [v], []))
        {'v': 'x'}
    """
    return ir.view("shown_memory", lambda: _shown_memory(ir))


def _shown_memory(ir: IR) -> dict[str, str]:
    roots: dict[str, Roots] = {}
    for node in ir.nodes:
        shared = Roots()
        for meta in _viewed(ir, node):
            shared |= roots.get(meta.name) or Roots({meta.name})
        if shared:
            roots.update({output.name: shared for output in node.outputs})
    results = list(dict.fromkeys([meta.name for meta in ir.graph_outputs]))
    seen = {
        name: name for name in (*(meta.name for meta in ir.graph_inputs), *ir.external_values())
    }
    seen |= {name: name for name in results if name not in roots}
    shown: dict[str, str] = {}
    for name in results:
        found = sorted(root for root in roots.get(name, ()) if root in seen)
        if found:
            shown[name] = seen[found[0]]
        else:
            seen |= dict.fromkeys(roots.get(name, ()), name)
    return shown


def _viewed(ir: IR, node: OpNode) -> Iterator[TensorMeta]:
    """The inputs whose memory a node's results may show."""
    schema = ir.schema_of(node.op_type)
    if schema is None or "Tensor(" not in schema.text:
        return
    marks = {result.alias for result in schema.returns} - {""}
    for argument in schema.arguments:
        if argument.alias not in marks:
            continue
        for given in node.tensors(argument.name):
            converts = any(given.dtype != output.dtype for output in node.outputs)
            if not (converts and node.op_type in _SAME_DTYPE):
                yield given
