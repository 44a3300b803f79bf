"""Memory that is kept between runs."""

import ctypes
import subprocess
import sys

import pytest
import torch

import torch_ir
from torch_ir import extract_ir
from torch_ir.errors import ExecutionError
from torch_ir.executor import allocator

SCRIPT = """
import resource, sys, torch, torch_ir
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(*[nn.Conv2d(8, 8, 3, padding=1) for _ in range(4)]).eval()
x = torch.randn(32, 8, 96, 96)
options = {"keep_memory": True} if sys.argv[1] == "kept" else {}
run = torch_ir.compile(torch_ir.extract_ir(model, (x,)), model.state_dict(), options=options)
first = run(x)
kept = first.clone()
least = None
for _ in range(6):  # the heap settles in the first rounds
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        last = run(x)
    made = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    least = made if least is None else min(least, made)
assert torch.equal(first, kept) and torch.equal(last, model(x))
print(least)
"""


def is_glibc():
    return sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")


@pytest.mark.skipif(not is_glibc(), reason="the allocator is not glibc's")
def test_runs_cost_few_page_faults():
    faults = [
        int(subprocess.check_output([sys.executable, "-W", "ignore", "-c", SCRIPT, how]))
        for how in ("default", "kept")
    ]
    assert faults[1] <= 0.05 * faults[0]


def test_another_allocator_is_refused(monkeypatch):
    monkeypatch.setattr(allocator.sys, "platform", "darwin")
    with pytest.raises(ExecutionError) as error:
        torch_ir.compile(
            extract_ir(torch.nn.ReLU(), (torch.ones(2),)), options={"keep_memory": True}
        )
    assert str(error.value) == (
        "keep_memory is a setting of glibc's allocator, and this process has another\n"
        "Leave the option out, or preload an allocator that keeps memory."
    )
