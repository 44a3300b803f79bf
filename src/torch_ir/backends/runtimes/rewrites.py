"""Rewrites of what runtimes get wrong, or do slowly."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils._pytree import tree_map_only

_LEAST_ROW = 16
"""Elements of a row from which on its places are fewer than what is permuted."""
_ATTENTION = torch.ops.aten.scaled_dot_product_attention.default
_ATEN = torch.ops.aten


def plain_attention(program: ExportedProgram, *, is_grouped: bool) -> ExportedProgram:
    """Write what runtimes get wrong about attention as calls of their own, in place.

    Where a mask hides all keys of a row, torch gives zeros and runtimes NaN or a mean: a mask
    becomes one of numbers, and such rows are set to zero. Keys and values that several heads
    share are repeated unless the runtime knows of them.

    Args:
        program: The program, functional.
        is_grouped: Whether the runtime knows of heads that share keys and values.

    Returns:
        The same program.
    """
    for node in program.graph.find_nodes(op="call_function", target=_ATTENTION):
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
        given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
        if given.get("enable_gqa") and not is_grouped:
            del given["enable_gqa"]
            for name in ("key", "value"):
                given[name] = _for_each_head(node, given[name], given["query"])
        if given.get("attn_mask") is not None:
            given["attn_mask"] = _masked(node, given["attn_mask"])
        node.args, node.kwargs = (), given
    return program


def plain_limits(program: ExportedProgram) -> ExportedProgram:
    """Write limits of one call as numbers of one kind, in place: ONNX's exporter takes no others.

    Returns:
        The same program.
    """
    for node in program.graph.find_nodes(op="call_function", target=_ATEN.clamp.default):
        given = dict(zip(("self", "min", "max"), node.args, strict=False)) | node.kwargs
        limits = [given.get("min"), given.get("max")]
        if sorted(type(limit).__name__ for limit in limits) == ["float", "int"]:
            node.args, node.kwargs = (given["self"], *map(float, limits)), {}
    return program


def plain_writes(program: ExportedProgram) -> ExportedProgram:
    """Write rows of caches by all their places up to the row, in place.

    ONNX writes at the first axes alone: what is behind others is permuted whole, and back. Caches
    of symbolic sizes, short rows and masks are left as they are.

    Args:
        program: The program, functional.

    Returns:
        The same program.
    """
    for node in program.graph.find_nodes(op="call_function", target=_ATEN.index_put.default):
        target, indices, *rest = node.args
        sizes = target.meta["val"].shape
        before = next((at for at, index in enumerate(indices) if index is not None), 0)
        chosen = [index for index in indices[before:] if index is not None]
        static = [size for size in sizes if type(size) is int]
        behind = static[before + len(chosen) :]
        if not before or len(chosen) < len(indices) - before or len(static) < len(sizes):
            continue
        if any(index.meta["val"].dtype is torch.bool for index in chosen):
            continue
        if math.prod(behind) < _LEAST_ROW:
            continue
        rank = max(index.meta["val"].dim() for index in chosen)
        like = {"dtype": torch.int64, "device": target.meta["val"].device}
        places = [_call(node, _ATEN.arange.default, size, **like) for size in static[:before]]
        for axis, place in enumerate(places):
            shape = [-1, *[1] * (before - 1 - axis + rank)]
            places[axis] = _call(node, _ATEN.view.default, place, shape)
        node.args = (target, [*places, *chosen], *rest)
    return program


def plain_truths(program: ExportedProgram) -> ExportedProgram:
    """Write truth values of floats as comparisons that are right at NaN, in place.

    OpenVINO takes NaN for 0, which is False, and for greater than any number.

    Returns:
        The same program.
    """
    for node in list(program.graph.nodes):
        if node.op != "call_function" or not _takes_floats(node):
            continue
        packet = getattr(node.target, "overloadpacket", None)
        if packet in _TURNED:
            first, second = node.args
            if not (isinstance(second, Node) and isinstance(second.meta["val"], torch.Tensor)):
                like = {"dtype": first.meta["val"].dtype, "device": first.meta["val"].device}
                second = _call(node, _ATEN.full.default, [], second, **like)
            node.target, node.args = _TURNED[packet].Tensor, (second, first)
        elif packet in _OF_TRUTHS:
            count = 2 if packet in _OF_TWO else 1
            node.args = (*map(_truth, [node] * count, node.args), *node.args[count:])
        elif packet is _ATEN._to_copy and node.meta["val"].dtype is torch.bool:
            node.target, node.args, node.kwargs = _ATEN.ne.Scalar, (node.args[0], 0), {}
    return program


_TURNED = {_ATEN.gt: _ATEN.lt, _ATEN.ge: _ATEN.le}
_OF_TWO = frozenset((_ATEN.logical_and, _ATEN.logical_or, _ATEN.logical_xor))
_OF_TRUTHS = _OF_TWO | {_ATEN.any, _ATEN.all, _ATEN.logical_not}


def _takes_floats(node: Node) -> bool:
    values = [given.meta.get("val") for given in node.all_input_nodes]
    return any(isinstance(v, torch.Tensor) and v.is_floating_point() for v in values)


def _truth(before: Node, given: Node) -> Node:
    """Whether elements are not zero; truth values are what they are."""
    is_float = given.meta["val"].is_floating_point()
    return _call(before, _ATEN.ne.Scalar, given, 0) if is_float else given


def _masked(node: Node, mask: Node) -> Node:
    """The mask as numbers; the rows that it hides wholly are zero from now on."""
    value = node.meta["val"]
    if mask.meta["val"].dtype is torch.bool:
        like = {"dtype": value.dtype, "device": value.device}
        zero, hidden = [
            _call(node, _ATEN.full.default, [], number, **like) for number in (0.0, -math.inf)
        ]
        seen, mask = mask, _call(node, _ATEN.where.self, mask, zero, hidden)
    else:
        seen = _call(node, _ATEN.ne.Scalar, mask, -math.inf)
    after = node.next
    seen = _call(after, _ATEN.any.dim, seen, -1, True)
    zero = _call(after, _ATEN.full.default, [], 0.0, dtype=value.dtype, device=value.device)
    shown = _call(after, _ATEN.where.self, seen, node, zero)
    node.replace_all_uses_with(shown, delete_user_cb=lambda user: user is not shown)
    return mask


def _for_each_head(node: Node, shared: Node, query: Node) -> Node:
    """Keys or values of groups of heads, once for each head."""
    *batch, heads, rows, width = shared.meta["val"].shape
    each = query.meta["val"].shape[-3] // heads
    if any(type(size) is not int for size in (*batch, heads, rows, width, each)):
        raise NotImplementedError("heads of symbolic sizes share keys and values")
    apart = _call(node, _ATEN.unsqueeze.default, shared, -3)
    wide = _call(node, _ATEN.expand.default, apart, [*batch, heads, each, rows, width])
    return _call(node, _ATEN.reshape.default, wide, [*batch, heads * each, rows, width])


def _call(before: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
    with before.graph.inserting_before(before):
        made = before.graph.call_function(target, args, kwargs)
    fake = tree_map_only(Node, lambda node: node.meta["val"], (args, kwargs))
    mode = next((v.fake_mode for v in fake[0] if hasattr(v, "fake_mode")), None)
    if mode is None:
        mode = before.graph.find_nodes(op="placeholder")[0].meta["val"].fake_mode
    with mode:
        made.meta["val"] = target(*fake[0], **fake[1])
    return made
