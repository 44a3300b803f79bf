"""The nodes of a program as a torch.fx graph: one call for each node, with the same name."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule, Proxy
from torch.fx import Node as FxNode
from torch.fx.node import map_arg
from torch.fx.proxy import GraphAppendingTracer

from torch_ir.errors import InvalidIRError, PassError
from torch_ir.infer.binder import (
    RUN_DEVICE,
    BoundCall,
    Expression,
    Function,
    Listed,
    Literal,
    Named,
    Operand,
    Read,
    resolve,
)
from torch_ir.infer.bindings import Binding, Bindings
from torch_ir.infer.fake import Fakes
from torch_ir.infer.slots import Slots
from torch_ir.infer.symbolic import symbolic
from torch_ir.infer.types import Outcome, TensorType, contiguous, recorded
from torch_ir.ir import IR, Location, OpNode, SymExpr, TensorLeaf, TensorMeta, ValueLeaf
from torch_ir.ir.builder import Names
from torch_ir.ir.diagnostics import DiagnosticError, error_at
from torch_ir.ir.expressions import solve_linear
from torch_ir.ir.queries import given_values, signature_of
from torch_ir.ir.tree import leaves, unflatten
from torch_ir.torch_api import HigherOrderOperator, OpOverload, symbol_of, unbacked_key

WITH_TENSORS = "Compute it with tensors in the model, or outside of the model."
"""What helps where a program computes what torch does not compute with numbers."""


class _NumberTracer(GraphAppendingTracer):
    """Records calls on symbolic numbers, each with its value."""

    def create_node(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
    ) -> FxNode:
        """The node of a call."""
        node = super().create_node(kind, target, args, kwargs, name, type_expr)
        if kind == "call_function":
            node.meta["val"] = target(*map_arg(args, value_of), **map_arg(kwargs, value_of))
        return node


def value_of(node: FxNode) -> Any:
    """Return the fake value of a node."""
    return node.meta["val"]


@dataclass(slots=True)
class Numbers:
    """The symbols of a graph, and the nodes that compute expressions over them."""

    graph: Graph
    known: dict[str, Any] = field(default_factory=dict[str, Any])
    origins: dict[str, tuple[FxNode, int]] = field(default_factory=dict[str, tuple[FxNode, int]])
    derived: list[tuple[SymExpr, FxNode, int]] = field(
        default_factory=list[tuple[SymExpr, FxNode, int]]
    )
    _tracer: _NumberTracer = field(init=False)

    def __post_init__(self) -> None:
        self._tracer = _NumberTracer(self.graph)  # of all numbers: fx takes those of one tracer

    def sizes(self, node: FxNode, meta: TensorMeta) -> None:
        """Note that the sizes of a placeholder give symbols their values."""
        for axis, dim in enumerate(meta.shape):
            if isinstance(dim, SymExpr) and dim.is_symbol:
                self.origins.setdefault(dim.text, (node, axis))
            elif isinstance(dim, SymExpr):
                self.derived.append((dim, node, axis))

    def node(self, value: SymExpr) -> Any:
        """Return the node that computes an expression, or its value if it has no symbols.

        Raises:
            PassError: A symbol in it has no value here, or torch has no function for a part.
        """
        known = self.known.get(value.text)
        if known is None:
            symbols = {symbol: self._symbol(symbol) for symbol in value.symbols}
            try:
                known = self.known[value.text] = symbolic(value, symbols)
            except InvalidIRError as error:
                raise PassError(error.message, remedy=WITH_TENSORS) from None
        return known.node if isinstance(known, Proxy) else known

    def _symbol(self, symbol: str) -> Any:
        if symbol in self.known:
            return self.known[symbol]
        if symbol in self.origins:
            size = self._size(*self.origins[symbol])
        else:
            size = self._solved(symbol)
        self.known[symbol] = size
        return size

    def _size(self, node: FxNode, axis: int) -> Any:
        size = self.graph.call_function(torch.ops.aten.sym_size.int, (node, axis))
        size.meta["val"] = value_of(node).shape[axis]
        return self.proxy(size)

    def _solved(self, symbol: str) -> Any:
        """A symbol that only sizes such as ``2*s0 + 1`` tell."""
        for dim, node, axis in self.derived:
            first, second = [int(dim.evaluate(dict.fromkeys(dim.symbols, n))) for n in (0, 1)]
            if dim.symbols == (symbol,) and solve_linear(dim.text, first) == (symbol, 0):
                return (self._size(node, axis) - first) // (second - first)
        raise PassError(f"no argument and no earlier result tells what {symbol!r} is")

    def proxy(self, node: FxNode) -> Proxy:
        """Return a node as a number to compute with."""
        return Proxy(node, self._tracer)


@dataclass(slots=True)
class FxGraph:
    """A graph as it is built.

    Attributes:
        ir: The functional program or function.
        fakes: Its symbols and fake tensors.
        graph: The graph of torch.
        values: The node that gives each value.
        modules: The bodies that nodes call, by attribute name.
        numbers: What computes expressions over its symbols.
    """

    ir: IR
    fakes: Fakes
    graph: Graph = field(default_factory=Graph)
    values: dict[str, FxNode] = field(default_factory=dict[str, FxNode])
    modules: dict[str, GraphModule] = field(default_factory=dict[str, GraphModule])
    _attributes: dict[str, str] = field(default_factory=dict[str, str])
    _free: Names = field(default_factory=Names)
    _slots: Slots = field(default_factory=Slots)
    _types: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    numbers: Numbers = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = Numbers(self.graph)

    # -- what a graph takes -----------------------------------------------------------------------

    def takes(
        self, meta: TensorMeta, name: str | None = None, kind: TensorType | None = None
    ) -> FxNode:
        """Add a placeholder for a tensor, contiguous by default; its sizes give symbols values."""
        lies = kind or contiguous(meta)
        with self.fakes.mode:
            value = self.fakes.tensor(lies)
        node = self._placeholder(name or meta.name, value)
        self.gives(meta, node, lies)
        self.numbers.sizes(node, meta)
        return node

    def takes_value(self, value: Any, name: str) -> FxNode:
        """Add a placeholder for an argument that is no tensor of the program."""
        if not isinstance(value, SymExpr):
            return self._placeholder(name, value)
        node = self._placeholder(name, symbolic(value, self.fakes.symbols))
        if value.is_symbol:
            self.numbers.known.setdefault(value.text, self.numbers.proxy(node))
        return node

    def gives(self, meta: TensorMeta, node: FxNode, kind: TensorType) -> None:
        """Note that a placeholder is a value of the program, of this type."""
        self._types[meta.name] = kind
        self._slots.define(meta)
        self.values[meta.name] = node

    def _placeholder(self, name: str, value: Any) -> FxNode:
        node = self.graph.create_node("placeholder", name, name=_sayable(name))
        node.target = node.name  # the parameter of the code that torch writes
        node.meta["val"] = value
        return node

    # -- nodes ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Add all nodes.

        Raises:
            PassError: A node has no counterpart.
        """
        bindings = Bindings(self.ir)
        for node in self.ir.nodes:
            try:
                call = resolve(node, self._slots, RUN_DEVICE)
                self._add(call, bindings.of(node))
            except (DiagnosticError, PassError) as error:
                raise error_at(node, error.message, remedy=error.remedy, kind=PassError) from error

    def _add(self, call: BoundCall, bindings: Sequence[Binding]) -> None:
        if not isinstance(call.target, OpOverload | HigherOrderOperator):
            raise PassError(
                f"{call.node.op_type} runs with a registered kernel, which torch does not know",
                remedy="Remove it with unregister_executor.",
            )
        if iskeyword(call.node.op_type.rpartition(".")[2]):
            raise PassError(
                f"{call.node.op_type} has a word of Python's own for a name, which the code of "
                "torch's graphs does not say",
                remedy="Run the program with torch_ir.compile.",
            )
        returns = call.schema.returns if call.schema is not None else ()
        if len(returns) > 1 and any(result.type.endswith("]") for result in returns):
            raise PassError(
                f"{call.node.op_type} gives a list beside other results, and the program does not "
                "say how many tensors are in it",
                remedy="Run the program with torch_ir.compile.",
            )
        args = tuple([self._argument(operand) for operand in call.args])
        kwargs = {name: self._argument(operand) for name, operand in call.kwargs}
        made = self.graph.create_node(
            "call_function", call.target, args, kwargs, name=_sayable(call.node.name)
        )
        made.meta.update(_place(call.node.location))
        self._results(call, made)
        self._bind(made, call.node, bindings)

    def _argument(self, operand: Operand) -> Any:
        match operand:
            case Read(name=name):
                return self.values[name]
            case Literal(value=value):
                return value
            case Expression(value=value):
                return self.numbers.node(value)
            case Function(name=name):
                return self._function(name)
            case Listed(parts=parts, is_tuple=is_tuple):
                items = [self._argument(part) for part in parts]
                return tuple(items) if is_tuple else items
            case Named(parts=parts):
                return {key: self._argument(part) for key, part in parts}

    def _results(self, call: BoundCall, made: FxNode) -> None:
        """Add what gives each result of a node, where it lies as torch says."""
        node, outcome = call.node, Outcome()
        if isinstance(call.target, OpOverload):
            outcome = self.fakes.outcome(node, [self._types[meta.name] for meta in node.inputs])
        found: dict[int, Any] = {}
        for meta in node.outputs:
            kind = self._types[meta.name] = recorded(meta, outcome.result(meta))
            with self.fakes.mode:
                found[meta.producer_output_idx] = self.fakes.tensor(kind)
        if _is_single(call):
            self.values.update(dict.fromkeys([meta.name for meta in node.outputs], made))
            made.meta["val"] = found.get(0)
            return
        count = max([len(outcome.results), *[index + 1 for index in found]])
        made.meta["val"] = tuple([found.get(index) for index in range(count)])
        for meta in node.outputs:
            index = meta.producer_output_idx
            item = self.graph.call_function(operator.getitem, (made, index))
            item.meta.update(_place(node.location))
            item.meta["val"] = found[index]
            self.values[meta.name] = item

    def _bind(self, made: FxNode, node: OpNode, bindings: Sequence[Binding]) -> None:
        """Note which symbols the results of a node give their values."""
        keys: dict[Any, Any] = {}
        single = not isinstance(made.meta["val"], tuple)
        outputs = {meta.producer_output_idx: meta.name for meta in node.outputs}
        for binding in bindings:
            symbol = self.fakes.symbols[binding.symbol]
            keys[symbol_of(symbol)] = unbacked_key(
                None if single else binding.result, binding.axis
            )
            if binding.axis is not None:
                self.numbers.origins[binding.symbol] = (
                    self.values[outputs[binding.result]],
                    binding.axis,
                )
            elif single:
                made.meta["val"] = symbol
                self.numbers.known[binding.symbol] = self.numbers.proxy(made)
            else:
                raise PassError(
                    "it gives a number beside other results, which torch's graphs do not bind",
                    remedy="Run the program with torch_ir.compile.",
                )
        if keys:
            made.meta["unbacked_bindings"] = keys

    # -- functions --------------------------------------------------------------------------------

    def _function(self, name: str) -> FxNode:
        if name not in self._attributes:
            is_safe = name.isidentifier() and not hasattr(GraphModule, name)
            wanted = name if is_safe else re.sub(r"\W", "_", f"body_{name}")
            attribute = self._attributes[name] = self._free.fresh(wanted)
            self.modules[attribute] = _body(self.ir.functions[name], self.fakes)
        return self.graph.get_attr(self._attributes[name])

    def results(self, tree: Any) -> Any:
        """Map a tree of results to nodes and plain values."""

        def leaf(item: TensorLeaf | ValueLeaf) -> Any:
            if isinstance(item, TensorLeaf):
                return self.values[item.name]
            return self.numbers.node(item.value) if isinstance(item.value, SymExpr) else item.value

        return unflatten(tree, leaf)


def _sayable(name: str) -> str:
    """A name that the code of a module can have; torch makes one of it but for a last newline."""
    name = re.sub(r"\W+", "_", name, flags=re.ASCII)
    return f"{name}_" if name == "self" or iskeyword(name) else name


def _body(ir: IR, fakes: Fakes) -> GraphModule:
    """The body of control flow."""
    built = FxGraph(ir, fakes)
    metas = given_values(ir)
    signature = signature_of(ir)
    for position, leaf in enumerate(leaves(signature.inputs)):
        if isinstance(leaf, TensorLeaf):
            built.takes(metas[leaf.name])
        else:
            built.takes_value(leaf.value, f"arg_{position}")
    built.run()
    built.graph.output(built.results(signature.outputs))
    return GraphModule(cast(Any, built.modules), built.graph)


def _is_single(call: BoundCall) -> bool:
    """Whether a call gives one tensor, which is not in a tuple."""
    if call.schema is not None:
        return len(call.schema.returns) <= 1 and not any(
            result.type.endswith("]") for result in call.schema.returns
        )
    return [meta.name for meta in call.node.outputs] == [call.node.name]


def _place(location: Location | None) -> Mapping[str, Any]:
    """Where a node came from, as torch records it."""
    if location is None:
        return {}
    made: dict[str, Any] = {}
    if location.file:
        place = f'File "{location.file}", line {location.line}, in forward'
        made["stack_trace"] = f"{place}\n    {location.code}"
    if location.module or location.module_type:
        made["nn_module_stack"] = {location.module: (location.module, location.module_type)}
    return made
