"""IR text to an IR: one pass over the lines, then every name is looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch_ir.errors import InvalidIRError, ParseError, did_you_mean
from torch_ir.frozen import FrozenDict
from torch_ir.ir.graph import IR, Mutation, SymbolRange
from torch_ir.ir.node import Location, OpNode
from torch_ir.ir.symbols import Dim, SymExpr
from torch_ir.ir.tensor import Constant, TensorMeta, as_constant, type_text
from torch_ir.ir.text.calls import Call, Reference, bind_call, read_call, read_slot
from torch_ir.ir.text.constants import constant_from_values, read_view
from torch_ir.ir.text.lexer import (
    TOKEN,
    Line,
    parse_int,
    read_int,
    read_sigil,
    read_string,
    read_word,
    unquote_name,
)
from torch_ir.ir.text.locations import read_location
from torch_ir.ir.text.printer import derived_name, result_index
from torch_ir.ir.text.scope import Scope
from torch_ir.ir.text.trees import read_tree
from torch_ir.ir.text.values import read_type, read_value
from torch_ir.ir.text.views import WrittenView, with_views
from torch_ir.ir.tree import Signature
from torch_ir.ir.values import Attribute
from torch_ir.ops.schema import parse_schema

MAX_FUNCTIONS = 100
"""How deep functions may nest."""

MAX_COMPARED = 200
"""Names up to this length are compared when the closest one is looked for."""

_NODE_PRODUCER = object()


def parse(text: str, *, constants: Mapping[str, Any] | None = None) -> IR:
    """Parse a text to the IR that it spells.

    Args:
        text: What ``str(ir)`` gives, or hand-written text of the same grammar (``docs/text.md``).
        constants: Values for the constants that the text names by hash only, by key; those of a
            function by the function's name and the key, ``"body/idx"``. Each a Constant, a
            ``torch.Tensor`` or a NumPy array. Constants without values here stay without data, and
            are equal to those with data.

    Raises:
        ParseError: The text is not IR text (the message shows the line), or a value given in
            ``constants`` is not the one that the text names.

    Example:
        >>> ir = parse('''
        ... ir "Scale" {
        ...   constant @two: f32[] = 2.0
        ...   input %x: f32[3]
        ...   %y: f32[3] = aten.mul.Tensor(%x, @two)
        ...   return %y
        ... }''')
        >>> ir.nodes[0].operands, parse(str(ir)) == ir
        ({'self': 0, 'other': 1}, True)
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
        raise ParseError(f"IR text is a str, got {type(text).__name__}")
    reader = _Reader(constants or {})
    for number, raw in enumerate(text.split("\n"), 1):
        line = Line(number, raw, TOKEN.findall(raw))
        if line.next:
            reader.read(line)
    return reader.finish()


@dataclass(frozen=True, slots=True)
class _Node:
    """A node whose references are not looked up yet."""

    name: str
    call: Call
    outputs: tuple[TensorMeta, ...]
    location: Location | None
    binds: dict[str, int]


class _Graph:
    """An IR in the making."""

    def __init__(self, opened: Line, model_name: str, name: str = ""):
        self.opened = opened
        self.name = name
        self.fields: dict[str, Any] = {"model_name": model_name}
        self.symbols: dict[str, SymbolRange] = {}
        self.weights: list[TensorMeta] = []
        self.constants: dict[str, Constant] = {}
        self.views: dict[str, WrittenView] = {}
        self.names: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
        self.operators: dict[str, str] = {}
        self.guards: list[SymExpr] = []
        self.metadata: dict[str, Attribute] = {}
        self.functions: dict[str, IR] = {}
        self.inputs: list[TensorMeta] = []
        self.mutations: list[tuple[Reference, Reference]] = []
        self.nodes: list[_Node] = []
        self.returned: list[Reference] | None = None

    def build(self) -> IR:
        """The IR, with every reference looked up."""
        results = [meta for node in self.nodes for meta in node.outputs]
        known = with_views(self.constants, self.views)
        constants = {key: known[key] for key in sorted(known)}
        scope = Scope([*self.inputs, *results], self.weights, constants, self.names)

        def resolve(reference: Reference) -> TensorMeta:
            if reference.meta is not None:
                return reference.meta
            return scope.find(reference.mark, reference.name) or _refuse(reference, scope)

        def target(reference: Reference) -> str:
            return resolve(reference).name if reference.mark == "@" else reference.name

        nodes: list[OpNode] = []
        for node in self.nodes:
            call = node.call
            inputs, operands, attrs = bind_call(call, resolve)
            rest = (attrs, operands, node.location, FrozenDict(node.binds))
            nodes.append(OpNode(node.name, call.op_type, inputs, node.outputs, *rest))
        return IR(
            nodes=tuple(nodes),
            graph_inputs=tuple(self.inputs),
            graph_outputs=tuple([resolve(reference) for reference in self.returned or ()]),
            weights=tuple(self.weights),
            weight_name_mapping=FrozenDict(self.names),
            constants=FrozenDict(constants),
            symbols=FrozenDict(self.symbols),
            functions=FrozenDict(self.functions),
            mutations=tuple(
                [Mutation(target(to), resolve(value)) for to, value in self.mutations]
            ),
            weight_aliases=FrozenDict(self.aliases),
            operators=FrozenDict(self.operators),
            guards=tuple(self.guards),
            metadata=FrozenDict(self.metadata),
            **self.fields,
        )


def _closest(name: str, names: Iterable[str]) -> str:
    """The closest names; comparing very long ones would take too long."""
    if len(name) > MAX_COMPARED:
        return ""
    return did_you_mean(name, [other for other in names if len(other) <= MAX_COMPARED])


def _refuse(reference: Reference, scope: Scope) -> TensorMeta:
    if reference.mark == "#":
        raise reference.line.error(
            "inputs by number need the list of inputs",
            at=reference.at,
            remedy="As in aten.add.Tensor(#0, #0) of [%x].",
        )
    name = f"{reference.mark}{reference.name}"
    if reference.mark == "@":
        raise reference.line.error(
            f"there is no weight or constant {name}",
            at=reference.at,
            remedy=_closest(reference.name, scope.keys),
        )
    raise reference.line.error(
        f"{name} is not defined",
        at=reference.at,
        remedy=_closest(reference.name, [*scope.values, *scope.external])
        or f"A value without definition is written with its type, as in {name}: f32[2].",
    )


class _Reader:
    """Statement by statement, with the graphs that are open."""

    def __init__(self, constants: Mapping[str, Any]):
        self.given = constants
        self.taken: set[str] = set()
        self.open: list[_Graph] = []
        self.types: dict[str, tuple[str, tuple[Dim, ...]]] = {}
        self.result: IR | None = None
        self.last: Line | None = None

    def read(self, line: Line) -> None:
        """One line that is not empty."""
        self.last = line
        token = line.next
        if not self.open:
            self._open(line)
        elif token[0] == "%" or line.tokens[1] == ":":
            self._node(line)
        elif token == "}":
            line.take()
            line.end()
            self._close()
        else:
            statement = _STATEMENTS.get(token)
            if statement is None:
                raise _unknown_statement(line)
            line.take()
            statement(self, line, self.open[-1])
            if token != "func":
                line.end()

    def finish(self) -> IR:
        """The IR of the whole text."""
        if self.open:
            raise self.open[-1].opened.error(
                "the bracket { is never closed", at=len(self.open[-1].opened.tokens) - 2
            )
        if self.result is None:
            raise ParseError("the text holds no IR", remedy='It begins with: ir "name" {')
        unknown = sorted(set(self.given) - self.taken)
        if unknown:
            raise ParseError(
                f"the text has no constant {unknown[0]!r}, for which a value is given",
                remedy=did_you_mean(unknown[0], self.taken),
            )
        return self.result

    def _open(self, line: Line) -> None:
        if self.result is not None:
            raise line.error("the text goes on behind the end of the IR")
        if not line.accept("ir"):
            raise line.error(
                f"expected an IR, got {line.next!r:.60}",
                remedy='The text begins with: ir "name" {',
            )
        name = read_string(line, "the name of the model") if line.next != "{" else ""
        line.expect("{")
        line.end()
        self.open.append(_Graph(line, name))

    def _close(self) -> None:
        graph = self.open.pop()
        ir = graph.build()
        if self.open:
            self.open[-1].functions[graph.name] = ir
        else:
            self.result = ir

    # -- nodes ------------------------------------------------------------------------------------

    def _node(self, line: Line) -> None:
        results: list[tuple[str, str, tuple[Dim, ...], object, int | None]] = []
        if line.next[0] == "%":
            results.append(self._result(line))
            while line.accept(","):
                results.append(self._result(line))
            line.expect("=")
        label: str | None = None
        if line.tokens[line.at + 1 : line.at + 2] == [":"]:
            label = read_word(line, "the name of a node")
            line.expect(":")
        call = read_call(line, self._reference)
        binds = self._bound(line) if line.accept("->") else {}
        line.end()
        graph = self.open[-1]
        outputs, name = _outputs(line, label, results)
        graph.nodes.append(_Node(name, call, outputs, read_location(line), binds))

    def _bound(self, line: Line) -> dict[str, int]:
        """``-> u0, u1#1``: the symbols that take their value from results."""
        binds: dict[str, int] = {}
        while True:
            at = line.at
            symbol = read_word(line, "a symbol")
            self._new(line, binds, symbol, f"the symbol {symbol}", at)
            is_numbered = line.next[:1] == "#"
            binds[symbol] = parse_int(line, line.take()[1:]) if is_numbered else 0
            if not line.accept(","):
                return binds

    def _result(self, line: Line) -> tuple[str, str, tuple[Dim, ...], object, int | None]:
        name = read_sigil(line, "%", "a result")
        line.expect(":")
        dtype, shape = read_type(line, self.types)
        producer, index = _producer(line)
        return name, dtype, shape, producer, index

    def _reference(self, line: Line) -> Reference:
        token = line.next
        at = line.at
        if token[:1] == "#":
            return read_slot(line)
        if token[:1] not in ("%", "@") or len(token) < 2 or token in ("%[", "%None"):
            raise line.unexpected("a tensor such as %x or @weight")
        line.at += 1
        name = unquote_name(line, token)
        if token[0] == "%" and line.accept(":"):
            return Reference(line, at, "%", name, self._meta(line, name))
        return Reference(line, at, token[0], name)

    def _meta(self, line: Line, name: str) -> TensorMeta:
        """The rest of a definition outside of nodes, behind the colon."""
        dtype, shape = read_type(line, self.types)
        if line.next != "from" and line.next[:1] != "#":
            return TensorMeta(name, shape, dtype)
        producer, index = _producer(line)
        node = None if producer is _NODE_PRODUCER else producer
        return TensorMeta(name, shape, dtype, node, index or 0)  # type: ignore[arg-type]  # str or None by now

    # -- other statements -------------------------------------------------------------------------

    def read_torch(self, line: Line, graph: _Graph) -> None:
        self._once(line, graph, "pytorch_version", read_string(line, "a version"))

    def read_dialect(self, line: Line, graph: _Graph) -> None:
        self._once(line, graph, "dialect", read_string(line, "a dialect"))

    def read_signature(self, line: Line, graph: _Graph) -> None:
        inputs = read_tree(line)
        line.expect("->")
        self._once(line, graph, "signature", Signature(inputs, read_tree(line)))

    def _once(self, line: Line, graph: _Graph, name: str, value: object) -> None:
        self._new(line, graph.fields, name, line.tokens[0], 0)
        graph.fields[name] = value

    def _new(
        self, line: Line, known: Mapping[str, object], name: str, what: str, at: int = 1
    ) -> None:
        if name in known:
            raise line.error(f"{what} is given twice", at=at)

    def read_symbol(self, line: Line, graph: _Graph) -> None:
        name = read_word(line, "a symbol")
        self._new(line, graph.symbols, name, f"the symbol {name}")
        line.expect(":")
        lower = None if line.next == ".." else read_int(line)
        line.expect("..")
        try:
            graph.symbols[name] = SymbolRange(lower, read_int(line) if line.next else None)
        except InvalidIRError as error:
            raise line.error(error.message, at=3) from None

    def read_weight(self, line: Line, graph: _Graph) -> None:
        key = read_sigil(line, "@", "a weight")
        line.expect(":")
        graph.weights.append(self._meta(line, key))
        self._as(line, graph, key)

    def _as(self, line: Line, graph: _Graph, key: str) -> None:
        """``as %a, %b``: the names under which nodes use a key."""
        if not line.accept("as"):
            return
        while True:
            at = line.at
            name = read_sigil(line, "%", "a name")
            self._new(line, graph.names, name, f"the name %{name}", at)
            graph.names[name] = key
            if not line.accept(","):
                return

    def read_constant(self, line: Line, graph: _Graph) -> None:
        key = read_sigil(line, "@", "a constant")
        for known in (graph.constants, graph.views):
            self._new(line, known, key, f"the constant @{key}")
        line.expect(":")
        at = line.at
        dtype, dims = read_type(line, self.types)
        shape = tuple([dim for dim in dims if isinstance(dim, int)])
        if len(shape) < len(dims):
            raise line.error("a constant has no symbolic dimensions", at=at)
        self._as(line, graph, key)
        line.expect("=")
        path = "/".join([opened.name for opened in self.open[1:]] + [key])
        if line.accept("view"):
            at, view = line.at - 1, read_view(line)
            given = self._value(line, path)
            graph.views[key] = WrittenView(line, at, dtype, shape, view, path, given)
            return
        constant = self._values(line, dtype, shape)
        graph.constants[key] = self._given(line, path, constant)

    def _values(self, line: Line, dtype: str, shape: tuple[int, ...]) -> Constant:
        at = line.at
        kind, _, digits = line.next.partition(":")
        try:
            if kind == "sha256":
                line.take()
                return Constant(dtype, shape, None, digits)
            if kind == "bytes":
                line.take()
                return Constant(dtype, shape, bytes.fromhex(digits))
            return constant_from_values(dtype, shape, read_value(line))
        except (InvalidIRError, ValueError) as error:
            if isinstance(error, ParseError):
                raise
            message = getattr(error, "message", "bytes are written as pairs of hexadecimal digits")
            raise line.error(message, at=at) from None

    def _value(self, line: Line, path: str) -> Constant | None:
        """The value that is given for a constant, or None."""
        self.taken.add(path)
        if path not in self.given:
            return None
        try:
            return as_constant(self.given[path])
        except InvalidIRError as error:
            raise line.error(
                f"the value given for @{path}: {error.message}", remedy=error.remedy
            ) from None

    def _given(self, line: Line, path: str, constant: Constant) -> Constant:
        value = self._value(line, path)
        if value is None:
            return constant
        if value != constant:
            raise line.error(
                f"the value given for @{path} is another one",
                at=len(line.tokens) - 2,
                remedy=f"It is a {type_text(value)} with sha256:{value.digest()}.",
            )
        return value

    def read_name(self, line: Line, graph: _Graph) -> None:
        name = read_sigil(line, "%", "a name")
        self._new(line, graph.names, name, f"the name %{name}")
        line.expect("=")
        graph.names[name] = read_sigil(line, "@", "a weight or constant")

    def read_guard(self, line: Line, graph: _Graph) -> None:
        guard = read_value(line)
        if not isinstance(guard, SymExpr):
            raise line.error("a guard is an expression in backquotes", at=1)
        graph.guards.append(guard)

    def read_operator(self, line: Line, graph: _Graph) -> None:
        text = read_string(line, "a schema")
        try:
            op_type = parse_schema(text).op_type
        except InvalidIRError as error:
            raise line.error(error.message, at=1) from None
        self._new(line, graph.operators, op_type, f"the operator {op_type}")
        graph.operators[op_type] = text

    def read_alias(self, line: Line, graph: _Graph) -> None:
        alias = read_sigil(line, "@", "a weight")
        self._new(line, graph.aliases, alias, f"the alias @{alias}")
        line.expect("=")
        graph.aliases[alias] = read_sigil(line, "@", "a weight")

    def read_metadata(self, line: Line, graph: _Graph) -> None:
        key = read_string(line, "a key")
        self._new(line, graph.metadata, key, f"the metadata {key!r}")
        line.expect("=")
        graph.metadata[key] = read_value(line)

    def read_mutate(self, line: Line, graph: _Graph) -> None:
        target = self._reference(line)
        line.expect("=")
        graph.mutations.append((target, self._reference(line)))

    def read_function(self, line: Line, graph: _Graph) -> None:
        name = read_sigil(line, "&", "a function")
        self._new(line, graph.functions, name, f"the function &{name}")
        if len(self.open) > MAX_FUNCTIONS:
            raise line.error(f"functions nest more than {MAX_FUNCTIONS} deep", at=0)
        title = read_string(line, "the name of the model") if line.next != "{" else ""
        line.expect("{")
        line.end()
        self.open.append(_Graph(line, title, name))

    def read_input(self, line: Line, graph: _Graph) -> None:
        name = read_sigil(line, "%", "an input")
        line.expect(":")
        graph.inputs.append(self._meta(line, name))

    def read_return(self, line: Line, graph: _Graph) -> None:
        if graph.returned is not None:
            raise line.error("return is given twice", at=0)
        graph.returned = []
        while line.next:
            if graph.returned:
                line.expect(",")
            graph.returned.append(self._reference(line))


_STATEMENTS: dict[str, Callable[[_Reader, Line, _Graph], None]] = {
    "torch": _Reader.read_torch,
    "dialect": _Reader.read_dialect,
    "symbol": _Reader.read_symbol,
    "weight": _Reader.read_weight,
    "constant": _Reader.read_constant,
    "name": _Reader.read_name,
    "alias": _Reader.read_alias,
    "operator": _Reader.read_operator,
    "guard": _Reader.read_guard,
    "metadata": _Reader.read_metadata,
    "mutate": _Reader.read_mutate,
    "signature": _Reader.read_signature,
    "func": _Reader.read_function,
    "input": _Reader.read_input,
    "return": _Reader.read_return,
}


def _unknown_statement(line: Line) -> ParseError:
    token = line.next
    if token == "{":
        return line.error("nothing is opened here")
    return line.error(
        f"{token!r:.60} is not a statement",
        remedy=_closest(token, _STATEMENTS)
        or "A statement is a node (%y: f32[2] = aten.relu.default(%x)) or begins with one of "
        f"{', '.join(_STATEMENTS)}.",
    )


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
