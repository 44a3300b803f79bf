"""Torch's own kernels, called by straight-line Python: bitwise as eager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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


class BodyOnTorch:
    """The body of a delegate as torch runs it.

    Args:
        body: The function.
        held: Those of its inputs that are the same in every call, by name.
    """

    def __init__(self, body: IR, held: Mapping[str, torch.Tensor]):
        self._inputs, self._held = body.input_names, held
        self._taken = [name for name in body.input_names if name not in held]
        self._executor = IRExecutor(body, {}, check_types=False)

    def __call__(self, given: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """Run it on what a delegate is given: the other inputs, then sizes."""
        count = len(self._taken)
        known = {**self._held, **dict(zip(self._taken, given[:count], strict=True))}
        return self._executor(*[known[name] for name in self._inputs], *given[count:])
