"""Every operator that a program may call was called wrongly, and no process died of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from torch_ir.ops.rules import operator_rule
from torch_ir.ops.schema import known_operators

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests/ops/data/trusting_kernels.txt"
HINT = "run make trusting-kernels, and give what dies a rule or a verdict"


def rows():
    lines = [line.split() for line in FILE.read_text().splitlines() if not line.startswith("#")]
    return {op_type: [*map(int, numbers)] for op_type, *numbers in lines}


@pytest.mark.recorded
def test_the_search_was_made_with_this_torch():
    version = torch.__version__.partition("+")[0]
    assert f"from torch {version}," in FILE.read_text().splitlines()[0], HINT


def test_every_operator_that_a_program_may_call_was_tried():
    allowed = {op_type for op_type in known_operators() if operator_rule(op_type).allowed}
    assert allowed == rows().keys(), HINT


def test_no_process_dies_of_what_the_rules_let_through():
    found = rows()
    assert {op for op, (_, _, died, _, died_too) in found.items() if died or died_too} == set()
    assert all(calls > 0 for calls, *_ in found.values())
