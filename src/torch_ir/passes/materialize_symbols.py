"""Arithmetic on sizes as operators that a runtime can call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any, ClassVar, TypeAlias

from torch_ir.arguments import public
from torch_ir.dialects.backend.schemas import BACKEND_SCHEMAS
from torch_ir.errors import InvalidIRError, PassError, counted
from torch_ir.ir import (
    IR,
    Attribute,
    OpNode,
    Signature,
    SymbolRange,
    SymExpr,
)
from torch_ir.ir.builder import Builder, with_attributes
from torch_ir.ir.diagnostics import Diagnostic, Diagnostics, about
from torch_ir.ir.expressions import FUNCTIONS, Algebra, Number, fold
from torch_ir.ir.expressions.language import FoldStep
from torch_ir.ir.queries import graphs
from torch_ir.ir.tree import map_values
from torch_ir.passes.base import Pass, PassResult

PREFIX = "executorch_prims."

_PRIMS = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "//": "floordiv",
    ">": "gt",
    "<": "lt",
    ">=": "ge",
    "<=": "le",
    "==": "eq",
}
MAX_POWER = 16

_TRUTH = SymbolRange(0, 1)
"""The values of a symbol that stands for a truth."""

Computed: TypeAlias = int | str
"""A number, or the symbol that has the value."""


@dataclass(frozen=True)
class MaterializeSymbols(Pass):
    """Computes sizes with operators; see :func:`materialize_symbols`."""

    name: ClassVar[str] = "materialize-symbols"

    def call(self, ir: IR) -> PassResult:
        """Compute expressions by operators, so that calls are given symbols and numbers alone."""
        return PassResult.of(ir, materialize_symbols(ir))


@public
def materialize_symbols(ir: IR) -> IR:
    """Compute each expression that a call or a result needs by operators.

    They are ``executorch_prims::{add,mul,sub,floordiv}.int`` and ``{gt,lt,ge,le,eq}.int``; each
    gives a symbol its value. ``%``, ``min``, ``max``, ``abs``, ``!=``, ``and``, ``or``, ``not``
    and powers are made of them. A truth stays one: it is the test `u0 == 1` of a symbol that is 0
    or 1, since a program that is given a number in its place computes another type. What is needed
    twice is computed once. Recorded shapes and guards, which nothing computes with, keep their
    expressions. Functions are changed too. The same object if there is nothing to do.

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
    taken = {symbol for _, graph in graphs(ir) for symbol in graph.symbols}
    taken.update(symbol for _, _, node in ir.walk() for symbol in node.binds)
    found = Diagnostics()
    result = _Materializer(ir, taken, found, "").run()
    found.raise_if_any(
        PassError,
        f"{counted(len(found), 'expression')} cannot be computed with integers",
        remedy="A runtime for such programs needs operators of its own for them.",
    )
    return result


class _Materializer:
    def __init__(self, ir: IR, taken: set[str], found: Diagnostics, path: str):
        self.ir = ir
        self.taken = taken
        self.found = found
        self.path = path
        self.builder = Builder(ir)
        self.made: dict[tuple[str, int | str, int | str], str] = {}
        self.node: OpNode | None = None

    def run(self) -> IR:
        ir, builder = self.ir, self.builder
        builder.functions = {
            name: _Materializer(body, self.taken, self.found, f"{self.path}{name}/").run()
            for name, body in ir.functions.items()
        }
        for node in ir.nodes:
            self.node = node
            is_prim = node.op_type.startswith(PREFIX)
            computed = node if is_prim else with_attributes(node, self._value)
            builder.keep(node if computed == node else computed)
        self.node = None
        if ir.signature is not None:
            outputs = map_values(ir.signature.outputs, self._value)
            if outputs != ir.signature.outputs:
                builder.returns(ir.graph_outputs, Signature(ir.signature.inputs, outputs))
        return builder.finish()

    def _value(self, value: Attribute) -> Attribute:
        if not isinstance(value, SymExpr) or value.is_symbol or self._is_test(value):
            return value
        try:
            made = fold(value.text, self._algebra)
        except InvalidIRError as error:
            found = Diagnostic("not-computable", f"{value}: {error.message}")
            if self.node is None:
                where = f"the results of {self.path or 'the program'}"
                found = replace(found, message=f"{where}: {found.message}")
            self.found.add(found if self.node is None else about(found, self.node, self.path))
            return value
        if value.kind is bool and isinstance(made, str):
            self.builder.symbols[made] = _TRUTH
            return SymExpr(f"{made} == 1")
        return made if isinstance(made, int) else SymExpr(made)

    def _is_test(self, value: SymExpr) -> bool:
        """Whether a truth needs no arithmetic: a constant, or the test of a 0 or 1."""
        if value.kind is not bool or not value.symbols:
            return value.kind is bool
        symbol = value.symbols[0]
        is_truth = {**self.ir.symbols, **self.builder.symbols}.get(symbol) == _TRUTH
        return is_truth and value == SymExpr(f"{symbol} == 1")

    # -- arithmetic -------------------------------------------------------------------------------

    @cached_property
    def _algebra(self) -> Algebra[Computed]:
        """The number, or the symbol that has the value, of each part of an expression."""
        operations = {
            **{sign: partial(self._prim, name) for sign, name in _PRIMS.items()},
            "-x": partial(self._prim, "sub", 0),
            "not": self._negation,
            "!=": self._difference,
            "%": self._remainder,
            "**": self._power,
            "and": self._conjunction,
            "or": self._disjunction,
            "int": _same,
            "abs": self._magnitude,
            "min": partial(self._choice, "lt"),
            "max": partial(self._choice, "gt"),
        }
        return Algebra(_integer, _symbol, operations, _other)

    def _negation(self, value: Computed) -> Computed:
        return self._prim("eq", value, 0)

    def _difference(self, a: Computed, b: Computed) -> Computed:
        return self._negation(self._prim("eq", a, b))

    def _remainder(self, a: Computed, b: Computed) -> Computed:
        return self._prim("sub", a, self._prim("mul", self._prim("floordiv", a, b), b))

    def _conjunction(self, *parts: Computed) -> Computed:
        return reduce(partial(self._prim, "mul"), parts)

    def _disjunction(self, first: Computed, *rest: Computed) -> Computed:
        for value in rest:
            first = self._prim("gt", self._prim("add", first, value), 0)
        return first

    def _power(self, value: Computed, power: Computed) -> Computed:
        if not isinstance(power, int) or not 0 <= power <= MAX_POWER:
            raise InvalidIRError(f"the power {power} is not within 0 and {MAX_POWER}")
        return self._conjunction(*[value] * power) if power else 1

    def _magnitude(self, value: Computed) -> Computed:
        return self._choice("gt", value, self._prim("sub", 0, value))

    def _choice(self, relation: str, first: Computed, *rest: Computed) -> Computed:
        """The one of the values that has the relation to all others."""
        for value in rest:
            is_other = self._prim(relation, value, first)
            difference = self._prim("sub", value, first)
            first = self._prim("add", first, self._prim("mul", difference, is_other))
        return first

    def _prim(self, name: str, a: Computed, b: Computed) -> str:
        """The symbol that a prim gives its value; made once for the same operands."""
        key = (name, a, b)
        if key not in self.made:
            self.made[key] = symbol = self._symbol()
            op_type = f"{PREFIX}{name}.int"
            self.builder.operators[op_type] = BACKEND_SCHEMAS[op_type]
            attrs: dict[str, Any] = {
                argument: SymExpr(value) if isinstance(value, str) else value
                for argument, value in (("a", a), ("b", b))
            }
            node = self.builder.names.fresh(f"sym_{name}")
            location = None if self.node is None else self.node.location
            call = OpNode(node, op_type, (), (), attrs, {}, location, {symbol: 0})
            sources = [] if self.node is None else [self.node]
            self.builder.nodes.append(call.derived_from(*sources))
        return self.made[key]

    def _symbol(self) -> str:
        number = 0
        while f"u{number}" in self.taken:
            number += 1
        self.taken.add(f"u{number}")
        self.builder.symbols[f"u{number}"] = SymbolRange(None, None)
        return f"u{number}"


def _integer(value: Number) -> int:
    return int(value) if isinstance(value, int) else _refuse(repr(value))


def _symbol(name: str) -> str:
    return _refuse(name) if name.startswith("z") else name


def _same(value: Computed) -> Computed:
    return value


def _other(step: FoldStep, _: object) -> Any:
    is_call = step.operation in FUNCTIONS
    return _refuse(f"{step.operation}(...)" if is_call else step.text)


def _refuse(what: str) -> Any:
    raise InvalidIRError(f"{what} is not computed with integers")
