"""The exact place of a fault that msgspec found; called only when there is one."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from torch_ir.errors import did_you_mean
from torch_ir.serde.json.faults import Fault, key_path
from torch_ir.serde.json.wire import FIELD_NAMES

T = TypeVar("T")
Step: TypeAlias = str | int | None
"""A field or key, an index, or a key that msgspec does not tell."""

_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|\[\.\.\.\]")


def convert(value: object, kind: type[T]) -> T:
    """Convert plain data to records.

    Raises:
        Fault: It has another form.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise explain(error, value, kind) from None


def explain(error: msgspec.ValidationError, document: object, kind: Any) -> Fault:
    """Find the fault behind an error that came from converting ``document`` to ``kind``.

    msgspec writes ``[...]`` for the key of a mapping; the key is found by converting parts of the
    document again.
    """
    reason, _, place = str(error).partition(" - at ")
    if place.startswith("`key` in "):
        reason, place = f"{reason} as a key", place.removeprefix("`key` in ")
    steps = [_step(match) for match in _STEP.finditer(place.strip("`").removeprefix("$"))]
    for position, step in enumerate(steps):
        if step is None and _fails(document, kind, error):
            steps[position], document = _guilty_key(document, kind, error, steps[:position])
    reason = reason.removeprefix("Object ")
    unknown = re.search(r"unknown field `(.*)`", reason)
    remedy = did_you_mean(unknown[1], FIELD_NAMES) if unknown else ""
    return Fault("".join(map(_path, steps)), reason, remedy or None)


def _step(match: re.Match[str]) -> Step:
    return int(match[2]) if match[2] else match[1]


def _path(step: Step) -> str:
    if step is None:
        return "[...]"
    return f"[{step}]" if isinstance(step, int) else key_path(step)


def _guilty_key(
    document: object, kind: Any, error: Exception, place: list[Step]
) -> tuple[str, object]:
    """The first key at ``place`` that causes the error, and the document with that key alone."""
    mapping = document
    for step in place:
        mapping = cast(Any, mapping)[step]
    items = list(cast(Mapping[str, object], mapping).items())

    def fails(count: int) -> bool:
        return _fails(_replaced(document, place, dict(items[:count])), kind, error)

    count = bisect_left(range(1, len(items)), True, key=fails) + 1
    key, value = items[count - 1]
    return key, _replaced(document, place, {key: value})


def _fails(document: object, kind: Any, error: Exception) -> bool:
    try:
        msgspec.convert(document, kind)
    except msgspec.ValidationError as other:
        return str(other) == str(error)
    return False


def _replaced(document: Any, place: list[Step], value: object) -> object:
    """A copy of the document with another value at a place; what is not on the way is shared."""
    if not place:
        return value
    step, *rest = place
    copy: Any = document.copy()
    copy[step] = _replaced(document[step], rest, value)
    return copy


def first_place(document: Any, is_bad: Callable[[object], bool]) -> str:
    """Return the path of the first key or value that is bad, or the empty string."""
    above: list[str] = []
    waiting = [iter([("", document)])]
    while waiting:
        for step, value in waiting[-1]:
            if isinstance(value, Mapping):
                held = cast(Mapping[str, Any], value)
                bad = next((f'["{key!a}"]' for key in held if is_bad(key)), None)
                if bad is not None:
                    return "".join([*above, step, bad])
                inside = ((key_path(key), item) for key, item in held.items())
            elif isinstance(value, list):
                entries = enumerate(cast(list[Any], value))
                inside = ((f"[{index}]", item) for index, item in entries)
            elif is_bad(value):
                return "".join([*above, step])
            else:
                continue
            above.append(step)
            waiting.append(iter(inside))
            break
        else:
            waiting.pop()
            del above[-1:]
    return ""


def is_unencodable(value: object) -> bool:
    """Return whether JSON cannot hold a string or number: lone surrogates, endless digits."""
    try:
        msgspec.json.encode(value)
    except (UnicodeEncodeError, ValueError):
        return True
    return False
