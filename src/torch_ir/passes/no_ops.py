"""The removal of no-ops: operators that return what they are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_ir.arguments import public
from torch_ir.ir import IR, Device, DType, MemoryFormat, OpNode, TensorMeta
from torch_ir.ir.aliases import StorageGroups
from torch_ir.ir.analysis.gradient_stops import with_lost_stops
from torch_ir.ir.builder import Builder
from torch_ir.ir.queries import has_complex, op_types
from torch_ir.ops.aliases import RESOLVE
from torch_ir.ops.effects import TYPE_CHECKS
from torch_ir.passes.base import Pass, PassResult


@dataclass(frozen=True)
class RemoveNoOps(Pass):
    """Removes operators that give what they are given; see :func:`remove_no_ops`."""

    name: ClassVar[str] = "remove-no-ops"

    def call(self, ir: IR) -> PassResult:
        """Remove the operators that do nothing."""
        return PassResult.of(ir, remove_no_ops(ir))


@public
def remove_no_ops(ir: IR, op_types: frozenset[str] | None = None) -> IR:
    """Remove views to the same shape, casts to the same dtype and needless copies.

    A copy is needless if the value lies in memory as the copy does, nothing writes to either, and
    a caller cannot see that they are one. Graph inputs and weights are taken to be contiguous.
    Copies stay in programs with complex numbers, where they may resolve a lazy conjugate or
    negation. Functions are changed too. The same object if there is nothing to do.

    Args:
        ir: The program.
        op_types: Look at these operators only.

    Example:
        >>> from torch_ir import parse
        >>> print(remove_no_ops(parse('''
        ... ir "Same" {
        ...   input %x: f32[2]
        ...   %a: f32[2] = aten.view.default(%x, [2])
        ...   %b: f32[2] = aten.to.dtype(%a, torch.float32)
        ...   %y: f32[2] = aten.relu.default(%b)
        ...   return %y
        ... }
        ... ''')))
        ir "Same" {
          input %x: f32[2]
          %y: f32[2] = aten.relu.default(%x)
          return %y
        }
    """
    return with_lost_stops(ir, _without_no_ops(ir, op_types, _may_be_lazy(ir)))


def _without_no_ops(ir: IR, op_types: frozenset[str] | None, is_lazy: bool) -> IR:
    builder = Builder(ir)
    builder.map_functions(lambda body: _without_no_ops(body, op_types, is_lazy))
    memory = StorageGroups(ir)
    for node in ir.nodes:
        source = _given(node) if op_types is None or node.op_type in op_types else None
        if (
            source is None
            or (is_lazy and _resolves(node))
            or not _is_removable(node, source, memory, ir)
        ):
            builder.keep(node)
        else:
            builder.replace(node.outputs[0], source)
    return builder.finish()


def _may_be_lazy(ir: IR) -> bool:
    """Whether a value may be the conjugate or the negation of what is stored.

    Some views work on what is stored alone: of such a value they need a copy.
    """
    negates = "aten._neg_view.default" in op_types(ir)
    return negates or has_complex(ir)


def _resolves(node: OpNode) -> bool:
    return node.op_type in RESOLVE or copies(node)


def _is_removable(
    node: OpNode,
    source: TensorMeta,
    memory: StorageGroups,
    ir: IR,
) -> bool:
    result = node.outputs[0]
    if memory.is_written(source.name) or memory.is_written(result.name):
        return False
    if not copies(node):
        return True
    if memory.is_seen(source.name) and memory.is_seen(result.name):
        return False
    from torch_ir.infer.fake import value_types

    known = value_types(ir)
    before, after = known.get(source.name), known.get(result.name)
    if before is None or after is None or before.strides != after.strides:
        return False
    return memory.join(result.name, source.name)


# -- what does nothing ----------------------------------------------------------------------------

Test = Callable[[OpNode], bool]


def _always(node: OpNode) -> bool:
    return True


def _identity_permutation(node: OpNode) -> bool:
    rank = len(node.outputs[0].shape)
    return [dim % max(rank, 1) for dim in node.attrs["dims"]] == list(range(rank))


def _same_dims(node: OpNode) -> bool:
    rank = max(len(node.outputs[0].shape), 1)
    return (node.attrs["dim0"] - node.attrs["dim1"]) % rank == 0


def _unit_step(node: OpNode) -> bool:
    return node.attrs.get("step", 1) == 1


def _inference(node: OpNode) -> bool:
    return node.attrs.get("train") is False


def _on_its_device(node: OpNode) -> bool:
    """No other device or layout is asked for; ``Device("run")`` is where everything is."""
    device = node.attrs.get("device")
    there = device is None or (isinstance(device, Device) and device.name == "run")
    plain = node.attrs.get("layout") is None or str(node.attrs["layout"]) == "torch.strided"
    return there and plain and not node.attrs.get("pin_memory")


_VIEWS: dict[str, Test] = {
    **{
        f"aten.{name}": _always
        for name in (
            "view.default",
            "reshape.default",
            "view_as.default",
            "reshape_as.default",
            "_unsafe_view.default",
            "flatten.using_ints",
            "unflatten.int",
            "squeeze.default",
            "squeeze.dim",
            "squeeze.dims",
            "expand.default",
            "expand_as.default",
            "broadcast_to.default",
            "narrow.default",
            "alias.default",
            "detach.default",
            "lift_fresh.default",
            "contiguous.default",
        )
    },
    **dict.fromkeys(RESOLVE, _always),
    "aten.permute.default": _identity_permutation,
    "aten.transpose.int": _same_dims,
    "aten.slice.Tensor": _unit_step,
    "aten.dropout.default": _inference,
    "aten.feature_dropout.default": _inference,
    "aten.alpha_dropout.default": _inference,
    "aten.to.dtype": _always,
    "aten.to.dtype_layout": _on_its_device,
    "aten.to.device": _on_its_device,
    "aten.to.other": _always,
    "aten.type_as.default": _always,
}
"""Operators that return what they are given, where type and shape are the same and this holds."""

_COPIES: dict[str, Test] = {
    **{
        f"aten.{name}": _always
        for name in (
            "clone.default",
            "lift_fresh_copy.default",
            "alias_copy.default",
            "detach_copy.default",
            "view_copy.default",
            "expand_copy.default",
            "squeeze_copy.default",
            "squeeze_copy.dim",
            "squeeze_copy.dims",
            "repeat.default",
        )
    },
    "aten.permute_copy.default": _identity_permutation,
    "aten.transpose_copy.int": _same_dims,
    "aten.slice_copy.Tensor": _unit_step,
    "aten._to_copy.default": _on_its_device,
    "dim_order_ops._to_dim_order_copy.default": _on_its_device,
    "dim_order_ops._clone_dim_order.default": _always,
    "prims.convert_element_type.default": _always,
}
"""As :data:`_VIEWS`, but the result is a copy."""

_OPERANDS = ("self", "input", "a")


def checks_recorded_type(node: OpNode) -> bool:
    """Return whether a node only checks what the recorded types say already."""
    if node.op_type not in TYPE_CHECKS:
        return False
    meta, dtype, sizes = node.inputs[0], node.attrs.get("dtype"), node.attrs.get("size")
    is_typed = dtype is None or (isinstance(dtype, DType) and dtype.name == meta.dtype)
    return is_typed and node.attrs.get("stride") is None and sizes in (None, tuple(meta.shape))


def copies(node: OpNode) -> bool:
    """Return whether an operator that returns its input's values copies them, or may."""
    asked = node.attrs.get("memory_format")
    reorders = isinstance(asked, MemoryFormat) and asked.name != "preserve_format"
    contiguous = node.op_type == "aten.contiguous.default"
    return node.op_type in _COPIES or reorders or contiguous or bool(node.attrs.get("copy"))


def _given(node: OpNode) -> TensorMeta | None:
    """Return the input that a no-op returns unchanged, or None if the node is no no-op."""
    test: Any = _VIEWS.get(node.op_type) or _COPIES.get(node.op_type)
    if test is None or len(node.outputs) != 1 or node.operands is None:
        return None
    source = next((node.tensor(name) for name in _OPERANDS if name in node.operands), None)
    if source is None:
        return None
    result = node.outputs[0]
    same = (source.shape, source.dtype) == (result.shape, result.dtype)
    return source if same and test(node) else None
