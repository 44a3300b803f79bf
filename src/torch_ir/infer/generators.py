"""Generators of random numbers by name: what an operator's argument ``generator`` stands for."""

from __future__ import annotations

from collections.abc import MutableMapping
from weakref import WeakValueDictionary

import torch

from torch_ir.arguments import public
from torch_ir.errors import ExecutionError, did_you_mean

_GENERATORS: MutableMapping[str, torch.Generator] = (
    WeakValueDictionary() if torch.Generator.__weakrefoffset__ else {}
)
"""Those that somebody holds; torch 2.11 cannot tell, and they are held here."""


@public
def register_generator(name: str, generator: torch.Generator) -> None:
    """Let programs draw from a generator, as long as somebody holds it.

    Args:
        name: What stands in the program, as in ``generator="noise"``.
        generator: The generator.

    Raises:
        ExecutionError: Another generator has that name; or it is no text, or names none.

    Example:
        >>> noise = torch.Generator().manual_seed(0)
        >>> register_generator("noise", noise)
        >>> find_generator("noise") is noise
        True
    """
    if not (isinstance(name, str) and isinstance(generator, torch.Generator)):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
        told = f"{name!r:.40} of {type(generator).__name__}"
        raise ExecutionError(f"a generator is a torch.Generator with a name, got {told}")
    if _GENERATORS.get(name, generator) is not generator:
        raise ExecutionError(
            f"there is a generator {name!r} already", remedy="Choose another name."
        )
    _GENERATORS[name] = generator


def find_generator(name: str) -> torch.Generator:
    """Look up the generator of a name.

    Raises:
        ExecutionError: There is none.
    """
    found = _GENERATORS.get(name)
    if found is None:
        raise ExecutionError(
            f"there is no generator {name!r}",
            remedy=did_you_mean(name, _GENERATORS)
            or "Register one with torch_ir.executor.register_generator, and keep it.",
        )
    return found


def name_of(generator: torch.Generator) -> str:
    """Return the name of a generator that was found by it."""
    return next(name for name, known in _GENERATORS.items() if known is generator)
