"""Faults planted in compiled graphs and in denotations are found: a fixed part of them all."""

import sys
from collections import Counter
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

from fault_cases import Case, axis  # noqa: E402  # the path comes first
from planted_faults import Fault, faults, is_found, program  # noqa: E402  # as above

FAULTS = faults()


def test_there_are_200_and_more_of_every_kind():
    assert len(FAULTS) >= 200
    assert len({str(fault) for fault in FAULTS}) > 200
    places = Counter(fault.place for fault in FAULTS)
    assert places.keys() == {"graph", "memory", "denotation", "delegate", "kernel"}
    assert places["memory"] >= 200
    assert places.total() >= 2000


OTHERS = [fault for fault in FAULTS if fault.place != "kernel"]
KERNELS = [fault for fault in FAULTS if fault.place == "kernel"]


@pytest.mark.parametrize("fault", OTHERS[::8], ids=str)
def test_a_planted_fault_is_found(fault):
    assert is_found(fault)


@pytest.mark.parametrize("fault", KERNELS[::53], ids=str)
def test_a_wrong_kernel_is_found_where_it_can_be_seen(fault):
    assert is_found(fault)


def test_a_fault_that_changes_nothing_is_refused():
    case = Case("aten.sum.dim_IntList", {"self": _ones()}, {"dim": [1]}, ())
    fault = Fault("graph", case.op, "wrong axis", (case, axis(dim=[0])))
    with pytest.raises(
        ValueError, match=r"^graph: aten\.sum\.dim_IntList: wrong axis changes nothing$"
    ):
        is_found(fault)
    ir, inputs = program(case)
    assert ir.check() == ()
    assert len(inputs) == 1


def _ones():
    import torch

    return torch.ones(3, 3)
