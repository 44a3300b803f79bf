"""The placement of a value over the ranks of a group, and the step that a rule gives a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

from torch_ir.ir import OpNode, TensorMeta
from torch_ir.ir.symbols import Dim


@dataclass(frozen=True, slots=True)
class Split:
    """Each rank has an equal part along a dimension, in the order of ranks."""

    dim: int


@dataclass(frozen=True, slots=True)
class Owned:
    """Each element is right on one rank and 0 on the others, so that the sum is the value.

    Attributes:
        owner: What says which rank owns what: equal for two values that are owned alike.
        rows: Whether the position along dimension 0 alone decides who owns an element.
    """

    owner: str
    rows: bool = True


Placement: TypeAlias = Split | Owned | None
"""None: every rank has the whole value."""


@dataclass(frozen=True, slots=True)
class ShardStep:
    """How a call runs on the parts of one rank.

    Attributes:
        taken: The placement that each input has to have.
        given: The placement that each output has then.
        attrs: The attributes that differ on a rank.
        reduce: How the outputs are put together over the ranks; None if they are what is given.
        late: The argument that is added after that, and not by each rank.
        clear: The owner of what is set to 0 again where another rank owns it: 0 times infinity
            is none, and neither is 0 by 0.
    """

    taken: tuple[Placement, ...]
    given: tuple[Placement, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reduce: str | None = None
    late: str | None = None
    clear: str | None = None


@dataclass(frozen=True, slots=True)
class PlacedCall:
    """A call of the whole program, and how its inputs lie.

    Attributes:
        node: The node.
        placements: The placement of each input.
        parts: How many ranks there are.
        zeros: The values that are known to be 0 everywhere.
        masked: For each owner that a rank has a mask of: how many leading dimensions that has.
    """

    node: OpNode
    placements: tuple[Placement, ...]
    parts: int
    zeros: frozenset[str] = frozenset()
    masked: Mapping[str, int] = field(default_factory=dict[str, int])

    def meta(self, argument: str) -> TensorMeta | None:
        """Return the tensor of an argument, as the whole program has it."""
        return self.node.tensor(argument)

    def placement(self, argument: str) -> Placement:
        """Return the placement of the tensor of an argument; None if there is none."""
        slot = self.node.slots.get(argument)
        return self.placements[slot] if isinstance(slot, int) else None

    def split(self, argument: str) -> int | None:
        """Return the dimension along which the tensor of an argument is split."""
        found = self.placement(argument)
        return found.dim if isinstance(found, Split) else None

    def taken(self, /, **wanted: Placement) -> tuple[Placement, ...]:
        """Return the placement of each input: those of the named arguments, else None."""
        found: list[Placement] = [None] * len(self.node.inputs)
        for argument, placement in wanted.items():
            slot = self.node.slots.get(argument)
            if isinstance(slot, int):
                found[slot] = placement
        return tuple(found)

    def given(self, placement: Placement) -> tuple[Placement, ...]:
        """Return one placement for every output."""
        return (placement,) * len(self.node.outputs)

    def divides(self, size: object) -> bool:
        """Return whether the ranks can share a size."""
        return isinstance(size, int) and size % self.parts == 0

    @property
    def first_split(self) -> tuple[int, int] | None:
        """The position of the first input that is split, and its dimension."""
        pairs = enumerate(self.placements)
        return next(((i, found.dim) for i, found in pairs if isinstance(found, Split)), None)

    @property
    def owners(self) -> set[Owned]:
        """The ways in which inputs are owned."""
        return {placement for placement in self.placements if isinstance(placement, Owned)}


ShardingRule: TypeAlias = Callable[[PlacedCall], "ShardStep | None"]
"""What says how a call runs on parts; None where it needs every input whole."""


def aligned(rank: int, dim: int, meta: TensorMeta) -> Placement:
    """Return how an operand is split where the broadcast result is split along ``dim``."""
    own = dim - rank + len(meta.shape)
    return Split(own) if own >= 0 and meta.shape[own] != 1 else None


def positive(dim: int, rank: int) -> int:
    """Return a dimension counted from the front."""
    return dim % max(rank, 1)


def product_of(sizes: Sequence[Dim]) -> int | None:
    """Return the product of some sizes; None where one is symbolic."""
    known = [size for size in sizes if isinstance(size, int)]
    return prod(known) if len(known) == len(sizes) else None


def dims_of(value: Any, rank: int) -> tuple[int, ...]:
    """Return the dimensions that an attribute names, counted from the front; all for None."""
    if value is None or value == ():
        return tuple(range(rank))
    listed: Sequence[Any] = value if isinstance(value, tuple) else (value,)
    return tuple([positive(dim, rank) for dim in listed])
