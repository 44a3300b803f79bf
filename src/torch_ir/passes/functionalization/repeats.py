"""Writes that reach a tensor through ``expand``, where many elements of a view are one place.

What was written stands in some of the repeats only, and all that were written have to be equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch_ir.ir import OpNode, TensorMeta
from torch_ir.ir.symbols import Dim
from torch_ir.ops.spec import tagged_traits

EXPANDS = frozenset(f"aten.{name}.default" for name in ("expand", "expand_as", "broadcast_to"))
"""Views many elements of which are one place in memory."""

_ELEMENTWISE = ("neg", "_conj_physical", "dtype", "_to_copy")


@dataclass(frozen=True, slots=True)
class _Along:
    """What a write covers along one dimension of a view.

    Attributes:
        place: A place that it covers.
        own: The dimension of the written tensor that runs along it; None where it covers one place
            alone.
        is_told: Whether both are known.
    """

    place: int = 0
    own: int | None = None
    is_told: bool = True


class Coverage:
    """Which part of a view is written by a write to a view of it.

    Args:
        node: The node that writes.
        written: What it writes to.
    """

    def __init__(self, node: OpNode, written: TensorMeta):
        self._node = node
        self._written = written
        self._is_part = False
        self._dims = [_Along(own=dim) for dim in range(len(written.shape))]

    def repeat(self, dim: int) -> int | None:
        """Return a repeat that holds what is written along a dimension that is expanded.

        None where that is not known, or where repeats may hold different values.
        """
        along = self._dims[dim]
        is_equal = along.own is None or self._is_equal_along(along.own)
        return along.place if is_equal and (along.is_told or not self._is_part) else None

    def _is_equal_along(self, dim: int) -> bool:
        """Whether the node writes the same along a dimension of what it writes to."""
        packet, node, rank = self._node.op_type.split(".")[1], self._node, len(self._written.shape)
        if packet in ("fill_", "zero_"):
            return True
        if not all(along.is_told for along in self._dims):
            return False
        if packet == "index_fill_":
            return isinstance(axis := node.attrs.get("dim"), int) and axis % rank != dim
        place, name = dim - rank, self._written.name
        others = [meta.shape for meta in node.inputs if meta.name != name]
        is_pointwise = "pointwise" in tagged_traits(node.op_type) or packet == "masked_fill_"
        return is_pointwise and all(len(s) < -place or s[place] == 1 for s in others)

    def go_up(
        self, view: OpNode, made: Sequence[tuple[str, Mapping[str, Any]]], base: TensorMeta
    ) -> None:
        """Go from a view to what it is a view of.

        Args:
            view: The node that makes the view.
            made: The operators that put its new value into what it is a view of, with their
                attributes.
            base: What it is a view of.
        """
        if view.op_type == "aten.unsqueeze.default":
            del self._dims[view.attrs["dim"] % len(self._dims)]
            return
        if view.op_type not in EXPANDS:
            for op_type, attrs in made:
                self._follow(op_type.split(".")[1], attrs, base)
            return
        kept = self._dims[len(self._dims) - len(base.shape) :]
        self._dims = [
            replace(along, place=0) if size == 1 else along
            for along, size in zip(kept, base.shape, strict=True)
        ]

    def _follow(self, packet: str, attrs: Mapping[str, Any], base: TensorMeta) -> None:
        """Go through one operator."""
        dim = attrs.get("dim", 0)
        dim = dim % len(base.shape) if isinstance(dim, int) and base.shape else 0
        size = base.shape[dim] if base.shape else 1
        if packet == "permute":
            self._dims = [self._dims[place] for place in attrs["dims"]]
        elif packet == "select_scatter":
            self._is_part = True
            self._dims.insert(dim, _picked(attrs["index"], size))
        elif packet == "slice_scatter":
            self._is_part = True
            start, step = _picked(attrs.get("start") or 0, size), attrs.get("step", 1)
            along = self._dims[dim]
            is_told = along.is_told and start.is_told and isinstance(step, int)
            place = start.place + step * along.place if is_told else 0
            self._dims[dim] = replace(along, place=place, is_told=is_told)
        elif packet not in _ELEMENTWISE:
            self._is_part = self._is_part or packet != "reshape"
            self._dims = [_Along(0, dim, is_told=False) for dim in range(len(base.shape))]


def _picked(index: object, size: Dim) -> _Along:
    """One place of a dimension."""
    if not isinstance(index, int):
        return _Along(is_told=False)
    if isinstance(size, int):
        return _Along(min(max(index + size if index < 0 else index, 0), max(size - 1, 0)))
    return _Along(max(index, 0), is_told=index == 0)
