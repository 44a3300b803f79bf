"""Operators that look at another tensor's memory, and how a write through one reaches the whole.

For each there is a rule: given the whole tensor and the new value of the part that the view shows,
the new whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, cast

from torch_ir.infer.storage import elements_are_apart
from torch_ir.ir import DType, OpNode, TensorMeta
from torch_ir.ir.symbols import Dim, as_dim
from torch_ir.ops.aliases import ITSELF, KEEP_ORDER
from torch_ir.passes.functionalization.repeats import EXPANDS, Coverage


class Emit(Protocol):
    """Adds a node that makes a tensor of the type of ``like`` and returns it."""

    def __call__(self, op_type: str, like: TensorMeta, /, **arguments: Any) -> TensorMeta:
        """The tensor that the node makes."""
        ...


@dataclass(frozen=True, slots=True)
class ViewWrite:
    """A new value for what a view shows.

    Attributes:
        node: The view.
        output: The view's result.
        base: The whole tensor before the write.
        value: The new value of the part.
        emit: Adds nodes.
        covered: Which part of the view is written.
    """

    node: OpNode
    output: TensorMeta
    base: TensorMeta
    value: TensorMeta
    emit: Emit
    covered: Coverage

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute of the view."""
        return self.node.attrs.get(name, default)

    @property
    def rank(self) -> int:
        """How many dimensions the whole has."""
        return len(self.base.shape)

    def axis(self, dim: int) -> int:
        """Return the dimension, counted from the first."""
        return dim % max(self.rank, 1)

    def scatter(self, packet: str, **attrs: Any) -> TensorMeta:
        """Put the value into the whole by an operator of the ``_scatter`` kind."""
        return self.emit(f"aten.{packet}", self.base, self=self.base, src=self.value, **attrs)

    def slice(self, dim: int, start: Dim, length: Dim) -> TensorMeta:
        """Put the value into the whole at one range of a dimension."""
        axis = self.axis(dim)
        end = as_dim(f"({start}) + ({length})")
        return self.scatter("slice_scatter.default", dim=axis, start=start, end=end, step=1)


Rule: TypeAlias = Callable[[ViewWrite], TensorMeta | None]
"""The new whole, or None where the write cannot be followed."""


def identity(write: ViewWrite) -> TensorMeta | None:
    """Return the value of a write through a view that shows the whole unchanged."""
    same = (write.value.shape, write.value.dtype) == (write.base.shape, write.base.dtype)
    return write.value if same else None


def _reshape(write: ViewWrite) -> TensorMeta | None:
    if write.value.dtype != write.base.dtype:
        return None
    if write.value.shape == write.base.shape:
        return write.value
    shape = write.base.shape
    return write.emit("aten.reshape.default", write.base, self=write.value, shape=shape)


def _expand(write: ViewWrite) -> TensorMeta | None:
    """Reduce a value written through ``expand`` to its base: to the repeats that are written."""
    value, added = write.value, len(write.value.shape) - len(write.base.shape)
    for dim, size in enumerate(write.value.shape):
        if size == 1 or (dim >= added and write.base.shape[dim - added] == size):
            continue
        place = write.covered.repeat(dim)
        if place is None:
            return None  # a kernel may write one place twice
        like = value.replace(shape=(*value.shape[:dim], 1, *value.shape[dim + 1 :]))
        ends = {"start": place, "end": place + 1}
        value = write.emit("aten.slice.Tensor", like, self=value, dim=dim, **ends)
    return _reshape(replace(write, value=value))


def _permute(write: ViewWrite, dims: list[int]) -> TensorMeta:
    order = [write.axis(dim) for dim in dims]
    back = [order.index(axis) for axis in range(len(order))]
    return write.emit("aten.permute.default", write.base, self=write.value, dims=back)


def _transpose(write: ViewWrite, first: int, second: int) -> TensorMeta:
    a, b = write.axis(first), write.axis(second)
    if a == b:
        return write.value
    order = list(range(write.rank))
    order[a], order[b] = order[b], order[a]
    return _permute(write, order)


def _t(write: ViewWrite) -> TensorMeta:
    return write.value if write.rank < 2 else _transpose(write, 0, 1)


def _movedim(write: ViewWrite) -> TensorMeta:
    if not write.rank:  # torch takes 0 for a dimension of no dimensions
        return write.value
    given = [write.attr("source"), write.attr("destination")]
    pairs = [[write.axis(dim) for dim in ([d] if isinstance(d, int) else d)] for d in given]
    source, destination = pairs
    order = [dim for dim in range(write.rank) if dim not in source]
    for place, dim in sorted(zip(destination, source, strict=True)):
        order.insert(place, dim)
    return _permute(write, order)


def _slice(write: ViewWrite) -> TensorMeta:
    given = {k: v for k, v in write.node.attrs.items() if k in ("dim", "start", "end", "step")}
    return write.scatter("slice_scatter.default", **given)


def _narrow(write: ViewWrite) -> TensorMeta:
    dim, start = write.axis(write.attr("dim")), write.attr("start")
    if isinstance(start, int) and start < 0:
        start = as_dim(f"({write.base.shape[dim]}) + ({start})")
    return write.slice(dim, start, write.attr("length"))


def _select(write: ViewWrite) -> TensorMeta:
    attrs = {"dim": write.attr("dim"), "index": write.attr("index")}
    return write.scatter("select_scatter.default", **attrs)


def _unbind(write: ViewWrite) -> TensorMeta:
    index = write.output.producer_output_idx
    return write.scatter("select_scatter.default", dim=write.attr("dim", 0), index=index)


def _diagonal(write: ViewWrite) -> TensorMeta:
    names = ("offset", "dim1", "dim2")
    given = {k: v for k, v in write.node.attrs.items() if k in names}
    return write.scatter("diagonal_scatter.default", **given)


def _linalg_diagonal(write: ViewWrite) -> TensorMeta:
    given = {"offset": write.attr("offset", 0), "dim1": -2, "dim2": -1}
    return write.scatter("diagonal_scatter.default", **{**given, **write.node.attrs})


def _unfold(write: ViewWrite) -> TensorMeta | None:
    """Put the first element of each window where it was, then the second; none may overlap."""
    size, step, whole = write.attr("size"), write.attr("step"), write.base
    if not write.rank or not isinstance(size, int) or not isinstance(step, int) or step < size:
        return None
    axis, shape = write.axis(write.attr("dimension")), write.value.shape[:-1]
    like = write.value.replace(shape=shape)
    for place in range(size):
        part = write.emit("aten.select.int", like, self=write.value, dim=-1, index=place)
        end = as_dim(f"({shape[axis]}) * {step} - {step} + {place + 1}")
        one = replace(write, base=whole, value=part)
        attrs = {"dim": axis, "start": place, "end": end, "step": step}
        whole = one.scatter("slice_scatter.default", **attrs)
    return whole


def _as_strided(write: ViewWrite) -> TensorMeta | None:
    sizes, strides = [cast(Sequence[Dim], write.attr(name)) for name in ("size", "stride")]
    if not elements_are_apart(sizes, strides):
        return None  # a kernel may write one place twice
    whole = write.emit("aten.contiguous.default", write.base, self=write.base)
    return replace(write, base=whole).scatter("as_strided_scatter.default", **write.node.attrs)


def _part(write: ViewWrite, dim: int, start: Dim) -> TensorMeta:
    axis = write.axis(dim)
    return write.slice(axis, start, write.output.shape[axis])


def _split(write: ViewWrite) -> TensorMeta | None:
    size, index = write.attr("split_size"), write.output.producer_output_idx
    return _part(write, write.attr("dim", 0), as_dim(f"{index} * ({size})"))


def _split_with_sizes(write: ViewWrite) -> TensorMeta | None:
    sizes = write.attr("split_sizes", write.attr("split_size"))
    before = sizes[: write.output.producer_output_idx]
    return _part(write, write.attr("dim", 0), as_dim(" + ".join(f"({s})" for s in (0, *before))))


def _chunk(write: ViewWrite) -> TensorMeta | None:
    dim = write.attr("dim", 0)
    length = write.base.shape[write.axis(dim)]
    size = as_dim(f"(({length}) + {write.attr('chunks') - 1}) // {write.attr('chunks')}")
    return _part(write, dim, as_dim(f"{write.output.producer_output_idx} * ({size})"))


def _sections(write: ViewWrite, dim: int, sections: int) -> TensorMeta:
    length, index = write.base.shape[write.axis(dim)], write.output.producer_output_idx
    start = f"{index} * (({length}) // {sections}) + min({index}, ({length}) % {sections})"
    return _part(write, dim, as_dim(start))


def _at(write: ViewWrite, dim: int) -> TensorMeta | None:
    index, places = write.output.producer_output_idx, write.attr("indices")
    length = write.base.shape[write.axis(dim)]
    start = 0 if index == 0 else places[index - 1]
    if not isinstance(length, int) or not isinstance(start, int):
        return None
    return _part(write, dim, max(start + length, 0) if start < 0 else min(start, length))


def _split_at(dim: int | None = None) -> Rule:
    """tensor_split, and along a fixed dimension hsplit, vsplit and dsplit."""

    def rule(write: ViewWrite) -> TensorMeta | None:
        axis = write.attr("dim", 0) if dim is None else 0 if dim == 1 == write.rank else dim
        if "sections" in write.node.attrs:
            return _sections(write, axis, write.attr("sections"))
        return _at(write, axis)

    return rule


def _dtype(write: ViewWrite) -> TensorMeta:
    dtype = DType(write.base.dtype)
    return write.emit("aten.view.dtype", write.base, self=write.value, dtype=dtype)


def _unary(op_type: str) -> Rule:
    return lambda write: write.emit(op_type, write.base, self=write.value)


def _conj(write: ViewWrite) -> TensorMeta:
    if not write.base.dtype.startswith("complex"):
        return write.value
    return write.emit("aten._conj_physical.default", write.base, self=write.value)


def _component(index: int) -> Rule:
    """The real or imaginary part of a complex tensor."""

    def rule(write: ViewWrite) -> TensorMeta | None:
        if not write.base.dtype.startswith("complex"):
            return identity(write)
        pairs = TensorMeta("", (*write.base.shape, 2), write.value.dtype)
        base = write.emit("aten.resolve_conj.default", write.base, self=write.base)
        whole = write.emit("aten.view_as_real.default", pairs, self=base)
        put = {"self": whole, "src": write.value, "dim": -1, "index": index}
        made = write.emit("aten.select_scatter.default", pairs, **put)
        return write.emit("aten.view_as_complex.default", write.base, self=made)

    return rule


def _adjoint(write: ViewWrite) -> TensorMeta:
    flipped = write.value if write.rank < 2 else _transpose(write, -2, -1)
    if not write.base.dtype.startswith("complex"):
        return flipped
    return write.emit("aten._conj_physical.default", write.base, self=flipped)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ITSELF, cast(Rule, identity)),
    **dict.fromkeys(KEEP_ORDER, cast(Rule, _reshape)),
    **{f"aten.atleast_{n}d.default": cast(Rule, _reshape) for n in (1, 2, 3)},
    "aten._reshape_alias.default": _reshape,
    **dict.fromkeys(EXPANDS, cast(Rule, _expand)),
    "aten.permute.default": lambda write: _permute(write, write.attr("dims")),
    "aten.numpy_T.default": lambda write: _permute(write, list(range(write.rank))[::-1]),
    "aten.transpose.int": lambda write: _transpose(write, write.attr("dim0"), write.attr("dim1")),
    "aten.swapdims.default": lambda write: _transpose(
        write, write.attr("dim0"), write.attr("dim1")
    ),
    "aten.swapaxes.default": lambda write: _transpose(
        write, write.attr("axis0"), write.attr("axis1")
    ),
    "aten.t.default": _t,
    "aten.mT.default": lambda write: _transpose(write, -2, -1),
    **{f"aten.{name}.default": _adjoint for name in ("mH", "matrix_H", "adjoint")},
    **{f"aten.move{n}.{of}": _movedim for n in ("dim", "axis") for of in ("int", "intlist")},
    "aten.slice.Tensor": _slice,
    "aten.narrow.default": _narrow,
    "aten.select.int": _select,
    "aten.unbind.int": _unbind,
    "aten.diagonal.default": _diagonal,
    "aten.linalg_diagonal.default": _linalg_diagonal,
    "aten.unfold.default": _unfold,
    "aten.as_strided.default": _as_strided,
    "aten.split.Tensor": _split,
    "aten.split.sizes": _split_with_sizes,
    "aten.split_with_sizes.default": _split_with_sizes,
    "aten.unsafe_split.Tensor": _split,
    "aten.unsafe_split_with_sizes.default": _split_with_sizes,
    "aten.chunk.default": _chunk,
    "aten.unsafe_chunk.default": _chunk,
    "aten.tensor_split.sections": _split_at(),
    "aten.tensor_split.indices": _split_at(),
    **{
        f"aten.{name}split.{overload}": _split_at(dim)
        for dim, name in enumerate("vhd")
        for overload in ("int", "array")
    },
    "aten.view.dtype": _dtype,
    "aten.view_as_real.default": _unary("aten.view_as_complex.default"),
    "aten.view_as_complex.default": _unary("aten.view_as_real.default"),
    "aten._conj.default": _conj,
    "aten.conj.default": _conj,
    "aten._neg_view.default": _unary("aten.neg.default"),
    "aten.real.default": _component(0),
    "aten.imag.default": _component(1),
}
"""How a write through each view reaches the whole."""
