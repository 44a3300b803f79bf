"""The parts of a pattern: values, calls, alternatives and chains of calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch_ir.ir import Attribute, OpNode, TensorMeta


@dataclass(frozen=True, slots=True)
class Wildcard:
    """An attribute that may have any value, the same wherever the name stands.

    Attributes:
        name: Under which a match holds the value.
    """

    name: str


ANYTHING = Wildcard("")
"""An attribute that does not matter, such as the dtype of a number."""

Spot: TypeAlias = Any
"""What an attribute has to be: a value, a :class:`Wildcard`, or a tuple of these."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor that may be made by anything.

    Attributes:
        name: Under which a match holds it; the same name stands for the same tensor.
        where: Which tensors; all if not given.
        is_optional: Whether the argument may be absent.
    """

    name: str
    where: Callable[[TensorMeta], bool] | None = None
    is_optional: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of one of some operators; as an operand, its first result.

    Attributes:
        name: Under which a match holds the node.
        op_types: The overloads.
        operands: What stands for each tensor argument, a tuple for a list. Arguments that are not
            named are absent.
        attributes: What each attribute has to be, defaults of the schema filled in; None stands
            for anything.
        where: Which nodes; all if not given.
        is_shared: Whether other nodes may use its results; the node stays if they do.
        results: Names of the results by their position, under which a match holds them.
    """

    name: str
    op_types: frozenset[str]
    operands: Mapping[str, Element | tuple[Element | None, ...]]
    attributes: Mapping[str, Spot] | None = None
    where: Callable[[OpNode], bool] | None = None
    is_shared: bool = False
    results: Mapping[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """A result of a call, by its position."""

    call: Call
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Either:
    """The first of some alternatives that fits."""

    options: tuple[Element, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Through:
    """An element, or what is made of it by any chain of calls with one operand and one result.

    Attributes:
        name: Under which a match holds the nodes of the chain, the last first.
        op_types: The operators of the chain.
        source: Where the chain begins.
    """

    name: str
    op_types: frozenset[str]
    source: Element


Element: TypeAlias = Value | Call | Result | Either | Through


@dataclass(frozen=True, slots=True)
class Pattern:
    """What to look for.

    Attributes:
        results: The elements that make its results, by the name of the result.
        inputs: The names of its arguments, in order.
    """

    results: Mapping[str, Element]
    inputs: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """One place where a pattern occurs.

    Attributes:
        nodes: The program's node for each of the pattern's, by the pattern's name.
        values: The program's value for each of the pattern's, by the pattern's name; those of
            its arguments have the names of the arguments.
        attributes: What each wildcard stands for.
        chains: The nodes of each chain, the last first.
        shared: The names of the nodes that stay if others use them.
        checks: Nodes that check the recorded type of a value inside, which go with it.
    """

    nodes: Mapping[str, OpNode] = field(default_factory=dict[str, OpNode])
    values: Mapping[str, TensorMeta] = field(default_factory=dict[str, TensorMeta])
    attributes: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])
    chains: Mapping[str, tuple[OpNode, ...]] = field(default_factory=dict[str, tuple[OpNode, ...]])
    shared: frozenset[str] = frozenset()
    checks: tuple[OpNode, ...] = ()

    @property
    def inside(self) -> tuple[OpNode, ...]:
        """The program's nodes that nothing else may use."""
        nodes = (*self.nodes.values(), *(n for chain in self.chains.values() for n in chain))
        return tuple([n for n in (*nodes, *self.checks) if n.name not in self.shared])
