"""IRs as JSON documents: bytes and plain dicts, checked on the way in."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

import msgspec

from torch_ir.arguments import public
from torch_ir.errors import InvalidIRError, SerializationError
from torch_ir.ir.expressions import expressions_of
from torch_ir.ir.graph import IR
from torch_ir.ir.node import OpNode
from torch_ir.ir.tensor import TensorMeta
from torch_ir.serde.json.decode import (
    FetchConstant,
    decode_constant,
    decode_ir,
    decode_node,
    decode_tensor,
)
from torch_ir.serde.json.encode import (
    StoreConstant,
    encode_ir,
    encode_node,
    encode_tensor,
    store_in_place,
)
from torch_ir.serde.json.explain import convert, explain, first_place, is_unencodable
from torch_ir.serde.json.faults import Fault, as_fault
from torch_ir.serde.json.wire import FORMAT_VERSION, Document, NodeRecord, TensorRecord
from torch_ir.serde.upgrades import upgrade
from torch_ir.steps import uncollected

T = TypeVar("T")
R = TypeVar("R")


class _Header(msgspec.Struct):
    """What has to be known before a document is decoded; every other key is skipped."""

    format_version: int = 0


_HEADER = msgspec.json.Decoder(_Header)
_DOCUMENT = msgspec.json.Decoder(Document)


@public
def dumps(ir: IR) -> bytes:
    """Serialize an IR to JSON: RFC 8259, UTF-8, one node a line. Equal IRs give equal bytes.

    Raises:
        SerializationError: A value that a file cannot hold: a lone surrogate, or a constant of
            which only the hash is known.

    Example:
        >>> x = TensorMeta("x", (2,), "float32")
        >>> loads(dumps(IR([], [x], [x], []))) == IR([], [x], [x], [])
        True
    """
    return encode_document(ir)


@uncollected()
def encode_document(ir: IR, store: StoreConstant = store_in_place) -> bytes:
    """Serialize an IR, with constants stored as the caller says."""
    document = _outward("the IR", lambda: encode_ir(ir, store))
    try:
        return document_bytes(document)
    except (UnicodeEncodeError, ValueError) as error:
        place = first_place(msgspec.to_builtins(document), is_unencodable)
        raise Fault(place, f"the value cannot be written as JSON: {error}").error(
            "the IR"
        ) from None


def loads(data: bytes | str, *, name: str = "<string>") -> IR:
    """Read the IR of a JSON document.

    Args:
        data: The document, UTF-8 if bytes.
        name: What to call it in errors.

    Raises:
        SerializationError: The data is not the document of an IR; the message has the path of
            the first fault.

    Example:
        >>> loads('{"nodes": []}', name="m.json")
        Traceback (most recent call last):
        ...
        torch_ir.errors.SerializationError: m.json: at $: missing required field `graph_inputs`
    """
    return decode_document(data, name)


@uncollected()
def decode_document(data: bytes | str, name: str, fetch: FetchConstant = decode_constant) -> IR:
    """Read the IR of a document, with constants fetched as the caller says."""
    if not isinstance(data, bytes | str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
        raise SerializationError(f"{name}: a document is text or bytes, not {type(data).__name__}")
    with expressions_of(len(data)):
        return _inward(name, lambda: decode_ir(_read(data), fetch))


def _read(data: bytes | str) -> Document:
    """The records of JSON text of any version."""
    raw = data.encode() if isinstance(data, str) else data
    if not raw.strip():
        raise Fault("", "the document is empty")
    try:
        version = _HEADER.decode(raw).format_version
        if 1 <= version <= FORMAT_VERSION:  # what came with 2 is refused nowhere
            return _DOCUMENT.decode(raw)
    except msgspec.ValidationError as error:
        raise explain(error, _plain(raw), Document) from None
    except msgspec.DecodeError as error:
        lenient = _with_python_numbers(raw)
        if lenient is None:
            raise Fault("", str(error), _hint(raw)) from None
        return _read_plain(lenient)
    return _read_plain(_plain(raw))


def _hint(raw: bytes) -> str | None:
    """What the data seems to be, where it is not JSON."""
    if raw.startswith(b"\x80"):
        return "The data looks like a pickle. Nothing is ever unpickled here."
    if raw.startswith(b"PK"):
        return "The data looks like an archive; give its path to load."
    return None


def _plain(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.ValidationError:
        # numbers are all that can be wrong without types; Python's reader gives infinity for them
        place = first_place(_python_json(raw), lambda value: value in (math.inf, -math.inf))
        raise Fault(place, "a number is out of range") from None
    except msgspec.DecodeError as error:  # behind a value that is no document
        raise Fault("", str(error), _hint(raw)) from None


def _python_json(raw: bytes) -> Any:
    try:
        value = json.loads(raw)
        json.dumps(value, ensure_ascii=False).encode()  # half a character is no JSON to others
    except (ValueError, RecursionError):
        return None
    return value


def _with_python_numbers(raw: bytes) -> Any:
    """A document without a version whose only fault is the NaN and Infinity of Python's json."""
    if b"NaN" not in raw and b"Infinity" not in raw:
        return None
    document = _python_json(raw)
    is_versioned = not isinstance(document, dict) or "format_version" in document
    return None if is_versioned else cast(Any, document)


def _read_plain(document: object) -> Document:
    """The records of a decoded document of any version."""
    if not isinstance(document, Mapping):
        raise Fault("", f"expected an object, got {type(document).__name__}")
    return convert(upgrade(cast(Mapping[str, Any], document)), Document)


def _inward(name: str, decode: Callable[[], T]) -> T:
    """What ``decode`` gives; every way in which a document can be bad becomes one error."""
    try:
        return decode()
    except Fault as fault:
        raise fault.error(name) from None
    except InvalidIRError as error:
        raise as_fault(error, "").error(name) from None
    except RecursionError:
        raise Fault("", "the document is nested too deeply").error(name) from None
    except UnicodeError as error:
        raise Fault("", f"the document is not UTF-8: {error}").error(name) from None


_outward = _inward


@public
def ir_to_dict(ir: IR) -> dict[str, Any]:
    """Convert an IR to its JSON document as plain dicts and lists.

    Raises:
        SerializationError: A value that a document cannot hold.
    """
    return msgspec.to_builtins(_outward("the IR", lambda: encode_ir(ir)))


def ir_from_dict(data: Mapping[str, Any]) -> IR:
    """Read the IR of a JSON document given as plain dicts and lists.

    Raises:
        SerializationError: The document is not that of an IR; the message has the path of the
            first fault.
    """
    return _inward("<dict>", lambda: decode_ir(_read_plain(data)))


@public
def node_to_dict(node: OpNode) -> dict[str, Any]:
    """Convert a node to its JSON record."""
    return msgspec.to_builtins(_outward("the node", lambda: encode_node(node)))


def node_from_dict(data: Mapping[str, Any]) -> OpNode:
    """Read the node of a JSON record.

    Raises:
        SerializationError: The document is not that of a node.
    """
    return _inward("<dict>", lambda: decode_node(convert(data, NodeRecord)))


@public
def tensor_to_dict(meta: TensorMeta) -> dict[str, Any]:
    """Convert a tensor to its JSON record.

    Example:
        >>> tensor_to_dict(TensorMeta("y", (2, "s0"), "float32"))
        {'name': 'y', 'shape': [2, 's0'], 'dtype': 'float32'}
    """
    return msgspec.to_builtins(_outward("the tensor", lambda: encode_tensor(meta)))


def tensor_from_dict(data: Mapping[str, Any]) -> TensorMeta:
    """Read the tensor of a JSON record.

    Raises:
        SerializationError: The document is not that of a tensor.
    """
    return _inward("<dict>", lambda: decode_tensor(convert(data, TensorRecord)))


# -- text -----------------------------------------------------------------------------------------


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
