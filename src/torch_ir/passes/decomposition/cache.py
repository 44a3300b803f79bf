"""The decomposition of one operator call, traced by torch and cached."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from torch_ir.errors import InvalidIRError, PassError, Raised, attempt, first_line
from torch_ir.frontend.graphs import Context, GraphTranslator
from torch_ir.infer.binder import RUN_DEVICE
from torch_ir.infer.engine import flatten
from torch_ir.infer.fake import Fakes
from torch_ir.infer.types import TensorType, recorded
from torch_ir.ir import IR, Attribute, Constant, OpNode, SymExpr, TensorMeta
from torch_ir.ir.symbols import as_dim
from torch_ir.ir.values import map_attribute
from torch_ir.passes.edge.memory_formats import channels_order, permuted_copy
from torch_ir.passes.functionalization import without_writes
from torch_ir.torch_api import without_mkldnn

INPUT = "input:{}"
"""How a fragment names its inputs: no node of a program has such a name."""
_CONSTANT = "constant:{}"
_NOTHING = frozenset(
    {"aten.detach.default", "aten.alias.default", "aten.lift_fresh.default"}
    | {"aten.lift_fresh_copy.default"}
)
"""Operators that tracing leaves behind and that return what they are given."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The nodes that stand for a call, over inputs named ``input:0``, ``input:1``, ….

    Attributes:
        nodes: The nodes, in order, with names that are unique within the fragment.
        results: The value of each flattened result of the call, None for what is no tensor.
        types: The type of each of these.
        constants: Values that the nodes use, by name.
        reusable: Whether another call of the same kind may use it: it makes no symbols.
    """

    nodes: tuple[OpNode, ...]
    results: tuple[TensorMeta | None, ...]
    types: tuple[TensorType | None, ...]
    constants: Mapping[str, Constant] = field(default_factory=dict[str, Constant])
    reusable: bool = True

    def program(self, node: OpNode, fakes: Fakes) -> IR:
        """Return the fragment as a program of the call's inputs.

        Args:
            node: The call.
            fakes: The fake tensors and symbols of the program that has the call.
        """
        inputs = [
            TensorMeta(INPUT.format(index), meta.shape, meta.dtype)
            for index, meta in enumerate(node.inputs)
        ]
        outputs = [meta for meta in self.results if meta is not None]
        ir = IR(self.nodes, inputs, outputs, [], constants=self.constants)
        return ir.replace(symbols=fakes.ir.symbols, guards=fakes.ir.guards)

    def made_of(self, done: IR) -> Fragment:
        """Return the fragment with what its program became."""
        given = iter(done.graph_outputs)
        results = tuple([None if meta is None else next(given) for meta in self.results])
        return replace(self, nodes=tuple(done.nodes), results=results)


class Tracer:
    """Traces calls through torch's decompositions.

    Args:
        fakes: The fake tensors and symbols of the program.
        table: What stands for an operator, by operator: torch's table and the user's.
    """

    def __init__(self, fakes: Fakes, table: Mapping[Any, Callable[..., Any]]):
        self.fakes = fakes
        self.table = dict(table)
        self._names = list(fakes.symbols)

    def trace(
        self,
        node: OpNode,
        inputs: Sequence[TensorType],
        function: Any,
        scopes: Sequence[Any] = (),
        more: Mapping[Any, Callable[..., Any]] | None = None,
    ) -> Fragment:
        """Trace the decomposition of a call whose inputs have these types.

        Args:
            node: The call.
            inputs: The type of each of its inputs.
            function: What to call in place of the operator; None for the operator itself.
            scopes: Contexts that are entered around the call.
            more: Decompositions beside the table.

        Raises:
            PassError: torch cannot trace it, or what it traces has no counterpart.
        """
        names = self._names

        def call(tensors: list[torch.Tensor], sizes: list[Any]) -> list[Any]:
            symbols = dict(zip(names, sizes, strict=True))
            with ExitStack() as stack:
                for scope in scopes:
                    stack.enter_context(scope())
                made = self.fakes.call(node, tensors, symbols, function)
            return list(flatten(made))

        self.fakes.settle()
        table = {**self.table, **(more or {})}
        with without_mkldnn(), self.fakes.tracing():
            tensors = [self.fakes.tensor(layout) for layout in inputs]
            sizes = list(self.fakes.symbols.values())
            traced = attempt(lambda: make_fx(call, decomposition_table=table)(tensors, sizes))
        if isinstance(traced, Raised):
            error = traced.error
            raise PassError(f"torch cannot decompose it: {first_line(error)}") from error
        try:
            return self._fragment(node, traced)
        except InvalidIRError as error:
            raise PassError(error.message) from error

    def _fragment(self, node: OpNode, traced: GraphModule) -> Fragment:
        constants = _constants_as_inputs(traced)
        traced.graph.eliminate_dead_code()
        context = Context({RUN_DEVICE})
        translator = GraphTranslator(traced, context)
        placeholders = list(traced.graph.find_nodes(op="placeholder"))
        taken = [p for p in placeholders if p.name not in constants]
        for position, placeholder in enumerate(placeholders):
            value = placeholder.meta.get("val")
            if placeholder.name in constants:
                constant = constants[placeholder.name]
                name = _CONSTANT.format(position)
                meta = TensorMeta(name, constant.shape, constant.dtype)
                translator.values[placeholder] = meta
            elif isinstance(value, torch.Tensor):
                meta = node.inputs[taken.index(placeholder)]
                name = INPUT.format(taken.index(placeholder))
                translator.values[placeholder] = TensorMeta(name, meta.shape, meta.dtype)
            else:
                translator.values[placeholder] = context.attribute(value)
        translator.run()
        if context.refused:
            raise PassError("; ".join([found.line for found in context.refused]))
        flat = cast(list[Any], traced.graph.output_node().args[0])
        results = [
            translator.values.get(item) if isinstance(item, torch.fx.Node) else None
            for item in flat
        ]
        named = {
            _CONSTANT.format(i): constants[p.name]
            for i, p in enumerate(placeholders)
            if p.name in constants
        }
        if translator.functions:
            raise PassError("its decomposition holds control flow")
        fragment = self._owned(node, translator.nodes, results, named)
        return replace(fragment, types=tuple(self._types(flat, fragment.results)))

    def _types(
        self, traced: Sequence[Any], results: Sequence[TensorMeta | None]
    ) -> Iterator[TensorType | None]:
        for item, meta in zip(traced, results, strict=True):
            value = item.meta.get("val") if isinstance(item, torch.fx.Node) else None
            if isinstance(value, torch.Tensor) and meta is not None:
                yield recorded(meta, self.fakes.type_of(meta, value)[0])
            else:
                yield None

    def _owned(
        self,
        node: OpNode,
        nodes: Sequence[OpNode],
        results: Sequence[Any],
        constants: Mapping[str, Constant],
    ) -> Fragment:
        """The fragment over the program's own symbols, without what tracing leaves behind."""
        tensors = [item if isinstance(item, TensorMeta) else None for item in results]
        made = self._made_symbols(node, tensors)
        own = _Owner(self.fakes, made)
        values: dict[str, TensorMeta] = {}
        kept: list[OpNode] = []
        asked = node.attrs.get("memory_format") is not None  # else it is guessed from strides
        for item in nodes:
            inputs = [values.get(meta.name) or own.meta(meta) for meta in item.inputs]
            if item.op_type in _NOTHING:
                values[item.outputs[0].name] = inputs[0]
                continue
            outputs = [own.meta(meta) for meta in item.outputs]
            attrs = {name: own.value(value) for name, value in item.attrs.items()}
            binds = {own.name(symbol): place for symbol, place in item.binds.items()}
            call = OpNode(
                item.name, item.op_type, inputs, outputs, attrs, item.operands, None, binds
            )
            order = None if asked else channels_order(call)
            kept += [call] if order is None else permuted_copy(call, order, "{}:{}".format)
        found = [None if t is None else values.get(t.name) or own.meta(t) for t in tensors]
        fragment = Fragment(tuple(kept), tuple(found), (), constants, not made)
        return _functional(fragment, node, self.fakes)

    def _made_symbols(self, node: OpNode, results: Sequence[TensorMeta | None]) -> dict[str, str]:
        """The symbols of sizes that data decides, as torch named them now, to the program's."""
        made: dict[str, str] = {}
        for output in node.outputs:
            index = output.producer_output_idx
            result = results[index] if index < len(results) else None
            for theirs, ours in zip(result.shape if result else (), output.shape, strict=False):
                if isinstance(theirs, SymExpr) and isinstance(ours, SymExpr):
                    unknown = theirs.is_symbol and not self.fakes.knows(theirs.text)
                    if unknown and ours.is_symbol:
                        made[theirs.text] = ours.text
        return made


@dataclass(frozen=True, slots=True)
class _Owner:
    """Replaces torch's names of symbols by the program's."""

    fakes: Fakes
    made: Mapping[str, str]

    def name(self, symbol: str) -> str:
        return self.made.get(symbol) or self.fakes.own(SymExpr(symbol)).text

    def value(self, value: Any) -> Any:
        return map_attribute(value, self._leaf)

    def _leaf(self, value: Attribute) -> Attribute:
        return self.fakes.own(value, self.made) if isinstance(value, SymExpr) else value

    def meta(self, meta: TensorMeta) -> TensorMeta:
        if meta.is_static or ":" in meta.name:
            return meta
        return meta.replace(shape=tuple([as_dim(self.value(dim)) for dim in meta.shape]))


def _functional(fragment: Fragment, node: OpNode, fakes: Fakes) -> Fragment:
    """The fragment without in-place operators, which some decompositions use."""
    ir = fragment.program(node, fakes)
    if not any(ir.effects(item).writes for item in ir.nodes):
        return fragment
    done = without_writes(ir)
    if done.mutations:
        raise PassError("its decomposition writes to what it takes")
    made = fragment.made_of(done)
    return replace(made, nodes=tuple([_core_reshape(item) for item in made.nodes]))


def _core_reshape(node: OpNode) -> OpNode:
    """The core operator for a reshape that may have to copy."""
    if node.op_type != "aten.reshape.default":
        return node
    attrs = {"size": node.attrs["shape"]}
    return node.replace(op_type="aten.view_copy.default", attrs=attrs)


def _constants_as_inputs(traced: GraphModule) -> dict[str, Constant]:
    """Make placeholders of the tensors that decompositions write down; their values by name."""
    constants: dict[str, Constant] = {}
    for node in list(traced.graph.find_nodes(op="get_attr")):
        value: Any = operator.attrgetter(str(node.target))(traced)
        if not isinstance(value, torch.Tensor):
            continue
        with traced.graph.inserting_before(node):
            placeholder = traced.graph.placeholder(f"held_{node.name}")
        placeholder.meta["val"] = value
        node.replace_all_uses_with(placeholder)
        traced.graph.erase_node(node)
        constants[placeholder.name] = Constant.from_torch(value)
    return constants
