"""Recorded shapes and dtypes against what the operators give, derived anew without data."""

from __future__ import annotations

import torch

from torch_ir.executor.check.compile import find_faults
from torch_ir.ir import IR
from torch_ir.ir.diagnostics import Diagnostic


def check_types(ir: IR) -> tuple[Diagnostic, ...]:
    """Find all nodes that torch refuses, or whose results are not as recorded.

    The operators run on tensors without data, inside functions too. Symbols take values from
    their ranges, and a second time others where the ranges and guards allow it: a size that is
    equal by accident is told from one that has to be. A result that depends on data is believed.
    Findings have the codes of :func:`torch_ir.executor.compile_graph`: ``refused-arguments``,
    ``wrong-type``, ``impossible-shape``, and those for calls that cannot be made at all.

    Example:
        >>> from torch_ir.ir import OpNode, TensorMeta
        >>> x, y = TensorMeta("x", (2, 3), "float32"), TensorMeta("y", (2, 3), "float32", "y")
        >>> node = OpNode("y", "aten.sum.dim_IntList", [x], [y], {"dim": [1]})
        >>> print(*check_types(IR([node], [x], [y], [])))  # doctest: +NORMALIZE_WHITESPACE
        [wrong-type] node 'y': %y is not what aten.sum.dim_IntList gives (expected f32[2], got
        f32[2, 3])
    """
    return find_faults(ir, torch.device("cpu"))
