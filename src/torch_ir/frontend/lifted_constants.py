"""Tensors whose values a program keeps, as constants: one memory is stored once.

Tensors that overlap in memory become views of one constant, and a tensor whose elements do not lie
in row-major order becomes a view of what it occupies, so that kernels see the strides of eager.
Where that would store more bytes than the values of the tensors have, each is stored in row-major
order by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from torch_ir.arguments import public
from torch_ir.errors import InvalidIRError
from torch_ir.ir import IR, Constant, OpNode, TensorMeta
from torch_ir.ir.builder import Names, with_inputs
from torch_ir.ir.queries import external_keys
from torch_ir.ir.values import row_major
from torch_ir.torch_api import extent_of
from torch_ir.torch_memory import occupied_bytes


@dataclass(frozen=True, slots=True)
class _Extent:
    """The part of a storage that a tensor occupies, in elements; ``end`` is behind the last."""

    key: str
    tensor: torch.Tensor
    begin: int
    end: int

    @property
    def is_whole(self) -> bool:
        """Whether the tensor shows its extent in row-major order, so that it can be a base."""
        return self.tensor.stride() == row_major(self.tensor.shape)


@public
def constants_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the tensors of a model that no state dict has, by the keys that ``constants=`` takes.

    They are its buffers that are not persistent, and the tensors that are plain attributes. A
    program that was extracted on meta runs with those of the real model.

    Example:
        >>> model = torch.nn.Linear(2, 2)
        >>> model.register_buffer("scale", torch.ones(2), persistent=False)
        >>> model.table = torch.zeros(3)
        >>> sorted(constants_of(model))
        ['scale', 'table']
    """
    kept = model.state_dict(keep_vars=True).keys()
    found: dict[str, torch.Tensor] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for name, value in {
            **module.__dict__,
            **dict(module.named_buffers(recurse=False)),
        }.items():
            key = f"{path}.{name}" if path else name
            if isinstance(value, torch.Tensor) and key not in kept:
                found[key] = value
    return found


def stored_constants(
    tensors: Mapping[str, torch.Tensor],
    *,
    written: Iterable[str] = (),
    taken: Iterable[str] = (),
) -> dict[str, Constant]:
    """Make constants with the values and strides of tensors.

    A tensor that the program writes keeps its key and is no view, unless it overlaps another one:
    those are views of one constant however large it is, as what is written to one is read from
    the other.

    Args:
        tensors: Tensors by key.
        written: The keys of those that the program writes.
        taken: Keys that a constant which is made here cannot have.

    Raises:
        InvalidIRError: A tensor has no plain values, or one that is written overlaps one of
            another dtype.

    Example:
        >>> table = torch.arange(6).reshape(2, 3)
        >>> found = stored_constants({"table": table, "column": table[:, 1]})
        >>> found["column"].view
        ConstantView(base='table', strides=(3,), offset=1)
    """
    stored: dict[str, Constant] = {}
    keys, written = Names((*tensors, *taken)), set(written)
    groups: dict[tuple[str, int], list[_Extent]] = {}
    for key, tensor in tensors.items():
        extent = _extent(key, tensor)
        if extent is None:
            stored[key] = Constant.from_torch(tensor)
        else:
            where = str(tensor.device), tensor.untyped_storage().data_ptr()
            groups.setdefault(where, []).append(extent)
    for extents in groups.values():
        for overlapping in _clusters(extents):
            if len({extent.tensor.dtype for extent in overlapping}) > 1:
                _refuse_written(overlapping, written)
        for dtype in dict.fromkeys(extent.tensor.dtype for extent in extents):
            of_dtype = [extent for extent in extents if extent.tensor.dtype == dtype]
            for overlapping in _clusters(of_dtype):
                stored.update(_stored(overlapping, written, keys))
    return {**{key: stored[key] for key in tensors}, **stored}


def _extent(key: str, tensor: torch.Tensor) -> _Extent | None:
    """What a tensor occupies; None if it is no plain one, whose values are its memory."""
    is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    if not is_plain or tensor.layout is not torch.strided or tensor.is_quantized:
        return None
    if tensor.is_meta or tensor.is_conj() or tensor.is_neg() or not tensor.numel():
        return None
    begin = int(tensor.storage_offset())
    return _Extent(key, tensor.detach(), begin, begin + extent_of(tensor))


def _clusters(extents: list[_Extent]) -> Iterator[list[_Extent]]:
    """The extents in groups whose members overlap, directly or through others, in given order."""
    order = {extent.key: position for position, extent in enumerate(extents)}
    cluster: list[_Extent] = []
    end = 0
    for extent in sorted(extents, key=lambda extent: occupied_bytes(extent.tensor)):
        begin, stop = occupied_bytes(extent.tensor)
        if cluster and begin >= end:
            yield sorted(cluster, key=lambda e: order[e.key])
            cluster = []
        cluster.append(extent)
        end = max(end, stop) if len(cluster) > 1 else stop
    if cluster:
        yield sorted(cluster, key=lambda e: order[e.key])


def _refuse_written(overlapping: list[_Extent], written: set[str]) -> None:
    for extent in overlapping:
        if extent.key in written:
            dtype = extent.tensor.dtype
            other = next(e for e in overlapping if e.tensor.dtype != dtype)
            raise InvalidIRError(
                f"the program writes {extent.key!r}, which shares its memory with {other.key!r} "
                f"of another dtype ({dtype} and {other.tensor.dtype})"
            )


def _stored(overlapping: list[_Extent], written: set[str], keys: Names) -> dict[str, Constant]:
    """Constants for tensors of one dtype that overlap."""
    first = overlapping[0]
    begin = min(extent.begin for extent in overlapping)
    end = max(extent.end for extent in overlapping)
    is_written = any(extent.key in written for extent in overlapping)
    if len(overlapping) == 1 and (first.is_whole or is_written):
        return {first.key: Constant.from_torch(first.tensor)}
    shown = {(e.begin, e.tensor.shape, e.tensor.stride()): e.tensor.numel() for e in overlapping}
    if end - begin > sum(shown.values()) and not is_written:
        return {extent.key: Constant.from_torch(extent.tensor) for extent in overlapping}
    whole = [e for e in overlapping if e.is_whole and (e.begin, e.end) == (begin, end)]
    if whole:
        key, tensor = whole[0].key, whole[0].tensor
    else:
        key = keys.fresh(f"{first.key}.storage")
        tensor = first.tensor.as_strided((end - begin,), (1,), begin)
    base = Constant.from_torch(tensor)
    views = {
        e.key: base.view_of(
            key, tuple(e.tensor.shape), strides=e.tensor.stride(), offset=e.begin - begin
        )
        for e in overlapping
        if e.key != key
    }
    return {key: base, **views}


# -- constants of a program -----------------------------------------------------------------------


def with_constants(ir: IR, tensors: Mapping[str, torch.Tensor], written: Collection[str]) -> IR:
    """Replace the weights of a program whose values are known by constants.

    A view among constants has a name of its own, and names are all by which a program tells memory
    apart. Where a constant that shares its memory is written, the program therefore makes its
    views itself, by ``aten.as_strided`` of their base.

    Args:
        ir: A program with weights alone. Its mutations are those that a functional program does
            when it ends.
        tensors: Values of weights, by key.
        written: The names of the values that in-place operators of the program write.

    Raises:
        InvalidIRError: As :func:`stored_constants`, or a functional program leaves a value in one
            of several constants that overlap. torch makes no such program.
    """
    external = external_keys(ir)
    names = {*written, *(mutation.target for mutation in ir.mutations)}
    keys = {external[name] for name in names if name in external}
    constants = stored_constants(tensors, written=keys, taken={*external, *external.values()})
    known = ir.replace(
        constants=constants, weights=[meta for meta in ir.weights if meta.name not in tensors]
    )
    bases = {view.base for key in keys & constants.keys() if (view := constants[key].view)}
    bases |= keys
    views = {k: c for k, c in constants.items() if c.view is not None and c.view.base in bases}
    return _made_from_bases(known, views) if views else known


def _made_from_bases(ir: IR, views: Mapping[str, Constant]) -> IR:
    """The program with nodes, of the names under which they were used, in the place of views."""
    external = external_keys(ir)
    name_of = {key: name for name, key in external.items()}
    shown: dict[str, TensorMeta] = {}
    made: list[OpNode] = []
    for name, key in external.items():
        view = views[key].view if key in views else None
        if view is None:
            continue
        base, constant = ir.constants[view.base], views[key]
        taken = TensorMeta(name_of[view.base], base.shape, base.dtype)
        shown[name] = TensorMeta(name, constant.shape, constant.dtype, name)
        attrs = {"size": constant.shape, "stride": view.strides, "storage_offset": view.offset}
        made.append(OpNode(name, "aten.as_strided.default", [taken], [shown[name]], attrs))
    for mutation in ir.mutations:
        if mutation.target in shown:
            raise InvalidIRError(
                f"what the program leaves in {external[mutation.target]!r} is part of the "
                "memory of another constant"
            )
    mapping = ir.weight_name_mapping
    return ir.replace(
        nodes=(*made, *(with_inputs(node, shown) for node in ir.nodes)),
        graph_outputs=[shown.get(meta.name, meta) for meta in ir.graph_outputs],
        constants={key: c for key, c in ir.constants.items() if key not in views},
        weight_name_mapping={name: key for name, key in mapping.items() if key not in views},
    )
