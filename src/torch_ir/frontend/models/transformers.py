"""Models of the library transformers, built from a configuration file, without weights."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from torch_ir.errors import (
    ExportError,
    OptionalDependencyError,
    did_you_mean,
    first_line,
    raised_as,
)
from torch_ir.frontend.models.static_cache import with_static_cache
from torch_ir.frontend.models.without_weights import without_weights
from torch_ir.steps import uncollected


def transformers_model(
    config: str | os.PathLike[str], *, dtype: str | None = None, decode: int | None = None
) -> nn.Module:
    """Build the model that a configuration file describes, in evaluation mode.

    Its parameters have no values, need no gradients, and have the names of the checkpoint.
    Nothing is downloaded, and no code of a checkpoint is run.

    Args:
        config: A ``config.json``, or the folder that holds one.
        dtype: The element type of the parameters; that of the file if not given, else float32.
        decode: Positions of a static cache: the model decodes one token a call.

    Returns:
        The model, called with ``input_ids`` alone, or with ``input_ids`` and ``position`` if it
        decodes; a causal one gives logits.

    Raises:
        OptionalDependencyError: transformers is not installed.
        ExportError: The file describes no model that transformers has, or one to decode with that
            has no static cache.
    """
    path = Path(config)
    path = path / "config.json" if path.is_dir() else path
    with uncollected():
        return _built(_transformers(), path, dtype, decode)


def _built(transformers: Any, path: Path, dtype: str | None, decode: int | None) -> nn.Module:
    given = _read(path)
    settings = _settings(transformers, given, path)
    kind = _class(transformers, given, settings, path)
    named = str(dtype or given.get("dtype") or given.get("torch_dtype") or "float32")
    element = getattr(torch, named.removeprefix("torch."), None)
    if not isinstance(element, torch.dtype) or not element.is_floating_point:
        raise ExportError(f"{named!r} is not a floating-point element type")
    with (
        without_weights(),
        raised_as(lambda error: ExportError(f"{path}: {kind.__name__}: {first_line(error)}")),
    ):
        model: nn.Module = kind._from_config(settings, dtype=element).requires_grad_(False)
    is_causal = kind.__name__.endswith(("ForCausalLM", "LMHeadModel"))
    if decode is not None:
        if not is_causal:
            raise ExportError(f"{path}: {kind.__name__} does not predict the next token")
        return with_static_cache(model.eval(), decode)
    model.__class__ = _called_with_ids(kind, is_causal)
    return model.eval()


def _transformers() -> Any:
    try:
        import transformers
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise OptionalDependencyError(
            "models from configuration files need transformers, which is not installed",
            remedy="Install it with: pip install transformers",
        ) from error
    return transformers


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExportError(f"{path} was not read: {error.strerror}") from error
    except ValueError as error:
        raise ExportError(f"{path} is not JSON: {first_line(error)}") from error
    if not isinstance(found, dict) or not isinstance(found.get("model_type"), str):  # pyright: ignore[reportUnknownMemberType]  # any JSON
        raise ExportError(f"{path} is no configuration of a model: it has no model_type")
    return cast(Mapping[str, Any], found)


def _settings(transformers: Any, given: Mapping[str, Any], path: Path) -> Any:
    kinds = transformers.CONFIG_MAPPING
    name = given["model_type"]
    if name not in kinds:
        raise ExportError(
            f"{path}: transformers {transformers.__version__} has no models of type {name!r:.60}",
            remedy=did_you_mean(name, list(kinds)),
        )
    with raised_as(lambda error: ExportError(f"{path}: {first_line(error)}")):
        return kinds[name].from_dict(dict(given))


def _class(transformers: Any, given: Mapping[str, Any], settings: Any, path: Path) -> Any:
    """The class that the file names, else the one that predicts the next token, else the plain."""
    named = [*(given.get("architectures") or []), ""][0]
    kind = getattr(transformers, str(named), None) if named else None
    if isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel):
        return kind
    if named:
        raise ExportError(f"{path}: transformers has no model {named!r:.60}")
    for auto in ("MODEL_FOR_CAUSAL_LM_MAPPING", "MODEL_MAPPING"):
        mapping = getattr(transformers, auto)
        if type(settings) in mapping:
            return mapping[type(settings)]
    raise ExportError(f"{path}: transformers has no model for {type(settings).__name__}")


def _called_with_ids(kind: type[nn.Module], is_causal: bool) -> type[nn.Module]:
    """The class with a forward that takes token ids alone; no wrapper renames the weights."""
    parameters = inspect.signature(kind.forward).parameters
    options = {"use_cache": False} if "use_cache" in parameters else {}

    def forward(self: nn.Module, input_ids: torch.Tensor) -> Any:
        result = kind.forward(self, input_ids=input_ids, **options)
        return result.logits if is_causal else result

    made = {"forward": forward, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind,), made)
