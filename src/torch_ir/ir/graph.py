"""The program: operator calls in order, with inputs, outputs, weights and all else it means."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Self, TypeVar, cast

from torch_ir.errors import InvalidIRError, did_you_mean
from torch_ir.frozen import (
    EMPTY,
    FrozenDict,
    Functions,
    frozen_items,
    frozen_mapping,
    set_plain_text,
)
from torch_ir.ir import queries
from torch_ir.ir.aliases import Aliases
from torch_ir.ir.forms import Forms
from torch_ir.ir.node import OpNode
from torch_ir.ir.symbols import SymExpr
from torch_ir.ir.tensor import Constant, TensorMeta, as_constant
from torch_ir.ir.tree import Signature
from torch_ir.ir.values import as_attribute
from torch_ir.ops.effects import Effects
from torch_ir.ops.schema import Schema, lookup, parse_schema

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SymbolRange:
    """The values that a symbol may take, both ends included; an end that is None is unbounded.

    Example:
        >>> str(SymbolRange(2, 16)), 17 in SymbolRange(2, 16), -1 in SymbolRange(None, 0)
        ('2..16', False, True)
    """

    lower: int | None = 0
    upper: int | None = None

    def __post_init__(self) -> None:
        for end in (self.lower, self.upper):
            if end is not None and not isinstance(end, int):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
                raise InvalidIRError(f"an end of a range is an integer or None, got {end!r:.60}")
        if self.lower is not None and self.upper is not None and self.upper < self.lower:
            raise InvalidIRError(f"the range {self} is empty")

    def __str__(self) -> str:
        lower = "" if self.lower is None else self.lower
        return f"{lower}.." if self.upper is None else f"{lower}..{self.upper}"

    def __contains__(self, value: float) -> bool:
        above = self.lower is None or self.lower <= value
        return above and (self.upper is None or value <= self.upper)


@dataclass(frozen=True, slots=True)
class Mutation:
    """A buffer or a graph input that the program writes.

    Attributes:
        target: Name of the value that is written: a graph input, or the name under which nodes use
            a weight.
        value: What it holds when the program ends; the target itself where in-place operators
            write to it as it runs.
    """

    target: str
    value: TensorMeta

    def __post_init__(self) -> None:
        set_plain_text(self, "target")


_ITEMS: Sequence[tuple[str, type, str]] = [
    (name, kind, f"the {name} of an IR")
    for name, kind in (
        ("nodes", OpNode),
        ("graph_inputs", TensorMeta),
        ("graph_outputs", TensorMeta),
        ("weights", TensorMeta),
        ("mutations", Mutation),
        ("guards", SymExpr),
    )
]
"""The lists of an IR, what they are of, and what errors call them."""
_items_of = attrgetter(*[name for name, _, _ in _ITEMS])
_MAPPINGS: Mapping[str, type[FrozenDict[str, Any]]] = {
    **dict.fromkeys(("weight_name_mapping", "symbols", "weight_aliases", "operators"), FrozenDict),
    "functions": Functions,
}
_mappings_of = attrgetter(*_MAPPINGS)

_NO_FUNCTIONS: Functions[Any] = Functions()


class _Views(dict[object, Any]):
    """What is derived from a graph: a deep copy, or a pickle, derives it again."""

    def __reduce__(self) -> tuple[type[_Views], tuple[()]]:
        return _Views, ()


def _has_unnamed_producer(ir: IR, taken: Collection[str]) -> bool:
    """Whether a value that a node makes names no producer; in loops, as every new IR asks."""
    for node in ir.nodes:
        for meta in node.outputs:
            if meta.producer_node is None:
                return True
        for meta in node.inputs:
            if meta.producer_node is None and meta.name not in taken:
                return True
    ends = (*ir.graph_outputs, *[mutation.value for mutation in ir.mutations])
    return any(meta.producer_node is None and meta.name not in taken for meta in ends)


def with_producers(ir: IR) -> dict[str, tuple[Any, ...]]:
    """Return the fields that change where values name the node that makes them, at its position.

    Values that are made by hand name no producer; those of graph inputs and weights have none.
    """
    if not ir.nodes:
        return {}
    taken = {*ir.input_names, *ir.weight_name_mapping}
    if not _has_unnamed_producer(ir, taken):
        return {}
    made: dict[str, TensorMeta] = {}

    def named(meta: TensorMeta) -> TensorMeta:
        if meta.producer_node is not None or meta.name not in made:
            return meta
        maker = made[meta.name]
        producer, position = maker.producer_node, maker.producer_output_idx
        return meta.replace(producer_node=producer, producer_output_idx=position)

    nodes: list[OpNode] = []
    for node in ir.nodes:
        outputs = [
            meta.replace(producer_node=node.name, producer_output_idx=position)
            if meta.producer_node is None
            else meta
            for position, meta in enumerate(node.outputs)
        ]
        nodes.append(node.replace(inputs=[*map(named, node.inputs)], outputs=outputs))
        made.update({meta.name: meta for meta in outputs if meta.name not in taken})
    written = [replace(mutation, value=named(mutation.value)) for mutation in ir.mutations]
    results = tuple(map(named, ir.graph_outputs))
    return {"nodes": tuple(nodes), "graph_outputs": results, "mutations": tuple(written)}


@dataclass(frozen=True, slots=True, repr=False)
class IR(Forms):
    """A PyTorch program without its weights.

    Attributes:
        nodes: The operator calls in program order. A value that names no producer is made to
            name the node in whose outputs it stands, with its position there.
        graph_inputs: The tensors that a call gives.
        graph_outputs: The tensors that a call returns, in order; one value may stand more than
            once.
        weights: Parameters, buffers and constants whose values come from outside, by their
            ``state_dict`` key.
        weight_name_mapping: The name under which nodes use a weight or constant, to its key.
        constants: Values that are part of the program, by key.
        model_name: A name for people.
        pytorch_version: The torch that the program was extracted with.
        symbols: Each symbol's range.
        functions: Programs that nodes refer to by name: bodies of control flow and of scopes.
        mutations: The buffers and inputs that the program writes.
        signature: The structure of arguments and results; None for a graph of plain tensors.
        dialect: The rules that the graph keeps; ``"export"`` is what ``torch.export`` gives.
        weight_aliases: Other ``state_dict`` keys of a tied weight, to the key in ``weights``.
        guards: Conditions on the symbols under which the program was traced; it is another one
            where they do not hold, and a call that breaks one is refused.
        operators: Schemas, in torch's text, of the operators that libraries registered, by
            overload: those that the table of torch's own operators does not have.
        metadata: Values for tools, kept by every pass and format. To this package two have a
            meaning: ``custom_gradients``, autograd functions that were traced by their forward
            alone, so that gradients are refused; and ``layouts`` of weights that are not dense.

    Raises:
        InvalidIRError: A field holds what it cannot hold. How the parts fit together is the matter
            of :meth:`check`.

    Example:
        >>> x = TensorMeta("x", (2,), "float32")
        >>> y = TensorMeta("y", (2,), "float32", "y")
        >>> ir = IR([OpNode("y", "aten.relu.default", [x], [y])], [x], [y], [], model_name="Relu")
        >>> ir
        IR(model_name='Relu', nodes=1, inputs=1, outputs=1, weights=0)
        >>> ir.check()
        ()
    """

    nodes: Sequence[OpNode]
    graph_inputs: Sequence[TensorMeta]
    graph_outputs: Sequence[TensorMeta]
    weights: Sequence[TensorMeta]
    weight_name_mapping: Mapping[str, str] = EMPTY
    constants: Mapping[str, Constant] = EMPTY
    model_name: str = ""
    pytorch_version: str = ""
    symbols: Mapping[str, SymbolRange] = EMPTY
    functions: Mapping[str, IR] = _NO_FUNCTIONS
    mutations: Sequence[Mutation] = ()
    signature: Signature | None = None
    dialect: str = "export"
    weight_aliases: Mapping[str, str] = EMPTY
    guards: Sequence[SymExpr] = ()
    operators: Mapping[str, str] = EMPTY
    metadata: Mapping[str, Any] = EMPTY
    _views: _Views = field(default_factory=_Views, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        for (name, kind, what), given in zip(_ITEMS, _items_of(self), strict=True):
            if type(given) is not tuple or given:
                set_field(self, name, frozen_items(given, kind, what))
        for (name, kind), given in zip(_MAPPINGS.items(), _mappings_of(self), strict=True):
            if type(given) is not kind:
                set_field(self, name, frozen_mapping(given, kind))
        for name, values in with_producers(self).items():
            set_field(self, name, values)
        if not type(self.model_name) is type(self.pytorch_version) is type(self.dialect) is str:
            set_plain_text(self, "model_name", "pytorch_version", "dialect")
        for op_type, text in self.operators.items():
            if parse_schema(text).op_type != op_type:
                raise InvalidIRError(f"{text!r:.80} is not the schema of {op_type}")
        if type(self.constants) is not FrozenDict or self.constants:
            given = frozen_mapping(self.constants)
            constants = {key: as_constant(value) for key, value in given.items()}
            set_field(self, "constants", frozen_mapping(constants))
        if type(self.metadata) is not FrozenDict:
            given = frozen_mapping(self.metadata)
            metadata = {key: as_attribute(value) for key, value in given.items()}
            set_field(self, "metadata", frozen_mapping(metadata))

    # -- views ------------------------------------------------------------------------------------

    def view(self, name: object, make: Callable[[], T]) -> T:
        """Return a value derived from this graph, computed once and kept with it.

        Args:
            name: Tells it from everything else that is derived.
            make: Makes it.
        """
        if name not in self._views:
            self._views[name] = make()
        return cast(T, self._views[name])

    @property
    def by_name(self) -> Mapping[str, OpNode]:
        """Each node by its name."""
        return self.view("by_name", lambda: FrozenDict({node.name: node for node in self.nodes}))

    @property
    def producers(self) -> Mapping[str, OpNode]:
        """The node that makes each value, by the value's name."""
        return self.view(
            "producers", lambda: FrozenDict({o.name: n for n in self.nodes for o in n.outputs})
        )

    @property
    def users(self) -> Mapping[str, tuple[OpNode, ...]]:
        """The nodes that take each value, by the value's name, in program order.

        A value that nothing takes is absent.
        """
        return self.view("users", lambda: queries.users(self))

    def schema_of(self, op_type: str) -> Schema | None:
        """Look up the schema of an operator that the program calls, or None if it is unknown."""
        text = self.operators.get(op_type) if self.operators else None
        return lookup(op_type) if text is None else parse_schema(text)

    def effects(self, node: OpNode) -> Effects:
        """Return what a node does beside giving its results.

        Of a call of functions, it is what they do. An argument that is not given is not written.

        Example:
            >>> x, y = TensorMeta("x", (4,), "float32"), TensorMeta("y", (4,), "float32", "y")
            >>> node = OpNode("y", "aten.relu_.default", [x], [y])
            >>> IR([node], [x], [], []).effects(node).writes
            ('self',)
        """
        known: dict[str, tuple[OpNode, Effects]] = self.view("effects", dict)
        found = known.get(node.name)  # a pass may ask of a node that it has not placed yet
        if found is None or found[0] is not node:
            found = known[node.name] = (node, queries.effects(self, node))
        return found[1]

    @property
    def aliases(self) -> Aliases:
        """Which values may share storage, and which of it is written."""
        return self.view("aliases", lambda: Aliases(self))

    def node(self, name: str) -> OpNode:
        """Return the node of that name.

        Raises:
            InvalidIRError: There is none; the message names the closest.
        """
        if not isinstance(name, str) or name not in self.by_name:  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
            raise InvalidIRError(
                f"there is no node {name!r}", remedy=did_you_mean(name, self.by_name)
            )
        return self.by_name[name]

    def external_values(self) -> Mapping[str, tuple[str, TensorMeta | Constant]]:
        """Return each name under which nodes may use a weight or constant, with key and kind.

        A weight or constant that the mapping does not name is used under its key.
        """
        return self.view("external_values", lambda: queries.external_values(self))

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the graph inputs, in order."""
        return tuple([meta.name for meta in self.graph_inputs])

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the graph outputs, in order; one may stand more than once."""
        return tuple([meta.name for meta in self.graph_outputs])

    @property
    def value_names(self) -> frozenset[str]:
        """The names of all values: graph inputs, external values and results of nodes."""
        return self.view("value_names", lambda: queries.value_names(self))

    @property
    def given_symbols(self) -> frozenset[str]:
        """The symbols to which the arguments of a call give their values."""
        return self.view("given_symbols", lambda: queries.given_symbols(self))

    @property
    def returned_symbols(self) -> frozenset[str]:
        """The symbols in the results that are numbers."""
        return self.view("returned_symbols", lambda: queries.returned_symbols(self))

    def walk(self) -> Iterator[tuple[str, IR, OpNode]]:
        """Yield the path, the graph and the node of every node, functions after their graph.

        The path of a node of this graph is empty, that of one in a function ``"body/"``.
        """
        return queries.walk(self)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with the given fields changed."""
        return replace(self, **changes)
