"""Readers of weights files, chosen by the file's content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import torch

from torch_ir.errors import WeightLoadError, first_line, raised_as
from torch_ir.ir.diagnostics import listed
from torch_ir.ir.graph import IR
from torch_ir.ops.extensions import Registry
from torch_ir.weights.check import check_weights
from torch_ir.weights.checkpoint import read_archive, read_checkpoint, read_exported_program
from torch_ir.weights.detect import Format, detect, unreadable
from torch_ir.weights.sharded import read_index, read_safetensors

INDEX_SUFFIX = ".safetensors.index.json"
CHECKPOINT_SUFFIXES = (".pt", ".pth", ".bin")


WeightReader: TypeAlias = Callable[[Path], Mapping[str, torch.Tensor]]
READERS = Registry[WeightReader](
    "torch_ir.weight_readers",
    "reader of weights",
    (*CHECKPOINT_SUFFIXES, ".safetensors", ".pt2", ".tir"),
)
"""Readers of further files, by suffix."""


def register_weight_reader(suffix: str) -> Callable[[WeightReader], WeightReader]:
    """Let :func:`load_weights` read files of a suffix with the decorated function.

    A package offers one by an entry point of the group ``torch_ir.weight_readers``, whose name is
    the suffix.

    Raises:
        InvalidIRError: The suffix has a reader, or no file has it.

    Example:
        >>> @register_weight_reader(".ones")
        ... def ones(path):
        ...     return {"w": torch.ones(2)}
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "net.ones"
        >>> path.touch()
        >>> load_weights(path)
        {'w': tensor([1., 1.])}
        >>> READERS.unregister(".ones")
    """
    return READERS.register(suffix)


def load_weights(
    path: str | PathLike[str], ir: IR | None = None, *, strict: bool = True, trust: bool = False
) -> Mapping[str, torch.Tensor]:
    """Load the tensors of a weights file, by ``state_dict`` key.

    Read are ``.safetensors`` (one file; a ``.safetensors.index.json`` with its shards; a directory
    with one of either), checkpoints of ``torch.save`` (``.pt``, ``.pth``, ``.bin``), ``.tir``
    archives with weights, and ``.pt2`` programs. Data is mapped from the file, not copied: a page
    is read when it is touched. (Checkpoints in the format before torch 1.6 cannot be mapped and
    are read whole.) Nothing in a file is executed, except that torch's own loader of a ``.pt2``
    may unpickle, which needs ``trust=True``.

    A checkpoint may hold its weights one level down, as ``{"state_dict": {...}, "epoch": 3}``, if
    no other entry of it could be meant.

    Args:
        path: The file or directory.
        ir: If given, the tensors must be those that it names; see :func:`check_weights`.
        strict: With ``ir``: refuse tensors that it does not name.
        trust: Whether a ``.pt2`` may execute code as it loads.

    Raises:
        WeightLoadError: The file cannot be read, is something else, would have to be trusted, or
            lacks tensors that ``ir`` names.

    Example:
        >>> import tempfile
        >>> from safetensors.torch import save_file
        >>> path = Path(tempfile.mkdtemp()) / "net.safetensors"
        >>> save_file({"fc.weight": torch.ones(2, 3)}, path)
        >>> weights = load_weights(path)
        >>> weights
        SafetensorsWeights(1 tensor)
        >>> weights["fc.weight"].shape
        torch.Size([2, 3])
    """
    file = _the_file(path)
    weights = _read(file, trust)
    if ir is not None:
        check_weights(ir, weights, strict=strict, source=str(path))
    return weights


def load_weights_pt(path: str | PathLike[str]) -> dict[str, torch.Tensor]:
    """Load the tensors of a checkpoint that ``torch.save`` wrote.

    Raises:
        WeightLoadError: The file cannot be read or is something else.
    """
    file = _the_file(path)
    _require(file, Format.CHECKPOINT)
    return read_checkpoint(file)


def load_weights_safetensors(path: str | PathLike[str]) -> dict[str, torch.Tensor]:
    """Load the tensors of a safetensors file, or of an index with its shards.

    Raises:
        WeightLoadError: The file cannot be read or is something else.
    """
    file = _the_file(path)
    if file.name.endswith(INDEX_SUFFIX):
        return dict(read_index(file))
    _require(file, Format.SAFETENSORS)
    return dict(read_safetensors(file))


def _read(file: Path, trust: bool) -> Mapping[str, torch.Tensor]:
    if file.name.endswith(".index.json"):
        return read_index(file)
    suffix = file.suffix.lower()
    if suffix not in READERS.own and suffix in READERS.names():  # which asks all packages
        return _read_by(READERS.find(suffix), file)
    kind = detect(file)
    _require_suffix(file, kind)
    match kind:
        case Format.SAFETENSORS:
            return read_safetensors(file)
        case Format.CHECKPOINT:
            return read_checkpoint(file)
        case Format.EXPORTED_PROGRAM:
            return read_exported_program(file, trust=trust)
        case Format.ARCHIVE:
            return read_archive(file)


def _read_by(reader: WeightReader, file: Path) -> Mapping[str, torch.Tensor]:
    name = getattr(reader, "__qualname__", type(reader).__qualname__)
    whose = f"{getattr(reader, '__module__', '')}.{name}, the reader of {file.suffix} files"
    fault = f"The fault is in the file or in {whose}."
    with raised_as(
        lambda error: WeightLoadError(
            f"cannot read {file}: {type(error).__name__}: {first_line(error)}", remedy=fault
        ),
        passing=(WeightLoadError,),
    ):
        read = reader(file)
    if not isinstance(read, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # another package's
        gave = f"a value of type {type(read).__name__}, not tensors by name"
    elif other := [key for key in read if not isinstance(key, str)]:  # pyright: ignore[reportUnnecessaryIsInstance]
        gave = f"the key {other[0]!r:.60}, which is no text"
    else:
        return read
    raise WeightLoadError(
        f"cannot read {file}: the reader of {file.suffix} files gave {gave}", remedy=fault
    )


_SUFFIXES = {
    Format.SAFETENSORS: (".safetensors",),
    Format.CHECKPOINT: CHECKPOINT_SUFFIXES,
    Format.EXPORTED_PROGRAM: (".pt2",),
    Format.ARCHIVE: (".tir",),
}


def _require_suffix(file: Path, kind: Format) -> None:
    """Refuse a name that says another format than the content; a name may say nothing."""
    suffix = file.suffix.lower()
    known = {suffix for suffixes in _SUFFIXES.values() for suffix in suffixes}
    if suffix in known and suffix not in _SUFFIXES[kind]:
        raise WeightLoadError(
            f"{file} is named {suffix} but is {kind.value}",
            remedy=f"Rename it to end in {_SUFFIXES[kind][0]}, or give the file that was meant.",
        )


def _require(file: Path, kind: Format) -> None:
    found = detect(file)
    if found is not kind:
        raise WeightLoadError(
            f"{file} is {found.value}, not {kind.value}",
            remedy="Read it with load_weights(), which finds out what a file is.",
        )


def _the_file(given: str | PathLike[str]) -> Path:
    """The file itself, or the one weights file of a directory."""
    with raised_as(lambda error: WeightLoadError(f"no path of weights: {first_line(error)}")):
        path = Path(given)
    try:
        is_directory, exists, is_file = path.is_dir(), path.exists(), path.is_file()
    except OSError as error:  # a name that is too long, a directory that may not be entered
        raise unreadable(path, error.strerror) from None
    if is_directory:
        return _only_file_of(path)
    if not exists:
        raise WeightLoadError(
            f"weights file not found: {path}",
            remedy="Check the path; it is relative to the current directory.",
        )
    if not is_file:
        raise WeightLoadError(f"{path} is not a regular file", remedy="Give a weights file.")
    return path


def _only_file_of(directory: Path) -> Path:
    """The one index if there is any, else the one safetensors file, else the one checkpoint."""
    names = sorted(entry.name for entry in directory.iterdir() if not entry.name.startswith("."))
    for suffixes in ((INDEX_SUFFIX,), (".safetensors",), CHECKPOINT_SUFFIXES):
        found = [name for name in names if name.endswith(suffixes)]
        if len(found) == 1:
            return directory / found[0]
        if found:
            raise WeightLoadError(
                f"the directory {directory} has {len(found)} weights files",
                picture=listed(found, 10),
                remedy="Give one of them, or the index that names them all.",
            )
    raise WeightLoadError(
        f"the directory {directory} has no weights file",
        remedy=f"Give a directory with one *{INDEX_SUFFIX}, *.safetensors, *.pt, *.pth or *.bin.",
    )
