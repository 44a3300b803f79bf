"""Attribute values as JSON: plain where JSON has the value, else an object with one ``$`` tag."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

from torch_ir.errors import InvalidIRError, did_you_mean
from torch_ir.ir.symbols import SymExpr
from torch_ir.ir.values import (
    PLAIN,
    Attribute,
    Device,
    DType,
    FrozenDict,
    FunctionRef,
    Layout,
    MemoryFormat,
    OperatorRef,
    as_attribute,
)
from torch_ir.serde.json.faults import Fault, as_fault, each_value

MAX_DEPTH = 64
"""How deep attribute values, signatures and functions may be nested, each for itself."""

MAX_DIGITS = 4096
"""Decimal digits of one integer."""

_INT64 = range(-(2**63), 2**63)


def encode_attribute(value: Attribute, depth: int = 0) -> Any:
    """Encode an attribute value as JSON.

    Example:
        >>> encode_attribute((1, 1.0, None, SymExpr("s0*2"), DType("float32")))
        [1, 1.0, None, {'$expr': '2*s0'}, {'$dtype': 'float32'}]

    Raises:
        Fault: The value is nested too deeply, or an integer has too many digits.
    """
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if value in _INT64 else {"$int": _digits(value)}
        case float():
            return value if math.isfinite(value) else {"$float": str(value)}
        case tuple():
            if depth >= MAX_DEPTH:
                raise too_deep()
            return [encode_attribute(item, depth + 1) for item in value]
        case FrozenDict():
            if depth >= MAX_DEPTH:
                raise too_deep()
            items = {key: encode_attribute(value[key], depth + 1) for key in sorted(value)}
            return {"$dict": items}
        case complex():
            return {"$complex": [encode_attribute(value.real), encode_attribute(value.imag)]}
        case SymExpr():
            return {"$expr": value.text}
        case _:
            return {_TAGS[type(value)]: value.name}


def _digits(value: int) -> str:
    if value.bit_length() > MAX_DIGITS * 3:
        raise Fault("", f"an integer of {value.bit_length()} bits is too large for a file")
    return str(value)


def too_deep() -> Fault:
    """Return the fault of a document that is nested too deeply."""
    return Fault("", f"the document is nested too deeply (at most {MAX_DEPTH} levels)")


def decode_attribute(value: object, depth: int = 0) -> Attribute:
    """Decode the JSON form of an attribute; other Python values go to the data model unchanged.

    Raises:
        Fault: An object without a known tag, or nesting too deep.
        InvalidIRError: The data model refuses the value.
    """
    kind = type(value)
    if kind in PLAIN:
        plain: Any = value
        return plain
    if kind is list or isinstance(value, list | tuple):
        if depth >= MAX_DEPTH:
            raise too_deep()
        items: Any = value
        done: list[Attribute] = []
        try:
            for item in items:  # in one frame a level: lists may be many
                done.append(decode_attribute(item, depth + 1))
        except (InvalidIRError, Fault) as error:
            raise as_fault(error, f"[{len(done)}]") from None
        return tuple(done)
    if isinstance(value, dict):
        return _decode_tagged(cast(dict[str, object], value), depth)
    return as_attribute(value)


def _decode_tagged(tagged: dict[str, object], depth: int) -> Attribute:
    if len(tagged) != 1:
        raise Fault(
            "", f"an attribute cannot be an object with the keys {list(tagged)!r:.80}", _HINT
        )
    ((tag, content),) = tagged.items()
    if tag == "$complex":
        return _decode_complex(content)
    if tag == "$dict":
        return _decode_dict(content, depth)
    decode = _DECODERS.get(tag)
    if decode is None:
        raise Fault(
            "", f"{tag!r:.80} is not a tag of an attribute", did_you_mean(tag, _DECODERS) or _HINT
        )
    if not isinstance(content, str):
        raise Fault(f".{tag}", f"expected a string, got {type(content).__name__}")
    try:
        return decode(content)
    except InvalidIRError as error:
        raise Fault(f".{tag}", error.message, error.remedy) from None


def _decode_complex(content: object) -> complex:
    if isinstance(content, list):
        parts = [decode_attribute(part) for part in cast(list[object], content)]
        if len(parts) == 2 and all(type(part) is float for part in parts):
            real, imag = cast(list[float], parts)
            return complex(real, imag)
    raise Fault(".$complex", "expected the real and the imaginary part as two floats")


def _decode_dict(content: object, depth: int) -> FrozenDict[str, Attribute]:
    if depth >= MAX_DEPTH:
        raise too_deep()
    if not isinstance(content, dict):
        raise Fault(".$dict", f"expected an object, got {type(content).__name__}")
    items = cast(dict[str, object], content)
    return FrozenDict(each_value(lambda item: decode_attribute(item, depth + 1), items, ".$dict"))


def _decode_float(text: str) -> float:
    if text not in ("nan", "inf", "-inf"):
        raise Fault(".$float", f"{text!r:.80} is not nan, inf or -inf")
    return float(text)


def _decode_int(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= MAX_DIGITS):
        raise Fault(".$int", f"{text!r:.80} is not an integer of at most {MAX_DIGITS} digits")
    return int(text)


_TAGS: dict[type, str] = {
    DType: "$dtype",
    Layout: "$layout",
    MemoryFormat: "$memory_format",
    Device: "$device",
    FunctionRef: "$function",
    OperatorRef: "$operator",
}
_DECODERS: dict[str, Callable[[str], Attribute]] = {
    "$int": _decode_int,
    "$float": _decode_float,
    "$expr": SymExpr,
    **{tag: cast(Any, kind) for kind, tag in _TAGS.items()},
}
_HINT = (
    "An object in an attribute has one key, one of $complex, $dict, " + ", ".join(_DECODERS) + "."
)
