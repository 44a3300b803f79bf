"""Every node of an IR against everything that eager PyTorch computes.

Eager has no nodes, but it does run operators: all tensors that it makes are recorded by their
hash. A node agrees with eager if the bits of its outputs are among them. Only hashes are held, so
memory stays that of the two runs. Where the outputs of the program differ, the first node is named
whose value eager made otherwise: a tensor of the same shape and dtype that no node makes. (Tracing
may also write down values that eager never needs, a mask that a fused kernel does without; these
have no counterpart and are counted, not blamed.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from torch_ir.debug.eager import Made, Recorder, run_eager, same_random_numbers
from torch_ir.debug.tensor_comparison import compare_tensors, digest
from torch_ir.errors import printable
from torch_ir.executor import IRExecutor
from torch_ir.executor.listeners import Listener, Table
from torch_ir.ir import IR, OpNode
from torch_ir.ir.diagnostics import at
from torch_ir.tables import Shown
from torch_ir.torch_api import pytree
from torch_ir.torch_memory import fresh


@dataclass(frozen=True, slots=True)
class NodeDifference(Shown):
    """A node whose value eager makes otherwise, or never.

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
        place = (at(self.location),) if self.location else ()
        lines = (f"{self.node!r}: {self.reason}", self.text, *place)
        return "\n    ".join(map(printable, lines))


@dataclass(frozen=True, slots=True)
class NodeComparison:
    """The nodes of a program against eager.

    Attributes:
        compared: Number of nodes.
        unknown: Names of the nodes that make a value which eager never makes, in program order.
        first_difference: The first of them for which eager makes another value in its place.
    """

    compared: int
    unknown: tuple[str, ...]
    first_difference: NodeDifference | None


@dataclass(frozen=True, slots=True)
class _Unknown:
    """An output of a node that is not among what eager made."""

    node: OpNode
    position: int
    kind: tuple[torch.dtype, tuple[int, ...]]


class _Finder:
    """Listener that finds the outputs that are not among the known values."""

    def __init__(self, known: set[bytes]):
        self.known = known
        self.unknown: list[_Unknown] = []
        self.confirmed: set[bytes] = set()

    def will_run(self, node: OpNode, inputs: Sequence[torch.Tensor]) -> None:
        """Nothing to see before a node runs."""

    def did_run(self, node: OpNode, outputs: Sequence[torch.Tensor]) -> None:
        """Look for each output among what eager made."""
        for position, output in enumerate(outputs):
            value = digest(output)
            if value in self.known:
                self.confirmed.add(value)
            else:
                kind = (output.dtype, tuple(output.shape))
                self.unknown.append(_Unknown(node, position, kind))


@dataclass(frozen=True, slots=True)
class EagerComparison:
    """One model and the executor of its IR, run again and again on the same arguments."""

    executor: IRExecutor
    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def report(self, *, outputs_differ: bool) -> NodeComparison:
        """Look for every node's value in eager; if the outputs differ, find where that starts."""
        recorder = self._eager(None)
        finder = _Finder(self._known(recorder.made))
        self._run(finder)
        ir: IR = self.executor.ir
        names = tuple(dict.fromkeys(item.node.name for item in finder.unknown))
        first = self._first(recorder.made, finder) if outputs_differ and finder.unknown else None
        return NodeComparison(len(ir.nodes), names, first)

    def _eager(self, keep: int | None) -> Recorder:
        # under a mode torch skips frames of control flow that it compiles, and goes on doing so
        with torch.compiler.set_stance("force_eager"), Recorder(keep=keep) as recorder:
            run_eager(self.model, self.executor.ir, self.args, self.kwargs, recorded=True)
        return recorder

    def _run(self, observer: Listener) -> None:
        self.executor.reset()
        args, kwargs = fresh((self.args, dict(self.kwargs)))
        with same_random_numbers():
            self.executor.call_observed(args, kwargs, observer)

    def _known(self, made: Sequence[Made]) -> set[bytes]:
        given = [
            *pytree.tree_leaves((self.args, dict(self.kwargs))),
            *self.executor.external_tensors(),
        ]
        known = {item.digest for item in made}
        known.update(digest(value) for value in given if isinstance(value, torch.Tensor))
        return known

    def _first(self, made: Sequence[Made], finder: _Finder) -> NodeDifference:
        """The first unknown value with a counterpart, or the first unknown one if none has any."""
        for item in finder.unknown:
            place = _counterpart(made, finder.confirmed, item.kind)
            if place is not None:
                return self._described(item, place, made[place].operator)
        return _difference(finder.unknown[0].node, "eager makes no such value")

    def _described(self, item: _Unknown, place: int, operator: str) -> NodeDifference:
        name = item.node.outputs[item.position].name
        table = Table(frozenset({name}), None, torch.clone)
        self._run(table)
        expected, got = self._eager(place).kept, table.values.get(name)
        reason = "eager makes another value in its place"
        if expected is not None and got is not None:
            difference = compare_tensors(expected, got).reason
            reason = f"{difference} from what eager makes with {operator}"
        return _difference(item.node, reason)


def _difference(node: OpNode, reason: str) -> NodeDifference:
    return NodeDifference(node.name, str(node), str(node.location or ""), reason)


def _counterpart(
    made: Sequence[Made], confirmed: set[bytes], kind: tuple[torch.dtype, tuple[int, ...]]
) -> int | None:
    """The first tensor of that dtype and shape that eager makes and no node does."""
    for position, item in enumerate(made):
        if item.kind == kind and item.digest not in confirmed:
            return position
    return None
