"""The arguments of an operator call as text, in both directions.

Tensors stand first, by position, as long as they are the leading arguments of the schema;
everything else is ``name=value``. The text and the node agree on one canonical order of arguments
(the schema's, then the rest), and a node whose inputs are not exactly its references in that order
lists them: ``aten.add.Tensor(#0, #0) of [%x]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias, cast

from torch_ir.errors import counted, did_you_mean
from torch_ir.frozen import FrozenDict
from torch_ir.ir.node import OpNode
from torch_ir.ir.tensor import TensorMeta
from torch_ir.ir.text.lexer import Line, is_word, parse_int, read_word, spell_int, word
from torch_ir.ir.text.value_text import read_value, spell_value
from torch_ir.ir.values import Attribute
from torch_ir.ops.schema import (
    KNOWN_NAMESPACES,
    Argument,
    Slots,
    indices_of,
    known_operators,
    lookup,
)


@lru_cache(maxsize=4096)
def _arguments(op_type: str) -> tuple[Argument, ...]:
    schema = lookup(op_type)
    return () if schema is None else schema.arguments


@lru_cache(maxsize=4096)
def _tensor_arguments(op_type: str) -> tuple[str, ...]:
    """The leading arguments of the schema that take tensors and may be given by position."""
    names: list[str] = []
    for argument in _arguments(op_type):
        takes = argument.takes_tensor or argument.takes_tensor_list
        if not takes or argument.keyword_only:
            break
        names.append(argument.name)
    return tuple(names)


@lru_cache(maxsize=4096)
def _ranks(op_type: str) -> dict[str, int]:
    return {argument.name: rank for rank, argument in enumerate(_arguments(op_type))}


# -- from a node to text --------------------------------------------------------------------------

Refer: TypeAlias = Callable[[TensorMeta], str]


def spell_call(node: OpNode, refer: Refer) -> str:
    """Spell the call of a node: ``aten.add.Tensor(%x, %y, alpha=2)``."""
    op = word(node.op_type)
    if node.operands is None:
        inputs = f"*[{', '.join(map(refer, node.inputs))}]"
        attributes = [
            f"{word(name)}={spell_value(node.attrs[name])}"
            for name in _order(node.op_type, {}, node.attrs)
        ]
        return f"{op}({', '.join([inputs, *attributes])})"
    names = _order(node.op_type, node.operands, node.attrs)
    used = [
        index
        for name in names
        if name in node.operands
        for index in indices_of(node.operands[name])
    ]
    if used == list(range(len(node.inputs))):
        tensors = [refer(meta) for meta in node.inputs]
        return f"{op}({', '.join(_spell_arguments(node, names, tensors.__getitem__))})"
    arguments = _spell_arguments(node, names, lambda index: f"#{spell_int(index)}")
    return f"{op}({', '.join(arguments)}) of [{', '.join(map(refer, node.inputs))}]"


def _order(
    op_type: str, operands: Mapping[str, Slots], attrs: Mapping[str, Attribute]
) -> list[str]:
    """Canonical order: as in the schema, then tensors by first input, then the rest by name."""
    ranks = _ranks(op_type)

    def key(name: str) -> tuple[int, int, str]:
        if name in ranks:
            return (0, ranks[name], "")
        indices = indices_of(operands[name]) if name in operands else []
        return (1, indices[0], name) if indices else (2, 0, name)

    names = operands.keys() | attrs.keys()
    return sorted(names, key=key) if len(names) > 1 else list(names)


def _spell_arguments(node: OpNode, names: Sequence[str], spell: Callable[[int], str]) -> list[str]:
    operands, attrs = cast(Mapping[str, Slots], node.operands), node.attrs
    leading = _tensor_arguments(node.op_type)
    parts: list[str] = []
    by_position = True
    for position, name in enumerate(names):
        if name not in operands:
            by_position = False
            parts.append(f"{word(name)}={spell_value(attrs[name])}")
            continue
        slots = operands[name]
        mixed = name in attrs and _is_mixed(slots, attrs[name])
        attribute = cast(tuple[Attribute, ...], attrs[name]) if mixed else None
        by_position &= name in leading[position : position + 1] and (mixed or name not in attrs)
        if by_position:
            parts.append(_spell_operand(slots, spell, attribute, marked=False))
            continue
        parts.append(f"{word(name)}={_spell_operand(slots, spell, attribute, marked=True)}")
        if name in attrs and not mixed:
            parts.append(f"{word(name)}={spell_value(attrs[name])}")
    return parts


def _is_mixed(slots: Slots, value: Attribute) -> bool:
    """Whether a list of tensors and a list of values fill each other's gaps."""
    return (
        isinstance(slots, tuple)
        and isinstance(value, tuple)
        and len(slots) == len(value)
        and all(slot is None or item is None for slot, item in zip(slots, value, strict=True))
        and any(item is not None for item in value)
    )


def _spell_operand(
    slots: Slots,
    spell: Callable[[int], str],
    attribute: tuple[Attribute, ...] | None,
    *,
    marked: bool,
) -> str:
    """Tensors of one argument; ``marked`` if nothing but a mark tells them from a value."""
    if not isinstance(slots, tuple):
        return spell(slots) if slots is not None else "%None" if marked else "None"
    values = attribute or (None,) * len(slots)
    items = [
        spell_value(value) if slot is None else spell(slot)
        for slot, value in zip(slots, values, strict=True)
    ]
    mark = "%" if marked and all(slot is None for slot in slots) else ""
    return f"{mark}[{', '.join(items)}]"


# -- from text to a node --------------------------------------------------------------------------


@dataclass(slots=True)
class Reference:
    """A tensor as the text has it: short, in full (``meta``), or by the number of an input."""

    line: Line
    at: int
    mark: str
    name: str = ""
    meta: TensorMeta | None = None
    index: int = 0


@dataclass(slots=True)
class Tensors:
    """A list argument that holds tensors: references and, in the gaps, values."""

    items: list[Reference | Attribute]


@dataclass(slots=True)
class CallText:
    """A call as it stands in the text.

    Attributes:
        op_type: The operator.
        operands: Arguments that are tensors, in order of the text.
        attrs: The other arguments.
        inputs: The inputs, where they are listed.
        is_bound: False for ``op(*[%x, %y])``, where it is not said which argument takes which
            tensor.
    """

    op_type: str
    operands: dict[str, Reference | Tensors | None] = field(default_factory=dict)
    attrs: dict[str, Attribute] = field(default_factory=dict)
    inputs: list[Reference] | None = None
    is_bound: bool = True


ReadReference: TypeAlias = Callable[[Line], Reference]


def read_call(line: Line, read_reference: ReadReference) -> CallText:
    """Take a call: from the operator to the end of its inputs."""
    call = CallText(read_word(line, "an operator such as aten.add.Tensor"))
    line.expect("(")
    if line.accept("*"):
        line.expect("[")
        call.is_bound = False
        call.inputs = _read_references(line, read_reference)
        if not line.accept(")"):
            line.expect(",")
            _read_arguments(line, call, read_reference, keyword=True)
    else:
        _read_arguments(line, call, read_reference)
    if call.is_bound and line.accept("of"):
        line.expect("[")
        call.inputs = _read_references(line, read_reference)
    return call


def _read_references(line: Line, read_reference: ReadReference) -> list[Reference]:
    references: list[Reference] = []
    while not line.accept("]"):
        if references:
            line.expect(",")
        reference = read_reference(line)
        if reference.mark == "#":
            raise line.error("a list of inputs holds tensors by name", at=reference.at)
        references.append(reference)
    return references


def _read_arguments(
    line: Line, call: CallText, read_reference: ReadReference, *, keyword: bool = False
) -> None:
    position = 0
    while not line.accept(")"):
        if position:
            line.expect(",")
        start = line.at
        is_keyword = line.tokens[start + 1 : start + 2] == ["="] and is_word(line.next)
        if is_keyword:
            name = read_word(line, "the name of an argument")
            line.expect("=")
        elif keyword:
            raise line.error("an argument without a name stands where only named ones can")
        else:
            name = _name_at(line, call.op_type, position)
        keyword = is_keyword
        value = _read_argument(line, read_reference)
        if not is_keyword and name in _tensor_arguments(call.op_type):
            value = _positional(value)
        _store(line, call, name, value, start)
        position += 1


def _name_at(line: Line, op_type: str, position: int) -> str:
    arguments = _arguments(op_type)
    if lookup(op_type) is None:
        if op_type.partition(".")[0] in KNOWN_NAMESPACES:
            raise line.error(
                f"there is no operator {op_type}",
                remedy=did_you_mean(op_type, known_operators()) or None,
            )
        raise line.error(
            f"the arguments of {op_type} are not known, so they cannot be given by position",
            remedy="Write name=value, or *[%x, %y] for tensors alone.",
        )
    if position >= len(arguments) or arguments[position].keyword_only:
        count = next((i for i, a in enumerate(arguments) if a.keyword_only), len(arguments))
        raise line.error(
            f"{op_type} takes {counted(count, 'argument')} by position",
            remedy=str(lookup(op_type)),
        )
    return arguments[position].name


_NO_TENSOR = object()


def _read_argument(line: Line, read_reference: ReadReference) -> object:
    """Take a reference, a list with references, ``%None``, or a value."""
    token = line.next
    if token == "%None":
        line.at += 1
        return _NO_TENSOR
    if token == "[" or token == "%[":
        return _read_list(line, read_reference)
    if token and token[0] in "%@#":
        return read_reference(line)
    return read_value(line)


def _read_list(line: Line, read_reference: ReadReference) -> object:
    has_tensors = line.take() == "%["
    items: list[Reference | Attribute] = []
    while not line.accept("]"):
        if items:
            line.expect(",")
            if line.accept("]"):
                break
        if line.next and line.next[0] in "%@#" and line.next != "%[":
            items.append(read_reference(line))
            has_tensors = True
        else:
            items.append(read_value(line, 1))
    return Tensors(items) if has_tensors else tuple(cast("list[Attribute]", items))


def _positional(value: object) -> object:
    """A value in the place of a tensor: None is no tensor, a list is a list of tensors."""
    if value is None:
        return _NO_TENSOR
    return (
        Tensors(list(cast("tuple[Attribute, ...]", value))) if isinstance(value, tuple) else value
    )


def _store(line: Line, call: CallText, name: str, value: object, at: int) -> None:
    is_tensor = value is _NO_TENSOR or isinstance(value, Reference | Tensors)
    gaps: tuple[Attribute, ...] = ()
    if isinstance(value, Tensors):
        gaps = tuple([None if isinstance(item, Reference) else item for item in value.items])
    has_values = any(item is not None for item in gaps)
    if (is_tensor and name in call.operands) or (
        (not is_tensor or has_values) and name in call.attrs
    ):
        raise line.error(f"the argument {name} is given twice", at=at)
    if is_tensor and not call.is_bound:
        raise line.error("a call of *[...] has no other tensors", at=at)
    if is_tensor:
        call.operands[name] = None if value is _NO_TENSOR else cast("Reference | Tensors", value)
    if has_values:
        call.attrs[name] = gaps
    elif not is_tensor:
        call.attrs[name] = cast(Attribute, value)


Resolve: TypeAlias = Callable[[Reference], TensorMeta]


def bind_call(
    call: CallText, resolve: Resolve
) -> tuple[tuple[TensorMeta, ...], FrozenDict[str, Slots] | None, FrozenDict[str, Attribute]]:
    """Bind the arguments of a spelled call to the node's inputs, operands and attributes.

    Raises:
        ParseError: A reference means nothing, or names and numbers of inputs are mixed.
    """
    attrs = FrozenDict(call.attrs)
    if call.inputs is not None:
        inputs = tuple([resolve(reference) for reference in call.inputs])
        if not call.is_bound:
            return inputs, None, attrs
        return inputs, FrozenDict(_number(call, _own_number)), attrs
    metas: list[TensorMeta] = []

    def number(reference: Reference) -> int:
        metas.append(resolve(reference))
        return len(metas) - 1

    operands = FrozenDict(_number(call, number))
    return tuple(metas), operands, attrs


def _own_number(reference: Reference) -> int:
    if reference.mark != "#":
        raise reference.line.error(
            "the inputs are listed behind 'of', so tensors are given by number",
            at=reference.at,
            remedy="As in aten.add.Tensor(#0, #0) of [%x].",
        )
    return reference.index


def _number(call: CallText, number: Callable[[Reference], int]) -> dict[str, Slots]:
    ranks = _ranks(call.op_type)
    behind = len(ranks)
    names: Iterable[str] = call.operands
    if len(call.operands) > 1:
        names = sorted(names, key=lambda name: ranks.get(name, behind))
    operands: dict[str, Slots] = {}
    for name in names:
        argument = call.operands[name]
        if isinstance(argument, Tensors):
            operands[name] = tuple(
                [number(item) if isinstance(item, Reference) else None for item in argument.items]
            )
        else:
            operands[name] = None if argument is None else number(argument)
    return operands


def read_slot(line: Line) -> Reference:
    """Take an input by its number, ``#0``."""
    token = line.take()
    return Reference(line, line.at - 1, "#", index=parse_int(line, token[1:]))
