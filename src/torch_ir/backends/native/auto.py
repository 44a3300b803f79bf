"""The backend ``auto``: the fastest of what is installed, each delegate verified and timed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from torch_ir.backends.assignment import Assignment
from torch_ir.backends.aten import compile_aten
from torch_ir.backends.backend_registry import Options, Runner, find_backend, has_package
from torch_ir.backends.known_options import Known
from torch_ir.backends.native.blobs import Blobs
from torch_ir.backends.native.guarded import Guarded
from torch_ir.backends.native.native_executor import NativeExecutor
from torch_ir.backends.native.preparation import prepared_to_run
from torch_ir.backends.native.samples import drawn, given_calls, with_integers, without_zeros
from torch_ir.backends.native.verdict import Verdict
from torch_ir.errors import CacheError, ExecutionError, Raised, attempt, error_text
from torch_ir.executor.samples import in_structure
from torch_ir.executor.state import written_buffers
from torch_ir.executor.uncopied import Uncopied
from torch_ir.infer.bindings import Symbols
from torch_ir.ir import IR
from torch_ir.ir.queries import written_values
from torch_ir.tables import table
from torch_ir.torch_memory import fresh
from torch_ir.torch_modes import untraced

CANDIDATES = ("openvino", "onnxruntime", "tuned", "executorch", "inductor")
"""Runtimes in the order in which they are tried."""

GAIN = 0.95
"""A delegate is used if it takes at most this part of torch's time."""

CLOSE = 1.3
"""What is at most this many times as slow as the fastest is timed once more, beside it."""

BORDER_US = 3.0
"""What a call of a delegate costs beside the runtime."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to run the whole program.

    Attributes:
        name: The backend.
        us: Microseconds of a call; nan if it was not timed.
        torch_us: Those of torch's kernels beside it.
        reason: Why it is not used; empty for the one that is.
    """

    name: str
    us: float = math.nan
    torch_us: float = math.nan
    reason: str = ""


class Chosen(Uncopied):
    """The fastest way that was found to run a program.

    Attributes:
        candidates: What was tried.
        backend: The name of the backend that runs it.
    """

    def __init__(self, runner: Any, candidates: Sequence[Candidate], backend: str):
        self._runner = runner
        self._call = getattr(runner, "direct_call", runner)
        self.candidates = tuple(candidates)
        self.backend = backend

    @untraced
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run with the model's own arguments; the result has the model's own structure."""
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_runner":  # of one that is being copied
            raise AttributeError(name)
        return getattr(self._runner, name)

    @property
    def assignment(self) -> Assignment:
        """Which nodes the chosen backend takes; none where torch runs all."""
        found = getattr(self._runner, "assignment", None)
        return found or Assignment(self.ir, tuple(self.ir.nodes), {}, {})

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts on the delegates of the chosen backend; none where torch runs all."""
        return getattr(self._runner, "verdicts", ())

    def report(self) -> str:
        """Return a table of the candidates, and the report of the chosen one."""
        rows = [("candidate", "us", "torch us", "")]
        for candidate in self.candidates:
            times = [
                "" if math.isnan(us) else f"{us:.1f}" for us in (candidate.us, candidate.torch_us)
            ]
            rows.append((candidate.name, times[0], times[1], candidate.reason or "chosen"))
        found = getattr(self._runner, "report", None)
        own = "torch runs all nodes" if found is None else found()
        return f"{table(rows)}\n\n{own}"

    def __repr__(self) -> str:
        return f"Chosen({self.backend!r}, {self._runner!r})"


class Auto:
    """Chooses the fastest of torch's kernels and every installed runtime, within a budget.

    Each candidate is partitioned, built and verified. Delegates that are not faster than the same
    nodes on torch go back to torch; then whole programs are timed beside torch's, in turns. Where
    the fastest leaves nodes to torch, it is tried with each other that gains.
    """

    def known_options(self) -> Known:
        """Return the options: none."""
        return ()

    def __call__(
        self, ir: IR, weights: Mapping[str, torch.Tensor] | None, options: Options
    ) -> Runner:
        """Return the fastest way to run a program.

        Raises:
            ExecutionError: Gradients are asked for.
            MissingWeightsError: The program has weights and none were given.
        """
        if options.grad:
            raise ExecutionError(
                "the backend 'auto' has no gradients", remedy="Use the backend 'aten'."
            )
        return _AutoChoice(ir, weights, options).run()


class _AutoChoice:
    def __init__(self, ir: IR, weights: Mapping[str, torch.Tensor] | None, options: Options):
        from torch_ir.debug.judging.trial import ProgramJudge

        self.ir, self.weights, self.options = ir, weights, options
        self.deadline = time.monotonic() + options.seconds
        self.was_cut = False
        self.aten = compile_aten(ir, weights, options)
        program = attempt(prepared_to_run, ir, ())  # what is refused here, each candidate says
        self.judge = ProgramJudge(ir if isinstance(program, Raised) else program)
        self.call = self._timed_call()

    def run(self) -> Chosen:
        if self.options.cache is None:
            return self._timed()
        blobs, asked = Blobs(self.options.cache), self.options.settings
        whole = blobs.choice_key(self.ir, asked, tuple(installed_runtimes()))
        cut = f"{whole}-{self.options.seconds}"
        known = blobs.read(whole) or blobs.read(cut)
        if known is not None:
            return self._again(known.decode())
        chosen = self._timed()
        names = [verdict.delegate for verdict in chosen.verdicts if verdict.reason == SLOWER]
        # with more time another may win: what was chosen in haste holds for as much time alone
        blobs.write(cut if self.was_cut else whole, "\n".join([chosen.backend, *names]).encode())
        return chosen

    def _again(self, known: str) -> Chosen:
        """What was chosen before: verified anew, not timed."""
        name, *slower = known.split("\n")
        first, _, second = name.partition("+")
        made = "" if name == "aten" else self._made(first)
        if not isinstance(made, str):
            made.leave_to_torch(slower, SLOWER)
            both = self._extended(made, second) if second else made
            if not isinstance(both, str):
                both.leave_to_torch(slower, SLOWER)
                both.settle()
                return Chosen(both, [Candidate(name, reason="")], name)
        return Chosen(self.aten, [Candidate("aten")], "aten")

    def _timed(self) -> Chosen:
        found = [self._candidate(name, self._made) for name in installed_runtimes()]
        won = [pair for pair in found if pair[0].us < GAIN * pair[0].torch_us]
        won.sort(key=lambda pair: pair[0].us / pair[0].torch_us)
        if won and won[0][1].assignment.left:
            first = won[0][1]
            for other, _ in won[1:]:
                name = f"{won[0][0].name}+{other.name}"
                found.append(self._candidate(name, partial(self._extended, first)))
        aten = Candidate("aten", 1.0, 1.0), self.aten
        rated = [aten, *[pair for pair in found if pair[0].us < GAIN * pair[0].torch_us]]
        self.was_cut = time.monotonic() > self.deadline
        best, runner = self._fastest(rated)
        rows = [replace(c, reason="") if c is best else c for c, _ in found]
        rows.append(Candidate("aten", reason="" if best is aten[0] else "another is faster"))
        for made in (pair[1] for pair in found):
            if isinstance(made, NativeExecutor):
                made.settle()
        return Chosen(runner, rows, best.name)

    def _fastest(self, rated: Sequence[tuple[Candidate, Any]]) -> tuple[Candidate, Any]:
        """The fastest: those that are close are timed once more, in turns with each other."""
        ratios = [candidate.us / candidate.torch_us for candidate, _ in rated]
        close = [p for p, ratio in zip(rated, ratios, strict=True) if ratio < CLOSE * min(ratios)]
        if len(close) == 1 or self.call is None:
            return close[0]
        runners = [runner for _, runner in close]
        times = self.call.times(runners, min(max(self.deadline - time.monotonic(), 1.0), 4.0))
        return close[times.index(min(times))]

    def _candidate(
        self, name: str, make: Callable[[str], NativeExecutor | str]
    ) -> tuple[Candidate, Any]:
        """A candidate, timed beside torch, and what runs it."""
        if time.monotonic() > self.deadline:
            return Candidate(name, reason="there was no time to try it"), None
        made = make(name)
        if isinstance(made, str):
            return Candidate(name, reason=made), None
        if self.call is None:
            return Candidate(name, reason="no arguments could be made to time it"), None
        _leave_slow_ones(made)
        if not made.delegates:
            return Candidate(name, reason="nothing is faster on it"), None
        us, torch_us = self.call.times((made, self.aten))
        return Candidate(name, us, torch_us, "another is faster"), made

    def _extended(self, first: NativeExecutor, name: str) -> NativeExecutor | str:
        """The first backend of a mixture with the next for what it leaves to torch."""
        backend: Any = find_backend(name.rpartition("+")[2])
        made = attempt(first.extended, backend, max(self.deadline - time.monotonic(), 0.0))
        if isinstance(made, Raised):
            return _refusal(made)
        taken = len(made.delegates) > len(first.delegates)
        return made if taken else "nothing more runs on it"

    def _made(self, name: str) -> NativeExecutor | str:
        """A candidate that is built and verified, or why there is none."""
        left = max(self.deadline - time.monotonic(), 0.0)
        backend: Any = find_backend(name)
        options = replace(self.options, seconds=left)
        made = attempt(
            NativeExecutor, self.ir, self.weights, (backend,), options, timed=self.judge
        )
        if isinstance(made, Raised):
            return _refusal(made)
        return made if made.delegates else "nothing runs on it"

    def _timed_call(self) -> TimedCall | None:
        """The call to time: the first given, or a random one that torch takes."""
        verify = self.options.verify
        if not isinstance(verify, bool) and verify:
            return TimedCall(self.ir, *given_calls(self.aten.graph, verify)[0])
        for tensors, symbols in drawn(self.ir, 1):
            for taken in (
                tensors,
                without_zeros(tensors),
                with_integers(tensors, torch.zeros_like),
            ):
                call = TimedCall(self.ir, taken, symbols)
                ran = attempt(self.aten, *call.args, **call.kwargs)
                self.aten.reset()
                if not isinstance(ran, Raised):
                    return TimedCall(self.ir, taken, symbols)
        return None


class TimedCall:
    """A call of a program that is made again and again, of several ways to run it.

    Each time it has the same arguments, and finds the buffers as the first call does: what a
    program writes may be a place, which a thousand calls move out of a table.

    Args:
        ir: The program.
        tensors: One for each of its inputs; never changed.
        symbols: A value for each symbol that is an argument.

    Attributes:
        args: The arguments by position, in memory of their own.
        kwargs: Those by name.
    """

    def __init__(self, ir: IR, tensors: Sequence[torch.Tensor], symbols: Symbols):
        own: list[torch.Tensor] = fresh(list(tensors))
        self.args, self.kwargs = in_structure(ir, own, symbols)
        is_written = written_values(ir)
        named = zip(ir.input_names, own, tensors, strict=True)
        self._written = [(tensor, first) for name, tensor, first in named if name in is_written]
        self._is_renewed = bool(self._written or written_buffers(ir))

    def times(self, runners: Sequence[Any], seconds: float = 0.4) -> list[float]:
        """Return the least microseconds of a call on each of some executors; see :func:`least`."""
        calls = [partial(runner, *self.args, **self.kwargs) for runner in runners]
        renewals = [partial(self._renew, runner) for runner in runners] if self._is_renewed else ()
        times = least(calls, seconds, renewals)
        for renew in renewals:
            renew()
        return times

    def _renew(self, runner: Any) -> None:
        runner.reset()
        for tensor, first in self._written:
            if tensor.shape == first.shape:
                tensor.copy_(first)
            else:
                memory = first.clone()
                tensor.set_(memory.untyped_storage(), 0, memory.shape, memory.stride())


def _refusal(raised: Raised) -> str:
    """Why a candidate is none; a cache that cannot be written is no fault of it."""
    if isinstance(raised.error, CacheError):
        raise raised.error
    return error_text(raised.error)


SLOWER = "torch is faster"


def _leave_slow_ones(made: NativeExecutor) -> None:
    """Give those delegates back to torch that do not gain by their runtime."""
    slow: list[str] = []
    for name, delegate in made.delegates.items():
        guarded: Any = delegate.compiled
        if not isinstance(guarded, Guarded) or guarded.attempt.sample is None:
            continue
        given: tuple[Any, ...] = guarded.attempt.sample
        us, other = least((partial(guarded, *given), partial(guarded.on_torch, given)))
        guarded.us, guarded.other_us = us, other
        if us + BORDER_US > GAIN * other:
            slow.append(name)
    made.leave_to_torch(slow, SLOWER)


def least(
    functions: Sequence[Callable[[], Any]],
    seconds: float = 0.4,
    renewals: Sequence[Callable[[], Any]] = (),
) -> list[float]:
    """Time functions in turns; return the least microseconds of a call of each.

    In its turn a function is called several times, as users call a program: after another one,
    caches hold nothing of it, which costs some functions more than others.

    Args:
        functions: The functions.
        seconds: How long to go on, after three turns.
        renewals: What is called before each call of a function, untimed; none for most functions.
    """
    best = [math.inf] * len(functions)
    timed = [partial(_seconds_of_calls, f) for f in functions]
    if renewals:
        timed = [
            partial(_seconds_of_renewed_calls, *pair)
            for pair in zip(functions, renewals, strict=True)
        ]
    for work in timed:
        work(1)
    start = time.perf_counter()
    for work in timed:
        work(1)
    once = (time.perf_counter() - start) / len(functions)
    calls = max(1, min(50, int(min(_TURN, seconds / 8) / max(once, 1e-9))))
    end, turns = time.perf_counter() + seconds, 0
    while turns < 3 or (time.perf_counter() < end and turns < 200):
        for index, work in enumerate(timed):
            best[index] = min(best[index], work(calls) / calls)
        turns += 1
    return [second * 1e6 for second in best]


def _seconds_of_calls(function: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        function()
    return time.perf_counter() - start


def _seconds_of_renewed_calls(
    function: Callable[[], Any], renew: Callable[[], Any], count: int
) -> float:
    seconds = 0.0
    for _ in range(count):
        renew()
        seconds += _seconds_of_calls(function, 1)
    return seconds


_TURN = 0.05
"""Seconds of a turn, if one call does not take as long."""


def installed_runtimes() -> list[str]:
    """Return the names of the runtimes that are installed, the likeliest first."""
    return [name for name in CANDIDATES if has_package(name)]


AUTO = Auto()
"""The backend."""
