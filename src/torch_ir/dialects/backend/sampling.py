"""Arguments to try a function with, made up from a schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from typing import Any

import torch  # noqa: TID253  # operators are bound where torch is

from torch_ir.errors import PassError, Raised, attempt, first_line
from torch_ir.ops.schema import Argument, Schema
from torch_ir.torch_api import have_equal_bytes, is_inexact, pytree
from torch_ir.torch_memory import fresh

MAX_TRIES = 2_000
COUNT = 3
"""With how many different values a function is tried."""


def samples(
    schema: Schema, function: Callable[..., Any], example: Sequence[Any] | None
) -> list[list[Any]]:
    """Make lists of arguments that a function takes, the same at every call.

    Args:
        schema: What the arguments are.
        function: Is called with them.
        example: The arguments to vary; made up if not given.

    Raises:
        PassError: It takes none of the arguments that were made up, or not the example.
    """
    if example is not None:
        if len(example) != len(schema.arguments):
            raise PassError(
                f"{schema.op_type} takes {len(schema.arguments)} arguments, the example has "
                f"{len(example)}",
                picture=str(schema),
            )
        error = _error(function, list(example))
        if error is not None:
            raise PassError(
                f"the pattern of {schema.op_type} refuses the example: {error:.200}",
                picture=str(schema),
            )
        return [list(example), *(varied(example, seed) for seed in range(1, COUNT))]
    reason = "its schema has no arguments that could be made up"
    for made in islice(_candidates(schema), MAX_TRIES):
        error = _error(function, made)
        if error is None:
            return [made, *(varied(made, seed) for seed in range(1, COUNT))]
        reason = error
    raise PassError(
        f"no arguments were found to try {schema.op_type} with: {reason:.200}",
        picture=str(schema),
        remedy="Give some: bind_pattern_to_op(..., example_inputs=(...)).",
    )


def varied(example: Sequence[Any], seed: int) -> list[Any]:
    """Vary the numbers in the tensors of arguments, with the same range and type."""
    generator = torch.Generator().manual_seed(seed)

    def vary(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.numel():
            return value
        if is_inexact(value):
            noise = torch.randn(value.shape, generator=generator, dtype=torch.float32)
            positive = value.is_floating_point() and bool((value > 0).all())
            return (noise.abs() + 0.01 if positive else noise).to(value.dtype)
        order = torch.randperm(value.numel(), generator=generator)
        return value.reshape(-1)[order].reshape(value.shape)

    return pytree.tree_map(vary, list(example))


def close(expected: Any, got: Any, tolerance: float = 0.0) -> bool:
    """Return whether two results are equal: bit for bit, or within a relative tolerance.

    Args:
        expected: A tensor or a number.
        got: What is compared with it. Shapes, dtypes, infinities and NaN have to be the same.
        tolerance: How far elements may be apart, as a share of the largest finite magnitude in
            ``expected``; 0 asks for the same bits (NaN for NaN).

    Example:
        >>> one = torch.ones(2)
        >>> close(one, one), close(one, one + 0.01), close(one, one + 0.01, 0.1)
        (True, False, True)
        >>> close(one * 1e-6, one * 5e-6, 0.1)
        False
    """
    if not isinstance(expected, torch.Tensor) or not isinstance(got, torch.Tensor):
        return type(expected) is type(got) and bool(expected == got)
    if (expected.shape, expected.dtype) != (got.shape, got.dtype):
        return False
    if have_equal_bytes(expected, got):
        return True
    if expected.is_complex():
        expected, got = torch.view_as_real(expected), torch.view_as_real(got)
    if not torch.equal(expected.isnan(), got.isnan()):
        return False
    if expected.is_floating_point():
        expected, got = [t.masked_fill(t.isnan(), 0) for t in (expected, got)]
    if not tolerance:
        return have_equal_bytes(expected, got)
    finite = expected.isfinite() & got.isfinite()
    first, second = expected[finite].double(), got[finite].double()
    largest = first.abs().max() if first.numel() else 0
    same_infinities = torch.equal(expected[~finite], got[~finite])
    return same_infinities and bool(((first - second).abs() <= tolerance * largest).all())


def _error(function: Callable[..., Any], arguments: list[Any]) -> str | None:
    made = attempt(function, *fresh(arguments))
    return first_line(made.error) if isinstance(made, Raised) else None


def _tensors() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)

    def floats(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    codes = torch.randint(0, 100, (3, 3), generator=generator)
    return (
        floats(3, 3),
        codes.to(torch.uint8),
        codes.to(torch.int8),
        torch.tensor([0, 2, 1]),
        floats(3),
        floats(2, 3, 3, 3),
        torch.tensor([[True, False, True]] * 3),
    )


_NUMBERS: dict[str, tuple[Any, ...]] = {
    "int": (1, 0, 2),
    "SymInt": (5, 1, 0),
    "float": (0.5,),
    "Scalar": (2.5, 2),
    "bool": (True, False),
    "ScalarType": (torch.float32, torch.uint8, torch.int8),
    "str": ("none",),
    "int[]": ([0], [3, 3]),
    "SymInt[]": ([3, 3], [0]),
}


def _choices(argument: Argument) -> tuple[Any, ...]:
    kind = argument.type
    if kind.startswith("Tensor["):
        return tuple([[tensor, tensor.clone()] for tensor in _tensors()])
    if kind.startswith("Tensor"):
        return _tensors()
    plain = kind.split("[")[0] + "[]" if "[" in kind else kind
    return _NUMBERS.get(plain.removesuffix("?"), ()) or ((None,) if kind.endswith("?") else ())


def _candidates(schema: Schema) -> Iterator[list[Any]]:
    """Arguments of all kinds, tensors of the same kind first."""
    choices = [_choices(argument) for argument in schema.arguments]
    if not all(choices):
        return
    most = max((len(options) for options in choices), default=1)
    for index in range(most):
        yield [options[min(index, len(options) - 1)] for options in choices]
    for made in product(*choices):
        yield list(made)
