"""Functional collectives: operators through which the processes of a group exchange tensors."""

from __future__ import annotations

NAMESPACES = frozenset({"_c10d_functional", "_c10d_functional_autograd", "c10d_functional"})
"""Where torch has its functional collectives."""

_SIGNATURES = (
    "all_gather_into_tensor(Tensor input, int group_size, str group_name) -> Tensor",
    "all_gather_into_tensor_coalesced(Tensor[] inputs, int group_size, "
    "str group_name) -> Tensor[]",
    "all_reduce(Tensor input, str reduce_op, str group_name) -> Tensor",
    "all_reduce_(Tensor(a!) input, str reduce_op, str group_name) -> Tensor(a!)",
    "all_reduce_coalesced(Tensor[] inputs, str reduce_op, str group_name) -> Tensor[]",
    "all_to_all_single(Tensor input, SymInt[] output_split_sizes, SymInt[] input_split_sizes, "
    "str group_name) -> Tensor",
    "broadcast(Tensor input, int src, str group_name) -> Tensor",
    "reduce_scatter_tensor(Tensor input, str reduce_op, int group_size, str group_name) -> Tensor",
    "reduce_scatter_tensor_coalesced(Tensor[] inputs, str reduce_op, int group_size, "
    "str group_name) -> Tensor[]",
    "wait_tensor(Tensor tensor) -> Tensor",
    "wait_tensors(Tensor[] tensors) -> Tensor[]",  # from torch 2.15 on, after those of lists
)
_AUTOGRAD = ("all_gather_into_tensor", "all_to_all_single", "reduce_scatter_tensor")


def _schemas() -> dict[str, str]:
    found: dict[str, str] = {}
    for signature in _SIGNATURES:
        name, _, arguments = signature.partition("(")
        found[f"_c10d_functional.{name}.default"] = f"_c10d_functional::{name}({arguments}"
        if name in _AUTOGRAD:
            own = "_c10d_functional_autograd"
            found[f"{own}.{name}.default"] = f"{own}::{name}({arguments}"
    return found


COLLECTIVE_SCHEMAS = _schemas()
"""The schema of each collective, with the name of a group where torch may take the group too."""
COLLECTIVES = frozenset(COLLECTIVE_SCHEMAS)
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
