"""Recorded shapes and dtypes against what the operators give, derived anew with fake tensors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product
from typing import Any, cast

import torch

from torch_ir.errors import ExecutionError, InvalidIRError, TorchIRError
from torch_ir.executor.operators import evaluate
from torch_ir.executor.program import Program
from torch_ir.executor.symbols import Symbols
from torch_ir.ir import IR, Dim, FunctionRef, OpNode, SymExpr, TensorMeta
from torch_ir.ir.check import Finding
from torch_ir.ir.tensor import type_text
from torch_ir.torch_api import NO_FAKE_RESULT, FakeTensorMode, enable_python_dispatcher


def check_types(ir: IR) -> tuple[Finding, ...]:
    """All nodes that torch refuses, or whose results have another shape or dtype than recorded.

    The program runs on fake tensors, which have no data, one per graph input and weight; symbols
    take a value from their range. A node whose results depend on data is believed. Findings have
    the codes ``unbindable-node``, ``refused-arguments``, ``wrong-type`` and ``impossible-shape``.

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
    symbols = _samples(ir)
    if symbols is None:
        return ()  # no sizes were found that the guards allow
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
    return tuple(checker.findings)


class _ImpossibleShapeError(TorchIRError):
    """No tensor can have the shape that is recorded."""


def _samples(ir: IR) -> Symbols | None:
    """A value for each symbol within its range, for which the guards hold."""
    symbols: Symbols = {
        name: _sample(bounds.lower, bounds.upper) for name, bounds in ir.symbols.items()
    }
    guarded = sorted({symbol for guard in ir.guards for symbol in guard.symbols})
    choices = [
        [symbols[name], *(size for size in SIZES if size in ir.symbols[name])] for name in guarded
    ]
    for values in islice(product(*choices), MAX_TRIES):
        tried = {**symbols, **dict(zip(guarded, values, strict=True))}
        if all(guard.evaluate(tried) for guard in ir.guards):
            return tried
    return None


SIZES = (8, 6, 4, 12, 16, 5, 9, 10, 3, 2, 32, 64, 1)
"""Sizes to try where guards ask for more than a range."""

MAX_TRIES = 20_000


def _sample(lower: int | None, upper: int | None) -> int:
    """A size in the range that is not likely to be equal to another by accident."""
    return max(lower or 0, 7) if upper is None or upper >= 7 else upper


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
                f"{meta} is no tensor: {reason}" + _at(meta.shape, self.symbols)
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
                    f"%{meta.name} is not what {node.op_type} gives",
                    node.name,
                    expected=type_text(TensorMeta("", tuple(made.shape), dtype)),
                    got=type_text(meta),
                    location=node.location,
                )
            )
            return recorded
        return made


def _at(shape: tuple[Dim, ...], symbols: Symbols) -> str:
    """With which values of its symbols a shape was tried."""
    names = {name for dim in shape if isinstance(dim, SymExpr) for name in dim.symbols}
    tried = ", ".join(f"{name} = {symbols[name]}" for name in sorted(names) if name in symbols)
    return f" (with {tried})" if tried else ""


def _sentence(error: TorchIRError) -> str:
    return (error.message.partition(": ")[2] or error.message).splitlines()[0]
