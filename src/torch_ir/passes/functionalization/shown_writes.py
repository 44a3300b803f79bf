"""Writes at the end of a program as nodes, where its results show them."""

from __future__ import annotations

from collections.abc import Sequence, Set

from torch_ir.ir import IR, Mutation, OpNode, TensorMeta
from torch_ir.ir.aliases import possible_sources
from torch_ir.ir.builder import Builder, renamed, with_inputs
from torch_ir.ir.queries import given_values, shown_writes
from torch_ir.ops.choices import VALUES_OPEN
from torch_ir.ops.variants import IN_PLACE_VIEWS
from torch_ir.passes.functionalization.copies import return_instead


def with_shown_writes(ir: IR) -> IR:
    """Write what the program leaves in inputs and buffers by nodes, if its results show it.

    Values that may have the storage of what is written are copied before.

    Example:
        >>> from torch_ir import parse
        >>> print(with_shown_writes(parse('''ir {
        ...   mutate %x = %y
        ...   input %x: f32[2]
        ...   %y: f32[2] = aten.neg.default(%x)
        ...   return %x
        ... }''')))
        ir {
          mutate %x = %x
          input %x: f32[2]
          %y: f32[2] = aten.neg.default(%x)
          %copy: f32[2] = aten.copy_.default(%x, %y)
          return %x
        }
    """
    writes = shown_writes(ir)
    if not writes:
        return ir
    builder = Builder(ir)
    for node in ir.nodes:
        builder.keep(node)
    written = frozenset[str]().union(*[ir.aliases.roots(write.target) for write in writes])
    values = [_apart(builder, write.value, written) for write in writes]
    ended: list[Mutation] = []
    for write, value in zip(writes, values, strict=True):
        target = given_values(ir)[write.target]
        types = [(target.shape, target.dtype)]
        builder.emit("aten.copy_.default", {"self": target, "src": value}, results=types)
        ended.append(Mutation(write.target, target))
    names = {write.target: write for write in ended}
    mutations = [names.get(mutation.target, mutation) for mutation in ir.mutations]
    builder.returns(ir.graph_outputs, ir.signature, mutations)
    return builder.finish()


def _apart(builder: Builder, value: TensorMeta, written: frozenset[str]) -> TensorMeta:
    """The value, copied if it may have the storage of what is written."""
    if written.isdisjoint(builder.ir.aliases.roots(value.name)):
        return value
    types = [(value.shape, value.dtype)]
    (copy,) = builder.emit("aten.clone.default", {"self": value}, results=types)
    return copy


def with_shown_results(before: IR, after: IR) -> IR:
    """Let results show what a program writes, as they did before it was made functional.

    Results that may be copies stay values of their own.

    Args:
        before: The program.
        after: Its functional form, with the same outputs in order.

    Example:
        >>> from torch_ir import parse
        >>> from torch_ir.passes import functionalize
        >>> program = parse('''ir {
        ...   mutate %x = %x
        ...   input %x: f32[2]
        ...   %y: f32[2] = aten.neg_.default(%x)
        ...   %z: f32[1, 2] = aten.unsqueeze.default(%y, 0)
        ...   return %z
        ... }''')
        >>> print(with_shown_results(program, functionalize(program)))
        ir {
          dialect "aten"
          mutate %x = %y
          input %x: f32[2]
          %y: f32[2] = aten.neg.default(%x)
          %z: f32[1, 2] = aten.unsqueeze.default(%y, dim=0)
          %z_1: f32[1, 2] = aten.unsqueeze.default(%x, dim=0)
          return %z_1
        }
    """
    written = before.aliases.written | {mutation.target for mutation in before.mutations}
    if not written:
        return after
    pairs = list(zip(before.graph_outputs, after.graph_outputs, strict=True))
    builder, instead = Builder(after), dict[str, TensorMeta]()
    for node in after.nodes:
        builder.keep(node)
    for old, new in pairs:
        is_one = all(a.name == old.name for a, b in pairs if b.name == new.name)
        views = _views(before, old, written) if is_one and new.name not in instead else None
        if views is not None:
            instead[new.name] = _again(builder, *views)
    return_instead(builder, {name: meta for name, meta in instead.items() if meta.name != name})
    return builder.finish()


def _views(
    ir: IR, result: TensorMeta, written: Set[str]
) -> tuple[TensorMeta, list[tuple[OpNode, TensorMeta]]] | None:
    """The given value that a result surely shows, and the views between; None if it is no view."""
    views: list[tuple[OpNode, TensorMeta]] = []
    while (node := ir.producers.get(result.name)) is not None:
        sources, is_sure = possible_sources(ir, node, result)
        if not is_sure or len(sources) != 1 or node.op_type in VALUES_OPEN:
            return None
        view = IN_PLACE_VIEWS.get(node.op_type)
        if view is not None or not ir.effects(node).writes:
            views.append((node.replace(op_type=view or node.op_type), result))
        (result,) = sources
    return (result, views[::-1]) if result.name in written else None


def _again(
    builder: Builder, value: TensorMeta, views: Sequence[tuple[OpNode, TensorMeta]]
) -> TensorMeta:
    """The same views of a value."""
    for node, result in views:
        (source,) = node.inputs
        node = renamed(with_inputs(node, {source.name: value}), builder.names.fresh(node.name))
        builder.keep(node)
        value = next(
            m for m in node.outputs if m.producer_output_idx == result.producer_output_idx
        )
    return value
