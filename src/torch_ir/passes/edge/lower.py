"""From core ATen to Edge: what a call leaves implicit is written out.

Views become copies, numbers in the place of tensors constants, promotion casts, and memory formats
orders of dimensions. Each rewrite computes what eager computes, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch_ir.dialects.edge.dim_order import DIM_ORDER_OPS, dim_order_of
from torch_ir.dialects.edge.edge_rules import kind_of_number
from torch_ir.dialects.rules import DIM_ORDER_SCHEMAS
from torch_ir.errors import InvalidIRError
from torch_ir.ir import IR, Constant, DType, MemoryFormat, OpNode, SymExpr, TensorMeta
from torch_ir.ir.analysis.gradient_stops import with_lost_stops
from torch_ir.ir.builder import Builder, split_arguments
from torch_ir.ir.queries import constant_of, externals_of, kept_values
from torch_ir.ops.effects import TYPE_CHECKS
from torch_ir.ops.schema import lookup
from torch_ir.ops.spec import spec_of, tagged_traits
from torch_ir.ops.variants import copy_of
from torch_ir.passes.edge.promotion import (
    COMPUTES_WIDE,
    HALVES,
    PROMOTING,
    PUTTING,
    Operand,
    cast_number,
    promoted_dtype,
)

SAME_VALUE = frozenset(
    f"aten.{name}.default"
    for name in ("alias", "alias_copy", "detach", "detach_copy", "lift_fresh_copy", "lift_fresh")
)
"""Operators that give what they take: without writes and views there is no difference."""

_CONVERTED = PROMOTING | PUTTING
"""The arguments of each operator that are brought to one dtype."""

_PLAIN = {"aten.div.Tensor_mode": "aten.div.Tensor"}
"""An operator without the rounding that its name stands for."""

MAX_FOLDED = 1 << 16
"""How many elements a constant may have to be converted when the program is lowered."""

Value = TensorMeta | bool | int | float | complex | SymExpr


def lower(ir: IR, *, is_body: bool = False) -> IR:
    """Lower a program to the dialect ``edge``; the result is not verified.

    Args:
        ir: A program in core ATen.
        is_body: Whether it is a function, in which numbers are nodes.
    """
    has_formats = any(
        isinstance(value, MemoryFormat) and value.name.startswith("channels_last")
        for _, _, node in ir.walk()
        for value in node.attrs.values()
    )
    lowered = _without_unused(_Lowering(ir, not has_formats, is_body).run())
    return with_lost_stops(ir, lowered)


def _without_unused(ir: IR) -> IR:
    """The program without the weights and constants that nothing uses."""
    targets = [mutation.target for mutation in ir.mutations]
    held = externals_of(ir, kept_values(ir).union(ir.users, targets))
    kept = len(held["weights"]) + len(held["constants"])
    return ir if kept == len(ir.weights) + len(ir.constants) else ir.replace(**held)


@dataclass(slots=True)
class _Lowering:
    """One graph being lowered.

    Attributes:
        ir: The graph in core ATen.
        is_contiguous: Whether no tensor of the program is laid out in another order.
        is_body: Whether it is a function, which cannot have constants of its own.
    """

    ir: IR
    is_contiguous: bool
    is_body: bool = False
    builder: Builder = field(init=False)
    made: dict[tuple[str, str], TensorMeta] = field(
        default_factory=dict[tuple[str, str], TensorMeta]
    )
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    def __post_init__(self) -> None:
        self.builder = Builder(self.ir, dialect="edge")

    def run(self) -> IR:
        """The lowered graph, its functions lowered too."""
        for node in self.ir.nodes:
            self._node(self.builder.mapped(node))
        self.builder.map_functions(lambda f: _Lowering(f, self.is_contiguous, is_body=True).run())
        return self.builder.finish()

    def _node(self, node: OpNode) -> None:
        if node.op_type in TYPE_CHECKS:
            return
        same = _same_value(node)
        if same is not None:
            self.builder.replace(node.outputs[0], same)
            return
        node = _without_alias(node)
        node = self._with_tensors(node)
        self._append(_without_empty(node))

    def _append(self, node: OpNode) -> None:
        """Add a node, with its layout said by the order of dimensions."""
        by_order = DIM_ORDER_OPS.get(node.op_type)
        if by_order is not None:
            attrs = {k: v for k, v in node.attrs.items() if k != "memory_format"}
            order = self._dim_order(node)
            if order is not None:
                attrs["dim_order"] = order
                self.orders[node.outputs[0].name] = order
            node = node.replace(op_type=by_order, attrs=attrs)
            self.builder.operators[by_order] = DIM_ORDER_SCHEMAS[by_order]
        elif len(node.outputs) == 1:
            self.orders[node.outputs[0].name] = self._order_after(node)
        self.builder.nodes.append(node)

    def _dim_order(self, node: OpNode) -> tuple[int, ...] | None:
        rank = len(node.outputs[0].shape)
        asked = node.attrs.get("memory_format")
        order = dim_order_of(asked, rank) if isinstance(asked, MemoryFormat) else None
        if order is not None or (node.inputs and not self.is_contiguous):
            return order
        return self._order_of(node.inputs[0]) if node.inputs else tuple(range(rank))

    def _order_of(self, meta: TensorMeta) -> tuple[int, ...]:
        return self.orders.get(meta.name, tuple(range(len(meta.shape))))

    def _order_after(self, node: OpNode) -> tuple[int, ...]:
        """Return the order of dimensions of a call's result, as eager lays it out."""
        (result,) = node.outputs
        rows = tuple(range(len(result.shape)))
        if node.op_type == "aten.permute_copy.default":
            dims: Any = node.attrs["dims"]
            placed = [dim % len(rows) for dim in dims]
            return tuple([placed.index(dim) for dim in self._order_of(node.inputs[0])])
        if "pointwise" in tagged_traits(node.op_type):
            full = [meta for meta in node.inputs if meta.shape == result.shape]
            found = {self._order_of(meta) for meta in full}
            return found.pop() if len(found) == 1 else rows
        return rows

    # -- numbers and promotion --------------------------------------------------------------------

    def _with_tensors(self, node: OpNode) -> OpNode:
        """The node with tensors for numbers, and all promoted operands of one dtype."""
        schema = lookup(node.op_type)
        if schema is None:
            return node
        given = {name: _values_of(node, name) for name in _CONVERTED.get(node.op_type, ())}
        for argument in schema.arguments:
            value = node.attrs.get(argument.name)
            if argument.takes_tensor and argument.name not in given and _is_number(value):
                given[argument.name] = _values_of(node, argument.name)
                given.setdefault("self", _values_of(node, "self"))
        found = [value for values in given.values() for value in values]
        if not found:
            return node
        dtype = self._promoted(node, [_operand(value) for value in found])
        wide = self._computes_wide(node, given, dtype)
        target = "float32" if wide else dtype
        if not any(_is_number(value) or _operand(value).dtype != target for value in found):
            return node
        converted = {
            name: [self._converted(value, target, node) for value in values]
            for name, values in given.items()
        }
        rebuilt = _with_operands(node, converted)
        return self._narrowed(rebuilt) if wide else rebuilt

    def _promoted(self, node: OpNode, operands: Sequence[Operand]) -> str:
        if node.op_type in PUTTING:
            return node.tensors("self")[0].dtype
        keeps_whole = node.attrs.get("rounding_mode") is not None
        op_type = "" if keeps_whole else _PLAIN.get(node.op_type, node.op_type)
        return promoted_dtype(op_type, operands)

    def _computes_wide(
        self, node: OpNode, given: Mapping[str, Sequence[Value]], dtype: str
    ) -> bool:
        """Whether the kernel takes the second operand in float32 beside a half."""
        if node.op_type not in COMPUTES_WIDE or dtype not in HALVES:
            return False
        other = given["other"][0]
        if isinstance(other, TensorMeta):
            return not other.shape and other.dtype != dtype
        if isinstance(other, SymExpr):
            return True
        return cast_number(other, dtype).item() != cast_number(other, "float32").item()

    def _narrowed(self, node: OpNode) -> OpNode:
        """A node that computes in float32, and after it the cast that gives its result."""
        (result,) = node.outputs
        name = self.builder.names.fresh(f"{node.name}_wide")
        wide = TensorMeta(name, result.shape, "float32", name)
        self._append(node.replace(name=name, outputs=(wide,)).derived_from(node))
        attrs = {"dtype": DType(result.dtype)}
        return node.replace(
            op_type="aten._to_copy.default", inputs=(wide,), attrs=attrs, operands=None
        )

    def _converted(self, value: Value, dtype: str, node: OpNode) -> TensorMeta:
        """A tensor of the dtype with the value of an operand."""
        if isinstance(value, TensorMeta):
            return value if value.dtype == dtype else self._cast(value, dtype, node)
        if isinstance(value, SymExpr):
            return self._emit(
                "aten.scalar_tensor.default", {"s": value, "dtype": DType(dtype)}, (), dtype, node
            )
        key = (repr(value), dtype)
        if key not in self.made:
            self.made[key] = self._number(value, dtype, node)
        return self.made[key]

    def _number(self, value: complex, dtype: str, node: OpNode) -> TensorMeta:
        if self.is_body:  # functions have no constants
            attrs = {"size": (), "fill_value": value, "dtype": DType(dtype)}
            return self._emit("aten.full.default", attrs, (), dtype, node)
        return self.builder.constant(Constant.from_torch(cast_number(value, dtype)), "number")

    def _cast(self, meta: TensorMeta, dtype: str, node: OpNode) -> TensorMeta:
        key = (f"%{meta.name}", dtype)
        if key not in self.made:
            known = self._known(meta)
            if known is not None and not self.is_body:
                tensor = cast_tensor(known, dtype)
                self.made[key] = self.builder.constant(tensor, f"{meta.name}_{dtype}")
            else:
                attrs = {"dtype": DType(dtype)}
                self.made[key] = self._emit(
                    "aten._to_copy.default", attrs, (meta,), dtype, node, f"{meta.name}_{dtype}"
                )
        return self.made[key]

    def _known(self, meta: TensorMeta) -> Constant | None:
        """The constant of the program that a value is, if it is small."""
        value = constant_of(self.ir, meta.name)
        written = any(mutation.target == meta.name for mutation in self.ir.mutations)
        if value is None or written:
            return None
        if value.view is not None:  # what it is converted to lies in memory as it does
            return None
        return value if math.prod(value.shape) <= MAX_FOLDED else None

    def _emit(
        self,
        op_type: str,
        attrs: Mapping[str, Any],
        inputs: tuple[TensorMeta, ...],
        dtype: str,
        node: OpNode,
        wanted: str = "scalar",
    ) -> TensorMeta:
        """Add a node that makes one tensor, of the shape of its input or without dimensions."""
        name = self.builder.names.fresh(wanted)
        shape = inputs[0].shape if inputs else ()
        made = TensorMeta(name, shape, dtype, name)
        call = OpNode(name, op_type, inputs, (made,), attrs, None, node.location)
        self._append(call.derived_from(node))
        return made


def cast_tensor(constant: Constant, dtype: str) -> Constant:
    """Convert a constant to another dtype, as torch converts."""
    import torch  # programs are lowered where torch is

    return Constant.from_torch(constant.torch().to(getattr(torch, dtype)))


# -- one call -------------------------------------------------------------------------------------


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int | float | complex | SymExpr)


def _values_of(node: OpNode, name: str) -> list[Value]:
    """What an argument takes: tensors, or a number."""
    metas: list[Value] = list(node.tensors(name))
    value: Any = node.attrs.get(name)
    return [*metas, value] if _is_number(value) and not metas else metas


def _operand(value: Value) -> Operand:
    if isinstance(value, TensorMeta):
        return Operand(value.dtype, 2 if value.shape else 1)
    kind = kind_of_number(value)
    if kind is None:
        raise InvalidIRError(f"{value!r} is no number")
    return Operand(kind, 0)


def _with_operands(node: OpNode, given: Mapping[str, Sequence[TensorMeta]]) -> OpNode:
    """The node with other tensors for some arguments."""
    schema = lookup(node.op_type)
    arguments: dict[str, Any] = {}
    for argument in schema.arguments if schema is not None else ():
        name = argument.name
        if given.get(name):
            arguments[name] = given[name] if argument.takes_tensor_list else given[name][0]
        elif node.slots.get(name) is not None:
            arguments[name] = node.argument(name)
    inputs, rest, operands = split_arguments(arguments)
    attrs = {name: value for name, value in node.attrs.items() if not given.get(name)}
    return node.replace(inputs=inputs, operands=operands, attrs={**attrs, **rest})


def _without_alias(node: OpNode) -> OpNode:
    """Replace a view by its copying counterpart; return any other node unchanged."""
    if lookup(node.op_type) is None or "view" not in spec_of(node.op_type).traits:
        return node
    copy = copy_of(node.op_type)
    return node if copy is None else node.replace(op_type=copy)


def _same_value(node: OpNode) -> TensorMeta | None:
    """Return the input that a node returns unchanged, or None."""
    if not node.inputs or len(node.outputs) != 1:
        return None
    (result,), given = node.outputs, node.inputs[0]
    if node.op_type in SAME_VALUE:
        return given
    if node.op_type == "aten._to_copy.default" and given.dtype == result.dtype:
        return given if set(node.attrs) <= {"dtype", "non_blocking"} else None
    if node.op_type in ("aten.slice.Tensor", "aten.slice_copy.Tensor"):
        return given if _covers(node, given) else None
    return None


def _covers(node: OpNode, given: TensorMeta) -> bool:
    """Whether a slice takes the whole of a dimension."""
    dim: Any = node.attrs.get("dim", 0)
    size = given.shape[dim]
    start, end, step = (node.attrs.get(name) for name in ("start", "end", "step"))
    is_all = isinstance(end, int) and isinstance(size, int) and end >= size
    return start in (None, 0) and (end is None or is_all) and step in (None, 1)


def _without_empty(node: OpNode) -> OpNode:
    """A concatenation without the tensors that add nothing; ``full`` if none adds anything."""
    if node.op_type != "aten.cat.default":
        return node
    dim: Any = node.attrs.get("dim", 0)
    kept = [meta for meta in node.inputs if not _is_empty(meta, dim)]
    if len(kept) == len(node.inputs):
        return node
    if kept:
        return _with_operands(node, {"tensors": kept})
    (result,) = node.outputs
    attrs = {"size": result.shape, "fill_value": 0, "dtype": DType(result.dtype)}
    return node.replace(op_type="aten.full.default", inputs=(), attrs=attrs, operands=None)


def _is_empty(meta: TensorMeta, dim: int) -> bool:
    return meta.shape == (0,) or (bool(meta.shape) and meta.shape[dim] == 0)
