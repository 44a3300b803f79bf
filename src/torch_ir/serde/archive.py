"""The archive ``.tir``: an IR with its constants, and on request its weights, in one file.

A zip of stored members: ``ir.json``, the document with constants by reference;
``constants.safetensors``; ``weights.safetensors``; and ``manifest.json`` with the size and SHA-256
of each. Tensors stay in the file, mapped into memory.
"""

from __future__ import annotations

import hashlib
import mmap
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from os import PathLike
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from torch_ir.errors import InvalidIRError, SerializationError
from torch_ir.ir.graph import IR
from torch_ir.ir.queries import names_by_key
from torch_ir.ir.tensor import Constant, TensorMeta
from torch_ir.ir.values import dtype_name, kind_without_values
from torch_ir.serde.constant_data import decode_constant, encode_constant, values_missing
from torch_ir.serde.files import MAX_JSON_BYTES, is_pipe, open_for_reading, replacing, too_large
from torch_ir.serde.json.document import decode_document, encode_document
from torch_ir.serde.json.faults import Fault
from torch_ir.serde.json.wire import ConstantRecord
from torch_ir.serde.tensors import METADATA, read_tensor_file, tensor_file
from torch_ir.serde.zipped import add_member, read_members, torch_archive

ARCHIVE_VERSION = 1
DOCUMENT = "ir.json"
CONSTANTS = "constants.safetensors"
WEIGHTS = "weights.safetensors"
MANIFEST = "manifest.json"
MEMBERS = (DOCUMENT, CONSTANTS, WEIGHTS, MANIFEST)
MAX_MANIFEST_BYTES = 2**16


class MemberRecord(Struct, forbid_unknown_fields=True):
    """One member."""

    sha256: str
    size: int


class Manifest(Struct, forbid_unknown_fields=True):
    """What an archive holds."""

    format: str
    version: int
    members: dict[str, MemberRecord]


@dataclass(frozen=True, slots=True)
class _Stored:
    """Constants to be stored, by name, and the name of each."""

    constants: dict[str, Constant] = field(default_factory=dict[str, Constant])
    names: dict[Constant, str] = field(default_factory=dict[Constant, str])


def write_archive(
    ir: IR, path: str | PathLike[str], weights: Mapping[str, Any] | None = None
) -> None:
    """Write an IR as an archive; equal IRs give equal bytes.

    Args:
        ir: The IR.
        path: The file, replaced whole or not at all.
        weights: Values of the IR's weights by key: ``torch.Tensor``, NumPy arrays or constants.

    Raises:
        SerializationError: The file cannot be written, a value cannot be stored, or the weights
            are not those of the IR.
    """
    stored = _Stored()
    document = encode_document(ir, lambda key, constant: _refer(key, constant, stored))
    if len(document) > MAX_JSON_BYTES:
        raise too_large(str(path), MAX_JSON_BYTES)
    if weights is not None:
        check_stored_weights(ir, weights)
    try:
        files = {
            name: tensor_file(tensors)
            for name, tensors in ((CONSTANTS, stored.constants), (WEIGHTS, weights))
            if tensors
        }
        with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
            members = {DOCUMENT: _add(archive, DOCUMENT, len(document), [document])}
            for name, tensors in files.items():
                members[name] = _add(archive, name, tensors.size, tensors.chunks())
            manifest = Manifest("torch-ir archive", ARCHIVE_VERSION, members)
            text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
            _add(archive, MANIFEST, len(text), [text])
    except InvalidIRError as error:
        raise SerializationError(
            f"{path}: cannot be written: {error.message}", remedy=error.remedy
        ) from None


def _add(
    archive: zipfile.ZipFile, name: str, size: int, chunks: Iterable[bytes | memoryview]
) -> MemberRecord:
    return MemberRecord(add_member(archive, name, size, chunks), size)


def _refer(key: str, constant: Constant, stored: _Stored) -> ConstantRecord:
    """The record of a constant that is stored beside the document, by its key if that is free.

    Constants of one type and content are stored once.
    """
    if constant.data is None:
        raise values_missing(constant)
    if constant.is_filled:
        return encode_constant(constant)
    name = stored.names.get(constant)
    if name is None:
        name, count = key, 1
        while name in stored.constants or name == METADATA:
            count += 1
            name = f"{key}#{count}"
        stored.names[constant] = name
        stored.constants[name] = constant
    return ConstantRecord(
        dtype=constant.dtype, shape=list(constant.shape), sha256=constant.digest(), tensor=name
    )


def check_stored_weights(ir: IR, weights: Mapping[str, Any]) -> None:
    """Refuse weights that are not those of the IR; other tensors may be among them.

    Raises:
        SerializationError: Naming every weight that is missing or has another shape or dtype.
    """
    aliases = names_by_key(ir.weight_aliases)
    faults = [
        fault
        for meta in ir.weights
        for fault in _weight_faults(meta, [meta.name, *aliases.get(meta.name, ())], weights)
    ]
    if METADATA in weights:
        faults.append(f"{METADATA}: safetensors has no tensors of this name")
    if faults:
        raise SerializationError("the weights are not those of the IR", picture="\n".join(faults))


def _weight_faults(
    meta: TensorMeta, keys: Iterable[str], weights: Mapping[str, Any]
) -> Iterable[str]:
    key = next((key for key in keys if key in weights), None)
    if key is None:
        return [f"{meta.name}: missing"]
    got = weights[key]
    if not hasattr(got, "dtype") or not hasattr(got, "shape"):
        return [f"{key}: expected a tensor, got a {type(got).__name__}"]
    if hasattr(got, "is_meta") and (kind := kind_without_values(got)):
        return [f"{key}: a {kind} tensor has no plain values to store"]
    found = TensorMeta(meta.name, tuple(int(d) for d in got.shape), dtype_name(got.dtype))
    is_same = found.dtype == meta.dtype and (not meta.is_static or found.shape == meta.shape)
    if is_same:
        return []
    return [
        f"{key}: expected {meta.dtype} {list(meta.shape)}, got {found.dtype} {list(found.shape)}"
    ]


def read_archive(file: BinaryIO, name: str, *, mapped: bool = True) -> IR:
    """Read the IR of an open archive; its constants stay in the file if that is mapped.

    Raises:
        SerializationError: The file is not an archive, or does not match its manifest.
    """
    try:
        members = _open(file, mapped)
        constants = _tensors(members, CONSTANTS)
        document = bytes(_checked(members, DOCUMENT))
    except Fault as fault:
        raise _refused(fault, name) from None
    return decode_document(
        document, f"{name}/{DOCUMENT}", lambda record: _fetch(record, constants)
    )


def has_weights(path: str | PathLike[str]) -> bool:
    """Return whether a file is an archive with weights; a pipe, which is read once, is none."""
    if is_pipe(path) or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return WEIGHTS in archive.namelist()


def read_weights(path: str | PathLike[str], *, mapped: bool = True) -> dict[str, Constant]:
    """Read the weights of an archive; see :func:`torch_ir.serde.read_archive_weights`."""
    with open_for_reading(path) as file:
        try:
            members = _open(file, mapped)
            if WEIGHTS not in members:
                raise Fault(
                    "",
                    "it holds no weights",
                    "Save it with ir and weights: save(ir, path, weights=...).",
                )
            return _tensors(members, WEIGHTS)
        except Fault as fault:
            raise _refused(fault, str(path)) from None


def _refused(fault: Fault, name: str) -> SerializationError:
    return SerializationError(
        f"{name}: cannot be read as an archive: {fault.reason}", remedy=fault.remedy
    )


class _Members(dict[str, memoryview]):
    """The members by name, and what the manifest says of them."""

    manifest: Manifest


def _open(file: BinaryIO, mapped: bool) -> _Members:
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if mapped else file.read()
    view = memoryview(data)
    try:
        seekable = file if file.seekable() else BytesIO(data)
        members = _Members(read_members(seekable, view, MEMBERS))
    except Fault:
        if kind := torch_archive(view):
            raise _of_torch(kind, str(file.name)) from None
        raise
    members.manifest = _manifest(members.get(MANIFEST))
    listed = members.manifest.members.keys()
    for name in sorted(listed ^ (members.keys() - {MANIFEST})):
        where = "manifest" if name in listed else "archive"
        raise Fault("", f"{name!a:.80} is in its {where} only")
    if DOCUMENT not in members:
        raise Fault("", f"it has no {DOCUMENT}")
    if len(members[DOCUMENT]) > MAX_JSON_BYTES:
        raise Fault("", f"its {DOCUMENT} is larger than {MAX_JSON_BYTES // 2**20} MiB")
    return members


def _of_torch(kind: str, name: str) -> Fault:
    if kind == "AOTInductor":
        remedy = "It has compiled code and no graph: give the program that it was made of."
    else:
        remedy = f"Extract the program in it: torch-ir extract {name} --trust"
    return Fault("", f"this is an archive of {kind}", remedy)


def _manifest(member: memoryview | None) -> Manifest:
    if member is None:
        raise Fault("", f"it has no {MANIFEST}")
    try:
        manifest = msgspec.json.decode(member[:MAX_MANIFEST_BYTES], type=Manifest)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Fault("", f"its {MANIFEST} is malformed: {error}") from None
    if manifest.format != "torch-ir archive":
        raise Fault("", f"its format is {manifest.format!a:.80}")
    if manifest.version != ARCHIVE_VERSION:
        raise Fault(
            "",
            f"its version is {manifest.version}; this torch-ir reads {ARCHIVE_VERSION}",
            "Upgrade torch-ir, or save the file again with this version.",
        )
    return manifest


def _checked(members: _Members, name: str) -> memoryview:
    """A member whose size and hash are those of the manifest."""
    record, data = members.manifest.members[name], members[name]
    if record.size != len(data) or record.sha256 != hashlib.sha256(data).hexdigest():
        raise Fault(
            "", f"its member {name} is not what the manifest says: it was changed or damaged"
        )
    return data


def _tensors(members: _Members, name: str) -> dict[str, Constant]:
    if name not in members:
        return {}
    try:
        return read_tensor_file(_checked(members, name))
    except Fault as fault:
        place = f" at {fault.path}" if fault.path else ""
        raise Fault("", f"in {name}{place}: {fault.reason}", fault.remedy) from None


def _fetch(record: ConstantRecord, stored: Mapping[str, Constant]) -> Constant:
    """The constant of a record, which has to be what the record says."""
    if record.fill is not msgspec.UNSET:
        return decode_constant(record)
    if not isinstance(record.tensor, str):
        raise Fault("", "a constant of an archive is given by reference")
    if record.data is not msgspec.UNSET or record.base64 is not msgspec.UNSET:
        raise Fault("", "a constant needs exactly one of data, base64, fill, tensor and view")
    constant = stored.get(record.tensor)
    if constant is None:
        raise Fault(".tensor", f"{record.tensor!a:.80} is not in {CONSTANTS}")
    if (constant.dtype, list(constant.shape)) != (dtype_name(record.dtype), record.shape):
        raise Fault("", f"the record does not match the stored {constant!r}")
    if constant.digest() != record.sha256:
        raise Fault(".sha256", "the stored values have another hash")
    return constant
