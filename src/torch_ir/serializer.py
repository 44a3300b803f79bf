"""Storing an IR by the names that pytorch-ir gives it, over :mod:`torch_ir.serde`."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from torch_ir.errors import SerializationError
from torch_ir.ir.graph import IR
from torch_ir.serde import dumps, load, loads, save

__all__ = ["deserialize_ir", "load_ir", "save_ir", "serialize_ir", "validate_ir"]


def serialize_ir(ir: IR) -> str:
    """The JSON document of an IR.

    Example:
        >>> deserialize_ir(serialize_ir(IR([], [], [], [], model_name="Net"))).model_name
        'Net'
    """
    return dumps(ir).decode()


def deserialize_ir(json_str: str) -> IR:
    """The IR of a JSON document.

    Raises:
        SerializationError: The text is not the JSON of an IR; the message has the fault's path.
    """
    return loads(json_str)


def save_ir(ir: IR, path: str | PathLike[str]) -> None:
    """Write an IR, as :meth:`torch_ir.IR.save`; directories on the way are made.

    Raises:
        SerializationError: The file cannot be written; an old one stays as it was.
    """
    parent = Path(path).parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SerializationError(
            f"the directory {parent} cannot be made: {error.strerror}",
            remedy="Give a path in a directory that you may write to.",
        ) from None
    save(ir, path)


def load_ir(path: str | PathLike[str]) -> IR:
    """Read an IR, as :meth:`torch_ir.IR.load`.

    Raises:
        SerializationError: The file cannot be read or is not an IR; a missing one is a
            ``FileNotFoundError`` too.
    """
    return load(path)


def validate_ir(ir: IR) -> bool:
    """True if the IR is well-formed; :meth:`torch_ir.IR.check` tells all that is not.

    Raises:
        SerializationError: It is not; every finding is listed.

    Example:
        >>> validate_ir(IR([], [], [], []))
        True
    """
    findings = ir.check()
    if findings:
        raise SerializationError(
            f"the IR {ir.model_name!r} is not well-formed: {len(findings)} "
            f"finding{'' if len(findings) == 1 else 's'}",
            picture="\n".join(str(finding) for finding in findings),
        )
    return True
