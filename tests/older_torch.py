"""Marks of tests that need what an older torch lacks or does wrong itself."""

from __future__ import annotations

import pytest

from torch_ir.torch_versions import torch_is


def since_2_13(what: str) -> pytest.MarkDecorator:
    """Skip a test before torch 2.13, and say what that torch does."""
    return pytest.mark.skipif(not torch_is("2.13"), reason=f"torch before 2.13 {what}")
