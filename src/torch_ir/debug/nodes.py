"""Every node of an IR against everything that eager PyTorch computes.

Eager has no nodes, but it does run operators: all tensors that it makes are recorded by their hash. A node agrees with
eager if the bits of its outputs are among them. Only hashes are held, so memory stays that of the two runs; the
first value that eager never made is the first difference, and the run is repeated to say how large it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from torch_ir.debug.compare import compare_tensors, digest
from torch_ir.debug.eager import Made, Recorder, fresh, run_eager, same_random_numbers
from torch_ir.executor import IRExecutor
from torch_ir.ir import OpNode
from torch_ir.torch_api import pytree


@dataclass(frozen=True, slots=True)
class NodeDifference:
    """A node whose value eager never made.

    Attributes:
        node: Name of the node.
        text: Its IR text.
        location: The user's source line and module.
        reason: How it differs from the value that eager made in its place, where that can be told.
    """

    node: str
    text: str
    location: str
    reason: str

    def __str__(self) -> str:
        place = f"\n    at {self.location}" if self.location else ""
        return f"{self.node!r}: {self.reason}\n    {self.text}{place}"


class _FirstUnknown:
    """Observer that keeps the first node with an output that is not among the known values."""

    def __init__(self, known: set[bytes]):
        self.known = known
        self.found: tuple[OpNode, torch.Tensor] | None = None
        self.confirmed: set[bytes] = set()

    def will_run(self, node: OpNode) -> None:
        """Nothing to see before a node runs."""

    def did_run(self, node: OpNode, outputs: Sequence[torch.Tensor]) -> None:
        """Look for each output among what eager made."""
        if self.found is not None:
            return
        for output in outputs:
            value = digest(output)
            if value not in self.known:
                self.found = (node, output.detach().clone())
                return
            self.confirmed.add(value)


def compare_nodes(
    executor: IRExecutor, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> NodeDifference | None:
    """The first node whose value eager never makes, or None."""
    with Recorder() as recorder:
        run_eager(model, executor.ir, args, kwargs)
    given = [*pytree.tree_leaves((args, dict(kwargs))), *executor.external_tensors()]
    known = {made.digest for made in recorder.made}
    known.update(digest(value) for value in given if isinstance(value, torch.Tensor))
    observer = _FirstUnknown(known)
    run_args, run_kwargs = fresh((args, dict(kwargs)))
    with same_random_numbers():
        executor.call_observed(run_args, run_kwargs, observer)
    if observer.found is None:
        return None
    node, value = observer.found
    place = _counterpart(recorder.made, observer.confirmed, value)
    reason = "eager makes no such value"
    if place is not None:
        with Recorder(keep=place) as again:
            run_eager(model, executor.ir, args, kwargs)
        if again.kept is not None:
            operator = recorder.made[place].operator
            reason = f"{compare_tensors(again.kept, value).reason} from what eager makes with {operator}"
    return NodeDifference(node.name, str(node), str(node.location or ""), reason)


def _counterpart(made: Sequence[Made], confirmed: set[bytes], value: torch.Tensor) -> int | None:
    """The first tensor of that shape that eager makes after the last one that the IR made too."""
    last = max((i for i, item in enumerate(made) if item.digest in confirmed), default=-1)
    shape = tuple(value.shape)
    candidates = [
        i for i, item in enumerate(made) if item.shape == shape and item.digest not in confirmed
    ]
    return next((i for i in candidates if i > last), candidates[-1] if candidates else None)
