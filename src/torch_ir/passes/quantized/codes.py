"""Numbers of a program that stand for codes, and nodes that move the codes alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from torch_ir.dialects.rules import DIM_ORDER_SCHEMAS
from torch_ir.ir import IR, DType, OpNode, TensorMeta
from torch_ir.ir.aliases import StorageGroups
from torch_ir.ir.builder import Builder, renamed
from torch_ir.ops.schema import lookup

LIBRARY = "quantized_decomposed"
QUANTIZE = f"{LIBRARY}.quantize_per_tensor.default"
DEQUANTIZE = f"{LIBRARY}.dequantize_per_tensor.default"
AFFINE = "torchao.dequantize_affine.default"
FLOAT = DType("float32")
BOUNDS: Mapping[str, tuple[int, int]] = {"uint8": (0, 255), "int8": (-128, 127)}
"""The least and the largest code of each type of codes."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """How the codes of one tensor stand for numbers: ``(code - zero_point) · scale``.

    Attributes:
        scale: The number for which a step of one code stands.
        zero_point: The code of 0.
        low: The least code that quantizing gives.
        high: The largest.
        dtype: The type of the codes, a key of :data:`BOUNDS`.
    """

    scale: float
    zero_point: int
    low: int
    high: int
    dtype: str

    @property
    def meaning(self) -> tuple[float, int, str]:
        """The parts that decide for which number a code stands."""
        return self.scale, self.zero_point, self.dtype

    def attributes(self, prefix: str) -> dict[str, Any]:
        """Return the arguments of an operator that takes codes under this name."""
        values = (self.scale, self.zero_point, self.low, self.high)
        names = ("scale", "zero_point", "quant_min", "quant_max")
        return {f"{prefix}_{name}": value for name, value in zip(names, values, strict=True)}


def parameters(node: OpNode) -> Parameters | None:
    """Return those of a call that quantizes or dequantizes bytes with known numbers, or None."""
    found = bounds(node) if node.op_type in (QUANTIZE, DEQUANTIZE) else None
    scale: Any = node.attrs.get("scale")
    zero_point: Any = node.attrs.get("zero_point")
    known = type(scale) in (float, int) and type(zero_point) is int and len(node.inputs) == 1
    if found is None or not known:
        return None
    dtype = (node.outputs if node.op_type == QUANTIZE else node.inputs)[0].dtype
    (least, largest), (low, high) = BOUNDS[dtype], found
    fits = least <= low <= high <= largest
    return Parameters(float(scale), zero_point, low, high, dtype) if fits else None


def bounds(node: OpNode) -> tuple[int, int] | None:
    """Return the least and largest code of a call that makes float32 of bytes, or the reverse."""
    attrs, codes, numbers = node.attrs, node.inputs[0], node.outputs[0]
    codes, numbers = (numbers, codes) if node.op_type == QUANTIZE else (codes, numbers)
    kind = attrs.get("input_dtype", attrs.get("dtype"))
    if codes.dtype not in BOUNDS or kind != DType(codes.dtype) or numbers.dtype != "float32":
        return None
    if any(attrs.get(name) not in (None, FLOAT) for name in ("out_dtype", "output_dtype")):
        return None
    low, high = [attrs.get(name) for name in ("quant_min", "quant_max")]
    if node.op_type == AFFINE:
        least, largest = BOUNDS[codes.dtype]
        low, high = least if low is None else low, largest if high is None else high
    return (low, high) if type(low) is int and type(high) is int else None


@lru_cache(maxsize=4096)
def gives_back(first: Parameters, second: Parameters, low: int, high: int) -> bool:
    """Return whether every code from ``low`` to ``high`` survives dequantizing and quantizing.

    It is tried, with the arithmetic of the operators.

    Example:
        >>> whole = Parameters(0.1, 3, 0, 255, "uint8")
        >>> gives_back(whole, whole, 0, 255)
        True
        >>> gives_back(whole, Parameters(0.1, 3, 0, 127, "uint8"), 0, 255)
        False
    """
    if first.meaning != second.meaning or not first.scale or not math.isfinite(first.scale):
        return False
    import torch

    from torch_ir.infer.resolve import resolve_operator

    dtype: Any = getattr(torch, first.dtype)
    codes = torch.arange(low, high + 1).to(dtype)
    dequantize: Any = resolve_operator(DEQUANTIZE)
    quantize: Any = resolve_operator(QUANTIZE)
    numbers = dequantize(codes, first.scale, first.zero_point, first.low, first.high, dtype)
    made = quantize(numbers, second.scale, second.zero_point, second.low, second.high, dtype)
    return bool(torch.equal(made, codes))


# -- what moves elements --------------------------------------------------------------------------


def _named(names: str) -> frozenset[str]:
    return frozenset(f"aten.{name}" for name in names.split())


REARRANGE = _named(
    "view.default view_copy.default _unsafe_view.default reshape.default flatten.using_ints "
    "unflatten.int permute.default permute_copy.default transpose.int transpose_copy.int "
    "t.default t_copy.default unsqueeze.default unsqueeze_copy.default squeeze.default "
    "squeeze.dim squeeze.dims squeeze_copy.default squeeze_copy.dim squeeze_copy.dims "
    "alias.default alias_copy.default contiguous.default"
)
"""Operators that give every element once, of memory without gaps."""

SPREAD = _named(
    "slice.Tensor slice_copy.Tensor narrow.default select.int select_copy.int "
    "expand.default expand_copy.default split.Tensor split_copy.Tensor "
    "split_with_sizes.default split_with_sizes_copy.default chunk.default unbind.int "
    "unbind_copy.int"
)
"""Operators whose results may have gaps, or elements in several places: executors run them as
views, and what follows in the original sees a dense copy."""

GATHER = _named(
    "clone.default cat.default stack.default repeat.default flip.default "
    "index_select.default embedding.default pixel_shuffle.default"
) | {"dim_order_ops._clone_dim_order.default"}
"""Operators that copy elements into new memory."""

POOLS = _named("max_pool2d.default max_pool2d_with_indices.default")
"""Operators that pick the largest of some elements: of numbers, or of their codes alike."""


def moved(node: OpNode) -> tuple[TensorMeta, ...]:
    """Return the operands whose elements a node moves; none if it does anything else."""
    if node.op_type not in REARRANGE | SPREAD | GATHER | POOLS or node.operands is None:
        return ()
    names = [name for name in node.operands if name not in ("index", "indices")]
    return tuple([meta for name in names for meta in node.tensors(name)])


def is_kept_by_moves(found: Parameters, node: OpNode) -> bool:
    """Return whether a node does to codes what it does to the numbers for which they stand."""
    if node.op_type not in POOLS:
        return True
    # a window that is dilated may lie outside altogether: -inf, which is no code
    dilation = node.attrs.get("dilation", 1)
    steps = dilation if isinstance(dilation, tuple) else (dilation,)
    return found.scale > 0 and math.isfinite(found.scale) and all(step == 1 for step in steps)


def is_view(ir: IR, node: OpNode) -> bool:
    """Return whether a node may return an alias of an input."""
    schema = ir.schema_of(node.op_type) or lookup(node.op_type)
    reshapes = node.op_type in ("aten.reshape.default", "aten.flatten.using_ints")
    return reshapes or schema is None or any(result.alias for result in schema.returns)


# -- the codes of a program ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Known:
    """Numbers that stand for codes: how, and between which bounds.

    Attributes:
        parameters: How.
        low: No code is less.
        high: No code is larger.
        node: What gives the numbers.
        owner: The codes of the program whose memory these would be; where they would be in memory
            of their own, the numbers for which that is made.
    """

    parameters: Parameters
    low: int
    high: int
    node: OpNode
    owner: str


class Codes:
    """The codes behind the numbers of a program.

    Args:
        builder: What makes the new program.
        is_edge: Whether copies are written as in the Edge dialect.
    """

    def __init__(self, builder: Builder, *, is_edge: bool):
        self.ir = builder.ir
        self.builder = builder
        self.is_edge = is_edge
        self.memory = StorageGroups(builder.ir)
        self.known: dict[str, Known] = {}  # by the name of the numbers
        self.bounds: dict[str, tuple[int, int]] = {}  # by the name of the codes
        self.made: dict[str, TensorMeta] = {}  # by the name of the numbers, once there are nodes
        self.gaps: set[str] = set()  # codes that may not be dense
        self.passed: set[str] = set()  # nodes that are not needed if nothing uses them
        self._gapless: set[str] = set()  # numbers of such codes, where quantizing made them dense
        self._copies: dict[str, TensorMeta] = {}

    def is_known(self, meta: TensorMeta) -> bool:
        """Return whether a value stands for codes."""
        return meta.name in self.known

    def is_fixed(self, meta: TensorMeta) -> bool:
        """Return whether nothing writes to a value."""
        return not self.memory.is_written(meta.name)

    # -- what is known ----------------------------------------------------------------------------

    def learn(self, node: OpNode) -> None:
        """Remember of which codes a node's results are the numbers."""
        found = parameters(node)
        if found is not None and node.op_type == QUANTIZE:
            self.bounds[node.outputs[0].name] = (found.low, found.high)
        elif found is not None:
            if self.is_fixed(node.inputs[0]) and self.is_fixed(node.outputs[0]):
                low, high = self.bounds.get(node.inputs[0].name, BOUNDS[found.dtype])
                known = Known(found, low, high, node, node.inputs[0].name)
                self.known[node.outputs[0].name] = known
        elif sources := moved(node):
            self._learn_moved(node, sources)

    def _learn_moved(self, node: OpNode, sources: tuple[TensorMeta, ...]) -> None:
        known = [found for meta in sources if (found := self.known.get(meta.name)) is not None]
        if len(known) < len(sources) or len({found.parameters.meaning for found in known}) > 1:
            return
        first = known[0]
        is_fixed = all(self.is_fixed(meta) for meta in (*node.inputs, *node.outputs))
        if not is_fixed or not is_kept_by_moves(first.parameters, node):
            return
        low, high = min(found.low for found in known), max(found.high for found in known)
        is_new = not is_view(self.ir, node)
        for meta in node.outputs:
            if meta.dtype == "float32":
                owner = meta.name if is_new else first.owner
                self.known[meta.name] = Known(first.parameters, low, high, node, owner)

    # -- nodes ------------------------------------------------------------------------------------

    def of(self, numbers: TensorMeta) -> TensorMeta:
        """Return the codes for which known numbers stand; nodes are added that move them alike."""
        pending = [numbers.name]
        while pending:
            name = pending[-1]
            node = self.known[name].node
            sources = () if node.op_type == DEQUANTIZE else moved(node)
            lacking = [meta.name for meta in sources if meta.name not in self.made]
            if lacking and name not in self.made:
                pending += lacking
                continue
            pending.pop()
            if name not in self.made:
                self._add(node, name, sources)
        return self.made[numbers.name]

    def _add(self, node: OpNode, name: str, sources: tuple[TensorMeta, ...]) -> None:
        self.passed.add(node.name)
        if not sources:
            codes = self.made[name] = self.builder.value(node.inputs[0])
            if codes.name in self.gaps:
                self._gapless.add(name)
            return
        dtype = self.known[name].parameters.dtype
        names = {meta.name for meta in sources}
        new = self.move(node, names, dtype, self.builder.names.fresh(f"{node.name}_codes"))
        for old, meta in zip(node.outputs, new.outputs, strict=True):
            if old.name in self.known:
                self.made[old.name] = meta

    def move(self, node: OpNode, sources: set[str], dtype: str, name: str) -> OpNode:
        """Add the node that moves codes as another moves the numbers for which they stand."""
        inputs = [
            self._source(meta, node) if meta.name in sources else self.builder.value(meta)
            for meta in node.inputs
        ]
        new = renamed(node, name).replace(inputs=inputs)
        outputs = [
            meta.replace(dtype=dtype) if meta.dtype == "float32" else meta for meta in new.outputs
        ]
        new = new.replace(outputs=outputs)
        self.builder.nodes.append(new)
        has_gaps = node.op_type in REARRANGE and inputs[0].name in self.gaps
        if has_gaps or node.op_type in SPREAD:
            self.gaps.update(meta.name for meta in outputs)
        return new

    def _source(self, numbers: TensorMeta, node: OpNode) -> TensorMeta:
        """The codes that a node moves in the place of numbers."""
        codes = self.made[numbers.name]
        if node.op_type not in REARRANGE or numbers.name not in self._gapless:
            return codes
        if codes.name not in self._copies:
            self._copies[codes.name] = self.copy(codes, node)
        return self._copies[codes.name]

    def copy(self, codes: TensorMeta, node: OpNode) -> TensorMeta:
        """Add codes in memory of their own, as quantizing would lay them out there."""
        op_types = ("aten.clone.default", "dim_order_ops._clone_dim_order.default")
        return self._add_copy(op_types, codes, node, "copy")

    def cast(self, value: TensorMeta, dtype: str, node: OpNode) -> TensorMeta:
        """Add a value in another type, with the place of a node."""
        op_types = ("aten._to_copy.default", "dim_order_ops._to_dim_order_copy.default")
        return self._add_copy(op_types, value, node, dtype, dtype=dtype)

    def zeros(self, like: TensorMeta, node: OpNode) -> TensorMeta:
        """Add zeros of a value's shape and type, with the place of a node."""
        attrs = {"size": like.shape, "fill_value": 0, "dtype": DType(like.dtype)}
        made = self.builder.emit(
            *("aten.full.default", attrs),
            like=node,
            results=[(like.shape, like.dtype)],
            name=f"{node.name}_zeros",
        )
        return made[0]

    def _add_copy(
        self,
        op_types: tuple[str, str],
        value: TensorMeta,
        node: OpNode,
        label: str,
        dtype: str | None = None,
    ) -> TensorMeta:
        """Add a copy by the operator of ATen or the one of Edge."""
        op_type = op_types[self.is_edge]
        if self.is_edge:
            self.builder.operators[op_type] = DIM_ORDER_SCHEMAS[op_type]
        attrs = {} if dtype is None else {"dtype": DType(dtype)}
        made = self.builder.emit(
            *(op_type, {"self": value, **attrs}),
            like=node,
            results=[(value.shape, dtype or value.dtype)],
            name=f"{value.name.split('.')[0]}_{label}",
        )
        return made[0]
