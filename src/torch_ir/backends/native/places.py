"""Places in tensors, and sizes, in which runtimes go wrong where torch raises, or does not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch

from torch_ir.backends.delegate import sizes_of
from torch_ir.backends.native.integer_bounds import IntegerBounds
from torch_ir.ir import IR, OpNode, SymExpr, TensorMeta
from torch_ir.ir.queries import given_values
from torch_ir.passes.memory_plan.bounds import may_be_empty
from torch_ir.torch_api import constant_tensors

_ALONG = frozenset(
    f"aten.{name}"
    for name in (
        *("gather", "scatter", "scatter_add", "scatter_reduce", "take_along_dim"),
        *("index_select", "index_copy", "index_add", "index_fill", "index_reduce"),
    )
)
"""Operators of a tensor, an axis and places along it."""
_AT_ALL = frozenset(("aten.index", "aten.index_put"))
"""Operators of a tensor and places along its first axes; negative ones count from the end."""
_LOSSES = frozenset(
    f"aten.{name}"
    for name in (
        *("nll_loss_forward", "nll_loss2d_forward", "nll_loss_nd", "nll_loss", "nll_loss2d"),
        "cross_entropy_loss",
    )
)
_BAGS = frozenset(
    ("aten._embedding_bag", "aten._embedding_bag_forward_only", "aten.embedding_bag")
)


_WRITING = frozenset(
    f"aten.{name}"
    for name in (
        *("scatter", "scatter_add", "scatter_reduce", "index_copy", "index_add", "index_fill"),
        *("index_reduce", "index_put"),
    )
)


@dataclass(frozen=True, slots=True)
class IndexOperand:
    """An operand that holds places in a tensor.

    Attributes:
        name: The value's.
        size: Of the axis.
        is_signed: Whether negative ones count from the end; torch refuses them if not.
    """

    name: str
    size: int | SymExpr
    is_signed: bool


def places_of(ir: IR) -> tuple[IndexOperand, ...]:
    """Return all places that the nodes of a program take, but not those of its functions."""
    return tuple(dict.fromkeys(place for node in ir.nodes for place in _places(node)))


def _places(node: OpNode) -> Iterator[IndexOperand]:
    packet = node.op_type.rpartition(".")[0]
    if packet == "aten.embedding" or packet in _BAGS:
        yield from _along(node, "weight", "indices", 0)
    elif packet in _LOSSES:
        shape = _shape(node, "self")
        yield from _along(node, "self", "target", min(1, max(len(shape) - 1, 0)))
    elif packet == "aten.one_hot":
        (given,), classes = node.inputs, node.argument("num_classes", -1)
        if classes != -1:
            yield IndexOperand(given.name, classes, False)
    elif packet in _ALONG:
        name = "indices" if packet == "aten.take_along_dim" else "index"
        yield from _along(node, "self", name, node.argument("dim"))
    elif packet in _AT_ALL:
        shape = _shape(node, "self")
        places: Any = node.argument("indices", ())
        for axis, place in enumerate(places):
            if not isinstance(place, TensorMeta):
                continue
            if place.dtype in ("bool", "uint8"):
                return
            yield IndexOperand(place.name, shape[axis], True)


def _along(node: OpNode, table: str, name: str, axis: Any) -> Iterator[IndexOperand]:
    place, shape = node.tensor(name), _shape(node, table)
    if place is not None and place.dtype.startswith(("int", "uint")) and type(axis) is int:
        yield IndexOperand(place.name, shape[axis] if shape else 1, False)


def _shape(node: OpNode, name: str) -> tuple[Any, ...]:
    meta = node.tensor(name)
    return () if meta is None else tuple(meta.shape)


def computed_places(ir: IR, payload: Mapping[str, torch.Tensor]) -> frozenset[str]:
    """Return the nodes that compute places of which nothing shows that torch takes them.

    Left to torch, what they compute is given to a delegate, which looks at it.

    Args:
        ir: The program.
        payload: Its weights, by key.
    """
    constants = constant_tensors(ir.constants, set(ir.constants), payload)
    bounds = IntegerBounds(ir, {**payload, **constants})
    found: set[str] = set()
    for place in places_of(ir):
        source = bounds.source(place.name)
        maker = ir.producers.get(source)
        if maker is not None and not bounds.is_within(source, place.size, place.is_signed):
            found.add(maker.name)
    return frozenset(found)


def writes_unseen(body: IR, held: Mapping[str, torch.Tensor]) -> bool:
    """Return whether a subgraph writes to places that it computes and that may not exist.

    Args:
        body: The subgraph.
        held: The values of those of its inputs that are the same in every call.
    """
    bounds = IntegerBounds(body, held, held)
    places = [
        p for n in body.nodes if n.op_type.rpartition(".")[0] in _WRITING for p in _places(n)
    ]
    computed = [(p, s) for p in places if (s := bounds.source(p.name)) in body.producers]
    return not all(bounds.is_within(source, p.size, p.is_signed) for p, source in computed)


Shown: TypeAlias = tuple[tuple[str, int, int | None], ...]
"""Symbols, each with the input that shows it, and along which axis if it is no number."""


def _symbols(shown: Shown, given: Sequence[Any]) -> dict[str, Any]:
    """The values of symbols in a call."""
    return {name: given[at] if axis is None else given[at].shape[axis] for name, at, axis in shown}


@dataclass(frozen=True, slots=True)
class NothingEmpty:
    """That no value of a delegate is empty, of which runtimes give other means, or end.

    Attributes:
        sizes: Those that may be 0.
        shown: What shows their symbols.
    """

    reason: ClassVar[str] = "a tensor is empty"

    sizes: tuple[SymExpr, ...]
    shown: Shown

    def takes(self, given: Sequence[Any]) -> bool:
        """Return whether no size of a call is 0."""
        symbols = _symbols(self.shown, given)
        return all(size.evaluate(symbols) for size in self.sizes)


@dataclass(frozen=True, slots=True)
class Limit:
    """What an input of a delegate may hold.

    Attributes:
        position: That of the input.
        size: Of the axis in which it has places.
        is_signed: Whether negative ones count from the end.
        shown: What shows the symbols of the size.
    """

    reason: ClassVar[str] = "torch refuses such a place"

    position: int
    size: int | SymExpr
    is_signed: bool
    shown: Shown

    def takes(self, given: Sequence[Any]) -> bool:
        """Return whether torch takes the places of a call."""
        tensor = given[self.position]
        count = tensor.numel()
        if not count:
            return True
        size: Any = self.size
        if isinstance(size, SymExpr):
            size = size.evaluate(_symbols(self.shown, given))
        # one call of torch, whose code no cache holds after a large model, costs 40 microseconds
        least, most = (tensor, tensor) if count == 1 else torch.aminmax(tensor)
        return bool(most.item() < size and least.item() >= (-size if self.is_signed else 0))


def limits_of(body: IR, held: Collection[str]) -> tuple[Limit | NothingEmpty, ...]:
    """Return what the inputs of a delegate may hold, and that none of its values is empty.

    Args:
        body: The delegate's function.
        held: Those of its inputs that are the same in every call.
    """
    names = [name for name in body.input_names if name not in held]
    shown: dict[str, tuple[int, int | None]] = {
        size.text: (len(names) + at, None) for at, size in enumerate(sizes_of(body))
    }
    metas = given_values(body)
    for at, name in enumerate(names):
        for axis, dim in enumerate(metas[name].shape):
            if isinstance(dim, SymExpr) and dim.is_symbol:
                shown.setdefault(dim.text, (at, axis))
    bounds = IntegerBounds(body)
    empty = _possibly_empty(body, shown)
    found: dict[Limit, None] = {}
    for place in places_of(body):
        source = bounds.source(place.name)
        symbols = place.size.symbols if isinstance(place.size, SymExpr) else ()
        if source in names and all(symbol in shown for symbol in symbols):
            known = tuple([(symbol, *shown[symbol]) for symbol in symbols])
            limit = Limit(names.index(source), place.size, place.is_signed, known)
            found[limit] = None
    limits = [limit for limit in found if not any(_implies(o, limit) for o in found)]
    return (*empty, *limits)


def _possibly_empty(
    body: IR, shown: Mapping[str, tuple[int, int | None]]
) -> Iterator[NothingEmpty]:
    """The sizes of a delegate that may be 0, as far as its inputs show them."""
    metas = [*body.graph_inputs, *[meta for node in body.nodes for meta in node.outputs]]
    dims = dict.fromkeys(dim for meta in metas for dim in meta.shape if isinstance(dim, SymExpr))
    sizes = [
        dim for dim in dims if shown.keys() >= {*dim.symbols} and may_be_empty(dim, body.symbols)
    ]
    if sizes:
        symbols = dict.fromkeys(symbol for size in sizes for symbol in size.symbols)
        yield NothingEmpty(tuple(sizes), tuple([(name, *shown[name]) for name in symbols]))


def _implies(one: Limit, other: Limit) -> bool:
    """Whether what one takes another takes as well, which is not itself."""
    if one == other or one.position != other.position:
        return False
    if not isinstance(one.size, int) or not isinstance(other.size, int):
        return False
    return one.size <= other.size and (other.is_signed or not one.is_signed)
