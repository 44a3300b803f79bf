"""Graph inputs and weights that a program writes in place.

The alias marks of the operators' schemas say so.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch_ir.ir.graph import IR
from torch_ir.ir.node import OpNode
from torch_ir.ir.values import FunctionRef

Roots = frozenset[str]
"""The graph inputs and weights whose storage a value may share."""

# Operators that write arguments which their schema does not mark, if the named flag is true.
_UNMARKED_WRITES: dict[str, tuple[tuple[str, ...], str]] = {
    "aten.batch_norm.default": (("running_mean", "running_var"), "training"),
    "aten.instance_norm.default": (("running_mean", "running_var"), "use_input_stats"),
    "aten.native_batch_norm.default": (("running_mean", "running_var"), "training"),
    "aten.cudnn_batch_norm.default": (("running_mean", "running_var"), "training"),
    "aten._batch_norm_impl_index.default": (("running_mean", "running_var"), "training"),
}


def written_values(ir: IR) -> frozenset[str]:
    """Find the graph inputs and external values that in-place operators write.

    They may write directly or through a view. An operator whose schema nobody recorded is taken to
    write nothing.

    Example:
        >>> from torch_ir.ir import OpNode, TensorMeta
        >>> x, v = TensorMeta("x", (4,), "float32"), TensorMeta("v", (2, 2), "float32", "v")
        >>> y = TensorMeta("y", (2, 2), "float32", "y")
        >>> view = OpNode("v", "aten.view.default", [x], [v], {"size": [2, 2]})
        >>> written_values(IR([view, OpNode("y", "aten.relu_.default", [v], [y])], [x], [y], []))
        frozenset({'x'})
    """
    return ir.view("written_values", lambda: _find_written_values(ir))


def _find_written_values(ir: IR) -> frozenset[str]:
    names = [meta.name for meta in ir.graph_inputs]
    roots: dict[str, Roots] = {name: frozenset({name}) for name in (*names, *ir.external_values())}
    written: set[str] = set()
    for node in ir.nodes:
        written.update(_apply(ir, node, roots))
    return frozenset(written)


def _apply(ir: IR, node: OpNode, roots: dict[str, Roots]) -> Iterator[str]:
    """Record what the outputs of a node share storage with; yield the roots that it writes."""
    body = _scope_body(ir, node)
    if body is not None:
        taken = [roots.get(meta.name, Roots()) for meta in node.inputs]
        for meta, shared in zip(body.graph_inputs, taken, strict=False):
            if meta.name in written_values(body):
                yield from shared
        for output in node.outputs:
            roots[output.name] = frozenset[str]().union(*taken)
        return
    schema = ir.schema_of(node.op_type)
    if schema is None or node.operands is None:
        return
    if not schema.has_aliases and node.op_type not in _UNMARKED_WRITES:
        return  # no alias marks: new tensors, of which nothing is written
    shared_by: dict[str, Roots] = {}
    written = written_arguments(ir, node)
    for argument in schema.arguments:
        taken = [roots.get(meta.name, Roots()) for meta in node.tensors(argument.name)]
        shared = Roots().union(*taken)
        if argument.alias:
            shared_by[argument.alias] = shared_by.get(argument.alias, Roots()) | shared
        if argument.name in written:
            yield from shared
    returned = schema.returns
    for output in node.outputs:
        position = min(output.producer_output_idx, len(returned) - 1)
        alias = returned[position].alias if returned else ""
        roots[output.name] = shared_by.get(alias, Roots())


def written_arguments(ir: IR, node: OpNode) -> tuple[str, ...]:
    """Return the arguments that an operator's call writes; none for a higher-order operator.

    Example:
        >>> from torch_ir.ir import TensorMeta
        >>> x = TensorMeta("x", (4,), "float32")
        >>> node = OpNode("y", "aten.relu_.default", [x], [TensorMeta("y", (4,), "float32", "y")])
        >>> written_arguments(IR([node], [x], [], []), node)
        ('self',)
    """
    schema = ir.schema_of(node.op_type)
    if schema is None or not (schema.has_aliases or node.op_type in _UNMARKED_WRITES):
        return ()
    unmarked, flag = _UNMARKED_WRITES.get(node.op_type, ((), ""))
    flagged = node.attrs.get(flag) is True
    return tuple(
        [
            argument.name
            for argument in schema.arguments
            if (argument.is_written or (flagged and argument.name in unmarked))
            and argument.name in node.slots
        ]
    )


def _scope_body(ir: IR, node: OpNode) -> IR | None:
    """The body of a scope, whose inputs are the node's own.

    There is none for branches and loops, which may not write what they take.
    """
    reference = node.attrs.get("wrapped_func")
    return ir.functions.get(reference.name) if isinstance(reference, FunctionRef) else None
