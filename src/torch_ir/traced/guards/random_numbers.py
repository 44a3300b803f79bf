"""Generators of random numbers while a function is traced: what it does to them is refused."""

from __future__ import annotations

import random
import secrets
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from torch_ir.errors import TraceError
from torch_ir.torch_api import draws
from torch_ir.torch_modes import outside_of_traces

_RANDOM: Any = torch.random
"""The module whose functions ask torch's generator."""


class RandomNumbers:
    """Keeps generators as they are in a ``with`` block in which nothing is drawn.

    In the block their states are moved on, so that setting them to what they were is seen.

    Args:
        known: The generators that a function may draw from.
        foreign: Those of Python's and NumPy's that it closes over, from which it may not.
    """

    def __init__(self, known: Sequence[torch.Generator], foreign: Sequence[Any] = ()):
        self._known = known
        self._foreign = foreign
        self._states: list[torch.Tensor] = []
        self._moved: list[torch.Tensor] = []
        self._others: list[_Foreign] = []
        self._default = _Default()
        self._is_seeded = False

    def __enter__(self) -> None:
        self._states = [generator.get_state() for generator in self._known]
        self._moved, self._is_seeded = self._states, False
        self.drawn_from(self._known)
        self._others = [_Foreign(generator) for generator in self._of_others()]
        self._default.put()

    def __exit__(self, kind: object, *_rest: object) -> None:
        self._default.remove()
        are_moved = [other.put_back() for other in self._others]
        self._look()
        for generator, state in zip(self._known, self._states, strict=True):
            generator.set_state(state)
        if kind is not None:
            return
        if self._default.is_read:
            raise _reads()
        if self._is_seeded:
            raise _seeds()
        if any(are_moved):
            raise TraceError(
                "the function draws random numbers from Python or NumPy, which one call alone "
                "would see",
                remedy="Draw them with torch, or give them as arguments.",
            )

    def _of_others(self) -> Iterator[Any]:
        """Python's own generator, that of NumPy where it is there, and those that are known."""
        yield random
        if (numpy := sys.modules.get("numpy")) is not None:
            yield numpy.random
        yield from self._foreign

    def drawn_from(self, generators: Sequence[torch.Generator]) -> None:
        """Note that generators have been drawn from: what they were is behind them."""
        if not generators:
            return
        self._look()
        with outside_of_traces():
            for generator in generators:
                torch.empty((), device=generator.device).uniform_(generator=generator)
        self._moved = [generator.get_state() for generator in self._known]

    def _look(self) -> None:
        found = [generator.get_state() for generator in self._known]
        self._is_seeded |= not all(map(torch.equal, self._moved, found))

    def require_forward(self, module: GraphModule) -> None:
        """Refuse that a function draws, and sets the state of torch's generator."""
        if self._default.is_set and any(map(draws, module.graph.nodes)):
            raise _seeds()


def _seeds() -> TraceError:
    return TraceError(
        "the function seeds torch's random numbers",
        remedy="Call torch.manual_seed, or the method of a generator, outside the traced "
        "function.",
    )


def _reads() -> TraceError:
    return TraceError(
        "the function reads the seed of torch's random numbers",
        remedy="Read it outside the traced function.",
    )


class _Default:
    """Stands for torch's generator in its own functions, of the thread that traces."""

    def __init__(self) -> None:
        self.is_set = self.is_read = False
        self._thread = 0
        self._true = torch.default_generator

    def put(self) -> None:
        """Let torch's functions ask this."""
        self.is_set, self.is_read, self._thread = False, False, threading.get_ident()
        _RANDOM.default_generator = self

    def remove(self) -> None:
        """Let them ask the generator again."""
        _RANDOM.default_generator = self._true

    def __getattr__(self, name: str) -> Any:
        if threading.get_ident() == self._thread:
            if name == "initial_seed":
                self.is_read = True
                raise _reads()
            self.is_set |= name == "set_state"
        return getattr(self._true, name)


def is_same(held: torch.Generator, known: torch.Generator) -> bool:
    """Return whether two objects are one generator: torch makes a new one as it hands one on."""
    if held.device != known.device:
        return False
    state = known.get_state()
    try:
        known.manual_seed(secrets.randbits(63))
        return torch.equal(held.get_state(), known.get_state())
    finally:
        known.set_state(state)


class _Foreign:
    """The state of random numbers that are not torch's.

    Args:
        generator: Python's module, NumPy's, or a generator of one of them.
    """

    def __init__(self, generator: Any):
        self._generator = generator
        self._state = self._read()

    def put_back(self) -> bool:
        """Set the state to what it was, and return whether it was another one."""
        if repr(self._read()) == repr(self._state):
            return False
        if hasattr(self._generator, "setstate"):
            self._generator.setstate(self._state)
        elif hasattr(self._generator, "set_state"):
            self._generator.set_state(self._state)
        else:
            self._generator.bit_generator.state = self._state
        return True

    def _read(self) -> Any:
        if hasattr(self._generator, "getstate"):
            return self._generator.getstate()
        if hasattr(self._generator, "get_state"):
            name, keys, *rest = self._generator.get_state()
            return (name, keys.tolist(), *rest)
        return self._generator.bit_generator.state


_OF_NUMPY = frozenset({"numpy.random._generator.Generator", "numpy.random.mtrand.RandomState"})


def is_foreign(value: object) -> bool:
    """Return whether an object is a generator of random numbers of Python's or NumPy's.

    Example:
        >>> is_foreign(random.Random(3)), is_foreign(torch.Generator())
        (True, False)
    """
    kind = type(value)
    name = f"{kind.__module__}.{kind.__name__}"
    return isinstance(value, random.Random) or name in _OF_NUMPY
