"""Marks of tests that need what an older torch lacks or does wrong itself."""

from __future__ import annotations

import pytest

from torch_ir.torch_mends import IS_BEFORE_2_13


def since_2_13(what: str) -> pytest.MarkDecorator:
    """Skip a test before torch 2.13, and say what that torch does."""
    return pytest.mark.skipif(IS_BEFORE_2_13, reason=f"torch before 2.13 {what}")
