"""The sweep over all operators survives what crashes, and its page names every failure."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

CRASHING = """
import os, signal, sys
sys.path.insert(0, "tools")
import conformance
check_case = conformance.conformance.check_case

def crash(case, count):
    yield from check_case(case, 1)
    if case.dtype == "int64":
        os.kill(os.getpid(), signal.SIGSEGV)

conformance.conformance.check_case = crash
sys.exit(conformance.main())
"""

PAGE = """
import sys
sys.path.insert(0, "tools")
from conformance_case import EQUAL, FAIL, REFUSED, Case, Result
from conformance_page import page
print(page({
    Case("one", "float32", "function"): [Result(EQUAL)] * 2 + [Result(FAIL, "run", "a < b")],
    Case("two", "float32", "out"): [Result(REFUSED, "export", "why"), Result(EQUAL)],
}, 5))
"""


def python(source, *arguments):
    command = [sys.executable, "-W", "ignore", "-c", source, *arguments]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env)


def test_a_crash_is_one_failure_of_the_sweep_and_not_its_end(tmp_path):
    results = tmp_path / "results.jsonl"
    arguments = ("--results", str(results), "--only", "relu6")
    run = python(CRASHING, *arguments)
    assert "nn_functional_relu6 (int64): crash: sample 1: Segmentation fault" in run.stdout
    assert run.stdout.count("crash") == 1
    assert run.returncode == 1
    cases = len(results.read_text().splitlines())
    assert cases == 3
    again = python(CRASHING, *arguments)
    assert again.stdout.startswith("0 of ")
    assert len(results.read_text().splitlines()) == cases


def test_the_page_counts_all_samples_and_names_every_failure():
    text = python(PAGE).stdout
    assert "| | float32 | `out=` | all |" in text
    assert "| equal | 2 | 1 | 3 |" in text
    assert "| FAIL | 1 | 0 | 1 |" in text
    assert "| samples | 3 | 2 | 5 |" in text
    assert "* `one`, run: a &lt; b (float32)" in text
    assert "`two` (`out=`)." in text
