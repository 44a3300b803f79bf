"""Operands of several types: what torch takes has a meaning, in torch's own type."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from semantics.compare import denoted, operator
from torch_ir.ops.effects import effects
from torch_ir.ops.schema import Schema, lookup
from torch_ir.semantics import denoted_operators

DTYPES = (torch.bool, torch.int64, torch.float16, torch.float32, torch.float64, torch.complex64)
NUMBERS = {"Scalar": 1, "float": 1.0, "int": 0, "SymInt": 0, "bool": False}
ATTENTION = "aten._scaled_dot_product_attention_math.default"
"""It takes booleans where nothing is attended to, as it does not look at their type."""

VALUES = torch.tensor([[1.0, 2.0], [1.0, 1.0]])


def needed(schema: Schema) -> list[str]:
    """The types of the arguments that a call must give."""
    return [argument.type for argument in schema.arguments if argument.default is None]


def of_several_tensors() -> Iterator[str]:
    for name in denoted_operators():
        schema = lookup(name)
        if schema is None or ".out" in name or "_out" in name:
            continue
        kinds, found = needed(schema), effects(schema, {})
        if name == ATTENTION or not name.startswith(("aten.", "prims.")):
            continue
        is_plain = set(kinds) <= {"Tensor", *NUMBERS} and kinds.count("Tensor") in (2, 3)
        if is_plain and not (found.draws or found.writes):
            yield name


def calls(kinds: list[str]) -> Iterator[list[Any]]:
    """Arguments of two types, with dimensions and, one at a time, without."""
    places = [place for place, kind in enumerate(kinds) if kind == "Tensor"]
    for dtypes in product(DTYPES, repeat=len(places)):
        if len(set(dtypes)) != 2:
            continue
        for light in (None, *places):
            values = [VALUES if place != light else VALUES[0, 0] for place in places]
            tensors = [v.to(dtype) for v, dtype in zip(values, dtypes, strict=True)]
            rest = iter(tensors)
            yield [next(rest) if kind == "Tensor" else NUMBERS[kind] for kind in kinds]


def is_of_16_bit_complex_numbers(arguments: list[Any]) -> bool:
    """Whether torch computes in complex32, which NumPy lacks."""
    tensors = [item for item in arguments if isinstance(item, torch.Tensor)]
    found = tensors[0]
    for tensor in tensors[1:]:
        found = torch.zeros(found.shape, dtype=torch.result_type(found, tensor))
    return found.dtype == torch.complex32


@pytest.mark.parametrize("name", of_several_tensors())
def test_what_torch_takes_of_several_types_has_a_meaning(name: str) -> None:
    schema = lookup(name)
    assert schema is not None
    for arguments in calls(needed(schema)):
        try:
            expected = operator(name)(
                *[a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
            )
        except (RuntimeError, TypeError, IndexError, NotImplementedError, ValueError):
            continue
        if is_of_16_bit_complex_numbers(arguments):
            continue
        results = expected if isinstance(expected, tuple | list) else (expected,)
        got = denoted(name, *arguments)
        if isinstance(expected, bool):
            assert got == expected, arguments
            continue
        for theirs, ours in zip(
            results, got if isinstance(got, tuple | list) else (got,), strict=True
        ):
            assert str(theirs.dtype).removeprefix("torch.") == str(ours.dtype), arguments
            wide = np.asarray(theirs.to(torch.complex128))
            np.testing.assert_allclose(ours.astype(np.complex128), wide, 2e-2, 1e-2)
