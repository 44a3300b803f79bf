"""Passes that a command names: registered ones, and classes of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torch_ir.cli.options import pass_list

if TYPE_CHECKING:
    from torch_ir.passes import Pass


def steps_of(names: str) -> list[Pass]:
    """Return the passes of a list of names, some of them ``FILE.py:NAME``.

    Raises:
        UsageError: An object of a file is no pass.
        PassError: There is no pass of a name.
    """
    from torch_ir.passes import Pass, pass_named
    from torch_ir.user_code import import_object

    found: list[Pass] = []
    for name in pass_list(names):
        if ":" not in name:
            found.append(pass_named(name))
            continue
        made: Any = import_object(name)
        step = made() if isinstance(made, type) else made
        if not isinstance(step, Pass):
            raise click.UsageError(f"{name} is no pass, but a {type(step).__name__}")
        found.append(step)
    return found
