"""Groups of a report's nodes: by node, by operator, or by module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from torch_ir.arguments import public
from torch_ir.errors import InvalidIRError, did_you_mean
from torch_ir.tables import Shown, module_paths

KINDS = ("node", "operator", "module")


class PlacedNode(Protocol):
    """What a report says of one node, with its place."""

    @property
    def node(self) -> str:
        """Its name."""
        ...

    @property
    def operator(self) -> str:
        """The exact overload."""
        ...

    @property
    def module(self) -> str:
        """Path of the module that made the call; empty for the root."""
        ...


N = TypeVar("N", bound=PlacedNode)


class NamedGroup(Protocol):
    """Some nodes together."""

    @property
    def name(self) -> str:
        """What they have in common."""
        ...


G = TypeVar("G", bound=NamedGroup)


class Grouped(Shown, ABC, Generic[N, G]):
    """A report on nodes that adds them up by node, by operator or by module."""

    __slots__ = ()
    nodes: tuple[N, ...]
    noun: ClassVar[str]
    """What an error calls the report."""

    @abstractmethod
    def _group(self, name: str, nodes: Sequence[N]) -> G:
        """Add nodes up."""

    @abstractmethod
    def _weight(self, group: G) -> Any:
        """Return what is greater for a group that matters more."""

    def by_node(self) -> tuple[G, ...]:
        """Return one group for each node, the most costly first."""
        return self.groups("node")

    def by_operator(self) -> tuple[G, ...]:
        """Group the nodes by operator, the most costly first."""
        return self.groups("operator")

    def by_module(self) -> tuple[G, ...]:
        """Group the nodes by module, each with all inside it, from the root on."""
        return self.groups("module")

    @public
    def groups(self, by: str) -> tuple[G, ...]:
        """Return the groups by ``"node"``, ``"operator"`` or ``"module"``.

        Raises:
            InvalidIRError: It is none of these.
        """
        members = _members(self.nodes, by, self.noun)
        found = [self._group(name, nodes) for name, nodes in members.items()]
        return tuple(found if by == "module" else self._heaviest_first(found))

    def _heaviest_first(self, groups: Sequence[G]) -> list[G]:
        return sorted(groups, key=self._weight, reverse=True)

    def _top(self, by: str, top: int | None) -> tuple[list[G], int]:
        """The groups that matter most, in the order that they have, and how many are left out."""
        groups = self.groups(by)
        kept = {group.name for group in self._heaviest_first(groups)[:top]}
        shown = [group for group in groups if group.name in kept]
        return shown, len(groups) - len(shown)


def nested_spans(
    items: Iterable[tuple[Sequence[str], float]],
) -> Iterator[tuple[int, str, float, float]]:
    """Lay items end to end, each in spans of the names around it, the outermost first.

    Each span is told when it ends, the inner ones first: its depth, name, start and end.
    """
    around: list[tuple[str, float]] = []
    at = 0.0
    for names, length in (*items, ((), 0.0)):
        kept = 0
        while kept < min(len(names), len(around)) and names[kept] == around[kept][0]:
            kept += 1
        for depth in range(len(around) - 1, kept - 1, -1):
            yield depth, *around[depth], at
        around[kept:] = [(name, at) for name in names[kept:]]
        at += length


def _members(nodes: Sequence[N], by: str, report: str) -> dict[str, list[N]]:
    """The nodes of a report by what they have in common.

    By module, each group has all that is inside it; the root, whose name is empty, comes first,
    and each module before those inside it.
    """
    if by not in KINDS:
        hint = did_you_mean(by, KINDS)
        raise InvalidIRError(f"{report} has no groups by {by!r}", remedy=hint)
    found: dict[str, list[N]] = {"": []} if by == "module" else {}
    for node in nodes:
        for name in module_paths(node.module) if by == "module" else [getattr(node, by)]:
            found.setdefault(name, []).append(node)
    if by != "module":
        return found
    first = {path: position for position, path in enumerate(found)}
    return dict(sorted(found.items(), key=lambda item: [first[p] for p in module_paths(item[0])]))
