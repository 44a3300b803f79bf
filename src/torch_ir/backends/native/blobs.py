"""Compiled blobs in a folder, by a fingerprint of everything that they depend on."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from torch_ir.ir import IR
from torch_ir.serde import dumps, write_atomically

if TYPE_CHECKING:
    from torch_ir.backends.native.native_backend import NativeBackend

_MAGIC = b"torch-ir blob 1\n"


class Blobs:
    """A folder of blobs. Each file has the hash of what follows; one that lies is ignored.

    A blob is code of its runtime: the folder is for one user, and not to be shared.

    Args:
        folder: The folder; it is made when the first blob is written.
    """

    def __init__(self, folder: str | PathLike[str]):
        self._folder = Path(folder)

    def key(
        self,
        backend: NativeBackend,
        body: IR,
        held: Mapping[str, torch.Tensor],
        options: Mapping[str, Any],
    ) -> str:
        """Return the name of a body's blob: a hash of all that decides what is built."""
        own: Any = import_module(__name__.partition(".")[0])
        facts = (
            *(backend.name, backend.version, own.__version__, torch.__version__),
            *(platform.machine(), _processor(), str(torch.get_num_threads())),
            json.dumps(options, sort_keys=True, default=repr),
        )
        # a delegate's name and source lines differ between programs, and decide nothing
        nodes = [node.replace(location=None) for node in body.nodes]
        text = dumps(body.replace(model_name="", nodes=nodes))
        digest = hashlib.sha256("\n".join(facts).encode() + b"\0" + text)
        for name in sorted(held):
            tensor = held[name].detach().cpu().contiguous()
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
            digest.update(cast(Any, tensor.reshape(-1).view(torch.uint8).numpy()))
        return digest.hexdigest()

    def choice_key(self, ir: IR, options: Mapping[str, Any], runtimes: Sequence[str]) -> str:
        """Return the name under which the fastest way to run a program is kept.

        Args:
            ir: The program; its weights do not decide.
            options: What the runtimes are given.
            runtimes: The names of those that are installed.
        """
        own: Any = import_module(__name__.partition(".")[0])
        facts = (own.__version__, torch.__version__, _processor(), str(torch.get_num_threads()))
        asked = json.dumps(options, sort_keys=True, default=repr)
        text = "\n".join(("choice", *facts, *runtimes, asked)).encode()
        return hashlib.sha256(text + b"\0" + dumps(ir)).hexdigest()

    def read(self, key: str) -> bytes | None:
        """Return a blob; None where there is none, or it is damaged."""
        try:
            data = (self._folder / f"{key}.blob").read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + 32
        is_whole = (
            data.startswith(_MAGIC)
            and hashlib.sha256(data[start:]).digest() == (data[len(_MAGIC) : start])
        )
        return data[start:] if is_whole else None

    def write(self, key: str, blob: bytes) -> None:
        """Write a blob whole.

        Raises:
            SerializationError: It cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        data = _MAGIC + hashlib.sha256(blob).digest() + blob
        write_atomically(self._folder / f"{key}.blob", data)


def _processor() -> str:
    """The features of the processor, for which a runtime may have compiled."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
