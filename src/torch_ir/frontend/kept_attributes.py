"""Attributes of modules as they were before a trace ran the model's code.

A model may count its calls or fill a cache of its own. What it runs next must not see that.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

import torch
from torch import nn

_Container: TypeAlias = "dict[Any, Any] | list[Any] | set[Any] | deque[Any]"
_CONTAINERS = (dict, OrderedDict, defaultdict, list, set, deque)
_VALUES = (torch.Tensor, *_CONTAINERS, tuple, int, float, complex, str, bytes, type(None))
_OF_TORCH = frozenset(vars(nn.Module()))
"""What every module has: its parameters, buffers, modules and hooks."""


@contextmanager
def kept_attributes(model: nn.Module, *, but_objects: bool = False) -> Generator[None]:
    """Give a model its attributes again after a ``with`` block, and containers what they held.

    Containers stay the objects that they are, since several modules may hold one. Parameters,
    buffers and modules are not looked at.

    Args:
        model: The model.
        but_objects: Leave it new attributes that are objects of the user's classes: what takes
            them as arguments tells them by identity.

    Example:
        >>> class Counts(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.calls, self.seen = 0, []
        ...
        ...     def forward(self, x):
        ...         self.calls += 1
        ...         self.seen.append(x)
        ...
        >>> model = Counts()
        >>> with kept_attributes(model):
        ...     model("x")
        ...     print(model.calls, model.seen)
        1 ['x']
        >>> model.calls, model.seen
        (0, [])
    """
    attributes = [(vars(module), _own(vars(module))) for module in model.modules()]
    contents: dict[int, tuple[_Container, _Container]] = {}
    _hold(contents, [value for _, before in attributes for value in before.values()])
    try:
        yield
    finally:
        for facts, before in attributes:
            for name, value in _own(facts).items():
                if name not in before and not (but_objects and not isinstance(value, _VALUES)):
                    del facts[name]
            facts.update(before)
        for container, before in contents.values():
            if not _is_same(container, before):
                container.clear()
                add = container.update if isinstance(container, dict | set) else container.extend
                cast("Callable[[Any], None]", add)(before)


def _own(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: facts[name] for name in facts.keys() - _OF_TORCH}


def _hold(contents: dict[int, tuple[_Container, _Container]], values: Iterable[Any]) -> None:
    """Note what containers hold, each once, also those in others."""
    left = [*values]
    while left:
        value = left.pop()
        if type(value) in _CONTAINERS and id(value) not in contents:
            contents[id(value)] = value, value.copy()
            left += value.values() if isinstance(value, dict) else value
        elif isinstance(value, tuple):
            left += cast("tuple[Any, ...]", value)


def _is_same(container: _Container, before: _Container) -> bool:
    """Whether a container holds the same objects, in the same order."""
    if isinstance(container, dict):
        items = [*container.items()], [*cast("dict[Any, Any]", before).items()]
        now, then = ([part for item in pairs for part in item] for pairs in items)
    else:
        now, then = [*container], [*before]
    return len(now) == len(then) and all(a is b for a, b in zip(now, then, strict=True))
