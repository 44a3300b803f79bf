"""The Edge dialect: core ATen by dtype, with explicit layout."""

from __future__ import annotations

from torch_ir.dialects.edge.edge_rules import (
    dtype_rows,
    layout_by_dim_order,
    layout_by_strides,
    lowered,
    no_number_for_tensor,
    no_number_results,
    no_numbers,
    one_dtype_in_lists,
    tensors_in_and_out,
)
from torch_ir.dialects.registry import Dialect
from torch_ir.dialects.rules import core, functional, known_operator, namespaces, results


def edge_dialect(*, dim_order: bool = True, strict: bool = False) -> Dialect:
    """Return the dialect Edge with its options.

    Args:
        dim_order: Whether layout is said by the order of dimensions (``dim_order_ops``), or by
            strides and memory formats as in ATen.
        strict: Whether numbers are forbidden everywhere: as arguments of operators that take
            them, in what the program takes, and in what it gives.
    """
    strict_rules = (no_numbers,) if strict else ()
    return Dialect(
        "edge",
        "core ATen whose operators know their dtypes, without hardware in mind",
        (
            namespaces("aten", "higher_order", "dim_order_ops", custom=True),
            known_operator,
            functional,
            core,
            results,
            no_number_for_tensor,
            no_number_results,
            dtype_rows,
            one_dtype_in_lists,
            layout_by_dim_order if dim_order else layout_by_strides,
            *strict_rules,
        ),
        (lowered, *((tensors_in_and_out,) if strict else ())),
    )


EDGE = edge_dialect()
