"""Read mutated files, run the programs that they hold, and report what must not be.

Usage: ``python tools/fuzz.py [--loads N] [--seed N] [--kinds KIND ...] [--grow] [--record]``,
or ``python tools/fuzz.py --replay FILE ...``

Files of each kind (JSON, text, archives, old formats, weights) are made by changing those of
``tests/fuzz/corpus``, and those made before that showed something new. Each is read in a child
process, and each program that is accepted is compiled, run and compared in a child of that one
(``fuzz_judging`` says with what). The same seed and corpus make the same files. A file that shows
a fault is written to ``out/fuzz``; it goes to ``tests/fuzz/found`` when the fault is mended, where
a test reads it again.

``--grow`` adds the files that showed something new to the corpus, of those alike the smallest
one. ``--record`` writes the table into SECURITY.md.
"""

from __future__ import annotations

import argparse
import base64
import gc
import hashlib
import json
import mmap
import os
import resource
import signal
import struct
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import torch

from fuzz_judging import FaultError, judge, program_key, run_and_compare
from fuzz_mutations import MUTATORS, mutated
from torch_ir.infer.resolve import resolve_operator

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "tests/fuzz/corpus"
KEPT = "kept-"
"""How the name of a file of the corpus begins that no hand has put there."""
OUT = ROOT / "out/fuzz"
SHARES = {"json": 0.3, "text": 0.3, "archive": 0.15, "old": 0.1, "weights": 0.15}
CHUNK = 2000
"""Files for one child."""
WARM = 100
"""Files that are made before the first child, which has what that takes."""
IMPORTING = (
    "dim_order_ops._clone_dim_order.default",
    "quantized_decomposed.dequantize_per_tensor.default",
    "higher_order.invoke_subgraph",
)
"""Operators whose libraries take seconds to import, where ExecuTorch is installed."""
ROUND = 10_000
"""Files of all kinds, after which the table is written anew."""
MAX_BYTES = 8192
"""Of a file that is kept."""
MAX_FILES = 32
"""Of a kind, in the corpus."""
RUN_SECONDS = 10
"""Of the CPU for one program; one that takes longer is stopped: what operators take is theirs."""
LOAD_SECONDS = 20
"""After which a load is a hang."""
MEMORY = 1 << 30
"""Bytes that a child may take beyond what it begins with."""


@dataclass
class Tally:
    """What became of the files of one kind, and of their programs."""

    loads: Counter[str] = field(default_factory=Counter)
    programs: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)


@dataclass
class Chunk:
    """What a child tells of its files, as JSON."""

    loads: Counter[str] = field(default_factory=Counter)
    programs: Counter[str] = field(default_factory=Counter)
    kept: list[tuple[str, str]] = field(default_factory=list)
    faults: list[tuple[str, str, str]] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)


class Child:
    """Runs functions in children of this process, which say by a number how far they are."""

    def __init__(self) -> None:
        self._place = mmap.mmap(-1, 8)

    def mark(self, number: int) -> None:
        """Say what is begun now."""
        self._place[:8] = struct.pack("q", number)

    @property
    def marked(self) -> int:
        """What the last child had begun."""
        return struct.unpack("q", self._place[:8])[0]

    def run(self, function: Callable[[], Any]) -> tuple[Any, str]:
        """Return what a function gives, as JSON can say it; or how its process ended."""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            self._answer(function, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as answer:
            text = answer.read()
        status = os.waitpid(child, 0)[1]
        if not status:
            return json.loads(text), ""
        number = os.WTERMSIG(status)
        if number:
            return None, signal.Signals(number).name
        return None, f"exit {status >> 8}: {text[-2000:].decode('utf8', 'replace')}"

    def _answer(self, function: Callable[[], Any], writing: int) -> None:
        status = 0
        try:
            _limit(MEMORY)
            gc.freeze()  # else collections copy the pages of what the parent holds
            text = json.dumps(function())
        except BaseException as error:  # noqa: BLE001  # a child must not go on as its parent does
            text, status = repr(error), 9
        with os.fdopen(writing, "wb") as answer:
            answer.write(text.encode())
        os._exit(status)


def _limit(more: int) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)


class Fuzzer:
    """Makes, reads and runs the files of one kind."""

    def __init__(self, kind: str, seed: int, folder: Path):
        self.kind, self.seed, self._folder = kind, seed, folder
        self.corpus = {path.name: path.read_bytes() for path in sorted((CORPUS / kind).iterdir())}
        self._samples = list(self.corpus.values())
        self._seeds = [data for name, data in self.corpus.items() if not name.startswith(KEPT)]
        self._seen: set[int] = set()
        self.signatures: dict[str, bytes] = {}
        self.tally = Tally()
        self._loading, self._running = Child(), Child()

    def file(self, attempt: int) -> bytes:
        """Make the file of a number, by the samples that there are so far."""
        random = Random(f"{self.seed}/{self.kind}/{attempt}")
        sample = random.choice(self._seeds if random.random() < 0.6 else self._samples)
        return mutated(self.kind, sample, self._samples, random)

    def read_samples(self) -> None:
        """Learn what the corpus itself shows, of which nothing may be a fault.

        What this imports and keeps is there in each child.
        """
        for data in [*self._samples]:
            judged = judge(self.kind, data, self._folder)
            known = self.signatures.get(judged.signature, data)
            self.signatures[judged.signature] = min(known, data, key=len)
            if judged.ir is not None and data in self._seeds:
                run_and_compare(judged.ir)
        for attempt in range(WARM):
            self.file(attempt)
        for op_type in IMPORTING:
            resolve_operator(op_type)

    def read(self, first: int, count: int) -> None:
        """Read files of these numbers, and run their programs."""
        skipped: dict[int, str] = {}
        while True:
            numbers = [n for n in range(first, first + count) if n not in skipped]
            answer, death = self._loading.run(lambda: self._read_all(numbers))  # noqa: B023  # called at once
            if not death:
                break
            number = self._loading.marked
            if number in skipped:
                raise RuntimeError(f"the child ended between two files: {death}")
            skipped[number] = death
            self._report(f"ended by {death}", "while it was loaded", self.file(number))
        chunk = Chunk(**answer)
        self.tally.loads.update(chunk.loads)
        self.tally.loads["ended"] += len(skipped)
        self.tally.programs.update(chunk.programs)
        self._seen.update(chunk.keys)
        for what, details, data in chunk.faults:
            self._report(what, details, base64.b64decode(data))
        for signature, data in chunk.kept:
            self._keep(signature, base64.b64decode(data))

    def _keep(self, signature: str, data: bytes) -> None:
        if signature not in self.signatures:
            self._samples.append(data)
        self.signatures[signature] = min(self.signatures.get(signature, data), data, key=len)

    def _report(self, what: str, details: str, data: bytes) -> None:
        self.tally.faults[what] += 1
        if self.tally.faults[what] > 5:
            return
        OUT.mkdir(parents=True, exist_ok=True)
        words = "".join(c if c.isalnum() else "-" for c in what)
        path = OUT / f"{self.kind}.{hashlib.sha256(data).hexdigest()[:10]}.{words}"
        path.write_bytes(data)
        print(f"{path} (seed {self.seed}): {what}: {details[:600]}", flush=True)

    def _read_all(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Read files, then run the programs of them that are new: what a child does."""
        chunk = Chunk()
        kept: dict[str, bytes] = {}
        programs: list[tuple[Any, bytes]] = []
        seen = set(self._seen)
        for number in numbers:
            self._loading.mark(number)
            data = self.file(number)
            signal.setitimer(signal.ITIMER_PROF, LOAD_SECONDS)
            try:
                judged = judge(self.kind, data, self._folder)
            except FaultError as fault:
                chunk.loads["fault"] += 1
                chunk.faults.append((*map(str, fault.args), _text(data)))
                continue
            chunk.loads[judged.outcome] += 1
            self._note(kept, judged.signature, data)
            if judged.ir is not None and (key := program_key(judged.ir)) not in seen:
                seen.add(key)
                chunk.keys.append(key)
                programs.append((judged.ir, data))
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._run_all(programs, chunk, kept)
        chunk.kept = [(signature, _text(data)) for signature, data in kept.items()]
        return vars(chunk)

    def _note(self, kept: dict[str, bytes], signature: str, data: bytes) -> None:
        """Keep a file that shows something new, or that is smaller than the one that did."""
        known = kept.get(signature, self.signatures.get(signature))
        if len(data) <= MAX_BYTES and (known is None or len(data) < len(known)):
            kept[signature] = data

    def _run_all(
        self, programs: Sequence[tuple[Any, bytes]], chunk: Chunk, kept: dict[str, bytes]
    ) -> None:
        """Run programs in a child, and what is left of them in another one when it dies."""
        begin = 0
        while begin < len(programs):
            self._running.mark(begin)
            first = begin
            answer, death = self._running.run(lambda: self._run_from(programs, first))  # noqa: B023  # called at once
            if death:
                begin = self._running.marked
                found, _ = self._running.run(lambda: self._run_from(programs[:begin], first))  # noqa: B023  # called at once
                answer = (found or []) + [self._ended(death)]
            for (what, details, is_fault), (_, data) in zip(
                answer, programs[first:], strict=False
            ):
                if is_fault:
                    chunk.faults.append((what, details, _text(data)))
                else:
                    self._note(kept, f"{what} {details}", data)
                chunk.programs["fault" if is_fault else what] += 1
            begin += 1
            if not death:
                return

    def _ended(self, death: str) -> tuple[str, str, bool]:
        if death == "SIGPROF":
            return f"stopped after {RUN_SECONDS} s", "", False
        return f"ended by {death[:40]}", "while it was compiled or run", True

    def _run_from(
        self, programs: Sequence[tuple[Any, bytes]], first: int
    ) -> list[tuple[str, str, bool]]:
        made: list[tuple[str, str, bool]] = []
        for index in range(first, len(programs)):
            self._running.mark(index)
            signal.setitimer(signal.ITIMER_PROF, RUN_SECONDS)
            try:
                made.append((*run_and_compare(programs[index][0]), False))
            except FaultError as fault:
                made.append((str(fault.args[0]), str(fault.args[1]), True))
        return made


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


# -- the corpus -----------------------------------------------------------------------------------


def grow(fuzzer: Fuzzer) -> None:
    """Write the files that show something new, and remove those that show nothing any more.

    Files whose name is no hash stay: they were put there by hand.
    """
    folder = CORPUS / fuzzer.kind
    by_hand = {n: data for n, data in fuzzer.corpus.items() if not n.startswith(KEPT)}
    room = MAX_FILES - len(by_hand)
    order = sorted(fuzzer.signatures.items(), key=lambda item: (_weight(item[0]), item[0]))
    wanted = {data for _, data in order if data not in by_hand.values()}
    kept = [data for data in dict.fromkeys(d for _, d in order) if data in wanted][:room]
    names = {f"{KEPT}{hashlib.sha256(data).hexdigest()[:10]}": data for data in kept}
    for name in fuzzer.corpus.keys() - by_hand.keys() - names.keys():
        (folder / name).unlink()
    for name, data in names.items():
        (folder / name).write_bytes(data)


def _weight(signature: str) -> int:
    """What comes first into the corpus: programs that run, then accepted ones, then refusals."""
    ranks = ("equal", "refused when run", "refused when compiled", "accepted")
    return next((rank for rank, begin in enumerate(ranks) if signature.startswith(begin)), 9)


# -- the table ------------------------------------------------------------------------------------


def report(fuzzers: dict[str, Fuzzer], seed: int) -> str:
    """The tables of what became of files and of programs, as Markdown."""
    loads = {kind: fuzzer.tally.loads for kind, fuzzer in fuzzers.items()}
    programs = {kind: fuzzer.tally.programs for kind, fuzzer in fuzzers.items()}
    count = sum(counter.total() for counter in loads.values())
    return (
        f"{count:,} files, seed {seed}, torch {torch.__version__.split('+')[0]}.\n\n"
        f"{_rows('files', loads)}\n\n{_rows('distinct programs', programs)}"
    )


def _rows(what: str, counts: dict[str, Counter[str]]) -> str:
    total: Counter[str] = sum(counts.values(), Counter())
    names = [name for name, _ in total.most_common() if name != "fault"] + ["fault"]
    lines = [
        f"| {what} | {' | '.join(counts)} | all |",
        f"| --- |{' ---: |' * (len(counts) + 1)}",
        *(
            f"| {name} | {' | '.join(f'{c[name]:,}' for c in counts.values())} | {total[name]:,} |"
            for name in names
        ),
        f"| all | {' | '.join(f'{c.total():,}' for c in counts.values())} | {total.total():,} |",
    ]
    return "\n".join(lines)


BEGIN, END = "<!-- fuzz: begin -->", "<!-- fuzz: end -->"


def record(text: str) -> None:
    """Write the table into SECURITY.md."""
    path = ROOT / "SECURITY.md"
    before, _, rest = path.read_text().partition(BEGIN)
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")


# -- the whole ------------------------------------------------------------------------------------


def fuzz(loads: int, seed: int, kinds: Sequence[str]) -> Iterator[dict[str, Fuzzer]]:
    """Read so many files, shared out to the kinds; yield what became of them after each round."""
    share = sum(SHARES[kind] for kind in kinds)
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
        fuzzers = {kind: Fuzzer(kind, seed, Path(folder)) for kind in kinds}
        for fuzzer in fuzzers.values():
            fuzzer.read_samples()
        for begin in range(0, loads, ROUND):
            for kind, fuzzer in fuzzers.items():
                first, end = (
                    round(count * SHARES[kind] / share)
                    for count in (begin, min(begin + ROUND, loads))
                )
                for start in range(first, end, CHUNK):
                    fuzzer.read(start, min(CHUNK, end - start))
            yield fuzzers


def _memory_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # files of a moment


def replay(paths: Sequence[Path]) -> int:
    """Read files again, whose names begin with their kind; return how many show a fault."""
    found = 0
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            try:
                judged = judge(path.name.split(".")[0], path.read_bytes(), Path(folder))
                outcome = run_and_compare(judged.ir) if judged.ir else (judged.signature,)
            except FaultError as fault:
                outcome, found = fault.args, found + 1
        print(f"{path}: {': '.join(map(str, outcome))}")
    return found


def main(arguments: Sequence[str]) -> int:
    """Read and report; exits with 1 if there is a fault."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--loads", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", choices=list(MUTATORS), default=list(MUTATORS))
    parser.add_argument("--grow", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--replay", nargs="*", type=Path)
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    _limit(4 * MEMORY)  # of this process too: the machine is not its own
    if given.replay:
        return 1 if replay(given.replay) else 0
    begin = time.monotonic()
    fuzzers: dict[str, Fuzzer] = {}
    for fuzzers in fuzz(given.loads, given.seed, given.kinds):
        text = report(fuzzers, given.seed)
        if given.record:
            record(text)
    used = sum(os.times()[:4])
    print(f"{text}\n{used:.0f} s of the CPU, {time.monotonic() - begin:.0f} s")
    if given.grow:
        for fuzzer in fuzzers.values():
            grow(fuzzer)
    if given.record:
        record(text)
    return 1 if any(fuzzer.tally.faults for fuzzer in fuzzers.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
