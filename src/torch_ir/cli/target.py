"""The user's model: found by name and built. Only here does the command run user code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import nn

from torch_ir.user_code import TargetError, import_object, run_user_code


@dataclass(frozen=True, slots=True)
class Target:
    """What the user's callable gave.

    Attributes:
        model: The module.
        args: Positional arguments to call it with.
        kwargs: Keyword arguments.
    """

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])


def build(spec: str, *, meta: bool = False) -> Target:
    """Import what ``spec`` names, and call it.

    Args:
        spec: ``package.module:callable`` or ``path/to/file.py:callable``. The callable is a module
            class without arguments to give, or a function that returns a module, or ``(module,
            inputs)``, or ``(module, inputs, kwargs)``; or the name is of a module instance.
        meta: Build under ``torch.device("meta")``.

    Raises:
        UsageError: ``spec`` does not have this form.
        TargetError: It does not exist, fails, or gives something else.
    """
    found = import_object(spec)
    if isinstance(found, nn.Module):
        return Target(found)
    if not callable(found):
        raise TargetError(
            f"{spec} is no model but of type {type(found).__name__}",
            remedy="Name a callable. " + _RETURNS,
        )
    return _target(_call(cast(Callable[[], Any], found), spec, meta), spec)


_RETURNS = (
    "It is a torch.nn.Module class, or a function without arguments that returns a module, "
    "(module, inputs) or (module, inputs, kwargs)."
)


def _call(function: Callable[[], Any], spec: str, meta: bool) -> Any:
    def call() -> Any:
        if not meta:
            return function()
        with torch.device("meta"):
            return function()

    return run_user_code(call, f"calling {spec}", spec)


def _target(made: object, spec: str) -> Target:
    parts = list(cast(tuple[Any, ...], made)) if isinstance(made, tuple | list) else [made]
    if not 1 <= len(parts) <= 3 or not isinstance(parts[0], nn.Module):
        raise TargetError(f"{spec} gave {_described(made)}, not a module", remedy=_RETURNS)
    args: Any = parts[1] if len(parts) > 1 else ()
    kwargs: Any = parts[2] if len(parts) > 2 else {}
    if isinstance(args, torch.Tensor):
        args = (args,)
    if not isinstance(args, tuple | list) or not isinstance(kwargs, Mapping):
        raise TargetError(
            f"{spec} gave {_described(args)} as inputs and {_described(kwargs)} as keyword inputs",
            remedy="Inputs are a tuple, keyword inputs a dict.",
        )
    return Target(parts[0], tuple(cast(list[Any], args)), cast(Mapping[str, Any], kwargs))


def _described(value: object) -> str:
    if isinstance(value, tuple | list):
        inside = ", ".join(type(item).__name__ for item in cast(list[object], value))
        return f"a {type(value).__name__} of ({inside})"
    return "nothing" if value is None else f"a {type(value).__name__}"
