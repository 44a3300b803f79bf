"""Operator schemas without torch: names, types and aliasing of every overload.

The table in ``data/operators.txt`` holds those of aten, prims and quantized_decomposed; it is
generated from torch by ``tools/generate_operator_schemas.py``. A schema says how a call is bound
(:func:`bind_in_order`), printed, checked, and what it writes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pkgutil import get_data
from typing import Any, TypeAlias, cast

from torch_ir.errors import InvalidIRError
from torch_ir.ops.collectives import COLLECTIVE_SCHEMAS

Slots: TypeAlias = int | tuple[int | None, ...] | None
"""Which inputs an argument takes: an index into ``OpNode.inputs``, for a list argument a tuple."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an operator.

    Attributes:
        name: Its name in the schema.
        type: Its type as torch spells it, without alias marks: ``Tensor``, ``Tensor?[]``,
            ``SymInt[2]``, ``Scalar?``.
        default: The text of its default, or None if it has to be given.
        keyword_only: Whether it stands behind ``*``.
        alias: Its alias set (``"a"`` for ``Tensor(a!)``), or the empty string.
        is_written: Whether the call writes to it (``!``).
    """

    name: str
    type: str
    default: str | None = None
    keyword_only: bool = False
    alias: str = ""
    is_written: bool = False

    @property
    def takes_tensor(self) -> bool:
        """Whether it is a tensor or an optional tensor."""
        return self.type in ("Tensor", "Tensor?")

    @property
    def takes_tensor_list(self) -> bool:
        """Whether it is a list of tensors, which may be optional one by one or as a whole."""
        return self.type.startswith(("Tensor[", "Tensor?["))

    @property
    def is_optional(self) -> bool:
        """Whether None may be given."""
        return self.type.endswith("?")


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of one overload.

    Example:
        >>> schema = lookup("aten.add.Tensor")
        >>> [a.name for a in schema.arguments], schema.arguments[2].default
        (['self', 'other', 'alpha'], '1')
        >>> str(schema)
        'aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor'
        >>> schema.required, schema.has_aliases
        (('self', 'other'), False)

    Attributes:
        text: As torch writes it.
        op_type: The overload.
        arguments: Its arguments, in order.
        returns: Its results.
        names: The names of the arguments.
        required: The names of those that have to be given.
        has_aliases: Whether an argument or result carries an alias mark.
        gives_tensor: Whether it has one result, a tensor.
    """

    text: str
    op_type: str
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...]
    names: frozenset[str] = field(init=False, compare=False, repr=False)
    required: tuple[str, ...] = field(init=False, compare=False, repr=False)
    has_aliases: bool = field(init=False, compare=False, repr=False)
    gives_tensor: bool = field(init=False, compare=False, repr=False)

    def __hash__(self) -> int:
        return hash(self.text)  # the rest follows from it, and specs are looked up by schema

    def __post_init__(self) -> None:
        derived = {
            "names": frozenset([a.name for a in self.arguments]),
            "required": tuple([a.name for a in self.arguments if a.default is None]),
            "has_aliases": any(a.alias for a in (*self.arguments, *self.returns)),
            "gives_tensor": [r.type for r in self.returns] == ["Tensor"],
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def nameless(self) -> tuple[Argument, ...]:
        """The arguments without their names, which versions of torch change."""
        return tuple([replace(argument, name="") for argument in self.arguments])

    def __str__(self) -> str:
        return self.text

    def argument(self, name: str) -> Argument | None:
        """Return the argument of that name, or None."""
        return next((a for a in self.arguments if a.name == name), None)


KNOWN_NAMESPACES = ("aten", "prims", "quantized_decomposed")
"""The namespaces of which every operator is known."""


@lru_cache(maxsize=4096)
def lookup(op_type: str) -> Schema | None:
    """Look up the schema of an exact overload such as ``aten.add.Tensor``; None if unknown."""
    text = _table().get(op_type) or COLLECTIVE_SCHEMAS.get(op_type)
    return None if text is None else parse_schema(text)


def known_operators() -> tuple[str, ...]:
    """Return every overload in the table, in its spelling as ``op_type``."""
    return tuple(_table())


def bind_in_order(
    schema: Schema, count: int, attrs: Mapping[str, object]
) -> dict[str, Slots] | None:
    """Bind the tensors of a call, of which no more is known, in the schema's order.

    A list argument takes all of the ``count`` tensors that the later arguments do not need.
    Returns None where the tensors do not fit.

    Example:
        >>> bind_in_order(lookup("aten.linear.default"), 3, {})
        {'input': 0, 'weight': 1, 'bias': 2}
        >>> bind_in_order(lookup("aten.cat.default"), 3, {"dim": 1})
        {'tensors': (0, 1, 2)}
        >>> bind_in_order(lookup("aten.relu.default"), 2, {}) is None
        True
    """
    wanted = [
        a
        for a in schema.arguments
        if a.name not in attrs and (a.takes_tensor or a.takes_tensor_list)
    ]
    operands: dict[str, Slots] = {}
    used = 0
    for position, argument in enumerate(wanted):
        if argument.takes_tensor_list:
            later = sum(a.takes_tensor and not a.is_optional for a in wanted[position + 1 :])
            taken = max(count - used - later, 0)
            operands[argument.name] = tuple(range(used, used + taken))
            used += taken
        elif used < count:
            operands[argument.name] = used
            used += 1
        elif argument.default is None and not argument.is_optional:
            return None
    return operands if used == count else None


@lru_cache(maxsize=4096)
def in_order(
    schema: Schema, count: int, given: tuple[tuple[str, Slots], ...]
) -> tuple[list[int], dict[str, Slots]] | None:
    """Return the order of a call's tensors in which arguments take them as the schema lists these.

    Args:
        schema: The operator's.
        count: How many tensors the call has.
        given: Which argument takes which of them.

    Returns:
        The index that each tensor had before, and which argument takes which then; None where
        they stand so, or arguments are not the schema's or do not take each of the tensors.

    Example:
        >>> schema = lookup("aten.sub.Tensor")
        >>> in_order(schema, 2, (("other", 0), ("self", 1)))
        ([1, 0], {'self': 0, 'other': 1})
        >>> in_order(schema, 2, (("self", 0), ("other", 1))) is None
        True
    """
    operands = dict(given)
    names = [a.name for a in schema.arguments if a.name in operands]
    if len(names) != len(operands):
        return None
    taken = [i for name in names for i in indices_of(operands[name])]
    order = list(dict.fromkeys(taken))
    is_so = order == list(range(count))
    if (is_so and names == [*operands]) or sorted(order) != list(range(count)):
        return None
    place = {old: new for new, old in enumerate(order)}
    return order, {name: moved_slots(operands[name], place) for name in names}


def moved_slots(slots: Slots, place: Mapping[int, int]) -> Slots:
    """Return the inputs that an argument takes where each input has another place.

    Example:
        >>> moved_slots((0, None), {0: 3})
        (3, None)
    """
    if isinstance(slots, tuple):
        return tuple([None if slot is None else place[slot] for slot in slots])
    return None if slots is None else place[slots]


def indices_of(slots: Slots) -> list[int]:
    """Return the inputs that an argument takes, without those of a list that it lacks.

    Example:
        >>> indices_of((0, None, 2)), indices_of(1), indices_of(None)
        ([0, 2], [1], [])
    """
    if isinstance(slots, tuple):
        return [slot for slot in slots if slot is not None]
    return [] if slots is None else [slots]


def data_text(name: str) -> str:
    """Return a table of this package; pkgutil reads it without importing what opens archives."""
    return cast(bytes, get_data("torch_ir.ops", f"data/{name}")).decode()


@cache
def _table() -> dict[str, str]:
    text = data_text("operators.txt")
    return {_op_type(line[: line.index("(")]): line for line in text.splitlines()[1:]}


def _op_type(qualified: str) -> str:
    """``aten::add.Tensor`` as ``aten.add.Tensor``, ``aten::relu`` as ``aten.relu.default``."""
    name = qualified.replace("::", ".", 1)
    return name if name.count(".") == 2 else name + ".default"


@lru_cache(maxsize=4096)
def parse_schema(text: str) -> Schema:
    """Parse a schema in torch's own text, for operators that the table does not hold.

    Raises:
        InvalidIRError: The text is not a schema.
    """
    if not _SCHEMA.fullmatch(text):
        raise InvalidIRError(f"{text!r:.120} is not the schema of an operator")
    head, _, returns = text.rpartition(" -> ")
    name, _, arguments = head.partition("(")
    returns = returns[1:-1] if returns.startswith("(") and returns.endswith(")") else returns
    return Schema(text, _op_type(name), _arguments(arguments[:-1]), _arguments(returns))


_SCHEMA = re.compile(r"\w+::[\w.]+\([^\n]*\) -> [^\n]*")
_ALIAS = re.compile(r"\((\w+)(!?)(?: -> [\w*]+)?\)")


def _arguments(text: str) -> tuple[Argument, ...]:
    arguments: list[Argument] = []
    keyword_only = False
    for part in _split(text):
        if part == "*":
            keyword_only = True
            continue
        alias = _ALIAS.search(part.partition("=")[0])
        plain = part if alias is None else part[: alias.start()] + part[alias.end() :]
        declared, _, default = plain.partition("=")
        kind, _, name = declared.partition(" ")
        arguments.append(
            Argument(
                name=name,
                type=kind,
                default=default if "=" in plain else None,
                keyword_only=keyword_only,
                alias=alias[1] if alias else "",
                is_written=bool(alias and alias[2]),
            )
        )
    return tuple(arguments)


@lru_cache(maxsize=4096)
def default_of(argument: Argument) -> Any:
    """Return the default of an argument as a Python value: lists as tuples, None if it has none.

    The name of an enumeration stays the text that it is.

    Example:
        >>> stride = Argument("stride", "int[2]", "1")
        >>> default_of(stride), default_of(Argument("dim", "int[1]", "[0]"))
        ((1, 1), (0,))
    """
    if argument.default is None:
        return None
    try:
        return typed(argument.type, ast.literal_eval(argument.default))
    except (ValueError, SyntaxError):
        return argument.default


_LIST = re.compile(r"(int|SymInt|float)\[(\d*)\]\??")


def typed(kind: str, value: Any) -> Any:
    """Return a value as the schema's type has it: one int for a list of them, an int for a float.

    Example:
        >>> typed("SymInt[2]", 3), typed("float", 1)
        ((3, 3), 1.0)
    """
    found = _LIST.fullmatch(kind)
    if found is not None and value is not None:
        length = int(found[2] or 1)
        given = tuple(cast(Any, value)) if isinstance(value, list | tuple) else (value,)
        return given * length if len(given) == 1 else given
    return float(value) if kind.startswith("float") and type(value) is int else value


_QUOTED = re.compile(r'"(?:[^"\\]++|\\.)*+("?)')  # also to the end: another try would start there


def _split(text: str) -> Sequence[str]:
    """The text at commas outside brackets and quotes."""
    parts: list[str] = []
    depth, start = 0, 0
    outside = _QUOTED.sub(lambda quoted: ("_" if quoted[1] else '"') * len(quoted[0]), text)
    for position, character in enumerate(outside):
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    if depth or '"' in outside:
        raise InvalidIRError(f"{text!r:.120} is not the argument list of a schema")
    last = text[start:].strip()
    return [*parts, last] if last else parts
