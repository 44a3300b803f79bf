"""Writes at the end of a program as nodes, where its results show them."""

from __future__ import annotations

from torch_ir.ir import IR, Mutation, TensorMeta
from torch_ir.ir.builder import Builder
from torch_ir.ir.queries import given_values, shown_writes


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
