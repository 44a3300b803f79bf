"""Trials of a pattern and its replacement: arguments to call both with, and the comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch

from torch_ir.dialects.backend.sampling import close, varied
from torch_ir.errors import PassError, Raised, attempt
from torch_ir.infer.types import TensorType
from torch_ir.torch_api import pytree

MOST_ELEMENTS = 1 << 14
"""How many elements the arguments of a place may have for both to be tried with such."""


def other_values(value: Any) -> Iterator[Any]:
    """Yield other values of an attribute, which its pattern may refuse."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (other for other in (value + 1, value - 1, 0) if other != value)
    elif isinstance(value, float):
        yield from (v for v in (value * 0.5 + 0.25, value * 0.5, value + 1.0) if v != value)
    elif isinstance(value, torch.dtype):
        kinds = (torch.float64, torch.float32, torch.int32, torch.int64)
        yield from (kind for kind in kinds if kind != value)
    elif isinstance(value, tuple | list):
        parts = [list(other_values(part)) for part in cast(Sequence[Any], value)]
        for changed in zip(*parts, strict=False):
            yield type(cast(Any, value))(changed)
        yield type(cast(Any, value))(reversed(cast(Sequence[Any], value)))


def require_same(
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    attributes: Mapping[str, Any],
    tolerance: float,
) -> None:
    """Call a pattern and its replacement, and require that they give the same.

    Raises:
        PassError: They do not, or one refuses the arguments.
    """
    results: list[list[Any]] = []
    for name, function in (("pattern", pattern), ("replacement", replacement)):
        made = attempt(function, *map(torch.clone, inputs), **attributes)
        if isinstance(made, Raised):
            told = f"the {name} refuses the example: {made.error!s:.200}"
            raise PassError(told) from made.error
        results.append(pytree.tree_leaves(made))
    expected, got = results
    pairs = zip(expected, got, strict=False)
    if len(expected) == len(got) and all(close(a, b, tolerance) for a, b in pairs):
        return
    given = f", {dict(attributes)}" if attributes else ""
    raise PassError(
        "the replacement does not compute what the pattern does",
        picture=f"arguments   {_short(list(inputs))}{given}\npattern     {_short(expected)}\n"
        f"replacement {_short(got)}",
        remedy="Correct one of them, or give the tolerance that they agree within.",
    )


def resized(
    example: Sequence[torch.Tensor], types: Sequence[TensorType]
) -> list[torch.Tensor] | None:
    """Return an example's values in the shapes of a place; None if large or of other dtypes."""
    sizes = [torch.Size(cast(Any, kind.shape)).numel() for kind in types]
    known = all(value.numel() for value in example) and sum(sizes) <= MOST_ELEMENTS
    kinds = [TensorType.of(value).dtype for value in example]
    if not known or kinds != [kind.dtype for kind in types]:
        return None
    return [
        value.flatten().repeat(size // value.numel() + 1)[:size].reshape(cast(Any, kind.shape))
        for value, kind, size in zip(example, types, sizes, strict=True)
    ]


_SPECIAL = (0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-30, -1.0, 3.0)


def tries(example: Sequence[torch.Tensor], *, special: bool) -> list[list[torch.Tensor]]:
    """Return an example, other numbers in it, and infinities, zeros and NaN if they are wanted."""
    found = [list(example), varied(example, 1), varied(example, 2)]
    positive = any(t.is_floating_point() and bool((t > 0).all()) and t.numel() for t in example)
    return (
        [*found, [_specials(tensor) for tensor in example]] if special and not positive else found
    )


def _specials(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    values = torch.tensor(_SPECIAL, dtype=tensor.dtype)
    return values.repeat(tensor.numel() // len(_SPECIAL) + 1)[: tensor.numel()].reshape(
        tensor.shape
    )


def _short(values: Any) -> str:
    return f"{values!r:.300}".replace("\n", " ")
