"""Removing nodes whose results nothing uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeGuard

from torch_ir.ir import IR, Attribute, FrozenDict, FunctionRef, OpNode, SymExpr
from torch_ir.ir.effects import written_arguments
from torch_ir.ir.tree import ValueLeaf, leaves
from torch_ir.ops.spec import tagged_traits
from torch_ir.passes.base import Pass, PassResult

_ASSERTIONS = ("aten._assert", "aten.sym_constrain_range", "aten._functional_assert")


@dataclass(frozen=True)
class EliminateDeadCode(Pass):
    """Removes the nodes that nothing needs, and the functions that no node calls any more.

    A node is needed if one of its results is used, returned or written back, if it writes to
    memory, if it checks something, or if it gives a symbol its value. Nodes that draw random
    numbers stay too: without them, later ones would draw others.
    """

    name: ClassVar[str] = "eliminate-dead-code"

    def call(self, ir: IR) -> PassResult:
        """The program without its dead nodes."""
        result = eliminate_dead_code(ir)
        return PassResult(result, result is not ir)


def eliminate_dead_code(ir: IR) -> IR:
    """The program without the nodes that nothing needs; the same object if there are none.

    Example:
        >>> from torch_ir.ir import TensorMeta
        >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> eliminate_dead_code(IR([OpNode("y", "aten.relu.default", [x], [y])], [x], [x], []))
        IR(model_name='', nodes=0, inputs=1, outputs=1, weights=0)
    """
    functions = {name: eliminate_dead_code(body) for name, body in ir.functions.items()}
    impure = {name for name, body in functions.items() if _is_impure(body)}
    needed = {meta.name for meta in ir.graph_outputs}
    needed |= {mutation.value.name for mutation in ir.mutations}
    known = given_symbols(ir)
    symbols = {symbol for guard in ir.guards for symbol in guard.symbols}
    symbols |= set(_signature_symbols(ir))
    kept: list[OpNode] = []
    for node in reversed(ir.nodes):
        used = any(meta.name in needed for meta in node.outputs)
        binds = {symbol for symbol in _made_symbols(node) if symbol not in known}
        if used or not binds.isdisjoint(symbols) or _has_effect(ir, node, impure):
            kept.append(node)
            needed.update(meta.name for meta in node.inputs)
            symbols.update(_symbols_of(node))
    called = {name for node in kept for name in references(node)} if functions else set[str]()
    functions = {name: body for name, body in functions.items() if name in called}
    unchanged = all(functions.get(name) is body for name, body in ir.functions.items())
    if len(kept) == len(ir.nodes) and unchanged:
        return ir
    return ir.replace(nodes=tuple(reversed(kept)), functions=functions)


def references(node: OpNode) -> Iterator[str]:
    """The names of the functions that a node refers to."""
    return (item.name for item in _flat(tuple(node.attrs.values())) if _is_reference(item))


def given_symbols(ir: IR) -> frozenset[str]:
    """The symbols to which the arguments of a program give their values."""
    dims = [dim for meta in ir.graph_inputs for dim in meta.shape]
    values = (
        [leaf.value for leaf in leaves(ir.signature.inputs) if isinstance(leaf, ValueLeaf)]
        if ir.signature is not None
        else []
    )
    expressions = [item for item in (*dims, *values) if isinstance(item, SymExpr)]
    return frozenset(symbol for item in expressions for symbol in item.symbols)


def _is_reference(value: object) -> TypeGuard[FunctionRef]:
    return isinstance(value, FunctionRef)


def _signature_symbols(ir: IR) -> Iterator[str]:
    if ir.signature is not None:
        for leaf in leaves(ir.signature.outputs):
            if isinstance(leaf, ValueLeaf) and isinstance(leaf.value, SymExpr):
                yield from leaf.value.symbols


def _made_symbols(node: OpNode) -> Iterator[str]:
    """The symbols that may take their value from a node's results."""
    yield from node.binds
    for meta in node.outputs:
        yield from (dim.text for dim in meta.shape if isinstance(dim, SymExpr) and dim.is_symbol)


def _symbols_of(node: OpNode) -> Iterator[str]:
    """The symbols that a node needs."""
    for meta in (*node.inputs, *node.outputs):
        for dim in meta.shape:
            if isinstance(dim, SymExpr):
                yield from dim.symbols
    for value in node.attrs.values():
        if isinstance(value, SymExpr):
            yield from value.symbols
        elif isinstance(value, tuple | FrozenDict):
            for item in _flat(value):
                if isinstance(item, SymExpr):
                    yield from item.symbols


def _flat(value: Attribute) -> Iterator[Attribute]:
    if isinstance(value, tuple | FrozenDict):
        for item in value.values() if isinstance(value, FrozenDict) else value:
            yield from _flat(item)
    else:
        yield value


def _has_effect(ir: IR, node: OpNode, impure: set[str]) -> bool:
    if ir.schema_of(node.op_type) is None:
        is_call = node.op_type.startswith("higher_order.")
        return not is_call or not impure.isdisjoint(references(node))
    checks = node.op_type.startswith(_ASSERTIONS)
    draws = "random" in tagged_traits(node.op_type)
    return checks or draws or bool(written_arguments(ir, node)) or not node.outputs


def _is_impure(body: IR) -> bool:
    """Whether a call of a function does more than to give its results."""
    impure = {name for name, inner in body.functions.items() if _is_impure(inner)}
    return any(_has_effect(body, node, impure) for node in body.nodes)
