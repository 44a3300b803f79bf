"""The options that backends have, and what each takes: others are refused before anything runs.

What a runtime refuses of a program is left to torch. What it would refuse of an option is a fault
of the call, and has to be told from that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias, cast

from torch_ir.errors import ExecutionError, did_you_mean

Taken: TypeAlias = "type[Any] | tuple[str, ...] | frozenset[str] | None"
"""What an option takes: a type, one of some names, a list of some names, or anything."""
_LISTED = 20
"""How many names an error lists: inductor has hundreds."""
Known: TypeAlias = Collection[str] | Mapping[str, Taken]
"""The names of options, which may say what each takes."""


def require_options(name: str, settings: Mapping[str, Any], known: Known) -> None:
    """Refuse options that a backend does not have, and values that they do not take.

    Objects of a runtime's own are its matter.

    Args:
        name: The name of the backend.
        settings: The options that are given.
        known: Those that it has.

    Raises:
        ExecutionError: There is one.

    Example:
        >>> known = {"threads": int, "level": ("none", "all")}
        >>> require_options("acme", {"threads": 2, "level": "all"}, known)
        >>> require_options("acme", {"level": "al"}, known)
        Traceback (most recent call last):
        torch_ir.errors.ExecutionError: the backend 'acme' takes no level='al'
        Did you mean all?
    """
    for option, value in settings.items():
        if option not in known:
            public_first = sorted(known, key=lambda name: (name.startswith("_"), name.lower()))
            listed = ", ".join(public_first[:_LISTED]) if known else "none"
            rest = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
            raise ExecutionError(
                f"the backend {name!r} has no option {option!r:.60}",
                remedy=did_you_mean(str(option), known) or f"It has {listed}{rest}.",
            )
        remedy = _misfit(value, known[option]) if isinstance(known, Mapping) else ""
        if remedy:
            raise ExecutionError(
                f"the backend {name!r} takes no {option}={value!r:.60}", remedy=remedy
            )


def joined(known: Sequence[Known]) -> Known:
    """Return the options of several backends, each of which is given all."""
    whole: dict[str, Taken] = {}
    for one in known:
        whole |= cast("Mapping[str, Taken]", one) if isinstance(one, Mapping) else {}
        whole |= {name: None for name in one if name not in whole}
    return whole


def _misfit(value: object, taken: Taken) -> str:
    """What an option takes in place of a value; empty if it takes it."""
    if taken is None or not isinstance(value, _PLAIN):
        return ""
    if isinstance(taken, type):
        is_one = type(value) is bool if taken is bool else isinstance(value, taken)
        is_one &= taken is bool or not isinstance(value, bool)
        return "" if is_one else f"It takes a value of type {taken.__name__}."
    if isinstance(taken, tuple):
        known = f"It takes {', '.join(taken)}."
        return "" if value in taken else did_you_mean(str(value), taken) or known
    if not isinstance(value, list | tuple):
        return f"It takes a list of {', '.join(sorted(taken))}."
    names = [item for item in cast("Sequence[object]", value) if isinstance(item, str)]
    return next((_misfit(item, tuple(sorted(taken))) for item in names if item not in taken), "")


_PLAIN = (str, int, float, list, tuple, dict, type(None))
