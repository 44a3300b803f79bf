"""Choices that operators leave to kernels: what is in memory, which elements, in which order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VALUES_OPEN = frozenset(
    f"aten.{name}"
    for name in (
        "_make_dep_token.default",
        "empty.memory_format",
        "empty_like.default",
        "empty_permuted.default",
        "empty_strided.default",
        "new_empty.default",
        "new_empty_strided.default",
        "resize_.default",
        "resize_as.default",
        "resize_as_.default",
    )
) | {"dim_order_ops._empty_dim_order.default"}
"""Operators whose values are whatever is in memory; only type and shape are defined."""

ZEROED = {
    "aten.empty.memory_format": "aten.zeros.default",
    "aten.empty_like.default": "aten.zeros_like.default",
    "aten.new_empty.default": "aten.new_zeros.default",
}
"""Operators of the same arguments, apart from the first's memory format, that give zeros."""

TIES_OPEN = frozenset(
    f"aten.{name}"
    for name in (
        "argsort.default",
        "kthvalue.default",
        "median.dim",
        "mode.default",
        "nanmedian.dim",
        "sort.default",
        "topk.default",
    )
)
"""Operators whose last result, indices, may name any of several equal elements."""

STABLE = frozenset(f"aten.{name}.stable" for name in ("argsort", "sort"))
"""Those of which the argument ``stable`` says whether it is the first of the equal elements."""

NEARLY_OPEN = frozenset(
    f"aten.{name}" for name in ("argmax.default", "argmin.default", "max.dim", "min.dim")
)
"""Those that name the first of several equal elements, of numbers that are exact."""

_PUTTING = frozenset(
    f"aten.{name}"
    for name in (
        "_index_put_impl.default",
        "_unsafe_index_put.default",
        "as_strided_scatter.default",
        "index_copy.default",
        "index_put.default",
        "max_unpool2d.default",
        "max_unpool3d.default",
        "put.default",
        "scatter.src",
    )
)
"""Operators that put values at places, of which several may be one: any of its values may stay."""


def leaves_writes_open(op_type: str, attributes: Mapping[str, Any]) -> bool:
    """Return whether a call may put several values at one place, where any of them may stay.

    Example:
        >>> [leaves_writes_open("aten.put.default", {"accumulate": way}) for way in (True, False)]
        [False, True]
    """
    return op_type in _PUTTING and not attributes.get("accumulate")


def leaves_ties_open(op_type: str, attributes: Mapping[str, Any]) -> bool:
    """Return whether the last result of a call may name any of several equal elements.

    Example:
        >>> [leaves_ties_open("aten.sort.stable", {"stable": way}) for way in (True, False)]
        [False, True]
    """
    return op_type in TIES_OPEN or (op_type in STABLE and not attributes.get("stable"))


def leaves_order_open(op_type: str, attributes: Mapping[str, Any]) -> bool:
    """Return whether the elements that a call chooses may come in any order.

    Example:
        >>> [leaves_order_open("aten.topk.default", {"k": 2, "sorted": w}) for w in (True, False)]
        [False, True]
    """
    return op_type == "aten.topk.default" and not attributes.get("sorted", True)


def leaves_choice(op_type: str, attributes: Mapping[str, Any]) -> bool:
    """Return whether which elements a call names, or their order, is left to kernels.

    Example:
        >>> [leaves_choice("aten.sort.stable", {"stable": way}) for way in (True, False)]
        [False, True]
    """
    return leaves_ties_open(op_type, attributes) or leaves_order_open(op_type, attributes)
