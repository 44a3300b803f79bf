"""The dialects in which a traced program can be said."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch._prims as _registers_primitives  # pyright: ignore[reportUnusedImport]  # noqa: F401
import torch._refs as _registers_references  # pyright: ignore[reportUnusedImport]  # noqa: F401

from torch_ir.errors import InputError, TraceError, counted, did_you_mean
from torch_ir.infer.fake import Fakes
from torch_ir.infer.resolve import resolve_operator
from torch_ir.ir import IR
from torch_ir.ir.diagnostics import Diagnostics
from torch_ir.passes.dead_code import eliminate_dead_code
from torch_ir.passes.decomposition import decomposed
from torch_ir.passes.decomposition.engine import Settings, Shared, lowered, spare_decompositions
from torch_ir.passes.functionalization import without_writes
from torch_ir.torch_api import OpOverload

_AVOIDED = frozenset({"aten.as_strided.default", "prims.as_strided.default"})
"""They read memory, so that what is said in them would hold for tensors of one layout alone."""


def to_prims(ir: IR) -> IR:
    """Convert a program to primitive operators; those without a reference in torch stay.

    So do those whose references only hold for tensors that lie in one way, or write. Operators
    that draw random numbers stay too, so that the draws are those of eager. The bodies of control
    flow are in primitive operators as well.

    Args:
        ir: A functional program in core ATen.

    Raises:
        TraceError: There is control flow under autocast; all of it is listed.
    """
    fakes = Fakes(ir)
    found = Diagnostics()
    result = lowered(ir, Shared(_settings(), fakes), "", found)
    found.raise_if_any(
        TraceError,
        f"{counted(len(found), 'node')} cannot be said in torch's primitives",
        remedy='Take the dialect "core_aten".',
    )
    guards = dict.fromkeys([*result.guards, *fakes.new_guards()])
    return eliminate_dead_code(result).replace(dialect="prims", guards=tuple(guards))


@cache
def _settings() -> Settings:
    seeded = torch.Tag.nondeterministic_seeded
    table = {
        operator: function
        for operator, function in spare_decompositions().items()
        if isinstance(operator, OpOverload) and seeded not in operator.tags
    }
    return Settings(frozenset(), table, {}, _has_no_reference, "prims", _AVOIDED, True)


def _has_no_reference(op_type: str) -> bool:
    """Whether torch's references do not take an operator apart."""
    return resolve_operator(op_type) not in _settings().decompositions


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
