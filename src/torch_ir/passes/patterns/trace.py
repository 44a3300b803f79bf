"""Python functions as graphs whose numbers may be wildcards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from torch_ir.dialects.backend.binding import bindings, kept_whole
from torch_ir.errors import PassError, TorchIRError
from torch_ir.frontend import extract_ir
from torch_ir.ir import IR, Attribute, FrozenDict
from torch_ir.passes.decomposition import decomposed
from torch_ir.passes.edge.lower import lower
from torch_ir.passes.functionalization import without_writes

LEVELS = ("export", "aten", "core_aten", "edge")
"""The forms in which a function may be wanted, by the dialect of the program."""


def level_of(dialect: str) -> str:
    """The form of patterns that a dialect's programs have."""
    return dialect if dialect in LEVELS else "edge"


class Wildcards:
    """Stand-in numbers, one for each attribute, that no program is likely to hold.

    Example:
        >>> wildcards = Wildcards({"alpha": 1.0, "dim": 0})
        >>> [wildcards.name(value) for value in wildcards.values.values()], wildcards.name(2)
        (['alpha', 'dim'], None)
    """

    def __init__(self, examples: Mapping[str, int | float]):
        self.values: dict[str, int | float] = {}
        for position, (name, example) in enumerate(examples.items()):
            if type(example) not in (int, float):
                raise PassError(
                    f"the attribute {name!r} cannot be a {type(example).__name__}",
                    remedy="Attributes of patterns are ints and floats.",
                )
            stand_in = 70_001 + 2 * position
            self.values[name] = stand_in if type(example) is int else stand_in + 0.015625
        self._names = {value: name for name, value in self.values.items()}

    def name(self, value: Attribute) -> str | None:
        """The attribute for which a number stands, or None."""
        return self._names.get(value) if type(value) in (int, float) else None  # pyright: ignore[reportArgumentType]  # numbers, as the test says

    def filled(self, value: Attribute, known: Mapping[str, Attribute]) -> Attribute:
        """The value with what each wildcard stands for."""
        name = self.name(value)
        if name is not None:
            return known[name]
        if isinstance(value, tuple):
            return tuple([self.filled(item, known) for item in value])
        if isinstance(value, FrozenDict):
            return FrozenDict({k: self.filled(item, known) for k, item in value.items()})
        return value


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Any], attributes: Mapping[str, Any]):
        super().__init__()
        self._function = function
        self._attributes = dict(attributes)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self._function(*inputs, **self._attributes)


def traced(
    function: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    attributes: Mapping[str, Any],
    level: str,
) -> IR:
    """The graph of a function of tensors; bound operators stay whole in it if it calls them.

    Raises:
        PassError: torch cannot trace it, it holds tensors of its own, or it has control flow.
    """
    name = getattr(function, "__name__", "the function")
    try:
        with kept_whole():
            ir = extract_ir(_Function(function, attributes).eval(), tuple(inputs))
        ir = _lowered(ir, level)
    except TorchIRError as error:
        raise PassError(
            f"{name} cannot be traced: {error.message}", picture=error.picture
        ) from error
    if ir.constants or ir.weights or ir.functions or ir.mutations:
        raise PassError(
            f"{name} holds tensors of its own, writes to its inputs, or has control flow",
            picture=str(ir),
            remedy="Give it tensors as arguments, and let it only compute.",
        )
    return ir.replace(nodes=[node for node in ir.nodes if node.outputs])


def _lowered(ir: IR, level: str) -> IR:
    if level == "export":
        return ir
    if level == "aten":
        return without_writes(ir)
    core = decomposed(ir, preserve=[op for op in bindings() if op in ir.operators])
    if level == "core_aten":
        return core
    return lower(core)
