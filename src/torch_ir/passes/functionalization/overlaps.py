"""Writes that read what they write to: the order in which their kernels do so decides.

Kernels go through memory in an order of their own, and those of lists do one member after the
other. A functional operator reads all before it writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch

from torch_ir.errors import Raised, attempt
from torch_ir.infer.binder import bind
from torch_ir.infer.engine import flatten
from torch_ir.infer.hints import samplings
from torch_ir.infer.resolve import resolve_operator
from torch_ir.ir import OpNode
from torch_ir.ir.expressions import Number
from torch_ir.ir.symbols import shape_at
from torch_ir.ops.spec import tagged_traits
from torch_ir.passes.functionalization.alias_state import AliasState, CannotFollowError
from torch_ir.passes.functionalization.storages import View

Written = Mapping[tuple[str, int], View]
"""The view behind each written tensor: the argument's name, and the position in a list."""

_ALSO_POINTWISE = ("copy_", "masked_fill_", "where")
_IN_PLACE = ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "sort", "_softmax", "triu")
"""Operators that are no pointwise ones and may write where they read, element by element."""

_READ_FIRST = {("fill_", "value"), ("masked_fill_", "value"), ("index_fill_", "value")}
"""Operands of one element that kernels read before they write."""

_MOST_ELEMENTS = 1 << 24
"""Of memory, of which the places are counted."""


def require_any_order(state: AliasState, node: OpNode, written: Written) -> None:
    """Require that a write gives the same whatever the order in which it reads and writes.

    Raises:
        CannotFollowError: An element that it writes is read for another one.
    """
    operands, names = list(_operands(state, node)), {name for name, _ in written}
    packet = node.op_type.split(".")[1]
    for (name, position), view in written.items():
        for other, at, read in operands:
            if (other, at) == (name, position) or read.storage is not view.storage:
                continue
            in_lists = isinstance(node.slots[name], tuple) and isinstance(node.slots[other], tuple)
            if in_lists and at != position:
                if (at > position or other == name) and _meet(state, view, read):
                    raise CannotFollowError(
                        "it writes the members of a list in turn, and two overlap"
                    )
            elif other not in names and (packet, other) not in _READ_FIRST:
                _require_apart(state, node, view, read)


def _require_apart(state: AliasState, node: OpNode, written: View, read: View) -> None:
    packet = node.op_type.split(".")[1]
    is_pointwise = "pointwise" in tagged_traits(node.op_type) or packet in _ALSO_POINTWISE
    if is_pointwise or packet.startswith("_foreach_") or packet in _IN_PLACE:
        is_open = _is_read_elsewhere(state, written, read)
    else:
        is_open = _meet(state, written, read)
    if is_open:
        raise CannotFollowError(
            "it reads elements that it writes for others, and the order in which kernels do so is "
            "open: clone what it reads"
        )


def _operands(state: AliasState, node: OpNode) -> Iterator[tuple[str, int, View]]:
    """The views among the operands, with the argument's name and the position in a list."""
    for name, slots in node.slots.items():
        for position, slot in enumerate(slots if isinstance(slots, tuple) else (slots,)):
            view = None if slot is None else state.views.get(node.inputs[slot].name)
            if view is not None:
                yield name, position, view


def _meet(state: AliasState, one: View, other: View) -> bool:
    """Return whether two views of one storage show an element both."""
    if one is other:
        return True
    known = _places_of_both(state, one, other)
    return known is not None and bool(torch.isin(*[places.flatten() for places in known]).any())


def _is_read_elsewhere(state: AliasState, written: View, read: View) -> bool:
    """Return whether an element that is written is read for another element."""
    known = None if written is read else _places_of_both(state, written, read)
    if known is None:
        return False
    places, others = known
    beside = attempt(others.expand, places.shape)
    if isinstance(beside, Raised):
        return False
    places, beside = places.flatten(), beside.flatten()
    return bool((torch.isin(beside, places) & (beside != places)).any())


def _places_of_both(
    state: AliasState, one: View, other: View
) -> tuple[torch.Tensor, torch.Tensor] | None:
    first = _places(state, one)
    second = None if first is None else _places(state, other)
    return None if first is None or second is None else (first, second)


def _places(state: AliasState, view: View) -> torch.Tensor | None:
    """The place of each element of a view in its storage; None where that is not known.

    Sizes that vary have those of a sample.
    """
    samples = samplings(state.ir)
    symbols = samples[-1] if samples else {}
    *views, whole = view.up()
    shape = attempt(shape_at, whole.meta.shape, symbols)
    if isinstance(shape, Raised) or math.prod(shape) > _MOST_ELEMENTS:
        return None
    places = torch.arange(math.prod(shape)).reshape(shape)
    for item in reversed(views):
        made = attempt(_derived, item, places, symbols)
        if isinstance(made, Raised):  # a view as another dtype, or at places out of range there
            return None
        places = made
    return places


def _derived(view: View, base: torch.Tensor, symbols: Mapping[str, Number]) -> torch.Tensor:
    """The view of another tensor in the place of its base."""
    node = view.made
    if node is None or node.op_type == "aten.view.dtype":
        raise LookupError
    tensors = [
        base if meta.name == view.source else torch.empty(shape_at(meta.shape, symbols))
        for meta in node.inputs
    ]
    args, kwargs = bind(node, tensors, symbols)
    operator: Any = resolve_operator(node.op_type)
    return cast(torch.Tensor, list(flatten(operator(*args, **kwargs)))[view.output])
