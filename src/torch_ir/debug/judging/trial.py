"""The judgment of a delegate before it is used: its results by their meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from torch_ir.backends.delegate import CALL
from torch_ir.debug.reference.denotation import (
    Evaluated,
    Meaning,
    allowances,
    evaluate,
    meaning_of,
)
from torch_ir.debug.reference.tolerance_check import Error, with_one_unit, within
from torch_ir.debug.tensor_comparison import digest
from torch_ir.errors import TorchIRError
from torch_ir.infer.bindings import Symbols
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.builder import subgraph
from torch_ir.ir.queries import every_value, given_values, nodes_behind
from torch_ir.ops.choices import leaves_order_open
from torch_ir.semantics.arguments import as_array
from torch_ir.semantics.dtypes import Array
from torch_ir.semantics.tolerance import spacing
from torch_ir.torch_api import is_inexact

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


class ProgramJudge:
    """Judges delegates of all backends by one program, which each may have split up otherwise.

    A delegate stands for the program's own operators between the values that it takes and those
    that it gives. What they mean for some values is computed once, not for each backend. Where the
    program has no such operators, or finds a delegate wrong, the delegate's own body decides:
    parts may round more often than the whole.

    Args:
        ir: The program, functional.
    """

    def __init__(self, ir: IR):
        self._ir = ir
        self._meanings: dict[tuple[tuple[str, ...], ...], Meaning | None] = {}
        self._evaluated: dict[Any, Evaluated] | None = {}

    def forget(self) -> None:
        """Hold no more values: from now on, each call is evaluated anew."""
        self._evaluated = None

    def judge_of(self, body: IR) -> Judge:
        """Return what `judge_of` returns."""
        meaning = self._meaning_of(body)
        if meaning is None:
            return judge_of(body)
        inputs = [given_values(body)[name] for name in meaning.ir.input_names]
        call = OpNode("delegate", CALL, inputs, body.graph_outputs)
        by_body = cache(lambda: judge_of(body))

        def judge(given: Values, results: Results, known: Values, symbols: Symbols) -> Error:
            try:
                evaluated = self._evaluate(meaning, call, given, symbols)
                torchs = [known[meta.name] for meta in call.outputs]
                found = [
                    _by_meaning(meaning, call, given, made, known, symbols, evaluated)
                    for made in (torchs, results)  # whose names may stand for other values
                ]
            except TorchIRError:  # the denotation refuses these inputs
                return by_body()(given, results, known, symbols)
            if not any(error.reason for error in found):
                return found[-1]
            return by_body()(given, results, known, symbols)

        return judge

    def _meaning_of(self, body: IR) -> Meaning | None:
        """The meaning of the program's operators between a body's inputs and its results."""
        key = tuple(sorted(body.input_names)), tuple(body.output_names)
        if key not in self._meanings:
            results = [_in_program(self._ir, body, meta) for meta in body.graph_outputs]
            nodes = _between(self._ir, body.graph_inputs, results)
            made = meaning_of(subgraph(self._ir, nodes, results)) if nodes else ""
            self._meanings[key] = (
                None if isinstance(made, str) or made.draws or made.has_open_values else made
            )
        return self._meanings[key]

    def _evaluate(
        self, meaning: Meaning, call: OpNode, given: Values, symbols: Symbols
    ) -> Evaluated:
        inputs = [given[meta.name] for meta in call.inputs]
        if self._evaluated is None:
            return evaluate(meaning, call, inputs, symbols)
        numbers = tuple(sorted(symbols.items()))
        names = meaning.ir.input_names, meaning.ir.output_names
        key = names, numbers, tuple(map(digest, inputs))
        if key not in self._evaluated:
            self._evaluated[key] = evaluate(meaning, call, inputs, symbols)
        return self._evaluated[key]


def _in_program(ir: IR, body: IR, result: TensorMeta) -> TensorMeta:
    """The value of a program that a body's result stands for, by another name where it was split.

    It is the result of the node that its maker was made of, if that has one of the same type.
    """
    maker = body.producers.get(result.name)
    if result.name in every_value(ir) or maker is None or len(maker.made_of) != 1:
        return result
    (origin,) = maker.made_of
    found = [m for node in ir.nodes if node.made_of == (origin,) for m in node.outputs]
    return found[0] if len(found) == 1 and _type(found[0]) == _type(result) else result


def _between(ir: IR, inputs: Sequence[TensorMeta], results: Sequence[TensorMeta]) -> list[OpNode]:
    """The nodes that make results from inputs; none where a program has no such."""
    known = every_value(ir)
    wanted = [*inputs, *results]
    if any(m.name not in known or _type(known[m.name]) != _type(m) for m in wanted):
        return []
    given, needed = {meta.name for meta in inputs}, {meta.name for meta in results}
    nodes = nodes_behind(ir, needed, given)
    if any(n.functions or n.binds or leaves_order_open(n.op_type, n.attrs) for n in nodes):
        return []
    needed |= {meta.name for node in nodes for meta in node.inputs} - given
    is_open = not needed.isdisjoint((*ir.input_names, *ir.external_values()))
    return [] if is_open else nodes


def _type(meta: TensorMeta) -> tuple[object, str]:
    return meta.shape, meta.dtype


def relative_judge(body: IR, tolerance: float) -> Judge:
    """Return a function as :func:`judge_of` does, for an error relative to the largest number.

    Args:
        body: The function that the delegate stands for.
        tolerance: What is allowed.
    """

    def allowed(expected: Array) -> float:
        sizes = np.abs(expected.astype(complex))
        return tolerance * float(np.max(sizes, initial=0, where=np.isfinite(sizes)))

    return lambda given, results, known, symbols: _within(body, results, known, allowed)


def _by_meaning(
    meaning: Meaning,
    call: OpNode,
    given: Values,
    results: Results,
    known: Values,
    symbols: Symbols,
    evaluated: Evaluated | None = None,
) -> Error:
    inputs = [given[meta.name] for meta in call.inputs]
    pairs = [*zip(call.outputs, results, strict=True)]
    judged = {meta.name for meta, result in pairs if result is not None}
    filled = [known[meta.name] if result is None else result for meta, result in pairs]
    found = [
        a.error(with_one_unit(a.bound, a.expected))
        for a in allowances(meaning, call, inputs, symbols, filled, {}, evaluated=evaluated)
        if a.value in judged
    ]
    loose = next((error.loose for error in found if error.loose), "")
    return Error(part=np.inf, reason=f"it cannot be verified: {loose}") if loose else _worst(found)


def _by_eager(body: IR, results: Results, known: Values) -> Error:
    def allowed(expected: Array) -> float:
        units = spacing(expected)[np.isfinite(expected)]
        return EAGER_UNITS * float(units.max()) if units.size else 0.0

    return _within(body, results, known, allowed)


def _within(body: IR, results: Results, known: Values, allowed: Callable[[Array], float]) -> Error:
    """The worst of the results that are there; what are no fractions have to be equal."""
    found: list[Error] = []
    for meta, result in zip(body.graph_outputs, results, strict=True):
        if result is not None:
            expected = as_array(known[meta.name])
            limit = allowed(expected) if is_inexact(known[meta.name]) else 0.0
            found.append(within(expected, as_array(result), np.full(expected.shape, limit)))
    return _worst(found)


def _worst(found: Sequence[Error]) -> Error:
    wrong = [error for error in found if error.reason]
    return max(wrong or [*found, Error()], key=lambda error: error.part)
