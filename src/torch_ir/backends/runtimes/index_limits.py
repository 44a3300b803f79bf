"""How far the places that a program is given may be, for a runtime that does not look."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from torch_ir.errors import BackendError

_ALONG = frozenset(
    f"aten.{name}"
    for name in (
        *("gather", "scatter", "scatter_add", "scatter_reduce"),
        *("index_select", "index_copy", "index_add", "index_fill"),
    )
)
"""Operators of a tensor, an axis and places along it."""
_AT_ALL = frozenset(("aten.index", "aten.index_put"))
"""Operators of a tensor and places along its first axes; negative ones count from the end."""
_WRITING = frozenset(
    f"aten.{name}"
    for name in (
        *("scatter", "scatter_add", "scatter_reduce"),
        *("index_copy", "index_add", "index_fill", "index_put"),
    )
)
_SAME_NUMBERS = frozenset(
    f"aten.{name}"
    for name in (
        *("_to_copy", "_unsafe_view", "alias", "clone", "detach", "expand", "expand_copy"),
        *("permute", "permute_copy", "repeat", "reshape", "select", "slice", "squeeze"),
        *("squeeze_copy", "transpose", "unsqueeze", "unsqueeze_copy", "view", "view_copy"),
    )
)

Limits = tuple[int, int]


def index_limits(program: ExportedProgram, room: int) -> dict[str, Limits]:
    """Return the least and the greatest number that inputs used as places may hold, by name.

    Args:
        program: Functional.
        room: How far any integer may be.

    Raises:
        BackendError: It writes to places that it computes itself, or along an axis of a size that
            varies: nothing could be looked at before the call.
    """
    given = set(program.graph_signature.user_inputs)
    found: dict[str, Limits] = {}
    for node in program.graph.nodes:
        operator = str(node.target).rpartition(".")[0]
        for place, size, is_signed in _places(node, operator):
            source = _source(place)
            if source.op == "placeholder" and source.name not in given:
                continue  # a constant, which the proof has
            if source.op != "placeholder" or type(size) is not int:
                if operator in _WRITING:
                    raise BackendError("it writes to places at which nothing looks beforehand")
                continue
            low, high = found.get(source.name, (-room, room))
            found[source.name] = max(low, -size if is_signed else 0), min(high, size - 1)
    return found


def _places(node: Node, operator: str) -> Iterator[tuple[Node, Any, bool]]:
    """Yield places that a call is given, the size of their axis, and whether they have signs."""
    args: Any = node.args
    if operator == "aten.embedding":
        yield args[1], _shape(args[0])[0], False
    elif operator in _ALONG:
        shape = _shape(args[0])
        yield args[2], shape[args[1]] if shape else 1, False
    elif operator in _AT_ALL:
        for axis, place in enumerate(args[1]):
            if place is None:
                continue
            if place.meta["val"].dtype is torch.bool:
                return
            yield place, _shape(args[0])[axis], True


def _shape(node: Node) -> Any:
    return node.meta["val"].shape


def _source(node: Node) -> Node:
    """Where the numbers of a tensor come from."""
    while node.op == "call_function" and str(node.target).rpartition(".")[0] in _SAME_NUMBERS:
        node = node.all_input_nodes[0]
    return node
