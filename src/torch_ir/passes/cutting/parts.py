"""Parts of a program as programs: what some values need, or some nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch_ir.errors import InvalidIRError, PassError, did_you_mean
from torch_ir.infer.bindings import with_checked_sizes
from torch_ir.ir import IR, OpNode, Signature, SymExpr, TensorMeta, ValueLeaf
from torch_ir.ir.aliases import written_tensors
from torch_ir.ir.analysis.fingerprints import fingerprint, function_fingerprints
from torch_ir.ir.builder import with_inputs
from torch_ir.ir.diagnostics import at
from torch_ir.ir.functions import written_out
from torch_ir.ir.node import module_of, needs
from torch_ir.ir.queries import (
    every_value,
    externals_of,
    live_out,
    shown_symbols,
    symbols_in,
    tables_for,
)
from torch_ir.ir.values import attribute_symbols


def cut_part(
    ir: IR,
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    nodes: Sequence[str] | None = None,
) -> IR:
    """Cut a part out of a program; see :func:`torch_ir.cut`.

    Raises:
        InvalidIRError: There is no such value or node; the message names the closest.
        PassError: A write to memory would be on one side, and its memory on both.
    """
    ir = _with_names(ir, nodes if nodes is not None else (*inputs, *outputs))
    part = _by_nodes(ir, nodes) if nodes is not None else _by_values(ir, inputs, outputs)
    _require_no_write_across(ir, part)
    return with_checked_sizes(program_of(ir, part))


def nodes_alone(ir: IR, names: Sequence[str]) -> IR:
    """Return some nodes as a program, as :func:`cut_part`, whatever others write to its memory.

    Raises:
        InvalidIRError: There is no such node.
    """
    return program_of(ir, _by_nodes(ir, names))


def nodes_around(ir: IR, names: Iterable[str], steps: int) -> tuple[str, ...]:
    """Return the names of nodes within some steps of given ones, up and down, in program order.

    Raises:
        InvalidIRError: There is no such node.
    """
    names = tuple(names)
    ir = _with_names(ir, names)
    found = {ir.node(name).name for name in names}
    front = set(found)
    for _ in range(min(steps, len(ir.nodes))):
        near: set[str] = set()
        for name in front:
            node = ir.by_name[name]
            near |= {ir.producers[m.name].name for m in node.inputs if m.name in ir.producers}
            near |= {user.name for m in node.outputs for user in ir.users.get(m.name, ())}
        front = near - found
        found |= near
    return tuple([node.name for node in ir.nodes if node.name in found])


def _with_names(ir: IR, names: Sequence[str]) -> IR:
    """The program, with its calls written out where names are of what is inside of them."""
    known = ir.by_name.keys() | ir.value_names
    if known.issuperset(names) or written_out(ir) is ir:
        return ir
    flat = written_out(ir)
    return flat if (flat.by_name.keys() | flat.value_names).issuperset(names) else ir


def module_fingerprints(ir: IR, **options: bool) -> dict[str, str]:
    """Return the fingerprint of each function, ``&name``, and of the nodes of each module.

    Args:
        ir: A functional program.
        options: As those of :func:`torch_ir.fingerprint`.

    Raises:
        PassError: A module writes memory that another one uses.
    """
    found = {f"&{name}": made for name, made in function_fingerprints(ir, **options).items()}
    members: dict[str, list[str]] = {}
    for node in ir.nodes:
        path = module_of(node)
        while path:
            members.setdefault(path, []).append(node.name)
            path = path.rpartition(".")[0]
    parts = {path: cut_part(ir, nodes=names) for path, names in sorted(members.items())}
    return found | {path: fingerprint(part, **options) for path, part in parts.items()}


@dataclass(frozen=True, slots=True)
class CutPart:
    """What is kept: the nodes in order, the values cut off, the values returned."""

    nodes: tuple[OpNode, ...]
    taken: tuple[str, ...]
    returned: tuple[TensorMeta, ...]


def _require_values(names: Iterable[str], known: Mapping[str, TensorMeta]) -> None:
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise InvalidIRError(f"there is no value %{name} in the program", remedy=hint)


def _by_values(ir: IR, inputs: Sequence[str], outputs: Sequence[str]) -> CutPart:
    metas = every_value(ir)
    _require_values((*inputs, *outputs), metas)
    returned = [metas[name] for name in outputs] if outputs else list(ir.graph_outputs)
    cut_off = set(inputs)
    binders = {symbol: node for node in ir.nodes for symbol in _bound(node)}
    shown = shown_symbols(metas[name] for name in inputs) | ir.given_symbols
    needed: dict[str, OpNode] = {}
    wanted = [meta.name for meta in returned]
    while wanted:
        name = wanted.pop()
        node = ir.producers.get(name)
        if name in cut_off or node is None or node.name in needed:
            continue
        needed[node.name] = node
        wanted += [meta.name for meta in node.inputs]
        made = _bound(node)
        for symbol in node.symbols - shown - made:
            binder = binders.get(symbol)
            if binder is not None and cut_off.isdisjoint([m.name for m in binder.outputs]):
                wanted += [meta.name for meta in binder.outputs]
    nodes = tuple([node for node in ir.nodes if node.name in needed])
    used = needs(nodes, returned)  # not if it is made for another result
    return CutPart(nodes, tuple(dict.fromkeys([n for n in inputs if n in used])), tuple(returned))


def _by_nodes(ir: IR, names: Sequence[str]) -> CutPart:
    kept = {ir.node(name).name for name in names}
    nodes = tuple([node for node in ir.nodes if node.name in kept])
    used = needs(nodes)
    taken = tuple([m.name for n in ir.nodes for m in n.outputs if m.name in used])
    return CutPart(nodes, taken, tuple(live_out(ir, nodes, unread=True)))


def _bound(node: OpNode) -> set[str]:
    """The symbols that a node gives their values."""
    asked = {symbol for value in node.attrs.values() for symbol in attribute_symbols(value)}
    return {*node.binds, *(shown_symbols(node.outputs) - symbols_in(node.inputs) - asked)}


def _require_no_write_across(ir: IR, part: CutPart) -> None:
    """Refuse a part where one side writes memory that the other one sees."""
    kept = {node.name for node in part.nodes}
    whole = len(kept) == len(ir.nodes)
    writers = [] if whole else [(n, written_tensors(ir, n)) for n in ir.nodes]
    for writer, written in writers:
        if not written:
            continue
        roots = frozenset[str]().union(*[ir.aliases.roots(meta.name) for meta in written])
        for node in ir.nodes:
            touches = any(
                roots & ir.aliases.roots(meta.name) for meta in (*node.inputs, *node.outputs)
            )
            if touches and (node.name in kept) != (writer.name in kept):
                raise PassError(
                    f"node {writer.name!r} writes memory that node {node.name!r} on the other "
                    f"side of the cut uses{at(writer.location, ' ({})')}",
                    remedy="Apply torch_ir.functionalize first.",
                )


def program_of(ir: IR, part: CutPart) -> IR:
    """Return a part as a program: it takes, returns and has what the part says and needs."""
    metas = every_value(ir)
    given = {name: TensorMeta(name, metas[name].shape, metas[name].dtype) for name in part.taken}
    nodes = [with_inputs(node, given) for node in part.nodes]
    returned = [given.get(meta.name, meta) for meta in part.returned]
    used = {meta.name for node in nodes for meta in node.inputs}
    used |= {meta.name for meta in returned}
    own = [meta for meta in ir.graph_inputs if meta.name in used and meta.name not in given]
    taken = [*given.values(), *own]
    changes: dict[str, Any] = {
        "nodes": nodes,
        "graph_inputs": taken,
        "graph_outputs": returned,
        **externals_of(ir, used - given.keys()),
        **tables_for(ir, nodes, (*taken, *returned)),
        "mutations": (),
        "signature": _signature(nodes, taken, returned),
    }
    return ir.replace(**changes)


def _signature(
    nodes: Sequence[OpNode], taken: Sequence[TensorMeta], returned: Sequence[TensorMeta]
) -> Signature | None:
    """The signature of a part that takes sizes which none of its inputs shows."""
    shown = shown_symbols(taken).union(*[_bound(node) for node in nodes])
    used = symbols_in((*taken, *returned)).union(*[node.symbols for node in nodes])
    missing = [SymExpr(symbol) for symbol in sorted(used - shown)]
    if not missing:
        return None
    given = (*[meta.name for meta in taken], *map(ValueLeaf, missing))
    return Signature.of(given, [meta.name for meta in returned])
