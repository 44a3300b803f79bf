"""Call torch's plain operator of a node before the node runs, and keep hashes of what it gives.

Its results are freed, so that they are in no memory beside those of the run. Where what the node
makes has other hashes, the operator has to be called again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import torch

from torch_ir.debug.judging.storages import Place, storage_key
from torch_ir.debug.memory import PlainCall
from torch_ir.debug.reference.eager_call import bind, call_plainly
from torch_ir.debug.tensor_comparison import digest
from torch_ir.errors import Raised, attempt
from torch_ir.infer.bindings import Symbols
from torch_ir.ir import IR, OpNode

Kind: TypeAlias = tuple[torch.layout, bytes]


class Expected(NamedTuple):
    """What a node should make.

    Attributes:
        plain: The call of torch's plain operator.
        kinds: The layout and the hash of each of the node's outputs.
        learned: The symbols that are known after it.
    """

    plain: PlainCall
    kinds: Sequence[Kind]
    learned: Symbols

    def is_made(self, outputs: Sequence[torch.Tensor]) -> bool:
        """Return whether outputs have the bits that are expected."""
        return list(self.kinds) == [_kind(tensor) for tensor in outputs]


def expected(
    ir: IR,
    node: OpNode,
    inputs: Sequence[torch.Tensor],
    symbols: Symbols,
    device: torch.device,
) -> Expected | None:
    """Call torch's plain operator of a node that writes nothing; None where that raises."""

    def called() -> Expected:
        learned = dict(symbols)
        storages = [storage_key(tensor) for tensor in inputs]
        made = call_plainly(node, inputs, symbols, ir.functions, device)
        bind(node, made, learned)
        kinds = [_kind(made[meta.producer_output_idx]) for meta in node.outputs]
        places = [Place.of(item) for item in made]
        return Expected(PlainCall(inputs, storages, places), kinds, learned)

    found = attempt(called)
    return None if isinstance(found, Raised) else found  # the run raises it too, and says more


def _kind(tensor: torch.Tensor) -> Kind:
    return tensor.layout, digest(tensor)
