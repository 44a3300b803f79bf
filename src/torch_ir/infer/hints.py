"""Size hints that satisfy every symbol range and guard."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence

from torch_ir.errors import InvalidIRError
from torch_ir.infer.bindings import Symbols
from torch_ir.ir import IR, OpNode, SymbolRange, SymExpr
from torch_ir.ir.builder import ASSERTION
from torch_ir.ir.expressions import kind_of
from torch_ir.ir.symbols import value_at

USUAL = 7
"""A size that is not likely to be a literal in the program."""

PRIMES = (11, 13, 17, 19, 23, 29, 31, 37)
"""Sizes of the second sampling, another one for each symbol; all larger than those of results."""

SIZES = (8, 6, 4, 12, 16, 5, 9, 10, 3, 2, 32, 64, 1)
"""Sizes to try where conditions ask for more than a range."""

MAX_TRIES = 20_000


def samplings(ir: IR) -> tuple[Symbols, ...]:
    """Choose size hints: a value for each symbol, then another one where the symbol may vary.

    Both keep the guards and what the program asserts about its sizes; the second gives no shape a
    negative dimension either. There are none where no values are found.

    Example:
        >>> from torch_ir.ir import TensorMeta
        >>> x = TensorMeta("x", ("s0", "s1"), "float32")
        >>> ranges = {"s0": SymbolRange(2, 64), "s1": SymbolRange(8, None)}
        >>> ir = IR([], [x], [x], [], symbols=ranges)
        >>> samplings(ir)
        ({'s0': 7, 's1': 8}, {'s0': 11, 's1': 13})
    """
    computed = {symbol: node for node in ir.nodes if _is_prim(node) for symbol in node.binds}
    if computed.keys() & ir.symbols.keys():
        free = {name: bounds for name, bounds in ir.symbols.items() if name not in computed}
        found = samplings(ir.replace(symbols=free))
        return tuple([_with_computed(symbols, computed) for symbols in found])
    conditions = [*ir.guards, *_assertions(ir)]
    usual = {name: _usual(bounds) for name, bounds in ir.symbols.items()}
    first = _search(ir.symbols, {n: (usual[n], *SIZES) for n in ir.symbols}, conditions)
    if first is None:
        return ()
    other = _search(ir.symbols, _others(ir, first), [*conditions, *_lengths(ir)])
    found = (first,) if other is None or other == first else (first, other)
    return tuple([_of_their_kinds(symbols) for symbols in found])


def _of_their_kinds(symbols: Symbols) -> Symbols:
    """The values with floating-point ones for such symbols: results have their dtypes by them."""
    return {name: kind_of(name)(value) for name, value in symbols.items()}


def _is_prim(node: OpNode) -> bool:
    """Whether a node computes a symbol from others."""
    return node.op_type.startswith("executorch_prims.") and set(node.attrs) == {"a", "b"}


def _with_computed(symbols: Symbols, computed: Mapping[str, OpNode]) -> Symbols:
    """The values, with those that prims compute from them where they can."""
    known = dict(symbols)
    for symbol, node in computed.items():
        try:
            a, b = [value_at(node.attrs[name], known) for name in ("a", "b")]
            known[symbol] = int(getattr(operator, node.op_type.split(".")[1])(a, b))
        except (InvalidIRError, ZeroDivisionError):  # it needs what only a run gives
            known[symbol] = USUAL
    return known


def _usual(bounds: SymbolRange) -> int:
    lower, upper = bounds.lower, bounds.upper
    return max(lower or 0, USUAL) if upper is None or upper >= USUAL else upper


def _others(ir: IR, first: Symbols) -> dict[str, Sequence[int]]:
    """Values to try in the second sampling: those of arguments are larger than those of results.

    A part that data selects is no longer than the whole.
    """
    choices: dict[str, Sequence[int]] = {}
    for position, (name, bounds) in enumerate(ir.symbols.items()):
        ends = [end for end in (bounds.lower, bounds.upper) if end is not None]
        large = PRIMES[position % len(PRIMES) :] if name in ir.given_symbols else ()
        tried = dict.fromkeys([*large, *reversed(SIZES), *ends])
        choices[name] = [*(v for v in tried if v != first[name]), int(first[name])]
    return choices


def _assertions(ir: IR) -> Iterator[SymExpr]:
    for node in ir.nodes:
        condition = node.attrs.get("self") if node.op_type == ASSERTION else None
        if isinstance(condition, SymExpr):
            yield condition


def _lengths(ir: IR) -> Iterator[SymExpr]:
    """That no dimension is negative."""
    metas = [*ir.graph_inputs, *(meta for node in ir.nodes for meta in node.outputs)]
    dims = {d for meta in metas for d in meta.shape if isinstance(d, SymExpr) and not d.is_symbol}
    for dim in sorted(dims, key=str):
        yield SymExpr(f"{dim} >= 0")


def _search(
    symbols: Mapping[str, SymbolRange],
    choices: Mapping[str, Sequence[int]],
    conditions: Sequence[SymExpr],
) -> Symbols | None:
    """The first choice of values for which all conditions hold, symbol by symbol."""
    order = list(symbols)
    positions = {name: position for position, name in enumerate(order)}
    checks: list[list[SymExpr]] = [[] for _ in order]
    for condition in conditions:
        known = [positions[symbol] for symbol in condition.symbols if symbol in positions]
        if known:
            checks[max(known)].append(condition)
    chosen: Symbols = {}
    pending = [iter(choices[name]) for name in order[:1]]
    for _ in range(MAX_TRIES):
        if not pending:
            return chosen if not order else None
        depth = len(pending) - 1
        value = next(pending[-1], None)
        if value is None:
            pending.pop()
            continue
        chosen[order[depth]] = value
        if value not in symbols[order[depth]] or not _hold(checks[depth], chosen):
            continue
        if len(pending) == len(order):
            return chosen
        pending.append(iter(choices[order[depth + 1]]))
    return None


def _hold(conditions: Sequence[SymExpr], symbols: Symbols) -> bool:
    try:
        return all(condition.evaluate(symbols) for condition in conditions)
    except InvalidIRError:  # one has no value there: a division by zero
        return False
