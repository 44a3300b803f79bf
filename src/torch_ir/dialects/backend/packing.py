"""Codes of 4 and 2 bits in bytes, as embedding tables keep them."""

from __future__ import annotations

from typing import Any

import torch  # noqa: TID253  # this module is imported where torch runs these operators

from torch_ir.errors import ExecutionError

_SHIFTS = {4: (4, 0), 2: (0, 2, 4, 6)}
"""How far left each code of a byte stands, for the columns in order."""


def pack(codes: Any, bits: int) -> Any:
    """Pack signed codes, several in a byte.

    Of 4 bits a byte holds code + 8, that of an even column in the high half, of the odd column
    after it in the low half; of 2 bits code + 2, the first of four columns in the lowest bits.

    Args:
        codes: ``[…, columns]`` integers from -8 to 7, or from -2 to 1.
        bits: 4 or 2.

    Returns:
        uint8, ``[…, columns · bits / 8]``.

    Raises:
        ExecutionError: The columns do not fill whole bytes, or a code has more bits.

    Example:
        >>> pack(torch.tensor([[-8, 7, 0, 1]]), 4).tolist()
        [[15, 137]]
        >>> pack(torch.tensor([[-2, -1, 0, 1]]), 2).tolist()
        [[228]]
    """
    shifts = _SHIFTS[bits]
    least, columns = -(2 ** (bits - 1)), codes.shape[-1]
    if columns % len(shifts):
        raise ExecutionError(
            f"{columns} columns of codes of {bits} bits do not fill whole bytes",
            remedy=f"Pad them to a multiple of {len(shifts)}.",
        )
    if not _is_abstract(codes) and codes.numel():
        low, high = int(codes.min()), int(codes.max())
        if low < least or high >= -least:
            raise ExecutionError(
                f"codes from {low} to {high} do not fit {bits} bits, which hold {least} to "
                f"{-least - 1}"
            )
    parts = (codes + (-least)).to(torch.uint8).unflatten(-1, (-1, len(shifts)))
    placed = [part << shift for part, shift in zip(parts.unbind(-1), shifts, strict=True)]
    packed = placed[0]
    for part in placed[1:]:
        packed = packed | part
    return packed


def unpack(packed: Any, bits: int) -> Any:
    """Unpack the codes that :func:`pack` put in bytes, as int8.

    Example:
        >>> unpack(pack(torch.tensor([[-8, 7, 0, 1]]), 4), 4).tolist()
        [[-8, 7, 0, 1]]
    """
    mask, least = 2**bits - 1, -(2 ** (bits - 1))
    parts = [(packed >> shift) & mask for shift in _SHIFTS[bits]]
    return (torch.stack(parts, -1).flatten(-2).to(torch.int8)) + least


def _is_abstract(tensor: Any) -> bool:
    """Whether there are no values to look at: a meta or fake tensor, or one that is traced."""
    return tensor.is_meta or type(tensor) not in (torch.Tensor, torch.nn.Parameter)
