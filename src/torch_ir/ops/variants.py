"""The variants of an operator: functional, as a view, as a copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from torch_ir.ops.schema import Argument, Schema, known_operators, lookup, parse_schema

_NAMED = {
    "aten.batch_norm.default": "aten._native_batch_norm_legit_functional.default",
    "aten.native_batch_norm.default": "aten._native_batch_norm_legit_functional.default",
    "aten.cudnn_batch_norm.default": "aten._native_batch_norm_legit_functional.default",
    "aten._batch_norm_impl_index.default": "aten._native_batch_norm_legit_functional.default",
    "aten.floor_divide_.Tensor": "aten.floor_divide.default",
    "aten.fill_diagonal_.default": "",  # it has no functional form
}
"""Variants that the names of operators do not tell."""

_IGNORED = ("cudnn_enabled", "cudnn_enable")
"""Arguments that choose a kernel of another device and that the variant does not have."""

IN_PLACE_VIEWS = {
    "aten.unsqueeze_.default": "aten.unsqueeze.default",
    "aten.squeeze_.default": "aten.squeeze.default",
    "aten.squeeze_.dim": "aten.squeeze.dim",
    "aten.squeeze_.dims": "aten.squeeze.dims",
    "aten.t_.default": "aten.t.default",
    "aten.transpose_.default": "aten.transpose.int",
    "aten.swapaxes_.default": "aten.swapaxes.default",
    "aten.swapdims_.default": "aten.swapdims.default",
    "aten.as_strided_.default": "aten.as_strided.default",
    "aten.detach_.default": "aten.detach.default",
}
"""Operators that give a tensor another shape and write nothing, to the view that they are."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A functional operator that stands for one that writes.

    Attributes:
        op_type: The operator.
        arguments: The name of each of its arguments in the operator that writes.
        results: For each written argument, the position among the operator's results of what it
            holds afterwards.
        dropped: Written arguments that it does not take, as with ``out=``.
    """

    op_type: str
    arguments: Mapping[str, str]
    results: Mapping[str, int]
    dropped: frozenset[str] = frozenset()


def functional_variant(
    schema: Schema, written: Sequence[str], known: Mapping[str, str] = {}
) -> Variant | None:
    """Return the functional operator for a call that writes the given arguments, or None.

    Args:
        schema: The operator that writes.
        written: The arguments that the call writes.
        known: Schemas of operators that libraries registered, by operator.

    Example:
        >>> functional_variant(lookup("aten.add_.Tensor"), ("self",)).op_type
        'aten.add.Tensor'
    """
    marked = tuple([a.name for a in schema.arguments if a.is_written])
    kept = [a for a in schema.arguments if a.name not in _IGNORED]
    for op_type in _candidates(schema.op_type, known):
        text = known.get(op_type)
        candidate = lookup(op_type) if text is None else parse_schema(text)
        if candidate is None or candidate.has_aliases:
            continue
        matched = _matched(kept, candidate)
        if matched is not None:
            results = _positions(candidate, schema, marked or tuple(written))
            if results is not None:
                return Variant(op_type, matched, results)
        matched = _matched([a for a in kept if a.name not in marked], candidate)
        if matched is not None and marked and len(candidate.returns) >= len(marked):
            ordered = {name: position for position, name in enumerate(marked)}
            return Variant(op_type, matched, ordered, frozenset(marked))
    return None


@cache
def view_of(op_type: str) -> str | None:
    """Return the view that an operator copies, with the same arguments, or None.

    Example:
        >>> view_of("aten.slice_copy.Tensor"), view_of("aten.copy.default")
        ('aten.slice.Tensor', None)
    """
    namespace, _, rest = op_type.partition(".")
    packet, _, overload = rest.partition(".")
    if not packet.endswith("_copy"):
        return None
    view = lookup(f"{namespace}.{packet.removesuffix('_copy')}.{overload}")
    copy = lookup(op_type)
    if view is None or copy is None or not any(result.alias for result in view.returns):
        return None
    same = [a.name for a in view.arguments] == [a.name for a in copy.arguments]
    return view.op_type if same else None


def copy_of(op_type: str) -> str | None:
    """Return the operator that copies what a view shows, with the same arguments, or None.

    Example:
        >>> copy_of("aten.permute.default"), copy_of("aten.reshape.default")
        ('aten.permute_copy.default', None)
    """
    namespace, packet, overload = op_type.split(".", 2)
    copy = lookup(f"{namespace}.{packet}_copy.{overload}")
    return None if copy is None else copy.op_type


def _candidates(op_type: str, known: Mapping[str, str]) -> Iterator[str]:
    """Operators that may be the variant, the likeliest first."""
    if op_type in _NAMED:
        if _NAMED[op_type]:
            yield _NAMED[op_type]
        return
    namespace, packet, overload = op_type.split(".")
    if packet.startswith("__i") and packet.endswith("__"):
        packets = [f"__{packet[3:]}"]
    else:
        stem = packet[:-1] if packet.endswith("_") and not packet.endswith("__") else packet
        packets = [stem, f"{packet}_functional", f"{packet}functional"]
    for name in packets:
        yield f"{namespace}.{name}.{overload}"
    for name in packets:
        own = (key for key in known if key.startswith(f"{namespace}.{name}."))
        yield from (*_overloads().get(f"{namespace}.{name}", ()), *own)


@cache
def _overloads() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for op_type in known_operators():
        found.setdefault(op_type.rpartition(".")[0], []).append(op_type)
    return {packet: tuple(sorted(overloads)) for packet, overloads in found.items()}


def _matched(arguments: Iterable[Argument], candidate: Schema) -> dict[str, str] | None:
    """The candidate's arguments by name, each with that of ours: by name, or else by order.

    ``dtype`` and the like, which only say how a fresh result is made, may be missing in ours.
    """
    own = list(arguments)
    theirs = candidate.arguments
    ours = {a.name: _kind(a) for a in own}
    if ours == {a.name: _kind(a) for a in theirs}:
        return {name: name for name in ours}
    if [_kind(a) for a in own] == [_kind(a) for a in theirs]:
        return {b.name: a.name for a, b in zip(own, theirs, strict=True)}
    extra = {a.name for a in theirs} - ours.keys()
    shared = {a.name: _kind(a) for a in theirs if a.name not in extra}
    if extra and extra <= _FACTORY and shared == ours:
        return {name: name for name in shared} | {name: name for name in extra}
    return None


_FACTORY = frozenset({"dtype", "layout", "device", "pin_memory", "memory_format"})


def _kind(argument: Argument) -> str:
    return argument.type.removesuffix("?")


def _positions(
    candidate: Schema, schema: Schema, written: tuple[str, ...]
) -> dict[str, int] | None:
    """Where the candidate returns what is written: after the results that are not written."""
    fresh = sum(not result.alias for result in schema.returns)
    if len(candidate.returns) == len(written) and fresh == 0:
        return {name: position for position, name in enumerate(written)}
    if len(candidate.returns) >= fresh + len(written):
        first = len(candidate.returns) - len(written)
        return {name: first + position for position, name in enumerate(written)}
    return None
