"""Calls whose values the strides of their operands decide, which a denotation does not see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from torch_ir.infer.storage import reads_strides, stride_readers
from torch_ir.infer.types import TensorType
from torch_ir.ir import IR, OpNode
from torch_ir.ops.layouts import KEEPING_STRIDES
from torch_ir.torch_memory import is_whole

READS_MEMORY = "it reads memory by strides, not a value"


def reads_memory(node: OpNode, inputs: Sequence[torch.Tensor]) -> bool:
    """Return whether a call reads memory that is not the value of its first operand.

    The value is what the operator means, where it is all of its storage, in row-major order.
    """
    if not reads_strides(node, lambda _: TensorType.of(inputs[0])):
        return False
    return node.op_type in KEEPING_STRIDES or not is_whole(inputs[0])


def part_reads_memory(body: IR, values: Mapping[str, torch.Tensor]) -> bool:
    """Return whether a node of a program does so, on given inputs.

    Args:
        body: The program.
        values: Its inputs by name, among others.
    """
    given = {meta.name: TensorType.of(values[meta.name]) for meta in body.graph_inputs}
    for node in stride_readers(body, given):
        source = node.inputs[0].name
        if source not in given or reads_memory(node, [values[source]]):
            return True
    return False
