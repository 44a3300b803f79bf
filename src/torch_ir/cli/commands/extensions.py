"""``torch-ir extensions``."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import asdict, replace
from importlib import import_module

import click

from torch_ir.cli import console
from torch_ir.errors import InvalidIRError, did_you_mean
from torch_ir.ops.extensions import GROUPS, Extension, extensions
from torch_ir.tables import table

_HOMES = (
    "torch_ir.backends.backend_registry",
    "torch_ir.dialects.registry",
    "torch_ir.passes.pass_registry",
    "torch_ir.viz.viewers",
    "torch_ir.weights.load",
)
"""The modules that say which names are ours."""
_SHOWN = 10
"""Operators of a library that are named."""


@click.command
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(as_json: bool) -> None:
    """List what installed packages add, what of it cannot be loaded, and what --import registers.

    Operators, denotations, passes, backends, dialects, readers of weights and viewers are found by
    the entry points of packages; each is imported to see whether it can be. Below them stands what
    their modules and those of --import registered.
    """
    for home in _HOMES:
        import_module(home)
    added = [*extensions()]
    operators = _operators()
    runnable = {e.name for e in [*operators, *added] if e.group in ("operator", "kernel")}
    found = [*[_of_an_operator(extension, runnable) for extension in added], *operators]
    if as_json:
        console.write_json([asdict(extension) for extension in found])
    elif not found:
        console.result("nothing extends torch-ir: no installed package, and no --import")
    else:
        rows = [(e.group, e.name, e.value, e.package, _state(e)) for e in found]
        console.result(table(rows, align=("left",) * 5))
    if any(extension.fault for extension in found):
        raise click.exceptions.Exit(1)


def _state(extension: Extension) -> str:
    told = f"{extension.fault}. {extension.remedy}" if extension.remedy else extension.fault
    return told or ("loaded" if extension.package else "registered")


def _of_an_operator(extension: Extension, known: Collection[str]) -> Extension:
    """Say of what is registered for an operator that its library does not have it."""
    namespace = f"{extension.name.partition('.')[0]}."
    theirs = [name for name in known if name.startswith(namespace)]
    if extension.group in GROUPS or extension.name in known or not theirs:
        return extension
    listed = f"The library has {', '.join(sorted(theirs)[:_SHOWN])}."
    hint = did_you_mean(extension.name, theirs) or listed
    return replace(extension, fault="there is no operator of this name", remedy=hint)


def _operators() -> list[Extension]:
    """The operators of libraries that are loaded, and those of them that can be traced."""
    if "torch" not in sys.modules:
        return []
    from torch_ir.infer.foreign import foreign_operators

    try:
        known = foreign_operators()
    except InvalidIRError:  # two packages have one namespace, as the rows above say
        return []
    faked = [operator for operator in known if "fake kernel" in operator.has]
    return [
        Extension(group, operator.op_type, operator.schema.text, "")
        for group, operators in (("operator", known), ("fake kernel", faked))
        for operator in operators
    ]
