"""Limits of the places that a program is given, at which runtimes do not look as torch does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

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


def index_limits(program: ExportedProgram) -> dict[str, Limits]:
    """Return the least and the greatest number that inputs used as places may hold, by name.

    Of what a program computes itself nothing is known before a call, nor of an axis of a size
    that varies.

    Args:
        program: Functional.
    """
    found: dict[str, Limits] = {}
    for source, size, is_signed, _ in _sources(program):
        if source.op == "placeholder" and type(size) is int:
            low, high = found.get(source.name, (-size, size - 1))
            found[source.name] = max(low, -size if is_signed else 0), min(high, size - 1)
    return found


def writes_unseen(program: ExportedProgram) -> bool:
    """Return whether a program writes to places at which nothing can look before a call."""
    return any(
        operator in _WRITING and (source.op != "placeholder" or type(size) is not int)
        for source, size, _, operator in _sources(program)
    )


def _sources(program: ExportedProgram) -> Iterator[tuple[Node, Any, bool, str]]:
    """Yield what gives places, the size of their axis, whether they have signs, and the operator.

    Not constants, which the proof has.
    """
    given = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        operator = str(node.target).rpartition(".")[0]
        for place, size, is_signed in _places(node, operator):
            source = _source(place)
            if source.op != "placeholder" or source.name in given:
                yield source, size, is_signed, operator


def _places(node: Node, operator: str) -> Iterator[tuple[Node, Any, bool]]:
    """Yield places that a call is given, the size of their axis, and whether they have signs."""
    args: Any = node.args
    if operator == "aten.embedding":
        yield args[1], _shape(args[0])[0], False
    elif operator in ("aten.nll_loss_forward", "aten.nll_loss2d_forward"):
        shape = _shape(args[0])
        yield args[1], shape[min(1, len(shape) - 1)], False  # what is ignored is torch's, too
    elif operator == "aten.one_hot" and len(args) > 1 and args[1] != -1:  # how many classes
        yield args[0], args[1], False
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
