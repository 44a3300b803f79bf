"""Choices that kernels make: factors, codes and indices, judged by what has to hold for them.

Factors of a matrix are judged by equations, codes by the numbers that they stand for, and indices
by the elements that they name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from torch_ir.debug.reference.tolerance_check import ties_resolved
from torch_ir.ir import IR, OpNode
from torch_ir.ir.expressions import Number
from torch_ir.ops.choices import NEARLY_OPEN, leaves_ties_open, leaves_writes_open
from torch_ir.semantics import denotation
from torch_ir.semantics.arguments import arguments_of
from torch_ir.semantics.bounds.algebra.relations import Equation, Relation, left_free, relation
from torch_ir.semantics.bounds.moves import apart
from torch_ir.semantics.dtypes import Array, is_inexact
from torch_ir.semantics.numbers import of_no_elements
from torch_ir.semantics.operators.indexing import ascending, written_in
from torch_ir.semantics.operators.quantization import QUANTIZING
from torch_ir.semantics.tolerance import spacing


def related(
    ir: IR,
    made: Mapping[str, Any],
    bounds: Mapping[str, Array],
    got: Mapping[str, Array],
    symbols: Mapping[str, Number],
) -> dict[str, list[tuple[Array, Array, Array]]]:
    """Return the sides and bounds of what judges values, by name; not of what nothing relates.

    Operands that a kernel shows are its own; others are meant, and as far off as they may be.

    Args:
        ir: The program that makes them.
        made: Its values, as they are meant: operands and results of what makes the wanted ones.
        bounds: How far they may be off.
        got: What a kernel gave, by name. All results of an operator have to be among it.
        symbols: The symbols that are known.
    """
    found: dict[str, list[tuple[Array, Array, Array]]] = {}
    for node in ir.nodes:
        holds = relation(node.op_type)
        names = {meta.producer_output_idx: meta.name for meta in node.outputs}
        if holds is None or not all(name in got for name in names.values()):
            continue
        results = [got[names[index]] for index in sorted(names)]
        if any(not is_alike(made[names[i]], got[names[i]]) for i in names):
            continue
        shown = {name: value for name, value in got.items() if is_alike(made[name], value)}
        arguments = arguments_of(node, {**made, **shown}.__getitem__, symbols)
        arguments = of_no_elements(arguments) or arguments
        free = following(ir)
        hidden = {
            m.name: np.full((), np.inf) if m.name in free else bounds[m.name]
            for m in node.inputs
            if m.name not in shown
        }
        errors = {**dict.fromkeys(shown, np.zeros(())), **hidden}
        off = arguments_of(node, errors.__getitem__, symbols)
        with np.errstate(all="ignore"):
            for equation in _carried(holds, arguments, off, results):
                sides = equation.expected, equation.got, equation.bound
                found.setdefault(names[equation.result], []).append(sides)
        for name in names.values():
            found.setdefault(name, [])
    return found


def following(ir: IR) -> frozenset[str]:
    """Return the values that follow from factors whose signs or order are left to kernels."""
    return ir.view("what follows from factors", lambda: _following(ir))


def _following(ir: IR) -> frozenset[str]:
    found: set[str] = set()
    for node in ir.nodes:
        is_after = any(meta.name in found for meta in node.inputs)
        places = left_free(node.op_type)
        found |= {m.name for m in node.outputs if is_after or m.producer_output_idx in places}
    return frozenset(found)


def _carried(
    holds: Relation, arguments: dict[str, Any], off: dict[str, Any], results: list[Array]
) -> Iterator[Equation]:
    """The equations of a call, with what their sides move by where operands are off."""
    wide = {n: e for n, e in off.items() if isinstance(e, np.ndarray) and e.any()}
    first = list(holds(arguments, results))
    if not all(np.isfinite(error).all() for error in wide.values()):
        yield from (replace(e, bound=np.full(np.shape(e.expected), np.inf)) for e in first)
        return
    moved = [{**arguments, name: arguments[name] + error} for name, error in wide.items()]
    for equation, *further in zip(first, *[holds(given, results) for given in moved], strict=True):
        apart = equation.expected - equation.got
        parts = [np.abs(other.expected - other.got - apart) for other in further]
        whole = np.nan_to_num(sum(parts, equation.bound), nan=np.inf, posinf=np.inf)
        yield replace(equation, bound=whole)


def is_alike(meant: Array, got: Array) -> bool:
    """Return whether two arrays have one shape and type."""
    return meant.shape == got.shape and meant.dtype == got.dtype


def nearest_put(op_type: str, arguments: Mapping[str, Any], got: Array) -> Array:
    """Return what a call puts; of several values at one place the nearest to a kernel's stays.

    Args:
        op_type: The operator, which puts values at places.
        arguments: What it takes, by name.
        got: What the kernel gave.
    """

    def order(places: Array, values: Array) -> Array:
        return np.argsort(-apart(values, got.reshape(-1)[places]), kind="stable")

    with written_in(order), np.errstate(all="ignore"):
        return denotation(op_type).function(**arguments)


@dataclass(frozen=True)
class KernelChoice:
    """A value of a program beside what a kernel chose for it.

    Attributes:
        ir: The program that makes it.
        name: Its name.
        made: The values of the program.
        bounds: How far they may be off.
        got: What the kernel gave.
        symbols: The symbols that are known.
    """

    ir: IR
    name: str
    made: Mapping[str, Any]
    bounds: Mapping[str, Array]
    got: Array
    symbols: Mapping[str, Number]

    def meant(self, recodes: bool, is_settled: bool, is_chain: bool) -> tuple[Array, Array, bool]:
        """Return what the value means given what was chosen, its bound, and if that tells all.

        Args:
            recodes: Whether codes follow from numbers that may be off.
            is_settled: Whether it is known already which of several writes to a place stay.
            is_chain: Whether choices on the way to its operands may change it too.
        """
        expected, bound, maker = self.made[self.name], self.bounds[self.name], self._index_maker()
        if recodes and self._is_codes():
            expected = self._nearest_codes()
            bound = np.zeros(expected.shape)
        if maker is not None:
            arguments, slack = self._arguments(maker)
            if leaves_ties_open(maker.op_type, maker.attrs) or slack["self"].any():
                expected = ties_resolved(arguments, expected, self.got, slack["self"])
        if is_settled or not self._puts:
            return expected, bound, maker is not None and not is_settled
        return *self._nearest_put(), not is_chain

    @property
    def _puts(self) -> bool:
        """Whether what makes the value may put several values at one place."""
        maker = self.ir.producers.get(self.name)
        return maker is not None and leaves_writes_open(maker.op_type, maker.attrs)

    def _nearest_put(self) -> tuple[Array, Array]:
        """The values nearest to the kernel's of those that are put at one place; their bounds."""
        node, bound = self.ir.producers[self.name], self.bounds[self.name]
        arguments, errors = self._arguments(node)
        if not is_alike(self.made[self.name], self.got):
            return self.made[self.name], bound
        off = {
            name: np.broadcast_to(errors[name], value.shape)
            for name, value in arguments.items()
            if isinstance(value, np.ndarray) and is_inexact(value.dtype)
        }
        if any(error.any() for error in off.values()):
            with written_in(ascending):
                bound = np.maximum(
                    bound, denotation(node.op_type).function(**{**arguments, **off})
                )
        return nearest_put(node.op_type, arguments, self.got), bound

    def _arguments(self, node: OpNode) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arguments of a node, and how far each may be off."""
        made, bounds = self.made.__getitem__, self.bounds.__getitem__
        return arguments_of(node, made, self.symbols), arguments_of(node, bounds, self.symbols)

    def _index_maker(self) -> OpNode | None:
        """The node whose last result the value is, if that may name one of equal elements."""
        maker = self.ir.producers.get(self.name)
        if maker is None:
            return None
        if not (leaves_ties_open(maker.op_type, maker.attrs) or maker.op_type in NEARLY_OPEN):
            return None
        return maker if maker.outputs[-1].name == self.name else None

    def _is_codes(self) -> bool:
        """Whether the value is the codes that a node quantizes to."""
        made = self.ir.producers.get(self.name)
        return made is not None and made.op_type in QUANTIZING

    def _nearest_codes(self) -> Array:
        """What a kernel's codes have to be, if the numbers that it quantizes may be off.

        They are its own where some number within that error has them, else the closest ones.
        """
        node, got = self.ir.producers[self.name], self.got
        arguments, errors = self._arguments(node)
        numbers = arguments["input"]
        # a kernel that works on codes multiplies by scales' quotient: each node rounds elsewhere
        slack = errors["input"] + len(self.ir.nodes) * spacing(numbers)
        ends: list[Array] = []
        for error in (-slack, slack):
            moved = (numbers.astype(np.float64) + error).astype(numbers.dtype)
            ends.append(denotation(node.op_type).function(**{**arguments, "input": moved}))
        if not is_alike(got, ends[0]):
            return self.made[self.name]
        return np.clip(got, np.minimum(*ends), np.maximum(*ends))
