"""Dead code: the removal of nodes whose results nothing uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_ir.arguments import public
from torch_ir.ir import IR, OpNode
from torch_ir.ir.builder import Builder
from torch_ir.ir.queries import kept_values, shown_symbols
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
        return PassResult.of(ir, eliminate_dead_code(ir))


@public
def eliminate_dead_code(ir: IR) -> IR:
    """Remove the nodes that nothing needs; return the same object if there are none.

    Example:
        >>> from torch_ir.ir import TensorMeta
        >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> eliminate_dead_code(IR([OpNode("y", "aten.relu.default", [x], [y])], [x], [x], []))
        IR(model_name='', nodes=0, inputs=1, outputs=1, weights=0)
    """
    needed = set(kept_values(ir))
    known = ir.given_symbols
    symbols = {symbol for guard in ir.guards for symbol in guard.symbols} | ir.returned_symbols
    binds = {node.name: made for node in ir.nodes if (made := _made_symbols(node) - known)}
    kept: list[OpNode] = []
    for node in reversed(ir.nodes):
        is_needed = not node.outputs or not symbols.isdisjoint(binds.get(node.name, ()))
        is_needed = is_needed or any(meta.name in needed for meta in node.outputs)
        if is_needed or not ir.effects(node).is_pure:
            kept.append(node)
            needed.update(meta.name for meta in node.inputs)
            if binds:
                symbols |= node.symbols
    builder = Builder(ir)
    builder.nodes = kept[::-1]
    called = {name for node in kept for name in node.functions} if ir.functions else set[str]()
    builder.functions = {n: eliminate_dead_code(f) for n, f in ir.functions.items() if n in called}
    return builder.finish()


def _made_symbols(node: OpNode) -> set[str]:
    """The symbols that may take their value from a node's results."""
    return {*node.binds, *shown_symbols(node.outputs)}
