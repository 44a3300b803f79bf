"""The calls of pytorch-ir, with its arguments."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from torch_ir.arguments import public
from torch_ir.errors import SerializationError, counted
from torch_ir.ir.diagnostics import errors_among
from torch_ir.ir.graph import IR
from torch_ir.serde.files import make_folder, path_text
from torch_ir.serde.json.document import dumps, loads
from torch_ir.serde.storage import load, save


@public
def serialize_ir(ir: IR) -> str:
    """Serialize an IR to the text of a JSON document: :func:`dumps` without the encoding.

    Raises:
        SerializationError: A value that a document cannot hold.
    """
    return dumps(ir).decode()


def deserialize_ir(json_str: str) -> IR:
    """Read the IR of the text of a JSON document.

    Raises:
        SerializationError: The text is not the document of an IR.
    """
    return loads(json_str)


@public
def save_ir(ir: IR, path: str | PathLike[str]) -> None:
    """Write an IR as :func:`save` does, making the directories above it if need be.

    Raises:
        SerializationError: The file cannot be written.
    """
    name = path_text(path)
    make_folder(Path(name).parent)
    save(ir, path)


def load_ir(path: str | PathLike[str]) -> IR:
    """Read an IR.

    Raises:
        SerializationError: The file is not an IR; a missing one is also a ``FileNotFoundError``.
    """
    return load(path)


@public
def validate_ir(ir: IR) -> bool:
    """Return True if the IR is well-formed.

    Raises:
        SerializationError: It is not; the message lists every finding of :meth:`IR.check`.
    """
    findings = errors_among(ir.check())
    if not findings:
        return True
    raise SerializationError(
        f"the IR is not well-formed: {counted(len(findings), 'finding')}",
        picture="\n".join(map(str, findings)),
        diagnostics=findings,
    )
