"""Values of a graph that share memory, and writes to it, as far as the graph shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch_ir.ir import IR, Mutation, OpNode, Signature, TensorMeta
from torch_ir.ir.builder import with_leaves
from torch_ir.ir.effects import written_arguments
from torch_ir.ops.spec import tagged_traits
from torch_ir.passes.aliasing import possible_inputs

KNOWN = frozenset({"aten", "prims", "quantized_decomposed", "dim_order_ops", "executorch_prims"})
"""Libraries whose operators give the same result for the same arguments, unless tagged random."""


class Memory:
    """Groups of values that may share memory; which are written, and which are seen outside.

    A value is taken to share the memory of whatever its operator may return a view of.

    Example:
        >>> from torch_ir import parse
        >>> memory = Memory(parse('''
        ... ir "View" {
        ...   input %x: f32[4]
        ...   %a: f32[4] = aten.neg.default(%x)
        ...   %b: f32[2, 2] = aten.view.default(%a, [2, 2])
        ...   return %b
        ... }
        ... '''))
        >>> memory.is_seen("a"), memory.is_written("a"), memory.join("a", "x")
        (True, False, False)
    """

    def __init__(self, ir: IR):
        self._groups: dict[str, str] = {}
        written: list[str] = []
        for node in ir.nodes:
            written += _written(ir, node)
            schema = ir.schema_of(node.op_type)
            shared = tuple(node.inputs) if schema is None else possible_inputs(schema, node)
            for meta in (*shared[1:], *node.outputs) if shared else ():
                self._groups[self._find(meta.name)] = self._find(shared[0].name)
        results = [*ir.graph_outputs, *(mutation.value for mutation in ir.mutations)]
        given = [*(meta.name for meta in ir.graph_inputs), *ir.external_values()]
        self._written = {self._find(name) for name in written}
        self._seen = {self._find(name) for name in (*given, *(meta.name for meta in results))}

    def _find(self, name: str) -> str:
        groups = self._groups
        while (parent := groups.get(name, name)) != name:
            groups[name] = groups.get(parent, parent)
            name = parent
        return name

    def is_written(self, name: str) -> bool:
        """Return whether something in the program may write to the value's memory."""
        return self._find(name) in self._written

    def is_seen(self, name: str) -> bool:
        """Return whether the value may alias a graph input, a weight or an output."""
        return self._find(name) in self._seen

    def join(self, copy: str, source: str) -> bool:
        """Merge a value with another of the same content, if no write can tell them apart.

        Returns False, and nothing is changed, where either is written or both are seen.
        """
        first, second = self._find(copy), self._find(source)
        if first in self._written or second in self._written:
            return False
        if first != second and first in self._seen and second in self._seen:
            return False
        if first in self._seen:
            self._seen.add(second)
        self._groups[first] = second
        return True


def _written(ir: IR, node: OpNode) -> Iterable[str]:
    """The values to which a node may write."""
    if ir.schema_of(node.op_type) is None:
        bodies = [ir.functions[name] for name in node.functions if name in ir.functions]
        is_call = node.op_type.startswith("higher_order.")
        if is_call and not any(writes(body) for body in bodies):
            return ()
        return [meta.name for meta in node.inputs]
    return [meta.name for name in written_arguments(ir, node) for meta in node.tensors(name)]


def writes(ir: IR) -> bool:
    """Return whether anything in a graph writes to memory."""
    return any(
        written_arguments(ir, node)
        or (ir.schema_of(node.op_type) is None and not node.op_type.startswith("higher_order."))
        for node in ir.nodes
    ) or any(writes(body) for body in ir.functions.values())


def is_pure(ir: IR, node: OpNode) -> bool:
    """Return whether equal arguments give equal results, and nothing else happens.

    Of operators of other libraries nobody says so.

    Example:
        >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> ir = IR([], [x], [], [])
        >>> [
        ...     is_pure(ir, OpNode("y", f"aten.{name}", [x], [y]))
        ...     for name in ("relu.default", "relu_.default", "rand_like.default")
        ... ]
        [True, False, False]
    """
    return (
        node.op_type.partition(".")[0] in KNOWN
        and ir.schema_of(node.op_type) is not None
        and bool(node.outputs)
        and not node.binds
        and "_assert" not in node.op_type
        and "random" not in tagged_traits(node.op_type)
        and not written_arguments(ir, node)
    )


def rewired(
    ir: IR, nodes: Iterable[OpNode], values: Mapping[str, TensorMeta], **changes: Any
) -> IR:
    """Return the graph with these nodes, and other values for the results that are named."""
    signature = ir.signature
    if signature is not None:
        signature = Signature(signature.inputs, with_leaves(signature.outputs, values))
    return ir.replace(
        nodes=tuple(nodes),
        graph_outputs=[values.get(meta.name, meta) for meta in ir.graph_outputs],
        mutations=[Mutation(m.target, values.get(m.value.name, m.value)) for m in ir.mutations],
        signature=signature,
        **changes,
    )


def in_functions(ir: IR, change: Callable[[IR], IR]) -> IR:
    """Change each function of a graph; return the same object if none changes."""
    functions = {name: change(body) for name, body in ir.functions.items()}
    if all(functions[name] is body for name, body in ir.functions.items()):
        return ir
    return ir.replace(functions=functions)
