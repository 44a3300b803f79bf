"""Take every operator that PyTorch tests itself with through torch_ir, and write what came of it.

Each operator of ``torch.testing._internal.common_methods_invocations.op_db`` is called on its
first samples in five dtypes, and in one dtype in place and with ``out=``. Each case runs in a
forked child, so that a crash or an endless loop is a line of the report and not its end.

Results go to ``out/conformance.jsonl``, one line per case. A run that was stopped goes on where it
was; what other code gave is run again. When every case has a result, ``docs/conformance.md`` is
written.

Usage: ``python tools/conformance.py [--jobs 2] [--only SUBSTRING] [--part 1/4] [--failed]``
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import torch

import conformance_case as conformance
from conformance_case import Case, Result
from conformance_page import page
from semantics_page import START as DENOTATIONS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "out/conformance.jsonl"
PAGE = ROOT / "docs/conformance.md"
SAMPLES = 5
SECONDS = 120


def main() -> int:
    options = arguments()
    code = source_digest()
    path = options.results
    known = {} if options.fresh else read_results(path, code, any_code=options.keep)
    cases = list(conformance.all_cases())
    wanted = chosen = selected(cases, options.only, options.part)
    if options.failed:
        wanted = [c for c in wanted if any(map(is_failure, known.get(c, [])))]
    else:
        wanted = [c for c in wanted if c not in known]
    print(f"{len(wanted)} of {len(cases)} cases to run with torch {torch.__version__}", flush=True)
    write_results(path, known, code)
    with path.open("a", encoding="utf-8") as file:
        for case, results in run_all(wanted, options.jobs):
            known[case] = results
            file.write(line(case, results, code))
            file.flush()
            for result in filter(is_failure, results):
                print(f"{case}: {result.stage}: {result.reason}", flush=True)
    return report(cases, known, chosen)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="children at a time")
    parser.add_argument("--only", default="", help="operators whose name has this in it")
    parser.add_argument("--part", default="1/1", help="K/N: every N-th case, from the K-th")
    parser.add_argument("--failed", action="store_true", help="only what failed when last run")
    parser.add_argument("--keep", action="store_true", help="believe results of other code")
    parser.add_argument("--fresh", action="store_true", help="believe no earlier result")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results are kept")
    return parser.parse_args()


def selected(cases: list[Case], only: str, part: str) -> list[Case]:
    first, _, step = part.partition("/")
    return [c for c in cases[int(first) - 1 :: int(step)] if only in c.operator]


def report(cases: list[Case], known: dict[Case, list[Result]], wanted: Iterable[Case]) -> int:
    """Print the totals, write the page if nothing is missing, and say whether all went well."""
    results = [result for case in wanted for result in known.get(case, [])]
    for outcome, count in Counter(result.outcome for result in results).most_common():
        print(f"{count:6} {outcome}")
    missing = [case for case in cases if case not in known]
    if missing:
        print(f"{len(missing)} cases have no result: {PAGE.relative_to(ROOT)} is not written")
    else:
        text = page({case: known[case] for case in cases}, SAMPLES)
        _, start, section = PAGE.read_text(encoding="utf-8").partition(DENOTATIONS)
        PAGE.write_text(text + (f"\n{start}{section}" if start else ""), encoding="utf-8")
    return 1 if any(map(is_failure, results)) else 0


def is_failure(result: Result) -> bool:
    return result.outcome == conformance.FAIL


# -- children ------------------------------------------------------------------------------------


def run_all(cases: list[Case], jobs: int) -> Iterator[tuple[Case, list[Result]]]:
    """Each case with its results, as its child ends."""
    warm_up()
    waiting, running = iter(cases), dict[int, tuple[Case, IO[str]]]()
    while True:
        while len(running) < jobs and (case := next(waiting, None)) is not None:
            file = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  # read after the child
            running[start(case, file)] = case, file
        if not running:
            return
        child, status = os.wait()
        case, file = running.pop(child)
        yield case, collected(file, status)


def warm_up() -> None:
    """What torch imports and caches at its first export, the children inherit."""
    torch.set_num_threads(1)
    for _ in conformance.check_case(Case("add", "float32", "function"), 1):
        gc.collect()
    gc.freeze()


def start(case: Case, file: IO[str]) -> int:
    """Fork a child that writes its results to a file, and is killed when its time is up."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        silence()
        for result in conformance.check_case(case, SAMPLES):
            file.write(json.dumps(asdict(result)) + "\n")
            file.flush()
        status = 0
    except BaseException:  # noqa: BLE001  # a child must not run on into its parent's code
        traceback.print_exc()
    finally:
        os._exit(status)


def silence() -> None:
    """torch's own logs and warnings are not the report's subject."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def collected(file: IO[str], status: int) -> list[Result]:
    """What a child wrote, and how it ended if that was not by itself."""
    with file:
        file.seek(0)
        results = [Result(**json.loads(text)) for text in file if text.endswith("\n")]
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        late = number == signal.SIGALRM
        why = f"took more than {SECONDS} s" if late else signal.strsignal(number)
        results.append(Result(conformance.FAIL, "crash", f"sample {len(results)}: {why}"))
    elif status:
        results.append(Result(conformance.FAIL, "crash", f"exit status {status >> 8}"))
    return results


# -- results -------------------------------------------------------------------------------------


def read_results(path: Path, code: str, *, any_code: bool) -> dict[Case, list[Result]]:
    """The last results of each case, of this code unless ``any_code``."""
    known: dict[Case, list[Result]] = {}
    if path.exists():
        for text in path.read_text(encoding="utf-8").splitlines():
            entry: dict[str, Any] = json.loads(text)
            if any_code or entry["code"] == code:
                known[Case(**entry["case"])] = [Result(**item) for item in entry["results"]]
    return known


def write_results(path: Path, known: dict[Case, list[Result]], code: str) -> None:
    path.parent.mkdir(exist_ok=True)
    text = "".join(line(case, results, code) for case, results in known.items())
    path.write_text(text, encoding="utf-8")


def line(case: Case, results: list[Result], code: str) -> str:
    entry = {"case": asdict(case), "code": code, "results": [asdict(r) for r in results]}
    return json.dumps(entry) + "\n"


def source_digest() -> str:
    """A hash of the code under test and of torch's version."""
    state = hashlib.sha256(f"{torch.__version__} {SAMPLES}".encode())
    for path in sorted([*(ROOT / "src").rglob("*.py"), ROOT / "tools/conformance_case.py"]):
        state.update(path.read_bytes())
    return state.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
