"""The process groups of a run, for those that a program names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch_ir.errors import did_you_mean
from torch_ir.ir import IR
from torch_ir.ir.diagnostics import Diagnostic, about, compile_error
from torch_ir.ir.process_groups import groups_of, with_group_names
from torch_ir.ops.collectives import COLLECTIVES


def bound_to_groups(
    ir: IR, groups: Mapping[str, Any] | None, allow: Iterable[str]
) -> tuple[IR, tuple[str, ...]]:
    """Return a program with the names of process groups of this process, and what it may call.

    Args:
        ir: The program.
        groups: The process group for each name; None allows no collective.
        allow: What it may call beside.

    Raises:
        CompileError: A group of the program is not given, or has another size than the program
            was made for.
    """
    if groups is None:
        return ir, tuple(allow)
    found = groups_of(ir)
    for name, node in found.items():
        if name not in groups:
            hint = did_you_mean(name, groups) or f"Give it: groups={{{name!r}: group}}."
            message = f"the group {name!r} is not given. {hint}"
            raise compile_error([about(Diagnostic("unknown-group", message), node)], node)
    for _, _, node in ir.walk():
        name, size = node.attrs.get("group_name"), node.attrs.get("group_size")
        has = groups[str(name)].size() if name in found and size is not None else size
        if has != size:
            message = f"it is made for {size} ranks, and the group {name!r} has {has}"
            raise compile_error([about(Diagnostic("group-size", message), node)], node)
    names = {name: str(groups[name].group_name) for name in found}
    return with_group_names(ir, names), (*allow, *COLLECTIVES)
