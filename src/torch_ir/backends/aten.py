"""Torch's own kernels, called by straight-line Python: bitwise as eager."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch_ir.backends.backend_registry import Options
from torch_ir.executor import IRExecutor
from torch_ir.ir import IR


def compile_aten(
    ir: IR, weights: Mapping[str, torch.Tensor] | None, options: Options
) -> IRExecutor:
    """Return an executor with a compiled graph, its ``graph``.

    Raises:
        CompileError: The program cannot be compiled.
        MissingWeightsError: It has weights and none were given.
        WeightLoadError: They are not those that it needs.
    """
    executor = IRExecutor(ir, weights, grad=options.grad, placement=options.placement)
    _ = executor.graph
    return executor
