"""Runtime asserts for facts that torch.export proved about sizes and numbers from data.

After ``torch._check(v.item() == x.shape[0])`` torch writes the size wherever the number was, in
the check itself too. The number must still be read, and be what it was taken for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.utils._sympy.symbol import SymT, symbol_is_type

from torch_ir.frontend.symbols.scalars import expression_text
from torch_ir.ir import OpNode, SymExpr, TensorMeta
from torch_ir.ir.builder import Names, assertion, size_read
from torch_ir.torch_api import SYMBOLIC_TYPES, symbol_of


@dataclass(frozen=True, slots=True)
class SymbolFact:
    """The symbol of a number from data, and the expression that torch writes for it.

    Attributes:
        symbol: The symbol.
        text: The expression; the symbol itself where torch has proved nothing.
        result: Which of the tensors of the call it is a size of, or None for a number.
        axis: Of which dimension.
    """

    symbol: str
    text: str
    result: int | None = None
    axis: int = 0

    @property
    def is_news(self) -> bool:
        """Whether the expression is another one than the symbol."""
        return self.text != self.symbol


def symbol_facts(value: object) -> Iterator[SymbolFact]:
    """Yield the facts about sizes and numbers in the traced result of a call."""
    if isinstance(value, SYMBOLIC_TYPES):
        symbol = _symbol(value)
        if symbol is not None:
            yield SymbolFact(symbol, expression_text(value.node.expr))
        return
    results = cast(Sequence[object], value) if isinstance(value, list | tuple) else (value,)
    tensors = [item for item in results if isinstance(item, torch.Tensor)]
    for position, tensor in enumerate(tensors):
        sizes = cast(Iterable[Any], tensor.shape if tensor.layout is torch.strided else ())
        for axis, size in enumerate(sizes):
            symbol = _symbol(size) if isinstance(size, torch.SymInt) else None
            if symbol is not None:
                yield SymbolFact(symbol, expression_text(size.node.expr), position, axis)


def _symbol(value: Any) -> str | None:
    """The symbol as which a number from data was made, if it is nothing else."""
    made = symbol_of(value)
    is_from_data = made is not None and symbol_is_type(
        made, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)
    )
    return str(made) if is_from_data else None


def runtime_asserts(facts: Iterable[SymbolFact], node: OpNode, names: Names) -> Iterator[OpNode]:
    """Yield the nodes that check what torch has proved about the results of a node.

    Args:
        facts: The facts.
        node: The node that makes the numbers.
        names: Those that the graph leaves free.
    """
    for fact in facts:
        symbol, text = fact.symbol, fact.text
        if fact.result is not None:
            name = names.beside(node.name, "size")
            yield size_read(name, node.outputs[fact.result], fact.axis, symbol, node.location)
        message = f"Runtime assertion failed for expression {symbol} == {text}"
        name = names.beside(node.name, "is")
        yield assertion(name, f"{symbol} == ({text})", message, node.location)


def counted_facts(operator: object, outputs: Sequence[TensorMeta]) -> Iterator[SymbolFact]:
    """Yield that a size which an operator counts is a number, where torch counted in a constant.

    Args:
        operator: The operator.
        outputs: The tensors that a call of it gives.
    """
    if str(operator) in _COUNTING and all(meta.is_static for meta in outputs):
        yield SymbolFact("", str(outputs[0].shape[0]), 0, 0)


_COUNTING = frozenset(
    f"aten.{name}"
    for name in (
        *("argwhere.default", "nonzero.default", "nonzero_numpy.default", "where.default"),
        *("_unique.default", "_unique2.default", "unique_consecutive.default"),
        *("unique_dim.default", "masked_select.default"),
    )
)


def squeeze_asserts(node: OpNode, from_data: Set[str], names: Names) -> Iterator[OpNode]:
    """Yield the nodes that check that a squeeze leaves the dimensions that torch recorded.

    torch takes a size from data to be no 1, and no program that it traces says so.

    Args:
        node: A node of any operator.
        from_data: The symbols of sizes from data.
        names: Those that the graph leaves free.
    """
    if not node.op_type.startswith(("aten.squeeze.", "aten.squeeze_.")):
        return
    shape = node.inputs[0].shape
    dims = node.attrs.get("dim", range(len(shape)))
    sizes = [shape[dim] for dim in (dims if isinstance(dims, tuple | range) else (dims,)) if shape]
    for size in dict.fromkeys(size for size in sizes if isinstance(size, SymExpr)):
        if not from_data.isdisjoint(size.symbols):
            kept = f"{size} != 1"
            message = f"torch.export took it that squeeze leaves a dimension from data: {kept}"
            yield assertion(names.beside(node.name, "keeps"), kept, message, node.location)
