"""Bounds of deep chains: how far results move where each node is off by what it may be, at once.

What nodes may be off by, carried on by the worst case of the nodes after them
(:mod:`torch_ir.semantics.chain`), grows by Σ |weights| at each product and says nothing after some
ten layers: errors of either sign cancel there, as the terms themselves do. So the program is
evaluated again, each result moved to an end of twice its own bound, as a kernel's form of a chain
may round as often again as the nodes do: the ends are drawn for each element, drawn for each node,
and outward from 0. The errors of a kernel are a fraction of those bounds, and
no more of one sign than these; :data:`SPREAD` times the largest move that is seen is allowed. An
element that happens to stay where it is counts as moved as far as the middle one, by the part that
it is of a value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from torch_ir.ir.expressions import Number
from torch_ir.ir.graph import IR
from torch_ir.ir.node import OpNode
from torch_ir.ir.queries import dead_after
from torch_ir.semantics.bounds import sums
from torch_ir.semantics.bounds.call import Rule, moduli
from torch_ir.semantics.bounds.moves import apart, meant_at, moved_by
from torch_ir.semantics.bounds.table import RULES
from torch_ir.semantics.chain import FORMS, node_bounds
from torch_ir.semantics.denote import Evaluation
from torch_ir.semantics.dtypes import Array, is_complex, is_inexact, numpy_dtype, real_of

SPREAD = 2
"""How far a kernel may be off, in units of the largest move that is seen.

Errors a third as large as their bounds, as those of rounding, are ten times less than that."""
ENDS = ("elements", "elements", "node", "outward")
"""How a result is moved within its bound, in each evaluation."""
DEEP = 12
"""Products in a row after which worst cases of float32 are not looked at: most are wide."""
LOOSE = 2.0**-4
"""What agrees within more than this share of the value has not been compared."""
_UNITS, _LEAST = 16, 2.0**-10
TAIL = 4
"""How much wider than of most elements the bounds of the widest are that are still compared."""


def deep_values(ir: IR) -> frozenset[str]:
    r"""Return the numbers of which a worst case says nothing: too many products lead to them.

    None of float64, whose worst cases may still be narrow there.

    Example:
        >>> from torch_ir import parse
        >>> lines = [f"  %y{i + 1}: f32[2, 2] = aten.mm.default(%y{i}, %w)" for i in range(14)]
        >>> head = "ir {\n  input %y0: f32[2, 2]\n  input %w: f32[2, 2]\n"
        >>> ir = parse(head + "\n".join(lines) + "\n  return %y14\n}")
        >>> sorted(deep_values(ir))
        ['y13', 'y14']
    """
    depths: dict[str, int] = {}
    for node in ir.nodes:
        before = max((depths.get(meta.name, 0) for meta in node.inputs), default=0)
        depth = before + (RULES.get(node.op_type) in _PRODUCTS)
        depths |= {m.name: depth for m in node.outputs if _is_short(numpy_dtype(m.dtype))}
    return frozenset(name for name, depth in depths.items() if depth > DEEP)


def _is_short(dtype: np.dtype[Any]) -> bool:
    return is_inexact(dtype) and real_of(dtype).itemsize < 8


_PRODUCTS: frozenset[Rule] = frozenset((sums.product, sums.convolution))


def is_wide(expected: Array, bound: Array) -> bool:
    """Return whether a worst case is so far off that moves should be looked at.

    That is more than 16 units in the last place of the value's type, and than 2⁻¹⁰ of it.
    """
    if not is_inexact(expected.dtype):
        return False
    unit = float(ml_dtypes.finfo(real_of(expected.dtype)).eps)
    return share(expected, bound) > max(_UNITS * unit, _LEAST)


def share(expected: Array, bound: Array) -> float:
    """Return which part of a value its bound is, for three in four of its elements.

    Of the others it is no more than :data:`TAIL` times that, but for one in 50. An element counts
    as at least as large as the middle one of those that are not 0.

    Example:
        >>> share(np.float32([1, 2, 4, -8]), np.full(4, 1.5))
        0.5
        >>> share(np.ones(100, "float32"), np.where(np.arange(100) < 3, 9.0, 0.5))
        2.25
    """
    is_open = np.isnan(expected) & np.isinf(bound)
    is_known = (np.isfinite(moduli(expected)) | is_open) & is_inexact(expected.dtype)
    with np.errstate(over="ignore"):
        parts = np.broadcast_to(bound, expected.shape) / _sizes(expected)
    parts = np.where(is_open, np.inf, parts)
    if not is_known.any():
        return 0.0
    least = np.quantile(parts[is_known], 0.75, method="lower")
    most = np.quantile(parts[is_known], 1 - 1 / 50, method="higher")
    return float(max(least, most / TAIL))


def settled(expected: Array, bound: Array) -> Array:
    """Return a bound in which elements that may be off by as much as they are may be any number.

    Errors so large are not carried on as small ones are: what they come to is not known.
    """
    return np.where(bound > _sizes(expected), np.finfo("float64").max, bound)


def _sizes(values: Array) -> Array:
    """The moduli, each at least as large as the middle one of those that are not 0."""
    sizes = moduli(values)
    return np.maximum(sizes, _middle(sizes[sizes > 0]) or 1.0)


def _middle(values: Array) -> float:
    usual = values[np.isfinite(values)]
    return float(np.median(usual)) if usual.size else 0.0


def _leveled(moves: Array, values: Array) -> Array:
    """The moves, each at least as large a part of the value as the middle one."""
    if not is_inexact(values.dtype) or not moves.any():
        return moves
    sizes = _sizes(values)
    with np.errstate(all="ignore"):
        parts = moves / sizes
        return np.fmax(moves, sizes * _middle(parts))


def spread(
    ir: IR,
    values: Mapping[str, Any],
    symbols: Mapping[str, Number],
    errors: Mapping[str, Array],
    keep: Collection[str],
    steps: np.dtype[Any] | None = None,
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Compute values by name, and how far a kernel's may be off, from how they move.

    Arguments and results are those of :func:`torch_ir.semantics.chain.bounded`; errors of inputs
    may have a sign, and are moved by just that where a node's elements move together.

    Raises:
        TorchIRError: A denotation refuses its arguments, or no tolerance is stated.
    """
    evaluation = Evaluation(ir, {}, dict(values), symbols=dict(symbols))
    made: dict[str, Any] = evaluation.given()
    moves = [_Moved(way, number) for number, way in enumerate(ENDS)]
    for move in moves:
        for name, error in errors.items():
            move.move(name, made[name], error)
    found = {name: np.zeros(np.shape(made[name])) for name in keep if name in made}
    found |= {name: np.abs(error) for name, error in errors.items() if name in keep}
    kept = {name: made[name] for name in found}
    dead = dead_after(ir.nodes, ())

    def exact(name: str) -> Array:
        return np.zeros(np.shape(made[name]))

    for node, results in evaluation.run(keep=False):
        known = evaluation.symbols
        own = node_bounds(ir, node, results, made.__getitem__, exact, known, steps)
        for move in moves:
            inputs = {m.name: move.values.get(m.name, made[m.name]) for m in node.inputs}
            is_same = not any(m.name in move.values for m in node.inputs)
            moved = results if is_same else _moved(evaluation, node, results, made, inputs)
            for meta in node.outputs:
                index = meta.producer_output_idx
                move.move(meta.name, moved[index], own[index])
        for meta in node.outputs:
            here: Any = results[meta.producer_output_idx]
            made[meta.name] = here
            if meta.name in keep:
                kept[meta.name] = here
                seen = [apart(move.values[meta.name], here) for move in moves]
                reach = _leveled(np.max(seen, axis=0), here)
                found[meta.name] = own[meta.producer_output_idx] + SPREAD * reach
        for name in dead.get(node.name, ()):
            for held in (made, *[move.values for move in moves]):
                held.pop(name, None)
    return kept, found


def _moved(
    evaluation: Evaluation,
    node: OpNode,
    results: Sequence[Any],
    made: Mapping[str, Any],
    inputs: Mapping[str, Any],
) -> Sequence[Any]:
    """What a node means at moved inputs; it is not known where it refuses them."""
    given = {name: made[name] for name in inputs}
    found = meant_at(lambda values: evaluation.evaluate(node, values), given, inputs)
    if found is not None:
        return found
    return [
        np.full_like(part, np.nan)
        if isinstance(part, np.ndarray) and is_inexact(part.dtype)
        else part
        for part in results
    ]


class _Moved:
    """The values of one evaluation in which results are moved; only those that differ.

    Args:
        way: How they are moved, of :data:`ENDS`.
        seed: The seed of what is drawn.
    """

    def __init__(self, way: str, seed: int):
        self.values: dict[str, Any] = {}
        self._way = way
        self._draws = np.random.default_rng(seed)

    def move(self, name: str, value: Any, bound: Any) -> None:
        """Note a value, moved to an end of what it may be."""
        self.values[name] = value
        if bound is None or not np.any(bound) or not is_inexact(value.dtype):
            return
        shape = () if self._way == "node" else value.shape
        if is_complex(value.dtype):
            sign: Any = self._draws.choice([1, -1, 1j, -1j], shape)
        elif self._way == "outward":
            sign = 1 - 2 * np.signbit(value).astype("int8")
        else:
            sign = self._signs(shape)
        self.values[name] = moved_by(value, FORMS * bound, sign).astype(value.dtype)

    def _signs(self, shape: tuple[int, ...]) -> Array:
        """1 and −1 at random, a bit of what is drawn for each: there are as many as elements."""
        count = prod(shape)
        drawn = np.frombuffer(self._draws.bytes(-(-count // 8)), "uint8")
        return (1 - 2 * np.unpackbits(drawn, count=count).astype("int8")).reshape(shape)
