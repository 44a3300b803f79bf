"""One operator call, and where in the user's program it came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

from torch_ir.arguments import public
from torch_ir.errors import InvalidIRError
from torch_ir.frozen import EMPTY, FrozenDict, frozen_items, frozen_mapping, set_plain_text
from torch_ir.ir.symbols import SymExpr
from torch_ir.ir.tensor import TensorMeta
from torch_ir.ir.values import Attribute, FunctionRef, as_attribute, attribute_leaves, is_plain
from torch_ir.ops.schema import Slots, bind_in_order, in_order, indices_of, lookup
from torch_ir.tables import Shown


@dataclass(frozen=True, slots=True)
class Location:
    """Where a node came from.

    Attributes:
        file: Source file of the innermost frame of the user's code, or the empty string.
        line: Its line number, from 1; 0 if unknown.
        code: The text of that line.
        module: Path of the module that made the call, such as ``layers.3.self_attn.q_proj``; empty
            for the root.
        module_type: Qualified class name of that module.

    Example:
        >>> str(Location("net.py", 12, "return self.fc(x)", "fc", "torch.nn.Linear"))
        'net.py:12 in fc (Linear): return self.fc(x)'
    """

    file: str = ""
    line: int = 0
    code: str = ""
    module: str = ""
    module_type: str = ""

    def __post_init__(self) -> None:
        if (
            not type(self.file)
            is type(self.code)
            is type(self.module)
            is type(self.module_type)
            is str
        ):
            set_plain_text(self, "file", "code", "module", "module_type")

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file else ""
        kind = f"({self.module_type.rpartition('.')[2]})" if self.module_type else ""
        inside = " ".join(part for part in (self.module, kind) if part)
        text = " in ".join(part for part in (place, inside) if part)
        return f"{text}: {self.code}" if self.code else text


@dataclass(frozen=True, slots=True)
class OpNode(Shown):
    """One call of one exact operator overload.

    Attributes:
        name: Unique name in its graph.
        op_type: The exact overload, such as ``aten.conv2d.default``; never matched by prefix.
        inputs: The tensors that it takes, in the order in which the arguments that take them stand
            in the schema; given in another order, they are put into this one.
        outputs: The tensors that it makes; ``producer_output_idx`` is the position among the
            operator's results, flattened.
        attrs: Non-tensor arguments by schema name.
        operands: Which argument takes which input, ``{"input": 0, "weight": 1}``, lists as
            ``{"tensors": (0, 1, None)}``. A node made without it is bound in the schema's order;
            it stays None if the operator is unknown or the inputs do not fit, which
            :meth:`IR.check` reports.
        location: Where it came from.
        binds: Symbols that take their value from a result that is a number: ``{"u0": 0}`` for the
            first. (A symbol that is a dimension of an output is bound by that.)
        origins: Names of the nodes of the extracted program that this one is made of; empty for
            the node itself. Not compared.

    Example:
        >>> x = TensorMeta("x", (2, 3), "float32")
        >>> y = TensorMeta("y", (2, 3), "float32", "y")
        >>> node = OpNode("y", "aten.add.Tensor", [x, x], [y], {"alpha": 2})
        >>> node.operands
        {'self': 0, 'other': 1}
        >>> print(node)
        %y: f32[2, 3] = aten.add.Tensor(%x, %x, alpha=2)
    """

    name: str
    op_type: str
    inputs: Sequence[TensorMeta]
    outputs: Sequence[TensorMeta]
    attrs: Mapping[str, Any] = EMPTY
    operands: Mapping[str, Slots] | None = None
    location: Location | None = None
    binds: Mapping[str, int] = EMPTY
    origins: Sequence[str] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        if not type(self.name) is type(self.op_type) is str:
            set_plain_text(self, "name", "op_type")
        if type(self.origins) is not tuple or self.origins:
            set_field(self, "origins", _freeze_origins(self.name, self.origins))
        set_field(self, "inputs", frozen_items(self.inputs, TensorMeta, "the inputs of a node"))
        set_field(self, "outputs", frozen_items(self.outputs, TensorMeta, "the outputs of a node"))
        if type(self.attrs) is not FrozenDict:
            set_field(self, "attrs", _freeze_attributes(self.name, self.attrs))
        if type(self.binds) is not FrozenDict:
            set_field(self, "binds", _freeze_binds(self.name, self.binds))
        if self.operands is not None and type(self.operands) is not FrozenDict:
            set_field(self, "operands", _freeze_operands(self.name, self.operands))
        _bind(self)

    # -- queries ----------------------------------------------------------------------------------

    @property
    def slots(self) -> Mapping[str, Slots]:
        """The operands; empty where the inputs are not bound to arguments."""
        return EMPTY if self.operands is None else self.operands

    def argument(self, name: str, default: Any = None) -> Any:
        """Return what an argument is given.

        Args:
            name: Its name in the schema.
            default: What to return if it is not given.

        Returns:
            A TensorMeta, a tuple for a list of tensors (None where there is no tensor), or the
            attribute. A list of tensors and numbers has both.

        Example:
            >>> x = TensorMeta("x", (2,), "float32")
            >>> y = TensorMeta("y", (4,), "float32", "y")
            >>> node = OpNode("y", "aten.cat.default", [x, x], [y], {"dim": 0})
            >>> [str(meta) for meta in node.argument("tensors")], node.argument("dim")
            (['%x: f32[2]', '%x: f32[2]'], 0)
        """
        slots = self.slots.get(name)
        if isinstance(slots, int):
            return self._input(slots)
        if slots is None:
            return self.attrs.get(name, None if name in self.slots else default)
        metas = tuple([None if slot is None else self._input(slot) for slot in slots])
        values = self.attrs.get(name)
        if not isinstance(values, tuple) or len(values) != len(metas):
            return metas
        return tuple([b if a is None else a for a, b in zip(metas, values, strict=True)])

    def tensors(self, name: str) -> tuple[TensorMeta, ...]:
        """Return the tensors that an argument is given: none, one, or those of a list."""
        found = [self._input(index) for index in indices_of(self.slots.get(name))]
        return tuple([meta for meta in found if meta is not None])

    def tensor(self, name: str) -> TensorMeta | None:
        """Return the tensor that an argument is given; None for a list and for what is absent."""
        slot = self.slots.get(name)
        return self._input(slot) if isinstance(slot, int) else None

    def _input(self, index: int) -> TensorMeta | None:
        return self.inputs[index] if 0 <= index < len(self.inputs) else None

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the functions that the arguments refer to, in order."""
        return tuple([item.name for item in self._nested() if isinstance(item, FunctionRef)])

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols in the arguments and in the shapes of inputs and outputs."""
        found = self._nested()
        for meta in (*self.inputs, *self.outputs):
            found += [dim for dim in meta.shape if type(dim) is not int]
        expressions = [item for item in found if isinstance(item, SymExpr)]
        return frozenset([symbol for item in expressions for symbol in item.symbols])

    def _nested(self) -> list[Attribute]:
        """The attributes and what they hold, but for plain numbers and texts."""
        found: list[Attribute] = []
        for value in self.attrs.values():
            if not is_plain(value):
                found += attribute_leaves(value)
        return found

    # -- change, show, store ----------------------------------------------------------------------

    def __str__(self) -> str:
        from torch_ir.ir.text import node_text

        return node_text(self)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with the given fields changed."""
        return replace(self, **changes)

    @property
    def made_of(self) -> tuple[str, ...]:
        """The names of the extracted nodes that this one is made of: its origins, or its own."""
        return tuple(self.origins) or (self.name,)

    @public
    def derived_from(self, *nodes: OpNode) -> Self:
        """Return this node as one that a pass makes of others: with the origins of all of them.

        Example:
            >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
            >>> silu = OpNode("y", "aten.silu.default", [x], [y])
            >>> part = OpNode("y_sigmoid", "aten.sigmoid.default", [x], [y])
            >>> part.derived_from(silu).origins, silu.derived_from(silu).origins
            (('y',), ())
        """
        origins = tuple(dict.fromkeys([name for node in nodes for name in node.made_of]))
        origins = () if origins == (self.name,) else origins
        return self if origins == self.origins else replace(self, origins=origins)

    @public
    def arguments(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return what the call is given, by argument and in order, attributes last.

        Args:
            values: What stands for each input.

        Example:
            >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (4,), "float32", "y")
            >>> OpNode("y", "aten.cat.default", [x, x], [y], {"dim": 0}).arguments("ab")
            {'tensors': ['a', 'b'], 'dim': 0}

        Raises:
            InvalidIRError: There are fewer values than inputs, or an operand is no input.
        """
        given = _given(self, values)
        return {**given, **{name: self.attrs[name] for name in self.attrs if name not in given}}

    def to_dict(self) -> dict[str, Any]:
        """Convert this node to its JSON document."""
        from torch_ir.serde import node_to_dict

        return node_to_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> OpNode:
        """Read the node of a JSON document.

        Raises:
            SerializationError: The document is not that of a node.
        """
        from torch_ir.serde import node_from_dict

        return node_from_dict(data)


def _given(node: OpNode, values: Sequence[Any]) -> dict[str, Any]:
    try:
        return {
            name: [None if slot is None else values[slot] for slot in slots]
            if isinstance(slots, tuple)
            else (None if slots is None else values[slots])
            for name, slots in node.slots.items()
        }
    except IndexError:
        raise InvalidIRError(
            f"the operands of node {node.name!r} are of {len(node.inputs)} inputs, "
            f"{len(values)} values are given"
        ) from None


def _freeze_attributes(node: str, attrs: Mapping[str, object]) -> FrozenDict[str, Attribute]:
    frozen: dict[str, Attribute] = {}
    for name, value in frozen_mapping(attrs).items():
        try:
            frozen[name] = as_attribute(value)
        except InvalidIRError as error:
            raise InvalidIRError(
                f"attribute {name!r} of node {node!r}: {error.message}", remedy=error.remedy
            ) from None
    return FrozenDict(frozen)


def distinct_inputs(node: OpNode) -> list[TensorMeta]:
    """Return the inputs of a call, each once."""
    return [*{meta.name: meta for meta in node.inputs}.values()]


def needs(nodes: Sequence[OpNode], returned: Iterable[TensorMeta] = ()) -> dict[str, TensorMeta]:
    """Return what nodes read, and what is returned of them, less what they make, by first use."""
    made = {meta.name for node in nodes for meta in node.outputs}
    read = (*[meta for node in nodes for meta in node.inputs], *returned)
    return {meta.name: meta for meta in read if meta.name not in made}


def module_of(node: OpNode) -> str:
    """Return the path of the module that made a call; empty for the root, and if unknown."""
    return node.location.module if node.location else ""


def source_place(node: OpNode) -> str:
    """Return where a call was written, as ``file:line``; empty if unknown."""
    place = node.location
    return f"{place.file}:{place.line}" if place and place.file else ""


def _freeze_operands(node: str, operands: Mapping[str, object]) -> FrozenDict[str, Slots]:
    frozen: dict[str, Slots] = {}
    for name, slots in frozen_mapping(operands).items():
        if isinstance(slots, list | tuple):
            items = cast(Iterable[object], slots)
            frozen[name] = tuple([_slot(node, name, item) for item in items])
        else:
            frozen[name] = _slot(node, name, slots)
    return FrozenDict(frozen)


def _bind(node: OpNode) -> None:
    """Bind inputs that are bound to no arguments yet, and put the others in the schema's order."""
    schema = lookup(node.op_type)
    if schema is None:
        return
    if node.operands is None:
        bound = bind_in_order(schema, len(node.inputs), node.attrs)
        object.__setattr__(node, "operands", None if bound is None else FrozenDict(bound))
    elif (found := in_order(schema, len(node.inputs), (*node.operands.items(),))) is not None:
        order, operands = found
        object.__setattr__(node, "inputs", tuple([node.inputs[index] for index in order]))
        object.__setattr__(node, "operands", FrozenDict(operands))


def _freeze_origins(node: str, origins: Sequence[object]) -> tuple[str, ...]:
    if isinstance(origins, str):
        raise InvalidIRError(f"the origins of node {node!r} are a list, got {origins!r:.60}")
    found = frozen_items(origins, str, f"the origins of node {node!r}")
    return tuple([str(name) for name in found])


def _freeze_binds(node: str, binds: Mapping[str, object]) -> FrozenDict[str, int]:
    frozen = frozen_mapping(cast(Mapping[str, int], binds))
    for symbol, index in frozen.items():
        if type(index) is not int or index < 0:
            raise InvalidIRError(
                f"the symbol {symbol!r} of node {node!r} is bound to a result's index, "
                f"got {index!r:.60}"
            )
    return frozen


def _slot(node: str, name: str, slot: object) -> int | None:
    if slot is not None and type(slot) is not int:
        raise InvalidIRError(
            f"operand {name!r} of node {node!r} must be an input's index or None, got {slot!r:.60}"
        )
    return slot
