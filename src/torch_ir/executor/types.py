"""Recorded shapes and dtypes against what the operators give, derived anew with fake tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from torch_ir.errors import ExecutionError, InvalidIRError, TorchIRError
from torch_ir.executor.operators import evaluate
from torch_ir.executor.program import Program
from torch_ir.executor.samples import samplings
from torch_ir.executor.symbols import Symbols
from torch_ir.ir import IR, FunctionRef, OpNode, SymExpr, TensorMeta
from torch_ir.ir.check import Finding
from torch_ir.ir.tensor import type_text
from torch_ir.torch_api import NO_FAKE_RESULT, FakeTensorMode, enable_python_dispatcher


def check_types(ir: IR) -> tuple[Finding, ...]:
    """All nodes that torch refuses, or whose results have another shape or dtype than recorded.

    The program runs on fake tensors, which have no data, one per graph input and weight. Symbols
    take values from their ranges, and a second time others where the ranges and guards allow it:
    a size that is equal by accident is told from one that has to be. A node whose results depend
    on data is believed. Findings have the codes ``unbindable-node``, ``refused-arguments``,
    ``wrong-type`` and ``impossible-shape``.

    Example:
        >>> x, y = TensorMeta("x", (2, 3), "float32"), TensorMeta("y", (2, 3), "float32", "y")
        >>> node = OpNode("y", "aten.sum.dim_IntList", [x], [y], {"dim": [1]})
        >>> print(*check_types(IR([node], [x], [y], [])))  # doctest: +NORMALIZE_WHITESPACE
        [wrong-type] node 'y': %y is not what aten.sum.dim_IntList gives (expected f32[2], got
        f32[2, 3])
    """
    try:
        program = Program(ir, torch.device("cpu"))
    except ExecutionError as error:
        return (Finding("unbindable-node", error.message),)
    findings: dict[tuple[str, str | None], Finding] = {}
    for symbols in samplings(ir):
        for finding in _findings(ir, program, symbols):
            findings.setdefault((finding.code, finding.node), finding)
    return tuple(findings.values())


def _findings(ir: IR, program: Program, symbols: Symbols) -> list[Finding]:
    """What is found when each symbol has the given value."""
    metas = {meta.name: meta for meta in ir.graph_inputs}
    for name, (_, value) in ir.external_values().items():
        metas[name] = TensorMeta(name, value.shape, value.dtype)
    checker = _Checker(symbols)
    # with torch's Python implementations, as torch.export traces: some kernels would read the data
    checker.mode = FakeTensorMode(allow_non_fake_inputs=True)
    with checker.mode, enable_python_dispatcher(), torch.no_grad():
        try:
            values = {name: checker.fake(meta) for name, meta in metas.items()}
            program.run_each(values, symbols, checker)
        except _ImpossibleShapeError as error:  # nothing can be said of what comes after
            checker.findings.append(Finding("impossible-shape", error.message))
    return checker.findings


class _ImpossibleShapeError(TorchIRError):
    """No tensor can have the shape that is recorded."""


class _Checker:
    """Runs each step on fake tensors and compares the results with what is recorded."""

    def __init__(self, symbols: Symbols):
        self.symbols = symbols
        self.findings: list[Finding] = []
        self.mode: Any = None

    def fake(self, meta: TensorMeta) -> torch.Tensor:
        try:
            shape = [int(evaluate(dim, self.symbols)) for dim in meta.shape]
            return torch.empty(shape, dtype=getattr(torch, meta.dtype))
        except (InvalidIRError, RuntimeError, TypeError) as error:  # negative, or beyond 64 bits
            reason = str(error).splitlines()[0]
            raise _ImpossibleShapeError(
                f"{meta} is no tensor: {reason}" + _at([meta], self.symbols)
            ) from None

    def __call__(self, node: OpNode, run: Any) -> Sequence[torch.Tensor]:
        """The outputs of a node, as the operator gives them or as recorded where it cannot say."""
        if any(isinstance(value, FunctionRef) for value in node.attrs.values()):
            return [self.fake(meta) for meta in node.outputs]
        try:
            outputs = run()
        except (ExecutionError, InvalidIRError) as error:
            if not isinstance(error.__cause__, NO_FAKE_RESULT):
                self.findings.append(
                    Finding(
                        "refused-arguments", _sentence(error), node.name, location=node.location
                    )
                )
            return [self.fake(meta) for meta in node.outputs]
        return [
            self._compared(node, meta, out)
            for meta, out in zip(node.outputs, outputs, strict=True)
        ]

    def _compared(self, node: OpNode, meta: TensorMeta, made: torch.Tensor) -> torch.Tensor:
        recorded = self.fake(meta)
        if any(isinstance(size, torch.SymInt) for size in cast(tuple[Any, ...], made.shape)):
            return recorded  # the size depends on data
        if made.shape != recorded.shape or made.dtype != recorded.dtype:
            dtype = str(made.dtype).removeprefix("torch.")
            self.findings.append(
                Finding(
                    "wrong-type",
                    f"%{meta.name} is not what {node.op_type} gives"
                    + _at([*node.inputs, meta], self.symbols),
                    node.name,
                    expected=type_text(TensorMeta("", tuple(made.shape), dtype)),
                    got=type_text(meta),
                    location=node.location,
                )
            )
            return recorded
        return made


def _at(metas: Sequence[TensorMeta], symbols: Symbols) -> str:
    """With which values of their symbols shapes were tried."""
    dims = [dim for meta in metas for dim in meta.shape if isinstance(dim, SymExpr)]
    names = {name for dim in dims for name in dim.symbols}
    tried = ", ".join(f"{name} = {symbols[name]}" for name in sorted(names) if name in symbols)
    return f" (with {tried})" if tried else ""


def _sentence(error: TorchIRError) -> str:
    return (error.message.partition(": ")[2] or error.message).splitlines()[0]
