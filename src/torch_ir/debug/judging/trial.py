"""The judgement of a delegate before it is used: its results by their meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from torch_ir.backends.delegate import CALL
from torch_ir.debug.reference.denotation import Meaning, allowances, meaning_of
from torch_ir.debug.reference.tolerance_check import Error, with_one_unit, within
from torch_ir.errors import TorchIRError
from torch_ir.infer.bindings import Symbols
from torch_ir.ir import IR, OpNode
from torch_ir.semantics.arguments import as_array
from torch_ir.semantics.tolerance import spacing

Values = Mapping[str, torch.Tensor]
Results = Sequence[torch.Tensor | None]
"""Those of a delegate; None for one that is not to be judged."""
Judge = Callable[[Values, Results, Values, Symbols], Error]

EAGER_UNITS = 64
"""Units in the last place of the largest number, for which no denotation says how far is far."""


def judge_of(body: IR) -> Judge:
    """Return a function that says how far results of a delegate are from what they mean.

    The error is a part of what the chain of the body's operators allows. Where an operator has no
    denotation, results are compared with torch's.

    Args:
        body: The function that the delegate stands for.

    Returns:
        A function of the inputs by name, the results, torch's results by name, and the symbols.
    """
    meaning = meaning_of(body.replace(signature=None))
    if isinstance(meaning, str) or meaning.has_open_values:
        return lambda given, results, known, symbols: _by_eager(body, results, known)
    call = OpNode("delegate", CALL, body.graph_inputs, body.graph_outputs)

    def judge(given: Values, results: Results, known: Values, symbols: Symbols):
        try:
            return _by_meaning(meaning, call, given, results, known, symbols)
        except TorchIRError:  # the denotation refuses these inputs
            return _by_eager(body, results, known)

    return judge


def relative_judge(body: IR, tolerance: float) -> Judge:
    """Return a function as :func:`judge_of` does, for an error relative to the largest number.

    Args:
        body: The function that the delegate stands for.
        tolerance: What is allowed.
    """

    def judge(given: Values, results: Results, known: Values, symbols: Symbols):
        found: list[Error] = []
        for meta, result in zip(body.graph_outputs, results, strict=True):
            if result is None:
                continue
            expected = as_array(known[meta.name])
            allowed = np.zeros(expected.shape)
            if result.is_floating_point() or result.is_complex():
                sizes = np.abs(expected.astype(complex))
                allowed += tolerance * np.max(sizes, initial=0, where=np.isfinite(sizes))
            found.append(within(expected, as_array(result), allowed))
        return _worst(found)

    return judge


def _by_meaning(
    meaning: Meaning,
    call: OpNode,
    given: Values,
    results: Results,
    known: Values,
    symbols: Symbols,
) -> Error:
    inputs = [given[meta.name] for meta in call.inputs]
    pairs = [*zip(call.outputs, results, strict=True)]
    judged = {meta.name for meta, result in pairs if result is not None}
    filled = [known[meta.name] if result is None else result for meta, result in pairs]
    found = [
        a.error(with_one_unit(a.bound, a.expected))
        for a in allowances(meaning, call, inputs, symbols, filled, {})
        if a.value in judged
    ]
    loose = next((error.loose for error in found if error.loose), "")
    return Error(part=np.inf, reason=f"it cannot be verified: {loose}") if loose else _worst(found)


def _by_eager(body: IR, results: Results, known: Values) -> Error:
    found: list[Error] = []
    for meta, result in zip(body.graph_outputs, results, strict=True):
        if result is None:
            continue
        expected = as_array(known[meta.name])
        allowed = np.zeros(expected.shape)
        if known[meta.name].is_floating_point() or known[meta.name].is_complex():
            units = spacing(expected)[np.isfinite(expected)]
            allowed += EAGER_UNITS * (units.max() if units.size else 0)
        found.append(within(expected, as_array(result), allowed))
    return _worst(found)


def _worst(found: Sequence[Error]) -> Error:
    wrong = [error for error in found if error.reason]
    return max(wrong or [*found, Error()], key=lambda error: error.part)
