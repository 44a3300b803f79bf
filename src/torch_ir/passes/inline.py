"""Scopes without meaning for inference, written out where they are called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch_ir.ir import IR, FunctionRef, OpNode, TensorLeaf, TensorMeta
from torch_ir.ir.builder import Names, renamed, with_inputs, with_leaves
from torch_ir.ir.tree import leaves

GRADIENT_SCOPES = frozenset({"higher_order.wrap_with_set_grad_enabled"})


def inline_scopes(ir: IR, op_types: frozenset[str] = GRADIENT_SCOPES) -> IR:
    """Replace the calls of such scopes by their bodies; in functions too.

    Whether gradients are recorded changes no value. The same object if there is no such scope.

    Args:
        ir: The program.
        op_types: Operators that call one function, once.
    """
    functions = {name: inline_scopes(body, op_types) for name, body in ir.functions.items()}
    if not any(node.op_type in op_types for node in ir.nodes):
        unchanged = all(functions[name] is body for name, body in ir.functions.items())
        return ir if unchanged else ir.replace(functions=functions)
    return _Inliner(ir.replace(functions=functions), op_types).run()


class _Inliner:
    def __init__(self, ir: IR, op_types: frozenset[str]):
        self.ir = ir
        self.op_types = op_types
        self.names = Names.of(ir)
        self.function_names = Names(ir.functions)
        self.functions = dict(ir.functions)
        self.operators = dict(ir.operators)
        self.values: dict[str, TensorMeta] = {}

    def run(self) -> IR:
        nodes: list[OpNode] = []
        for node in self.ir.nodes:
            node = with_inputs(node, self.values)
            if node.op_type in self.op_types:
                nodes.extend(self._body(node))
            else:
                nodes.append(node)
        used = {name for node in nodes for name in node.functions}
        ir = self.ir
        signature = ir.signature
        if signature is not None:
            signature = type(signature)(
                signature.inputs, with_leaves(signature.outputs, self.values)
            )
        return ir.replace(
            nodes=nodes,
            graph_outputs=[self.values.get(meta.name, meta) for meta in ir.graph_outputs],
            mutations=[
                m.__class__(m.target, self.values.get(m.value.name, m.value)) for m in ir.mutations
            ],
            functions={name: body for name, body in self.functions.items() if name in used},
            operators=self.operators,
            signature=signature,
        )

    def _body(self, call: OpNode) -> Iterator[OpNode]:
        (name,) = call.functions
        body = self.functions[name]
        self.operators.update(body.operators)
        taken = {name: self.function_names.fresh(name) for name in body.functions}
        self.functions.update({taken[name]: inner for name, inner in body.functions.items()})
        values = {
            meta.name: given for meta, given in zip(body.graph_inputs, _given(call), strict=True)
        }
        for node in body.nodes:
            copy = renamed(with_inputs(node, values), self.names.fresh(node.name))
            values.update(
                {old.name: new for old, new in zip(node.outputs, copy.outputs, strict=True)}
            )
            if taken:
                attrs = {k: _with_references(v, taken) for k, v in copy.attrs.items()}
                copy = copy.replace(attrs=attrs)
            yield copy
        results = self._results(body)
        for output in call.outputs:
            name = results[output.producer_output_idx]
            self.values[output.name] = values[name]

    def _results(self, body: IR) -> list[str]:
        """The name of each flattened result of a body, empty for what is no tensor."""
        if body.signature is None:
            return [meta.name for meta in body.graph_outputs]
        found = leaves(body.signature.outputs)
        return [leaf.name if isinstance(leaf, TensorLeaf) else "" for leaf in found]


def _given(call: OpNode) -> list[TensorMeta]:
    """The tensors that a scope's body takes, in order."""
    name = "args" if "args" in call.slots else "operands"
    return list(call.tensors(name) or call.inputs)


def _with_references(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, FunctionRef):
        return FunctionRef(names.get(value.name, value.name))
    if isinstance(value, tuple):
        return tuple([_with_references(item, names) for item in value])
    if isinstance(value, dict):
        return {key: _with_references(item, names) for key, item in value.items()}
    return value
