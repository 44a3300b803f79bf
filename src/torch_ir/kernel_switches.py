"""Read the switches by which torch chooses kernels, and set others for a while."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.backends import cuda, cudnn, mha, mkldnn


def kernel_switches() -> tuple[object, ...]:
    """Return what torch chooses kernels by, which no program says of an operator."""
    return *backend_flags(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()


def backend_flags() -> tuple[object, ...]:
    """Return the switches of ``torch.backends`` by which kernels are chosen."""
    return (
        mha.get_fastpath_enabled(),
        *[f() for f in (cuda.flash_sdp_enabled, cuda.mem_efficient_sdp_enabled)],
        *[f() for f in (cuda.math_sdp_enabled, cuda.cudnn_sdp_enabled)],
        *[cudnn.enabled, cudnn.benchmark, cudnn.deterministic, mkldnn.enabled],
        *[switch.fp32_precision for switch in _precisions()],
    )


@contextmanager
def full_precision() -> Generator[None]:
    """Multiply and convolve single precision in single precision inside, and keep small numbers.

    torch lets a GPU round the operands of convolutions to 10 bits (TF32) unless told otherwise,
    and a processor to 7 (bfloat16) where asked: right kernels, and no error that a meaning bounds.
    Where it is told to flush subnormal numbers, so does NumPy in the same thread, at other steps.

    Example:
        >>> with full_precision():
        ...     torch.backends.cudnn.conv.fp32_precision
        'ieee'
    """
    switches, older = _precisions(), _older_switches()
    before = [switch.fp32_precision for switch in switches]
    if older is not None:  # torch.export asks these, which raise where they say something else
        _set_older_switches(False, "highest")
    for switch in switches:
        switch.fp32_precision = "ieee"
    flushes = flushes_subnormals()
    if flushes:
        torch.set_flush_denormal(False)
    try:
        yield
    finally:
        if flushes:
            torch.set_flush_denormal(True)
        if older is not None:
            _set_older_switches(*older)
        for switch, precision in zip(switches, before, strict=True):
            switch.fp32_precision = precision


def has_fused_attention(model: nn.Module) -> bool:
    """Return whether a model may take torch's fused path of attention in inference."""
    layers = nn.MultiheadAttention | nn.TransformerEncoderLayer | nn.TransformerEncoder
    return mha.get_fastpath_enabled() and any(isinstance(m, layers) for m in model.modules())


@contextmanager
def unfused_attention() -> Generator[None]:
    """Let modules of attention call their operators inside, and not one fused operator.

    Example:
        >>> with unfused_attention():
        ...     has_fused_attention(nn.MultiheadAttention(2, 1))
        False
    """
    before = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        mha.set_fastpath_enabled(before)


def flushes_subnormals() -> bool:
    """Return whether this thread makes numbers 0 that are smaller than the least normal one.

    Example:
        >>> flushes_subnormals()
        False
    """
    return sys.float_info.min / 2 == 0


def _older_switches() -> tuple[bool, str] | None:
    """TF32 in cuDNN and the precision of products, unless the new names were used alone."""
    try:
        return cudnn.allow_tf32, torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _set_older_switches(allow_tf32: bool, products: str) -> None:
    torch._C._set_cudnn_allow_tf32(allow_tf32)  # pyright: ignore[reportPrivateUsage]  # the attribute may be locked: ``disable_global_flags``
    torch.set_float32_matmul_precision(products)


def _precisions() -> list[Any]:
    """What says how short single precision may be; ``allow_tf32`` raises where these differ."""
    on: Any = torch.backends  # whose types lack them
    return [
        *[on.cuda.matmul, on.cudnn.conv, on.cudnn.rnn],
        *[on.mkldnn.matmul, on.mkldnn.conv, on.mkldnn.rnn],
    ]
