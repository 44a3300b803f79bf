"""Weights that are read from safetensors files into buffers, without keeping the files mapped."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from torch_ir.errors import WeightLoadError, raised_as
from torch_ir.ir import IR, TensorMeta
from torch_ir.serde.tensors import same_tensors, tensor_entries
from torch_ir.weights.check import check_weights
from torch_ir.weights.load import load_weights
from torch_ir.weights.sharded import SafetensorsWeights

ALIGNMENT = 64
"""Bytes between which tensors begin in a buffer, as in torch's own memory."""


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where the bytes of a tensor lie in a file.

    Attributes:
        file: The file.
        start: The position of the first.
        size: How many there are.
        meta: The type of the tensor.
        version: What tells that nobody has written the file since.
    """

    file: Path
    start: int
    size: int
    meta: TensorMeta
    version: tuple[int, ...]

    @property
    def room(self) -> int:
        """Bytes that it takes in a buffer."""
        return -(-self.size // ALIGNMENT) * ALIGNMENT


class WeightStream:
    """The weights of a program in safetensors files, read when they are asked for.

    Args:
        ir: The program.
        path: A file, an index, or the folder of one of either; see :func:`load_weights`.

    Attributes:
        places: Where each of the program's weights lies, by its key.

    Raises:
        WeightLoadError: The files are damaged, cut off or of another format, or lack a weight.
    """

    def __init__(self, ir: IR, path: str | os.PathLike[str]):
        weights = load_weights(path)
        if not isinstance(weights, SafetensorsWeights):
            raise WeightLoadError(
                f"{path} cannot be read in parts",
                remedy="Give safetensors: one file, or an index with its shards.",
            )
        keys = {meta.name for meta in ir.weights}.union(ir.weight_aliases) & set(weights)
        check_weights(ir, {key: weights[key] for key in keys}, source=str(path))
        found = {file: _spans(file) for file in {weights.paths[key] for key in keys}}
        self.places: dict[str, TensorPlace] = {}
        for meta in ir.weights:
            names = [meta.name, *(a for a, key in ir.weight_aliases.items() if key == meta.name)]
            key = next(name for name in names if name in keys)
            file = weights.paths[key]
            spans, version = found[file]
            self.places[meta.name] = TensorPlace(file, *spans[key], meta, version)

    def room(self, keys: Sequence[str]) -> int:
        """Return the bytes of a buffer that holds some weights."""
        return sum(self.places[key].room for key in keys)

    def read(self, keys: Sequence[str], buffer: torch.Tensor) -> dict[str, torch.Tensor]:
        """Read weights into a buffer of bytes; return them as tensors that lie in it.

        Pages of the files that have been read are given back to the system.

        Raises:
            WeightLoadError: A file cannot be read, ends before a weight does, or is not the one
                that it was.
        """
        tensors: dict[str, torch.Tensor] = {}
        at = 0
        for key in keys:
            place = self.places[key]
            part = buffer[at : at + place.size]
            if place.size:
                _fill(key, place, memoryview(cast(Any, part.numpy())))
            dtype = getattr(torch, place.meta.dtype)
            tensors[key] = part.view(dtype).view(cast(Any, place.meta.shape))
            at += place.room
        return tensors


def _version(file: int) -> tuple[int, ...]:
    """What changes when another file takes the name of an open one, or when it is written."""
    found = os.fstat(file)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _spans(file: Path) -> tuple[dict[str, tuple[int, int]], tuple[int, ...]]:
    """Where each tensor of a file begins, and its bytes; and the version of the file."""
    with (
        file.open("rb") as opened,
        mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data,
        memoryview(data) as view,
        raised_as(lambda error: WeightLoadError(f"{file}: {error}")),
    ):
        version = _version(opened.fileno())
        entries, texts, begin = tensor_entries(view)
    spans: dict[str, tuple[int, int]] = {}
    for name, entry in entries.items():
        start, end = entry.data_offsets
        spans[name] = begin + start, end - start
    return spans | {name: spans[other] for name, other in same_tensors(texts).items()}, version


def _fill(key: str, place: TensorPlace, into: memoryview) -> None:
    """Fill memory with the bytes of a tensor; a read may give fewer bytes than are asked for."""
    done = 0
    try:
        file = os.open(place.file, os.O_RDONLY)
        try:
            while done < place.size:
                count = os.preadv(file, [into[done:]], place.start + done)
                if not count:
                    raise WeightLoadError(
                        f"{place.file} ends within the weight {key!r}: {done} of its "
                        f"{place.size} bytes are there",
                        remedy="The file was cut off since the program was compiled.",
                    )
                done += count
            if _version(file) != place.version:  # it may have been written meanwhile
                raise WeightLoadError(
                    f"{place.file} was written since the program was compiled, which reads the "
                    f"weight {key!r} there",
                    remedy="Compile the program again.",
                )
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file, place.start, place.size, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)
    except OSError as error:
        raise WeightLoadError(
            f"{place.file}: the weight {key!r} cannot be read: {error.strerror}",
            remedy="Check the disk, and that the file is still there.",
        ) from error
