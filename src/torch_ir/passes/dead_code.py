"""Dead code: the removal of nodes whose results nothing uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch_ir.ir import IR, OpNode, SymExpr
from torch_ir.ir.effects import written_arguments
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
        """Remove the program's dead nodes."""
        result = eliminate_dead_code(ir)
        return PassResult(result, result is not ir)


def eliminate_dead_code(ir: IR) -> IR:
    """Remove the nodes that nothing needs; return the same object if there are none.

    Example:
        >>> from torch_ir.ir import TensorMeta
        >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> eliminate_dead_code(IR([OpNode("y", "aten.relu.default", [x], [y])], [x], [x], []))
        IR(model_name='', nodes=0, inputs=1, outputs=1, weights=0)
    """
    functions = {name: eliminate_dead_code(body) for name, body in ir.functions.items()}
    impure = {name for name, body in functions.items() if _is_impure(body)}
    needed = set(ir.output_names)
    needed |= {mutation.value.name for mutation in ir.mutations}
    known = ir.given_symbols
    symbols = {symbol for guard in ir.guards for symbol in guard.symbols}
    symbols |= ir.returned_symbols
    kept: list[OpNode] = []
    for node in reversed(ir.nodes):
        used = any(meta.name in needed for meta in node.outputs)
        binds = {symbol for symbol in _made_symbols(node) if symbol not in known}
        if used or not binds.isdisjoint(symbols) or _has_effect(ir, node, impure):
            kept.append(node)
            needed.update(meta.name for meta in node.inputs)
            symbols.update(node.symbols)
    called = {name for node in kept for name in node.functions} if functions else set[str]()
    functions = {name: body for name, body in functions.items() if name in called}
    unchanged = all(functions.get(name) is body for name, body in ir.functions.items())
    if len(kept) == len(ir.nodes) and unchanged:
        return ir
    return ir.replace(nodes=tuple(reversed(kept)), functions=functions)


def _made_symbols(node: OpNode) -> Iterator[str]:
    """The symbols that may take their value from a node's results."""
    yield from node.binds
    for meta in node.outputs:
        yield from (dim.text for dim in meta.shape if isinstance(dim, SymExpr) and dim.is_symbol)


def _has_effect(ir: IR, node: OpNode, impure: set[str]) -> bool:
    if ir.schema_of(node.op_type) is None:
        is_call = node.op_type.startswith("higher_order.")
        return not is_call or not impure.isdisjoint(node.functions)
    checks = node.op_type.startswith(_ASSERTIONS)
    draws = "random" in tagged_traits(node.op_type)
    return checks or draws or bool(written_arguments(ir, node)) or not node.outputs


def _is_impure(body: IR) -> bool:
    """Whether a call of a function does more than to give its results."""
    impure = {name for name, inner in body.functions.items() if _is_impure(inner)}
    return any(_has_effect(body, node, impure) for node in body.nodes)
