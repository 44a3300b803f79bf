"""A program beside a lowered form of it: values that both have, and the regions between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch

from torch_ir.backends.delegate import CALL
from torch_ir.debug.comparing.isolation import Feed, Found
from torch_ir.debug.comparing.judgment import PartFault
from torch_ir.debug.comparing.sources import TorchSource, external_tensors, part_of
from torch_ir.debug.reference.denotation import meaning_of
from torch_ir.debug.reference.tolerance_check import VALUES_OPEN, Error
from torch_ir.errors import Raised, attempt, error_text
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.passes.functionalization import without_writes
from torch_ir.passes.requirements import is_functional

Tensors = Mapping[str, torch.Tensor]


def aligned_regions(
    state: Feed, lowered: IR, weights: Tensors | None, constants: Tensors | None
) -> Iterator[Found]:
    """Judge each region of a lowered program on the values of the other side, in program order."""
    program = state.program
    lowered = lowered if is_functional(lowered) else without_writes(lowered)
    there = _aligned(program, lowered)
    external = external_tensors(lowered, weights, constants)
    inputs = zip(program.input_names, lowered.input_names, strict=True)
    values: dict[str, torch.Tensor] = {**external, **{b: state.values[a] for a, b in inputs}}
    kept: dict[str, torch.Tensor] = {**state.values}
    seen: set[str] = set(state.values)
    for node in program.nodes:
        known = state.known(node)
        state.keep(node, known)
        kept |= known
        shown = [m for m in node.outputs if m.name in there and state.has(m.name)]
        is_right = True
        for meta in shown:
            own = _back(program, meta.name, seen)
            theirs = _back(lowered, there[meta.name].name, set(values))
            found = list(
                _region(state, lowered, own, theirs, meta, there[meta.name], kept, values)
            )
            is_right = is_right and not (found and state.is_refuted(own, [meta], known))
            yield from found
        for meta in shown if is_right else ():
            seen.add(meta.name)
            values.setdefault(there[meta.name].name, known[meta.name])  # one that is given stays
        if not node.outputs:
            state.covered.add(node.name)
        elif lacking := state.lacking(node):
            state.reasons[node.name] = lacking
    _cover_the_rest(state)


def _region(
    state: Feed,
    lowered: IR,
    own: list[OpNode],
    theirs: list[OpNode],
    meta: TensorMeta,
    there: TensorMeta,
    kept: Tensors,
    values: Tensors,
) -> Iterator[Found]:
    """Judge one value, which both programs have."""
    names = {node.name for node in own}
    body = part_of(state.program, own, [meta])
    part = part_of(lowered, theirs, [there])
    meaning, other = (meaning_of(p.replace(signature=None)) for p in (body, part))
    if isinstance(meaning, str) or isinstance(other, str):
        why = meaning if isinstance(meaning, str) else str(other)
        state.reasons.update(dict.fromkeys(names, why))
        return
    if meaning.open_reason or other.open_reason:
        is_open = all(node.op_type in VALUES_OPEN for node in own)
        if is_open:  # shape and type are all that there is
            state.covered |= names
        else:
            state.reasons.update(dict.fromkeys(names, meaning.open_reason or other.open_reason))
        return
    results = attempt(TorchSource().call, part, values, state.symbols)
    if isinstance(results, Raised):  # a wrong program may raise anything
        told = Error(part=float("inf"), reason=error_text(results.error))
        yield Found(tuple(own), PartFault(meta.name, "error", told))
        return
    call = OpNode("part", CALL, part.graph_inputs, part.graph_outputs)
    judging = state.judging
    slack = {}
    if results and results[0].shape == kept[meta.name].shape:
        known = {there.name: kept[meta.name]}
        if not judging.form_faults(part, known, results):
            found = list(judging.allowed(call, other, values, results))
            slack = dict(zip([meta.name], [allowed.bound for allowed in found], strict=False))
    faults = judging.faults(body, meaning, kept, kept, results, slack=slack)
    if isinstance(faults, str):
        state.reasons.update(dict.fromkeys(names, faults))
        return
    blamed = _blamed(own, theirs)
    state.compared.add(state.program.producers[meta.name].name)
    state.covered |= names
    for fault in faults:
        yield Found(blamed, fault)


def _blamed(own: list[OpNode], theirs: list[OpNode]) -> tuple[OpNode, ...]:
    """The nodes of the region of which the lowered ones are made; all if nothing says so."""
    made_of = {name for node in theirs for name in node.made_of}
    found = tuple([node for node in own if made_of & _calls_and_names(node)])
    return found or tuple(own)


def _calls_and_names(node: OpNode) -> set[str]:
    """What a node is made of, and the calls around it: ``a.b`` is a node of what ``a`` calls."""
    parts = [name.split(".") for name in node.made_of]
    return {".".join(names[:end]) for names in parts for end in range(1, len(names) + 1)}


def _back(ir: IR, name: str, known: set[str]) -> list[OpNode]:
    """The nodes that a value needs and that known values do not cut off, in program order."""
    found: set[str] = set()
    wanted = [name]
    while wanted:
        value = wanted.pop()
        node = ir.producers.get(value)
        if node is None or node.name in found or (value in known and value != name):
            continue
        found.add(node.name)
        wanted += [meta.name for meta in node.inputs]
    positions: Mapping[str, int] = ir.view(
        "positions", lambda: {node.name: i for i, node in enumerate(ir.nodes)}
    )
    return [ir.nodes[i] for i in sorted(positions[n] for n in found)]


def _aligned(program: IR, lowered: IR) -> dict[str, TensorMeta]:
    """The value of the lowered program that each value is, by its name."""
    found: dict[str, TensorMeta] = {}
    exits, own_exits = _exits(lowered), _exits(program)
    made = {meta.name: meta for node in lowered.nodes for meta in node.outputs}
    outputs = dict(zip(program.output_names, lowered.graph_outputs, strict=False))
    places = dict(zip(lowered.input_names, program.input_names, strict=True))
    written = {places.get(m.target, m.target): m.value for m in lowered.mutations}
    outputs |= {m.value.name: written[m.target] for m in program.mutations if m.target in written}
    for node in program.nodes:
        group = exits.get(node.made_of, [])
        for meta in node.outputs:
            same = made.get(meta.name) or outputs.get(meta.name)
            alike = _of_type(group, meta)
            is_exit = _of_type(own_exits.get(node.made_of, []), meta) == [meta]
            if same is None and len(node.outputs) == 1 and len(alike) == 1 and is_exit:
                same = alike[0]
            if same is not None and (same.shape, same.dtype) == (meta.shape, meta.dtype):
                found[meta.name] = same
            elif meta.name in made:
                found[meta.name] = made[meta.name]
    return found


def _of_type(values: Iterable[TensorMeta], meta: TensorMeta) -> list[TensorMeta]:
    return [other for other in values if (other.shape, other.dtype) == (meta.shape, meta.dtype)]


def _exits(ir: IR) -> dict[tuple[str, ...], list[TensorMeta]]:
    """What leaves the nodes that are made of the same: results that others read or return."""
    returned = {*ir.output_names, *(m.value.name for m in ir.mutations)}
    found: dict[tuple[str, ...], list[TensorMeta]] = {}
    for node in ir.nodes:
        for meta in node.outputs:
            users = ir.users.get(meta.name, ())
            leaves = meta.name in returned or any(u.made_of != node.made_of for u in users)
            if leaves:
                found.setdefault(node.made_of, []).append(meta)
    return found


def _cover_the_rest(state: Feed) -> None:
    """What no result needs is lost nowhere."""
    needed = nodes_for(state.program)
    for node in state.program.nodes:
        if node.name not in needed:
            state.covered.add(node.name)
        elif node.name not in state.compared | state.covered:
            state.reasons.setdefault(node.name, "the lowered program has no value of it")


def nodes_for(program: IR, names: Iterable[str] | None = None) -> set[str]:
    """Return the names of the nodes that values need; what the program gives if none are named."""
    kept = [*program.output_names, *(m.value.name for m in program.mutations)]
    needed: set[str] = set()
    wanted = kept if names is None else [*names]
    while wanted:
        node = program.producers.get(wanted.pop())
        if node is not None and node.name not in needed:
            needed.add(node.name)
            wanted += [meta.name for meta in node.inputs]
    return needed
