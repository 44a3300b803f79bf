"""The search for delegates that a runtime takes and gets right: by halving what it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from torch_ir.backends.delegate import function_of
from torch_ir.backends.native.attempts import (
    Attempt,
    Attempts,
    dims_of,
    judged_call,
    numbers_for,
)
from torch_ir.backends.native.building import DeclinedError
from torch_ir.backends.native.native_backend import facts_of
from torch_ir.backends.native.places import computed_places
from torch_ir.backends.native.samples import (
    TURNS,
    Sample,
    Samples,
    unlike,
    with_nonfinite,
)
from torch_ir.backends.native.withheld import makes_shown_view, withheld
from torch_ir.backends.partition import Partition, Partitioner
from torch_ir.backends.protocol import Support, support_of
from torch_ir.errors import Raised, attempt
from torch_ir.executor import IRExecutor
from torch_ir.ir import IR, OpNode
from torch_ir.ir.builder import subgraph
from torch_ir.ops.choices import leaves_ties_open
from torch_ir.semantics.arguments import as_array
from torch_ir.semantics.denote import Evaluation
from torch_ir.semantics.dtypes import is_float, numpy_dtype

OTHERWISE = "of equal elements torch chooses others than the first"
NOT_FINITE = "on numbers that are not finite"
SHOWN = "a result shares memory with an argument, a weight or another result"
COMPUTED = "it computes places in a tensor, at which a runtime does not look as torch does"


@dataclass(frozen=True, slots=True)
class Searched:
    """What a runtime runs of a program.

    Attributes:
        partition: The subgraphs, each of which was tried.
        attempts: The attempt at each of them, by the name of its first node.
        refused: The attempts at single nodes that it refuses or gets wrong, by name; and those
            that were not tried alone, as the time was up.
    """

    partition: Partition
    attempts: Mapping[str, Attempt]
    refused: Mapping[str, Attempt]


@dataclass(slots=True)
class Search:
    """Finds what a runtime runs of a program.

    Halves of a subgraph in program order are convex: no path leads out of one and back.
    """

    attempts: Attempts
    refused: dict[str, Attempt] = field(default_factory=dict[str, Attempt])
    computed: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.computed = computed_places(self.attempts.ir, self.attempts.payload)

    def run(self) -> Searched:
        """Partition the program, try each subgraph, halve what fails, and partition again."""
        partition = self._partition()
        taken = [node for nodes in partition.subgraphs for node in nodes]
        self._leave_choices(taken)
        self._leave_nonfinite(taken)
        if self.refused:
            partition = self._partition()
        pieces = [piece for nodes in partition.subgraphs for piece in self._pieces(nodes)]
        if self.refused and not self.attempts.is_late:
            partition = self._partition()
            pieces = [piece for nodes in partition.subgraphs for piece in self._pieces(nodes)]
        reasons = {
            **partition.reasons,
            **{name: self.reason(name) for name in self.refused},
        }
        done = replace(partition, subgraphs=tuple(pieces), reasons=reasons)
        tried = {nodes[0].name: self.attempts.of(nodes) for nodes in pieces}
        return Searched(done, tried, self.refused)

    def _leave_choices(self, nodes: Sequence[OpNode]) -> None:
        """Refuse the nodes that choose otherwise on torch."""
        tries = self.attempts
        if tries.options.verify is False:
            return
        for node in chosen_otherwise(tries.ir, nodes, tries.samples):
            self._refuse(node, OTHERWISE)

    def _leave_nonfinite(self, nodes: Sequence[OpNode]) -> None:
        """Refuse nodes that are wrong on NaN or infinities, where the caller verifies with such.

        In a whole program few of its nodes meet them, and only at some places.
        """
        tries = self.attempts
        if not tries.nonfinite:
            return
        kinds: dict[str, list[OpNode]] = {}
        for node in nodes:
            if any(is_float(numpy_dtype(meta.dtype)) for meta in node.inputs):
                kinds.setdefault(_kind(node), []).append(node)
        for alike in kinds.values():
            late = tries.is_late
            reason = "the time is up for trying it" if late else nonfinite_fault(tries, alike[0])
            for node in alike if reason else ():
                self._refuse(node, f"{NOT_FINITE}: {reason}")

    def _refuse(self, node: OpNode, reason: str) -> None:
        tries = self.attempts
        body = function_of(tries.ir, [node], node.outputs, node.name, tries.backend.name)
        self.refused[node.name] = Attempt(body, {}, reason=reason)

    def reason(self, name: str) -> str:
        """Return why a node is refused."""
        return self.refused[name].reason

    def _partition(self) -> Partition:
        return Partitioner(_Denying(self))(self.attempts.ir)

    def _pieces(self, nodes: Sequence[OpNode]) -> list[tuple[OpNode, ...]]:
        """The parts of a subgraph that are right, as large as halving finds them."""
        nodes = [node for node in nodes if node.name not in self.refused]
        if not nodes:
            return []
        tried = self.attempts.of(nodes)
        if not tried.reason:
            return [tuple(nodes)]
        if len(nodes) == 1 or self.attempts.is_late:
            if len(nodes) > 1:
                late = f"the time is up for finding the node that is at fault: {tried.reason}"
                tried = replace(tried, reason=late)
            self.refused.update(dict.fromkeys([node.name for node in nodes], tried))
            return []
        half = len(nodes) // 2
        return [*self._pieces(nodes[:half]), *self._pieces(nodes[half:])]


@dataclass(frozen=True, slots=True)
class _Denying:
    """The backend of a search, without the nodes that it was found to refuse."""

    search: Search

    @property
    def name(self) -> str:
        return self.search.attempts.backend.name

    def supports(self, node: OpNode, ir: IR) -> Support:
        if node.name in self.search.refused:
            return Support.refused(self.search.reason(node.name))
        if reason := withheld(node, ir):
            return Support.refused(reason)
        if makes_shown_view(node, ir):
            return Support.refused(SHOWN)
        if node.name in self.search.computed:
            return Support.refused(COMPUTED)
        options, inexact = self.search.attempts.options, facts_of(self.name).inexact
        if node.op_type in inexact and options.tolerance is None and options.verify is not False:
            return Support.refused(inexact[node.op_type])
        return support_of(self.search.attempts.backend, node, ir)


# -- choices among equal elements -----------------------------------------------------------------


def chosen_otherwise(ir: IR, nodes: Sequence[OpNode], samples: Samples) -> list[OpNode]:
    """Return the nodes of which some sample has another choice than the meaning.

    Any choice is right, but what follows from one is not what follows from another: a user
    compares with torch.

    Args:
        ir: The program.
        nodes: Those of its nodes that are asked about.
        samples: Values of the program on torch.
    """
    choosing = [node for node in nodes if leaves_ties_open(node.op_type, node.attrs)]
    if not choosing:
        return []
    names = {meta.name for node in choosing for meta in (*node.inputs, *node.outputs)}
    seen = [sample for sample in samples.of(names) if not sample.is_wide]
    return [node for node in choosing if any(_is_otherwise(ir, node, s) for s in seen)]


def _is_otherwise(ir: IR, node: OpNode, sample: Sample) -> bool:
    metas = (*node.inputs, *node.outputs)
    if any(meta.name not in sample.values for meta in metas):
        return False
    given: dict[str, Any] = {meta.name: as_array(sample.values[meta.name]) for meta in node.inputs}
    alone = subgraph(ir, [node], node.outputs)
    evaluation = Evaluation(alone, {}, given, symbols=dict(sample.symbols))
    made = attempt(evaluation.evaluate, node, given)
    if isinstance(made, Raised):  # the denotation refuses it, and the judge will say so
        return False
    return any(
        not np.array_equal(made[meta.producer_output_idx], as_array(sample.values[meta.name]))
        for meta in node.outputs
        if meta.dtype == "int64"
    )


# -- numbers that are not finite ------------------------------------------------------------------


def nonfinite_fault(attempts: Attempts, node: OpNode) -> str:
    """Return what is wrong with a node on NaN and infinities; empty if nothing is.

    Args:
        attempts: Those of a backend.
        node: A node that takes numbers.
    """
    tried = attempts.of([node])
    if tried.reason:
        return tried.reason
    body = tried.body
    given = [name for name in body.input_names if name not in tried.held]
    samples = [
        s for s in attempts.samples.of(given) if not s.is_wide and s.values.keys() >= {*given}
    ]
    run = IRExecutor(body, {}, check_types=False)
    for values, symbols, _ in samples[:1]:
        for turn in range(TURNS):
            known = {**tried.held, **{name: values[name] for name in given}}
            for place, name in enumerate(given):
                known[name] = with_nonfinite(known[name], turn, place)
            sizes = numbers_for(body, known, symbols)
            if sizes is None:
                continue
            made = attempt(run, *[known[name] for name in body.input_names], *sizes)
            if isinstance(made, Raised):  # torch refuses such
                continue
            known |= dict(zip(body.output_names, made, strict=True))
            bound = {**symbols, **dims_of(body, known)}
            try:
                results = judged_call(tried, known, sizes, bound)
            except DeclinedError:
                continue
            fault = tried.reason or unlike(results, made)
            if fault:
                return fault
    return ""


def _kind(node: OpNode) -> str:
    """What tells nodes apart that a runtime may treat in another way."""
    types = [(meta.dtype, len(meta.shape)) for meta in (*node.inputs, *node.outputs)]
    return repr((node.op_type, node.attrs, types))
