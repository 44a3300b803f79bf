"""Places in memory: the storage that results share, and whether elements lie apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from torch_ir.errors import Raised, attempt
from torch_ir.ir import IR, FrozenDict, OpNode, TensorMeta
from torch_ir.ir.aliases import Aliases
from torch_ir.ir.queries import op_types
from torch_ir.ir.symbols import Dim, SymExpr, as_dim
from torch_ir.ops.layouts import KEEPING_STRIDES, READING_MEMORY

if TYPE_CHECKING:
    import torch

    from torch_ir.infer.fake import Fakes
    from torch_ir.infer.types import TensorType


def decided_aliases(ir: IR) -> Aliases:
    """Return the aliases of a graph in which no copy is open that a write could tell from a view.

    Torch's fake tensors decide. Graph inputs and weights are taken to be contiguous; constants
    have their own strides.
    """
    names = ir.aliases.undecided
    return ir.aliases.decided(_shares(ir, names)) if names else ir.aliases


def elements_are_apart(sizes: Sequence[Dim], strides: Sequence[Dim]) -> bool:
    """Return whether the elements of a strided tensor surely lie at places of their own.

    Args:
        sizes: The sizes of its dimensions. What is to be known of symbols is that none is 0.
        strides: How many elements of memory lie from one place of each dimension to the next.

    Example:
        >>> [elements_are_apart((2, 3), strides) for strides in [(3, 1), (1, 1), (3, 2)]]
        [True, False, True]
        >>> elements_are_apart((SymExpr("s0"), 4), (1, SymExpr("s0")))
        True
    """
    known = [(stride, size) for stride, size in zip(strides, sizes, strict=True) if size != 1]
    if 0 in sizes:
        return True
    if any(stride == 0 for stride, _ in known):
        return False
    numbers = [(a, b) for a, b in known if isinstance(a, int) and isinstance(b, int)]
    if len(numbers) < len(known):
        return len(known) <= _MOST_DIMS and _are_beyond(known)
    return _are_far(sorted(numbers)) or _are_counted_apart(numbers)


def reads_strides(node: OpNode, type_of: Callable[[str], TensorType | None]) -> bool:
    """Return whether a node makes other values of an operand with other strides.

    Args:
        node: The node.
        type_of: The type of a value that it takes; None where it is not known: then its elements
            are taken to lie apart.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[4]
        ...   input %s: f32[3]
        ...   %v: f32[3, 2] = aten.unfold.default(%x, dimension=0, size=2, step=1)
        ...   %y: f32[3, 2] = aten.select_scatter.default(%v, %s, dim=1, index=0)
        ...   %z: f32[3, 2] = aten.select_scatter.default(%y, %s, dim=1, index=1)
        ...   return %z
        ... }''')
        >>> [node.name for node in stride_readers(ir)]
        ['y', 'z']
    """
    if node.op_type not in KEEPING_STRIDES:
        return node.op_type in READING_MEMORY
    type = type_of(node.inputs[0].name)
    if type is None:
        return False
    is_expanded = any(not step and size != 1 for size, step in zip(*type[::2], strict=True))
    return not (is_expanded or elements_are_apart(type.shape, type.strides))


def stride_readers(ir: IR, given: Mapping[str, TensorType] = FrozenDict()) -> tuple[OpNode, ...]:
    """Return the nodes of a graph of which :func:`reads_strides` says so.

    Args:
        ir: The graph.
        given: The types of its inputs; those that are not given are taken to be contiguous.
    """
    from torch_ir.infer.fake import value_types

    if (KEEPING_STRIDES | READING_MEMORY).isdisjoint(op_types(ir)):
        return ()
    types = value_types(ir, given)
    return tuple([node for node in ir.nodes if reads_strides(node, types.get)])


_MOST_DIMS, _MOST_ELEMENTS = 8, 1 << 20
"""Of how many dimensions with symbols every order is looked at, and how many places are counted:
programs of strangers may have any. What has more is not surely apart."""


def _are_far(dims: Sequence[tuple[int, int]]) -> bool:
    """Whether each stride is larger than all that those before it reach together."""
    reach = 0
    for stride, size in dims:
        if stride <= reach:
            return False
        reach += stride * (size - 1)
    return True


def _are_beyond(dims: Sequence[tuple[Dim, Dim]], reach: Dim | None = None) -> bool:
    """Whether in some order each stride is beyond all that those before it reach."""
    for place, (stride, size) in enumerate(dims):
        if reach is None or _is_at_least(stride, reach):
            left = (*dims[:place], *dims[place + 1 :])
            if _are_beyond(left, as_dim(f"({stride}) * ({size})")):
                return True
    return not dims


def _is_at_least(one: Dim, other: Dim) -> bool:
    """Whether one number is surely another one or more."""
    return SymExpr(f"({one}) - ({other})").text.isdecimal()


def share_elements(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether two tensors may have elements at the same places of memory.

    Not, where a stride parts them: two halves of the rows of one tensor lie apart.

    Example:
        >>> import torch
        >>> x = torch.zeros(3, 4)
        >>> share_elements(x[:, :2], x[:, 1:]), share_elements(x[:, :2], x[:, 2:])
        (True, False)
    """
    from torch_ir.torch_memory import overlap

    if attempt(overlap, left, right) is not True:  # under vmap they have no storage
        return False
    if left.dim() != right.dim() or left.element_size() != right.element_size():
        return True
    dims = [*zip(left.shape, left.stride(), right.shape, right.stride(), strict=True)]
    if any(stride != other for size, stride, most, other in dims if size > 1 and most > 1):
        return True
    # apart, if both would be as two items of one tensor
    between = abs(int(left.storage_offset()) - int(right.storage_offset()))
    sizes = [max(size, most) for size, _, most, _ in dims]
    strides = [stride if size > 1 else other for size, stride, _, other in dims]
    return not elements_are_apart((2, *sizes), (between, *strides))


def _are_counted_apart(dims: Sequence[tuple[int, int]]) -> bool:
    import numpy as np

    count = math.prod([size for _, size in dims])
    if not count <= sum([stride * (size - 1) for stride, size in dims]) + 1 <= _MOST_ELEMENTS:
        return False
    places = np.zeros(1, np.int64)
    for stride, size in dims:
        places = np.add.outer(places, np.arange(size) * stride).ravel()
    return np.unique(places).size == places.size


def _shares(ir: IR, names: frozenset[str]) -> dict[str, frozenset[str]]:
    """Return, for each result of the named nodes, the inputs whose storage it has."""
    found, pending = dict[str, frozenset[str]](), set(names)
    for node, inputs, results in _calls(ir):
        if node.name in pending:
            pending.remove(node.name)
            made = {
                meta.name: results[meta.producer_output_idx : meta.producer_output_idx + 1]
                for meta in node.outputs
            }
            found |= {name: _sharing(node, inputs, given) for name, given in made.items()}
        if not pending:
            break
    return found


class StoragePlace(NamedTuple):
    """Where a value lies in its storage.

    Attributes:
        whole: The first value of the program that has the storage.
        offset: Where the value begins; None where data or sizes decide it.
        is_row_major: Whether the value fills the beginning of the storage in row-major order.
    """

    whole: TensorMeta
    offset: int | None
    is_row_major: bool


def places(ir: IR) -> dict[str, StoragePlace]:
    """Return where the values of a graph lie in memory, as eager makes them, by name.

    Graph inputs and weights are taken to be contiguous. A value that data decides has none.
    """
    found: dict[str, StoragePlace] = {}
    wholes: dict[object, TensorMeta] = {}

    def note(meta: TensorMeta, value: Any) -> None:
        offset = value.storage_offset()
        start = offset if isinstance(offset, int) else None
        whole = wholes.setdefault(_storage(value), meta)
        # what sizes from data decide, torch does not say
        is_row_major = start == 0 and attempt(value.is_contiguous) is True
        found.setdefault(meta.name, StoragePlace(whole, start, is_row_major))

    for node, inputs, results in _calls(ir):
        for meta, value in zip(node.inputs, inputs, strict=True):
            note(meta, value)
        for meta in node.outputs:
            if meta.producer_output_idx < len(results):
                note(meta, results[meta.producer_output_idx])
    return found


def _calls(ir: IR) -> Iterator[tuple[OpNode, list[Any], Sequence[Any]]]:
    """Yield each node with the fake tensors that it takes and gives."""
    import torch

    from torch_ir.infer.fake import Fakes
    from torch_ir.infer.types import contiguous, external_types

    fakes = Fakes(ir)
    types = external_types(ir)
    values: dict[str, torch.Tensor] = {}

    def value(meta: TensorMeta) -> torch.Tensor:
        if meta.name not in values:
            values[meta.name] = fakes.tensor(types.get(meta.name) or contiguous(meta))
        return values[meta.name]

    for node in ir.nodes:
        with fakes.mode, torch.no_grad():  # left before a caller may fail with the values
            inputs = [value(meta) for meta in node.inputs]
            results = _results(fakes, node, inputs)
        for meta in node.outputs:
            if meta.producer_output_idx < len(results):
                values[meta.name] = results[meta.producer_output_idx]
        yield node, inputs, results


def _results(fakes: Fakes, node: OpNode, inputs: Sequence[object]) -> Sequence[Any]:
    """Return the results of a node; none where data decides them.

    Torch's Python implementations, which trace more, copy where its kernels do not: they come
    second.
    """
    from torch_ir.infer.engine import flatten
    from torch_ir.torch_api import enable_python_dispatcher

    for context in (nullcontext, enable_python_dispatcher):
        with context():
            made = attempt(lambda: list(flatten(fakes.call(node, inputs))))
        if not isinstance(made, Raised):
            return made
    return ()  # its memory is taken to be its own


def _sharing(node: OpNode, inputs: Sequence[Any], made: Sequence[Any]) -> frozenset[str]:
    own = [_storage(result) for result in made]
    pairs = zip(node.inputs, inputs, strict=True)
    return frozenset([meta.name for meta, given in pairs if _storage(given) in own])


def _storage(value: Any) -> object:
    import torch

    from torch_ir.torch_api import storage_of

    is_dense = getattr(value, "layout", None) is torch.strided
    return storage_of(cast(torch.Tensor, value)) if is_dense else object()
