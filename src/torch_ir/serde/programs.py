"""Programs in files and pipes, in any of their forms, which is told by the content."""

from __future__ import annotations

import io
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from torch_ir.errors import ParseError, SerializationError
from torch_ir.ir.graph import IR
from torch_ir.serde.files import MAX_JSON_BYTES, is_pipe, open_for_reading, path_text
from torch_ir.serde.json.document import loads
from torch_ir.serde.storage import load


def read_program(path: str | PathLike[str]) -> IR:
    """Read the program in a file or pipe: an archive, JSON or text.

    Raises:
        SerializationError: It cannot be read, or is JSON or an archive that is no IR.
        ParseError: It is text that is no IR text.
    """
    name = path_text(path)
    if is_pipe(name):
        with open_for_reading(name) as file:
            return program_in(file, name)
    if Path(name).suffix in (".json", ".tir"):
        return load(name)
    try:
        with Path(name).open("rb") as file:
            data = file.read(MAX_JSON_BYTES)
    except (OSError, ValueError):
        return load(name)  # which says what is wrong
    return _parse(data, name) if _is_text(data) else load(name)


def program_in(stream: BinaryIO, name: str) -> IR:
    """Read the program in what can be read once.

    Raises:
        SerializationError: It is JSON or an archive that is no IR.
        ParseError: It is text that is no IR text.
    """
    data = stream.read(MAX_JSON_BYTES)
    if data.startswith(b"PK"):
        from torch_ir.serde.archive import read_archive

        return read_archive(io.BytesIO(data + stream.read()), name, mapped=False)
    return _parse(data, name) if _is_text(data) else loads(data, name=name)


def _is_text(data: bytes) -> bool:
    """Whether it can only be IR text: neither JSON nor binary."""
    start = data.lstrip()[:1]
    return bool(start) and start not in b"{[" and not data.startswith(b"PK") and b"\0" not in data


def _parse(data: bytes, name: str) -> IR:
    from torch_ir.ir.text import parse

    try:
        return parse(data.decode())
    except UnicodeDecodeError:
        raise SerializationError(
            f"{name}: is neither JSON, an archive nor text",
            remedy="Give a file that torch-ir wrote.",
        ) from None
    except ParseError as error:
        raise ParseError(
            f"{name}: {error.message}", picture=error.picture, remedy=error.remedy
        ) from None
