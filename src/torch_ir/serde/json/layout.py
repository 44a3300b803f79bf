"""The layout of a document as text: one node, tensor or constant a line, for short diffs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from torch_ir.serde.json.wire import Document

_encode = msgspec.json.Encoder().encode


def document_bytes(document: Document) -> bytes:
    """Encode the document as UTF-8 JSON that ends with a line end.

    Raises:
        UnicodeEncodeError: A string holds a lone surrogate.
        ValueError: An integer has more digits than Python converts.
    """
    return b"".join(_object(_fields(document), b"")) + b"\n"


def _fields(document: Document) -> dict[str, Any]:
    values = {name: getattr(document, name) for name in document.__struct_fields__}
    return {name: value for name, value in values.items() if value is not msgspec.UNSET}


def _object(items: dict[str, Any], indent: bytes) -> Iterator[bytes]:
    inner = indent + b" "
    separator = b"{\n"
    for key, value in items.items():
        yield separator + inner + _encode(key) + b": "
        yield from _value(value, inner)
        separator = b",\n"
    yield b"\n" + indent + b"}"


def _value(value: Any, indent: bytes) -> Iterator[bytes]:
    """A list or mapping with one item a line, a document one field a line, all else in one."""
    if isinstance(value, Document):
        yield from _object(_fields(value), indent)
    elif isinstance(value, list) and value:
        items = cast(list[Any], value)
        line = b",\n " + indent
        yield b"[\n " + indent + line.join(map(_encode, items)) + b"\n" + indent + b"]"
    elif isinstance(value, dict) and value:
        yield from _object(cast(dict[str, Any], value), indent)
    else:
        yield _encode(value)
