"""Nodes, references and definitions of a text, read from its lines."""

from __future__ import annotations

from typing import TypeAlias

from torch_ir.ir.symbols import Dim
from torch_ir.ir.tensor import TensorMeta
from torch_ir.ir.text.calls import Reference, read_call, read_slot
from torch_ir.ir.text.draft import Draft, DraftNode, require_new
from torch_ir.ir.text.lexer import Line, parse_int, read_sigil, read_word, unquote_name
from torch_ir.ir.text.locations import read_location
from torch_ir.ir.text.printer import derived_name, result_index
from torch_ir.ir.text.value_text import read_type

Types: TypeAlias = dict[str, tuple[str, tuple[Dim, ...]]]
"""Types that have been read, by their text."""

_NODE_PRODUCER = object()


def read_node(line: Line, types: Types) -> DraftNode:
    """Read a node whose references are not looked up yet."""
    results: list[tuple[str, str, tuple[Dim, ...], object, int | None]] = []
    if line.next[0] == "%":
        results.append(_result(line, types))
        while line.accept(","):
            results.append(_result(line, types))
        line.expect("=")
    label: str | None = None
    if line.tokens[line.at + 1 : line.at + 2] == [":"]:
        label = read_word(line, "the name of a node")
        line.expect(":")
    call = read_call(line, lambda line: read_reference(line, types))
    binds = _bound(line) if line.accept("->") else {}
    line.end()
    outputs, name = _outputs(line, label, results)
    return DraftNode(name, call, outputs, read_location(line), binds)


def _bound(line: Line) -> dict[str, int]:
    """``-> u0, u1#1``: the symbols that take their value from results."""
    binds: dict[str, int] = {}
    while True:
        at = line.at
        symbol = read_word(line, "a symbol")
        require_new(line, binds, symbol, f"the symbol {symbol}", at)
        is_numbered = line.next[:1] == "#"
        binds[symbol] = parse_int(line, line.take()[1:]) if is_numbered else 0
        if not line.accept(","):
            return binds


def _result(line: Line, types: Types) -> tuple[str, str, tuple[Dim, ...], object, int | None]:
    name = read_sigil(line, "%", "a result")
    line.expect(":")
    dtype, shape = read_type(line, types)
    producer, index = _producer(line)
    return name, dtype, shape, producer, index


def read_reference(line: Line, types: Types) -> Reference:
    """Read a value where it is used, or where it is defined outside of nodes."""
    token = line.next
    at = line.at
    if token[:1] == "#":
        return read_slot(line)
    if token[:1] not in ("%", "@") or len(token) < 2 or token in ("%[", "%None"):
        raise line.unexpected("a tensor such as %x or @weight")
    line.at += 1
    name = unquote_name(line, token)
    if token[0] == "%" and line.accept(":"):
        return Reference(line, at, "%", name, read_meta(line, name, types))
    return Reference(line, at, token[0], name)


def read_meta(line: Line, name: str, types: Types) -> TensorMeta:
    """Read the rest of a definition outside of nodes, behind the colon."""
    dtype, shape = read_type(line, types)
    if line.next != "from" and line.next[:1] != "#":
        return TensorMeta(name, shape, dtype)
    producer, index = _producer(line)
    node = None if producer is _NODE_PRODUCER else producer
    return TensorMeta(name, shape, dtype, node, index or 0)  # type: ignore[arg-type]  # str or None by now


def read_names(line: Line, graph: Draft, key: str) -> None:
    """Read ``as %a, %b``: the names under which nodes use a key."""
    if not line.accept("as"):
        return
    while True:
        at = line.at
        name = read_sigil(line, "%", "a name")
        require_new(line, graph.names, name, f"the name %{name}", at)
        graph.names[name] = key
        if not line.accept(","):
            return


def _producer(line: Line) -> tuple[object, int | None]:
    """``from node#1``: producer and number of the result, each as far as it is said."""
    producer: object = _NODE_PRODUCER
    if line.accept("from"):
        producer = None if line.accept("none") else read_word(line, "a node")
    index = None
    if line.next[:1] == "#":
        index = parse_int(line, line.take()[1:])
    return producer, index


def _outputs(
    line: Line,
    label: str | None,
    results: list[tuple[str, str, tuple[Dim, ...], object, int | None]],
) -> tuple[tuple[TensorMeta, ...], str]:
    """The results of a node with all that goes without saying, and the node's name."""
    outputs = tuple([TensorMeta(name, shape, dtype) for name, dtype, shape, _, _ in results])
    node = derived_name(outputs) if label is None else label
    if node is None:
        raise line.error(
            "the node has no name",
            at=0,
            remedy="Name it, as in %a: f32[2], %b: f32[2] = pair: my.op.default(%x).",
        )
    metas: list[TensorMeta] = []
    for position, (name, dtype, shape, producer, index) in enumerate(results):
        producer = node if producer is _NODE_PRODUCER else producer
        index = result_index(node, name, position) if index is None else index
        metas.append(TensorMeta(name, shape, dtype, producer, index))  # type: ignore[arg-type]  # str or None by now
    return tuple(metas), node
