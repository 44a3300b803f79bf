"""The ends of gradients in a program, and those that another one lacks that was made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch_ir.ir.constants import Constant
from torch_ir.ir.graph import IR
from torch_ir.ir.queries import CUSTOM_GRADIENTS, graphs, listed_gradients
from torch_ir.ir.tensor import TensorMeta

NO_GRAD, DETACH = "torch.no_grad", "torch.Tensor.detach"
STOPS = frozenset((NO_GRAD, DETACH))
"""What ends gradients, as metadata name it among the functions whose gradients are lost."""

_SCOPE = "higher_order.wrap_with_set_grad_enabled"
_DETACHING = frozenset(f"aten.{name}.default" for name in ("detach", "detach_", "detach_copy"))


def gradient_stops(ir: IR) -> Mapping[str, str]:
    """Return what ends a gradient that would pass, by the names of the nodes of one graph.

    A gradient would pass numbers with fractions, from a result to an input or a weight.

    Example:
        >>> from torch_ir import parse
        >>> print(gradient_stops(parse('''ir {
        ...   input %x: f32[2]
        ...   %a: f32[2] = aten.detach.default(%x)
        ...   %b: f32[2] = aten.detach.default(%x)
        ...   %c: b8[2] = aten.gt.Scalar(%b, 0)
        ...   %y: f32[2] = aten.mul.Tensor(%a, %c)
        ...   return %y
        ... }''')))
        {'a': 'torch.Tensor.detach'}
    """
    stops = {node.name: stop for node in ir.nodes if (stop := _stop(node.op_type, node.attrs))}
    if not stops:
        return stops
    given = ir.external_values().items()
    weights = [name for name, (_, value) in given if not isinstance(value, Constant)]
    reached = {*ir.input_names, *weights}
    for node in ir.nodes:
        if any(_has_fractions(meta) and meta.name in reached for meta in node.inputs):
            reached.update(meta.name for meta in node.outputs)
    passing = {*ir.output_names, *(mutation.value.name for mutation in ir.mutations)}
    found: dict[str, str] = {}
    for node in reversed(ir.nodes):
        if any(_has_fractions(meta) and meta.name in passing for meta in node.outputs):
            taken = {meta.name for meta in node.inputs if _has_fractions(meta)}
            passing |= taken
            if node.name in stops and taken & reached:
                found[node.name] = stops[node.name]
    return found


def with_lost_stops(before: IR, made: IR) -> IR:
    """Return a program whose metadata name what ended gradients in the one it was made of.

    Args:
        before: The program as it was.
        made: The program that was made of it; the nodes that it kept have their names.
    """
    kept = {
        (path, node.name, node.op_type) for path, graph in graphs(made) for node in graph.nodes
    }
    lost = [
        stop
        for path, graph in graphs(before)
        for name, stop in gradient_stops(graph).items()
        if (path, name, graph.node(name).op_type) not in kept
    ]
    return with_lost_gradients(made, lost)


def with_lost_gradients(ir: IR, names: Iterable[str]) -> IR:
    """Return a program whose metadata name more functions whose own gradients are lost."""
    known = listed_gradients(ir)
    found = [*dict.fromkeys([*known, *names])]
    if len(found) == len(known):
        return ir
    return ir.replace(metadata={**ir.metadata, CUSTOM_GRADIENTS: found})


def _stop(op_type: str, attrs: Mapping[str, object]) -> str:
    if op_type in _DETACHING:
        return DETACH
    return NO_GRAD if op_type == _SCOPE and attrs.get("enable_grad") is False else ""


def _has_fractions(meta: TensorMeta) -> bool:
    return "float" in meta.dtype or "complex" in meta.dtype
