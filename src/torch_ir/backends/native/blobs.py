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

from torch_ir.errors import CacheError
from torch_ir.ir import IR
from torch_ir.serde import dumps, write_atomically

if TYPE_CHECKING:
    from torch_ir.backends.native.native_backend import NativeBackend

_MAGIC = b"torch-ir blob 2\n"


class Blobs:
    """A folder of blobs: a file that is not whole, or that has the name of another, is ignored.

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
            tensor = held[name].detach().cpu().contiguous().resolve_conj().resolve_neg()
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
        except (OSError, ValueError):  # no path has a null character
            return None
        start = len(_MAGIC) + 32
        head, blob = data[:start], data[start:]
        return blob if head == _MAGIC + _digest(key, blob) else None

    def write(self, key: str, blob: bytes) -> None:
        """Write a blob whole.

        Raises:
            CacheError: It cannot be written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._folder / f"{key}.blob", _MAGIC + _digest(key, blob) + blob)
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise CacheError(
                f"the cache {str(self._folder)!r} cannot be written: {reason}",
                remedy="Give cache= or TORCH_IR_CACHE a folder of your own, or neither.",
            ) from error


def _digest(key: str, blob: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\n" + blob).digest()


def _processor() -> str:
    """The features of the processor, for which a runtime may have compiled."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
