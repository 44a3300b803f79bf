"""Dead code: the removal of nodes whose results nothing uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch_ir.ir import IR, OpNode, SymExpr
from torch_ir.ir.builder import Builder
from torch_ir.passes.base import Pass, PassResult


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
    builder = Builder(ir)
    builder.map_functions(eliminate_dead_code)
    needed = set(ir.output_names)
    needed |= {mutation.value.name for mutation in ir.mutations}
    known = ir.given_symbols
    symbols = {symbol for guard in ir.guards for symbol in guard.symbols}
    symbols |= ir.returned_symbols
    kept: list[OpNode] = []
    for node in reversed(ir.nodes):
        used = any(meta.name in needed for meta in node.outputs)
        binds = {symbol for symbol in _made_symbols(node) if symbol not in known}
        is_needed = used or not binds.isdisjoint(symbols) or not node.outputs
        if is_needed or not ir.effects(node).is_pure:
            kept.append(node)
            needed.update(meta.name for meta in node.inputs)
            symbols.update(node.symbols)
    for node in reversed(kept):
        builder.keep(node)
    called = (
        {name for node in kept for name in node.functions} if builder.functions else set[str]()
    )
    builder.functions = {key: body for key, body in builder.functions.items() if key in called}
    return builder.finish()


def _made_symbols(node: OpNode) -> Iterator[str]:
    """The symbols that may take their value from a node's results."""
    yield from node.binds
    for meta in node.outputs:
        yield from (dim.text for dim in meta.shape if isinstance(dim, SymExpr) and dim.is_symbol)
