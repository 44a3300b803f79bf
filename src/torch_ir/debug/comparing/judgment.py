"""The judgment of one part of a program: its results against what they may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from torch_ir.backends.delegate import CALL
from torch_ir.debug.comparing.comparison import Kind
from torch_ir.debug.reference.allowance import Allowance
from torch_ir.debug.reference.denotation import Meaning, allowances
from torch_ir.debug.reference.tolerance_check import Error, same_bits, with_one_unit
from torch_ir.ir import IR, OpNode
from torch_ir.ir.expressions import Number
from torch_ir.ir.values import dtype_name
from torch_ir.semantics.arguments import as_array
from torch_ir.semantics.dtypes import Array, is_inexact, widest

Tensors = Mapping[str, torch.Tensor]
Slack = Callable[[], Mapping[str, Array | float]]


@dataclass(frozen=True, slots=True)
class PartFault:
    """What is wrong with one result of a part."""

    value: str
    kind: Kind
    error: Error


@dataclass(frozen=True, slots=True)
class Judging:
    """How results are judged.

    Attributes:
        is_exact: To the bit, as between torch's operators and torch's compiled graph.
        is_reference: Whether the other side is the meaning itself; if not, both sides round.
        symbols: The symbols known by now.
    """

    is_exact: bool
    is_reference: bool
    symbols: Mapping[str, Number]

    def faults(
        self,
        body: IR,
        meaning: Meaning | None,
        given: Tensors,
        known: Tensors,
        results: Sequence[torch.Tensor],
        *,
        call: OpNode | None = None,
        slack: Slack | None = None,
    ) -> list[PartFault] | str:
        """Return what is wrong with the results of a part, or why it cannot be judged.

        Args:
            body: The part; its graph outputs are the results.
            meaning: What it means; None to compare with ``known`` to the bit.
            given: The values that it took, by name.
            known: What the other side made of these, by name.
            results: What the part gave.
            call: The node that the part is, if it is one; its meaning then has its inputs.
            slack: Says what else each result may be off; asked where one is off by more.
        """
        found = self.form_faults(body, known, results)
        wrong = {fault.value for fault in found}
        usable = [
            known[meta.name] if meta.name in wrong else results[index]
            for index, meta in enumerate(body.graph_outputs)
        ]
        if self.is_exact or meaning is None:
            for meta, got in zip(body.graph_outputs, usable, strict=True):
                error = same_bits(known[meta.name], got)
                if error.reason and meta.name not in wrong:
                    kind = _kind(as_array(known[meta.name]), as_array(got), np.zeros(()))
                    found.append(PartFault(meta.name, kind, error))
            return found
        node = call or OpNode("part", CALL, body.graph_inputs, body.graph_outputs)
        loose = ""
        for allowed in self.allowed(node, meaning, given, usable):
            fault = None if allowed.value in wrong else self._fault(allowed, known, 0.0)
            if fault is not None and slack is not None:
                fault = self._fault(allowed, known, slack().get(allowed.value, 0.0))
            found += [] if fault is None else [fault]
            loose = loose or allowed.looseness
        return found or loose or []

    def form_faults(
        self, body: IR, known: Tensors, results: Sequence[torch.Tensor]
    ) -> list[PartFault]:
        """Return what is wrong with the number, shapes and dtypes of results."""
        pairs = [
            (meta.name, results[index] if index < len(results) else None)
            for index, meta in enumerate(body.graph_outputs)
        ]
        faults = [_form(name, known[name], got) for name, got in pairs]
        return [fault for fault in faults if fault is not None]

    def allowed(
        self, call: OpNode, meaning: Meaning, given: Tensors, results: Sequence[torch.Tensor]
    ) -> list[Allowance]:
        """Return what each result of a call may be."""
        inputs = [given[meta.name] for meta in call.inputs]
        drew = meaning.draws
        return list(allowances(meaning, call, inputs, self.symbols, results, {}, drew=drew))

    def _fault(self, allowed: Allowance, known: Tensors, more: Array | float) -> PartFault | None:
        expected = allowed.expected
        with np.errstate(over="ignore"):  # too wide for a number is infinite
            more = 0.0 if allowed.is_relation else more
            bound = with_one_unit(allowed.bound + more, expected)
        is_open = allowed.chosen is not None or allowed.is_relation
        is_alike = not (self.is_reference or is_open)
        is_rounded = is_alike and is_inexact(allowed.got.dtype)  # on both sides
        error = Error() if is_rounded else allowed.off(expected, bound)
        if error.reason and allowed.chosen is not None:
            error = allowed.error(bound)
        if is_rounded or (is_alike and error.reason):
            expected = as_array(known[allowed.value])
            with np.errstate(over="ignore"):
                bound = bound + with_one_unit(allowed.bound, expected)
            error = allowed.off(expected, bound)
        if not error.reason:
            return None
        return PartFault(allowed.value, _kind(expected, allowed.got, bound), error)


def _form(name: str, expected: torch.Tensor, got: torch.Tensor | None) -> PartFault | None:
    """What is wrong with a result before its numbers are looked at."""

    def fault(kind: Kind, reason: str) -> PartFault:
        return PartFault(name, kind, Error(part=float("inf"), reason=reason))

    if not isinstance(got, torch.Tensor):
        return fault("missing", f"there is no %{name} among the results")
    if got.shape != expected.shape:
        return fault("shape", f"the shape is {list(got.shape)}, expected {list(expected.shape)}")
    if got.dtype != expected.dtype:
        told, wanted = (dtype_name(t.dtype) for t in (got, expected))
        return fault("dtype", f"the dtype is {told}, expected {wanted}")
    return None


def _kind(expected: Array, got: Array, bound: Array) -> Kind:
    if expected.shape != got.shape or not is_inexact(expected.dtype):
        return "numeric"
    first, second = widest(expected), widest(got)
    special = np.isfinite(first) != np.isfinite(second)
    special |= np.isnan(first) != np.isnan(second)
    is_bounded = np.isfinite(np.broadcast_to(bound, first.shape))
    return "nan" if bool(np.any(special & is_bounded)) else "numeric"
