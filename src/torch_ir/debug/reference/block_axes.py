"""The axes along which calls may be cut: a part of the results has only a part of operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.nn.functional import pad

from torch_ir.errors import TorchIRError
from torch_ir.ir import OpNode
from torch_ir.ops.flops import FACTORS
from torch_ir.ops.schema import lookup
from torch_ir.ops.spec import spec_of
from torch_ir.semantics.windows import per_axis

Part: TypeAlias = Callable[[torch.Tensor, int, int], torch.Tensor]
"""What so many elements of the results need, from one on."""


@dataclass(frozen=True, slots=True)
class Way:
    """An axis of the results along which a call may be cut.

    Attributes:
        size: How many elements the results have along it.
        inputs: What a part of them needs of the inputs, by position; of others, all.
        outputs: The axis in the results, by position; others have none.
        attributes: What else is different in a call of a part.
    """

    size: int
    inputs: Mapping[int, Part]
    outputs: Mapping[int, int]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])


def ways_of(
    node: OpNode, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> list[Way]:
    """Return the ways in which a call may be cut.

    Args:
        node: The call.
        inputs: The tensors that it took.
        outputs: Those that it made.
    """
    if lookup(node.op_type) is None or node.operands is None:
        return []
    slots = {name: slot for name, slot in node.operands.items() if isinstance(slot, int)}
    if node.op_type in _JOINING:
        return list(_joined(node, inputs, outputs))
    if node.op_type in _RULES:
        shapes = {name: tuple(inputs[slot].shape) for name, slot in slots.items()}
        found = list(_RULES[node.op_type](node, shapes))
    elif "pointwise" in spec_of(node.op_type).traits and len(slots) == len(inputs):
        shapes = {name: tuple(inputs[slot].shape) for name, slot in slots.items()}
        found = list(_pointwise(outputs, shapes))
    else:
        return []
    ways = [_way(cut, slots, inputs, outputs) for cut in found]
    if window := _window(node, slots, inputs, outputs):
        ways.append(window)
    return [way for way in ways if way is not None]


def inner_size(
    node: OpNode, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> int:
    """Return how many elements a value has that is made on the way to the results, if it is large.

    That is the scores of attention, of each query with each key.
    """
    key = node.slots.get("key")
    if _RULES.get(node.op_type) is not _attending or not isinstance(key, int):
        return 0
    keys = inputs[key]
    return outputs[0].numel() // max(outputs[0].shape[-1], 1) * keys.shape[-2]


_JOINING = frozenset(("aten.cat.default", "aten.concat.default", "aten.concatenate.default"))


def _joined(
    node: OpNode, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> Iterator[Way]:
    """The axes along which tensors are not joined; of one of another rank, none."""
    (whole,) = outputs
    dim = node.attrs.get("dim", 0)
    if not isinstance(dim, int) or any(tensor.dim() != whole.dim() for tensor in inputs):
        return
    for axis in range(-whole.dim(), 0):
        if axis % whole.dim() != dim % whole.dim():
            parts = dict.fromkeys(range(len(inputs)), partial(_narrowed, axis))
            yield Way(whole.shape[axis], parts, {0: axis})


Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
Axes: TypeAlias = tuple[Mapping[str, int], int | tuple[int | None, ...]]
"""The axis in operands and results, counted from the end; for each result, or the same in all."""
Rule: TypeAlias = Callable[[OpNode, Shapes], Iterator[Axes]]


def _way(
    cut: Axes,
    slots: Mapping[str, int],
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
) -> Way | None:
    """The way, if all sizes fit it."""
    operands, axes = cut
    each = axes if isinstance(axes, tuple) else (axes,) * len(outputs)
    there = {i: axis for i, axis in enumerate(each) if axis is not None}
    ends = [(outputs[i], axis) for i, axis in there.items()]
    ends += [(inputs[slots[name]], axis) for name, axis in operands.items()]
    sizes = {t.shape[axis] if t.dim() >= -axis else -1 for t, axis in ends}
    if len(sizes) != 1 or not operands or not there or len(each) != len(outputs):
        return None
    parts = {slots[name]: partial(_narrowed, axis) for name, axis in operands.items()}
    (size,) = sizes
    return Way(size, parts, there)


def _narrowed(axis: int, tensor: torch.Tensor, start: int, count: int) -> torch.Tensor:
    return tensor.narrow(axis, start, count)


def _spanning(shapes: Shapes, names: Sequence[str], axis: int) -> dict[str, int]:
    """The operands that have more than one element along an axis: others are repeated."""
    there = [n for n in names if n in shapes and len(shapes[n]) >= -axis and shapes[n][axis] != 1]
    return dict.fromkeys(there, axis)


def _pointwise(outputs: Sequence[torch.Tensor], shapes: Shapes) -> Iterator[Axes]:
    try:
        whole = torch.broadcast_shapes(*shapes.values())
    except RuntimeError:  # they do not fit, which the reading of the whole says
        return
    if all(tensor.shape == whole for tensor in outputs):
        for axis in range(-len(whole), 0):
            yield _spanning(shapes, [*shapes], axis), axis


def _but_dim(node: OpNode, shapes: Shapes) -> Iterator[Axes]:
    rank, dim = len(shapes["self"]), node.attrs.get("dim", -1)
    if isinstance(dim, int):
        yield from (({"self": a}, a) for a in range(-rank, 0) if a % rank != dim % rank)


def _before_normalized(node: OpNode, shapes: Shapes) -> Iterator[Axes]:
    rank, shape = len(shapes["input"]), node.attrs.get("normalized_shape")
    if isinstance(shape, tuple):
        yield from (({"input": a}, a) for a in range(-rank, -len(shape)))


def _reduced(node: OpNode, shapes: Shapes) -> Iterator[Axes]:
    rank, dims = len(shapes["self"]), node.attrs.get("dim")
    dims = (dims,) if isinstance(dims, int) else dims
    if not isinstance(dims, tuple) or not dims or not all(isinstance(d, int) for d in dims):
        return
    gone = {d % rank - rank for d in dims if isinstance(d, int)}
    keeps = node.attrs.get("keepdim", False)
    for axis in (a for a in range(-rank, 0) if a not in gone):
        yield {"self": axis}, axis if keeps else axis + sum(d > axis for d in gone)


def _product(first: str, second: str, added: str, node: OpNode, shapes: Shapes) -> Iterator[Axes]:
    if min(len(shapes[first]), len(shapes[second])) < 2:
        return
    for axis in range(-max(len(shapes[first]), len(shapes[second])), -2):
        yield _spanning(shapes, [first, second, added], axis), axis
    yield {first: -2, **_spanning(shapes, [added], -2)}, -2
    yield {second: -1, **_spanning(shapes, [added], -1)}, -1


def _batches(node: OpNode, shapes: Shapes) -> Iterator[Axes]:
    """Batches of products that do not broadcast."""
    for operands, axis in _product("self", "mat2", "", node, shapes):
        yield (dict.fromkeys(("self", "mat2"), -3) if axis == -3 else operands), axis


def _linear(node: OpNode, shapes: Shapes) -> Iterator[Axes]:
    yield from (({"input": a}, a) for a in range(-len(shapes["input"]), -1))
    if len(shapes["weight"]) == 2:
        yield {"weight": -2, **_spanning(shapes, ["bias"], -1)}, -1


def _convolved(node: OpNode, shapes: Shapes) -> Iterator[Axes]:
    rank = len(shapes["weight"])
    yield {"input": -rank}, -rank
    if node.attrs.get("groups", 1) == 1:
        transposed = node.attrs.get("transposed") or "transpose" in node.op_type
        filters = {"weight": 1 - rank if transposed else -rank}
        yield {**filters, **({"bias": -1} if "bias" in shapes else {})}, 1 - rank


def _by_channel(node: OpNode, shapes: Shapes) -> Iterator[Axes]:
    """Batch norm by statistics that are given."""
    rank = len(shapes["input"])
    results = max(len(node.outputs), 1)
    if node.attrs.get("training", False) or rank < 2:
        return
    for axis in range(-rank, 0):
        others = [n for n in shapes if n != "input"] if axis == 1 - rank else []
        yield {"input": axis, **dict.fromkeys(others, -1)}, (axis, *[None] * (results - 1))


def _before_last(count: int, node: OpNode, shapes: Shapes) -> Iterator[Axes]:
    """What has sizes of windows on its last axes."""
    name = "self" if "self" in shapes else "input"
    yield from (({name: a}, a) for a in range(-len(shapes[name]), -count))


def _attending(node: OpNode, shapes: Shapes) -> Iterator[Axes]:
    names = ["query", "key", "value", "attn_mask"]
    results = len(node.outputs)
    for axis in range(-len(shapes["query"]), -2):
        yield _spanning(shapes, names, axis), (axis, axis + 1)[:results]
    if not node.attrs.get("is_causal", False):
        yield {"query": -2, **_spanning(shapes, ["attn_mask"], -2)}, (-2, -1)[:results]


def _names(text: str) -> list[str]:
    return [f"aten.{n}" if "." in n else f"aten.{n}.default" for n in text.split()]


def _of_rank(count: int) -> str:
    kinds = {1: "linear", 2: "bilinear", 3: "trilinear"}
    ways = ["nearest", kinds[count], *(["bicubic"] if count == 2 else [])]
    resized = [f"upsample_{way}{count}d{end}" for way in ways for end in ("", ".vec")]
    pooled = ["avg_pool", "max_pool", "adaptive_avg_pool"]
    more = "max_pool2d_with_indices max_pool3d_with_indices _adaptive_avg_pool2d"
    return " ".join(
        [
            *resized,
            *[f"{p}{count}d" for p in pooled],
            *[n for n in more.split() if str(count) in n],
        ]
    )


_RULES: Mapping[str, Rule] = {
    op_type: rule
    for rule, text in (
        (_but_dim, "_softmax _log_softmax _safe_softmax softmax.int log_softmax.int cumsum"),
        (_before_normalized, "layer_norm native_layer_norm rms_norm _fused_rms_norm"),
        (_reduced, "sum.dim_IntList mean.dim amax amin logsumexp any.dim all.dim"),
        (_batches, "bmm"),
        *[
            (partial(_product, *FACTORS[name]), name)
            for name in ("mm", "matmul", "addmm", "baddbmm")
        ],
        (_linear, "linear"),
        (
            _convolved,
            "convolution conv1d conv2d conv3d conv_transpose1d conv_transpose2d.input "
            "conv_transpose3d.input",
        ),
        (_by_channel, "batch_norm native_batch_norm _native_batch_norm_legit_no_training"),
        *[(partial(_before_last, count), _of_rank(count)) for count in (1, 2, 3)],
        (
            _attending,
            "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu",
        ),
    )
    for op_type in _names(text)
}


# -- windows --------------------------------------------------------------------------------------


def _window(
    node: OpNode,
    slots: Mapping[str, int],
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
) -> Way | None:
    """The first spatial axis of a convolution: a part needs what lies below its windows."""
    if node.op_type not in _WINDOWED or node.attrs.get("transposed"):
        return None
    rank = inputs[slots["weight"]].dim() - 2
    try:
        stride, padding, dilation = (
            per_axis(_numbers(node.attrs.get(name, least)), rank, name)
            for name, least in (("stride", 1), ("padding", 0), ("dilation", 1))
        )
    except TorchIRError:
        return None
    span = dilation[0] * (inputs[slots["weight"]].shape[2] - 1) + 1
    if outputs[0].dim() < rank + 1:
        return None

    def below(tensor: torch.Tensor, start: int, count: int) -> torch.Tensor:
        first = start * stride[0] - padding[0]
        last = first + (count - 1) * stride[0] + span
        low, high = max(first, 0), min(last, tensor.shape[-rank])
        part = tensor.narrow(-rank, min(low, tensor.shape[-rank]), max(high - low, 0))
        around = [max(low - first, 0), max(last - max(high, low), 0)]
        return pad(part, [*[0, 0] * (rank - 1), *around])

    attributes = {"padding": (0, *padding[1:])}
    size = outputs[0].shape[-rank]
    return Way(size, {slots["input"]: below}, {0: -rank}, attributes)


_WINDOWED = frozenset(_names("convolution conv1d conv2d conv3d"))


def _numbers(value: Any) -> Sequence[int]:
    """The numbers of an attribute; none where some are not known."""
    numbers = (value,) if isinstance(value, int) else value
    is_known = isinstance(numbers, tuple) and all(isinstance(n, int) for n in numbers)
    return numbers if is_known else ()
