"""The format of a weights file, by its first bytes and its table of contents."""

from __future__ import annotations

import zipfile
from enum import Enum
from pathlib import Path

from torch_ir.errors import WeightLoadError

SUPPORTED = "Weights are read from .safetensors, .pt, .pth, .bin, .pt2 and .tir files."


class Format(Enum):
    """The formats that can be read, each with what a message calls it."""

    SAFETENSORS = "a safetensors file"
    CHECKPOINT = "a checkpoint of torch.save"
    EXPORTED_PROGRAM = "an exported program (.pt2)"
    ARCHIVE = "a torch-ir archive (.tir)"


def unreadable(file: Path, reason: object) -> WeightLoadError:
    """Return the error about a file that the system does not let be read."""
    return WeightLoadError(
        f"cannot read {file}: {reason}", remedy="Check the path and its permissions."
    )


def detect(file: Path) -> Format:
    """Detect the format of a file.

    Raises:
        WeightLoadError: It is empty, cut off, not readable, or something else; the message says
            what where it can.
    """
    try:
        with file.open("rb") as stream:
            start = stream.read(16)
    except OSError as error:
        raise unreadable(file, error.strerror) from None
    if not start:
        raise WeightLoadError(f"{file} is empty", remedy="Write or download the weights again.")
    # first safetensors, whose length of the header may begin with any bytes; it is less than 2**32
    if start[4:9] == b"\0\0\0\0{":
        return Format.SAFETENSORS
    if start.startswith(b"PK"):
        return _zip_format(file)
    if start.startswith(b"\x80"):
        return Format.CHECKPOINT
    what = _other_kind(start)
    raise WeightLoadError(
        f"{file} is not a weights file{f': it is {what}' if what else ''}", remedy=SUPPORTED
    )


def _zip_format(file: Path) -> Format:
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise WeightLoadError(
            f"{file} is cut off or damaged: {error}", remedy="Write or download the weights again."
        ) from None
    inner = {name.partition("/")[2] for name in names}
    if "ir.json" in names:
        return Format.ARCHIVE
    if "archive_format" in inner or "models/model.json" in inner:
        return Format.EXPORTED_PROGRAM
    if "constants.pkl" in inner:
        raise WeightLoadError(
            f"{file} is a TorchScript program, not weights",
            remedy="Save its weights alone: "
            "torch.save(torch.jit.load(path).state_dict(), 'weights.pt').",
        )
    if "data.pkl" in inner:
        return Format.CHECKPOINT
    raise WeightLoadError(
        f"{file} is a zip file without weights in it", remedy=f"Unpack it first. {SUPPORTED}"
    )


def _other_kind(start: bytes) -> str:
    text = start.lstrip()
    if text.startswith(b"{"):
        return "JSON; the index of a sharded file must be named *.safetensors.index.json"
    if text.startswith(b"version https://"):
        return "a Git LFS pointer; fetch the file with `git lfs pull`"
    if text.startswith(b"\x93NUMPY"):
        return "a NumPy array"
    if text.lower().startswith((b"<!doctype", b"<html")):
        return "a web page"
    return ""
