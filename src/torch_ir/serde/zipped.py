"""The zip container of an archive: a narrow, deterministic kind of zip, and nothing else is read.

Members are stored, not compressed; they follow each other from the first byte of the file to the
central directory; there is no comment, no encryption, no second entry of one name. So the file
cannot unpack to more than it is, and no two readers can see different things in it.
"""

from __future__ import annotations

import hashlib
import struct
import zipfile
from collections.abc import Iterable
from typing import BinaryIO

from torch_ir.serde.json.faults import Fault

ALIGNMENT = 64
"""Members begin at a multiple of this many bytes, so that mapped tensors are aligned."""

MAX_MEMBERS = 16
"""Entries of the largest central directory that is looked at."""

_LOOKED_AT = 2**20
"""Bytes at the end of a foreign file that are searched for the names of its members."""

_LOCAL = struct.Struct("<4s5H3I2H")
_END = struct.Struct("<4s4H2IH")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR_64 = struct.Struct("<4sIQI")
_PADDING_ID = 0xD935  # the extra field that zipalign uses


def add_member(
    archive: zipfile.ZipFile, name: str, size: int, chunks: Iterable[bytes | memoryview]
) -> str:
    """Write one member and give the SHA-256 of its bytes."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.create_system = 3
    info.external_attr = 0o644 << 16
    info.file_size = size
    is_large = size * 1.05 > zipfile.ZIP64_LIMIT  # zipfile then adds a field of 20 bytes
    start = archive.start_dir + _LOCAL.size + len(name) + (20 if is_large else 0) + 6
    padding = -start % ALIGNMENT
    info.extra = struct.pack("<3H", _PADDING_ID, 2 + padding, ALIGNMENT) + bytes(padding)
    digest = hashlib.sha256()
    with archive.open(info, "w") as member:
        for chunk in chunks:
            digest.update(chunk)
            member.write(chunk)
    return digest.hexdigest()


def read_members(
    file: BinaryIO, view: memoryview, allowed: Iterable[str]
) -> dict[str, memoryview]:
    """Return the bytes of each member, as views into the file.

    Raises:
        Fault: The file is not a zip of this kind.
    """
    _check_directory(view)
    try:
        with zipfile.ZipFile(file) as archive:
            entries, start = archive.infolist(), archive.start_dir
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
        raise Fault("", f"it is not a zip file: {error}") from None
    members: dict[str, memoryview] = {}
    end = 0
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        _check_entry(entry, members, allowed)
        if entry.header_offset != end:
            raise Fault("", f"its member {entry.filename} overlaps another or leaves a gap")
        begin = _data_offset(view, entry)
        end = begin + entry.file_size
        members[entry.filename] = view[begin:end]
    if end != start:
        raise Fault("", "its members do not end where its directory begins")
    return members


def torch_archive(view: memoryview) -> str:
    """Return which of torch's archives a file is, by the names at its end; empty if none."""
    directory = bytes(view[-_LOOKED_AT:])
    if b"/archive_format" not in directory:
        return ""
    return "AOTInductor" if b"/data/aotinductor/" in directory else "torch.export"


def _check_directory(view: memoryview) -> None:
    """Look at the end of the file, so that an endless directory is never read."""
    tail = bytes(view[-_END.size :])
    if len(tail) < _END.size or tail[:4] != b"PK\x05\x06":
        raise Fault("", "it is cut off, or no archive of torch-ir", _HINT)
    _, disk, _, _, count, size, *_ = _END.unpack(tail)
    locator = bytes(view[-_END.size - _LOCATOR_64.size : -_END.size])
    if locator[:4] == b"PK\x06\x07":
        record = bytes(view[-_END.size - _LOCATOR_64.size - _END_64.size :][: _END_64.size])
        if record[:4] != b"PK\x06\x06":
            raise Fault("", "its directory is malformed")
        _, _, _, _, disk, _, _, count, size, _ = _END_64.unpack(record)
    if disk or count > MAX_MEMBERS or size > 4096 * MAX_MEMBERS:
        raise Fault("", "it has more members than an archive of torch-ir", _HINT)


def _check_entry(entry: zipfile.ZipInfo, seen: Iterable[str], allowed: Iterable[str]) -> None:
    name = entry.filename
    if name not in allowed:
        raise Fault("", f"it has a member {name!a:.80}, which no archive of torch-ir has", _HINT)
    if name in seen:
        raise Fault("", f"it has two members {name}")
    if entry.flag_bits:
        raise Fault("", f"its member {name} is encrypted or streamed")
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
        raise Fault("", f"its member {name} is compressed")


def _data_offset(view: memoryview, entry: zipfile.ZipInfo) -> int:
    """Where a member's bytes begin, by its local header, which has to agree with the directory."""
    header = bytes(view[entry.header_offset :][: _LOCAL.size])
    if len(header) < _LOCAL.size:
        raise Fault("", f"its member {entry.filename} is cut off")
    magic, _, flags, method, *_, name_size, extra_size = _LOCAL.unpack(header)
    begin = entry.header_offset + _LOCAL.size + name_size
    name = bytes(view[begin - name_size : begin])
    if (magic, flags, method, name) != (b"PK\x03\x04", 0, 0, entry.filename.encode()):
        raise Fault("", f"its member {entry.filename} has two different headers")
    return begin + extra_size


_HINT = "Archives are written by ir.save('name.tir'); weights are read by load_weights."
