"""Save and load by path: an archive or a JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from torch_ir.arguments import public
from torch_ir.errors import SerializationError
from torch_ir.ir.graph import IR
from torch_ir.ir.tensor import Constant
from torch_ir.serde.files import (
    MAX_JSON_BYTES,
    open_for_reading,
    path_text,
    read_bounded,
    too_large,
    write_atomically,
)
from torch_ir.serde.json.document import dumps, loads

ARCHIVE_SUFFIX = ".tir"
IR_SUFFIXES = (ARCHIVE_SUFFIX, ".json", ".ir")
"""How the names of files end that hold a program."""
ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
"""How a zip file begins, with members and without."""


@public
def save(ir: IR, path: str | PathLike[str], *, weights: Mapping[str, Any] | None = None) -> None:
    """Write an IR: an archive if the name ends in ``.tir``, a JSON document otherwise.

    Args:
        ir: The IR.
        path: The file; replaced whole, or left as it was.
        weights: Values of the weights by key, to be stored with the IR in an archive.

    Raises:
        SerializationError: The file cannot be written, or a value cannot be stored.
    """
    name = path_text(path)
    if name.endswith(ARCHIVE_SUFFIX):
        from torch_ir.serde.archive import write_archive

        write_archive(ir, path, weights)
        return
    if weights is not None:
        raise SerializationError(
            f"{name}: a JSON document holds no weights",
            remedy="Choose a name that ends in .tir.",
        )
    data = dumps(ir)
    if len(data) > MAX_JSON_BYTES:
        raise too_large(name, MAX_JSON_BYTES)
    write_atomically(path, data)


def load(path: str | PathLike[str], *, mmap: bool = True) -> IR:
    """Read an IR from an archive or a JSON document; which of them is told by the content.

    Args:
        path: The file.
        mmap: Leave the constants of an archive in the file, mapped into memory. It must then not
            be changed in place, only replaced; False reads all of it.

    Raises:
        SerializationError: The file cannot be read or is not an IR; a missing one is a
            ``FileNotFoundError`` too.
    """
    name = path_text(path)
    with open_for_reading(path) as file:
        if file.peek(4)[:4] in ZIP_MAGIC:  # pyright: ignore[reportAttributeAccessIssue]  # open() buffers
            from torch_ir.serde.archive import read_archive

            return read_archive(file, name, mapped=mmap and file.seekable())
        return loads(read_bounded(file, name), name=name)


@public
def read_archive_weights(
    path: str | PathLike[str], *, mmap: bool = True
) -> Mapping[str, Constant]:
    """Read the weights of an archive, as views into the mapped file.

    Args:
        path: The file.
        mmap: As for :func:`load`.

    Raises:
        SerializationError: The file is not an archive, holds no weights, or does not match its
            manifest.
    """
    from torch_ir.serde.archive import read_weights

    return read_weights(path, mapped=mmap)
