"""Delegation: subgraphs that a backend takes become functions, each called by one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_ir.arguments import public
from torch_ir.backends.partition import Partition, Partitioner
from torch_ir.ir import IR, FunctionRef, OpNode, Signature, SymExpr, TensorMeta, ValueLeaf
from torch_ir.ir.builder import Builder, Names, subgraph
from torch_ir.ir.node import needs
from torch_ir.ir.queries import live_out, shown_symbols

CALL = "higher_order.invoke_subgraph"
"""The operator of a node that calls a delegate."""

BACKEND = "backend"
"""The key in the metadata of a function under which the name of its backend stands."""


@public
def to_backend(ir: IR, partitioner: Partitioner) -> IR:
    """Replace each subgraph that a backend takes by one node that calls it as a function.

    The function is named after the backend, has ``metadata["backend"]``, takes the weights that
    its nodes use as inputs, and keeps their names and locations. The call has the location of
    the subgraph's first node. Every executor runs the result as it runs the program, bit for bit.

    Args:
        ir: A functional program; it does not change.
        partitioner: Says what the backend takes.

    Returns:
        The program; the same object where the backend takes nothing.

    Raises:
        PassError: A node of the program writes to memory.

    Example:
        >>> from torch_ir import parse
        >>> from torch_ir.backends import SUPPORTED, Support
        >>> class Relu:
        ...     name = "relu"
        ...     def supports(self, node, ir):
        ...         is_relu = node.op_type == "aten.relu.default"
        ...         return SUPPORTED if is_relu else Support.refused("it is no relu")
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   %a: f32[2] = aten.relu.default(%x)
        ...   %b: f32[2] = aten.neg.default(%a)
        ...   return %b
        ... }''')
        >>> for node in to_backend(ir, Partitioner(Relu())).nodes:
        ...     print(node)
        %a: f32[2] = relu_0: higher_order.invoke_subgraph(operands=[%x], identifier="relu_0", \
subgraph=&relu_0)
        %b: f32[2] = aten.neg.default(%a)
    """
    partition = partitioner(ir)
    return delegated(partition) if partition.subgraphs else ir


def delegated(partition: Partition) -> IR:
    """Turn the subgraphs that a partition found into functions of the program."""
    return _Delegator(partition).run() if partition.subgraphs else partition.ir


def delegates(ir: IR, backend: str | None = None) -> tuple[OpNode, ...]:
    """Return the nodes of a program that call delegates, of one backend or of all."""
    return tuple([node for node in ir.nodes if _is_delegate(ir, node, backend)])


def body_of(ir: IR, call: OpNode) -> IR:
    """Return the function that a delegate's node calls."""
    return ir.functions[call.attrs["subgraph"].name]


def function_of(
    ir: IR, nodes: Sequence[OpNode], returned: Sequence[TensorMeta], name: str, backend: str
) -> IR:
    """Return some nodes of a program as a function that a backend compiles.

    It takes what they take from elsewhere, weights among it, and the sizes that no tensor shows.
    """
    body = subgraph(ir, nodes, returned)
    used = {symbol for node in nodes for symbol in node.symbols}
    sizes = map(SymExpr, sorted(used - shown_symbols(body.graph_inputs)))
    given = (*body.input_names, *map(ValueLeaf, sizes))
    signature = Signature.of(given, [meta.name for meta in returned])
    return body.replace(model_name=name, signature=signature, metadata={BACKEND: backend})


def sizes_of(body: IR) -> tuple[SymExpr, ...]:
    """Return the sizes that a function takes beside tensors."""
    return () if body.signature is None else body.signature.sizes


def _is_delegate(ir: IR, node: OpNode, backend: str | None) -> bool:
    reference = node.attrs.get("subgraph")
    if node.op_type != CALL or not isinstance(reference, FunctionRef):
        return False
    body = ir.functions.get(reference.name)
    name = None if body is None else body.metadata.get(BACKEND)
    return isinstance(name, str) and backend in (None, name)


class _Delegator:
    def __init__(self, partition: Partition):
        self.ir = partition.ir
        self.partition = partition
        self.builder = Builder(self.ir)
        self.names = Names([*self.ir.value_names, *self.ir.by_name, *self.ir.functions])
        self.group = {
            node.name: index for index, nodes in enumerate(partition.subgraphs) for node in nodes
        }

    def run(self) -> IR:
        done: set[int] = set()
        for node in self.partition.order:
            index = self.group.get(node.name)
            if index is None:
                self.builder.keep(node)
            elif index not in done:
                self._call(self.partition.subgraphs[index], len(done))
                done.add(index)
        return self.builder.finish()

    def _call(self, nodes: Sequence[OpNode], number: int) -> None:
        name = self.names.fresh(f"{self.partition.backend}_{number}")
        returned = live_out(self.ir, nodes)
        body = function_of(self.ir, nodes, returned, name, self.partition.backend)
        sizes = sizes_of(body)
        self.builder.functions[name] = body
        taken = needs(nodes)
        outputs = [
            meta.replace(producer_node=name, producer_output_idx=index)
            for index, meta in enumerate(returned)
        ]
        attrs: dict[str, Any] = {"subgraph": FunctionRef(name), "identifier": name}
        if sizes:
            attrs["operands"] = (None,) * len(taken) + sizes
        operands = {"operands": (*range(len(taken)), *[None for _ in sizes])}
        inputs, location = tuple(taken.values()), nodes[0].location
        call = OpNode(name, CALL, inputs, outputs, attrs, operands, location)
        self.builder.keep(call.derived_from(*nodes))
        for meta in outputs:
            self.builder.replace(meta, meta)
