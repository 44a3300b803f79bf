"""The symbols of an extracted program under names that depend on the program alone.

torch numbers symbols by what else it traced, and names sizes by a hash of where they come from.
Here they are ``s0``, ``s1``, … in the order in which the program shows them first: its inputs,
its guards, its nodes. Numbers from data are ``u0``, ``u1``, …, floating-point ones ``z0``, ….
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeAlias

from torch_ir.ir import (
    IR,
    Attribute,
    FrozenDict,
    Mutation,
    OpNode,
    Signature,
    SymExpr,
    TensorMeta,
)
from torch_ir.ir.expressions import renamed
from torch_ir.ir.tree import map_values
from torch_ir.ir.values import map_attribute

Change: TypeAlias = Callable[[SymExpr], SymExpr]

_OF_TORCH = "Runtime assertion failed for expression "
"""How torch begins the messages of its own assertions, which quote the expression."""


def with_canonical_symbols(ir: IR) -> IR:
    """Rename the symbols of a program in the order of their first appearance.

    Example:
        >>> from torch_ir.ir import SymbolRange
        >>> x = TensorMeta("x", ("s77", "s1", "s77 + s1"), "float32")
        >>> ir = IR([], [x], [x], [], symbols={"s1": SymbolRange(2), "s77": SymbolRange(3, 9)})
        >>> renamed = with_canonical_symbols(ir)
        >>> str(renamed.graph_inputs[0]), {k: str(v) for k, v in renamed.symbols.items()}
        ('%x: f32[s0, s1, s0 + s1]', {'s0': '3..9', 's1': '2..'})
    """
    if not ir.symbols:
        return ir
    found: dict[str, None] = {}

    def note(expression: SymExpr) -> SymExpr:
        found.update(dict.fromkeys(sorted(expression.symbols, key=creation_order)))
        return expression

    _Renaming(note, {}).program(ir)
    found.update(dict.fromkeys(sorted(ir.symbols, key=creation_order)))
    names = _numbered(found)
    return _Renaming(lambda expression: SymExpr(_renamed(expression.text, names)), names).program(
        ir
    )


def creation_order(text: str) -> list[str | int]:
    """Return a key that sorts ``u9`` before ``u10``: the order in which torch made them."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def _numbered(symbols: Iterable[str]) -> dict[str, str]:
    count: Counter[str] = Counter()
    names: dict[str, str] = {}
    for symbol in symbols:
        kind = symbol[0] if symbol[0] in "uz" else "s"
        names[symbol] = f"{kind}{count[kind]}"
        count[kind] += 1
    return names


def _renamed(text: str, names: dict[str, str]) -> str:
    """The text with all symbols replaced at once."""
    return renamed(text, lambda name: names.get(name, name))


class _Renaming:
    """Walks over everything in a program that holds symbols, in the order of the program."""

    def __init__(self, change: Change, names: dict[str, str]):
        self.change = change
        self.names = names

    def program(self, ir: IR) -> IR:
        inputs = self.metas(ir.graph_inputs)
        given = ir.signature and map_values(ir.signature.inputs, self._value)
        return ir.replace(
            graph_inputs=inputs,
            guards=[self.change(guard) for guard in ir.guards],
            weights=self.metas(ir.weights),
            nodes=[self.node(node) for node in ir.nodes],
            graph_outputs=self.metas(ir.graph_outputs),
            mutations=[Mutation(m.target, self.meta(m.value)) for m in ir.mutations],
            signature=given
            and ir.signature
            and Signature(given, map_values(ir.signature.outputs, self._value)),
            functions={name: self.program(body) for name, body in ir.functions.items()},
            symbols={
                self.names.get(symbol, symbol): ir.symbols[symbol]
                for symbol in (self.names or ir.symbols)
                if symbol in ir.symbols
            },
        )

    def node(self, node: OpNode) -> OpNode:
        return node.replace(
            inputs=self.metas(node.inputs),
            attrs=FrozenDict(
                {k: self._quoted(map_attribute(v, self._value)) for k, v in node.attrs.items()}
            ),
            outputs=self.metas(node.outputs),
            binds={self._bound(symbol): index for symbol, index in node.binds.items()},
        )

    def _bound(self, symbol: str) -> str:
        return self.change(SymExpr(symbol)).text

    def _quoted(self, value: Attribute) -> Attribute:
        if isinstance(value, str) and value.startswith(_OF_TORCH):
            return _renamed(value, self.names)
        return value

    def metas(self, metas: Iterable[TensorMeta]) -> tuple[TensorMeta, ...]:
        return tuple([self.meta(meta) for meta in metas])

    def meta(self, meta: TensorMeta) -> TensorMeta:
        if meta.is_static:
            return meta
        shape = [self.change(d) if isinstance(d, SymExpr) else d for d in meta.shape]
        return meta.replace(shape=tuple(shape))

    def _value(self, value: Attribute) -> Attribute:
        return self.change(value) if isinstance(value, SymExpr) else value
