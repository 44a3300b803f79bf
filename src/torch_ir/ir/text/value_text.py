"""Attribute values and types as text, in both directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_ir.errors import InvalidIRError, did_you_mean
from torch_ir.ir.dtypes import ALIASES, BY_SHORT_NAME, DTYPES
from torch_ir.ir.symbols import Dim, SymExpr, as_dim
from torch_ir.ir.text.lexer import (
    Line,
    parse_int,
    quote,
    read_string,
    sigil,
    spell_int,
    unquote,
    unquote_name,
)
from torch_ir.ir.values import (
    LAYOUTS,
    MEMORY_FORMATS,
    Attribute,
    Device,
    DType,
    FrozenDict,
    FunctionRef,
    Layout,
    MemoryFormat,
    OperatorRef,
)

MAX_DEPTH = 100
"""How deep lists and structures may nest; deeper text is refused."""

_WORDS: dict[str, Attribute] = {
    "None": None,
    "True": True,
    "False": False,
    "nan": float("nan"),
    "inf": float("inf"),
    **{f"torch.{name}": DType(name) for name in DTYPES},
    **{f"torch.{name}": Layout(name) for name in LAYOUTS},
    **{f"torch.{name}": MemoryFormat(name) for name in MEMORY_FORMATS},
}
_ALIAS_WORDS: dict[str, Attribute] = {
    f"torch.{alias}": DType(name) for alias, name in ALIASES.items()
}


# -- values ---------------------------------------------------------------------------------------


def spell_value(value: Attribute) -> str:
    """Spell an attribute value as text.

    Example:
        >>> spell_value((1, 2.0, None, "a", SymExpr("s0 + 1"), DType("bfloat16"), Device("cpu")))
        '[1, 2.0, None, "a", `s0 + 1`, torch.bfloat16, device("cpu")]'
    """
    spell = _SPELL.get(type(value))
    if spell is None:
        raise InvalidIRError(
            f"an attribute cannot hold {value!r:.80} of type {type(value).__name__}"
        )
    return spell(value)


def _spell_complex(value: complex) -> str:
    text = repr(value)
    return text if text.startswith("(") else f"({text})"


def _spell_tuple(values: tuple[Attribute, ...]) -> str:
    return f"[{', '.join([spell_value(value) for value in values])}]"


def _spell_dict(values: FrozenDict[str, Attribute]) -> str:
    items = [f"{quote(key)}: {spell_value(values[key])}" for key in sorted(values)]
    return f"{{{', '.join(items)}}}"


_SPELL: dict[type, Callable[[Any], str]] = {
    type(None): str,
    bool: str,
    int: spell_int,
    float: repr,
    complex: _spell_complex,
    str: quote,
    SymExpr: lambda value: f"`{value.text}`",
    DType: str,
    Layout: str,
    MemoryFormat: str,
    Device: lambda value: f"device({quote(value.name)})",
    FunctionRef: lambda value: sigil("&", value.name),
    OperatorRef: lambda value: f"operator({quote(value.name)})",
    tuple: _spell_tuple,
    FrozenDict: _spell_dict,
}


def read_value(line: Line, depth: int = 0) -> Attribute:
    """Take an attribute value.

    Raises:
        ParseError: Something else stands here, or lists nest too deeply.
    """
    token = line.take()
    first = token[:1]
    if first in _DIGITS:  # most values of hostile and of honest text
        return _read_number(line, token)
    if first == "[":
        return _read_list(line, depth)
    if first == "{":
        return _read_dict(line, depth)
    if token in _WORDS:
        return _WORDS[token]
    if first == '"':
        return unquote(line, token)
    if first == "`":
        return _read_expression(line, token)
    if first == "&" and len(token) > 1:
        return FunctionRef(unquote_name(line, token))
    if first == "(" and len(token) > 1:
        return _read_complex(line, token)
    if first == "-" and token not in ("-", "->"):
        return _read_number(line, token)
    if token in ("device", "operator"):
        line.expect("(")
        name = read_string(line, f"the {token}")
        line.expect(")")
        return Device(name) if token == "device" else OperatorRef(name)
    if token in _ALIAS_WORDS:
        return _ALIAS_WORDS[token]
    line.at -= 1 if token else 0
    raise _not_a_value(line, token)


def _not_a_value(line: Line, token: str) -> Exception:
    if token and token[0] in "%@#":
        return line.error(f"the tensor {token} cannot stand here; a value is expected")
    if token[:1] == "(":
        return line.error("expected a value, got '('", remedy="Lists are written [1, 2].")
    error = line.unexpected("a value")
    error.remedy = did_you_mean(token, _WORDS) or (
        "Expressions over symbols are written in backquotes, strings in double quotes."
        if token.isidentifier()
        else None
    )
    return error


def _read_list(line: Line, depth: int) -> tuple[Attribute, ...]:
    if depth >= MAX_DEPTH:
        raise line.error(f"lists nest more than {MAX_DEPTH} deep", at=line.at - 1)
    items: list[Attribute] = []
    tokens = line.tokens
    while tokens[line.at] != "]":
        if items:
            if tokens[line.at] != ",":
                raise line.unexpected("','")
            line.at += 1
            if tokens[line.at] == "]":
                break
        items.append(read_value(line, depth + 1))
    line.at += 1
    return tuple(items)


def _read_dict(line: Line, depth: int) -> FrozenDict[str, Attribute]:
    if depth >= MAX_DEPTH:
        raise line.error(f"lists nest more than {MAX_DEPTH} deep", at=line.at - 1)
    items: dict[str, Attribute] = {}
    while not line.accept("}"):
        if items:
            line.expect(",")
        key = read_string(line, "a key")
        line.expect(":")
        items[key] = read_value(line, depth + 1)
    return FrozenDict(items)


def _read_expression(line: Line, token: str) -> SymExpr:
    if len(token) < 2 or token[-1] != "`":
        raise line.error("the expression has no closing backquote", at=line.at - 1)
    try:
        return SymExpr(token[1:-1])
    except InvalidIRError as error:
        raise line.error(error.message, at=line.at - 1, remedy=error.remedy) from None


_DIGITS = frozenset("0123456789")
_FLOAT_MARKS = frozenset(".einf")


def _read_number(line: Line, token: str) -> int | float:
    if not _FLOAT_MARKS.isdisjoint(token) and "x" not in token:
        return float(token)
    return parse_int(line, token)


def _read_complex(line: Line, token: str) -> complex:
    try:
        return complex(token)
    except ValueError:
        raise line.error(f"{token!r:.60} is not a complex number", at=line.at - 1) from None


# -- types ----------------------------------------------------------------------------------------


def spell_type(dtype: str, shape: tuple[Dim, ...]) -> str:
    """Spell dtype and shape: ``f32[2, s0]``."""
    dims = [str(dim) if isinstance(dim, SymExpr) else spell_int(dim) for dim in shape]
    return f"{DTYPES[dtype].short}[{', '.join(dims)}]"


def read_type(
    line: Line, known: dict[str, tuple[str, tuple[Dim, ...]]]
) -> tuple[str, tuple[Dim, ...]]:
    """Take a type; ``known`` remembers those already read."""
    token = line.next
    found = known.get(token)
    if found is None:
        if token[-1:] != "]" or len(token) < 2:
            raise line.unexpected("a type such as f32[2, s0]")
        found = known[token] = _parse_type(line, token)
    line.at += 1
    return found


def _parse_type(line: Line, token: str) -> tuple[str, tuple[Dim, ...]]:
    short, _, dims = token[:-1].partition("[")
    info = BY_SHORT_NAME.get(short) or DTYPES.get(ALIASES.get(short, short))
    if info is None:
        raise line.error(
            f"{short!r} is not an element type",
            remedy=did_you_mean(short, [*BY_SHORT_NAME, *DTYPES])
            or f"One of {', '.join(BY_SHORT_NAME)}.",
        )
    try:
        return info.name, tuple([_parse_dim(dim) for dim in _split(dims)])
    except InvalidIRError as error:
        raise line.error(error.message, remedy=error.remedy) from None
    except ValueError:  # an integer of more digits than Python reads
        raise line.error("a dimension is too long", remedy="Write it in hexadecimal.") from None


def _parse_dim(text: str) -> Dim:
    text = text.strip()
    if text.isascii() and text.isdecimal():
        return int(text)
    return int(text, 16) if text.startswith("0x") else as_dim(text)


def _split(dims: str) -> list[str]:
    """The text at commas outside brackets."""
    if "(" not in dims:
        return dims.split(",") if dims.strip() else []
    parts: list[str] = []
    depth = start = 0
    for position, character in enumerate(dims):
        if character in "()":
            depth += 1 if character == "(" else -1
        elif character == "," and depth == 0:
            parts.append(dims[start:position])
            start = position + 1
    return [*parts, dims[start:]]
