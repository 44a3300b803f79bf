"""Common subexpressions: values that are computed several times, computed once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch_ir.arguments import public
from torch_ir.ir import IR, OpNode
from torch_ir.ir.aliases import StorageGroups
from torch_ir.ir.builder import Builder
from torch_ir.passes.base import Pass, PassResult


@dataclass(frozen=True)
class EliminateCommonSubexpressions(Pass):
    """Lets one node stand for all that compute the same; see :func:`common_subexpressions`."""

    name: ClassVar[str] = "common-subexpressions"

    def call(self, ir: IR) -> PassResult:
        """Merge nodes that compute the same."""
        return PassResult.of(ir, common_subexpressions(ir))


@public
def common_subexpressions(ir: IR) -> IR:
    """Merge all nodes that compute the same into one; in functions too.

    Two nodes compute the same if operator, arguments and inputs are equal. Both stay where
    something writes to the memory of an input or a result, where they draw random numbers, where
    a caller would see two results share memory, and where a library other than torch's own has
    the operator. The same object if there is nothing to do.

    Example:
        >>> from torch_ir import parse
        >>> print(common_subexpressions(parse('''
        ... ir "Twice" {
        ...   input %x: f32[2]
        ...   %a: f32[2] = aten.exp.default(%x)
        ...   %b: f32[2] = aten.exp.default(%x)
        ...   %y: f32[2] = aten.add.Tensor(%a, %b)
        ...   return %y
        ... }
        ... ''')))
        ir "Twice" {
          input %x: f32[2]
          %a: f32[2] = aten.exp.default(%x)
          %y: f32[2] = aten.add.Tensor(%a, %a)
          return %y
        }
    """
    builder = Builder(ir)
    builder.map_functions(common_subexpressions)
    memory = StorageGroups(ir)
    first: dict[Hashable, OpNode] = {}
    merged: dict[str, list[OpNode]] = {}
    for original in ir.nodes:
        node = builder.mapped(original)
        if not is_repeatable(ir, node) or _is_written(memory, node):
            builder.nodes.append(node)
            continue
        earlier = first.setdefault(call_key(node, [m.name for m in node.inputs]), node)
        if earlier is node or not _joined(memory, node, earlier):
            builder.nodes.append(node)
            continue
        merged.setdefault(earlier.name, [earlier]).append(node)
        for old, new in zip(node.outputs, earlier.outputs, strict=True):
            builder.replace(old, new)
    if merged:
        builder.nodes = [n.derived_from(*merged.get(n.name, (n,))) for n in builder.nodes]
    return builder.finish()


LIBRARIES = frozenset(
    {"aten", "prims", "quantized_decomposed", "dim_order_ops", "executorch_prims"}
)
"""Libraries whose pure operators give the same results for the same arguments."""


def is_repeatable(ir: IR, node: OpNode) -> bool:
    """Return whether the same arguments give the same tensors, and nothing else happens.

    Of operators of other libraries nobody says so.
    """
    is_known = node.op_type.partition(".")[0] in LIBRARIES
    return is_known and bool(node.outputs) and not node.binds and ir.effects(node).is_pure


def call_key(node: OpNode, inputs: Sequence[str | None]) -> Hashable:
    """Return what two nodes have in common that are the same call of the same values.

    Args:
        node: The node.
        inputs: What tells its inputs from other values, in order.
    """
    results = tuple([(o.producer_output_idx, o.shape, o.dtype) for o in node.outputs])
    # equal numbers may be other values: 1 == 1.0 == True, and 0.0 == -0.0
    attributes = repr(sorted(node.attrs.items()))
    return node.op_type, tuple(inputs), attributes, repr(sorted(node.slots.items())), results


def _is_written(memory: StorageGroups, node: OpNode) -> bool:
    return any(memory.is_written(meta.name) for meta in (*node.inputs, *node.outputs))


def _joined(memory: StorageGroups, node: OpNode, earlier: OpNode) -> bool:
    pairs = [(a.name, b.name) for a, b in zip(node.outputs, earlier.outputs, strict=True)]
    if any(memory.is_seen(a) and memory.is_seen(b) for a, b in pairs):
        return False
    return all(memory.join(a, b) for a, b in pairs)
