"""Files of the command line: an IR read in any format, results written to a file or stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from torch_ir.cli import console
from torch_ir.cli.progress import progress
from torch_ir.errors import (
    InputError,
    SerializationError,
    closest_file,
    code_of,
    first_line,
)
from torch_ir.ir import IR
from torch_ir.viz.viewers import VIEWERS

FORMATS = ("json", "tir", "text", "mermaid", "html", "model-explorer", "graphviz")
FORMAT_BY_SUFFIX = {
    ".json": "json",
    ".tir": "tir",
    ".ir": "text",
    ".txt": "text",
    ".mmd": "mermaid",
    ".html": "html",
    ".me.json": "model-explorer",
    ".dot": "graphviz",
}
STDIO = "-"
OR_TO = "give --to, or a name that"
"""How an error goes on where a command has ``--to`` for the format."""
LARGE = 100_000
"""Bytes of a file that takes so long to read that a person is told."""


def read_ir(path: str) -> IR:
    """Read the IR in a file, or on stdin for ``-``: an archive, JSON or text, told by its content.

    Raises:
        SerializationError: It cannot be read, or is JSON or an archive that is no IR.
        ParseError: It is text that is no IR text.
    """
    from torch_ir.serde.programs import program_in, read_program

    if path == STDIO:
        return program_in(sys.stdin.buffer, "stdin")
    is_long = Path(path).is_file() and Path(path).stat().st_size > LARGE
    with progress(f"reading {path}") if is_long else nullcontext():
        return read_program(path)


def has_weights(path: str) -> bool:
    """Return whether a file is an archive with weights; a pipe, which is read once, is none."""
    from torch_ir.serde import archive

    return archive.has_weights(path)


def require_other_place(file: str, output: str | None) -> None:
    """Refuse to write a result without weights in the place of the file with them it is made of.

    Raises:
        UsageError: The weights would be lost.
    """
    is_named = output not in (None, STDIO) and Path(str(output)).exists()
    if is_named and has_weights(file) and Path(str(output)).samefile(file):
        raise click.UsageError(
            f"{file} holds weights, which the result does not: they would be lost. Give another "
            "name as -o"
        )


def note_left_weights(file: str) -> None:
    """Say that a result has none of the weights of the file it is made of."""
    if has_weights(file):
        console.note(f"the weights in {file} are left out; they fit the result")


def format_of(
    output: str | None, default: str, *, others: Sequence[str] = (), advice: str = "it"
) -> str:
    """Return the format to write, which the file's name says.

    Args:
        output: The file's name.
        default: The format for stdout.
        others: Endings that the caller writes itself, which the error names too.
        advice: What to do, as the error says it.

    Raises:
        UsageError: The name does not say which.
    """
    if output in (None, STDIO):
        return default
    name = Path(str(output)).name.lower()
    suffix = ".me.json" if name.endswith(".me.json") else Path(name).suffix
    if suffix.removeprefix(".") in VIEWERS.names():
        return suffix.removeprefix(".")
    if suffix not in FORMAT_BY_SUFFIX:
        raise click.UsageError(
            f"the name {output!r} does not say which format to write; {advice} ends in one "
            f"of {', '.join((*FORMAT_BY_SUFFIX, *others))}"
        )
    return FORMAT_BY_SUFFIX[suffix]


def write_ir(
    ir: IR, output: str | None, kind: str, weights: Mapping[str, Any] | None = None
) -> None:
    """Write an IR to a file, or to stdout if the name is None or ``-``.

    Args:
        ir: The IR.
        output: Where to.
        kind: One of the formats.
        weights: Values to store in an archive with it.

    Raises:
        SerializationError: It cannot be written; an old file stays as it was.
    """
    if kind == "tir":
        _write_archive(ir, output, weights)
    else:
        write(_RENDER[kind](ir) if kind in _RENDER else _by_viewer(kind, ir), output)


def _by_viewer(kind: str, ir: IR) -> bytes:
    viewer = VIEWERS.find(kind)
    with code_of(viewer, f"the viewer {kind!r}", SerializationError):
        made = viewer(ir)
        if isinstance(made, str):
            return made.encode()  # which half a character of a pair cannot be
    if not isinstance(made, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]  # another package's
        raise SerializationError(
            f"the viewer {kind!r} gave a value of type {type(made).__name__}, not text or bytes"
        )
    return made


def _write_archive(ir: IR, output: str | None, weights: Mapping[str, Any] | None) -> None:
    from torch_ir.serde.archive import write_archive
    from torch_ir.serde.files import temporary_folder

    if output not in (None, STDIO):
        write_archive(ir, str(output), weights)
        return
    with temporary_folder() as folder:
        write_archive(ir, folder / "m.tir", weights)
        write((folder / "m.tir").read_bytes(), output)


def _json(ir: IR) -> bytes:
    from torch_ir.serde import dumps

    return dumps(ir)


def _text(ir: IR) -> bytes:
    return f"{str(ir).rstrip()}\n".encode()


def _mermaid(ir: IR) -> bytes:
    from torch_ir.viz import ir_to_mermaid

    return f"{ir_to_mermaid(ir)}\n".encode()


def _html(ir: IR) -> bytes:
    from torch_ir.viz import view_html

    return view_html(ir).encode()


def _model_explorer(ir: IR) -> bytes:
    from torch_ir.viz.bridges import model_explorer

    return json.dumps(model_explorer(ir)).encode()


def _graphviz(ir: IR) -> bytes:
    from torch_ir.viz.bridges import graphviz

    return f"{graphviz(ir)}\n".encode()


_RENDER: dict[str, Callable[[IR], bytes]] = {
    "json": _json,
    "text": _text,
    "mermaid": _mermaid,
    "html": _html,
    "model-explorer": _model_explorer,
    "graphviz": _graphviz,
}


def write(data: bytes, output: str | None, *, fold: bool = True) -> None:
    """Write a result whole to a file, or to stdout if the name is None or ``-``.

    In a terminal long lines are folded, unless they are to be read back.

    Raises:
        SerializationError: It cannot be written; an old file stays as it was.
    """
    if output in (None, STDIO):
        console.document(data, fold=fold)
        return
    from torch_ir.serde import write_atomically

    write_atomically(str(output), data)


def read_report(path: str, remedy: str = "Give what a command prints with --json.") -> object:
    """Read what a command printed with ``--json``, or ``-`` for stdin.

    Raises:
        InputError: It cannot be read, or is no JSON.
        SerializationError: It is larger than a JSON document may be.
    """
    from torch_ir.serde.files import MAX_JSON_BYTES, path_text, read_bounded

    try:
        place = Path(path_text(path))
        with nullcontext(sys.stdin.buffer) if path == STDIO else place.open("rb") as file:
            return json.loads(read_bounded(file, path, MAX_JSON_BYTES))
    except SerializationError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(Path(path), error, remedy, " as JSON") from None


def unreadable(file: Path, error: Exception, remedy: str, kind: str = "") -> InputError:
    """Return the error for a file of tensors that a reader failed on, or that is not there."""
    if isinstance(error, FileNotFoundError):
        return InputError(
            f"there is no file {file}", remedy=closest_file(file) or "Check the path."
        )
    return InputError(f"{file} cannot be read{kind}: {first_line(error)}", remedy=remedy)
