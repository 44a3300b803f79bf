"""Trials of a pattern and its replacement: arguments to call both with, and the comparison."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import torch

from torch_ir.dialects.backend.sampling import close, varied
from torch_ir.errors import PassError, Raised, attempt, short
from torch_ir.infer.types import TensorType
from torch_ir.torch_api import is_inexact, pytree

MOST_ELEMENTS = 1 << 20
"""How many elements the arguments of a place may have for both to be tried in its shapes."""


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
        picture=f"arguments   {short(list(inputs))}{given}\npattern     {short(expected)}\n"
        f"replacement {short(got)}",
        remedy="Correct one of them, or give the tolerance that they agree within.",
    )


def in_types(
    example: Sequence[torch.Tensor], types: Sequence[TensorType], *, positive: Collection[int] = ()
) -> list[list[torch.Tensor]]:
    """Return arguments of the types of a place: an example's values, and those of both signs.

    Where they would be large, sizes stand for each size that are in the same order.
    """
    if not all(value.numel() for value in example):
        return []
    shapes = [torch.Size(cast(Any, kind.shape)) for kind in types]
    if sum(shape.numel() for shape in shapes) > MOST_ELEMENTS:
        sizes = sorted({size for shape in shapes for size in shape if size > 1})
        small = {size: 16 * rank for rank, size in enumerate(sizes, 1)}
        shapes = [torch.Size([small.get(size, size) for size in shape]) for shape in shapes]
    made = [
        _cast(_filled(value, shape), getattr(torch, kind.dtype))
        for value, shape, kind in zip(example, shapes, types, strict=True)
    ]
    both = signed(made, positive)
    return [made, both, _wide(both, 3)]


def signed(inputs: Sequence[torch.Tensor], positive: Collection[int] = ()) -> list[torch.Tensor]:
    """Return arguments with each second number negative, but for some that stay positive."""

    def of_both_signs(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype == torch.bool or not tensor.dtype.is_signed:
            return tensor
        signs = torch.ones(tensor.numel(), dtype=tensor.dtype)
        signs[::2] = -1
        return tensor.abs().to(tensor.dtype) * signs.reshape(tensor.shape)

    return [t if i in positive else of_both_signs(t) for i, t in enumerate(inputs)]


def scaled(tolerance: float, example: Sequence[Any], made: Sequence[Any]) -> float:
    """Return the tolerance of an example as roundings of the least precise dtype of others."""

    def step(tensors: Sequence[Any]) -> float:
        kinds = [t.dtype for t in tensors if is_inexact(t)]
        return max((torch.finfo(kind).eps for kind in kinds), default=0.0)

    return tolerance * max(1.0, step(made) / (step(example) or 1.0))


def _filled(value: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    return value.flatten().repeat(shape.numel() // value.numel() + 1)[: shape.numel()].view(shape)


def _cast(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The values in another dtype: integers of fractions, and complex numbers, are many."""
    if value.dtype == dtype:
        return value
    is_whole = not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)
    if value.is_floating_point() and is_whole:
        value = (value * 8).round()
    if dtype.is_complex and not value.is_complex():
        return torch.complex(value.float(), value.float() + 1).to(dtype)
    return value.to(dtype)


_SPECIAL = (0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-30, -1.0, 3.0)


def tries(
    example: Sequence[torch.Tensor], *, special: bool, positive: Collection[int] = ()
) -> list[list[torch.Tensor]]:
    """Return an example, other numbers in it, and infinities, zeros and NaN if they are wanted.

    Args:
        example: The example.
        special: Whether infinities, zeros and NaN are wanted.
        positive: The arguments that are positive everywhere.
    """
    found = [list(example), varied(example, 1), varied(example, 2), signed(example, positive)]
    if special:
        found.append([t if i in positive else _specials(t) for i, t in enumerate(example)])
        found += [_wide(signed(varied(example, seed), positive), seed) for seed in (3, 4)]
    return found


def _wide(inputs: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """The numbers, each times another power of two: sums of such are rounded elsewhere."""
    generator = torch.Generator().manual_seed(seed)

    def scaled_each(tensor: torch.Tensor) -> torch.Tensor:
        powers = torch.randint(-12, 20, tensor.shape, generator=generator)
        return (
            tensor * torch.exp2(powers).to(tensor.dtype) if tensor.is_floating_point() else tensor
        )

    return [scaled_each(tensor) for tensor in inputs]


def _specials(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    return _filled(torch.tensor(_SPECIAL, dtype=tensor.dtype), tensor.shape)
