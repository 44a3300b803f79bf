"""Large values of a node in blocks, each of which a part of the operands makes by itself.

What a reading of a node takes for its own numbers, some twenty of its values in float64, it then
takes for one block at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import TypeAlias

import torch

from torch_ir.debug.reference.block_axes import Way, inner_size, ways_of
from torch_ir.ir import OpNode

BLOCK = 2**16
"""Elements of the largest value of a block."""
PARTS = 2**5
"""Blocks of what is larger than so many of those are larger: each has a price of its own."""

Tensors: TypeAlias = Sequence[torch.Tensor]
Block: TypeAlias = tuple[OpNode, list[torch.Tensor], list[torch.Tensor]]


def blocks(node: OpNode, inputs: Tensors, outputs: Tensors) -> Iterator[Block]:
    """Yield a node's call, inputs and outputs by blocks; nothing where it is read at once.

    Each input of the call has a name of its own: of one tensor, each argument takes another part.

    Args:
        node: The node.
        inputs: The tensors that it took.
        outputs: Those that it made.
    """
    largest = max((tensor.numel() for tensor in (*inputs, *outputs)), default=0)
    inner = inner_size(node, inputs, outputs)
    if max(largest, inner) <= 2 * BLOCK or not outputs:
        return
    if any(tensor.layout is not torch.strided for tensor in (*inputs, *outputs)):
        return
    ways = [way for way in ways_of(node, inputs, outputs) if way.size]
    lengths = _lengths(ways, inputs, outputs, inner, max(BLOCK, largest // PARTS))
    cut = [(way, length) for way, length in zip(ways, lengths, strict=True) if length < way.size]
    if not cut:
        return
    attributes = dict(node.attrs)
    for way, _ in cut:
        attributes |= way.attributes
    metas = [meta.replace(name=f"x{i}") for i, meta in enumerate(node.inputs)]
    call = node.replace(inputs=metas, attrs=attributes)
    for starts in product(*[range(0, way.size, length) for way, length in cut]):
        given, made = list(inputs), list(outputs)
        for start, (way, length) in zip(starts, cut, strict=True):
            count = min(length, way.size - start)
            for i, part in way.inputs.items():
                given[i] = part(given[i], start, count)
            for i, axis in way.outputs.items():
                made[i] = made[i].narrow(axis, start, count)
        yield call, given, made


def _lengths(
    ways: Sequence[Way], inputs: Tensors, outputs: Tensors, inner: int, limit: int
) -> list[int]:
    """How much of each axis a block has: the longest of the largest value is halved in turn."""
    lengths = [way.size for way in ways]
    taken = [
        (t.numel(), [w for w, way in enumerate(ways) if i in way.inputs])
        for i, t in enumerate(inputs)
    ]
    made = [
        (t.numel(), [w for w, way in enumerate(ways) if i in way.outputs])
        for i, t in enumerate(outputs)
    ]
    sized = [*taken, *made, (inner, [*range(len(ways))])]
    while True:
        parts = [
            (
                size * prod(lengths[w] / ways[w].size for w in cut),
                max(cut, key=lengths.__getitem__),
            )
            for size, cut in sized
            if any(lengths[w] > 1 for w in cut)
        ]
        most, way = max(parts, default=(0, 0))
        if most <= limit:
            return lengths
        lengths[way] = (lengths[way] + 1) // 2
