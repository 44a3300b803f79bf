"""Dtypes that Edge operators take and return: the constraint language, read without torch.

An entry names an operator, aliases (sets of dtypes), and rows that give each argument and result
an alias. A call is legal if some row takes it: every dtype in its alias, and those that share an
alias equal. The table of all operators is ``data/dtype_constraints.yaml``, which
``tools/generate_edge_constraints.py`` makes from what torch's kernels accept.

Example:
    >>> table = read_entry('''
    ... - func: sigmoid
    ...   namespace: edge
    ...   inherits: aten::sigmoid
    ...   type_alias:
    ...     T0: [Bool, Int]
    ...     T1: [Double, Float]
    ...     T2: [Float]
    ...   type_constraint:
    ...   - self: T0
    ...     __ret_0: T2
    ...   - self: T1
    ...     __ret_0: T1
    ... ''')
    >>> table.validate({"self": "int32", "__ret_0": "float32"})
    True
    >>> table.validate({"self": "float64", "__ret_0": "float32"})
    False
    >>> sorted(table.allowed_types("__ret_0"))
    ['float32', 'float64']
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product

from torch_ir.errors import InvalidIRError, counted, did_you_mean
from torch_ir.frozen import FrozenDict
from torch_ir.ops.extensions import forget_extension, note_extension
from torch_ir.ops.schema import Argument, Schema, data_text, lookup
from torch_ir.ops.spec import TypedArgument, TypedSchema, is_tensor_type

DTYPE_NAMES = {
    "Bool": "bool",
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Float": "float32",
    "Double": "float64",
    "UInt16": "uint16",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
"""The dtypes that Edge has, by their name in the language."""

NOT_GIVEN = "None"
"""What stands in an alias where an optional argument may be left out."""

EDGE_DTYPES = frozenset(DTYPE_NAMES.values())


@dataclass(frozen=True, slots=True)
class DTypeTable:
    """The dtype rows of one operator.

    Attributes:
        inherits: The operator in torch's spelling, ``aten::add.Tensor``.
        aliases: Each alias, and torch's names of its dtypes; ``"None"`` for "not given".
        rows: The alias of each argument and result, one mapping a row.
        required: The names that every query has to give.
        defaults: What stands for a number or dtype that a query does not give.
        results: Those of the names that are results.
    """

    inherits: str
    aliases: Mapping[str, frozenset[str]]
    rows: tuple[Mapping[str, str], ...]
    required: frozenset[str] = field(default_factory=frozenset[str])
    defaults: Mapping[str, str] = field(default_factory=FrozenDict[str, str])
    results: frozenset[str] = field(default_factory=frozenset[str])

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments and results that the rows speak of."""
        return tuple(self.rows[0]) if self.rows else ()

    def allowed_types(self, name: str) -> frozenset[str]:
        """Return every dtype that some row allows for an argument or result."""
        allowed = [self.aliases[row[name]] for row in self.rows if name in row]
        return frozenset[str]().union(*allowed) - {NOT_GIVEN}

    def validate(self, dtypes: Mapping[str, str | None], *, partial: bool = False) -> bool:
        """Return whether some row takes these dtypes.

        Args:
            dtypes: torch's name of the dtype of each argument and result; None for a list without
                tensors, which fits anything. What is not given is not in it.
            partial: Let required names be absent, as results are that nothing uses.
        """
        if any(name not in self.names for name in dtypes):
            return False
        if not partial and any(name not in dtypes for name in self.required):
            return False
        query = {**self.defaults, **dtypes}
        skipped = self.required | self.results if partial else self.required
        return any(self._takes(row, query, skipped) for row in self.rows)

    def _takes(
        self, row: Mapping[str, str], dtypes: Mapping[str, str | None], skipped: frozenset[str]
    ) -> bool:
        chosen: dict[str, str] = {}
        for name, alias in row.items():
            if name not in dtypes:
                if name not in skipped and NOT_GIVEN not in self.aliases[alias]:
                    return False
                continue
            dtype = dtypes[name]
            if dtype is None:
                continue
            if dtype not in self.aliases[alias] or chosen.setdefault(alias, dtype) != dtype:
                return False
        return True

    def expand(self) -> frozenset[tuple[str | None, ...]]:
        """List every combination that the rows take, as dtypes in the order of :attr:`names`."""
        return frozenset(found for row in self.rows for found in self._expand_row(row))

    def _expand_row(self, row: Mapping[str, str]) -> Iterator[tuple[str | None, ...]]:
        used = tuple(dict.fromkeys(row.values()))
        choices = [sorted(self.aliases[alias] - {NOT_GIVEN}) or [NOT_GIVEN] for alias in used]
        for values in product(*choices):
            chosen = dict(zip(used, values, strict=True))
            columns = [self._options(name, alias, chosen) for name, alias in row.items()]
            yield from product(*columns)

    def _options(self, name: str, alias: str, chosen: Mapping[str, str]) -> list[str | None]:
        given: list[str | None] = [chosen[alias]] if chosen[alias] != NOT_GIVEN else []
        may_be_absent = name not in self.required and NOT_GIVEN in self.aliases[alias]
        return [*given, None] if may_be_absent else given


# -- the language ---------------------------------------------------------------------------------


def read_entry(text: str, schema: Schema | None = None) -> DTypeTable:
    """Read one entry of the table.

    Args:
        text: The entry.
        schema: The operator's schema, if it is not one of torch's own.

    Raises:
        InvalidIRError: The text is not an entry, or a row lacks a tensor of the schema.
    """
    lines = [line.split("#")[0].rstrip() for line in text.splitlines()]
    head: dict[str, str] = {}
    aliases: dict[str, frozenset[str]] = {}
    rows: list[dict[str, str]] = []
    section = ""
    for line in filter(None, lines):
        indent = len(line) - len(line.lstrip())
        starts_row = line.lstrip().startswith("- ")
        key, colon, value = line.strip().removeprefix("- ").partition(":")
        if not colon:
            raise InvalidIRError(f"{line.strip()!r:.80} is not a line of a dtype constraint")
        if indent == 0 or (indent == 2 and not starts_row):
            section = key
            head[key] = value.strip()
        elif section == "type_alias":
            aliases[key] = _alias(key, value)
        elif section == "type_constraint":
            if starts_row:
                rows.append({})
            rows[-1].update(_row_part(line))
        else:
            raise InvalidIRError(f"{line.strip()!r:.80} stands outside any section")
    return _table(head, aliases, rows, schema)


def _alias(name: str, value: str) -> frozenset[str]:
    items = [item.strip() for item in value.strip().strip("[]").split(",") if item.strip()]
    for item in items:
        if item not in DTYPE_NAMES and item != NOT_GIVEN:
            hint = did_you_mean(item, DTYPE_NAMES) or None
            raise InvalidIRError(f"the alias {name} has the unknown dtype {item!r}", remedy=hint)
    return frozenset(DTYPE_NAMES.get(item, item) for item in items)


_PART = re.compile(r"(\w+): (\w+)")


def _row_part(line: str) -> dict[str, str]:
    """The names and aliases of a line: one pair, or all of a row in braces."""
    return dict(_PART.findall(line))


def _table(
    head: Mapping[str, str],
    aliases: Mapping[str, frozenset[str]],
    rows: Sequence[Mapping[str, str]],
    schema: Schema | None,
) -> DTypeTable:
    inherits = head.get("inherits", "")
    name = inherits.replace("::", ".", 1)
    schema = schema or lookup(name if name.count(".") == 2 else f"{name}.default")
    if schema is None:
        raise InvalidIRError(f"the constraint of {inherits!r} is for an operator nobody knows")
    required = required_names(schema)
    known = [*(a.name for a in schema.arguments), *result_names(schema)]
    every = f"A row says a dtype for each of {', '.join(n for n in known if n in required)}."
    for row in rows:
        for name in sorted(required - row.keys()):
            raise InvalidIRError(f"a row of {inherits} says nothing of {name!r}", remedy=every)
        for name, alias in row.items():
            if name not in known:
                hint = did_you_mean(name, known) or None
                raise InvalidIRError(f"{inherits} has no argument {name!r}", remedy=hint)
            if alias not in aliases:
                raise InvalidIRError(f"a row of {inherits} has the unknown alias {alias!r}")
    frozen = tuple([FrozenDict[str, str](row) for row in rows])
    defaults = {
        a.name: default
        for a in schema.arguments
        if rows and a.name in rows[0] and (default := default_kind(a)) is not None
    }
    results = frozenset(result_names(schema))
    return DTypeTable(
        inherits, FrozenDict(aliases), frozen, required, FrozenDict(defaults), results
    )


_SCALAR_TYPES = {"4": "int64", "6": "float32", "11": "bool", "long": "int64"}
"""Dtypes by the number or word that torch's schemas write for them."""


def default_kind(argument: Argument) -> str | None:
    """Return the dtype of an argument's default, of a number's kind; None without one."""
    default = argument.default
    match argument.type, default:
        case _, None | "None":
            return None
        case "ScalarType" | "ScalarType?", str(number):
            return _SCALAR_TYPES.get(number)
        case "Scalar", "True" | "False":
            return "bool"
        case "Scalar", str(number):
            return "int64" if number.lstrip("-").isdecimal() else "float64"
        case _:
            return None


def result_names(schema: Schema) -> tuple[str, ...]:
    """Return the names of results in rows: the schema's, or ``__ret_0``, ``__ret_1``."""
    return tuple([r.name or f"__ret_{i}" for i, r in enumerate(schema.returns)])


def required_names(schema: Schema) -> frozenset[str]:
    """Return the tensors that every call takes, and those that it returns.

    An operator with a mask of its results may return None for some.
    """
    tensors = [a for a in schema.arguments if is_tensor_type(a.type) and not a.is_optional]
    if schema.argument("output_mask") is not None:
        return frozenset(a.name for a in tensors)
    results = zip(result_names(schema), schema.returns, strict=True)
    return frozenset(
        [*(a.name for a in tensors), *(name for name, r in results if is_tensor_type(r.type))]
    )


def write_entry(table: DTypeTable) -> str:
    """Write the entry of a table, which :func:`read_entry` reads."""
    packet = table.inherits.partition("::")[2].partition(".")[0]
    lines = [f"- func: {packet}", "  namespace: edge", f"  inherits: {table.inherits}"]
    lines.append("  type_alias:")
    spelled = {dtype: name for name, dtype in DTYPE_NAMES.items()}
    for alias, dtypes in table.aliases.items():
        names = sorted([spelled.get(dtype, dtype) for dtype in dtypes])
        lines.append(f"    {alias}: [{', '.join(names)}]")
    lines.append("  type_constraint:")
    for row in table.rows:
        for position, (name, alias) in enumerate(row.items()):
            lines.append(f"  {'- ' if position == 0 else '  '}{name}: {alias}")
    return "\n".join(lines) + "\n"


# -- the table of all operators -------------------------------------------------------------------


@cache
def _entries() -> Mapping[str, str]:
    """The text of each entry of the data file, by ``op_type``."""
    return split_entries(data_text("dtype_constraints.yaml"))


def split_entries(text: str) -> dict[str, str]:
    """Split a file of entries into the text of each, by ``op_type``."""
    entries: dict[str, str] = {}
    for entry in re.split(r"^(?=- func: )", text, flags=re.MULTILINE)[1:]:
        found = re.search(r"^  inherits: (\S+)", entry, flags=re.MULTILINE)
        if found is None:
            raise InvalidIRError(
                f"{entry.splitlines()[0]!r} does not say which operator it inherits"
            )
        name = found[1].replace("::", ".", 1)
        entries[name if name.count(".") == 2 else f"{name}.default"] = entry
    return entries


def constrained_operators() -> tuple[str, ...]:
    """Return every operator that the table has dtype rows for."""
    return tuple(_entries())


_REGISTERED: dict[str, DTypeTable] = {}


def add_constraint(op_type: str, table: DTypeTable) -> None:
    """Add the dtype rows of an operator to those of the table.

    Raises:
        InvalidIRError: It has rows already.
    """
    if op_type in _entries() or _REGISTERED.setdefault(op_type, table) != table:
        raise InvalidIRError(f"{op_type} has dtype rows already")
    note_extension("dtype rows", op_type, counted(len(table.rows), "row"))


def unregister_constraint(op_type: str) -> None:
    """Forget the dtype rows that were registered for an operator."""
    _REGISTERED.pop(op_type, None)
    forget_extension("dtype rows", op_type)


def constraint_of(op_type: str) -> DTypeTable | None:
    """Return the dtype rows of an operator, or None where there are none."""
    return _REGISTERED.get(op_type) or _of_table(op_type)


def is_registered(op_type: str) -> bool:
    """Return whether the dtype rows of an operator were registered."""
    return op_type in _REGISTERED


@cache
def _of_table(op_type: str) -> DTypeTable | None:
    entry = _entries().get(op_type)
    return None if entry is None else read_entry(entry)


def typed_schema(schema: Schema, table: DTypeTable | None) -> TypedSchema:
    """Return the schema with the dtypes that each argument and result may have."""
    names = result_names(schema)
    arguments = [_typed(a, a.name, table) for a in schema.arguments]
    returns = [_typed(r, name, table) for name, r in zip(names, schema.returns, strict=True)]
    return TypedSchema(schema.text, schema.op_type, tuple(arguments), tuple(returns))


def _typed(argument: Argument, name: str, table: DTypeTable | None) -> TypedArgument:
    if table is None:
        allowed = EDGE_DTYPES if is_tensor_type(argument.type) else frozenset[str]()
    else:
        allowed = table.allowed_types(name)
    return TypedArgument(
        argument.name,
        argument.type,
        argument.default,
        argument.keyword_only,
        argument.alias,
        argument.is_written,
        allowed,
    )
