"""IR text to an IR: one pass over the lines, then every name is looked up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch_ir.errors import InvalidIRError, ParseError, did_you_mean
from torch_ir.ir.expressions import expressions_of
from torch_ir.ir.graph import IR, SymbolRange
from torch_ir.ir.symbols import SymExpr
from torch_ir.ir.text.draft import Draft, require_new
from torch_ir.ir.text.given_constants import ConstantReader
from torch_ir.ir.text.lexer import TOKEN, Line, read_int, read_sigil, read_string, read_word
from torch_ir.ir.text.nodes import Types, read_meta, read_names, read_node, read_reference
from torch_ir.ir.text.trees import read_tree
from torch_ir.ir.text.value_text import read_value
from torch_ir.ir.tree import Signature
from torch_ir.ops.schema import parse_schema
from torch_ir.steps import uncollected

MAX_FUNCTIONS = 100
"""How deep functions may nest."""


@uncollected()
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
    with expressions_of(len(text)):
        for number, raw in enumerate(text.split("\n"), 1):
            raw = raw.rstrip(" \t\r\f\v")  # behind which no token is looked for again and again
            line = Line(number, raw, TOKEN.findall(raw))
            if line.next:
                reader.read(line)
        return reader.finish()


class _Reader:
    """Statement by statement, with the graphs that are open."""

    def __init__(self, constants: Mapping[str, Any]):
        self.types: Types = {}
        self.constants = ConstantReader(constants, self.types)
        self.open: list[Draft] = []
        self.result: IR | None = None
        self.last: Line | None = None

    def read(self, line: Line) -> None:
        """One line that is not empty."""
        self.last = line
        token = line.next
        if not self.open:
            self._open(line)
        elif token[0] == "%" or line.tokens[1] == ":":
            self.open[-1].nodes.append(read_node(line, self.types))
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
        self.constants.finish()
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
        self.open.append(Draft(line, name))

    def _close(self) -> None:
        graph = self.open.pop()
        ir = graph.build()
        if self.open:
            self.open[-1].functions[graph.name] = ir
        else:
            self.result = ir

    # -- other statements -------------------------------------------------------------------------

    def read_torch(self, line: Line, graph: Draft) -> None:
        self._once(line, graph, "pytorch_version", read_string(line, "a version"))

    def read_dialect(self, line: Line, graph: Draft) -> None:
        self._once(line, graph, "dialect", read_string(line, "a dialect"))

    def read_signature(self, line: Line, graph: Draft) -> None:
        inputs = read_tree(line)
        line.expect("->")
        self._once(line, graph, "signature", Signature(inputs, read_tree(line)))

    def _once(self, line: Line, graph: Draft, name: str, value: object) -> None:
        require_new(line, graph.fields, name, line.tokens[0], 0)
        graph.fields[name] = value

    def read_symbol(self, line: Line, graph: Draft) -> None:
        name = read_word(line, "a symbol")
        require_new(line, graph.symbols, name, f"the symbol {name}")
        line.expect(":")
        lower = None if line.next == ".." else read_int(line)
        line.expect("..")
        try:
            graph.symbols[name] = SymbolRange(lower, read_int(line) if line.next else None)
        except InvalidIRError as error:
            raise line.error(error.message, at=3) from None

    def read_weight(self, line: Line, graph: Draft) -> None:
        key = read_sigil(line, "@", "a weight")
        line.expect(":")
        graph.weights.append(read_meta(line, key, self.types))
        read_names(line, graph, key)

    def read_constant(self, line: Line, graph: Draft) -> None:
        self.constants.read(line, graph, [opened.name for opened in self.open[1:]])

    def read_name(self, line: Line, graph: Draft) -> None:
        name = read_sigil(line, "%", "a name")
        require_new(line, graph.names, name, f"the name %{name}")
        line.expect("=")
        graph.names[name] = read_sigil(line, "@", "a weight or constant")

    def read_guard(self, line: Line, graph: Draft) -> None:
        guard = read_value(line)
        if not isinstance(guard, SymExpr):
            raise line.error("a guard is an expression in backquotes", at=1)
        graph.guards.append(guard)

    def read_operator(self, line: Line, graph: Draft) -> None:
        text = read_string(line, "a schema")
        try:
            op_type = parse_schema(text).op_type
        except InvalidIRError as error:
            raise line.error(error.message, at=1) from None
        require_new(line, graph.operators, op_type, f"the operator {op_type}")
        graph.operators[op_type] = text

    def read_alias(self, line: Line, graph: Draft) -> None:
        alias = read_sigil(line, "@", "a weight")
        require_new(line, graph.aliases, alias, f"the alias @{alias}")
        line.expect("=")
        graph.aliases[alias] = read_sigil(line, "@", "a weight")

    def read_metadata(self, line: Line, graph: Draft) -> None:
        key = read_string(line, "a key")
        require_new(line, graph.metadata, key, f"the metadata {key!r}")
        line.expect("=")
        graph.metadata[key] = read_value(line)

    def read_mutate(self, line: Line, graph: Draft) -> None:
        target = read_reference(line, self.types)
        line.expect("=")
        graph.mutations.append((target, read_reference(line, self.types)))

    def read_function(self, line: Line, graph: Draft) -> None:
        name = read_sigil(line, "&", "a function")
        require_new(line, graph.functions, name, f"the function &{name}")
        if len(self.open) > MAX_FUNCTIONS:
            raise line.error(f"functions nest more than {MAX_FUNCTIONS} deep", at=0)
        title = read_string(line, "the name of the model") if line.next != "{" else ""
        line.expect("{")
        line.end()
        self.open.append(Draft(line, title, name))

    def read_input(self, line: Line, graph: Draft) -> None:
        name = read_sigil(line, "%", "an input")
        line.expect(":")
        graph.inputs.append(read_meta(line, name, self.types))

    def read_return(self, line: Line, graph: Draft) -> None:
        if graph.returned is not None:
            raise line.error("return is given twice", at=0)
        graph.returned = []
        while line.next:
            if graph.returned:
                line.expect(",")
            graph.returned.append(read_reference(line, self.types))


_STATEMENTS: dict[str, Callable[[_Reader, Line, Draft], None]] = {
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
        remedy=did_you_mean(token, _STATEMENTS)
        or "A statement is a node (%y: f32[2] = aten.relu.default(%x)) or begins with one of "
        f"{', '.join(_STATEMENTS)}.",
    )
