"""Programs as ONNX models, by torch's own exporter."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram

from torch_ir.backends.native.native_backend import facts_of
from torch_ir.backends.native.preparation import prepared
from torch_ir.backends.protocol import SUPPORTED, DelegateBackend, Delegated, Support
from torch_ir.backends.runtimes.onnx_quantized import add_translations
from torch_ir.backends.runtimes.onnx_rows import add_rows
from torch_ir.backends.runtimes.rewrites import plain_attention, plain_limits, plain_writes
from torch_ir.errors import BackendError, first_line, raised_as
from torch_ir.ir import IR, OpNode
from torch_ir.ir.builder import with_state_as_arguments
from torch_ir.ir.queries import external_keys
from torch_ir.lazy import optional_module
from torch_ir.quiet import quietly
from torch_ir.torch_api import onnx_model, onnx_registry, overload_name


def plain_for_onnx(ir: IR) -> tuple[IR, tuple[str, ...]]:
    """Return a program that ONNX can say, and what a reader of the model has to know.

    An ONNX model has no structures and no state: what the program writes is among the arguments
    and results. Operators that torch's exporter is known to translate into others are split up
    where their parts are translated rightly.

    Args:
        ir: A program; its weights may be arguments already.

    Returns:
        The program, and a sentence for each thing that is not as in the program that was given.
    """
    program = prepared(ir, (_Exporter(),))
    if program.signature is not None:
        program = program.replace(signature=program.signature.flat())
    notes: list[str] = []
    if program.mutations:
        keys = external_keys(program)
        targets = [keys.get(m.target, m.target) for m in program.mutations]
        notes.append(
            "a model of ONNX has no state: what the program writes is among the inputs, and its "
            f"new values are the last outputs: {', '.join(targets)}"
        )
    facts = facts_of(_Exporter.name)
    for node in program.nodes:
        reason = facts.denied.get(node.op_type) or facts.reason_for(node)
        if reason and node.op_type in onnx_operators():
            notes.append(f"the model is off at {node.name!r}, {node.op_type}: {reason}")
    return with_state_as_arguments(program), tuple(notes)


class _Exporter(DelegateBackend):
    """torch's exporter, which takes all but what it is known to get wrong."""

    name = "onnxruntime"

    def supports(self, node: OpNode, ir: IR) -> Support:
        reason = facts_of(self.name).denied.get(node.op_type)
        return Support.refused(reason) if reason else SUPPORTED

    def compile(self, ir: IR, payload: Mapping[str, torch.Tensor]) -> Delegated:
        raise NotImplementedError


def onnx_bytes(exported: ExportedProgram) -> bytes:
    """Convert a program to the bytes of an ONNX model, with its weights inside.

    Raises:
        OptionalDependencyError: A package that torch's exporter needs is not installed.
        BackendError: The exporter refuses the program, or it is larger than one file may be.
    """
    for package in ("onnx", "onnxscript"):
        optional_module(package, "ONNX", "onnxruntime")
    refused = raised_as(
        lambda error: BackendError(
            f"torch.onnx.export refuses the program: {_why(error):.300}", remedy=_remedy(error)
        )
    )
    with refused, quietly(), _exact_rules():
        plain = plain_limits(plain_writes(plain_attention(exported, is_grouped=True)))
        return onnx_model(plain, _registry()).SerializeToString()


@lru_cache(maxsize=1)
def _registry() -> Any:
    """What is translated, and how."""
    made = onnx_registry()
    add_translations(made)
    add_rows(made)
    return made


@lru_cache(maxsize=1)
def onnx_operators() -> frozenset[str]:
    """Return the operators that are translated to ONNX, by overload; it needs onnxscript."""
    return frozenset(map(overload_name, map(str, _registry().functions)))


_RULES = threading.Lock()


@contextmanager
def _exact_rules() -> Generator[None]:
    """Leave out the rules of onnxscript that take 1e-8 for zero and 1.00001 for one."""
    rewriter: Any = import_module("onnxscript.rewriter")
    inexact = set(map(id, import_module("onnxscript.rewriter.rules.common._no_op").rules))
    with _RULES:
        rules = rewriter._DEFAULT_REWRITE_RULES
        rewriter._DEFAULT_REWRITE_RULES = tuple([r for r in rules if id(r) not in inexact])
        try:
            yield
        finally:
            rewriter._DEFAULT_REWRITE_RULES = rules


def _why(error: Exception) -> str:
    """The innermost cause, which names the operator."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return first_line(cause)


def _remedy(error: Exception) -> str | None:
    """What becomes of an operator that ONNX has not, if the error is that it has one not."""
    if not _why(error).startswith("No ONNX function found"):
        return None
    return (
        "Give decompose(table=) what the operator is made of, and convert the program it returns."
    )


def array_of(item: Any) -> Any:
    """Return a tensor's memory, or a number, as runtimes take it."""
    if not isinstance(item, torch.Tensor):
        return np.asarray(item, dtype=np.float32 if type(item) is float else np.int64)
    return item.detach().numpy() if item.requires_grad else item.numpy()
