"""Nodes that return memory of their inputs: by their schemas, and by tables beyond these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.effects import written_arguments
from torch_ir.ops.schema import Schema

if TYPE_CHECKING:
    from torch_ir.infer.fake import Fakes

SOMETIMES = frozenset(
    {
        "aten.reshape.default",
        "aten.reshape_as.default",
        "aten.flatten.using_ints",
        "aten.ravel.default",
        "aten.contiguous.default",
        "aten.resolve_conj.default",
        "aten.resolve_neg.default",
        "aten.to.dtype",
        "aten.to.device",
        "aten.to.dtype_layout",
        "aten.to.other",
        "aten.to.prim_dtype",
        "aten.to.prim_device",
        "aten.to.prim_other",
        "aten._autocast_to_full_precision.default",
        "aten._autocast_to_reduced_precision.default",
        "aten.conj.default",
        "aten.real.default",
        "aten.pin_memory.default",
    }
)
"""Operators that return their input's memory or a copy, as strides, dtypes and devices ask."""

UNMARKED = frozenset(
    {
        "aten.alpha_dropout.default",
        "aten.atleast_1d.default",
        "aten.atleast_1d.Sequence",
        "aten.atleast_2d.default",
        "aten.atleast_2d.Sequence",
        "aten.atleast_3d.default",
        "aten.atleast_3d.Sequence",
        "aten.broadcast_tensors.default",
        "aten.cartesian_prod.default",
        "aten.dropout.default",
        "aten.einsum.default",
        "aten.feature_alpha_dropout.default",
        "aten.feature_dropout.default",
        "aten.meshgrid.default",
        "aten.meshgrid.indexing",
        "aten.sum_to_size.default",
        "aten.type_as.default",
    }
)
"""Operators that may return their input's memory although their schema does not say so."""


def marked_inputs(schema: Schema | None, node: OpNode) -> tuple[TensorMeta, ...]:
    """Return the inputs that results alias by the marks of the schema."""
    if schema is None:
        return ()
    returned = {result.alias for result in schema.returns} - {""}
    names = [a.name for a in schema.arguments if a.alias in returned]
    return tuple([meta for name in names for meta in node.tensors(name)])


def possible_inputs(schema: Schema | None, node: OpNode) -> tuple[TensorMeta, ...]:
    """Return the inputs that a node's results may alias."""
    if node.op_type in UNMARKED or node.op_type.startswith("higher_order."):
        return tuple(node.inputs)
    return marked_inputs(schema, node)


def undecided(ir: IR) -> frozenset[str]:
    """Return the nodes that may return an alias of inputs that are written afterwards.

    It matters if something writes to that memory after them.
    """
    groups: dict[str, str] = {}

    def find(name: str) -> str:
        while groups.get(name, name) != name:
            groups[name] = groups.get(groups[name], groups[name])
            name = groups[name]
        return name

    open_nodes: dict[str, tuple[int, str]] = {}
    writes: list[tuple[int, str]] = []
    for position, node in enumerate(ir.nodes):
        schema = ir.schema_of(node.op_type)
        written = written_arguments(ir, node)
        writes += [(position, meta.name) for name in written for meta in node.tensors(name)]
        shared = possible_inputs(schema, node)
        if shared and node.op_type in SOMETIMES | UNMARKED:
            open_nodes[node.name] = (position, shared[0].name)
        for meta in (*shared[1:], *node.outputs) if shared else ():
            groups[find(meta.name)] = find(shared[0].name)
    last = {find(name): position for position, name in writes}
    return frozenset(
        name
        for name, (position, value) in open_nodes.items()
        if last.get(find(value), -1) > position
    )


def shared_inputs(ir: IR, names: frozenset[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the inputs that results of the given nodes alias, by torch's fake tensors.

    Graph inputs and weights are taken to be contiguous; constants have their own strides.
    """
    import torch

    from torch_ir.infer.fake import Fakes, contiguous, external_layouts

    fakes, found = Fakes(ir), dict[str, tuple[str, ...]]()
    layouts = external_layouts(ir)
    values: dict[str, torch.Tensor] = {}
    pending = set(names)

    def value(meta: TensorMeta) -> torch.Tensor:
        if meta.name not in values:
            values[meta.name] = fakes.tensor(layouts.get(meta.name) or contiguous(meta))
        return values[meta.name]

    with fakes.mode, torch.no_grad():
        for node in ir.nodes:
            if not pending:
                break
            inputs = [value(meta) for meta in node.inputs]
            flat = _results(fakes, node, inputs)
            for meta in node.outputs:
                if meta.producer_output_idx < len(flat):
                    values[meta.name] = flat[meta.producer_output_idx]
            if node.name in pending:
                pending.remove(node.name)
                found[node.name] = tuple(_sharing(node, inputs, flat))
    return found


def _results(fakes: Fakes, node: OpNode, inputs: Sequence[object]) -> Sequence[Any]:
    """The results of a node; none where data decides them.

    torch's Python implementations, which trace more, copy where its kernels do not: they come
    second.
    """
    from torch_ir.torch_api import enable_python_dispatcher, pytree

    for context in (nullcontext, enable_python_dispatcher):
        try:
            with context():
                return pytree.tree_leaves(fakes.call(node, inputs), is_leaf=_is_none)
        except Exception:  # noqa: BLE001, S112  # data decides the result, or torch has no fake kernel: its memory is taken to be its own
            continue
    return ()


def _is_none(value: object) -> bool:
    return value is None


def _sharing(node: OpNode, inputs: Sequence[object], results: Sequence[object]) -> Iterator[str]:
    memories = {_memory(result) for result in results}
    for meta, tensor in zip(node.inputs, inputs, strict=True):
        if _memory(tensor) in memories:
            yield meta.name


def _memory(tensor: object) -> object:
    storage = getattr(tensor, "untyped_storage", None)
    return object() if storage is None else storage()._cdata


def may_share(ir: IR) -> bool:
    """Return whether results of a function may alias its inputs or each other."""
    groups: dict[str, str] = {}

    def find(name: str) -> str:
        while groups.get(name, name) != name:
            name = groups[name]
        return name

    for node in ir.nodes:
        shared = possible_inputs(ir.schema_of(node.op_type), node)
        for meta in (*shared[1:], *node.outputs) if shared else ():
            groups[find(meta.name)] = find(shared[0].name)
    ends = [find(meta.name) for meta in (*ir.graph_inputs, *ir.graph_outputs)]
    return len(set(ends)) < len(ends)
