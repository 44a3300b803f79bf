"""Arguments of public functions that a type checker cannot see: integers, lists and seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch_ir.errors import InvalidIRError

MAX_SECONDS = 10_000_000
"""Of a limit of time: some months."""


def require_integer(
    value: object, name: str, low: int | None = None, high: int | None = None
) -> None:
    """Require an integer within bounds.

    Raises:
        InvalidIRError: It is another kind of value, or beyond a bound.

    Example:
        >>> require_integer(8, "nodes", 0, 100)
    """
    if not isinstance(value, int):
        raise InvalidIRError(f"{name} is an integer, got {value!r:.60}")
    if low is not None and value < low:
        raise InvalidIRError(f"{name} is at least {low:,}, got {value!r:.60}")
    if high is not None and value > high:
        raise InvalidIRError(f"{name} is at most {high:,}, got {value!r:.60}")


def require_list(values: object, name: str, kind: type) -> None:
    """Require None or a list of values of a kind; a text alone is no list of texts.

    Raises:
        InvalidIRError: It is something else.

    Example:
        >>> require_list(["aten.add*"], "operators", str)
    """
    if values is None:
        return
    items = cast(Sequence[object], () if isinstance(values, str | bytes) else values)
    is_list = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    if not is_list or not all(isinstance(item, kind) for item in items):
        remedy = f"Give [{values!r:.40}]." if isinstance(values, kind) else None
        told = f"{name} is a list of {kind.__name__}, got {values!r:.60}"
        raise InvalidIRError(told, remedy=remedy)


def require_seconds(seconds: object) -> None:
    """Require that a limit of time is one that clocks and queues take.

    Raises:
        InvalidIRError: It is negative, no number, or of years.

    Example:
        >>> require_seconds(60.0)
    """
    if not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_SECONDS:
        raise InvalidIRError(
            f"a limit of time is from 0 to {MAX_SECONDS:,} seconds, got {seconds!r:.60}"
        )
