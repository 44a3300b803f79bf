"""Arguments made up for a program: of the recorded types, at sizes inside their ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_ir.errors import InputError, first_line
from torch_ir.executor.inputs import structured
from torch_ir.infer.bindings import Symbols
from torch_ir.infer.hints import samplings
from torch_ir.ir import IR
from torch_ir.ir.symbols import shape_at


def random_tensor(
    shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Draw normal numbers; for integers 0 or 1, which index into every table; for bool either.

    Raises:
        InputError: There is not the memory for it.
    """
    try:
        if dtype.is_complex:
            parts = torch.randn((*shape, 2), generator=generator)
            return torch.view_as_complex(parts).to(dtype)
        if dtype.is_floating_point:
            return torch.randn(tuple(shape), generator=generator).to(dtype)
        return torch.randint(0, 2, tuple(shape), generator=generator).to(dtype)
    except (RuntimeError, MemoryError) as error:
        raise InputError(
            f"a random tensor of shape {list(shape)} cannot be made: {first_line(error)}"
        ) from None


def sample_tensors(
    ir: IR, symbols: Symbols, seed: int, *, integers: bool = False
) -> list[torch.Tensor]:
    """Make a tensor for each graph input.

    Args:
        ir: The program.
        symbols: A value for each symbol of its inputs.
        seed: Decides the numbers.
        integers: Draw integers; they are 0 if not.
    """
    generator = torch.Generator().manual_seed(seed)
    made: list[torch.Tensor] = []
    for meta in ir.graph_inputs:
        shape = shape_at(meta.shape, symbols)
        dtype: torch.dtype = getattr(torch, meta.dtype)
        drawn = random_tensor(shape, dtype, generator)
        is_number = dtype.is_floating_point or dtype.is_complex
        made.append(drawn if is_number or integers else torch.zeros_like(drawn))
    return made


def in_structure(
    ir: IR, tensors: Sequence[torch.Tensor], symbols: Symbols
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Put tensors and sizes in the structure of the program's arguments: positional and by name.

    Args:
        ir: The program.
        tensors: One for each of its inputs, in order.
        symbols: A value for each symbol that is an argument.
    """
    if ir.signature is None:
        return tuple(tensors), {}
    known = dict(zip(ir.input_names, tensors, strict=True))
    args, kwargs = structured(ir.signature.inputs, known, symbols)
    return args, kwargs


def sample_arguments(ir: IR) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Make arguments of the recorded types, in the program's own structure; always the same.

    Sizes are the first that keep every range and guard, integers are 0.

    Returns:
        Positional and keyword arguments; None where no sizes keep the conditions.

    Example:
        >>> from torch_ir import parse
        >>> (x,), _ = sample_arguments(parse('''ir {
        ...   symbol s0: 2..64
        ...   input %x: i64[s0, 2]
        ...   return %x
        ... }'''))
        >>> x.shape, int(x.sum())
        (torch.Size([7, 2]), 0)
    """
    found = samplings(ir)
    return in_structure(ir, sample_tensors(ir, found[0], 0), found[0]) if found else None
