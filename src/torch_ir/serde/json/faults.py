"""Faults of a document, each with its path, such as ``$.nodes[3].inputs[0].shape[1]``.

A path is built while the fault travels up, so that documents without faults pay nothing for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from torch_ir.errors import InvalidIRError, SerializationError

A = TypeVar("A")
B = TypeVar("B")


class Fault(Exception):  # noqa: N818  # never leaves this package; what users see is SerializationError
    """A fault at a place; ``path`` grows at its front as the fault travels to the root."""

    def __init__(self, path: str, reason: str, remedy: str | None = None):
        super().__init__(reason)
        self.path = path
        self.reason = reason
        self.remedy = remedy

    def below(self, path: str) -> Fault:
        """Return the same fault with its path continued from further up."""
        return Fault(path + self.path, self.reason, self.remedy)

    def error(self, name: str) -> SerializationError:
        """Return the error for the user, with file, place and reason."""
        return SerializationError(f"{name}: at ${self.path}: {self.reason}", remedy=self.remedy)


def as_fault(error: InvalidIRError | Fault, path: str) -> Fault:
    """Convert a refusal of the data model, or a fault from further down, to one at ``path``."""
    if isinstance(error, Fault):
        return error.below(path)
    return Fault(path, error.message, error.remedy)


def key_path(key: str) -> str:
    """Return a mapping's key as a path step: ``.alpha``, or ``["fc1.weight"]`` for other keys.

    Example:
        >>> key_path("alpha"), key_path("fc1.weight")
        ('.alpha', '["fc1.weight"]')
    """
    if re.fullmatch(r"[A-Za-z_]\w*", key, re.ASCII):
        return f".{key}"
    quoted = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'["{quoted}"]'


def each(convert: Callable[[A], B], items: Iterable[A], path: str) -> tuple[B, ...]:
    """Convert every item; a fault gets the item's index."""
    done: list[B] = []
    try:
        for item in items:
            done.append(convert(item))
    except (InvalidIRError, Fault) as error:
        raise as_fault(error, f"{path}[{len(done)}]") from None
    return tuple(done)


def each_value(convert: Callable[[A], B], items: Mapping[str, A], path: str) -> dict[str, B]:
    """Convert every value; a fault gets the key."""
    done: dict[str, B] = {}
    key = ""
    try:
        for key, item in items.items():
            done[key] = convert(item)
    except (InvalidIRError, Fault) as error:
        raise as_fault(error, path + key_path(key)) from None
    return done


def at(path: str, convert: Callable[..., B], *arguments: Any) -> B:
    """Convert one value; a fault gets the path."""
    try:
        return convert(*arguments)
    except (InvalidIRError, Fault) as error:
        raise as_fault(error, path) from None
