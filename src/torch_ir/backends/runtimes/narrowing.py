"""The room for integers on a runtime that computes some of them by way of 32-bit floats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from torch_ir.errors import BackendError

_MOST = 1 << 24
"""All integers up to it are 32-bit floats."""
_LEAST_ROOM = 1 << 16
_SIZES = 1 << 20
_NO_END = 1 << 62
"""Numbers from here on are ends of slices, or are too far already when a delegate is proven."""

_NARROW = {torch.bool: 1, torch.uint8: 255, torch.int8: 128, torch.int16: 1 << 15}
WIDE = (torch.int32, torch.int64)
"""Integers of which not all are 32-bit floats."""
_SUMS = frozenset(("add", "sub", "rsub"))
_CONVERSIONS = frozenset(("_to_copy", "to", "type_as", "convert_element_type"))

_Bound = tuple[int, int]
"""How far a value is at most: so many times as far as the inputs, and so much more."""


def room_for_integers(program: ExportedProgram, growing: frozenset[str]) -> int:
    """Return how far integer inputs of a program may be, so that none is no 32-bit float.

    Args:
        program: Functional, of tensors and sizes.
        growing: Operators, without overloads, whose results may be farther than their operands.

    Raises:
        BackendError: There is no room for inputs of a common size.
    """
    held = {**program.state_dict, **program.constants}
    lifted = {
        **program.graph_signature.inputs_to_parameters,
        **program.graph_signature.inputs_to_buffers,
        **program.graph_signature.inputs_to_lifted_tensor_constants,
    }
    bounds: dict[Node, _Bound] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in lifted:
            bounds[node] = 0, _farthest(held.get(lifted[node.name]))
        elif node.op != "output":
            bounds[node] = _bound(node, bounds, growing)
    wide = [bounds[node] for node in bounds if _dtype(node) in WIDE]
    rooms = [(_MOST - b) // max(a, 1) for a, b in wide if a or b > _MOST]
    room = min(rooms, default=_MOST)
    if room < _LEAST_ROOM:
        raise BackendError("its integers may pass the 24 bits in which it compares them")
    return room


def _bound(node: Node, bounds: Mapping[Node, _Bound], growing: frozenset[str]) -> _Bound:
    dtype = _dtype(node)
    if dtype is not None and dtype not in WIDE:
        return 0, _NARROW.get(dtype, 0)
    if node.op == "placeholder":
        return 1, 0
    operator = str(node.target).rpartition(".")[0]
    packet = operator.partition(".")[2]
    found = [_of(item, bounds) for item in tree_leaves((node.args, node.kwargs))]
    if packet in _SUMS:
        factor = max(_of(node.kwargs.get("alpha", 1), bounds)[1], 1)
        return sum(a for a, _ in found) * factor, sum(b for _, b in found) * factor
    if packet == "mul":
        (a, b), (c, d) = found
        return (a * d + b * c, b * d) if not a * c else (0, _MOST)
    is_found = any(_is_real(given) for given in node.all_input_nodes)
    if operator in growing or (is_found and packet in _CONVERSIONS):
        return 0, _MOST
    return max((a for a, _ in found), default=0), max([_SIZES, *[b for _, b in found]])


def _dtype(node: Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def _is_real(node: Node) -> bool:
    dtype = _dtype(node)
    return dtype is not None and dtype.is_floating_point


def _of(item: Any, bounds: Mapping[Node, _Bound]) -> _Bound:
    if isinstance(item, Node):
        return bounds[item]
    return 0, abs(item) if type(item) is int and abs(item) < _NO_END else 0


def is_within(array: Any, low: int, high: int) -> bool:
    """Return whether integers of 32 or 64 bits are in a range.

    Args:
        array: A NumPy array.
        low: The least.
        high: The greatest.
    """
    if not array.size:
        return True
    return bool(array.max() <= high and array.min() >= low)


def _farthest(tensor: Any) -> int:
    if not isinstance(tensor, torch.Tensor) or tensor.is_floating_point() or not tensor.numel():
        return 0
    if tensor.is_complex():
        return 0
    return max(abs(int(tensor.min())), abs(int(tensor.max())))
