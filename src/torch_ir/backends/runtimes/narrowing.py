"""The room for 64-bit integers on a runtime that computes them in 32 bits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from torch_ir.errors import BackendError

_MOST = (1 << 31) - 1
_LEAST_ROOM = 1 << 16
_SIZES = 1 << 24
_NARROW = {torch.bool: 1, torch.uint8: 255, torch.int8: 128, torch.int16: 1 << 15}
_SUMS = frozenset(("add", "sub", "rsub"))

_Bound = tuple[int, int]
"""How far a value is at most: so many times as far as the inputs, and so much more."""


def room_for_integers(program: ExportedProgram) -> int:
    """Return how far 64-bit inputs of a program may be, so that no value passes 32 bits.

    What multiplies is not looked at: a runtime is not given products.

    Args:
        program: Functional, of tensors and sizes.

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
            bounds[node] = _bound(node, bounds)
    room = _MOST
    for times, more in bounds.values():
        if times or more > _MOST:
            room = min(room, (_MOST - more) // max(times, 1))
    if room < _LEAST_ROOM:
        raise BackendError("sums of 64-bit integers may pass the 32 bits in which it computes")
    return room


def _bound(node: Node, bounds: Mapping[Node, _Bound]) -> _Bound:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return (1, 0) if node.op == "placeholder" else (0, _SIZES)
    if value.dtype in _NARROW:
        return 0, _NARROW[value.dtype]
    if value.dtype is not torch.int64:
        return 0, 0 if value.dtype.is_floating_point else _MOST
    if node.op == "placeholder":
        return 1, 0
    packet = str(node.target).split(".")[1]
    found = [_of(item, bounds) for item in tree_leaves((node.args, node.kwargs))]
    if packet not in _SUMS:
        return max((a for a, _ in found), default=0), max((b for _, b in found), default=0)
    factor = max(abs(int(node.kwargs.get("alpha", 1))), 1)  # pyright: ignore[reportArgumentType]  # a number
    return _total(found, 0) * factor, _total(found, 1) * factor


def _of(item: Any, bounds: Mapping[Node, _Bound]) -> _Bound:
    if isinstance(item, Node):
        return bounds[item]
    return 0, abs(item) if type(item) is int else 0


def _total(found: Iterable[_Bound], index: int) -> int:
    return sum(bound[index] for bound in found)


def _farthest(tensor: Any) -> int:
    if not isinstance(tensor, torch.Tensor) or tensor.is_floating_point() or not tensor.numel():
        return 0
    if tensor.is_complex():
        return 0
    return max(abs(int(tensor.min())), abs(int(tensor.max())))
