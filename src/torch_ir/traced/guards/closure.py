"""The closure of a function, and the guard that it is unchanged.

One walk from the function reaches its closure, defaults, the globals and attributes that its code
names, the classes and functions that it calls, and the state of every module and object. What was
found is compared in two ways: at each call, whether every container holds the very same objects;
where one may not, by a walk that is made anew, whether the values are equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from torch_ir.torch_api import FakeTensor
from torch_ir.traced.call_key import Token
from torch_ir.traced.guards.collector import Collector


class Closure:
    """Everything that functions and objects may read, as it was when this was made.

    Args:
        roots: The functions and objects, each with a name for people.

    Attributes:
        tokens: What was found, each with where it is.
        tensors: The distinct tensors among it, in order.
        paths: Where each tensor is.
        generators: The generators of random numbers among it.
        foreign: Those of Python's and NumPy's.
        guard: Checks whether it still is what it was.
    """

    def __init__(self, roots: Iterable[tuple[str, Any]]):
        self._roots = list(roots)
        collected = Collector(self._roots)
        self.tokens: list[tuple[str, Token]] = collected.tokens
        self.tensors: list[torch.Tensor] = collected.tensors
        self.paths: list[str] = collected.paths
        self.generators: list[torch.Generator] = collected.generators
        self.foreign: list[Any] = collected.foreign
        self._positions = collected.positions
        self._seen = collected.seen  # no other object takes the identity of one of these
        self.guard = collected.guard
        self.guard.seal(self.tensors)

    def is_alike(self, other: Closure) -> bool:
        """Return whether another walk found the same, whichever objects hold it."""
        return self.tokens == other.tokens

    def position_of(self, tensor: torch.Tensor) -> int | None:
        """Return the position of a tensor among :attr:`tensors`."""
        return self._positions.get(id(tensor))

    def traced_tensors(self) -> list[str]:
        """Return where tensors that are being traced have come to be kept."""
        if self.guard.holds():
            return []
        now = Closure(self._roots)
        found = zip(now.tensors, now.paths, strict=True)
        return [path for tensor, path in found if isinstance(tensor, FakeTensor)]
