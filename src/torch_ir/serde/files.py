"""Bounded reads of a file, and atomic writes: a file is the old or the new, never half."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from torch_ir.arguments import public
from torch_ir.errors import (
    SerializationError,
    TorchIRError,
    closest_file,
    first_line,
    raised_as,
)

MAX_JSON_BYTES = 512 * 2**20
"""The largest JSON document that is read or written; what takes more belongs into an archive."""


class MissingFileError(SerializationError, FileNotFoundError):
    """There is no such file."""


def path_text(path: str | PathLike[str]) -> str:
    """Return a path as text.

    Raises:
        SerializationError: It is none, or empty.
    """
    with raised_as(lambda error: SerializationError(f"no path of a file: {first_line(error)}")):
        text = os.fspath(path)
    if not text:
        raise SerializationError(
            "the path of a file or folder is empty", remedy="Give the name of one."
        )
    return text


def is_pipe(path: str | PathLike[str]) -> bool:
    """Return whether a path is that of a pipe, whose bytes can be read once and in order.

    Example:
        >>> is_pipe(".")
        False
    """
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)  # noqa: PTH116  # a path of any kind
    except (OSError, ValueError):
        return False


@contextmanager
def open_for_reading(path: str | PathLike[str]) -> Generator[BinaryIO]:
    """Open a file for reading within a ``with`` block.

    Raises:
        SerializationError: It is missing (then it is a ``FileNotFoundError`` too), a directory, or
            fails while it is read.
    """
    try:
        with open(path_text(path), "rb") as file:  # noqa: PTH123  # a path of any kind, as given
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
    if file.seekable():  # what has an end is refused before it is read
        begin, end = file.tell(), file.seek(0, os.SEEK_END)
        file.seek(begin)
        if end - begin > limit:
            raise too_large(name, limit)
    data = file.read(limit + 1)  # a pipe has no end to ask for, and that of a device says nothing
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
        return MissingFileError(f"there is no file {name}", remedy=closest_file(name) or None)
    if isinstance(error, IsADirectoryError):
        return SerializationError(f"{name}: is a directory, not a file")
    return SerializationError(f"{name}: cannot be read: {_reason(error)}")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


@public
def write_atomically(path: str | PathLike[str], data: bytes) -> None:
    """Write a file whole, or leave what was there as it was.

    The bytes go to a new file beside it, which takes its place (and its permissions) when all is
    on the disk. A symbolic link is followed.

    Raises:
        SerializationError: The file cannot be written; nothing is left behind.
    """
    with replacing(path) as file:
        file.write(data)


def make_folder(path: str | PathLike[str]) -> Path:
    """Make a folder and those above it, if need be, and return it.

    Raises:
        SerializationError: It cannot be made; a file may have its name.
    """
    name = path_text(path)
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        is_file = isinstance(error, FileExistsError)
        reason = os.strerror(errno.ENOTDIR) if is_file else _reason(error)
        raise SerializationError(f"{name}: cannot be written: {reason}") from None
    return Path(name)


@contextmanager
def temporary_folder() -> Generator[Path]:
    """Make a folder that is there within a ``with`` block.

    Raises:
        SerializationError: It cannot be made.
    """
    try:
        made = tempfile.TemporaryDirectory()
    except OSError as error:
        raise SerializationError(
            f"no folder for temporary files can be made: {_reason(error)}",
            remedy="Name one that may be written to, as the variable TMPDIR.",
        ) from None
    with made as name:
        yield Path(name)


@contextmanager
def replacing(path: str | PathLike[str]) -> Generator[BinaryIO]:
    """Replace a file that is written bit by bit: the new file takes its place at the end.

    Until then it has no name, where the system can have such files, so that nothing is left of a
    process that is killed; elsewhere a later save removes it. Nobody reads it before it has the
    owner, group and permissions of the file that it replaces, as far as the caller may give them.
    A pipe or device, which keeps nothing that could be replaced, is given all at the end.
    """
    name = path_text(path)
    try:
        if _is_stream(name):
            with tempfile.TemporaryFile() as file:
                yield file
                _pour(file, name)
            return
        target = Path(os.path.realpath(path))
        old = _replaced(target, name)
        _remove_leftovers(target.parent)
        beside = target.with_name(f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
        try:
            descriptor, is_named = _new_file(beside, 0o666 if old is None else 0o600)
            with open(descriptor, "w+b") as file:  # noqa: PTH123  # it may have no path
                yield file
                file.flush()
                if old is not None:
                    _keep_owner(descriptor, old)
                os.fsync(descriptor)
                if not is_named:
                    _give_name(descriptor, beside)
                beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except TorchIRError:
        raise
    except (OSError, ValueError) as error:
        raise SerializationError(f"{name}: cannot be written: {_reason(error)}") from None


def _is_stream(name: str) -> bool:
    """Whether a path is that of a pipe, or of a device such as the null device."""
    return is_pipe(name) or Path(name).is_char_device()


def _pour(file: BinaryIO, name: str) -> None:
    """Write all of a file to a pipe or device.

    Raises:
        SerializationError: It is a terminal, which would obey what it is given.
    """
    file.seek(0)
    with open(name, "wb") as stream:  # noqa: PTH123  # a path of any kind, as given
        if stream.isatty():
            raise SerializationError(f"{name}: is a terminal, not a file")
        shutil.copyfileobj(file, stream)


_PREFIX, _SUFFIX = ".torch-ir-", ".tmp"


def _new_file(beside: Path, mode: int) -> tuple[int, bool]:
    """A new file for writing, locked as long as it is open, and whether it has the name."""
    unnamed = getattr(os, "O_TMPFILE", 0)
    if unnamed:
        try:
            descriptor = os.open(beside.parent, unnamed | os.O_RDWR, mode)
        except OSError as error:
            if error.errno not in _NO_UNNAMED_FILES:
                raise
        else:
            if Path(f"/proc/self/fd/{descriptor}").exists():
                _lock(descriptor)
                return descriptor, False
            os.close(descriptor)
    descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
    _lock(descriptor)
    return descriptor, True


_NO_UNNAMED_FILES = frozenset({errno.EISDIR, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
"""What kernels and file systems say that cannot make a file without a name."""


def _give_name(descriptor: int, path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:  # a folder is given because Python follows the link of /proc only then
        os.link(f"/proc/self/fd/{descriptor}", path.name, dst_dir_fd=folder)
    finally:
        os.close(folder)


def _keep_owner(descriptor: int, old: os.stat_result) -> None:
    """Give a file the owner, group and permissions of another, as far as the caller may."""
    if not hasattr(os, "fchown"):
        return  # a system where files have no such owner
    mode = stat.S_IMODE(old.st_mode)
    for owner, group in ((old.st_uid, old.st_gid), (-1, old.st_gid)):
        with suppress(PermissionError):
            os.fchown(descriptor, owner, group)
            break
    if os.fstat(descriptor).st_gid != old.st_gid:  # another group may do what all others may
        mode = mode & ~0o070 | (mode & mode << 3 & 0o070)
    os.fchmod(descriptor, mode)


def _remove_leftovers(folder: Path) -> None:
    """Remove files that killed saves left in a folder: those of the caller that nobody locks."""
    try:
        left = [p for p in folder.iterdir() if p.name.startswith(_PREFIX) and p.suffix == _SUFFIX]
    except OSError:
        return  # one may write to a folder that one may not read
    for path in left:
        with suppress(OSError):
            found = path.lstat()
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
                _remove_unlocked(path)


def _remove_unlocked(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        if _lock(descriptor):
            path.unlink()
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Mark a file as one that a save is writing; false if it is, or if the system has no locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def _replaced(target: Path, name: str) -> os.stat_result | None:
    """What is known of the file that is replaced; None if there is none."""
    try:
        found = target.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise SerializationError(f"{name}: is a directory, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise SerializationError(f"{name}: is not a regular file")
    return found
