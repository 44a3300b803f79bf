"""Executors of programs on native runtimes: partition, proof, and the report of both."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from torch_ir.backends.assignment import Assignment, require_own_names
from torch_ir.backends.backend_registry import Options
from torch_ir.backends.delegate import body_of, delegated
from torch_ir.backends.delegating import Delegate, DelegatingExecutor
from torch_ir.backends.native.attempts import Attempt, Attempts
from torch_ir.backends.native.guarded import Guarded
from torch_ir.backends.native.native_backend import NativeBackend
from torch_ir.backends.native.preparation import prepared_to_run
from torch_ir.backends.native.samples import SETS, Samples, holds_nonfinite
from torch_ir.backends.native.search import Search, Searched
from torch_ir.backends.native.verdict import Verdict, report
from torch_ir.backends.partition import Partitioner
from torch_ir.backends.protocol import DelegateBackend
from torch_ir.backends.state_writes import in_place, with_writes_apart
from torch_ir.ir import IR, Mutation, OpNode
from torch_ir.weights import check_weights
from torch_ir.weights.presence import require_weights

if TYPE_CHECKING:
    from torch_ir.debug.judging.trial import ProgramJudge


def executor_of(
    ir: IR,
    weights: Mapping[str, torch.Tensor] | None,
    backends: Sequence[DelegateBackend],
    constants: Mapping[str, torch.Tensor] | None = None,
) -> DelegatingExecutor:
    """Return an executor of a program with backends, verified where a runtime is among them.

    Args:
        ir: The program.
        weights: Tensors by ``state_dict`` key.
        backends: The backends, the preferred first.
        constants: Values that are in no state dict.
    """
    if any(isinstance(backend, NativeBackend) for backend in backends):
        return NativeExecutor(ir, weights, backends, Options(), constants)
    return DelegatingExecutor(ir, weights, backends, constants)


UNVERIFIED = "unverified: verify=False"
LATER = "not judged enough yet: its next calls give torch's results"


class NativeExecutor(DelegatingExecutor):
    """Runs a program with what runtimes take and get right, and torch for the rest.

    Args:
        ir: The program.
        weights: Tensors by ``state_dict`` key; never changed.
        backends: The backends, the preferred first.
        options: What was asked for.
        constants: Values that are in no state dict; see :class:`~torch_ir.IRExecutor`.
        timed: Judges the delegates of several executors that are timed beside each other; each
            keeps the arguments of a call of each delegate until it settles.

    Attributes:
        source: The program, as it was given.
        ir: The program, with the delegates as functions.
        assignment: Which backend takes which node, and why the others do not.

    Raises:
        MissingWeightsError: The program has weights and none were given.
        WeightLoadError: The weights are not those that it needs.
        OptionalDependencyError: A runtime is not installed.
        BackendError: Two backends have one name.
    """

    def __init__(
        self,
        ir: IR,
        weights: Mapping[str, torch.Tensor] | None,
        backends: Sequence[DelegateBackend],
        options: Options,
        constants: Mapping[str, torch.Tensor] | None = None,
        *,
        timed: ProgramJudge | None = None,
    ):
        require_own_names(backends)
        require_weights(ir, weights)
        self.source = ir
        self._options = options
        self._backends = tuple(backends)
        self._judge = timed
        verify = options.verify
        given = () if isinstance(verify, bool) else verify
        self._nonfinite = holds_nonfinite(given)
        program = prepared_to_run(ir, self._backends, nonfinite=self._nonfinite)
        payload = check_weights(program, weights or {}, strict=False, constants=constants)
        self._samples = Samples(program, weights or {}, constants, given)
        self._nodes = {node.name: node for node in program.nodes}
        self._found: dict[str, Searched] = {}
        self._slow: list[Verdict] = []
        nothing = Assignment(program, tuple(program.nodes), {}, {})
        assigned = self._assigned(nothing, self._backends, payload)
        self._bind(assigned, weights, self._backends, constants)
        if timed is None:
            self.settle()

    def settle(self) -> None:
        """Forget what delegates were tried with, and what they are timed with."""
        vars(self).pop("_samples", None)
        if self._judge is not None:
            self._judge.forget()
        for delegate in self.delegates.values():
            if isinstance(delegate.compiled, Guarded):
                delegate.compiled.attempt.sample = None

    def extended(self, backend: NativeBackend, seconds: float) -> NativeExecutor:
        """Return an executor in which another backend takes what it can of what torch runs.

        Args:
            backend: The other one. This one was made to be timed, and has not settled.
            seconds: How long to look for what it refuses.
        """
        made = copy(self)
        made._backends = (*self._backends, backend)
        made._found = dict(self._found)
        made._options = replace(self._options, seconds=seconds)
        payload = check_weights(
            self.ir, self.weights or {}, strict=False, constants=self.constants
        )
        assigned = made._assigned(self.assignment, (backend,), payload)
        made._bind(assigned, self.weights, made._backends, self.constants)
        return made

    def _assigned(
        self,
        before: Assignment,
        backends: Sequence[DelegateBackend],
        payload: Mapping[str, torch.Tensor],
    ) -> Assignment:
        """Let each backend in turn take what it can of what is left."""
        for backend in backends:
            if isinstance(backend, NativeBackend):
                deadline = time.monotonic() + self._options.seconds
                attempts = Attempts(
                    *(before.ir, backend, payload, self._samples, self._options, deadline),
                    judge=self._judge,
                    nonfinite=self._nonfinite,
                )
                found = self._found[backend.name] = Search(attempts).run()
                partition = found.partition
            else:
                partition = Partitioner(backend)(before.ir)
            before = before.after(backend.name, partition)
        return before

    def _hosted(self, host: IR) -> IR:
        own = {name for name, made in self.delegates.items() if isinstance(made.compiled, Guarded)}
        if own != self.delegates.keys():
            return host
        taken = {meta.name: meta for node in host.nodes for meta in node.inputs}
        made = [pair for delegate in self.delegates.values() for pair in delegate.written.items()]
        written = {new: taken[old] for new, old in made}
        mutations = [
            Mutation(m.target, written.get(m.value.name, m.value)) for m in host.mutations
        ]
        return in_place(with_writes_apart(host.replace(mutations=mutations)), own)

    def _delegate(
        self, call: OpNode, payload: Mapping[str, torch.Tensor], backend: DelegateBackend
    ) -> Delegate:
        if not isinstance(backend, NativeBackend):
            return super()._delegate(call, payload, backend)
        body = body_of(self.ir, call)
        attempt = self._found[backend.name].attempts[body.nodes[0].name]
        is_seen = attempt.runs >= SETS  # of one call alone, results may change with the next
        made = Guarded(attempt)
        return Delegate(body, backend, attempt.held, made, is_seen, attempt.written)

    def leave_to_torch(self, names: Collection[str], reason: str) -> None:
        """Let torch run some delegates of the last backend.

        Args:
            names: The names of the delegates.
            reason: Why, for their verdicts.
        """
        backend = self._backends[-1]
        own = [v for v in self.verdicts if v.used and v.runtime == backend.name]
        left = [verdict for verdict in own if verdict.delegate in names]
        if not left:
            return
        slow = [replace(verdict, used=False, reason=reason) for verdict in left]
        self._slow = [*self._slow, *slow]
        gone = {name for verdict in left for name in verdict.nodes}
        partition = self._found[backend.name].partition
        kept = [nodes for nodes in partition.subgraphs if nodes[0].name not in gone]
        takers = {n: b for n, b in self.assignment.takers.items() if n not in gone}
        reasons = {**self.assignment.reasons, **{n: {backend.name: reason} for n in gone}}
        program = delegated(replace(partition, subgraphs=tuple(kept)))
        assigned = Assignment(program, self.assignment.nodes, takers, reasons)
        self._bind(assigned, self.weights, self._backends, self.constants)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdict on each delegate, and on each node that a runtime refused, as of now."""
        return tuple(self._verdicts())

    def report(self) -> str:
        """Return a table of the verdicts, below how much runs on each runtime."""
        names = [backend.name for backend in self._backends]
        return report(self.verdicts, len(self._nodes), names)

    def _verdicts(self) -> Iterator[Verdict]:
        for name, delegate in self.delegates.items():
            compiled: Any = delegate.compiled
            nodes = tuple([node.name for node in delegate.body.nodes])
            runtime = delegate.backend.name
            verdict = Verdict(
                name, runtime, nodes, True, reason="", location=delegate.body.nodes[0].location
            )
            if isinstance(compiled, Guarded):
                verdict = self._judged(verdict, compiled)
            yield verdict
        yield from self._slow
        for runtime, found in self._found.items():
            for name, attempt in found.refused.items():
                yield Verdict(
                    name,
                    runtime,
                    (name,),
                    False,
                    attempt.part,
                    reason=attempt.reason,
                    location=self._nodes[name].location,
                )

    def _judged(self, verdict: Verdict, compiled: Guarded) -> Verdict:
        attempt: Attempt = compiled.attempt
        reason = attempt.reason
        if not reason and self._options.verify is False:
            reason = UNVERIFIED
        elif not reason and attempt.runs < SETS:
            reason = LATER
        times = {"us": compiled.us, "other_us": compiled.other_us}
        return replace(verdict, used=compiled.is_used, part=attempt.part, reason=reason, **times)
