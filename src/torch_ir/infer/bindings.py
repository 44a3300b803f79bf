"""The values of symbols: from the shapes and numbers of a call, and from results of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_ir.ir import IR, FrozenDict, OpNode, SymbolRange, SymExpr, TensorMeta
from torch_ir.ir.builder import ASSERTION, SIZE, Names, assertion, size_read
from torch_ir.ir.expressions import Number
from torch_ir.ir.symbols import solved_symbols
from torch_ir.ops.aliases import KEEP_ORDER

if TYPE_CHECKING:
    import torch

Symbols = dict[str, Number]
"""The value of each symbol that is known so far."""


def bind_inputs(
    metas: Sequence[TensorMeta],
    tensors: Sequence[torch.Tensor],
    numbers: Mapping[str, Number] = FrozenDict(),
) -> Symbols:
    """Solve for the symbols that the arguments of a call determine, as :func:`solved_symbols`.

    Args:
        metas: The inputs of the program.
        tensors: Those of the call.
        numbers: The value of each symbol, or expression of symbols, that is a number of the call.
    """
    pairs = zip(metas, tensors, strict=True)
    shapes = [(meta.shape, tensor.shape) for meta, tensor in pairs if not meta.is_static]
    return solved_symbols(shapes, numbers)


@dataclass(frozen=True, slots=True)
class Binding:
    """A symbol that takes its value from a result of a node.

    Attributes:
        symbol: Its name.
        result: Position among the node's flattened results.
        axis: Dimension of that result; None if the result is itself the number.
    """

    symbol: str
    result: int
    axis: int | None

    def read(self, results: Sequence[Any]) -> Number:
        """Read the value from the results of the node."""
        value = results[self.result]
        if self.axis is not None:
            return int(value.shape[self.axis])
        return int(value) if isinstance(value, bool) else value


class Bindings:
    """Finds, node by node in program order, the symbols that get their value from results."""

    def __init__(self, ir: IR):
        self._known = set(ir.given_symbols)

    def of(self, node: OpNode) -> tuple[Binding, ...]:
        """Return the symbols that this node gives a value."""
        found = [Binding(symbol, result, None) for symbol, result in node.binds.items()]
        for meta in node.outputs:
            for axis, dim in () if meta.is_static else enumerate(meta.shape):
                if isinstance(dim, SymExpr) and dim.is_symbol and dim.text not in self._known:
                    found.append(Binding(dim.text, meta.producer_output_idx, axis))
                    self._known.add(dim.text)
        self._known.update(node.binds)
        return tuple(found)


class DataSizes:
    """The dimensions of a program whose sizes data decides, as it records and reads them.

    Args:
        ir: The program.
    """

    def __init__(self, ir: IR):
        bindings = Bindings(ir)
        self._bound = {
            node.name: frozenset([b.symbol for b in bindings.of(node) if b.axis is not None])
            for node in ir.nodes
        }
        self._ir = ir
        self._counting: dict[tuple[str, str], list[OpNode]] = {}
        self._read: dict[tuple[str, object], set[str]] = {}
        self._asserted: set[SymExpr] = set()
        for node in ir.nodes:
            counted = self._counted(node) if self._bound[node.name] else None
            if counted is not None:
                self._counting.setdefault(counted, []).append(node)
            condition = node.attrs.get("self")
            if node.op_type == SIZE and len(node.inputs) == 1:
                place = (node.inputs[0].name, node.attrs.get("dim"))
                self._read.setdefault(place, set()).update(node.binds)
            elif node.op_type == ASSERTION and isinstance(condition, SymExpr):
                self._asserted.add(condition)

    def bound(self, node: OpNode) -> frozenset[str]:
        """Return the symbols that a node binds to sizes of its results."""
        return self._bound.get(node.name, frozenset())

    def is_counted(self, node: OpNode, symbol: str) -> bool:
        """Return whether a symbol is what an earlier node counted in the same unchanged data."""
        counted = self._counted(node)
        return counted is not None and any(
            symbol in self._bound[other.name]
            and not self._ir.aliases.is_written_after(counted[1], other)
            for other in self._counting.get(counted, ())
        )

    def _counted(self, node: OpNode) -> tuple[str, str] | None:
        """What a node counts to give the size of its result, and the value that it counts it in.

        torch gives two nodes that count the same the same symbol.
        """
        what, argument = _COUNTS.get(node.op_type, ("", ""))
        if not what or node.argument("dim") is not None:
            return None
        given = node.tensors(argument)
        counted = {self._same_elements(meta.name) for meta in given}
        is_mask = argument != "indices" or {meta.dtype for meta in given} <= _MASKS
        # different indices are broadcast, and the size is that of neither
        return (what, counted.pop()) if is_mask and len(counted) == 1 else None

    def _same_elements(self, name: str) -> str:
        """The first value that has the elements of one, both never written, as ``to`` may give."""
        while (node := self._ir.producers.get(name)) is not None and node.op_type in KEEP_ORDER:
            given, is_written = node.inputs[0], self._ir.aliases.is_written
            kept = given.dtype == node.outputs[0].dtype
            if not kept or is_written(name) or is_written(given.name):
                break
            name = given.name
        return name

    def unexplained(self, node: OpNode) -> list[tuple[TensorMeta, int]]:
        """Return the results, and axes, whose size a node counts, and nothing explains."""
        if node.op_type not in _COUNTS:
            return []
        return [
            (meta, axis)
            for meta in node.outputs
            for axis, dim in enumerate(meta.shape)
            if isinstance(dim, SymExpr)
            and not (dim.text in self.bound(node) or self.is_counted(node, dim.text))
            and not self.is_asserted(meta, axis)
        ]

    def is_asserted(self, meta: TensorMeta, axis: int) -> bool:
        """Return whether a program reads a size, and asserts that it is as recorded."""
        return any(
            SymExpr(f"({symbol}) == ({meta.shape[axis]})") in self._asserted
            for symbol in self._read.get((meta.name, axis), ())
        )


def with_checked_sizes(ir: IR) -> IR:
    """Return a program that checks each size which only nodes that are no longer there explain.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   symbol u0: 0..2
        ...   input %x: f32[u0]
        ...   input %mask: b8[2]
        ...   input %y: f32[2]
        ...   %z: f32[u0] = aten.index.Tensor(%y, [%mask])
        ...   return %z
        ... }''')
        >>> [node.name for node in with_checked_sizes(ir).nodes]
        ['z', 'z_size', 'z_checked']
    """
    sizes, nodes, symbols = DataSizes(ir), list[OpNode](), dict(ir.symbols)
    names, unused = Names.of(ir), Names(ir.symbols)
    for node in ir.nodes:
        nodes.append(node)
        for meta, axis in sizes.unexplained(node):
            size = unused.fresh("u_size")
            symbols[size] = SymbolRange(0, None)
            message = f"the size of %{meta.name} along axis {axis} is not as recorded"
            condition = f"({size}) == ({meta.shape[axis]})"
            nodes += [
                size_read(names.beside(node.name, "size"), meta, axis, size),
                assertion(names.beside(node.name, "checked"), condition, message),
            ]
    return ir.replace(nodes=nodes, symbols=symbols) if len(symbols) > len(ir.symbols) else ir


_MASKS = frozenset({"bool", "uint8"})

_COUNTS = {
    "aten.argwhere.default": ("nonzero", "self"),
    "aten.index.Tensor": ("nonzero", "indices"),
    "aten.nonzero.default": ("nonzero", "self"),
    "aten.nonzero_numpy.default": ("nonzero", "self"),
    "aten.where.default": ("nonzero", "condition"),
    "aten._unique.default": ("unique", "self"),
    "aten._unique2.default": ("unique", "self"),
    "aten.unique_consecutive.default": ("unique_consecutive", "self"),
}
"""What each operator counts, and the argument that it counts it in."""
