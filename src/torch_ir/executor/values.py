"""The IR's constants as torch tensors."""

from __future__ import annotations

import torch

from torch_ir.ir import Constant


def constant_tensor(constant: Constant) -> torch.Tensor:
    """A fresh CPU tensor with exactly the constant's bits.

    Example:
        >>> constant_tensor(Constant.from_list([1.5, -0.0], "bfloat16"))
        tensor([1.5000, -0.0000], dtype=torch.bfloat16)
    """
    dtype = getattr(torch, constant.dtype)
    raw = constant.tobytes()
    if not raw:
        return torch.empty(constant.shape, dtype=dtype)
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(dtype).reshape(constant.shape)
