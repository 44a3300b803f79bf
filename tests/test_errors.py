"""Tests of what all errors share."""

import pytest

from torch_ir.errors import ExecutionError, InputError, first_line, raised_as


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


def test_foreign_errors_become_ours_with_their_cause() -> None:
    with (
        pytest.raises(ExecutionError, match="it fails: no size") as caught,
        raised_as(lambda error: ExecutionError(f"it fails: {error}"), passing=(InputError,)),
    ):
        raise ValueError("no size")
    assert isinstance(caught.value.__cause__, ValueError)


def test_kinds_that_pass_are_not_changed() -> None:
    with (
        pytest.raises(InputError, match=r"^ours$"),
        raised_as(lambda error: ExecutionError(f"it fails: {error}"), passing=(InputError,)),
    ):
        raise InputError("ours")
    with pytest.raises(KeyboardInterrupt), raised_as(lambda error: ExecutionError("never")):
        raise KeyboardInterrupt
