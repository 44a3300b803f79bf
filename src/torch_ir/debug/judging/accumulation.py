"""The errors that backends make on their way through a program, carried on from node to node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from torch_ir.debug.reference.allowance import Allowance
from torch_ir.debug.reference.denotation import Meaning, allowances
from torch_ir.debug.reference.eager_call import call_plainly
from torch_ir.infer.bindings import Symbols
from torch_ir.ir import IR, Constant, OpNode
from torch_ir.semantics.arguments import as_array
from torch_ir.semantics.dtypes import Array, is_complex, is_inexact, widest


class Accumulation:
    """What values would be if no backend had rounded, beside a run in which backends do.

    Kept is what differs from the run, as long as a node reads it. Numbers that are not rounded
    (indices, conditions) count as the run has them: each is a choice, and no error.

    Args:
        ir: The program that runs.
    """

    def __init__(self, ir: IR):
        self._last = {meta.name: node.name for node in ir.nodes for meta in node.inputs}
        self._meant: dict[str, Array] = {}

    def follow(
        self,
        node: OpNode,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        symbols: Symbols,
        functions: Mapping[str, IR],
    ) -> None:
        """Compute what a node that torch ran would have made.

        Args:
            node: The node; it draws no random numbers.
            inputs: What it took.
            outputs: What it made.
            symbols: The symbols known by then.
            functions: What it may refer to.
        """
        if not any(meta.name in self._meant for meta in node.inputs):
            return
        device = outputs[0].device if outputs else torch.device("cpu")
        meant = [
            Constant.from_numpy(self._meant[meta.name]).torch().to(device)
            if meta.name in self._meant
            else tensor
            for meta, tensor in zip(node.inputs, inputs, strict=True)
        ]
        made = call_plainly(node, meant, symbols, functions, device)
        for meta, tensor in zip(node.outputs, outputs, strict=True):
            self._note(meta.name, as_array(made[meta.producer_output_idx]), as_array(tensor))
        self.forget(node)

    def allowances(
        self,
        meaning: Meaning,
        call: OpNode,
        inputs: Sequence[torch.Tensor],
        results: Sequence[torch.Tensor],
        symbols: Symbols,
    ) -> dict[str, list[Allowance]]:
        """Return what a delegate's results may be, by name, given how far its inputs are off.

        Args:
            meaning: What it means.
            call: Its call.
            inputs: What it took.
            results: What it made.
            symbols: The symbols known by then.
        """
        pairs = zip(call.inputs, inputs, strict=True)
        got = {meta.name: as_array(tensor) for meta, tensor in pairs}
        meant = {name: self._meant.get(name, array) for name, array in got.items()}
        off = {n: _off(meant[n], got[n]) for n in got if n in self._meant}
        given = [meant[meta.name] for meta in call.inputs]
        found: dict[str, list[Allowance]] = {}
        for allowed in allowances(meaning, call, given, symbols, results, {}, errors=off):
            found.setdefault(allowed.value, []).append(allowed)
        return found

    def keep(self, found: Iterable[Allowance]) -> None:
        """Go on with what a value means instead of what a backend made of it."""
        for allowed in found:
            if not allowed.is_relation:
                self._note(allowed.value, allowed.expected, allowed.got)

    def forget(self, node: OpNode) -> None:
        """Forget what no node after this one reads."""
        for meta in node.inputs:
            if self._last[meta.name] == node.name:
                self._meant.pop(meta.name, None)

    def _note(self, name: str, meant: Array, got: Array) -> None:
        is_rounded = is_inexact(got.dtype)
        if name not in self._last or not is_rounded or meant.shape != got.shape:
            return
        if not np.array_equal(meant, got):
            self._meant[name] = meant


def _off(meant: Array, got: Array) -> Array:
    """How far each element is off, with its sign if it has one; 0 where either is no number."""
    with np.errstate(all="ignore"):
        off = widest(got) - widest(meant)
        off = np.abs(off) if is_complex(got.dtype) else off
        return np.nan_to_num(off, posinf=0.0, neginf=0.0)
