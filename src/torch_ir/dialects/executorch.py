"""Lets ExecuTorch define the operators whose names the Edge and Backend dialects share with it."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from torch_ir.quiet import quietly


@cache
def executorch_first() -> None:
    """Let executorch, if it is installed, define its operators: it fails if others have."""
    if find_spec("executorch") is not None:
        # an installation that is broken defines nothing, now or later
        with suppress(Exception), quietly():
            import_module("executorch.exir.passes._quant_patterns_and_replacements")
