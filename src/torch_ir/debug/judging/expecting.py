"""Call torch's plain operator of a node before the node runs, and keep hashes of what it gives.

Its results are freed, so that they are in no memory beside those of the run. Where what the node
makes has other hashes, the operator has to be called again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch

from torch_ir.debug.judging.storages import Place
from torch_ir.debug.memory import PlainCall
from torch_ir.debug.reference.denotation import Meaning
from torch_ir.debug.reference.eager_call import bind, call_plainly
from torch_ir.debug.reference.tolerance_check import Error, same_bits, with_open_places
from torch_ir.debug.reference.write_order import order_of_writes
from torch_ir.debug.tensor_comparison import digest
from torch_ir.errors import Raised, attempt
from torch_ir.infer.bindings import Symbols
from torch_ir.ir import IR, OpNode
from torch_ir.ops.choices import VALUES_OPEN
from torch_ir.torch_memory import storage_key

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


def unlike_eager(
    node: OpNode,
    meaning: Meaning | str,
    symbols: Symbols,
    made: Sequence[Any],
    given: Sequence[torch.Tensor],
    before: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    after: Mapping[str, torch.Tensor],
) -> dict[str, Error]:
    """Measure how far what a node made and wrote is from what torch's plain operator did.

    Where the two differ in nothing but which of several values stays at one place, nothing can be
    said.

    Args:
        node: The node.
        meaning: What it means.
        symbols: The symbols that are known.
        made: The results of the plain operator.
        given: What it was called with, and may have written.
        before: The inputs of the node before it ran.
        outputs: What the node made.
        after: The inputs that it wrote, as they were after it ran, by name.
    """
    if node.op_type in VALUES_OPEN:
        return {}
    values = dict(zip([meta.name for meta in node.outputs], outputs, strict=True))
    expected: dict[str, torch.Tensor] = {}
    for meta in node.outputs:
        index, got = meta.producer_output_idx, values[meta.name]
        expected[meta.name] = with_open_places(node, before, index, made[index], got)
    left = dict(zip([meta.name for meta in node.inputs], given, strict=True))
    values |= {f"written {name}": tensor for name, tensor in after.items()}
    expected |= {f"written {name}": left[name] for name in after}
    errors = {name: same_bits(expected[name], got) for name, got in values.items()}
    if any(error.reason for error in errors.values()):
        results = outputs, after
        loose = order_of_writes(meaning, node, before, symbols, results, expected)
        if loose:
            return {name: Error(loose=loose) for name in errors}
    return errors


def _kind(tensor: torch.Tensor) -> Kind:
    return tensor.layout, digest(tensor)
