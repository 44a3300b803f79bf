"""Weights from torch's own files and from archives; nothing is unpickled but as weights only."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch

from torch_ir.errors import ExportError, SerializationError, WeightLoadError, raised_as
from torch_ir.ir.diagnostics import listed
from torch_ir.torch_api import constant_tensor


def read_checkpoint(file: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of a file that ``torch.save`` wrote, always with ``weights_only=True``.

    Raises:
        WeightLoadError: The file is damaged, is compressed, needs more than plain tensors, or is
            not a dict of tensors.
    """
    is_zip = zipfile.is_zipfile(file)
    with (
        raised_as(lambda error: _refused(file, error), passing=(WeightLoadError,)),
        warnings.catch_warnings(),  # torch warns of what the error says
    ):
        warnings.simplefilter("ignore")
        if is_zip:
            _require_stored(file)
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=is_zip)
    return _state_dict(file, content)


def _require_stored(file: Path) -> None:
    """Refuse records that are compressed, whose bytes torch would map as if they were values."""
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            if entry.compress_type != zipfile.ZIP_STORED:
                raise WeightLoadError(
                    f"{file}: its record {entry.filename} is compressed, which torch never writes",
                    remedy="Write it anew from the weights: torch.save(model.state_dict(), path).",
                )


def _refused(file: Path, error: Exception) -> WeightLoadError:
    if code := re.search(r"GLOBAL ([\w.]+)|Unsupported class ([\w.]+)", str(error)):
        return WeightLoadError(
            f"{file} holds more than tensors: loading it would call {code[1] or code[2]}",
            remedy="Nothing was executed. Save the weights alone, torch.save(model.state_dict(), "
            "path), or better as safetensors.",
        )
    return WeightLoadError(
        f"{file} is cut off, damaged, or no checkpoint",
        picture=_reason(error),
        remedy="Write or download the weights again.",
    )


def _reason(error: Exception) -> str:
    """The part of torch's page-long message that says what was wrong."""
    text = str(error).split("WeightsUnpickler error:")[-1].strip()
    return (
        f"{type(error).__name__}: {text.partition(chr(10))[0]}"[:200]
        if text
        else type(error).__name__
    )


def _state_dict(file: Path, content: object) -> dict[str, torch.Tensor]:
    if not isinstance(content, Mapping):
        raise WeightLoadError(
            f"{file} holds a {type(content).__name__}, not a state_dict",
            remedy="Save the weights: torch.save(model.state_dict(), path).",
        )
    entries = cast(Mapping[Any, Any], content)
    if not any(isinstance(value, torch.Tensor) for value in entries.values()):
        inner = [key for key, value in entries.items() if _is_state_dict(value)]
        if len(inner) == 1:
            entries = cast(Mapping[Any, Any], entries[inner[0]])
        elif inner:
            raise WeightLoadError(
                f"{file} holds more than one state_dict: {', '.join(map(repr, inner))}",
                remedy="Save the one that is meant: "
                f"torch.save(torch.load(path)[{inner[0]!r}], 'weights.pt').",
            )
    kept = {key: value for key, value in entries.items() if not _is_extra_state(key, value)}
    wrong = [
        f"{key!r}: {type(value).__name__}"
        for key, value in kept.items()
        if not (isinstance(key, str) and isinstance(value, torch.Tensor))
    ]
    if wrong:
        raise WeightLoadError(
            f"{file} is not a state_dict: {len(wrong)} of its {len(kept)} entries are no tensors",
            picture=listed(wrong, 10),
            remedy="Save the weights alone: torch.save(model.state_dict(), path).",
        )
    return kept


def _is_state_dict(value: object) -> bool:
    if not isinstance(value, Mapping) or not value:
        return False
    entries = cast(Mapping[Any, Any], value)
    return all(
        isinstance(key, str) and (isinstance(item, torch.Tensor) or _is_extra_state(key, item))
        for key, item in entries.items()
    )


def _is_extra_state(key: object, value: object) -> bool:
    """What a module's ``get_extra_state`` put there: no graph uses it unless it is a tensor."""
    return str(key).endswith("_extra_state") and not isinstance(value, torch.Tensor)


def read_exported_program(file: Path, *, trust: bool) -> dict[str, torch.Tensor]:
    """Read the parameters, buffers and constants of a ``.pt2``.

    Raises:
        WeightLoadError: ``trust`` is False, or torch cannot load the file.
    """
    from torch_ir.frontend import load_exported_program

    try:
        program = load_exported_program(file, trust=trust)
    except ExportError as error:
        raise WeightLoadError(error.message, remedy=error.remedy) from error.__cause__
    constants = {
        key: value for key, value in program.constants.items() if isinstance(value, torch.Tensor)
    }
    return {**constants, **program.state_dict}


def read_archive(file: Path) -> dict[str, torch.Tensor]:
    """Read the weights in a ``.tir`` archive, as views of its mapped bytes.

    Raises:
        WeightLoadError: The archive is damaged or was saved without weights.
    """
    from torch_ir.serde import read_archive_weights

    try:
        weights = read_archive_weights(file)
    except SerializationError as error:
        raise WeightLoadError(error.message, picture=error.picture, remedy=error.remedy) from error
    return {key: constant_tensor(constant) for key, constant in weights.items()}
