"""The dialects in which a traced program can be said."""

from __future__ import annotations

from typing import Any

from torch_ir.errors import InputError, did_you_mean
from torch_ir.ir import IR
from torch_ir.passes.decomposition import decomposed
from torch_ir.passes.functionalization import without_writes
from torch_ir.traced.prims import to_prims

DIALECTS = ("prims", "core_aten", "aten", "export")


def in_dialect(ir: IR, dialect: str) -> IR:
    """Convert a traced program to the operators of a dialect.

    Raises:
        PassError: It has operators that cannot be decomposed.
    """
    if dialect == "export":
        return ir
    functional = without_writes(ir)
    if dialect == "aten":
        return functional
    core = decomposed(functional)
    return core if dialect == "core_aten" else to_prims(core)


def require_dialect(name: Any) -> None:
    """Refuse a name that no dialect of traced programs has.

    Raises:
        InputError: There is none.
    """
    if name not in DIALECTS:
        raise InputError(
            f"there is no dialect {name!r:.60} of traced programs",
            remedy=did_you_mean(str(name), DIALECTS) or f"There are {', '.join(DIALECTS)}.",
        )
