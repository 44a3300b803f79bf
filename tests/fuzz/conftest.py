"""Tests whose harness forks, in a process of their own where CUDA has begun in this one."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test in a new process where a fork of this one could not use torch.

    CUDA does not outlive a fork: what a child asks of it raises, or hangs.
    """
    if not torch.cuda.is_initialized():
        return None
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", pyfuncitem.nodeid]
    made = subprocess.run(
        command, cwd=pyfuncitem.config.rootpath, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout[-8000:] + made.stderr[-2000:]
    return True
