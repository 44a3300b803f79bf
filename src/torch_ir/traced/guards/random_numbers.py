"""Generators of random numbers while a function is traced: what it does to them is refused."""

from __future__ import annotations

import random
import re
import secrets
import sys
import threading
from collections.abc import Sequence
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
    """

    def __init__(self, known: Sequence[torch.Generator]):
        self._known = known
        self._states: list[torch.Tensor] = []
        self._moved: list[torch.Tensor] = []
        self._others: tuple[Any, str] = None, ""
        self._default = _Default()
        self._is_seeded = False

    def __enter__(self) -> None:
        self._states = [generator.get_state() for generator in self._known]
        self._moved, self._is_seeded = self._states, False
        self.drawn_from(self._known)
        self._others = random.getstate(), _numpy_state()
        self._default.put()

    def __exit__(self, kind: object, *_rest: object) -> None:
        self._default.remove()
        others = random.getstate(), _numpy_state()
        self._look()
        for generator, state in zip(self._known, self._states, strict=True):
            generator.set_state(state)
        random.setstate(self._others[0])
        if kind is not None:
            return
        if self._default.is_read:
            raise _reads()
        if self._is_seeded:
            raise _seeds()
        if self._others != others:
            raise TraceError(
                "the function draws random numbers from Python or NumPy, which one call alone "
                "would see",
                remedy="Draw them with torch, or give them as arguments.",
            )

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


def _numpy_state() -> str:
    numpy = sys.modules.get("numpy")
    return "" if numpy is None else re.sub(r"\s+", "", repr(numpy.random.get_state()))
