"""Layouts of the values of a graph, by torch's fake tensors."""

from __future__ import annotations

from collections.abc import Mapping

from torch_ir.infer.fake import Fakes, Layout, contiguous, external_layouts
from torch_ir.ir import IR
from torch_ir.torch_api import pytree


def layouts(ir: IR) -> Mapping[str, Layout]:
    """Return the layout of each value; unknown ones, and those that follow, are absent.

    Graph inputs and weights are taken to be contiguous; constants have their own strides.
    """
    fakes = Fakes(ir)
    found = {meta.name: contiguous(meta) for meta in ir.graph_inputs}
    found |= external_layouts(ir)
    with fakes.tracing():
        for node in ir.nodes:
            if any(meta.name not in found for meta in node.inputs):
                continue
            inputs = [fakes.tensor(found[meta.name]) for meta in node.inputs]
            try:
                results = pytree.tree_leaves(fakes.call(node, inputs), is_leaf=_is_none)
            except Exception:  # noqa: BLE001, S112  # data decides the result, or torch has no fake kernel: its layout stays unknown
                continue
            for meta in node.outputs:
                index = meta.producer_output_idx
                if index < len(results) and hasattr(results[index], "stride"):
                    found[meta.name] = fakes.layout(meta, results[index])
    return found


def _is_none(value: object) -> bool:
    return value is None
