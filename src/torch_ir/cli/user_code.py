"""Targets and backends of the command line: the user's code by its place. Imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from torch_ir.cli.options import require_code, require_torch

if TYPE_CHECKING:
    from torch_ir.backends import DelegateBackend


def target_place(_: click.Context, __: click.Parameter, target: str | None) -> str | None:
    """Require that what a TARGET names can be there, before torch is imported.

    Raises:
        UsageError: It names nothing to call.
        TargetError: There is no such file or package.
    """
    if target and not target.endswith(".pt2"):
        require_code(target)
    return target


def delegate_named(name: str) -> DelegateBackend:
    """Return the backend of a name or a place, which has to take parts of programs.

    Raises:
        OptionalDependencyError: There is no torch.
        TargetError: There is nothing in that place, or importing it fails.
        ExecutionError: There is no such backend, or it takes whole programs.
    """
    require_torch()
    from torch_ir.backends.support_report import delegate_backend

    return delegate_backend(name)
