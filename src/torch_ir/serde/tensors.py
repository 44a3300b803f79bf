"""Named tensors as a safetensors file, written in chunks and read without a copy.

An element type that safetensors has no name for is stored as bytes (U8); what it is stands in the
file's metadata under the key ``torch-ir``. A tensor that is given under several names, as tied
weights are, is stored once; the other names stand in the metadata under ``torch-ir-same``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from torch_ir.errors import InvalidIRError
from torch_ir.ir.dtypes import DTYPES
from torch_ir.ir.tensor import Constant, as_constant, data_pieces
from torch_ir.ir.values import dtype_name
from torch_ir.serde.json.explain import convert
from torch_ir.serde.json.faults import Fault, each_value
from torch_ir.serde.json.wire import ConstantShape

METADATA = "__metadata__"
TRUE_TYPES = "torch-ir"
SAME = "torch-ir-same"
MAX_HEADER_BYTES = 100 * 2**20
"""The library's own bound."""

# float4 is left out: safetensors counts its elements one by one, torch in pairs
_NAMES = {
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2": "F8_E5M2",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
    "complex64": "C64",
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


class TrueType(Struct, forbid_unknown_fields=True):
    """What a tensor is that is stored as bytes."""

    dtype: str
    shape: ConstantShape


class TensorEntry(TrueType):
    """One tensor in the header."""

    data_offsets: tuple[int, int]


PIECE = 2**20
"""Bytes that are written at once."""


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A safetensors file that is yet to be written: its header, and the tensors in their order."""

    header: bytes
    tensors: Mapping[str, Any]
    size: int

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the file, one tensor at a time.

        Raises:
            InvalidIRError: A tensor has no values, others than its shape says, or others than its
                hash says.
        """
        yield self.header
        for tensor in self.tensors.values():
            yield from checked_pieces(as_constant(tensor))


def checked_pieces(constant: Constant) -> Iterator[bytes]:
    """Yield the bytes of a constant, hashed on the way if its hash is known.

    Raises:
        InvalidIRError: They are not those of the hash: the file that they are mapped from was
            changed in place.
    """
    if constant.is_filled and constant.view is None:
        yield from map(bytes, data_pieces(constant))
        return
    data = memoryview(constant.tobytes()).cast("B")
    known = constant.sha256 if constant.view is None else ""
    digest = hashlib.sha256()
    for start in range(0, len(data), PIECE):
        piece = bytes(data[start : start + PIECE])  # copied: a mapped file may change meanwhile
        if known:
            digest.update(piece)
        yield piece
    if known and digest.hexdigest() != known:
        raise InvalidIRError(
            f"the values of {constant!r} are not those of its hash: the file that they came from "
            "was changed in place",
            remedy="Load it again; replace files by rename, or load with mmap=False.",
        )


def tensor_file(tensors: Mapping[str, Any]) -> TensorFile:
    """Lay out a safetensors file of constants, ``torch.Tensor`` or NumPy arrays by name.

    Wide element types come first, so that every tensor is aligned.

    Raises:
        InvalidIRError: A value is no tensor, or has an element type that no IR has.
    """
    same = _same(tensors)
    types = {name: _type_of(tensor) for name, tensor in tensors.items() if name not in same}
    order = sorted(types, key=lambda name: (-DTYPES[types[name].dtype].itemsize, name))
    true_types = {n: types[n] for n in sorted(types) if types[n].dtype not in _NAMES}
    metadata = {TRUE_TYPES: true_types, SAME: same}
    header: dict[str, Any] = {}
    if true_types or same:
        header[METADATA] = {k: msgspec.json.encode(v).decode() for k, v in metadata.items() if v}
    end = 0
    for name in order:
        start, end = end, end + _size(types[name])
        header[name] = _entry(types[name], start, end)
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % 8)
    return TensorFile(
        len(text).to_bytes(8, "little") + text,
        {name: tensors[name] for name in order},
        8 + len(text) + end,
    )


def _same(tensors: Mapping[str, Any]) -> dict[str, str]:
    """Names of tensors that are the same view of the same memory as one of another name."""
    first: dict[tuple[object, ...], str] = {}
    same: dict[str, str] = {}
    for name in sorted(tensors):
        memory = _memory(tensors[name])
        other = name if memory is None else first.setdefault(memory, name)
        if other != name:
            same[name] = other
    return same


def _memory(tensor: Any) -> tuple[object, ...] | None:
    """What tells a dense torch tensor's place in memory; None for any other value."""
    if type(tensor).__name__ not in ("Tensor", "Parameter") or tensor.is_meta:
        return None
    if str(tensor.layout) != "torch.strided" or tensor.is_quantized or not tensor.numel():
        return None
    view = tuple(tensor.shape), tuple(tensor.stride()), tensor.is_conj(), tensor.is_neg()
    return str(tensor.device), tensor.data_ptr(), str(tensor.dtype), *view


def _type_of(tensor: Any) -> TrueType:
    if not hasattr(tensor, "shape") or not hasattr(tensor, "dtype"):
        raise InvalidIRError(f"{tensor!r:.80} is not a tensor")
    return TrueType(dtype_name(tensor.dtype), [int(d) for d in tensor.shape])


def _size(kind: TrueType) -> int:
    return math.prod(kind.shape) * DTYPES[kind.dtype].itemsize


def _entry(kind: TrueType, start: int, end: int) -> TensorEntry:
    if kind.dtype in _NAMES:
        return TensorEntry(_NAMES[kind.dtype], kind.shape, (start, end))
    return TensorEntry("U8", [end - start], (start, end))


def read_tensor_file(data: memoryview) -> dict[str, Constant]:
    """Read the tensors of a safetensors file, as views into it.

    Raises:
        Fault: The data is not such a file.
    """
    entries, texts, start = tensor_entries(data)
    true_types = _decode(texts.get(TRUE_TYPES, "{}").encode(), dict[str, TrueType])
    same = same_tensors(texts)
    body = data[start:]
    stored = each_value(
        lambda named: _constant(named[1], true_types.get(named[0]), body),
        {name: (name, entry) for name, entry in entries.items()},
        "",
    )
    for name, other in same.items():
        if name in stored or other not in stored:
            raise Fault("", f"{name!a:.80} cannot stand for {other!a:.80}")
    return stored | {name: stored[other] for name, other in same.items()}


def tensor_entries(data: memoryview) -> tuple[dict[str, TensorEntry], dict[str, str], int]:
    """Read the header of a safetensors file: its tensors, its metadata, and where data begins.

    Raises:
        Fault: The data is not such a file.
    """
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(len(data) - 8, MAX_HEADER_BYTES):
        raise Fault("", "the header of the tensors is cut off")
    header = _decode(bytes(data[8 : 8 + size]), dict[str, Any])
    metadata = header.pop(METADATA, {})
    entries = convert(header, dict[str, TensorEntry])
    _check_offsets(entries, len(data) - 8 - size)
    return entries, convert(metadata, dict[str, str]), 8 + size


def same_tensors(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the names in the metadata that stand for tensors of other names.

    Raises:
        Fault: The metadata is malformed.
    """
    return _decode(texts.get(SAME, "{}").encode(), dict[str, str])


def _decode(text: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Fault("", f"the header of the tensors is malformed: {error}") from None


def _check_offsets(entries: Mapping[str, TensorEntry], size: int) -> None:
    """The tensors fill the body one after the other, without gaps or overlaps."""
    end = 0
    for start, stop in sorted(entry.data_offsets for entry in entries.values()):
        if start != end or stop < start:
            raise Fault("", "the tensors overlap or leave gaps")
        end = stop
    if end != size:
        raise Fault("", f"the tensors fill {end} bytes of {size}")


def _constant(entry: TensorEntry, true_type: TrueType | None, body: memoryview) -> Constant:
    stored = _DTYPES.get(entry.dtype)
    if stored is None:
        raise Fault(".dtype", f"{entry.dtype!r:.40} is not an element type of safetensors")
    kind = true_type or TrueType(stored, entry.shape)
    start, end = entry.data_offsets
    return Constant(kind.dtype, tuple(kind.shape), body[start:end])
