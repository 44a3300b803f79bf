"""Nodes that no runtime runs, as no sample could show what they do in a call."""

from __future__ import annotations

from torch_ir.backends.state_writes import is_state_write
from torch_ir.infer.fake import value_types
from torch_ir.infer.storage import stride_readers
from torch_ir.infer.types import contiguous
from torch_ir.ir import IR, MemoryFormat, OpNode
from torch_ir.ops.layouts import BY_LAYOUT

_QUOTIENTS = frozenset(("floor_divide", "remainder", "fmod", "div", "divide"))
_ARRANGED = frozenset(("aten.addmm.default", "aten.linear.default", "aten.mm.default"))
"""Operators whose result has memory of its own, in order."""


def withheld(node: OpNode, ir: IR) -> str:
    """Return why a node stays on torch whatever a runtime says; empty if it need not.

    torch raises where an integer is divided by zero; runtimes end the process, or give numbers.
    Runtimes have no strides, so that an operator which reads memory by strides, and all that
    decides how this memory lies, is torch's, as is what decides how the memory lies for which
    random numbers are drawn, if it does not lie in order. So is what writes a row of a cache,
    all of which a runtime would give.

    Args:
        node: The node.
        ir: The program that it is part of.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: i64[2]
        ...   input %y: i64[2]
        ...   %a: i64[2] = aten.remainder.Tensor(%x, %y)
        ...   %b: i64[2] = aten.remainder.Scalar(%a, other=3)
        ...   return %b
        ... }''')
        >>> [withheld(node, ir) for node in ir.nodes]
        ['runtimes do not raise where an integer is divided by zero', '']
    """
    if _divides_by_data(node):
        return "runtimes do not raise where an integer is divided by zero"
    if is_state_write(node, ir):
        return "torch writes a part of a buffer in place"
    if node.name in ir.view("layout-bound nodes", lambda: _layout_bound(ir)):
        return "memory is read by strides, which runtimes do not have"
    return ""


def makes_shown_view(node: OpNode, ir: IR) -> bool:
    """Return whether a node makes a view that a caller sees: of what he gave or is given besides.

    A runtime gives memory of its own, so that what is written to one would not be seen in the
    other.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[2, 3]
        ...   %a: f32[2, 3] = aten.neg.default(%x)
        ...   %b: f32[3, 2] = aten.t.default(%a)
        ...   %c: f32[6] = aten.view.default(%x, [6])
        ...   return %b, %c
        ... }''')
        >>> [makes_shown_view(node, ir) for node in ir.nodes]
        [False, False, True]
    """
    return node.name in ir.view("nodes of shown views", lambda: _making_shown_views(ir))


def _divides_by_data(node: OpNode) -> bool:
    namespace, _, rest = node.op_type.partition(".")
    is_quotient = namespace in ("aten", "prims") and rest.split(".")[0] in _QUOTIENTS
    is_whole = all(meta.dtype.startswith(("int", "uint")) for meta in node.outputs)
    return is_quotient and is_whole and not {"other", "b"}.isdisjoint(node.slots)


def _layout_bound(ir: IR) -> frozenset[str]:
    """The nodes that read memory by strides, and those from whose results such memory may come."""
    found: set[str] = set()
    left = [*stride_readers(ir)]
    left += [node for node in ir.nodes if _by_layout(node, ir) or _draws_by_memory(node, ir)]
    while left:
        node = left.pop()
        if node.name in found:
            continue
        found.add(node.name)
        makers = [ir.producers.get(meta.name) for meta in node.inputs]
        left += [maker for maker in makers if maker is not None and not _arranges(maker)]
    return frozenset(found)


def _making_shown_views(ir: IR) -> frozenset[str]:
    """The nodes between results that share memory and what they share it with."""
    aliases, found = ir.aliases, set[str]()
    left = [name for pair in aliases.shared_results.items() for name in pair]
    while left:
        node = ir.producers.get(left.pop())
        if node is not None and node.name not in found and (sources := aliases.sources(node)):
            found.add(node.name)
            left += [meta.name for meta in sources]
    return frozenset(found)


def _by_layout(node: OpNode, ir: IR) -> bool:
    """Whether strides decide in which order a result that something uses was computed."""
    results = BY_LAYOUT.get(node.op_type, ())
    of_order = {meta.name for meta in node.outputs if meta.producer_output_idx in results}
    return not of_order.isdisjoint((*ir.users, *ir.output_names))


def _draws_by_memory(node: OpNode, ir: IR) -> bool:
    """Whether the order in which a node draws random numbers is that of turned memory."""
    if not node.inputs or not ir.effects(node).draws:
        return False
    types = value_types(ir)
    return any(types.get(meta.name) != contiguous(meta) for meta in node.inputs)


def _arranges(node: OpNode) -> bool:
    """Whether the result of a node has memory of its own, in order, whatever its operands have."""
    is_clone = node.op_type == "aten.clone.default"
    wanted = node.attrs.get("memory_format")
    return node.op_type in _ARRANGED or (is_clone and wanted == MemoryFormat("contiguous_format"))
