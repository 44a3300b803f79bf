"""Constant folding: values that depend on no argument and no weight, computed ahead."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from torch_ir.arguments import public
from torch_ir.errors import PassError, Raised, attempt, first_line, raised_as
from torch_ir.infer.binder import RUN_DEVICE, bind
from torch_ir.infer.engine import call_at, flatten
from torch_ir.infer.preconditions.table import require_arguments
from torch_ir.infer.resolve import resolve_operator
from torch_ir.infer.types import TensorType
from torch_ir.ir import (
    IR,
    Attribute,
    Constant,
    Device,
    FunctionRef,
    OpNode,
    SymExpr,
    TensorMeta,
)
from torch_ir.ir.aliases import StorageGroups
from torch_ir.ir.builder import Builder
from torch_ir.ir.queries import kept_values
from torch_ir.ir.values import OperatorRef, attribute_leaves, dtype_name
from torch_ir.ops.effects import TYPE_CHECKS, is_foldable
from torch_ir.passes.base import Pass, PassResult
from torch_ir.passes.common_subexpressions import is_repeatable
from torch_ir.torch_api import constant_tensors
from torch_ir.weights.tensor_registry import registered_kernel

MAX_BYTES = 1 << 20
"""How large a computed constant may be if not said otherwise, in bytes."""


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Computes ahead what depends on constants alone; see :func:`fold_constants`."""

    name: ClassVar[str] = "fold-constants"
    max_bytes: int = MAX_BYTES
    device: str = "cpu"

    def call(self, ir: IR) -> PassResult:
        """Compute the values that are known."""
        return PassResult.of(ir, fold_constants(ir, max_bytes=self.max_bytes, device=self.device))


@public
def fold_constants(
    ir: IR, *, max_bytes: int = MAX_BYTES, device: torch.device | str = RUN_DEVICE
) -> IR:
    """Replace every value that depends on constants alone by a constant of its own.

    torch computes them on one device, bit for bit as the program does there. A node stays if its
    result is larger than ``max_bytes``, does not lie in memory in row-major order, or is written
    or returned; if its operator is not one that is known to give the same bits again and to do
    nothing else; if it asks for a device, or a user's kernel runs it; and if torch refuses it.
    Constants that nothing uses any more go. Functions have no constants and stay as they are. The
    same object if there is nothing to do.

    Args:
        ir: The program.
        max_bytes: How large a computed constant may be.
        device: Where they are computed: that of the runs whose bits are wanted.

    Example:
        >>> from torch_ir import parse
        >>> print(fold_constants(parse('''
        ... ir "Known" {
        ...   input %x: f32[2]
        ...   %a: f32[2] = aten.full.default([2], 2.0)
        ...   %b: f32[2] = aten.neg.default(%a)
        ...   %y: f32[2] = aten.add.Tensor(%x, %b)
        ...   return %y
        ... }
        ... ''')))
        ir "Known" {
          constant @b: f32[2] = [-2.0, -2.0]
          input %x: f32[2]
          %y: f32[2] = aten.add.Tensor(%x, @b)
          return %y
        }
    """
    with raised_as(lambda error: PassError(f"{device!r:.80} is no device: {first_line(error)}")):
        where = torch.device(device)
    known = computed_ahead(ir, {}, max_bytes, where)
    kept: list[OpNode] = []
    wanted: dict[str, torch.Tensor] = {}
    needed: set[str] = set()
    for node in reversed(ir.nodes):
        made = [meta.name for meta in node.outputs]
        if made[:1] and made[0] in known:
            used = [name for name in made if name in needed]
            if all(known[name].is_contiguous() for name in used):
                wanted.update({name: known[name] for name in used})
                continue
        if _is_checked(node, known, where):
            continue
        kept.append(node)
        needed.update(meta.name for meta in node.inputs)
    if len(kept) == len(ir.nodes):
        return ir
    return _with_constants(ir, kept[::-1], wanted)


def computed_ahead(
    ir: IR,
    given: Mapping[str, torch.Tensor],
    max_bytes: int | None = None,
    device: torch.device = RUN_DEVICE,
) -> dict[str, torch.Tensor]:
    """Compute the results that depend on constants and given values alone, by name.

    Args:
        ir: The program.
        given: Values of weights, by the names that nodes use.
        max_bytes: How large a result may be; any size if not given.
        device: Where they are computed, and given values are.
    """
    memory = StorageGroups(ir)
    keys = {
        name: key
        for name, (key, value) in ir.external_values().items()
        if isinstance(value, Constant) and value.data is not None and not memory.is_written(name)
    }
    tensors = constant_tensors(ir.constants, keys.values(), device=device)
    known = {name: tensors[key] for name, key in keys.items()}
    known |= {name: value for name, value in given.items() if not memory.is_written(name)}
    constants, returned = frozenset(known), kept_values(ir)
    for node in ir.nodes:
        ready = all(meta.name in known for meta in node.inputs)
        if ready and _is_known(ir, node, memory, returned):
            results = _run(node, [known[meta.name] for meta in node.inputs], max_bytes, device)
            known.update(results)
    return {name: tensor for name, tensor in known.items() if name not in constants}


def _is_known(ir: IR, node: OpNode, memory: StorageGroups, results: Container[str]) -> bool:
    """Whether a node may be computed ahead, once its inputs are known."""
    kept = ir.constants, ir.weight_name_mapping
    shows = any(meta.name in names for meta in node.inputs for names in kept)
    return (
        is_repeatable(ir, node)
        and is_foldable(node.op_type, node.attrs)
        and registered_kernel(node.op_type) is None
        and not any(memory.is_written(m.name) for m in (*node.inputs, *node.outputs))
        and not any(m.name in results for m in node.outputs)
        and (shows or not any(memory.is_seen(m.name) for m in node.outputs))
        and all(meta.is_static for meta in node.outputs)
        and all(_is_fixed(leaf) for v in node.attrs.values() for leaf in attribute_leaves(v))
    )


def _is_fixed(value: Attribute) -> bool:
    """Whether what an attribute holds is the same at every call, on every device."""
    if isinstance(value, Device):
        return value.name in ("run", "cpu", "meta")
    return not isinstance(value, SymExpr | FunctionRef | OperatorRef)


def _run(
    node: OpNode, inputs: Sequence[torch.Tensor], max_bytes: int | None, device: torch.device
) -> Mapping[str, torch.Tensor]:
    """The results of a node; none if they are too large or not what is recorded."""
    if max_bytes is not None and any((m.nbytes or 0) > max_bytes for m in node.outputs):
        return {}
    types = [TensorType.of(tensor) for tensor in inputs]
    outcome = call_at(node, types, {})  # a program may say that a large result is small
    if not all(_is_as_recorded(outcome.result(meta), meta) for meta in node.outputs):
        return {}

    results = _called(node, inputs, device)
    if isinstance(results, Raised):  # the node stays, and raises when the program runs
        return {}
    found: dict[str, torch.Tensor] = {}
    for meta in node.outputs:
        value = results[meta.producer_output_idx]
        if not isinstance(value, torch.Tensor) or not _fits(value, meta):
            return {}
        found[meta.name] = value
    return found


def _called(
    node: OpNode, inputs: Sequence[torch.Tensor], device: torch.device
) -> list[object] | Raised:
    """What torch gives for a node."""

    def call() -> list[object]:
        args, kwargs = bind(node, inputs, device=device)
        operator: Any = resolve_operator(node.op_type)
        require_arguments(node.op_type, args, kwargs)
        with torch.no_grad(), device:
            return list(flatten(operator(*args, **kwargs)))

    return attempt(call)


def _is_checked(node: OpNode, known: Mapping[str, torch.Tensor], device: torch.device) -> bool:
    """Whether a node only checks types of values that are computed ahead, and they pass."""
    return (
        node.op_type in TYPE_CHECKS
        and all(meta.name in known for meta in node.inputs)
        and all(_is_fixed(leaf) for v in node.attrs.values() for leaf in attribute_leaves(v))
        and not isinstance(_called(node, [known[m.name] for m in node.inputs], device), Raised)
    )


def _is_as_recorded(made: TensorType | None, meta: TensorMeta) -> bool:
    return made is not None and (made.shape, made.dtype) == (meta.shape, meta.dtype)


def _fits(value: torch.Tensor, meta: TensorMeta) -> bool:
    kind = dtype_name(value.dtype, strict=False)
    return (tuple(value.shape), kind) == (meta.shape, meta.dtype)


def _with_constants(ir: IR, nodes: Sequence[OpNode], values: Mapping[str, torch.Tensor]) -> IR:
    builder = Builder(ir)
    metas = {meta.name: meta for node in ir.nodes for meta in node.outputs}
    for name, tensor in sorted(values.items()):
        constant = Constant.from_torch(tensor.cpu())
        builder.names.release(name)
        builder.replace(
            metas[name], builder.constant(constant, name.replace(".", "_"), shared=False)
        )
    for node in nodes:
        builder.keep(node)
    return builder.finish()
