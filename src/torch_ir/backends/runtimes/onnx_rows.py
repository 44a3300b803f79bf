"""Translations to ONNX of copies to places along an axis, by rows where rows are long."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from torch_ir.lazy import optional_module

_LONG = 8
"""Elements of a row that cost more, one by one, than its place."""
_INT64 = 7
"""What ``onnx.TensorProto`` calls it."""


def _operators() -> Any:
    return optional_module("onnxscript.onnx_opset", "ONNX", "onnxruntime").opset18


def _index_copy(self: Any, dim: int, index: Any, source: Any) -> Any:
    """``self`` with the slices of ``source`` along ``dim``, at the places of ``index``."""
    op, shape = _operators(), list(self.shape)
    if not shape:
        raise NotImplementedError("it is a number")
    axis = dim % len(shape)
    places = op.Reshape(index, op.Constant(value_ints=[-1]))
    before, after = shape[:axis], shape[axis + 1 :]
    if not all(type(size) is int for size in (*before, *after)) or math.prod(after) < _LONG:
        along = op.Constant(value_ints=[-1 if i == axis else 1 for i in range(len(shape))])
        whole = op.Expand(op.Reshape(places, along), op.Shape(source))
        return op.ScatterElements(self, whole, source, axis=axis)
    return op.ScatterND(self, _rows(before, places), source)


def _rows(before: list[int], places: Any) -> Any:
    """The place of each row: one for each of those along an axis, in each slice before it."""
    op, rank = _operators(), len(before)
    if not rank:
        return op.Unsqueeze(places, op.Constant(value_ints=[-1]))
    slices = np.moveaxis(np.indices(before), 0, -1).reshape(*before, 1, rank)
    count = op.Shape(places)
    each = op.Concat(op.Constant(value_ints=before), count, op.Constant(value_ints=[1]), axis=0)
    all_slices = op.Concat(
        op.Constant(value_ints=before), count, op.Constant(value_ints=[rank]), axis=0
    )
    own = op.Expand(op.Unsqueeze(places, op.Constant(value_ints=[-1])), each)
    return op.Concat(op.Expand(_constant(slices), all_slices), own, axis=-1)


def _constant(values: np.ndarray[Any, Any]) -> Any:
    helper = optional_module("onnx.numpy_helper", "ONNX", "onnxruntime")
    return _operators().Constant(value=helper.from_array(values.astype(np.int64)))


def _index_put(otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Rows where places along one axis are given: torch's exporter turns the whole tensor."""

    def translated(
        self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False
    ) -> Any:
        op, shape = _operators(), list(self.shape)
        axes = [axis for axis, given in enumerate(indices) if given is not None]
        places = indices[axes[0]]
        sizes = [size for axis, size in enumerate(shape) if axis != axes[0]]
        is_along = len(axes) == 1 and len(places.shape) == 1 and places.dtype == _INT64
        if accumulate or not is_along or not all(type(size) is int for size in sizes):
            return otherwise(self, indices, values, accumulate)
        parts = [
            op.Shape(places) if axis == axes[0] else op.Constant(value_ints=[size])
            for axis, size in enumerate(shape)
        ]
        source = op.Expand(values, op.Concat(*parts, axis=0))
        return _index_copy(self, axes[0], places, source)

    return translated


def add_rows(registry: Any) -> None:
    """Let a registry of torch's exporter copy rows."""
    (put,) = registry.functions["aten::index_put"]
    registry.register_op(torch.ops.aten.index_copy.default, _index_copy)
    registry.register_op(torch.ops.aten.index_put.default, _index_put(put.onnx_function))
