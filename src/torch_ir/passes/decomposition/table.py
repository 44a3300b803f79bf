"""The table of decompositions: torch's, and ours in place of some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import torch
from torch._decomp.decompositions import index_add  # pyright: ignore[reportPrivateImportUsage]
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torch_ir.errors import PassError
from torch_ir.infer.resolve import resolve_operator
from torch_ir.ops.schema import known_operators
from torch_ir.passes.decomposition.engine import Decomposition, is_core
from torch_ir.passes.decomposition.recurrent import NETWORKS, layer_by_layer
from torch_ir.torch_api import OpOverload, operator_count, overload


def _same_as(op_type: str) -> Decomposition:
    def call(*args: Any, **kwargs: Any) -> Any:
        return cast(Any, resolve_operator(op_type))(*args, **kwargs)

    return call


def _bags(weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, *rest: Any) -> Any:
    """The bags with a size for each offset, as is inferred, also for the last that is an end."""
    made = list(torch.ops.aten._embedding_bag.default(weight, indices, offsets, *rest))
    if made[2].shape != offsets.shape:
        made[2] = torch.ops.aten.constant_pad_nd.default(made[2], [0, 1])
    return tuple(made)


def _without_strides(value: torch.Tensor, strides: object) -> torch.Tensor:
    return value.clone()


def _windows(tensor: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    """The windows by their elements; torch's decomposition reads them by strides."""
    if not tensor.dim():
        return tensor.unsqueeze(0)[:size].clone()
    at = dimension % tensor.dim()
    count = (tensor.shape[at] - size) // step + 1
    if size == step:
        taken = tensor.narrow(at, 0, count * size)
    else:
        index = _offsets([count, size], [step, 1], tensor.device)
        taken = tensor.index_select(at, index.reshape(-1))
    return taken.unflatten(at, [count, size]).movedim(at + 1, -1)


def _by_elements(
    tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> torch.Tensor:
    """What a decomposition reads by strides, by elements.

    The strides are those of a tensor that is taken to be contiguous; that of a caller may not be.
    """
    if not tensor.is_contiguous() or tensor.storage_offset():
        raise PassError("it reads memory by strides that the layout of an argument decides")
    index = _offsets(size, stride, tensor.device)
    index = index + offset if offset else index
    return tensor.reshape(-1).index_select(0, index.reshape(-1)).reshape(size)


def _offsets(size: Sequence[int], stride: Sequence[int], device: torch.device) -> torch.Tensor:
    """Where each element of a view lies."""
    last = len(size) - 1
    lines = [
        (torch.arange(count, device=device) * step).reshape([-1] + [1] * (last - axis))
        for axis, (count, step) in enumerate(zip(size, stride, strict=True))
    ]
    return sum(lines[1:], start=lines[0]) if lines else torch.arange(1, device=device)


def _steps(start: float, end: float, steps: int, **given: Any) -> torch.Tensor:
    """Equal steps; of integers between whole ends, cut off: torch's decomposition rounds else."""
    dtype = given.get("dtype") or torch.get_default_dtype()
    if dtype.is_floating_point or dtype.is_complex:
        return _by_torch("linspace", start, end, steps, **given)
    first, last = int(start), int(end)
    if steps < 2:
        return torch.full([steps], first, dtype=dtype, device=given.get("device"))
    step = (last - first) / (steps - 1)
    places = torch.arange(steps, dtype=torch.float64, device=given.get("device"))
    up, down = first + step * places, last - step * (steps - 1 - places)
    return torch.where(places < steps // 2, up, down).to(dtype)


def _powers(
    start: float, end: float, steps: int, base: float = 10.0, **given: Any
) -> torch.Tensor:
    """Powers by equal steps; torch's decomposition takes a whole exponent for a lone one."""
    if steps != 1 or isinstance(start, complex):
        return _by_torch("logspace", start, end, steps, base, **given)
    dtype = given.get("dtype") or torch.get_default_dtype()
    return torch.full([1], base**start, device=given.get("device")).to(dtype)


_FLASH = "_scaled_dot_product_flash_attention_for_cpu"


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention and the logarithms of its sums, in place of which torch's gives the weights."""
    options = {"attn_mask": attn_mask, "scale": scale}
    result = _by_torch(_FLASH, query, key, value, dropout, is_causal, **options)[0]
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    if key.shape[-3] != query.shape[-3]:  # a head of keys serves several of queries
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scores = query.to(wide) @ key.to(wide).transpose(-2, -1) * factor
    if is_causal:
        is_seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
        scores = scores.masked_fill(~is_seen, -torch.inf)
    if attn_mask is not None:
        scores = scores + attn_mask
    sums = scores.logsumexp(-1)
    return result, torch.where(sums == -torch.inf, 0, sums)  # as the kernel, of no terms


def _by_torch(name: str, *args: Any, **kwargs: Any) -> Any:
    operator = resolve_operator(f"aten.{name}.default")
    return torch_table(operator_count())[operator][1](*args, **kwargs)


def _nearest(offset: float) -> Decomposition:
    """Nearest elements where a scale may contradict the sizes: kernels stop at the last element.

    torch's decomposition reads beyond it. Planes of the same or twice the size are taken by that,
    whatever the scale.
    """

    def call(
        tensor: torch.Tensor, output_size: Sequence[int], *scales: float | None, **named: float
    ) -> Any:
        rank = len(output_size)
        index: list[torch.Tensor | None] = [None, None]
        names = ("scales",) if rank == 1 else ("scales_d", "scales_h", "scales_w")[-rank:]
        given = [*scales, *[named.get(name) for name in names[len(scales) :]]]
        for axis, (made, scale) in enumerate(zip(output_size, given, strict=True)):
            size = tensor.shape[axis - rank]
            step = size / made if scale is None or scale <= 0 else 1 / scale
            places = torch.arange(made, dtype=torch.float32, device=tensor.device) + offset
            places = (places * step).to(torch.int64)
            whole = next((n for n in (1, 2) if statically_known_true(made == n * size)), None)
            if rank == 2 and not offset and whole is not None:
                places = torch.arange(made, device=tensor.device) // whole
            places = places if scale is None else places.clamp(max=size - 1)
            index.append(places.reshape([-1] + [1] * (rank - 1 - axis)))
        result = torch.ops.aten._unsafe_index.Tensor(tensor, index)
        last: Any = {2: torch.channels_last, 3: torch.channels_last_3d}.get(rank)
        is_last = last is not None and tensor.is_contiguous(memory_format=last)
        return result.contiguous(memory_format=last if is_last else torch.contiguous_format)

    return call


def _linear(
    tensor: torch.Tensor, output_size: Sequence[int], align: bool, scales: float | None = None
) -> torch.Tensor:
    """Linear interpolation of lines where a scale may contradict the sizes.

    torch's decomposition reads beyond the last element, and takes the scale where a size stays.
    """
    ((made,), size) = output_size, tensor.shape[-1]
    index = torch.arange(made, device=tensor.device)
    wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
    if statically_known_true(made == size):
        places = index.to(wide.dtype)
    elif align:
        places = index.to(wide.dtype) * ((size - 1) / (made - 1) if made > 1 else 0)
    else:
        step = size / made if scales is None or scales <= 0 else 1 / scales
        places = ((index.to(wide.dtype) + 0.5) * step - 0.5).clamp(min=0)
    first = places.to(torch.int64).clamp(max=size - 1)
    take = torch.ops.aten._unsafe_index.Tensor
    low = take(wide, [None, None, first])
    high = take(wide, [None, None, (first + 1).clamp(max=size - 1)])
    share = (places - first).clamp(0, 1)
    result = low * (1 - share) + high * share
    return result.to(tensor.dtype)


def _finite(tensor: torch.Tensor, *numbers: float | None, **named: float | None) -> torch.Tensor:
    """Numbers in place of NaN and infinities; in both parts of complex ones."""
    if not tensor.is_complex():
        return _by_torch("nan_to_num", tensor, *numbers, **named)
    parts = torch.view_as_real(tensor)
    return torch.view_as_complex(_by_torch("nan_to_num", parts, *numbers, **named))


def _by_sizes(name: str) -> Decomposition:
    """The overload that takes sizes and scales; torch's decomposition takes scales alone."""
    resampled: Any = resolve_operator(f"{name}.default")

    def call(
        tensor: torch.Tensor,
        output_size: Sequence[int] | None,
        *rest: Any,
        scale_factors: Sequence[float] | None = None,
        **named: Any,
    ) -> Any:
        takes_corners = "nearest" not in name
        factors = scale_factors if len(rest) == takes_corners else rest[-1]
        shape = tensor.shape[2:]
        goal: Any = output_size
        if goal is None:
            pairs = zip(shape, factors or (), strict=True)
            goal = [torch.sym_int(size * factor) for size, factor in pairs]
        each = [None] * len(shape) if factors is None else factors
        return resampled(tensor, goal, *rest[:takes_corners], *each, **named)

    return call


def _index_add(
    tensor: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    *,
    alpha: complex = 1,
) -> torch.Tensor:
    """torch's, with a factor of the elements' type: it promotes them by the number's."""
    is_inexact = tensor.is_floating_point() or tensor.is_complex()
    factor: Any = alpha if is_inexact else (bool if tensor.dtype == torch.bool else int)(alpha)  # type: ignore[arg-type]  # real
    return cast(Any, index_add)(tensor, dim, index, source, alpha=factor)


def _kron(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product of Kronecker, for every size; torch's kernel is traced for one."""
    rank = max(a.dim(), b.dim())
    high = [1] * (rank - a.dim()) + list(a.shape)
    low = [1] * (rank - b.dim()) + list(b.shape)
    left = a.reshape([size for n in high for size in (n, 1)])
    right = b.reshape([size for n in low for size in (1, n)])
    return (left * right).reshape([n * m for n, m in zip(high, low, strict=True)])


def _take_along(
    tensor: torch.Tensor, indices: torch.Tensor, dim: int | None = None
) -> torch.Tensor:
    """The elements at indices along a dimension, for every size; torch's is traced for one.

    Along a dimension torch takes the remainders of indices, also of those behind the last.
    """
    if dim is None:
        return tensor.reshape(-1).gather(0, indices.reshape(-1))
    at = dim % max(tensor.dim(), 1)
    pairs = zip(tensor.shape, indices.shape, strict=True)
    sizes = [
        (n, m) if axis == at else (torch.broadcast_shapes((n,), (m,)) * 2)
        for axis, (n, m) in enumerate(pairs)
    ]
    taken = tensor.expand([n for n, _ in sizes])
    places = indices.expand([m for _, m in sizes]).remainder(tensor.shape[at])
    return taken.gather(at, places)


def _taken(tensor: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """The elements at places, row by row; torch's reads the value of one that has no dimension."""
    places = index if index.dim() else index.reshape(1)
    made = torch.ops.aten.index.Tensor(tensor.reshape(-1), [places])
    return made if index.dim() else made.reshape(())


def _sparse_product(sparse: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
    """A product with a sparse matrix; torch's transposes one that it takes for dense."""
    return torch.mm(sparse, dense)


def _shuffled(tensor: torch.Tensor, groups: int) -> torch.Tensor:
    """Channels of all groups in turn, for every size; torch's kernel is traced for one."""
    parts = tensor.unflatten(1, [groups, tensor.shape[1] // groups])
    return parts.transpose(1, 2).reshape(tensor.shape)


def _class_margins(
    tensor: torch.Tensor,
    target: torch.Tensor,
    p: complex = 1,
    margin: complex = 1,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
) -> torch.Tensor:
    """torch's, with nothing for a margin that is NaN, as in kernels."""
    rows, classes = torch.atleast_2d(tensor), torch.atleast_1d(target).unsqueeze(1)
    margins = margin - rows.gather(1, classes) + rows
    loss = margins if p == 1 else margins * margins
    loss = loss if weight is None else loss * weight[classes]
    is_other = torch.arange(rows.shape[1], device=target.device) != classes
    loss = torch.where(is_other & (margins > 0), loss, 0)
    if reduction == 1:
        return loss.mean()
    return loss.sum() / rows.shape[1] if reduction else loss.mean(1)


def _margins(
    tensor: torch.Tensor, target: torch.Tensor, reduction: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The margins of classes before the first -1; torch's counts those behind it as class 0."""
    rows, classes = torch.atleast_2d(tensor), torch.atleast_2d(target)
    is_named = (classes == -1).cumsum(1) == 0
    every = torch.arange(rows.shape[1], device=target.device)
    is_target = (every == torch.where(is_named, classes, -1).unsqueeze(-1)).any(1)
    named = rows.gather(1, torch.where(is_named, classes, 0))
    margins = 1 - named.unsqueeze(-1) + rows.unsqueeze(1)
    is_counted = is_named.unsqueeze(-1) & ~is_target.unsqueeze(1) & (margins > 0)
    loss = torch.where(is_counted, margins, 0).sum((1, 2)) / rows.shape[1]
    if reduction:
        loss = loss.mean() if reduction == 1 else loss.sum()
    elif target.dim() < 2:
        loss = loss.squeeze(0)
    return loss, is_target.to(tensor.dtype).reshape(target.shape)


def _margin(tensor: torch.Tensor, target: torch.Tensor, reduction: int = 1) -> torch.Tensor:
    return _margins(tensor, target, reduction)[0]


_BY_SIZES = (
    *[f"aten.upsample_nearest{n}d" for n in (1, 3)],
    *[f"aten._upsample_nearest_exact{n}d" for n in (1, 2, 3)],
    *("aten.upsample_linear1d", "aten.upsample_trilinear3d"),
)

OURS: dict[str, Decomposition] = {
    "aten.upsample_linear1d.default": _linear,
    **{f"{name}.vec": _by_sizes(name) for name in _BY_SIZES},
    **{f"aten.upsample_nearest{n}d.default": _nearest(0.0) for n in (1, 2, 3)},
    **{f"aten._upsample_nearest_exact{n}d.default": _nearest(0.5) for n in (1, 2, 3)},
    "aten.as_strided.default": _by_elements,
    "aten.index_add.default": _index_add,
    "aten._sparse_mm.default": _sparse_product,
    "aten.kron.default": _kron,
    "aten.linspace.default": _steps,
    "aten.logspace.default": _powers,
    "aten.multi_margin_loss.default": _class_margins,
    "aten.multilabel_margin_loss.default": _margin,
    "aten.multilabel_margin_loss_forward.default": _margins,
    "aten.nan_to_num.default": _finite,
    "aten.native_channel_shuffle.default": _shuffled,
    "aten.take.default": _taken,
    "aten.take_along_dim.default": _take_along,
    "aten.unfold.default": _windows,
    "aten.unfold_copy.default": _windows,
    "aten._embedding_bag_forward_only.default": _bags,
    f"aten.{_FLASH}.default": _attention,
    "aten._conj.default": _same_as("aten._conj_physical.default"),
    "aten._neg_view.default": _same_as("aten.neg.default"),
    "aten.view_as_real.default": _same_as("aten.view_as_real_copy.default"),
    "aten.view_as_complex.default": _same_as("aten.view_as_complex_copy.default"),
    "aten.view.dtype": _same_as("aten.view_copy.dtype"),
    "prims.copy_strided.default": _without_strides,
    **{op_type: layer_by_layer(op_type) for op_type in NETWORKS},
}
"""Decompositions that torch does not have, or in which it is not what its kernels are."""


def _prims_in_aten() -> Iterator[tuple[OpOverload, Decomposition]]:
    """Yield the calls of aten that torch runs prims by; its decompositions leave some behind."""
    for name in known_operators():
        is_prim = name.startswith("prims.")
        operator = overload(*name.split(".")) if is_prim else None
        function = getattr(operator, "impl_aten", None)
        if operator is not None and function is not None:
            yield operator, function


@lru_cache(maxsize=1)
def torch_table(count: int) -> Mapping[Any, tuple[str, Decomposition]]:
    """torch's tables of aten and prims without what is core, with the names of the operators.

    Args:
        count: How many operators there are: torch looks through all of them for its table.
    """
    known = {**dict(_prims_in_aten()), **torch.export.default_decompositions()}
    return {
        operator: (str(operator), function)
        for operator, function in known.items()
        if not (isinstance(operator, OpOverload) and is_core(str(operator)))
    }
