"""Bounded reads of a file, and atomic writes: a file is the old or the new, never half."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from torch_ir.errors import SerializationError, TorchIRError

MAX_JSON_BYTES = 256 * 2**20
"""The largest JSON document that is read or written; what takes more belongs into an archive."""


class MissingFileError(SerializationError, FileNotFoundError):
    """There is no such file."""


@contextmanager
def open_for_reading(path: str | PathLike[str]) -> Generator[BinaryIO]:
    """Open a file for reading within a ``with`` block.

    Raises:
        SerializationError: It is missing (then it is a ``FileNotFoundError`` too), a directory, or
            fails while it is read.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123  # a path of any kind, as given
            yield file
    except TorchIRError:
        raise
    except (OSError, ValueError) as error:
        raise _unreadable(os.fspath(path), error) from None


def read_bounded(file: BinaryIO, name: str, limit: int = MAX_JSON_BYTES) -> bytes:
    """Read the bytes of an open file or pipe, at most ``limit`` of them.

    Raises:
        SerializationError: There are more.
    """
    found = os.fstat(file.fileno())
    if stat.S_ISREG(found.st_mode) and found.st_size > limit:
        raise too_large(name, limit)
    data = file.read(limit + 1)  # a pipe has no size to ask for
    if len(data) > limit:
        raise too_large(name, limit)
    return data


def too_large(name: str, limit: int) -> SerializationError:
    """Return the error of a document over a bound."""
    return SerializationError(
        f"{name}: larger than the {limit // 2**20} MiB that a JSON document may have",
        remedy="Save large constants in an archive: a name that ends in .tir.",
    )


def _unreadable(name: str, error: Exception) -> SerializationError:
    if isinstance(error, FileNotFoundError):
        return MissingFileError(f"{name}: there is no such file")
    if isinstance(error, IsADirectoryError):
        return SerializationError(f"{name}: is a directory, not a file")
    return SerializationError(f"{name}: cannot be read: {_reason(error)}")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def write_atomically(path: str | PathLike[str], data: bytes) -> None:
    """Write a file whole, or leave what was there as it was.

    The bytes go to a new file beside it, which takes its place (and its permissions) when all is
    on the disk. A symbolic link is followed.

    Raises:
        SerializationError: The file cannot be written; nothing is left behind.
    """
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: str | PathLike[str]) -> Generator[BinaryIO]:
    """Replace a file that is written bit by bit: the new file takes its place at the end."""
    name = os.fspath(path)
    try:
        target = Path(os.path.realpath(path))
        mode = _mode_of(target, name)
        beside = target.with_name(f".torch-ir-{secrets.token_hex(8)}.tmp")
        with beside.open("xb") as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if mode is not None:
                    beside.chmod(mode)
                beside.replace(target)
            finally:
                beside.unlink(missing_ok=True)
    except TorchIRError:
        raise
    except (OSError, ValueError) as error:
        raise SerializationError(f"{name}: cannot be written: {_reason(error)}") from None


def _mode_of(target: Path, name: str) -> int | None:
    """The permissions of the file that is replaced; None if there is none."""
    try:
        found = target.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise SerializationError(f"{name}: is a directory, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise SerializationError(f"{name}: is not a regular file")
    return stat.S_IMODE(found.st_mode)
