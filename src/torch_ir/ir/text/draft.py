"""An IR in the making: what its statements say, until every name can be looked up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch_ir.errors import did_you_mean
from torch_ir.frozen import FrozenDict
from torch_ir.ir.graph import IR, Mutation, SymbolRange
from torch_ir.ir.node import Location, OpNode
from torch_ir.ir.symbols import SymExpr
from torch_ir.ir.tensor import Constant, TensorMeta
from torch_ir.ir.text.calls import CallText, Reference, bind_call
from torch_ir.ir.text.lexer import Line
from torch_ir.ir.text.scope import NameScope
from torch_ir.ir.text.views import WrittenView, with_views
from torch_ir.ir.values import Attribute


@dataclass(frozen=True, slots=True)
class DraftNode:
    """A node whose references are not looked up yet."""

    name: str
    call: CallText
    outputs: tuple[TensorMeta, ...]
    location: Location | None
    binds: dict[str, int]


class Draft:
    """A graph whose statements are being read."""

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
        self.nodes: list[DraftNode] = []
        self.returned: list[Reference] | None = None

    @cached_property
    def scope(self) -> NameScope:
        """What the names mean, when all statements were read and views are among the constants."""
        results = [meta for node in self.nodes for meta in node.outputs]
        return NameScope([*self.inputs, *results], self.weights, self.constants, self.names)

    def build(self) -> IR:
        """Return the IR, with every reference looked up."""
        if self.constants or self.views:
            known = with_views(self.constants, self.views)
            self.constants = {key: known[key] for key in sorted(known)}

        def resolve(reference: Reference) -> TensorMeta:
            if reference.meta is not None:
                return reference.meta
            found = self.scope.find(reference.mark, reference.name)
            return found or _refuse(reference, self.scope)

        def target(reference: Reference) -> str:
            return resolve(reference).name if reference.mark == "@" else reference.name

        nodes: list[OpNode] = []
        for node in self.nodes:
            call = node.call
            inputs, operands, attrs = bind_call(call, resolve)
            rest = (attrs, operands, node.location, FrozenDict(node.binds))
            nodes.append(OpNode(node.name, call.op_type, inputs, node.outputs, *rest))
        outputs = tuple([resolve(reference) for reference in self.returned or ()])
        mappings: dict[str, dict[str, Any]] = {
            "weight_name_mapping": self.names,
            "constants": self.constants,
            "symbols": self.symbols,
            "functions": self.functions,
            "weight_aliases": self.aliases,
            "operators": self.operators,
            "metadata": self.metadata,
        }
        fields: dict[str, Any] = {**self.fields, "guards": tuple(self.guards)}
        fields |= {name: FrozenDict(items) for name, items in mappings.items() if items}
        if self.mutations:
            written = [Mutation(target(to), resolve(value)) for to, value in self.mutations]
            fields["mutations"] = tuple(written)
        return IR(tuple(nodes), tuple(self.inputs), outputs, tuple(self.weights), **fields)


def require_new(
    line: Line, known: Mapping[str, object], name: str, what: str, at: int = 1
) -> None:
    """Check that a name has not been given before."""
    if name in known:
        raise line.error(f"{what} is given twice", at=at)


def _refuse(reference: Reference, scope: NameScope) -> TensorMeta:
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
            remedy=did_you_mean(reference.name, scope.keys),
        )
    raise reference.line.error(
        f"{name} is not defined",
        at=reference.at,
        remedy=did_you_mean(reference.name, [*scope.values, *scope.external])
        or f"A value without definition is written with its type, as in {name}: f32[2].",
    )
