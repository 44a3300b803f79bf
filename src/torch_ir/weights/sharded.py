"""Safetensors, one file or many: headers are read at once, data when a tensor is touched."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open

from torch_ir.errors import WeightLoadError, counted, first_line
from torch_ir.ir.diagnostics import listed
from torch_ir.weights.detect import unreadable

MAXIMUM_INDEX_BYTES = 100_000_000
AGAIN = "Write or download it again."


class SafetensorsWeights(Mapping[str, torch.Tensor]):
    """The tensors of safetensors files, each mapped from its file when it is asked for.

    A tensor is a view of the mapped file: its pages are read when they are touched, and writing to
    it changes this process's copy only.

    Attributes:
        paths: By key, the file that has it.
    """

    def __init__(self, files: Mapping[str, Any], paths: Mapping[str, Path]) -> None:
        self._files = dict(files)  # by key, the open file that has it
        self.paths = dict(paths)

    def __getitem__(self, key: str) -> torch.Tensor:
        file = self._files[key]
        try:
            return file.get_tensor(key)
        except (SafetensorError, RuntimeError, TypeError, AttributeError) as error:
            raise WeightLoadError(
                f"tensor {key!r} cannot be read: {error}",
                remedy="Its element type may be unknown here, or the file has changed.",
            ) from error

    def __contains__(self, key: object) -> bool:
        return key in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        tensors = counted(len(self), "tensor")
        files = len({id(file) for file in self._files.values()})
        return f"SafetensorsWeights({tensors}{f' in {files} files' if files > 1 else ''})"


def read_safetensors(file: Path) -> SafetensorsWeights:
    """Read the tensors of one safetensors file.

    Raises:
        WeightLoadError: The file is not readable, cut off or damaged.
    """
    opened = _open(file)
    keys = opened.keys()
    return SafetensorsWeights(dict.fromkeys(keys, opened), dict.fromkeys(keys, file))


class _Index(msgspec.Struct):
    """The index file as Hugging Face writes it: which shard has which tensor."""

    weight_map: dict[str, str]


def read_index(file: Path) -> SafetensorsWeights:
    """Read the tensors that an index names, from the shards beside it.

    Raises:
        WeightLoadError: The index is damaged, names a file outside its directory, or a shard is
            missing, damaged or without a tensor that the index says it has.
    """
    shard_of = _read_index(file)
    for name in sorted(set(shard_of.values())):
        _require_inside(file, name)
    shards = {name: file.parent / name for name in sorted(set(shard_of.values()))}
    absent = [name for name, path in shards.items() if not _is_file(path)]
    if absent:
        raise WeightLoadError(
            f"{len(absent)} of the {len(shards)} shards that {file} names are not there",
            picture=listed(absent, 10),
            remedy=f"Put every shard beside the index, in {file.parent}.",
        )
    opened = {name: _open(path) for name, path in shards.items()}
    held = {name: set(shard.keys()) for name, shard in opened.items()}
    for key, name in shard_of.items():
        if key not in held[name]:
            raise WeightLoadError(
                f"{file} says that {name} has the tensor {key!r}, but it has not",
                remedy="Index and shard are of different versions; download them together.",
            )
    return SafetensorsWeights(
        {key: opened[name] for key, name in shard_of.items()},
        {key: shards[name] for key, name in shard_of.items()},
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # as of a name that is too long
        return False


def _read_index(file: Path) -> dict[str, str]:
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size  # no more is asked for: it would be allocated
            data = stream.read(min(size, MAXIMUM_INDEX_BYTES) + 1)
    except OSError as error:
        raise unreadable(file, error.strerror) from None
    if len(data) > MAXIMUM_INDEX_BYTES:
        raise WeightLoadError(
            f"{file} is larger than {MAXIMUM_INDEX_BYTES:,} bytes, which no index is", remedy=AGAIN
        )
    try:
        return msgspec.json.decode(data, type=_Index).weight_map
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WeightLoadError(
            f"{file} is not the index of a sharded safetensors file: {error}",
            remedy='It is JSON with "weight_map": {"key of a tensor": "name of its file"}.',
        ) from None


def _require_inside(index: Path, name: str) -> None:
    """An index comes from strangers: what it names must lie in its directory."""
    path = PurePosixPath(name)
    inside = name and not path.is_absolute() and ".." not in path.parts
    if not inside or "\\" in name or ":" in name or "\0" in name:
        raise WeightLoadError(
            f"{index} names a shard outside its directory: {name!r}",
            remedy="Shards lie beside their index, without '..' or absolute paths: do not use it.",
        )


def _open(file: Path) -> Any:
    try:
        return safe_open(str(file), framework="pt")
    except SafetensorError as error:
        raise WeightLoadError(
            f"{file} is not a whole safetensors file: {error}", remedy=AGAIN
        ) from None
    except OSError as error:
        raise unreadable(file, error) from None
    except RuntimeError as error:  # torch's, of memory
        raise WeightLoadError(
            f"{file} cannot be mapped: {first_line(error)}",
            remedy="A file is mapped twice while it is opened: see the limits of the process.",
        ) from None
