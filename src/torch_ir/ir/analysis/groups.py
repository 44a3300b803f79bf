"""Groups of a report's nodes: by node, by operator, or by module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from torch_ir.errors import InvalidIRError, did_you_mean
from torch_ir.tables import module_paths

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


def grouped(nodes: Sequence[N], by: str, report: str) -> dict[str, list[N]]:
    """Return the nodes of a report by what they have in common.

    By module, each group has all that is inside it; the root, whose name is empty, comes first,
    and each module before those inside it.

    Args:
        nodes: What the report says of each node, in program order.
        by: ``"node"``, ``"operator"`` or ``"module"``.
        report: What an error calls the report.

    Raises:
        InvalidIRError: There are no such groups.
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
