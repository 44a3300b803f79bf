"""Tests of what all errors share."""

import pytest

from torch_ir.errors import first_line


class SilentError(Exception):
    """An error of a user's whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("wrong size\nsomewhere"), "wrong size"),
        (ValueError("\n \n\t wrong size \n"), "wrong size"),
        (AssertionError(), "AssertionError"),
        (AssertionError("\n"), "AssertionError"),
        (KeyError("x"), "'x'"),
        (SilentError(), "SilentError"),
    ],
)
def test_the_first_line_of_an_error_is_never_missing(error: Exception, line: str) -> None:
    assert first_line(error) == line
