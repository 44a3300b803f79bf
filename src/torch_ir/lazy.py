r"""Names and modules that are loaded when they are first used, or may not be there."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

from torch_ir.errors import OptionalDependencyError, did_you_mean


def lazy_names(
    package: str,
    names_of: Mapping[str, Iterable[str]],
    *,
    modules: Iterable[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> Callable[[str], object]:
    """Return a ``__getattr__`` for a package whose names are loaded at their first use.

    Args:
        package: The package's own ``__name__``.
        names_of: The names that each module defines.
        modules: Submodules that attribute access imports.
        renamed: Old names and what they are called now; each use of one warns.

    Raises:
        OptionalDependencyError: By the returned function: the name needs PyTorch, which is not
            installed.
        AttributeError: By the returned function: there is no such name.

    Example:
        >>> load = lazy_names("torch_ir", {"torch_ir.frozen": ["FrozenDict"]})
        >>> load("FrozenDict")(a=1)
        {'a': 1}
        >>> load("FrozenDist")
        Traceback (most recent call last):
        ...
        AttributeError: module 'torch_ir' has no attribute 'FrozenDist'. Did you mean FrozenDict?
    """
    homes = {name: home for home, names in names_of.items() for name in names}
    now = renamed or {}
    submodules = frozenset(modules)

    def load(name: str) -> object:
        if name in now:
            message = f"{package}.{name} is called {now[name]} now"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return getattr(sys.modules[package], now[name])
        if name in submodules:
            return import_module(f"{package}.{name}")
        if name not in homes:
            hint = "" if name.startswith("__") else did_you_mean(name, homes)
            message = f"module {package!r} has no attribute {name!r}{'. ' if hint else ''}{hint}"
            raise AttributeError(message, name=name, obj=None)
        value = getattr(module_with_torch(homes[name], f"{package}.{name}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load


def module_with_torch(name: str, feature: str, also: str = "") -> Any:
    """Import a module of this package that may need torch.

    Args:
        name: The module.
        feature: What needs it, as the subject of the message.
        also: What else helps, to go on with the remedy.

    Raises:
        OptionalDependencyError: It needs torch, which is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise without_torch(feature, also) from error


def without_torch(feature: str, also: str = "") -> OptionalDependencyError:
    """Return the error about what needs torch where it is not installed."""
    return OptionalDependencyError(
        f"{feature} needs PyTorch, which is not installed",
        remedy=f"Install it with: pip install 'torch-ir[torch]'{also}",
    )


def optional_module(name: str, feature: str, extra: str) -> Any:
    """Import a module of a package that an extra brings.

    Args:
        name: The module.
        feature: What needs it, as the subject of the message.
        extra: The extra of torch-ir.

    Raises:
        OptionalDependencyError: The package is not installed.

    Example:
        >>> optional_module("no_such_runtime", "the backend 'none'", "none")
        Traceback (most recent call last):
        ...
        torch_ir.errors.OptionalDependencyError: the backend 'none' needs no_such_runtime, which \
is not installed
        Install it with: pip install "torch-ir[none]"
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise without_package(str(error.name), feature, extra) from error


def without_package(name: str, feature: str, extra: str) -> OptionalDependencyError:
    """Return the error about what needs a package, which an extra brings, where it is missing."""
    return OptionalDependencyError(
        f"{feature} needs {name}, which is not installed",
        remedy=f'Install it with: pip install "torch-ir[{extra}]"',
    )
