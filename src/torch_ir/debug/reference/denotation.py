"""The denotation of single nodes: their own, or that of their decomposition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from torch_ir.debug.reference.allowance import OPEN, Allowance, Drift
from torch_ir.debug.reference.blocks import blocks
from torch_ir.debug.reference.choices import KernelChoice, following, is_alike, related
from torch_ir.debug.reference.openness import lost_places, open_places, puts_twice
from torch_ir.debug.reference.repeated_writes import settle_repeated
from torch_ir.debug.reference.tolerance_check import Error, as_ordered, within
from torch_ir.dialects.backend.binding import bindings
from torch_ir.errors import PassError, TorchIRError
from torch_ir.ir import IR, Mutation, OpNode, TensorMeta
from torch_ir.ir.aliases import written_tensors
from torch_ir.ir.builder import subgraph
from torch_ir.ir.expressions import Number
from torch_ir.ir.node import distinct_inputs
from torch_ir.ir.queries import given_values, kept_values, op_types
from torch_ir.ops.bodies import AUTOCAST_REGION
from torch_ir.ops.choices import (
    VALUES_OPEN,
    leaves_choice,
    leaves_order_open,
)
from torch_ir.passes.decomposition import decomposed
from torch_ir.passes.functionalization import without_writes
from torch_ir.semantics import denotation, has_denotation
from torch_ir.semantics.arguments import arguments_of, as_array
from torch_ir.semantics.bounds.algebra.relations import relation
from torch_ir.semantics.chain import FORMS, bounded
from torch_ir.semantics.dtypes import NO_COMPLEX32, Array, is_inexact, numpy_dtype
from torch_ir.semantics.numbers import flat
from torch_ir.semantics.spread import deep_values, is_wide, settled, share, spread
from torch_ir.semantics.tolerance import (
    bound,
    drift_at,
    leaves_drift,
    states_tolerance,
    subtracts,
)

DRAWS = "it draws random numbers"
LOST = "beside what is not finite, or overflows, other steps give other results"
PUT_TWICE = "several values are put at one place, and which stays is open"
WRITTEN_TWICE = "it writes to one place in memory more than once"
REFUSED = "the denotation refuses it"


@dataclass(frozen=True, slots=True)
class Meaning:
    """A node as a program of its own, in operators that have a denotation.

    Attributes:
        ir: The program. Its inputs are the node's distinct inputs, its outputs those of the node.
        is_decomposed: Whether it is more than the node itself.
        draws: Whether random numbers may be drawn: then only shapes and types can be compared.
        is_written_out: Whether one operator is written as several: a kernel may take other steps.
    """

    ir: IR
    is_decomposed: bool
    draws: bool
    is_written_out: bool = False

    @property
    def steps(self) -> np.dtype[Any] | None:
        """The 16-bit type of all inputs to which a kernel may round each step; None for others."""
        if not self.is_written_out:
            return None
        given = {numpy_dtype(meta.dtype) for meta in self.ir.graph_inputs}
        inexact = {dtype for dtype in given if is_inexact(dtype)}
        return next((d for d in inexact if d.itemsize == 2 and len(inexact) == 1), None)

    @property
    def is_plain(self) -> bool:
        """Whether it is one call, whose results say by themselves whether they are right."""
        first, *more = self.ir.nodes or (None,)
        if first is None or more or self.is_decomposed or self.draws or self.has_open_values:
            return False
        return relation(first.op_type) is None

    @property
    def has_open_values(self) -> bool:
        """Whether memory is read that nothing has written: of some elements any value is right."""
        return not VALUES_OPEN.isdisjoint(op_types(self.ir))

    @property
    def has_choices(self) -> bool:
        """Whether results may follow from which elements a call on the way to them names."""
        nodes = self.ir.nodes
        has_ties = len(nodes) > 1 and any(leaves_choice(n.op_type, n.attrs) for n in nodes)
        return has_ties or puts_twice(self.ir)

    @property
    def choice_reason(self) -> str:
        """Why nothing can be said of values that follow from choices."""
        return PUT_TWICE if puts_twice(self.ir) else OPEN

    @property
    def open_reason(self) -> str:
        """Why only shapes and types can be compared; empty if values can."""
        return DRAWS if self.draws else ""


def alone(ir: IR, node: OpNode) -> IR:
    """Make a program of one node; its distinct inputs are the program's.

    Of one that writes it is a program before functionalization, whatever it comes from.
    """
    program = subgraph(ir, [node], node.outputs)
    written = dict.fromkeys(meta.name for meta in written_tensors(ir, node) or ())
    mutations = [Mutation(name, given_values(program)[name]) for name in written]
    dialect = "export" if mutations else program.dialect
    return program.replace(mutations=mutations, symbols=ir.symbols, dialect=dialect)


class Meanings:
    """What the nodes of a program mean; calls of the same kind are looked at once.

    All are found at once, as torch's tracing is not possible while a graph runs.

    Args:
        ir: The program.
    """

    def __init__(self, ir: IR):
        known: dict[Any, Meaning | str] = {}
        self._of: dict[str, Meaning | str] = {}
        for node in ir.nodes:
            kind = _nameless(node)
            if kind not in known:
                known[kind] = meaning_of(alone(ir, _resized(ir, kind)))
            self._of[node.name] = known[kind]

    def of(self, node: OpNode) -> Meaning | str:
        """Return a node's denotation, or the reason why it has none."""
        return self._of[node.name]


def _nameless(node: OpNode) -> OpNode:
    """The node with names that do not tell it from others of its kind."""
    inputs = {meta.name: f"x{i}" for i, meta in enumerate(distinct_inputs(node))}
    outputs = [
        meta.replace(
            name="node" if meta.name == node.name else f"node.{meta.producer_output_idx}",
            producer_node="node",
        )
        for meta in node.outputs
    ]
    return node.replace(
        name="node",
        inputs=[TensorMeta(inputs[m.name], m.shape, m.dtype) for m in node.inputs],
        outputs=outputs,
        location=None,
    )


def _resized(ir: IR, node: OpNode) -> OpNode:
    """The call with the tensors of ``out=`` in the shapes that it gives them.

    It reads nothing of what they were before.
    """
    schema = ir.schema_of(node.op_type)
    if schema is None:
        return node
    inputs, names = list(node.inputs), [meta.name for meta in node.inputs]
    aliases = [result.alias for result in schema.returns]
    for argument in schema.arguments:
        slot = node.slots.get(argument.name)
        if not (argument.is_written and argument.keyword_only and isinstance(slot, int)):
            continue
        for meta in node.outputs:
            is_given = aliases[meta.producer_output_idx] == argument.alias
            if is_given and names.count(names[slot]) == 1:
                inputs[slot] = inputs[slot].replace(shape=meta.shape)
    return node if inputs == list(node.inputs) else node.replace(inputs=inputs)


def meaning_of(program: IR) -> Meaning | str:
    """Return a program without weights in operators that have a denotation, or why there is none.

    It is decomposed where some operator has none of its own.
    """
    metas = [meta for n in program.nodes for meta in (*n.inputs, *n.outputs)]
    if any(meta.dtype == "complex32" for meta in metas):
        return NO_COMPLEX32
    nodes = [node for _, _, node in program.walk()]
    if any(n.op_type == AUTOCAST_REGION and n.attrs.get("enabled", True) for n in nodes):
        return "autocast changes the types of calls that are not written down"
    if not program.mutations and _lacking(program) is None:
        return _stated(Meaning(program, False, _draws(program)))
    try:
        functional = without_writes(program)
        if _lacking(functional) is not None:
            functional = decomposed(functional, table=_patterns(functional))
    except PassError as error:
        return error.message if error.picture is None else f"{error.message}: {error.picture}"
    lacking = _lacking(functional)
    if lacking is not None:
        return f"{lacking} has no denotation"
    (first, *more), count = program.nodes, len(functional.nodes)
    is_written_out = not more and first.op_type.startswith("aten.") and count > 1
    return _stated(Meaning(functional, True, _draws(functional), is_written_out))


def _patterns(ir: IR) -> dict[str, Any]:
    """The patterns for which operators that a program calls stand, also those with a kernel."""
    called, known = op_types(ir), bindings().items()
    return {name: found.pattern for name, found in known if found.is_meaning and name in called}


def _stated(meaning: Meaning) -> Meaning | str:
    """The meaning, or why nothing can be compared with it."""
    unstated = [name for name in op_types(meaning.ir) if not states_tolerance(name)]
    if not unstated:
        return meaning
    return f"no tolerance is stated for {unstated[0]}; give denotes(…, tolerance=…)"


def _lacking(ir: IR) -> str | None:
    return next((name for name in op_types(ir) if not has_denotation(name)), None)


def _draws(ir: IR) -> bool:
    """Whether random numbers may be drawn: the arguments say whether an operator that can does."""
    own = any(denotation(n.op_type).draws and ir.effects(n).draws for n in ir.nodes)
    return own or any(map(_draws, ir.functions.values()))


# -- comparing ------------------------------------------------------------------------------------


def errors_of(
    meaning: Meaning,
    node: OpNode,
    inputs: Sequence[torch.Tensor],
    symbols: Mapping[str, Number],
    outputs: Sequence[torch.Tensor],
    written: Mapping[str, torch.Tensor],
    *,
    drew: bool,
) -> Iterator[tuple[str, Error]]:
    """Yield the difference of each value that a node made from its denotation.

    Args:
        meaning: What the node means.
        node: The node.
        inputs: The tensors of its inputs, as they were before it ran.
        symbols: The symbols known by then.
        outputs: What it made.
        written: The inputs to which it wrote, by name, as they were after it ran.
        drew: Whether it drew random numbers.

    Raises:
        TorchIRError: The denotation refuses the inputs.
    """
    given = None
    if meaning.is_plain and not written:
        parts = _by_blocks(meaning, node, inputs, symbols, outputs)
        if parts is None:
            given = evaluate(meaning, node, inputs, symbols)
            parts = _at_once(meaning, node, outputs, given)
        if parts is not None:
            yield from parts.items()
            return
    for found in allowances(
        meaning, node, inputs, symbols, outputs, written, drew=drew, evaluated=given
    ):
        yield found.value, found.error(found.bound)


def _at_once(
    meaning: Meaning, node: OpNode, outputs: Sequence[torch.Tensor], given: Evaluated
) -> dict[str, Error] | None:
    """The errors of values that are what is meant, whatever kernels may choose; else None."""
    if not all(map(_holds_truth, given.values.values())):
        return None
    apart = subtracts(meaning.ir.nodes[0].op_type)
    found: dict[str, Error] = {}
    for meta, name, tensor in zip(node.outputs, meaning.ir.output_names, outputs, strict=True):
        bound = given.bounds[name]
        error = within(given.made[name], as_array(tensor), bound, subtracts=apart)
        if error.reason:
            return None
        found[meta.name] = replace(error, loose=OPEN) if _bounds_nothing(bound) else error
    return found


def _by_blocks(
    meaning: Meaning,
    node: OpNode,
    inputs: Sequence[torch.Tensor],
    symbols: Mapping[str, Number],
    outputs: Sequence[torch.Tensor],
) -> dict[str, Error] | None:
    """The errors of large values read in blocks; None to read them at once, which tells faults."""
    (call,) = meaning.ir.nodes
    worst: dict[str, Error] = {}
    bounded: set[str] = set()
    for part, given, made in blocks(call, inputs, outputs):
        names = (meta.name for meta in part.inputs)
        values = dict(zip(names, map(as_array, given), strict=True))
        if not all(map(_holds_truth, values.values())):
            return None
        try:
            with np.errstate(all="ignore"):
                arguments = arguments_of(part, values.__getitem__, symbols)
                results = flat(denotation(call.op_type).function(**arguments))
                bounds = bound(call.op_type, arguments, results) or ()
        except TorchIRError:
            return None
        if len(bounds) != len(results):
            return None
        for meta, tensor in zip(node.outputs, made, strict=True):
            index = meta.producer_output_idx
            apart = subtracts(call.op_type)
            error = within(results[index], as_array(tensor), bounds[index], subtracts=apart)
            if error.reason:
                return None
            worst[meta.name] = worst.get(meta.name, Error()).or_worse(error)
            if not _bounds_nothing(bounds[index]):
                bounded.add(meta.name)
    return {n: e if n in bounded else replace(e, loose=OPEN) for n, e in worst.items()} or None


class Evaluated(NamedTuple):
    """What a meaning gives for some inputs.

    Attributes:
        values: The inputs, by their names in the meaning.
        made: Its results, and what they are made of.
        bounds: How far a kernel's may be off.
    """

    values: Mapping[str, Array]
    made: Mapping[str, Any]
    bounds: Mapping[str, Any]


def evaluate(
    meaning: Meaning,
    node: OpNode,
    inputs: Sequence[torch.Tensor | Array],
    symbols: Mapping[str, Number],
    errors: Mapping[str, Array] | None = None,
    written: Mapping[str, torch.Tensor] | None = None,
) -> Evaluated:
    """Return what a node's meaning gives, with the arguments of `allowances`.

    Raises:
        TorchIRError: The denotation refuses the inputs.
    """
    taken = _taken(meaning, node)
    values = _arguments(taken, node, inputs, written or {})
    off = {taken[name].name: error for name, error in (errors or {}).items()}
    with np.errstate(all="ignore"):
        return Evaluated(values, *_evaluated(meaning, values, symbols, off))


def _taken(meaning: Meaning, node: OpNode) -> dict[str, TensorMeta]:
    """What its meaning takes for each input of a node, by name."""
    own = [meta.name for meta in distinct_inputs(node)]
    return dict(zip(own, meaning.ir.graph_inputs, strict=True))


def allowances(
    meaning: Meaning,
    node: OpNode,
    inputs: Sequence[torch.Tensor | Array],
    symbols: Mapping[str, Number],
    outputs: Sequence[torch.Tensor],
    written: Mapping[str, torch.Tensor],
    *,
    drew: bool = False,
    errors: Mapping[str, Array] | None = None,
    evaluated: Evaluated | None = None,
) -> Iterator[Allowance]:
    """Yield what each value of a node may be.

    Arguments and errors are those of `errors_of`; inputs may be arrays, and ``errors`` is how far
    they may be off, by name, with the sign where that is known. ``evaluated`` is what `evaluate`
    gave for them, where that is known.
    """
    taken = _taken(meaning, node)
    given = evaluated or evaluate(meaning, node, inputs, symbols, errors, written)
    values, made, bounds = given.values, dict(given.made), dict(given.bounds)
    is_chain = len(meaning.ir.nodes) > 1
    left = {taken[name].name: (name, tensor) for name, tensor in written.items()}
    triples = _named(meaning, node, outputs, left)
    got_by_name = {name: as_array(tensor) for _, name, tensor in triples}
    ordered = _in_kernel_order(meaning, made, bounds, got_by_name, symbols)
    marks, has_open, is_drawn = dict[str, Array](), False, meaning.draws and drew
    if not is_drawn:
        marks, has_open = _open_places(meaning, values, bounds, got_by_name, symbols)

    def again(held: Mapping[str, Array]) -> Mapping[str, Any]:
        return _evaluated(meaning, {**values, **held}, symbols, {})[0]

    equations = related(meaning.ir, given.made, given.bounds, got_by_name, symbols)
    for label, name, _ in triples:
        yield from _sides(label, equations.get(name, ()), is_chain)
    pairs = [(label, name) for label, name, _ in triples if name not in equations]
    repeated = settle_repeated(meaning.ir.mutations, left, values, (made, bounds), again)
    for label, name in pairs:
        got = got_by_name[name]
        if is_drawn and is_alike(made[name], got):
            continue
        choice = KernelChoice(meaning.ir, name, made, bounds, got, symbols)
        expected, bound, is_told = choice.meant(meaning.is_decomposed, name in repeated, is_chain)
        part = share(expected, bound) if is_chain else 0.0
        apart = is_chain or any(subtracts(call.op_type) for call in meaning.ir.nodes)
        unordered, reason = marks.get(name), meaning.choice_reason
        if has_open and unordered is not None:
            bound = np.where(unordered, np.inf, bound)
        is_open = (has_open and name in marks) or (not is_chain and _bounds_nothing(bound))
        if name in repeated:
            unordered, reason = repeated[name] | marks.get(name, False), WRITTEN_TWICE
        chosen = None if is_told or is_open else unordered
        if name in ordered or (not meaning.is_decomposed and name in following(meaning.ir)):
            chosen = np.full(expected.shape, name not in ordered)
        if chosen is None and not is_open and meaning.is_written_out:
            chosen = lost_places(meaning.ir, values, symbols, expected, got, meaning.steps)
            reason = LOST
        how = chosen, reason, _drift(meaning, values, made, symbols), unordered
        yield Allowance(label, expected, got, bound, part, apart, is_open, *how)


def _sides(
    label: str, equations: Sequence[tuple[Array, Array, Array]], is_chain: bool
) -> Iterator[Allowance]:
    """What has to hold for a value that equations judge."""
    for expected, got, allowed in equations:
        part = share(expected, allowed) if is_chain else 0.0
        yield Allowance(label, expected, got, allowed, part, is_relation=True)


def _named(
    meaning: Meaning,
    node: OpNode,
    outputs: Sequence[torch.Tensor],
    left: Mapping[str, tuple[str, torch.Tensor]],
) -> list[tuple[str, str, torch.Tensor]]:
    """The values of a node: what each is called, its name in the meaning, and the tensor."""
    targets = {m.target: m.value.name for m in meaning.ir.mutations}
    names = [meta.name for meta in node.outputs]
    triples = [*zip(names, meaning.ir.output_names, outputs, strict=True)]
    return triples + [
        (f"written {n}", targets[k], t) for k, (n, t) in left.items() if k in targets
    ]


def _drift(
    meaning: Meaning,
    values: Mapping[str, Array],
    made: Mapping[str, Any],
    symbols: Mapping[str, Number],
) -> Drift | None:
    """What says how far elements of a product may be off besides their bounds."""
    call = meaning.ir.nodes[0] if len(meaning.ir.nodes) == 1 else None
    if call is None or not leaves_drift(call.op_type):
        return None
    results = [made[meta.name] for meta in call.outputs]
    arguments = arguments_of(call, values.__getitem__, symbols)
    return drift_at(call.op_type, arguments, results)


def _open_places(
    meaning: Meaning,
    given: Mapping[str, Array],
    bounds: Mapping[str, Any],
    got: Mapping[str, Array],
    symbols: Mapping[str, Number],
) -> tuple[dict[str, Array], bool]:
    """The elements of each value that are open, and whether anything may stand there."""
    if not all(map(_holds_truth, given.values())):
        return {name: np.ones(array.shape, bool) for name, array in got.items()}, True
    if not (meaning.has_open_values or meaning.has_choices):
        return {}, False
    slack = None if meaning.has_open_values else bounds
    marks = open_places(meaning.ir, [*got], given, symbols, slack)
    return {name: mark for name, mark in marks.items() if mark.any()}, meaning.has_open_values


def _arguments(
    taken: Mapping[str, TensorMeta],
    node: OpNode,
    inputs: Sequence[torch.Tensor | Array],
    written: Mapping[str, torch.Tensor],
) -> dict[str, Array]:
    """The values of a node's inputs, by their names in its meaning."""
    given = {m.name: tensor for m, tensor in zip(node.inputs, inputs, strict=True)}
    for meta in node.inputs:
        if meta.name in written and taken[meta.name].shape != meta.shape:  # ``out=`` is not read
            given[meta.name] = torch.zeros_like(written[meta.name])
    return {taken[m.name].name: _as_declared(given[m.name], m.dtype) for m in node.inputs}


def _as_declared(given: torch.Tensor | Array, dtype: str) -> Array:
    """A value in the wider type that it is declared with: torch infers one for some results."""
    values, declared = as_array(given), numpy_dtype(dtype)
    is_wider = is_inexact(values.dtype) and values.dtype.itemsize < declared.itemsize
    return values.astype(declared) if is_wider and is_inexact(declared) else values


def _holds_truth(values: Array) -> bool:
    """Whether all truth values are 0 or 1: of another byte, kernels read what they like."""
    return values.dtype != bool or not np.any(values.view("uint8") > 1)


def _bounds_nothing(bound: Array) -> bool:
    """Whether any numbers are within a bound: then a value is not compared."""
    return bool(np.size(bound)) and bool(np.all(bound == np.inf))


def _in_kernel_order(
    meaning: Meaning,
    made: dict[str, Any],
    bounds: dict[str, Any],
    got: Mapping[str, Array],
    symbols: Mapping[str, Number],
) -> set[str]:
    """Bring values whose order is open, and their bounds, into the kernel's; return the names."""
    ordered: set[str] = set()
    for maker in meaning.ir.nodes:
        if not leaves_order_open(maker.op_type, maker.attrs):
            continue
        names = {meta.producer_output_idx: meta.name for meta in maker.outputs if meta.name in got}
        chosen = [got.get(names.get(index, "")) for index in (0, 1)]
        arguments = arguments_of(maker, made.__getitem__, symbols) if names else {}
        for name in names.values():
            arrays = [made[name], np.broadcast_to(bounds[name], np.shape(made[name]))]
            made[name], bounds[name] = as_ordered(arguments, chosen[0], chosen[1], arrays)
            ordered.add(name)
    return ordered


def _evaluated(
    meaning: Meaning,
    values: Mapping[str, Array],
    symbols: Mapping[str, Number],
    errors: Mapping[str, Array],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results of a meaning, what they are made of, and how far a kernel's may be off."""
    ir = meaning.ir
    makers = [ir.producers[name] for name in kept_values(ir) if name in ir.producers]
    keep = kept_values(ir).union(meta.name for node in makers for meta in node.inputs)
    forms = FORMS if len(ir.nodes) > 1 else 1  # of what the chain itself rounds
    given = {name: np.abs(error) / forms for name, error in errors.items()}
    deep = deep_values(ir) & keep if forms > 1 else frozenset[str]()
    known = keep - deep
    made, bounds = bounded(ir, values, symbols, given, known, meaning.steps)
    if forms == 1:
        return made, bounds
    bounds = {name: forms * error for name, error in bounds.items()}
    wide = [n for n in known if isinstance(made[n], np.ndarray) and is_wide(made[n], bounds[n])]
    if not (wide or deep):
        return made, bounds
    made, seen = spread(ir, values, symbols, errors, keep, meaning.steps)
    return made, {**bounds, **{n: settled(made[n], seen[n]) for n in (*wide, *deep)}}
