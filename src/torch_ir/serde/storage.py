"""Save and load by path: an archive or a JSON document."""

from __future__ import annotations

import os
from os import PathLike

from torch_ir.ir.graph import IR
from torch_ir.serde.document import dumps, loads
from torch_ir.serde.files import MAX_JSON_BYTES, read_bounded, too_large, write_atomically


def save(ir: IR, path: str | PathLike[str]) -> None:
    """Write an IR."""
    data = dumps(ir)
    if len(data) > MAX_JSON_BYTES:
        raise too_large(os.fspath(path), MAX_JSON_BYTES)
    write_atomically(path, data)


def load(path: str | PathLike[str]) -> IR:
    """Read an IR."""
    return loads(read_bounded(path), name=os.fspath(path))
