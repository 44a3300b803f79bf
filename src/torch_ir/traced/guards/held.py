"""Containers as what they hold, whatever their classes say of it.

Code may read a container past the methods of its class (``self[0]`` beside an ``__iter__`` of its
own), and these may raise, count calls or make new objects. What guards compare is what the class
of Python's own that it is made of holds.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

_BASES: tuple[Any, ...] = (
    *(OrderedDict, dict, list, tuple, deque, set, frozenset, MappingProxyType),
)
_READS = (
    *("__iter__", "__len__", "__bool__", "__getitem__", "__getattribute__"),
    *("keys", "values", "items"),
)


def base_of(container: Any) -> Any:
    """Return the class of Python's own that a container is made of."""
    return next((kind for kind in type(container).__mro__ if kind in _BASES), object)


def held(container: Any) -> Any:
    """Return a container as what it holds: itself, unless its class has its own say in that.

    Example:
        >>> class Hidden(list):
        ...     def __iter__(self):
        ...         return iter(())
        >>> hidden = Hidden([1, 2])
        >>> list(hidden), list(held(hidden))
        ([], [1, 2])
    """
    kind, base = type(container), base_of(container)
    if kind is base or base is object:
        return container
    if all(getattr(kind, name, None) is getattr(base, name, None) for name in _READS):
        return container
    return _BaseMapping(container, base) if issubclass(base, dict) else _BaseItems(container, base)


def put_back(container: Any, before: Any) -> None:
    """Let a dictionary or list hold again what it held before."""
    base = base_of(container)
    if issubclass(base, list):
        base.__setitem__(container, slice(None), before)
        return
    base.clear(container)
    for key, value in before.items():
        base.__setitem__(container, key, value)


class _BaseItems(Collection[Any]):
    """What a sequence or set holds."""

    def __init__(self, value: Any, base: Any):
        self._value = value
        self._base = base

    def __iter__(self) -> Iterator[Any]:
        return self._base.__iter__(self._value)

    def __len__(self) -> int:
        return self._base.__len__(self._value)

    def __contains__(self, item: object) -> bool:
        return self._base.__contains__(self._value, item)


class _BaseMapping(_BaseItems, Mapping[Any, Any]):
    """What a dictionary holds."""

    def __getitem__(self, key: Any) -> Any:
        return self._base.__getitem__(self._value, key)

    def values(self) -> Any:
        return self._base.values(self._value)
