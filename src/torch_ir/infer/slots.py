"""The values of a graph as typed slots: what an operand refers to, checked when it is made."""

from __future__ import annotations

from typing import NamedTuple

from torch_ir.errors import did_you_mean
from torch_ir.ir import Dim, OpNode, TensorMeta
from torch_ir.ir.diagnostics import DiagnosticError
from torch_ir.ir.tensor import type_text


class Idx(NamedTuple):
    """A value that is defined before it is used, with the type that it was defined with.

    Only :meth:`Slots.define` and :meth:`Slots.operand` make one.

    Attributes:
        slot: Its place in the table of values: inputs, then weights and constants, then the
            results of the nodes, in program order.
        shape: Its shape; symbolic dimensions are expressions.
        dtype: Its element type, as torch names it.
    """

    slot: int
    shape: tuple[Dim, ...]
    dtype: str


class Slots:
    """The table of values of a graph, as far as it has been walked."""

    def __init__(self) -> None:
        self._of: dict[str, Idx] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, name: str) -> bool:
        return name in self._of

    def define(self, meta: TensorMeta) -> Idx:
        """Define a new slot for a value.

        Raises:
            DiagnosticError: ``duplicate-value``: the name is taken.
        """
        if meta.name in self._of:
            raise DiagnosticError("duplicate-value", f"%{meta.name} is defined twice")
        made = self._of[meta.name] = Idx(len(self._of), meta.shape, meta.dtype)
        return made

    def operand(self, node: OpNode, index: int) -> Idx:
        """Return the slot of an input of a node.

        Raises:
            DiagnosticError: ``bad-operand``: the node has no such input; ``undefined-value``: no
                earlier node defines it; ``wrong-metadata``: it was defined with another type.
        """
        if not 0 <= index < len(node.inputs):
            raise DiagnosticError(
                "bad-operand",
                f"an operand refers to input {index}, the node has {len(node.inputs)} inputs",
            )
        return self.use(node.inputs[index])

    def use(self, meta: TensorMeta) -> Idx:
        """Return the slot of a value, which must be defined with this type.

        Raises:
            DiagnosticError: ``undefined-value`` or ``wrong-metadata``.
        """
        found = self._of.get(meta.name)
        if found is None:
            raise DiagnosticError(
                "undefined-value",
                f"%{meta.name} is used but never defined before",
                remedy=did_you_mean(meta.name, self._of),
            )
        if found.shape != meta.shape or found.dtype != meta.dtype:
            defined = TensorMeta(meta.name, found.shape, found.dtype)
            raise DiagnosticError(
                "wrong-metadata",
                f"%{meta.name} is not used as it is defined",
                expected=type_text(defined),
                found=type_text(meta),
            )
        return found
