"""Search for kernels that trust their caller: wrong calls of every operator, in children.

Usage: ``PYTHONPATH=tests python tools/trusting_kernels.py [--calls N] [--only OPERATOR ...]
[--kinds [KIND ...]] [--details FILE]``

Each overload that a program may call is called with arguments of the right types and wrong in all
else: indices far out, lists of unequal lengths, empty and huge sizes, other ranks. Tensors end
where a page begins that may not be touched. A call that ends its process is one that
``torch_ir.infer.preconditions`` has to refuse, or its operator is off the list of those that
programs may call. Writes ``tests/ops/data/trusting_kernels.txt``: for each overload the number
of calls, and of processes that died without the rules and with them.

With ``--kinds`` the tensors of all calls have other element types or layouts (of all kinds, if
none is named), and the rules hold. Such a search goes on where one was stopped.
"""

from __future__ import annotations

import argparse
import gc
import mmap
import os
import resource
import signal
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import torch

from torch_ir.errors import ExecutionError
from torch_ir.infer.preconditions.table import PRECONDITIONS, require_arguments
from torch_ir.infer.resolve import resolve_operator
from torch_ir.ops.rules import operator_rule
from torch_ir.ops.schema import known_operators, lookup
from trusting_calls import KINDS, WrongCalls, called, recorded_calls, touched

FILE = Path(__file__).parents[1] / "tests/ops/data/trusting_kernels.txt"
CALLS = 40
MOST_DEATHS = 4
"""An overload is given up after so many processes."""
SECONDS = 1.0
"""Of the CPU for one call; one that takes longer is stopped, and is not counted as a death."""
MEMORY = 1 << 30
"""Bytes that a child may take beyond what it begins with."""


@dataclass
class Result:
    """What the calls of one overload came to."""

    calls: int = 0
    stopped: int = 0
    deaths: list[tuple[str, int, str]] = field(default_factory=list)


class Searcher:
    """Calls overloads in children of this process, which has all that they need."""

    def __init__(self, count: int, right: dict[str, list[dict[str, Any]]]):
        self._count, self._right = count, right
        self._place = mmap.mmap(-1, 8)

    def search(self, op_type: str, *, rules: bool) -> Result:
        """Call an overload, with the rules for its arguments or without."""
        calls = self._calls(op_type)
        found = Result()
        attempt = 0
        while attempt < calls.count and len(found.deaths) < MOST_DEATHS and found.stopped < 3:
            attempt = self._child(op_type, [calls], attempt, found, rules=rules) + 1
        found.calls = attempt
        return found

    def search_kinds(self, op_type: str, kinds: Sequence[str]) -> Result:
        """Call an overload with tensors of each kind, by the rules, until one of it dies."""
        every = [self._calls(op_type, kind) for kind in kinds]
        found = Result()
        attempt = 0
        while attempt < (total := sum(calls.count for calls in every)) and found.stopped < 3:
            before = len(found.deaths)
            attempt = self._child(op_type, every, attempt, found, rules=True) + 1
            if len(found.deaths) > before:
                size = total // len(every)  # the same of each kind
                found.calls -= -attempt % size
                attempt += -attempt % size
        found.calls += attempt
        return found

    def _calls(self, op_type: str, kind: str = "") -> WrongCalls:
        schema = lookup(op_type)
        assert schema is not None
        return WrongCalls(schema, self._right.get(op_type, []), self._count, kind)

    def _child(
        self, op_type: str, every: Sequence[WrongCalls], first: int, found: Result, *, rules: bool
    ) -> int:
        """Make calls in a child; note how it ended, and return the number of the last call."""
        numbered = [(calls, number) for calls in every for number in range(calls.count)]
        child = os.fork()
        if not child:
            self._run(op_type, numbered, first, rules=rules)
        status = os.waitpid(child, 0)[1]
        if not status:
            return len(numbered) - 1
        (attempt,) = struct.unpack("q", self._place[:8])
        number = os.WTERMSIG(status)
        if number in (signal.SIGPROF, signal.SIGALRM, signal.SIGKILL):
            found.stopped += 1
        else:
            name = signal.Signals(number).name if number else f"exit {status >> 8}"
            calls, place = numbered[attempt]
            found.deaths.append((calls.kind, place, name))
        return attempt

    def _run(
        self, op_type: str, numbered: Sequence[tuple[WrongCalls, int]], first: int, *, rules: bool
    ) -> None:
        """Make the calls of one overload, and end the process."""
        try:
            _limit()
            gc.freeze()  # else collections copy the pages of what the parent holds
            operator = resolve_operator(op_type)
            schema = lookup(op_type)
            assert schema is not None
            for attempt in range(first, len(numbered)):
                self._place[:8] = struct.pack("q", attempt)
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                signal.alarm(60)
                calls, number = numbered[attempt]
                try:
                    made = calls.call(number)
                    if rules:
                        require_arguments(op_type, (), made)
                    touched(called(operator, schema, made))
                except Exception:  # noqa: BLE001  # kernels refuse arguments with any error
                    continue
        except BaseException:  # noqa: BLE001  # a child must not go on as its parent does
            os._exit(9)
        os._exit(0)


def _limit() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)


def known_rows() -> dict[str, list[int]]:
    """The numbers of each overload that the data file has."""
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    rows = [line.split() for line in lines if not line.startswith("#")]
    return {op_type: [*map(int, numbers)] for op_type, *numbers in rows}


def text_of(rows: dict[str, list[int]], calls: int | None) -> str:
    """The data file, whose first line stays as it is where not all were called now."""
    first = (
        f"# Generated by tools/trusting_kernels.py from torch {torch.__version__.split('+')[0]}, "
        f"{calls} random calls; do not edit."
    )
    if calls is None:
        first = FILE.read_text().splitlines()[0]
    allowed = set(swept_operators())
    lines = [
        first,
        "# overload, calls, processes that died without the rules, and with them; calls with "
        "tensors of other kinds, and processes that died",
        *(f"{name} {' '.join(map(str, rows[name]))}" for name in sorted(rows) if name in allowed),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Search; exits with 1 if a process died in spite of the rules."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS))
    parser.add_argument("--details", type=Path)
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.chdir(tempfile.mkdtemp())
    said = os.fdopen(os.dup(1), "w", buffering=1)
    for descriptor in (1, 2):  # kernels warn, and dying ones print
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    begin = time.monotonic()
    right = recorded_calls(3)
    said.write(f"{len(right)} overloads recorded, {time.monotonic() - begin:.0f} s\n")
    for library in ("quantized_decomposed.quantize_per_tensor.default",):
        resolve_operator(library)  # children have no room to import what registers it
    op_types = list(given.only or swept_operators())
    details = given.details.open("w", buffering=1) if given.details else None
    if given.kinds is not None:
        kinds = given.kinds or list(KINDS)
        return _search_kinds(op_types, kinds, Searcher(given.calls, right), details or said)
    searcher = Searcher(given.calls, right)
    results: dict[str, tuple[Result, Result]] = {}
    for op_type in op_types:
        before = searcher.search(op_type, rules=False)
        after = searcher.search(op_type, rules=True) if op_type in PRECONDITIONS else before
        results[op_type] = before, after
        if details and (before.deaths or before.stopped):
            line = f"{op_type} {before.calls} {before.stopped} {before.deaths} {after.deaths}"
            details.write(line + "\n")
    wrongly = refused_right_calls(right)
    died = sum(len(before.deaths) for before, _ in results.values())
    went_on = sum(len(after.deaths) for _, after in results.values())
    still = [op for op, (_, after) in results.items() if after.deaths]
    calls = sum(before.calls for before, _ in results.values())
    summary = (
        f"{len(results)} overloads, {calls} calls, {time.monotonic() - begin:.0f} s: "
        f"{died} processes died without the rules, {went_on} with them\n"
    )
    said.write(summary + "".join(f"{line}\n" for line in (*still, *wrongly)))
    FILE.parent.mkdir(exist_ok=True)
    rows = known_rows()
    for op_type, (before, after) in results.items():
        kinds = rows.get(op_type, [0] * 5)[3:]
        rows[op_type] = [before.calls, len(before.deaths), len(after.deaths), *kinds]
    FILE.write_text(text_of(rows, None if given.only else given.calls))
    return 1 if still or wrongly else 0


def _search_kinds(
    op_types: Sequence[str], kinds: Sequence[str], searcher: Searcher, say: TextIO
) -> int:
    """Call overloads with tensors of other kinds, by the rules; write down what dies.

    Those that the data file has such calls of are left out, so a search that was stopped goes on.
    """
    rows = known_rows()
    left = [op_type for op_type in op_types if not rows[op_type][3]]
    for done, op_type in enumerate(left, 1):
        found = searcher.search_kinds(op_type, kinds)
        rows[op_type][3:] = found.calls, len(found.deaths)
        if found.deaths:
            say.write(f"{op_type}: {found.deaths}\n")
        if done % 50 == 0 or done == len(left):
            calls, died = (sum(row[place] for row in rows.values()) for place in (3, 4))
            say.write(f"{done} of {len(left)} overloads; of all {calls} calls, {died} died\n")
            say.flush()
            FILE.write_text(text_of(rows, None))
    return 1 if any(rows[op_type][4] for op_type in op_types) else 0


def swept_operators() -> list[str]:
    """Every overload that a program may call."""
    return [op_type for op_type in known_operators() if operator_rule(op_type).allowed]


def refused_right_calls(right: dict[str, list[dict[str, Any]]]) -> list[str]:
    """What the rules say of the calls that torch's own samples make: it should be nothing."""
    found: list[str] = []
    for op_type in PRECONDITIONS:
        for call in right.get(op_type, []):
            try:
                require_arguments(op_type, (), call)
            except ExecutionError as error:
                found.append(error.message)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
