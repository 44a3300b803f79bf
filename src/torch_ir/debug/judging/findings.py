"""The findings of a comparison: every error, and those that are more than is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from torch_ir.debug.copies import copied
from torch_ir.debug.judging.delegates import Finding
from torch_ir.debug.judging.storages import MemoryFault
from torch_ir.debug.reference.tolerance_check import Error
from torch_ir.debug.validation import Divergence, NodeError, Reader
from torch_ir.infer.bindings import Symbols
from torch_ir.ir import OpNode
from torch_ir.ir.expressions import Number


class Findings:
    """What readers found, in program order.

    Attributes:
        errors: Every value that is not exactly what a reader gives.
        divergences: Those that differ by more than is allowed.
        first: The first of these that its node's inputs can show, or None.
        first_inputs: The inputs of that node.
        first_symbols: The symbols known by then.
        part: The first that a part of a delegate shows, or None.
    """

    def __init__(self) -> None:
        self.errors: list[NodeError] = []
        self.divergences: list[Divergence] = []
        self.first: Divergence | None = None
        self.first_inputs: dict[str, torch.Tensor] = {}
        self.first_symbols: Symbols = {}
        self.part: Finding | None = None

    def note(
        self,
        node: OpNode,
        value: str,
        reader: Reader,
        error: Error,
        inputs: Sequence[torch.Tensor],
        symbols: Mapping[str, Number],
    ) -> None:
        """Note how far a value of a node is from what a reader gives.

        Args:
            node: The node.
            value: Name of the value.
            reader: The reader.
            error: How far it is off.
            inputs: The node's inputs, as they were before it ran.
            symbols: The symbols known by then.
        """
        if error.is_none:
            return
        self._count(node, value, reader, error)
        if not error.reason:
            return
        text, place = str(node), str(node.location or "")
        found = Divergence(node.name, text, place, value, reader, error.reason)
        self.divergences.append(found)
        if self.first is None:
            names = [meta.name for meta in node.inputs]
            self.first = found
            self.first_inputs = dict(zip(names, copied(inputs), strict=True))
            self.first_symbols = dict(symbols)

    def note_part(self, found: Finding) -> None:
        """Note how far a value of a delegate is from what a reader gives."""
        node, error = found.node, found.error
        if error.is_none:
            return
        self._count(node, found.value, found.reader, error)
        if not error.reason:
            return
        told = (node.name, str(node), str(node.location or ""), found.value, found.reader)
        self.divergences.append(Divergence(*told, error.reason, delegate=found.delegate))
        self.part = self.part or found

    def note_fault(self, node: OpNode | None, fault: MemoryFault) -> None:
        """Note what is wrong with the memory of a value.

        Args:
            node: The node that is blamed; None for an input or a weight.
            fault: What is wrong.
        """
        self._count(node, fault.value, "memory", Error(part=float("inf")))
        name, text, place = "", "", ""
        if node is not None:
            name, text, place = node.name, str(node), str(node.location or "")
        told = (name, text, place, fault.value)
        self.divergences.append(Divergence(*told, "memory", fault.reason, fault.kind))

    def _count(self, node: OpNode | None, value: str, reader: Reader, error: Error) -> None:
        name, operator = ("", "") if node is None else (node.name, node.op_type)
        numbers = (error.ulp, error.absolute, error.relative, error.part)
        self.errors.append(NodeError(name, operator, value, reader, *numbers))
