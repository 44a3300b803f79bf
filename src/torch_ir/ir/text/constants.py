"""The values of a small constant as text, in both directions, without NumPy.

A value is written in the fewest digits that give back its bytes. Where numbers cannot say the
bytes (a NaN with a payload, an element type without numbers here) the bytes are written in
hexadecimal, and a large constant is named by the hash of its bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any, cast

from torch_ir.errors import InvalidIRError
from torch_ir.frozen import identical
from torch_ir.ir.dtypes import STRUCT_CODES
from torch_ir.ir.tensor import Constant, ConstantView, type_text
from torch_ir.ir.text.lexer import Line, read_int, read_sigil, sigil, spell_int
from torch_ir.ir.text.value_text import spell_value
from torch_ir.ir.values import Attribute

MAX_ELEMENTS = 16
"""Constants of more elements are named by their hash."""

_COMPLEX = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
_DIGITS = {"bfloat16": 4, "float16": 5, "float32": 9, "float64": 17}


def spell_constant(constant: Constant) -> str:
    """Spell the values, the bytes, or the bytes' hash; of a view its place in its base.

    Many elements of one value are spelled as the bytes of one.

    Example:
        >>> spell_constant(Constant.from_list([[0.1, 2]], "float32"))
        '[[0.1, 2.0]]'
        >>> spell_constant(Constant("float32", (), bytes.fromhex("010080ff")))
        'bytes:010080ff'
        >>> spell_constant(Constant("float32", (128,), bytes(512)))
        'fill:00000000'
        >>> table = Constant.from_list([[1, 2], [3, 4]], "int64")
        >>> spell_constant(table.view_of("table", (2,), strides=(2,), offset=1))
        'view(@table, strides=[2], offset=1)'
    """
    if constant.view is not None:
        strides = ", ".join(map(spell_int, constant.view.strides))
        where = f"strides=[{strides}], offset={spell_int(constant.view.offset)}"
        return f"view({sigil('@', constant.view.base)}, {where})"
    if constant.is_filled and constant.data is not None:
        return f"fill:{constant.data.hex()}"
    if constant.data is None or math.prod(constant.shape) > MAX_ELEMENTS:
        return f"sha256:{constant.digest()}"
    if 0 in constant.shape:
        return "[]"
    raw = constant.tobytes()
    values = _decode(constant.dtype, raw)
    if values is None or _encode(constant.dtype, values) != raw:
        return f"bytes:{raw.hex()}"
    return spell_value(_nest(iter(values), constant.shape))


def constant_from_values(dtype: str, shape: tuple[int, ...], values: Attribute) -> Constant:
    """Make the constant that nested lists of numbers spell.

    Raises:
        InvalidIRError: The lists do not have the shape, or a number does not fit the dtype.
    """
    where = type_text(Constant(dtype, shape, None, "0" * 64))
    if 0 in shape:
        if values != ():
            raise InvalidIRError(f"the values of {where} are written []")
        return Constant(dtype, shape, b"")
    flat = list(_flatten(values, shape, where))
    if dtype not in STRUCT_CODES and dtype not in _COMPLEX and dtype != "bfloat16":
        raise InvalidIRError(f"the values of {where} are written as bytes:, in hexadecimal")
    raw = _encode(dtype, flat)
    if raw is None:
        raise InvalidIRError(f"a value does not fit {where}")
    return Constant(dtype, shape, raw)


def read_view(line: Line) -> ConstantView:
    """Take what stands behind the word ``view``: the base, the strides, and the offset."""
    at = line.at - 1
    line.expect("(")
    base = read_sigil(line, "@", "a constant")
    for token in (",", "strides", "=", "["):
        line.expect(token)
    strides: list[int] = []
    while line.next != "]":
        if strides:
            line.expect(",")
        strides.append(read_int(line))
    line.take()
    for token in (",", "offset", "="):
        line.expect(token)
    offset = read_int(line)
    line.expect(")")
    try:
        return ConstantView(base, tuple(strides), offset)
    except InvalidIRError as error:
        raise line.error(error.message, at=at, remedy=error.remedy) from None


def _nest(values: Iterator[Any], shape: Sequence[int]) -> Any:
    if not shape:
        return next(values)
    return tuple([_nest(values, shape[1:]) for _ in range(shape[0])])


def _flatten(values: Attribute, shape: Sequence[int], where: str) -> Iterator[Any]:
    if not shape:
        if not isinstance(values, bool | int | float | complex):
            raise InvalidIRError(f"the values of {where} have another shape, or are not numbers")
        yield values
        return
    if not isinstance(values, tuple) or len(values) != shape[0]:
        raise InvalidIRError(f"the values of {where} have another shape")
    for item in values:
        yield from _flatten(item, shape[1:], where)


# -- numbers and bytes ----------------------------------------------------------------------------


def _decode(dtype: str, raw: bytes) -> list[Any] | None:
    """Numbers in the fewest digits that give the bytes back; None if the dtype has none."""
    if part := _COMPLEX.get(dtype):
        parts = cast(list[float], _decode(part, raw))
        return [complex(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
    if dtype == "bfloat16":
        high = [raw[i : i + 2] for i in range(0, len(raw), 2)]
        return [_shortest(dtype, struct.unpack("<f", b"\0\0" + pair)[0]) for pair in high]
    if dtype not in STRUCT_CODES:
        return None
    values = [value for (value,) in struct.iter_unpack(f"<{STRUCT_CODES[dtype]}", raw)]
    return [_shortest(dtype, value) for value in values] if dtype in _DIGITS else values


def _shortest(dtype: str, value: float) -> float:
    if not math.isfinite(value):
        # a NaN of other bytes is not what text says
        return value if math.isinf(value) else math.nan
    raw = _encode(dtype, [value])
    tries = (float(f"{value:.{digits}g}") for digits in range(1, _DIGITS[dtype] + 1))
    return next((short for short in tries if _encode(dtype, [short]) == raw), value)


def _encode(dtype: str, values: Sequence[Any]) -> bytes | None:
    """The bytes of numbers, each rounded to the nearest; None if one does not fit."""
    if part := _COMPLEX.get(dtype):
        pairs = [complex(value) for value in values]
        return _encode(part, [half for pair in pairs for half in (pair.real, pair.imag)])
    try:
        if dtype == "bfloat16":
            return b"".join(map(_encode_bfloat16, values))
        if dtype == "bool" and not all(identical(value, bool(value)) for value in values):
            return None
        return struct.pack(f"<{len(values)}{STRUCT_CODES[dtype]}", *values)
    except (struct.error, OverflowError, TypeError):
        return None


def _encode_bfloat16(value: float) -> bytes:
    """float32 rounded to its upper half, ties to even; a NaN stays one."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if value == value:
        bits += 0x7FFF + (bits >> 16 & 1)
    return struct.pack("<H", bits >> 16)
