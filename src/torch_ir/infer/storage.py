"""The exact storage that results share, where the tables leave it open."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

from torch_ir.errors import Raised, attempt
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.aliases import Aliases

if TYPE_CHECKING:
    from torch_ir.infer.fake import Fakes


def decided_aliases(ir: IR) -> Aliases:
    """Return the aliases of a graph in which no copy is open that a write could tell from a view.

    Torch's fake tensors decide. Graph inputs and weights are taken to be contiguous; constants
    have their own strides.
    """
    names = ir.aliases.undecided
    return ir.aliases.decided(_shares(ir, names)) if names else ir.aliases


def _shares(ir: IR, names: frozenset[str]) -> dict[str, frozenset[str]]:
    """Return, for each result of the named nodes, the inputs whose storage it has."""
    import torch

    from torch_ir.infer.fake import Fakes
    from torch_ir.infer.types import contiguous, external_types

    fakes, found = Fakes(ir), dict[str, frozenset[str]]()
    types = external_types(ir)
    values: dict[str, torch.Tensor] = {}
    pending = set(names)

    def value(meta: TensorMeta) -> torch.Tensor:
        if meta.name not in values:
            values[meta.name] = fakes.tensor(types.get(meta.name) or contiguous(meta))
        return values[meta.name]

    with fakes.mode, torch.no_grad():
        for node in ir.nodes:
            if not pending:
                break
            inputs = [value(meta) for meta in node.inputs]
            results = _results(fakes, node, inputs)
            for meta in node.outputs:
                if meta.producer_output_idx < len(results):
                    values[meta.name] = results[meta.producer_output_idx]
            if node.name in pending:
                pending.remove(node.name)
                made = {
                    meta.name: results[meta.producer_output_idx : meta.producer_output_idx + 1]
                    for meta in node.outputs
                }
                found |= {name: _sharing(node, inputs, given) for name, given in made.items()}
    return found


def _results(fakes: Fakes, node: OpNode, inputs: Sequence[object]) -> Sequence[Any]:
    """Return the results of a node; none where data decides them.

    Torch's Python implementations, which trace more, copy where its kernels do not: they come
    second.
    """
    from torch_ir.infer.engine import flatten
    from torch_ir.torch_api import enable_python_dispatcher

    for context in (nullcontext, enable_python_dispatcher):
        with context():
            made = attempt(lambda: list(flatten(fakes.call(node, inputs))))
        if not isinstance(made, Raised):
            return made
    return ()  # its memory is taken to be its own


def _sharing(node: OpNode, inputs: Sequence[Any], made: Sequence[Any]) -> frozenset[str]:
    own = [_storage(result) for result in made]
    pairs = zip(node.inputs, inputs, strict=True)
    return frozenset([meta.name for meta, given in pairs if _storage(given) in own])


def _storage(value: Any) -> object:
    import torch

    from torch_ir.torch_api import storage_of

    is_dense = getattr(value, "layout", None) is torch.strided
    return storage_of(cast(torch.Tensor, value)) if is_dense else object()
