"""Functions that stand for operators that runtimes lack, of as few calls as there can be."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional


def _lstm_cell(
    x: Tensor,
    state: list[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    hidden, cell = state
    gates = functional.linear(x, w_ih, b_ih) + functional.linear(hidden, w_hh, b_hh)
    taken, kept, new, given = gates.chunk(4, 1)
    cell = kept.sigmoid() * cell + taken.sigmoid() * new.tanh()
    return given.sigmoid() * cell.tanh(), cell


def _gru_cell(
    x: Tensor,
    hidden: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:
    reset, kept, new = functional.linear(x, w_ih, b_ih).chunk(3, 1)
    own_reset, own_kept, own_new = functional.linear(hidden, w_hh, b_hh).chunk(3, 1)
    new = (new + (reset + own_reset).sigmoid() * own_new).tanh()
    return (hidden - new) * (kept + own_kept).sigmoid() + new


def _variance(
    x: Tensor,
    dim: list[int] | None = None,
    correction: float | None = None,
    keepdim: bool = False,
) -> Tensor:
    dims = dim or list(range(x.dim()))
    count = 1
    for axis in dims:
        count *= x.shape[axis]
    apart = x - x.mean(dims, keepdim=True)
    freedom = count - (1 if correction is None else correction)
    return (apart * apart).sum(dims, keepdim) / max(freedom, 0)


def _variance_of(
    x: Tensor, dim: list[int] | None, unbiased: bool = True, keepdim: bool = False
) -> Tensor:
    return _variance(x, dim, int(unbiased), keepdim)


def _root_of(variance: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args, **kwargs: variance(*args, **kwargs).sqrt()


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    if not training:
        raise NotImplementedError("its statistics are given")
    wide = x.to(mean.dtype)
    dims = [0, *range(2, x.dim())]
    shape = [1, -1, *[1] * (x.dim() - 2)]
    own = wide.mean(dims, keepdim=True)
    apart = wide - own
    spread = (apart * apart).mean(dims, keepdim=True)
    inverse = torch.rsqrt(spread + eps)
    made = apart * inverse
    if weight is not None:
        made = made * weight.view(shape)
    if bias is not None:
        made = made + bias.view(shape)
    count = x.numel() // x.shape[1]
    unbiased = spread.view(-1) * count / (count - 1)
    return (
        made.to(x.dtype),
        own.view(-1),
        inverse.view(-1),
        own.view(-1) * momentum + mean * (1 - momentum),
        unbiased * momentum + var * (1 - momentum),
    )


def _exp_less_one(x: Tensor) -> Tensor:
    return torch.tanh(x * 0.5) * (x.exp() + 1)


def _elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    return torch.where(x > 0, x * scale, _exp_less_one(x * input_scale) * (alpha * scale))


def _celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return _elu(x, alpha, 1, 1 / alpha)


def _selu(x: Tensor) -> Tensor:
    return _elu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


def _gelu(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate != "tanh":
        raise NotImplementedError("it is no approximation")
    return x * 0.5 * (1 + torch.tanh((x + x * x * x * 0.044715) * (2 / math.pi) ** 0.5))


def _from_number(x: Tensor, other: float, alpha: float = 1) -> Tensor:
    if not x.dtype.is_signed:
        raise NotImplementedError("its numbers wrap around")
    return (x * -alpha if alpha != 1 else -x) + other


def _slice_scatter(
    x: Tensor,
    source: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    size = x.shape[dim]
    if step != 1 or type(size) is not int:
        raise NotImplementedError("its places lie apart, or are not known")
    first, last, _ = slice(start, end).indices(size)
    after = x.narrow(dim, max(first, last), size - max(first, last))
    parts = [x.narrow(dim, 0, first), source.to(x.dtype), after]
    return torch.cat([part for part in parts if part.shape[dim]] or [x], dim)


def _scattered(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """The index for each element of a source, by which it scatters as it copies along an axis."""
    if not x.dim() or source.dim() != x.dim():
        raise NotImplementedError("it is a number")
    shape = [1] * x.dim()
    shape[dim] = -1
    return index.reshape(shape).expand(source.shape)


def _index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    return x.scatter(dim, _scattered(x, dim, index, source), source)


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    added = source if alpha == 1 else source * alpha
    return x.scatter_add(dim, _scattered(x, dim, index, source), added.to(x.dtype))


WRITTEN_APART = {
    "aten.expm1.default": _exp_less_one,
    "aten.special_expm1.default": _exp_less_one,
    "aten.elu.default": _elu,
    "aten.celu.default": _celu,
    "aten.selu.default": _selu,
    "aten._native_batch_norm_legit_functional.default": _batch_norm,
    "aten.gelu.default": _gelu,
    "aten.rsub.Scalar": _from_number,
    "aten.slice_scatter.default": _slice_scatter,
    "aten.index_copy.default": _index_copy,  # scattering refuses negative places, too
    "aten.index_add.default": _index_add,
    "aten.lstm_cell.default": _lstm_cell,
    "aten.gru_cell.default": _gru_cell,
    "aten.var.correction": _variance,
    "aten.var.dim": _variance_of,
    "aten.std.correction": _root_of(_variance),
    "aten.std.dim": _root_of(_variance_of),
}
"""Functions of an operator's arguments that stand for it."""
