"""The order of work of a compiled graph: what is called, how, and what may be forgotten when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch

from torch_ir.infer.binder import BoundCall
from torch_ir.infer.bindings import Binding
from torch_ir.infer.dispatch import PythonBinding
from torch_ir.infer.meta import MetaResult
from torch_ir.ir import IR, FrozenDict
from torch_ir.ir.aliases import declared_sources
from torch_ir.ir.queries import (
    dead_after,
    external_keys,
    kept_values,
    last_uses,
    storage_ends,
)
from torch_ir.ops.aliases import Sharing
from torch_ir.ops.effects import never_writes
from torch_ir.ops.rules import allowances, judged
from torch_ir.weights.tensor_registry import DirectKernel

Roots: TypeAlias = frozenset[str]
"""The values whose storage a value may have: itself, if it is fresh."""


NOTHING: Roots = frozenset()

UNKNOWN = "?"
"""The storage of a result of which nothing is known; no value has this name."""


class Step(NamedTuple):
    """One node of a plan.

    Attributes:
        call: The node as a call.
        binding: The Python binding that stands for the operator; None calls the operator itself.
        in_place: The binding by which the result takes the place of the first argument; None if
            it must not.
        scalar: The element type of the tensor that stands for the second argument, a number; None
            gives the number.
        results: How many results the operator gives, flattened; None if only the run can tell.
        dead: Names of the values that nothing reads any more after it.
        symbols: The symbols that take their value from its results.
    """

    call: BoundCall
    binding: PythonBinding | None
    in_place: PythonBinding | None
    scalar: torch.dtype | None
    results: int | None
    dead: tuple[str, ...]
    symbols: tuple[Binding, ...]


@dataclass(frozen=True, slots=True)
class StateWrite:
    """A value that is written to an input or buffer when the program ends.

    Attributes:
        target: The name of the written value.
        value: The name of the value.
        is_copied_first: Whether the value may change as other targets are written.
        is_handed_over: Whether a buffer may take the value's memory in place of a copy: nothing
            else has or keeps it, and nothing shows the buffer's own.
    """

    target: str
    value: str
    is_copied_first: bool
    is_handed_over: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """A graph, ready to be written as Python.

    Attributes:
        ir: The graph.
        steps: Its nodes, in program order.
        external: The names of the weights and constants that it reads.
        writes: What is written when it ends.
        functions: The functions that its nodes refer to, by name.
        is_private: Whether no result shares storage with anything else, and nothing that was
            given is written: then no result depends on views that were not tracked.
        copied_outputs: The results that share storage with a buffer that the program writes: they
            are returned as copies, which the next run does not change.
        writes_inside: Whether in-place operators of the program write to any value.
        first_state_write: Position of the first step that writes to a buffer; None if none does.
        input_devices: The device of each input that has a place of its own, by name.
        default_dtype: torch's default dtype, if it decides what nodes give.
    """

    ir: IR
    steps: tuple[Step, ...]
    external: tuple[str, ...]
    writes: tuple[StateWrite, ...]
    functions: Mapping[str, Plan]
    is_private: bool
    copied_outputs: frozenset[str]
    writes_inside: bool
    first_state_write: int | None
    input_devices: Mapping[str, torch.device] = FrozenDict()
    default_dtype: torch.dtype | None = None


def make_plan(
    ir: IR,
    calls: Sequence[BoundCall],
    outcomes: Sequence[MetaResult | None],
    symbols: Sequence[tuple[Binding, ...]],
    functions: Mapping[str, Plan],
    *,
    reuse: bool,
    on_cpu: bool = False,
) -> Plan:
    """Make the plan of a graph whose nodes are resolved.

    Args:
        ir: The graph.
        calls: Its nodes as calls.
        outcomes: What was found about each; None where nothing was tried.
        symbols: The symbols that each binds.
        functions: The plans of its functions.
        reuse: Whether results may take the place of values that nothing else reads.
        on_cpu: Whether all runs there; kernels of a GPU take a number in double precision.
    """
    roots, pinned = _roots(ir, calls, outcomes)
    kept = kept_values(ir)
    ends = storage_ends(last_uses(ir.nodes, kept), roots) | dict.fromkeys(pinned, len(calls))
    dead = dead_after(ir.nodes, kept)
    external = ir.external_values()
    given = {*ir.input_names, *external}
    steps: list[Step] = []
    for position, (call, found, bound) in enumerate(zip(calls, outcomes, symbols, strict=True)):
        binding = None if found is None else found.binding
        reused = reuse and _may_reuse(call, found, position, roots, ends, given)
        in_place = found.in_place if reused and found is not None else None
        scalar = _scalar(found) if reuse and on_cpu else None
        count = None if found is None or found.kind != "ok" else len(found.results)
        done = tuple([name for name in dead.get(call.node.name, ()) if name not in given])
        steps.append(Step(call, binding, in_place, scalar, count, done, bound))
    written = [_written(ir, call, roots) for call in calls]
    writes = tuple(_writes(ir, roots, pinned | given, is_functional=not any(written)))
    state = [i for i, names in enumerate(written) if names & external.keys()]
    updated = {m.target: None for m in ir.mutations if m.target in external}
    used = {*kept, *(m.target for m in ir.mutations)}
    used.update(read.name for call in calls for read in call.reads)
    return Plan(
        ir,
        tuple(steps),
        tuple([name for name in external if name in used]),
        writes,
        functions,
        is_private=not (writes or any(names & (given | {UNKNOWN}) for names in written))
        and _outputs_are_apart(ir, roots),
        copied_outputs=frozenset(
            [m.name for m in ir.graph_outputs if roots[m.name] & updated.keys()]
        ),
        writes_inside=any(written),
        first_state_write=state[0] if state else None,
    )


def _scalar(found: MetaResult | None) -> torch.dtype | None:
    made = found.results[0] if found is not None and found.results else None
    takes_tensor = found is not None and found.takes_tensor
    return getattr(torch, made.dtype) if made is not None and takes_tensor else None


# -- storage --------------------------------------------------------------------------------------


def _roots(
    ir: IR, calls: Sequence[BoundCall], outcomes: Sequence[MetaResult | None]
) -> tuple[dict[str, Roots], set[str]]:
    """The storage that each value may have: by the schema's alias marks, and as it was seen.

    What results may have of which nothing is known is not followed further, but for what the
    program writes; the second answer is the storage that they may have, which is taken to be in
    use until the end. (To follow it would take the square of the nodes where types are believed.)
    """
    names = (*ir.input_names, *ir.external_values())
    roots: dict[str, Roots] = {name: frozenset({name}) for name in names}
    targets = {mutation.target for mutation in ir.mutations}
    pinned: set[str] = set()
    allowed = allowances()
    for call, found in zip(calls, outcomes, strict=True):
        taken = [roots[read.name] for read in call.reads]
        for meta in call.node.outputs:
            shared = _shared(call, found, meta.producer_output_idx, roots)
            if shared is None:  # nothing is known
                pinned.update(*taken)
                shared = frozenset().union(*taken) & targets | {meta.name, UNKNOWN}
            roots[meta.name] = shared or frozenset({meta.name})
            if allowed and not judged(call.node.op_type, call.schema).allowed:
                pinned.add(meta.name)  # it may be a file's
    return roots, pinned


def _shared(
    call: BoundCall,
    found: MetaResult | None,
    index: int,
    roots: Mapping[str, Roots],
) -> Roots | None:
    """The storage that one result has from the arguments; None if it cannot be told."""
    if (written := _known_writes(call)) is not None:
        return roots[call.node.inputs[written[index]].name] if index in written else NOTHING
    if found is None or found.kind != "ok" or call.schema is None:
        return None
    if index >= len(found.results):
        return None
    shares = found.shares[index]
    is_seen = found.results[index] is not None
    seen = [roots[call.node.inputs[position].name] for position in shares]
    stated = [
        roots[source.meta.name]
        for source in declared_sources(call.schema, call.node, index)
        if not (is_seen and source.when is Sharing.BY_VALUE)  # what was seen decides
    ]
    return frozenset[str]().union(*seen, *stated)


def _known_writes(call: BoundCall) -> Mapping[int, int] | None:
    """What a kernel that is all there is to a call writes, by result; None if nobody knows."""
    kernel = call.target
    return kernel.in_place if isinstance(kernel, DirectKernel) and kernel.is_pure else None


def _written(ir: IR, call: BoundCall, roots: Mapping[str, Roots]) -> Roots:
    """The storage that a call writes; all that it takes where nobody can say."""
    if (in_place := _known_writes(call)) is not None:
        return NOTHING.union(*[roots[call.node.inputs[i].name] for i in in_place.values()])
    if call.schema is None:
        return frozenset[str]().union(*[roots[read.name] for read in call.reads])
    if never_writes(call.schema.text):
        return NOTHING
    names = ir.effects(call.node).writes
    written = [roots[meta.name] for argument in names for meta in call.node.tensors(argument)]
    return frozenset[str]().union(*written)


def _outputs_are_apart(ir: IR, roots: Mapping[str, Roots]) -> bool:
    seen: set[str] = set()
    for meta in ir.graph_outputs:
        own = roots[meta.name]
        if own != frozenset({meta.name}) or own & seen:
            return False
        seen |= own
    return True


def _writes(
    ir: IR, roots: Mapping[str, Roots], others: Set[str], *, is_functional: bool
) -> Iterable[StateWrite]:
    """What is written at the end; the memory of values that are others' is never handed over."""
    moved = [m for m in ir.mutations if m.value.name != m.target]
    targets = frozenset[str]().union(*[roots[m.target] for m in moved])
    keys = external_keys(ir)
    kept = [*ir.output_names, *(m.value.name for m in moved)]
    holders = Counter(root for name in kept for root in roots[name])
    shown = {keys[root] for root in holders if root in keys}
    times = Counter(keys.get(m.target) for m in moved)
    for mutation in moved:
        target, value = mutation.target, mutation.value.name
        is_fresh = roots[value] == frozenset({value}) and value not in others
        is_alone = is_fresh and holders[value] == 1
        is_hidden = target in keys and keys[target] not in shown and times[keys[target]] == 1
        is_handed_over = is_functional and is_alone and is_hidden
        yield StateWrite(target, value, bool(roots[value] & targets), is_handed_over)


# -- life -----------------------------------------------------------------------------------------


def _may_reuse(
    call: BoundCall,
    found: MetaResult | None,
    position: int,
    roots: Mapping[str, Roots],
    ends: Mapping[str, int],
    given: Set[str],
) -> bool:
    """Whether the first argument's storage is fresh, dies here, and nothing else here has it.

    The result itself will have it, so its own life does not count: it begins here.
    """
    if found is None or found.in_place is None:
        return False
    first, *others = [read.name for read in call.reads]
    own = roots[first]
    if len(own) != 1 or own & given:
        return False
    (storage,) = own
    return ends[storage] == position and not any(roots[name] & own for name in others)
