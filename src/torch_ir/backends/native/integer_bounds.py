"""Bounds of the integers that a program computes, as far as its operators show them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch

from torch_ir.executor.state import written_buffers
from torch_ir.frozen import EMPTY
from torch_ir.ir import IR, OpNode, SymExpr, TensorMeta
from torch_ir.ir.queries import external_keys
from torch_ir.torch_api import is_inexact

SAME_NUMBERS = frozenset(
    f"aten.{name}"
    for name in (
        *("_unsafe_view", "alias", "chunk", "clone", "contiguous", "detach", "expand"),
        *("expand_as", "expand_copy", "flatten", "narrow", "permute", "permute_copy", "repeat"),
        *("reshape", "select", "select_copy", "slice", "slice_copy", "split", "split_copy"),
        *("split_with_sizes", "split_with_sizes_copy", "squeeze", "squeeze_copy", "t", "t_copy"),
        *("transpose", "transpose_copy", "unbind", "unbind_copy", "unsqueeze", "unsqueeze_copy"),
        *("view", "view_copy", "flip", "roll", "unflatten", "_to_copy", "to"),
        "type_as",
    )
)
"""Operators that give numbers of their first operand; of a cast, where both are integers."""


class Range(NamedTuple):
    """Where integers lie, both ends included.

    Attributes:
        low: The least.
        high: The greatest.
        below: A size that they are less than, and not less than 0; None if none is known.
    """

    low: float
    high: float
    below: SymExpr | None = None


_ALL = Range(-math.inf, math.inf)
_TYPES = {"bool": Range(0, 1), "uint8": Range(0, 255), "int8": Range(-128, 127)}


class IntegerBounds:
    """The bounds of the values of a program.

    Args:
        ir: The program, functional.
        payload: Its weights, by key.
        held: Those of its inputs that are the same in every call.
    """

    def __init__(
        self, ir: IR, payload: Mapping[str, torch.Tensor] = EMPTY, held: Iterable[str] = ()
    ):
        self._ir, self._payload = ir, payload
        self._known: dict[str, Range] = {}
        self._fixed: dict[str, bool] = {}
        written = written_buffers(ir)
        self._held = {n: key for n, key in external_keys(ir).items() if n not in written}
        self._held |= {name: name for name in held}

    def source(self, name: str) -> str:
        """Return the value whose numbers a value has in another shape."""
        while (node := self._ir.producers.get(name)) is not None and _keeps_numbers(node):
            name = node.inputs[0].name
        return name

    def is_within(self, name: str, size: int | SymExpr, is_signed: bool) -> bool:
        """Return whether a value holds places of an axis alone; or the same in each call.

        What is the same in each call was proven.

        Args:
            name: The value's.
            size: Of the axis.
            is_signed: Whether negative places count from the end.
        """
        if self._is_fixed(name):
            return True
        found = self._of(name)
        if isinstance(size, SymExpr):
            limits = self._of_size(size)
            return found.below == size or (found.low >= 0 and found.high < limits.low)
        return found.low >= (-size if is_signed else 0) and found.high < size

    def _is_fixed(self, name: str) -> bool:
        if name not in self._fixed:
            node = self._ir.producers.get(name)
            self._fixed[name] = False
            if node is None:
                self._fixed[name] = name in self._held
            elif not (node.symbols or node.functions or self._ir.effects(node).draws):
                self._fixed[name] = all(self._is_fixed(meta.name) for meta in node.inputs)
        return self._fixed[name]

    def _of(self, name: str) -> Range:
        if name not in self._known:
            self._known[name] = _ALL
            node = self._ir.producers.get(name)
            if node is not None:
                self._known[name] = self._made(node, name)
            elif name in self._held:
                self._known[name] = _of_tensor(self._payload.get(self._held[name]))
        return self._known[name]

    def _made(self, node: OpNode, name: str) -> Range:
        meta = next(meta for meta in node.outputs if meta.name == name)
        if meta.dtype in _TYPES:
            return _TYPES[meta.dtype]
        if _keeps_numbers(node):
            return self._of(node.inputs[0].name)
        if meta.dtype not in ("int32", "int64"):  # sums of narrower ones wrap around
            return _ALL
        packet = node.op_type.rpartition(".")[0]
        if packet in _WITH_PLACES and meta.producer_output_idx != 1:  # what is chosen, not where
            return self.of_all(node)
        rule = _RULES.get(packet)
        return _ALL if rule is None else rule(self, node)

    def of_argument(self, node: OpNode, name: str, default: Any = None) -> Range:
        """Return the bounds of an argument."""
        return self.of_item(node.argument(name, default))

    def of_item(self, item: Any) -> Range:
        """Return the bounds of a tensor, of a number, or of a size."""
        if isinstance(item, TensorMeta):
            return _TYPES.get(item.dtype) or self._of(item.name)
        if isinstance(item, SymExpr):
            return self._of_size(item)
        return Range(item, item) if isinstance(item, int | float) else _ALL

    def _of_size(self, size: SymExpr) -> Range:
        if not size.is_symbol or size.text not in self._ir.symbols:
            return Range(-math.inf, math.inf)
        ends = self._ir.symbols[size.text]
        low = -math.inf if ends.lower is None else ends.lower
        return Range(low, math.inf if ends.upper is None else ends.upper)

    def of_all(self, node: OpNode) -> Range:
        """Return the bounds of all operands of a node."""
        found = [self.of_item(meta) for meta in node.inputs]
        return Range(min(r.low for r in found), max(r.high for r in found)) if found else _ALL


def _of_tensor(tensor: torch.Tensor | None) -> Range:
    if tensor is None or is_inexact(tensor) or not tensor.numel():
        return _ALL
    return Range(int(tensor.min()), int(tensor.max()))


def _keeps_numbers(node: OpNode) -> bool:
    packet = node.op_type.rpartition(".")[0]
    return (
        packet in SAME_NUMBERS
        and bool(node.inputs)
        and all(m.dtype.startswith(("int", "uint", "bool")) for m in (*node.inputs, *node.outputs))
    )


_WITH_PLACES = frozenset(f"aten.{name}" for name in ("max", "min", "sort", "topk"))
"""Operators that give numbers of their first operand, and second where along an axis they were."""


# -- rules ----------------------------------------------------------------------------------------


def _counted(bounds: IntegerBounds, node: OpNode) -> Range:
    start, end = node.argument("start", 0), node.argument("end")
    step = node.argument("step", 1)
    if type(step) is not int or step <= 0:
        return _ALL
    below = end if isinstance(end, SymExpr) and start == 0 else None
    first, last = bounds.of_argument(node, "start", 0), bounds.of_argument(node, "end")
    return Range(first.low, max(last.high - 1, first.high), below)


def _chosen(bounds: IntegerBounds, node: OpNode) -> Range:
    meta, dim = node.inputs[0], node.argument("dim", -1)
    if dim is None:
        sizes = [size for size in meta.shape if isinstance(size, int)]
        return Range(0, math.prod(sizes) - 1) if meta.is_static else _ALL
    size = meta.shape[dim] if meta.shape else 1
    if isinstance(size, int):
        return Range(0, max(size - 1, 0))
    return Range(0, math.inf, size)


def _looked_up(bounds: IntegerBounds, node: OpNode) -> Range:
    return bounds.of_item(node.inputs[0])


def _clipped(bounds: IntegerBounds, node: OpNode) -> Range:
    given = bounds.of_argument(node, "self")
    low = bounds.of_argument(node, "min") if node.argument("min") is not None else _ALL
    high = bounds.of_argument(node, "max") if node.argument("max") is not None else _ALL
    least = min(max(given.low, low.low), high.high)
    return Range(min(least, high.low), min(max(given.high, low.high), high.high))


def _lesser(bounds: IntegerBounds, node: OpNode) -> Range:
    a, b = bounds.of_argument(node, "self"), bounds.of_argument(node, "other")
    return Range(min(a.low, b.low), min(a.high, b.high))


def _greater(bounds: IntegerBounds, node: OpNode) -> Range:
    a, b = bounds.of_argument(node, "self"), bounds.of_argument(node, "other")
    return Range(max(a.low, b.low), max(a.high, b.high))


def _either(bounds: IntegerBounds, node: OpNode) -> Range:
    names = ("self", "other") if "condition" in {*node.slots, *node.attrs} else ("self", "value")
    a, b = [bounds.of_argument(node, name) for name in names]
    return Range(min(a.low, b.low), max(a.high, b.high))


def _full(bounds: IntegerBounds, node: OpNode) -> Range:
    return bounds.of_argument(node, "fill_value")


def _constant(number: int) -> Rule:
    def rule(bounds: IntegerBounds, node: OpNode) -> Range:
        return Range(number, number)

    return rule


def _sum(sign: int) -> Rule:
    def rule(bounds: IntegerBounds, node: OpNode) -> Range:
        a, b = bounds.of_argument(node, "self"), bounds.of_argument(node, "other")
        factor = bounds.of_argument(node, "alpha", 1)
        ends = [sign * x * factor.low for x in (b.low, b.high)] if factor.low else [0, 0]
        if factor.low != factor.high or math.isnan(sum(ends)):
            return _ALL
        return _exact(a.low + min(ends), a.high + max(ends))

    return rule


def _product(bounds: IntegerBounds, node: OpNode) -> Range:
    a, b = bounds.of_argument(node, "self"), bounds.of_argument(node, "other")
    ends = [x * y if x and y else 0 for x in a[:2] for y in b[:2]]
    return _exact(min(ends), max(ends))


def _exact(low: float, high: float) -> Range:
    """A range, unless numbers in it may wrap around."""
    return Range(low, high) if low >= -(1 << 31) and high < 1 << 31 else _ALL


def _left_over(bounds: IntegerBounds, node: OpNode) -> Range:
    by = bounds.of_argument(node, "other")
    return Range(0, by.high - 1) if by.low == by.high and by.low > 0 else _ALL


def _running_sum(bounds: IntegerBounds, node: OpNode) -> Range:
    given, dim = bounds.of_argument(node, "self"), node.argument("dim")
    shape = node.inputs[0].shape
    size = shape[dim] if shape else 1
    count = bounds.of_item(size).high
    ends = [0 if not end else end * count for end in (min(given.low, 0), max(given.high, 0))]
    return _exact(*ends)


Rule = Callable[[IntegerBounds, OpNode], Range]
_RULES: Mapping[str, Rule] = {
    f"aten.{name}": rule
    for rule, names in {
        _counted: "arange",
        _chosen: "argmax argmin max min sort argsort topk",
        _looked_up: "gather index index_select embedding",
        _clipped: "clamp clamp_min clamp_max",
        _lesser: "minimum",
        _greater: "maximum",
        _either: "where masked_fill",
        _full: "full full_like new_full",
        _sum(1): "add",
        _sum(-1): "sub",
        _product: "mul",
        _left_over: "remainder",
        _running_sum: "cumsum",
        IntegerBounds.of_all: "cat stack",
        _constant(0): "zeros zeros_like",
        _constant(1): "ones ones_like",
    }.items()
    for name in names.split()
}
