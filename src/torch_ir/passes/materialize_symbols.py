"""Arithmetic on sizes as operators that a runtime can call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_ir.dialects.backend.schemas import BACKEND_SCHEMAS
from torch_ir.errors import InvalidIRError, PassError, counted
from torch_ir.ir import (
    IR,
    Attribute,
    Container,
    FrozenDict,
    Location,
    OpNode,
    Signature,
    SymbolRange,
    SymExpr,
    ValueLeaf,
)
from torch_ir.ir.builder import Names
from torch_ir.ir.expressions import parse_expression
from torch_ir.ir.tree import Tree
from torch_ir.passes.base import Pass, PassResult

PREFIX = "executorch_prims."

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Gt: "gt",
    ast.Lt: "lt",
    ast.GtE: "ge",
    ast.LtE: "le",
    ast.Eq: "eq",
}
MAX_POWER = 16


@dataclass(frozen=True)
class MaterializeSymbols(Pass):
    """Computes sizes with operators; see :func:`materialize_symbols`."""

    name: ClassVar[str] = "materialize-symbols"

    def call(self, ir: IR) -> PassResult:
        """The program whose calls are given symbols and numbers alone."""
        result = materialize_symbols(ir)
        return PassResult(result, result is not ir)


def materialize_symbols(ir: IR) -> IR:
    """The program with each expression that a call or a result needs computed by operators.

    They are ``executorch_prims::{add,mul,sub,floordiv}.int`` and ``{gt,lt,ge,le,eq}.int``; each
    gives a symbol its value. ``%``, ``min``, ``max``, ``abs``, ``!=``, ``and``, ``or``, ``not``
    and powers are made of them. What is needed twice is computed once. Recorded shapes and
    guards, which nothing computes with, keep their expressions. Functions are changed too. The
    same object if there is nothing to do.

    Raises:
        PassError: An expression has floating point or another function; all are listed.

    Example:
        >>> from torch_ir import parse
        >>> print(materialize_symbols(parse('''
        ... ir "Flat" {
        ...   symbol s0: 2..8
        ...   input %x: f32[s0, 4]
        ...   %y: f32[4*s0] = aten.view.default(%x, [`4*s0`])
        ...   return %y
        ... }
        ... ''')).nodes[0])
        sym_mul: executorch_prims.mul.int(a=4, b=`s0`) -> u0
    """
    taken = set(_symbols(ir))
    reasons: list[str] = []
    result = _Materializer(ir, taken, reasons, "").run()
    if reasons:
        raise PassError(
            f"{counted(len(reasons), 'expression')} cannot be computed with integers",
            picture="\n".join(reasons),
            remedy="A runtime for such programs needs operators of its own for them.",
        )
    return result


def _symbols(ir: IR) -> Iterator[str]:
    yield from ir.symbols
    for node in ir.nodes:
        yield from node.binds
    for body in ir.functions.values():
        yield from _symbols(body)


class _Materializer:
    def __init__(self, ir: IR, taken: set[str], reasons: list[str], path: str):
        self.ir = ir
        self.taken = taken
        self.reasons = reasons
        self.path = path
        self.names = Names.of(ir)
        self.nodes: list[OpNode] = []
        self.made: dict[tuple[str, int | str, int | str], str] = {}
        self.symbols: dict[str, SymbolRange] = {}
        self.used: dict[str, str] = {}
        self.where = ""
        self.location: Location | None = None

    def run(self) -> IR:
        ir = self.ir
        functions = {
            name: _Materializer(body, self.taken, self.reasons, f"{self.path}{name}/").run()
            for name, body in ir.functions.items()
        }
        for node in ir.nodes:
            self.where, self.location = f"node '{self.path}{node.name}'", node.location
            attrs = node.attrs
            if not node.op_type.startswith(PREFIX):
                attrs = {name: self._value(value) for name, value in node.attrs.items()}
            self.nodes.append(node if attrs == node.attrs else node.replace(attrs=attrs))
        self.where, self.location = f"the results of {self.path or 'the program'}", None
        signature = ir.signature
        if signature is not None:
            signature = Signature(signature.inputs, self._tree(signature.outputs))
        if not self.symbols:
            unchanged = all(functions[name] is body for name, body in ir.functions.items())
            return ir if unchanged else ir.replace(functions=functions)
        return ir.replace(
            nodes=self.nodes,
            signature=signature,
            functions=functions,
            symbols={**ir.symbols, **self.symbols},
            operators={**ir.operators, **self.used},
        )

    def _tree(self, tree: Tree) -> Tree:
        if isinstance(tree, Container):
            children = tuple([self._tree(child) for child in tree.children])
            return Container(tree.type, children, tree.keys, tree.context)
        return ValueLeaf(self._value(tree.value)) if isinstance(tree, ValueLeaf) else tree

    def _value(self, value: Attribute) -> Attribute:
        if isinstance(value, tuple):
            return tuple([self._value(item) for item in value])
        if isinstance(value, FrozenDict):
            return FrozenDict({key: self._value(item) for key, item in value.items()})
        if not isinstance(value, SymExpr) or value.is_symbol:
            return value
        try:
            made = self._compute(parse_expression(value.text))
        except InvalidIRError as error:
            self.reasons.append(f"{self.where}: {value}: {error.message}")
            return value
        return made if isinstance(made, int) else SymExpr(made)

    # -- arithmetic -------------------------------------------------------------------------------

    def _compute(self, node: ast.expr) -> int | str:
        """The number, or the symbol that has the value, of an expression."""
        match node:
            case ast.Constant(value=bool() | int() as value):
                return int(value)
            case ast.Name(id=name) if not name.startswith("z"):
                return name
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._prim("sub", 0, self._compute(operand))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._prim("eq", self._compute(operand), 0)
            case ast.BoolOp(op=op, values=values):
                return self._condition(op, values)
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(power))):
                return self._power(left, power)
            case ast.BinOp(left=left, op=ast.Mod(), right=right):
                a, b = self._compute(left), self._compute(right)
                return self._prim("sub", a, self._prim("mul", self._prim("floordiv", a, b), b))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return self._prim(_BINARY[type(op)], self._compute(left), self._compute(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._comparison(op, self._compute(left), self._compute(right))
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self._call(name, [self._compute(item) for item in arguments])
            case _:
                raise InvalidIRError(f"{ast.unparse(node)} is not computed with integers")

    def _condition(self, op: ast.boolop, values: list[ast.expr]) -> int | str:
        first, *rest = [self._compute(value) for value in values]
        for value in rest:
            if isinstance(op, ast.And):
                first = self._prim("mul", first, value)
            else:
                first = self._prim("gt", self._prim("add", first, value), 0)
        return first

    def _power(self, base: ast.expr, power: int) -> int | str:
        if not 0 <= power <= MAX_POWER:
            raise InvalidIRError(f"the power {power} is not within 0 and {MAX_POWER}")
        value, result = self._compute(base), None
        for _ in range(power):
            result = value if result is None else self._prim("mul", result, value)
        return 1 if result is None else result

    def _comparison(self, op: ast.cmpop, a: int | str, b: int | str) -> int | str:
        if isinstance(op, ast.NotEq):
            return self._prim("eq", self._prim("eq", a, b), 0)
        return self._prim(_COMPARE[type(op)], a, b)

    def _call(self, name: str, values: list[int | str]) -> int | str:
        if name == "int":
            return values[0]
        if name == "abs":
            values = [values[0], self._prim("sub", 0, values[0])]
        elif name not in ("min", "max"):
            raise InvalidIRError(f"{name}(...) is not computed with integers")
        first, *rest = values
        for value in rest:
            is_other = self._prim("lt" if name == "min" else "gt", value, first)
            difference = self._prim("sub", value, first)
            first = self._prim("add", first, self._prim("mul", difference, is_other))
        return first

    def _prim(self, name: str, a: int | str, b: int | str) -> str:
        """The symbol that a prim gives its value; made once for the same operands."""
        key = (name, a, b)
        if key not in self.made:
            self.made[key] = symbol = self._symbol()
            op_type = f"{PREFIX}{name}.int"
            self.used[op_type] = BACKEND_SCHEMAS[op_type]
            attrs: dict[str, Any] = {
                argument: SymExpr(value) if isinstance(value, str) else value
                for argument, value in (("a", a), ("b", b))
            }
            node = self.names.fresh(f"sym_{name}")
            self.nodes.append(OpNode(node, op_type, (), (), attrs, {}, self.location, {symbol: 0}))
        return self.made[key]

    def _symbol(self) -> str:
        number = 0
        while f"u{number}" in self.taken:
            number += 1
        self.taken.add(f"u{number}")
        self.symbols[f"u{number}"] = SymbolRange(None, None)
        return f"u{number}"
