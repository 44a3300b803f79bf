"""The results of a run in the structure that the function returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch_ir.infer.bindings import Symbols
from torch_ir.torch_api import pytree
from torch_ir.traced.capture import Leaf
from torch_ir.traced.program import Program

Assemble = Callable[[Sequence[Any], Symbols], Any]


def assembler(program: Program) -> Assemble:
    """Make a function that assembles the result from a run's outputs and symbols."""
    if program.own_leaves:
        return _requiring(_assembler(program), program.own_leaves)
    return _assembler(program)


def _requiring(assemble: Assemble, positions: Sequence[int]) -> Assemble:
    """Let some outputs require gradients first."""

    def call(outputs: Sequence[Any], symbols: Symbols) -> Any:
        for position in positions:
            outputs[position].requires_grad_()
        return assemble(outputs, symbols)

    return call


def _assembler(program: Program) -> Assemble:
    spec, leaves = program.spec, program.leaves
    if spec.is_leaf() and leaves == (None,):
        return lambda outputs, symbols: outputs[0]
    is_flat = all(child.is_leaf() for child in spec.children())
    if spec.type in (tuple, list) and all(leaf is None for leaf in leaves) and is_flat:
        kind: Any = spec.type
        return lambda outputs, symbols: kind(outputs)

    def assemble(outputs: Sequence[Any], symbols: Symbols) -> Any:
        tensors = iter(outputs)
        return pytree.tree_unflatten([_value(leaf, tensors, symbols) for leaf in leaves], spec)

    return assemble


def _value(leaf: Any, tensors: Any, symbols: Symbols) -> Any:
    if leaf is None:
        return next(tensors)
    return leaf.value if isinstance(leaf, Leaf) else leaf.evaluate(symbols)
