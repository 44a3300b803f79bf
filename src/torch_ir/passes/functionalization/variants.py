"""The functional operator that computes what an in-place or ``out=`` operator writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from torch_ir.ir import IR, DType, OpNode, TensorMeta
from torch_ir.ops.schema import Argument, Schema, Slots, default_of, known_operators

_NAMED = {
    "aten.batch_norm.default": "aten._native_batch_norm_legit_functional.default",
    "aten.native_batch_norm.default": "aten._native_batch_norm_legit_functional.default",
    "aten.cudnn_batch_norm.default": "aten._native_batch_norm_legit_functional.default",
    "aten._batch_norm_impl_index.default": "aten._native_batch_norm_legit_functional.default",
    "aten.floor_divide_.Tensor": "aten.floor_divide.default",
    "aten.fill_diagonal_.default": "",  # it has no functional form
}
"""Twins that the names of operators do not tell."""

_IGNORED = ("cudnn_enabled", "cudnn_enable")
"""Arguments that choose a kernel of another device and that the twin does not have."""

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
class Twin:
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


def twin_of(ir: IR, node: OpNode, written: tuple[str, ...]) -> Twin | None:
    """Return the functional operator for a call that writes these arguments, or None.

    Example:
        >>> from torch_ir.ir import TensorMeta
        >>> x = TensorMeta("x", (4,), "float32")
        >>> node = OpNode("y", "aten.add_.Tensor", [x, x], [TensorMeta("y", (4,), "float32", "y")])
        >>> twin_of(IR([node], [x], [], []), node, ("self",)).op_type
        'aten.add.Tensor'
    """
    schema = ir.schema_of(node.op_type)
    if schema is None:
        return None
    marked = tuple([a.name for a in schema.arguments if a.is_written])
    kept = [a for a in schema.arguments if a.name not in _IGNORED]
    for op_type in _candidates(ir, node.op_type):
        candidate = ir.schema_of(op_type)
        if candidate is None or _aliases(candidate):
            continue
        matched = _matched(kept, candidate)
        if matched is not None:
            results = _positions(candidate, schema, marked or written)
            if results is not None:
                return Twin(op_type, matched, results)
        matched = _matched([a for a in kept if a.name not in marked], candidate)
        if matched is not None and marked and len(candidate.returns) >= len(marked):
            ordered = {name: position for position, name in enumerate(marked)}
            return Twin(op_type, matched, ordered, frozenset(marked))
    return None


def _attributes(twin: Twin, node: OpNode, schema: Schema, target: Schema) -> dict[str, object]:
    """The attributes of the twin's call, with the defaults that only the original has."""
    defaults = {a.name: default_of(a) for a in schema.arguments}
    attrs: dict[str, object] = {}
    for argument in target.arguments:
        name = twin.arguments[argument.name]
        if name in node.attrs:
            attrs[argument.name] = node.attrs[name]
        elif name not in node.slots and argument.default is None:
            attrs[argument.name] = defaults[name]
    return attrs


def _operands(twin: Twin, node: OpNode) -> dict[str, Slots]:
    """The operands of the twin's call; its inputs are those of the original."""
    given = node.slots
    return {name: given[own] for name, own in twin.arguments.items() if own in given}


def _candidates(ir: IR, op_type: str) -> Iterator[str]:
    """Operators that may be the twin, the likeliest first."""
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
        own = (key for key in ir.operators if key.startswith(f"{namespace}.{name}."))
        yield from (*_overloads().get(f"{namespace}.{name}", ()), *own)


@cache
def _overloads() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for op_type in known_operators():
        found.setdefault(op_type.rpartition(".")[0], []).append(op_type)
    return {packet: tuple(sorted(overloads)) for packet, overloads in found.items()}


def _aliases(schema: Schema) -> bool:
    return any(a.alias for a in (*schema.arguments, *schema.returns))


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


def functional_call(
    node: OpNode, twin: Twin, schema: Schema, target: Schema, written: TensorMeta
) -> OpNode:
    """Make the call of the functional operator, under the original's name and outputs."""
    slots = _operands(twin, node)
    attrs = _attributes(twin, node, schema, target)
    factory = target.argument("dtype")
    if factory is not None and schema.argument("dtype") is None and "dtype" not in attrs:
        attrs["dtype"] = DType(written.dtype)
    used = sorted({slot for item in slots.values() for slot in _flat_slots(item)})
    place = {slot: position for position, slot in enumerate(used)}
    return node.replace(
        op_type=twin.op_type,
        inputs=tuple([node.inputs[slot] for slot in used]),
        attrs=attrs,
        operands={
            name: tuple([None if slot is None else place[slot] for slot in item])
            if isinstance(item, tuple)
            else (None if item is None else place[item])
            for name, item in slots.items()
        },
    )


def _flat_slots(slots: Slots) -> list[int]:
    return [s for s in (slots if isinstance(slots, tuple) else (slots,)) if s is not None]


def fresh_results(schema: Schema) -> list[int]:
    """Return the positions of the results that are none of the written arguments."""
    return [position for position, result in enumerate(schema.returns) if not result.alias]
