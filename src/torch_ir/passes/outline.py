"""Repeated layers as one function that is called once for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_ir.arguments import public
from torch_ir.errors import PassError
from torch_ir.ir import IR
from torch_ir.ir.functions import outlined
from torch_ir.passes.base import Pass, PassResult
from torch_ir.passes.inline import inline_functions


@dataclass(frozen=True)
class Outline(Pass):
    """Makes repeated layers calls of one function; see :func:`outline`."""

    name: ClassVar[str] = "outline"
    min_nodes: int = 4
    min_calls: int = 2

    def call(self, ir: IR) -> PassResult:
        """Make repeated layers calls, and compare what they mean with what stood there."""
        result = outline(ir, min_nodes=self.min_nodes, min_calls=self.min_calls)
        if result is not ir:
            _require_same(inline_functions(ir), inline_functions(result))
        return PassResult.of(ir, result)


@public
def outline(ir: IR, *, min_nodes: int = 4, min_calls: int = 2) -> IR:
    """Replace layers that repeat by calls of one function each, in functions too.

    A layer is a run of nodes whose module paths share the shortest beginning that ends in a number
    (``model.layers.7``); what repeats inside layers that do not repeat is found too. Layers become
    one function where operators, arguments, wiring, types, source lines and all values that are
    read later are the same. Weights and values are operands of the call.
    :func:`torch_ir.passes.inline_functions` is the inverse. The same object if nothing repeats.

    Args:
        ir: The program.
        min_nodes: The fewest nodes of a layer.
        min_calls: The fewest layers that share a function.

    Example:
        >>> from torch_ir import parse
        >>> print(outline(parse('''ir {
        ...   input %x: f32[2]
        ...   %a: f32[2] = aten.mul.Tensor(%x, %x)  # in layers.0 (net.Layer)
        ...   %b: f32[2] = aten.relu.default(%a)  # in layers.0 (net.Layer)
        ...   %c: f32[2] = aten.mul.Tensor(%b, %b)  # in layers.1 (net.Layer)
        ...   %d: f32[2] = aten.relu.default(%c)  # in layers.1 (net.Layer)
        ...   return %d
        ... }'''), min_nodes=2))
        ir {
          func &layers "layers" {
            metadata "module" = "layers.0"
            signature ((%x,), {}) -> (%b,)
            input %x: f32[2]
            %a: f32[2] = aten.mul.Tensor(%x, %x)  # in layers.0 (net.Layer)
            %b: f32[2] = aten.relu.default(%a)  # in layers.0 (net.Layer)
            return %b
          }
          input %x: f32[2]
          %layers_0.0: f32[2] = layers_0: higher_order.invoke_subgraph(operands=[%x], \
identifier="layers", subgraph=&layers)  # in layers.0 (net.Layer)
          %layers_1.0: f32[2] = layers_1: higher_order.invoke_subgraph(operands=[%layers_0.0], \
identifier="layers", subgraph=&layers)  # in layers.1 (net.Layer)
          return %layers_1.0
        }
    """
    return outlined(ir, min_nodes, min_calls)


def _require_same(before: IR, after: IR) -> None:
    changes = before.diff(after).changes
    pairs = zip(before.nodes, after.nodes, strict=False)
    moved = [old.name for old, new in pairs if old.location != new.location]
    if changes or moved:
        what = str(changes[0]) if changes else f"the location of node {moved[0]!r} is another"
        raise PassError(f"outline changed the program: {what}", remedy="Report it with the model.")
