"""One traced graph as nodes of the IR: the main program, or the body of a scope or a branch."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode
from torch.fx.node import map_arg

from torch_ir.errors import InvalidIRError
from torch_ir.frontend.attributes import attribute_from_torch, tensor_meta
from torch_ir.frontend.autocast.scopes import AUTOCAST_ARGUMENTS, Begin, End, Item, ScopeFolder
from torch_ir.frontend.calls import ExportedCall, named_arguments, schema_of, translate_call
from torch_ir.frontend.captures import Captured, Captures
from torch_ir.frontend.conversions import NodeInfo, conversion_of
from torch_ir.frontend.locations import node_location
from torch_ir.frontend.symbols.runtime_asserts import (
    SymbolFact,
    counted_facts,
    runtime_asserts,
    squeeze_asserts,
    symbol_facts,
)
from torch_ir.frontend.symbols.scalars import call_expression, expression
from torch_ir.frontend.trees import tree_from_value
from torch_ir.ir import (
    IR,
    Attribute,
    Device,
    DType,
    FunctionRef,
    OpNode,
    Signature,
    SymbolRange,
    TensorLeaf,
    TensorMeta,
    ValueLeaf,
)
from torch_ir.ir.builder import Names
from torch_ir.ir.diagnostics import Diagnostic, Diagnostics
from torch_ir.ir.tensor import type_text
from torch_ir.ir.values import RUN_DEVICE
from torch_ir.ops.bodies import BODY_CALLS
from torch_ir.ops.effects import TYPE_CHECKS
from torch_ir.ops.layouts import COUNTS_STORED, MADE_OF_PARTS
from torch_ir.ops.schema import lookup
from torch_ir.torch_api import SYMBOLIC_TYPES, FakeTensor, HigherOrderOperator, OpOverload, pytree

SUPPORTED_HIGHER_ORDER = frozenset(
    {
        *("wrap_with_set_grad_enabled", "wrap_with_autocast", "invoke_subgraph"),
        "autograd_function",
        *("cond", "while_loop", "scan", "map_impl", "associative_scan"),
        *("flex_attention", "out_dtype", "tag_activation_checkpoint", "strict_mode"),
    }
)

NUMBERS = (*SYMBOLIC_TYPES, int, float)
"""What Python arithmetic in a trace gives: torch 2.11 writes a known number as it is."""
_OPERATORS = (OpOverload, HigherOrderOperator)


_FIRST_OWN = 1_000_000
"""A number that torch gives no symbol."""


@dataclass(slots=True)
class Context:
    """What the translation of a program and of all its bodies share.

    Attributes:
        run_devices: The devices that stand for "where the program runs" in device arguments.
        symbols: The range of each symbol of the program.
        refused: Everything that could not be translated, in program order.
        known: The symbols of sizes and numbers from data that the nodes so far have made.
        own: Symbols that torch did not make.
    """

    run_devices: Collection[torch.device]
    symbols: dict[str, SymbolRange] = field(default_factory=dict[str, SymbolRange])
    refused: Diagnostics = field(default_factory=Diagnostics)
    known: set[str] = field(default_factory=set[str])
    own: set[str] = field(default_factory=set[str])

    def attribute(self, value: object) -> Attribute:
        """Convert a non-tensor argument to an attribute."""
        return attribute_from_torch(value, self.run_devices)

    def counted(self, operator: object, outputs: Sequence[TensorMeta]) -> tuple[SymbolFact, ...]:
        """Return the sizes that torch counted while it traced, each with a symbol of its own."""
        found = [
            replace(fact, symbol=f"u{_FIRST_OWN + len(self.own) + i}")
            for i, fact in enumerate(counted_facts(operator, outputs))
        ]
        for fact in found:
            self.own.add(fact.symbol)
            self.symbols[fact.symbol] = SymbolRange(int(fact.text), int(fact.text))
        return tuple(found)

    def refuse(self, node: FxNode | None, error: InvalidIRError) -> None:
        """Note something that cannot be translated, with where it stands."""
        found = Diagnostic("not-translated", error.message, remedy=error.remedy or "")
        if node is not None:
            found = replace(found, node=node.name, location=node_location(node))
        self.refused.add(found)


class GraphTranslator:
    """Translates the calls of one traced graph, given the values of its placeholders."""

    def __init__(self, module: GraphModule, context: Context):
        self.module = module
        self.context = context
        self.values: dict[FxNode, Any] = {}
        self.nodes: list[OpNode] = []
        self.functions: dict[str, IR] = {}
        self.operators: dict[str, str] = {}
        self.captures = Captures()
        self._items: list[Item] = []
        self._layout_symbols: set[str] = set()

    def run(self) -> None:
        """Translate every node but placeholders and the output."""
        for node in self.module.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            try:
                self.values[node] = self._translate(node)
            except InvalidIRError as error:
                self.values[node] = None
                self.context.refuse(node, error)
        self._fold_scopes()

    def _fold_scopes(self) -> None:
        """Autocast regions become calls; values that they make have other names after them."""
        folder = ScopeFolder(self.functions, self.context.symbols)
        returned = self.module.graph.output_node().args[0]
        try:
            needed = {meta.name for meta in self.tensors(returned)}
            self.nodes, renamed = folder.fold(self._items, needed)
        except InvalidIRError as error:
            self.context.refuse(None, error)
            return
        for node, value in self.values.items():
            if isinstance(value, TensorMeta) and value.name in renamed:
                self.values[node] = renamed[value.name]

    def leaf(self, value: object) -> TensorLeaf | ValueLeaf:
        """Make the leaf of a signature for an output: a traced node or a plain value."""
        value = self.values[value] if isinstance(value, FxNode) else value
        if isinstance(value, TensorMeta):
            return TensorLeaf(value.name)
        return ValueLeaf(self.context.attribute(value))

    def tensors(self, outputs: object) -> Iterator[TensorMeta]:
        """Yield the tensors among the outputs, in order."""
        for value in pytree.tree_leaves(outputs):
            value = self.values[value] if isinstance(value, FxNode) else value
            if isinstance(value, TensorMeta):
                yield value

    # -- one node ---------------------------------------------------------------------------------

    def _translate(self, node: FxNode) -> Any:
        if node.op == "get_attr":
            return self._attribute(node)
        if node.op != "call_function":
            raise InvalidIRError(f"a traced {node.op} has no counterpart")
        value = node.meta.get("val")
        if node.target is operator.getitem:
            source = self.values[cast(FxNode, node.args[0])]
            return None if source is None else source[node.args[1]]
        if isinstance(value, NUMBERS) and not isinstance(node.target, _OPERATORS):
            arguments = tuple([self._resolved(argument) for argument in node.args])
            return call_expression(node.target, arguments, value)
        if str(node.target) in _ASIDES:
            return None
        if node.target is torch.ops.aten.copy_.default and _is_itself(*node.args[:2]):
            return self.values[cast(FxNode, node.args[0])]
        if isinstance(node.target, OpOverload):
            schema = schema_of(node.target)
            if lookup(schema.op_type) is None:
                self.operators[schema.op_type] = schema.text
            return self._operator(node, str(node.target))
        if isinstance(node.target, HigherOrderOperator):
            name = node.target.name()
            if name not in SUPPORTED_HIGHER_ORDER:
                raise InvalidIRError(f"the higher-order operator {name} is not translated yet")
            return self._operator(node, f"higher_order.{name}")
        if node.target is torch.amp.autocast_mode._enter_autocast:  # pyright: ignore[reportPrivateUsage]  # what torch traces
            self._items.append(_begin(node, self.context))
            return None
        if node.target is torch.amp.autocast_mode._exit_autocast:  # pyright: ignore[reportPrivateUsage]  # what torch traces
            self._items.append(End(cast(FxNode, node.args[0]).name))
            return None
        raise InvalidIRError(f"a call of {node.target} has no counterpart")

    def _resolved(self, argument: Any) -> Any:
        return self.values[argument] if isinstance(argument, FxNode) else argument

    def _attribute(self, node: FxNode) -> FunctionRef | TensorMeta:
        name = str(node.target)
        held: Any = self.module
        for part in name.split("."):
            held = getattr(held, part)
        if isinstance(held, torch.Tensor):
            self.captures.own[node.name] = held
            return tensor_meta(node.name, held)
        if not isinstance(held, GraphModule):
            raise InvalidIRError(
                f"the graph holds a {type(held).__name__} as the attribute {name!r}"
            )
        if name not in self.functions:
            handed = self._handed(node)
            self.functions[name], captured = function_ir(held, name, self.context, handed)
            self.captures.of_bodies[name] = captured
        return FunctionRef(name)

    def _handed(self, body: FxNode) -> list[Any]:
        """What the call of a body hands it last, out of the lists that it takes."""
        for call in body.users:
            named = {name: value for name, value, _ in named_arguments(call)}
            known = BODY_CALLS.get(
                f"higher_order.{cast(HigherOrderOperator, call.target).name()}", {}
            )
            for argument, how in known.items():
                if named.get(argument) is body:
                    lists = [named.get(taken, ()) for taken in how.takes]
                    return [self._recorded(item) for part in lists for item in part]
        return []

    def _recorded(self, argument: Any) -> Any:
        """What torch recorded for an argument, which a later node may make."""
        if not isinstance(argument, FxNode):
            return argument
        return argument.meta.get("val", self.values.get(argument))

    @cached_property
    def _names(self) -> Names:
        """The names that the graph leaves free."""
        return Names(node.name for node in self.module.graph.nodes)

    def _operator(self, node: FxNode, op_type: str) -> Any:
        value = _run_value(node) if "val" in node.meta else self._unrecorded(node)
        bound = _bound_symbols(node)
        self._layout_symbols |= _layout_symbols(node)
        facts = tuple(self._facts(node, value))
        if facts and isinstance(value, SYMBOLIC_TYPES):
            bound = {facts[0].symbol: 0}
        if isinstance(value, SYMBOLIC_TYPES) and not bound:
            queried = expression(value)
            if queried.text not in self._layout_symbols:
                return queried
            self._layout_symbols.remove(queried.text)
            bound = {queried.text: 0}
        call = translate_call(node, self.values.__getitem__, self.context.attribute)
        result, outputs = _results(node.name, value)
        _require_facts(op_type, node, call, outputs)
        made = self._convert(node, op_type, call, outputs)
        if any(self.captures.of_bodies.values()):
            made = self.captures.hand_in(made, self.functions, self._names)
        self._items.append(made.replace(binds=bound) if bound else made)
        facts += self.context.counted(node.target, outputs)
        self._items.extend(runtime_asserts(facts, made, self._names))
        self._items.extend(squeeze_asserts(made, self.context.known, self._names))
        return result

    def _facts(self, node: FxNode, value: Any) -> Iterator[SymbolFact]:
        """Yield what torch has proved about the numbers that the node makes from data."""
        if isinstance(node.target, OpOverload):
            # a graph that torch traces again gives old symbols the names of new ones
            renamed = {str(symbol) for symbol in node.meta.get("unbacked_bindings") or ()}
            renamed |= self._layout_symbols  # which the views that have them bind, before a query
            for fact in symbol_facts(value):
                if fact.symbol not in self.context.known:
                    self.context.known.add(fact.symbol)
                    if fact.is_news and fact.text not in renamed:
                        yield fact

    def _convert(
        self, node: FxNode, op_type: str, call: ExportedCall, outputs: list[TensorMeta]
    ) -> OpNode:
        info = NodeInfo(
            name=node.name,
            target=node.target,
            op_type=op_type,
            input_metas=call.inputs,
            output_metas=outputs,
            attrs=_checked_type(call) if op_type in TYPE_CHECKS else call.attrs,
            operands=call.operands,
            location=node_location(node),
        )
        return conversion_of(op_type)(info)

    def _unrecorded(self, node: FxNode) -> Any:
        """The traced results where torch records none: nothing, or those of a scope's body."""
        if isinstance(node.target, OpOverload) and not schema_of(node.target).returns:
            return None
        bodies = [
            cast(GraphModule, self.module.get_submodule(str(arg.target)))
            for arg in node.args
            if isinstance(arg, FxNode) and arg.op == "get_attr"
        ]
        if len(bodies) != 1:
            raise InvalidIRError(f"torch recorded no result for {node.target}")
        results = bodies[0].graph.output_node().args[0]
        return map_arg(results, lambda made: made.meta["val"])


_ASIDES = frozenset(
    (
        *("aten.can_cast.default", "aten.promote_types.default", "aten.result_type.Tensor"),
        *("aten.result_type.Scalar", "aten.result_type.Scalar_Scalar"),
        *("aten.result_type.Scalar_Tensor", "profiler._record_function_enter_new.default"),
        "profiler._record_function_exit._RecordFunction",
    )
)
"""Operators that ask about dtypes, to which a trace has the answers, or mark spans of profiles."""

_DIFFERENTIATED = ("aten.embedding_bag.default", "aten.embedding_bag.padding_idx")
"""Operators whose second results have other sizes where gradients are recorded."""


def _begin(node: FxNode, context: Context) -> Begin:
    given = [context.attribute(argument) for argument in node.args]
    names: dict[str, Attribute] = dict(zip(AUTOCAST_ARGUMENTS, given, strict=True))
    return Begin(node.name, names)


def _is_itself(target: Any, source: Any) -> bool:
    """Whether a value is the tensor that it is copied to, as after ``self.count += 1``.

    Such a copy gives nothing, and autograd takes it for a write behind what it keeps.
    """
    while source is not target:
        if not isinstance(source, FxNode) or not isinstance(source.target, OpOverload):
            return False
        schema = schema_of(source.target)
        first = schema.arguments[0] if schema.arguments else None
        returned = schema.returns[0].alias if len(schema.returns) == 1 else ""
        if first is None or not first.is_written or first.alias != returned:
            return False
        source = source.args[0]
    return True


def _run_value(node: FxNode) -> Any:
    """The results of a node as a program makes them, which runs without gradients."""
    given = [arg.meta.get("val") for arg in node.all_input_nodes]
    modes = [value.fake_mode for value in given if isinstance(value, FakeTensor)]
    if str(node.target) not in _DIFFERENTIATED or len(modes) < len(given):
        return node.meta["val"]
    args, kwargs = map_arg((node.args, node.kwargs), lambda arg: arg.meta["val"].detach())
    with modes[0], torch.no_grad():
        return cast(OpOverload, node.target)(*args, **kwargs)


def _bound_symbols(node: FxNode) -> dict[str, int]:
    """The symbols for numbers that the call makes from data, each with its result's position.

    Sizes of results that depend on data are read from their shapes and need no mention.
    """
    bound: dict[str, int] = {}
    for symbol, path in (node.meta.get("unbacked_bindings") or {}).items():
        keys = [key for key in path if isinstance(key, pytree.SequenceKey)]
        kinds = {type(key).__name__ for key in path} - {"SequenceKey", "ConvertIntKey"}
        if not kinds:
            bound[str(symbol)] = keys[0].idx if keys else 0
    return bound


def _layout_symbols(node: FxNode) -> set[str]:
    """The symbols for strides and storage offsets that depend on data: no shape tells them."""
    bindings = cast(dict[Any, Any], node.meta.get("unbacked_bindings") or {})
    methods = ("stride", "storage_offset")
    return {
        str(symbol)
        for symbol, path in bindings.items()
        if any(getattr(key, "name", None) in methods for key in path)
    }


def function_ir(
    module: GraphModule, name: str, context: Context, handed: Sequence[Any]
) -> tuple[IR, Captured]:
    """Return the IR of a body, and its own constants, which are to become inputs.

    ``handed`` is what the call hands it last: torch records no value for a number that it baked
    into the body, which is then that of the call.
    """
    translator = GraphTranslator(module, context)
    arguments: list[TensorLeaf | ValueLeaf] = []
    graph_inputs: list[TensorMeta] = []
    placeholders = module.graph.find_nodes(op="placeholder")
    unknown = [None] * (len(placeholders) - len(handed))
    for node, given in zip(placeholders, [*unknown, *handed], strict=False):
        value = node.meta.get("val", given)
        if isinstance(value, torch.Tensor):
            meta = tensor_meta(node.name, value)
            graph_inputs.append(meta)
            translator.values[node] = meta
            arguments.append(TensorLeaf(node.name))
        else:
            translator.values[node] = context.attribute(value)
            arguments.append(ValueLeaf(translator.values[node]))
    translator.run()
    results = module.graph.output_node().args[0]
    body = IR(
        nodes=tuple(translator.nodes),
        graph_inputs=tuple(graph_inputs),
        graph_outputs=tuple(translator.tensors(results)),
        weights=(),
        model_name=name,
        symbols=context.symbols,
        functions=translator.functions,
        operators=translator.operators,
        signature=Signature(
            Signature.of(arguments, ()).inputs, tree_from_value(results, translator.leaf)
        ),
    )
    return body, translator.captures.own


def _checked_type(call: ExportedCall) -> dict[str, Attribute]:
    """What a check of a type asks for, without a device that the run need not have.

    A tensor that a model holds elsewhere is a constant, and lies where the program runs. What
    torch recorded for a tensor under autocast may be another type than it has, as may its check.
    """
    attrs = dict(call.attrs)
    if attrs.get("device", Device(RUN_DEVICE)) != Device(RUN_DEVICE):
        attrs["device"] = None
    if attrs.get("dtype") is not None:
        attrs["dtype"] = DType(call.inputs[0].dtype)
    return attrs


def _require_facts(
    op_type: str, node: FxNode, call: ExportedCall, results: Sequence[TensorMeta]
) -> None:
    """Refuse a call of which torch notes what need not be so."""
    _require_same_type(op_type, call, results)
    _require_known_count(op_type, node)


def _require_same_type(op_type: str, call: ExportedCall, results: Sequence[TensorMeta]) -> None:
    """Refuse a write that torch adds where a model sets a buffer to a tensor of another type.

    Raises:
        InvalidIRError: What is written would be converted, which eager does not do.
    """
    if op_type != "aten.copy_.default":
        return
    written = call.inputs[0]
    for made in results:
        if (made.shape, made.dtype) != (written.shape, written.dtype):
            raise InvalidIRError(
                f"the model sets %{written.name}: {type_text(written)} to a tensor "
                f"{type_text(made)}, and a program keeps the shape and dtype of what it writes",
                remedy="Give the buffer the type that it ends with, or write into it with "
                "copy_().",
            )


def _require_known_count(op_type: str, node: FxNode) -> None:
    """Refuse to read how many elements a tensor stores where that is no fact of the program.

    Raises:
        InvalidIRError: It depends on data, and torch has a number for it all the same.
    """
    if op_type not in COUNTS_STORED:
        return
    maker = cast(FxNode, node.args[0])
    stored = maker.meta["val"]
    if stored.layout is not torch.strided and str(maker.target) not in MADE_OF_PARTS:
        raise InvalidIRError(
            f"{op_type} tells how many elements a sparse tensor stores, which data decides and "
            f"torch.export takes for {stored._nnz()}",
            remedy="Compute with the sparse tensor as a whole, or give its indices and values as "
            "dense tensors.",
        )


def _results(name: str, value: object) -> tuple[Any, list[TensorMeta]]:
    """The traced result of a call, nested as the operator nests it, and its tensors in a list.

    The tensors in both are metadata.
    """
    if isinstance(value, torch.Tensor):
        meta = tensor_meta(name, value, name)
        return meta, [meta]
    if isinstance(value, SYMBOLIC_TYPES):
        return expression(value), []
    outputs: list[TensorMeta] = []
    position = 0

    def convert(item: object) -> Any:
        nonlocal position
        if isinstance(item, list | tuple):
            return [convert(part) for part in cast(list[object], item)]
        index = position
        position += 1
        if isinstance(item, torch.Tensor):
            outputs.append(tensor_meta(f"{name}.{index}", item, name, index))
            return outputs[-1]
        if isinstance(item, SYMBOLIC_TYPES):
            return expression(item)
        if item is None or isinstance(item, int | float | bool):
            return item
        raise InvalidIRError(f"a result of type {type(item).__name__} has no counterpart")

    return (None if value is None else convert(value)), outputs
