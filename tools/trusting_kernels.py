"""Search for kernels that trust their caller: wrong calls of every operator, in children.

Usage: ``PYTHONPATH=tests python tools/trusting_kernels.py [--calls N] [--only OPERATOR ...]
[--kinds KIND ...] [--details FILE]``

Each overload that a program may call is called with arguments of the right types and wrong in all
else: indices far out, lists of unequal lengths, empty and huge sizes, other ranks. Tensors end
where a page begins that may not be touched. A call that ends its process is one that
``torch_ir.infer.preconditions`` has to refuse, or its operator is off the list of those that
programs may call. Writes ``tests/ops/data/trusting_kernels.txt``: for each overload the number
of calls, and of processes that died without the rules and with them.

With ``--kinds`` the tensors of all calls have other element types or layouts, the rules hold, and
nothing is written.
"""

from __future__ import annotations

import argparse
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
from torch_ir.ops.schema import Schema, known_operators, lookup
from trusting_calls import KINDS, WrongCalls, called, recorded_calls, touched

FILE = Path(__file__).parents[1] / "tests/ops/data/trusting_kernels.txt"
CALLS = 40
MOST_DEATHS = 4
"""An overload is given up after so many processes."""
SECONDS = 2.0
"""Of the CPU for one call; one that takes longer is stopped, and is not counted as a death."""
MEMORY = 1 << 30
"""Bytes that a child may take beyond what it begins with."""


@dataclass
class Result:
    """What the calls of one overload came to."""

    calls: int = 0
    stopped: int = 0
    deaths: list[tuple[int, str]] = field(default_factory=list)


class Searcher:
    """Calls overloads in children of this process, which has all that they need."""

    def __init__(self, count: int, right: dict[str, list[dict[str, Any]]], kind: str = ""):
        self._count, self._kind = count, kind
        self._right = right
        self._place = mmap.mmap(-1, 8)

    def search(self, op_type: str, *, rules: bool) -> Result:
        """Call an overload, with the rules for its arguments or without."""
        schema = lookup(op_type)
        assert schema is not None
        calls = WrongCalls(schema, self._right.get(op_type, []), self._count, self._kind)
        found = Result()
        attempt = 0
        while attempt < calls.count and len(found.deaths) < MOST_DEATHS and found.stopped < 3:
            child = os.fork()
            if not child:
                self._run(op_type, schema, calls, attempt, rules=rules)
            status = os.waitpid(child, 0)[1]
            if not status:
                found.calls = calls.count
                return found
            (attempt,) = struct.unpack("q", self._place[:8])
            number = os.WTERMSIG(status)
            if number in (signal.SIGPROF, signal.SIGALRM, signal.SIGKILL):
                found.stopped += 1
            else:
                name = signal.Signals(number).name if number else f"exit {status >> 8}"
                found.deaths.append((attempt, name))
            attempt += 1
            found.calls = attempt
        return found

    def _run(
        self, op_type: str, schema: Schema, calls: WrongCalls, first: int, *, rules: bool
    ) -> None:
        """Make the calls of one overload, and end the process."""
        try:
            _limit()
            operator = resolve_operator(op_type)
            for attempt in range(first, calls.count):
                self._place[:8] = struct.pack("q", attempt)
                signal.setitimer(signal.ITIMER_PROF, SECONDS)
                signal.alarm(60)
                try:
                    made = calls.call(attempt)
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


def text_of(results: dict[str, tuple[Result, Result]], calls: int, *, is_whole: bool) -> str:
    """The data file, in which rows of operators that were not called now stay as they are.

    Its first line says how all were called, so that a run of some operators leaves it.
    """
    first = (
        f"# Generated by tools/trusting_kernels.py from torch {torch.__version__.split('+')[0]}, "
        f"{calls} random calls; do not edit."
    )
    if FILE.exists() and not is_whole:
        first = FILE.read_text().splitlines()[0]
    rows = {
        op_type: f"{op_type} {before.calls} {len(before.deaths)} {len(after.deaths)}"
        for op_type, (before, after) in results.items()
    }
    if FILE.exists():
        known = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
        rows = {line.split()[0]: line for line in known} | rows
    allowed = set(swept_operators())
    lines = [
        first,
        "# overload, calls, processes that died without the rules, and with them",
        *(rows[op_type] for op_type in sorted(rows) if op_type in allowed),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Search; exits with 1 if a process died in spite of the rules."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=[])
    parser.add_argument("--details", type=Path)
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.chdir(tempfile.mkdtemp())
    said = os.dup(1)
    for descriptor in (1, 2):  # kernels warn, and dying ones print
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    begin = time.monotonic()
    right = recorded_calls(3)
    os.write(said, f"{len(right)} overloads recorded, {time.monotonic() - begin:.0f} s\n".encode())
    for library in ("quantized_decomposed.quantize_per_tensor.default",):
        resolve_operator(library)  # children have no room to import what registers it
    op_types = list(given.only or swept_operators())
    if given.kinds:
        say = given.details.open("w", buffering=1) if given.details else os.fdopen(said, "w")
        return _search_kinds(op_types, given.kinds, given.calls, right, say)
    searcher = Searcher(given.calls, right)
    results: dict[str, tuple[Result, Result]] = {}
    details = given.details.open("w", buffering=1) if given.details else None
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
    os.write(said, (summary + "".join(f"{line}\n" for line in (*still, *wrongly))).encode())
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text_of(results, given.calls, is_whole=not given.only))
    return 1 if still or wrongly else 0


def _search_kinds(
    op_types: Sequence[str],
    kinds: Sequence[str],
    count: int,
    right: dict[str, list[dict[str, Any]]],
    say: TextIO,
) -> int:
    """Call overloads with tensors of other kinds, by the rules; write down what dies."""
    calls = died = 0
    for done, op_type in enumerate(op_types, 1):
        for kind in kinds:
            found = Searcher(count, right, kind).search(op_type, rules=True)
            calls, died = calls + found.calls, died + len(found.deaths)
            if found.deaths:
                say.write(f"{op_type} as {kind}: {found.deaths}\n")
        if done % 50 == 0 or done == len(op_types):
            say.write(f"{done} overloads, {calls} calls, {died} processes died\n")
    say.flush()
    return 1 if died else 0


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
