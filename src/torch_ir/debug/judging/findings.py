"""The findings of a comparison: every error, and those that are more than is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torch_ir.debug.judging.delegates import Finding
from torch_ir.debug.judging.storages import MemoryFault
from torch_ir.debug.reference.tolerance_check import Error
from torch_ir.debug.validation import Divergence, NodeError, Reader
from torch_ir.infer.bindings import Symbols
from torch_ir.ir import OpNode
from torch_ir.ir.expressions import Number
from torch_ir.torch_memory import copied


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
        found = self._told(node, value, reader, error)
        if found is not None and self.first is None:
            names = [meta.name for meta in node.inputs]
            self.first = found
            self.first_inputs = dict(zip(names, copied(inputs), strict=True))
            self.first_symbols = dict(symbols)

    def note_part(self, found: Finding) -> None:
        """Note how far a value of a delegate is from what a reader gives."""
        told = found.node, found.value, found.reader, found.error
        if self._told(*told, delegate=found.delegate) is not None:
            self.part = self.part or found

    def note_fault(self, node: OpNode | None, fault: MemoryFault) -> None:
        """Note what is wrong with the memory of a value.

        Args:
            node: The node that is blamed; None for an input or a weight.
            fault: What is wrong.
        """
        error = Error(part=float("inf"), reason=fault.reason)
        self._told(node, fault.value, "memory", error, memory=fault.kind)

    def _told(
        self, node: OpNode | None, value: str, reader: Reader, error: Error, **more: Any
    ) -> Divergence | None:
        """Note an error, and the divergence that it is if it has a reason."""
        if error.is_none:
            return None
        name, operator = ("", "") if node is None else (node.name, node.op_type)
        numbers = (error.ulp, error.absolute, error.relative, error.part)
        self.errors.append(NodeError(name, operator, value, reader, *numbers))
        if not error.reason:
            return None
        where = ("", "") if node is None else (str(node), str(node.location or ""))
        found = Divergence(name, *where, value, reader, error.reason, **more)
        self.divergences.append(found)
        return found
