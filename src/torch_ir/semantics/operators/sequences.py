"""Padded sequences without their padding, and hashes of elements.

Source: torch.nn.utils.rnn.pack_padded_sequence; torch.hash_tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.axes import reduced_axes
from torch_ir.semantics.dtypes import Array, is_complex, is_float, rounded
from torch_ir.semantics.registry import denotes


@denotes("aten._pack_padded_sequence.default")
def pack_padded_sequence(input: Array, lengths: Array, batch_first: bool) -> tuple[Array, Array]:
    """Each step of the sequences that are so long, one after the other; and how many these are.

    Shapes: [T, B, *] and [B] → [Σ lengths, *] and int64 [the greatest length].
    """
    steps = np.swapaxes(input, 0, 1) if batch_first else input
    counts = lengths.tolist()
    is_falling = counts == sorted(counts, reverse=True) and bool(counts) and counts[-1] > 0
    if not is_falling or len(counts) != steps.shape[1] or counts[0] > len(steps):
        raise InvalidIRError(f"lengths {counts} are not of sequences {list(input.shape)}")
    sizes = np.sum(lengths[None, :] > np.arange(counts[0])[:, None], axis=1)
    parts = [steps[step, :size] for step, size in enumerate(sizes)]
    return np.concatenate(parts), sizes.astype("int64")


@denotes("aten.hash_tensor.default")
def hash_tensor(
    self: Array, dim: Sequence[int] = (), *, keepdim: bool = False, mode: int = 0
) -> Array:
    """The exclusive or of the elements' bits, as float64 or 64-bit integers: uint64."""
    if mode or is_complex(self.dtype) or not self.size:
        raise InvalidIRError(f"no hash of {self.dtype} {list(self.shape)} by mode {mode}")
    wide = rounded(self, np.dtype("float64")) if is_float(self.dtype) else self.astype("int64")
    bits = np.asarray(wide).view("uint64")
    axes = reduced_axes(list(dim), self.ndim)
    return np.asarray(np.bitwise_xor.reduce(bits, axis=axes, keepdims=keepdim))
