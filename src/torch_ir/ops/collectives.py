"""Functional collectives: operators through which the processes of a group exchange tensors."""

from __future__ import annotations

NAMESPACES = frozenset({"_c10d_functional", "_c10d_functional_autograd", "c10d_functional"})
"""Where torch has its functional collectives."""

_NAMES = (
    "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced",
    "all_reduce",
    "all_reduce_",
    "all_reduce_coalesced",
    "all_to_all_single",
    "broadcast",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced",
    "wait_tensor",
)
_AUTOGRAD = ("all_gather_into_tensor", "all_to_all_single", "reduce_scatter_tensor")
COLLECTIVES = frozenset(
    {f"_c10d_functional.{name}.default" for name in _NAMES}
    | {f"_c10d_functional_autograd.{name}.default" for name in _AUTOGRAD}
)
"""Those that a program may call when its caller gives the groups."""

GROUP = "group_name"
"""The argument that names the group; in a program, a symbolic name."""


def is_collective(op_type: str) -> bool:
    """Return whether an operator reaches other processes.

    Example:
        >>> [is_collective(f"{n}.default") for n in ("_c10d_functional.broadcast", "aten.abs")]
        [True, False]
    """
    return op_type.partition(".")[0] in NAMESPACES
