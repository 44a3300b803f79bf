"""Nodes that choose among equal elements, and in samples choose others on torch than the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torch_ir.backends.native.samples import Sample, Samples
from torch_ir.errors import Raised, attempt
from torch_ir.ir import IR, OpNode
from torch_ir.ir.builder import subgraph
from torch_ir.ops.choices import leaves_ties_open
from torch_ir.semantics.arguments import as_array
from torch_ir.semantics.denote import Evaluation

OTHERWISE = "of equal elements torch chooses others than the first"


def chosen_otherwise(ir: IR, nodes: Sequence[OpNode], samples: Samples) -> list[OpNode]:
    """Return the nodes of which some sample has another choice than the meaning.

    Any choice is right, but what follows from one is not what follows from another: a user
    compares with torch.

    Args:
        ir: The program.
        nodes: Those of its nodes that are asked about.
        samples: Values of the program on torch.
    """
    choosing = [node for node in nodes if leaves_ties_open(node.op_type, node.attrs)]
    if not choosing:
        return []
    names = {meta.name for node in choosing for meta in (*node.inputs, *node.outputs)}
    seen = [sample for sample in samples.of(names) if not sample.is_wide]
    return [node for node in choosing if any(_is_otherwise(ir, node, s) for s in seen)]


def _is_otherwise(ir: IR, node: OpNode, sample: Sample) -> bool:
    metas = (*node.inputs, *node.outputs)
    if any(meta.name not in sample.values for meta in metas):
        return False
    given: dict[str, Any] = {meta.name: as_array(sample.values[meta.name]) for meta in node.inputs}
    alone = subgraph(ir, [node], node.outputs)
    evaluation = Evaluation(alone, {}, given, symbols=dict(sample.symbols))
    made = attempt(evaluation.evaluate, node, given)
    if isinstance(made, Raised):  # the denotation refuses it, and the judge will say so
        return False
    return any(
        not np.array_equal(made[meta.producer_output_idx], as_array(sample.values[meta.name]))
        for meta in node.outputs
        if meta.dtype == "int64"
    )
