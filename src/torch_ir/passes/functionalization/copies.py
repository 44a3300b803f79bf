"""Copies of graph outputs that alias other values; every result then owns its storage."""

from __future__ import annotations

from torch_ir.ir import IR, OpNode, Signature, TensorMeta
from torch_ir.ir.builder import Names, with_leaves
from torch_ir.ops.spec import spec_of
from torch_ir.ops.variants import copy_of


def with_own_results(ir: IR) -> IR:
    """Copy graph outputs that alias other values; every result then owns its storage.

    A core view that is nothing but a result becomes the operator that copies it; any other is
    copied at the end, so that its users see the strides that they see in eager.

    Args:
        ir: A functional program.

    Example:
        >>> from torch_ir import parse
        >>> print(with_own_results(parse('''
        ... ir "Turn" {
        ...   input %x: f32[2, 3]
        ...   %t: f32[3, 2] = aten.permute.default(%x, dims=[1, 0])
        ...   return %t
        ... }
        ... ''')).nodes[0])
        %t: f32[3, 2] = aten.permute_copy.default(%x, dims=[1, 0])
    """
    functions = {name: with_own_results(function) for name, function in ir.functions.items()}
    if any(function is not ir.functions[name] for name, function in functions.items()):
        ir = ir.replace(functions=functions)
    shown = ir.aliases.shared_results
    if not shown:
        return ir
    nodes = list(ir.nodes)
    places = {node.name: place for place, node in enumerate(nodes)}
    written = {mutation.value.name for mutation in ir.mutations}
    names = Names.of(ir)
    values: dict[str, TensorMeta] = {}
    for meta in {meta.name: meta for meta in ir.graph_outputs if meta.name in shown}.values():
        view = ir.producers[meta.name]
        is_result_only = meta.name not in ir.users and meta.name not in written
        copy = copy_of(view.op_type) if is_result_only and _is_plain(view) else None
        if copy is not None:
            nodes[places[view.name]] = view.replace(op_type=copy)
        else:
            name = names.fresh(f"{meta.name}_copy".replace(".", "_"))
            values[meta.name] = TensorMeta(name, meta.shape, meta.dtype, name)
            nodes.append(_cloned(meta, values[meta.name], view))
    return _giving(ir, nodes, values)


def _is_plain(view: OpNode) -> bool:
    return len(view.outputs) == 1 and spec_of(view.op_type).is_core


def _cloned(meta: TensorMeta, made: TensorMeta, view: OpNode) -> OpNode:
    return OpNode(
        made.name, "aten.clone.default", (meta,), (made,), {}, {"self": 0}, view.location
    )


def _giving(ir: IR, nodes: list[OpNode], values: dict[str, TensorMeta]) -> IR:
    signature = ir.signature
    if signature is not None:
        signature = Signature(signature.inputs, with_leaves(signature.outputs, values))
    outputs = [values.get(meta.name, meta) for meta in ir.graph_outputs]
    return ir.replace(nodes=nodes, graph_outputs=outputs, signature=signature)
