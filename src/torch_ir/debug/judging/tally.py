"""The tally of a comparison: which nodes were read by whom, and why the others were not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from torch_ir.backends.delegate import BACKEND, body_of, delegates
from torch_ir.ir import IR, OpNode


class Tally:
    """Which nodes each reader has compared by their values.

    Args:
        ir: The program.
        readers: The readers that were asked for.
    """

    def __init__(self, ir: IR, readers: Iterable[str]):
        self._ir = ir
        self._read: dict[str, set[str]] = {reader: set() for reader in readers}
        self._reasons: dict[str, str] = {}
        self._by_torch = {n.name: str(body_of(ir, n).metadata[BACKEND]) for n in delegates(ir)}

    def read(self, node: OpNode, reader: str) -> None:
        """Count a node as compared with a reader."""
        if node.name not in self._by_torch:
            self._read[reader].add(node.name)

    def run_by_backend(self, node: OpNode) -> None:
        """Note that the backend of a delegate ran it."""
        self._by_torch.pop(node.name, None)

    def left(self, node: OpNode, reason: str) -> None:
        """Note why a reader could not compare a node; the first reason is told."""
        self._reasons.setdefault(node.name, reason)

    @property
    def compared(self) -> Mapping[str, int]:
        """How many nodes each reader has compared."""
        return {reader: len(names) for reader, names in self._read.items()}

    @property
    def not_compared(self) -> Mapping[str, str]:
        """Why no reader compared a node, by its name, in program order."""
        known = set[str]().union(*self._read.values())
        reasons = {**self._reasons, **dict.fromkeys(self._by_torch, "delegate not run")}
        return {
            node.name: reasons.get(node.name, "no reader was asked for")
            for node in self._ir.nodes
            if node.name not in known
        }

    @property
    def run_by_torch(self) -> Mapping[str, int]:
        """How many delegates torch ran in place of each backend."""
        return dict(Counter(self._by_torch.values()))
