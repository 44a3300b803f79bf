"""Contexts of registered containers: what a class holds besides its children, as JSON text.

Plain JSON, plus three tagged objects for what JSON lacks: tuples, members of enumerations and
dicts whose keys are no strings. A class is named and looked up among what this process has
imported; nothing is ever imported for a file.
"""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Mapping
from functools import reduce
from typing import Any, cast

from torch_ir.errors import InvalidIRError

NAMED_TUPLE = "namedtuple"
ENUM_MEMBER = "enum"
"""The type of a container that is no container: a member of an enumeration, in its context."""
DEFAULT_DICT = "collections.defaultdict"
WRITTEN_CONTEXT = "__written__"
"""The key of a context that a registered class has written itself, and not as a string."""

_TUPLE, _ENUM, _ITEMS = "__tuple__", "__enum__", "__items__"
_TAGS = frozenset({_TUPLE, _ENUM, _ITEMS})


def context_text(value: object) -> str:
    """Write a context as text.

    Raises:
        InvalidIRError: It holds something that cannot be written.

    Example:
        >>> context_text([1, ("a", None)])
        '[1, {"__tuple__": ["a", null]}]'
    """
    try:
        return json.dumps(_plain(value))
    except (RecursionError, ValueError) as error:
        raise InvalidIRError(f"a context cannot be written: {error}") from None


def context_value(text: str) -> Any:
    """Read the context that a text was written from.

    Raises:
        InvalidIRError: The text is not one, or names an enumeration that is not imported.

    Example:
        >>> context_value('{"__tuple__": ["a", null]}')
        ('a', None)
    """
    try:
        return json.loads(text, object_hook=_tagged)
    except (RecursionError, ValueError) as error:
        raise InvalidIRError(f"{text!r:.80} is not a context: {error}") from None


def imported_class(name: str) -> type[Any] | None:
    """Find the class of a dotted name in an imported module; None if there is none.

    Example:
        >>> imported_class("builtins.list")
        <class 'list'>
    """
    parts = name.split(".")
    for i in range(len(parts) - 1, 0, -1):
        module = sys.modules.get(".".join(parts[:i]))
        # not getattr, by which a module may import what it is asked for
        found = reduce(lambda held, part: _own(held).get(part), parts[i:], cast(Any, module))
        if isinstance(found, type):
            return cast(type[Any], found)
    return None


def class_name(kind: type[Any]) -> str:
    """Return the dotted name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _own(held: object) -> Mapping[str, Any]:
    return getattr(held, "__dict__", {})


def _plain(value: object) -> object:
    if isinstance(value, enum.Enum):
        fqn = f"{type(value).__module__}:{type(value).__qualname__}"  # as torch spells it
        return {_ENUM: True, "fqn": fqn, "name": value.name}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is tuple:
        return {_TUPLE: [_plain(item) for item in cast(tuple[object, ...], value)]}
    if type(value) is list:
        return [_plain(item) for item in cast(list[object], value)]
    if type(value) is dict:
        entries = cast(dict[object, object], value)
        if all(type(key) is str for key in entries) and not _TAGS & entries.keys():
            return {cast(str, key): _plain(item) for key, item in entries.items()}
        return {_ITEMS: [[_plain(key), _plain(item)] for key, item in entries.items()]}
    raise InvalidIRError(f"a {type(value).__name__} cannot be written")


def _tagged(entries: dict[str, Any]) -> object:
    if _TUPLE in entries:
        return tuple(_listed(entries[_TUPLE]))
    if _ENUM in entries:
        return _member(entries)
    if _ITEMS in entries:
        pairs = _listed(entries[_ITEMS])
        try:
            return dict(pairs)
        except TypeError as error:  # not pairs, or a key that cannot be one
            raise ValueError(str(error)) from None
    return entries


def _listed(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list, got {type(value).__name__}")
    return cast(list[Any], value)


def _member(entries: Mapping[str, Any]) -> enum.Enum:
    module, _, path = str(entries.get("fqn")).partition(":")
    kind = imported_class(f"{module}.{path}")
    name = entries.get("name")
    if kind is None or not issubclass(kind, enum.Enum):
        raise ValueError(f"no enumeration {module}.{path} is imported")
    if name not in kind.__members__:
        raise ValueError(f"{kind.__name__} has no member {name!r:.80}")
    return kind.__members__[str(name)]
