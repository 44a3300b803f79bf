"""Copies of graph outputs that alias other values; every result then owns its storage."""

from __future__ import annotations

from collections.abc import Mapping

from torch_ir.ir import IR, MemoryFormat, OpNode, Signature, TensorMeta
from torch_ir.ir.builder import Builder, with_leaves
from torch_ir.ops.spec import spec_of
from torch_ir.ops.variants import copy_of


def with_own_results(ir: IR) -> IR:
    """Copy graph outputs that alias other values; every result then owns its storage.

    A core view that is nothing but a result becomes the operator that copies it; any other is
    copied at the end, so that its users see the strides that they see in eager.

    Args:
        ir: A functional program.

    Example:
        >>> from torch_ir import parse
        >>> print(with_own_results(parse('''
        ... ir "Turn" {
        ...   input %x: f32[2, 3]
        ...   %t: f32[3, 2] = aten.permute.default(%x, dims=[1, 0])
        ...   return %t
        ... }
        ... ''')).nodes[0])
        %t: f32[3, 2] = aten.permute_copy.default(%x, dims=[1, 0])
    """
    builder = Builder(ir)
    builder.map_functions(with_own_results)
    changed = ir.replace(functions=builder.functions) if ir.functions else ir
    shown = changed.aliases.shared_results
    if not shown and not ir.functions:
        return ir
    results = {meta.name: meta for meta in ir.graph_outputs if meta.name in shown}
    written = {mutation.value.name for mutation in ir.mutations}
    for node in ir.nodes:
        given = [meta.name for meta in node.outputs if meta.name in results]
        is_result_only = given and given[0] not in ir.users and given[0] not in written
        copy = copy_of(node.op_type) if is_result_only and _is_plain(node) else None
        if copy is not None:
            node = node.replace(op_type=copy)
            del results[given[0]]
        builder.keep(node)
    copies: dict[str, TensorMeta] = {}
    for name, meta in results.items():
        types, view = [(meta.shape, meta.dtype)], ir.producers[name]
        wanted = f"{name}_copy".replace(".", "_")
        (copies[name],) = builder.emit(
            "aten.clone.default", {"self": meta}, like=view, results=types, name=wanted
        )
    if copies:
        return_instead(builder, copies)
    return builder.finish()


def with_fresh_results(before: IR, after: IR) -> IR:
    """Copy graph outputs that may be fresh in a program, and are given values after a pass.

    ``contiguous`` of a graph input is the input itself for some callers alone.

    Args:
        before: A functional program.
        after: What a pass made of it, with the same outputs in order.
    """
    given = {*after.input_names, *after.external_values()}
    pairs = zip(before.graph_outputs, after.graph_outputs, strict=True)
    shown = {
        new.name: new
        for old, new in pairs
        if new.name in given
        and old.name != new.name
        and old.name in before.aliases.roots(old.name)
    }
    if not shown:
        return after
    builder = Builder(after)
    for node in after.nodes:
        builder.keep(node)
    copies: dict[str, TensorMeta] = {}
    for name, meta in shown.items():
        attrs = {"self": meta, "memory_format": MemoryFormat("contiguous_format")}
        types = [(meta.shape, meta.dtype)]
        (copies[name],) = builder.emit(
            "aten.clone.default", attrs, results=types, name=f"{name}_copy".replace(".", "_")
        )
    return_instead(builder, copies)
    return builder.finish()


def return_instead(builder: Builder, values: Mapping[str, TensorMeta]) -> None:
    """Return values in place of those of these names; what is written back stays that."""
    ir = builder.ir
    signature = ir.signature
    if signature is not None:
        signature = Signature(signature.inputs, with_leaves(signature.outputs, values))
    builder.returns([values.get(meta.name, meta) for meta in ir.graph_outputs], signature)


def _is_plain(view: OpNode) -> bool:
    return len(view.outputs) == 1 and spec_of(view.op_type).is_core
