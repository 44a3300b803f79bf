"""The subject of a judgment: a backend by name or as a value, or a compiled runner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import torch

from torch_ir.backends.backend_registry import Backend, Options, Runner, find_backend
from torch_ir.backends.delegating import DelegatingExecutor
from torch_ir.backends.protocol import SUPPORTED, DelegateBackend, Delegated, Support
from torch_ir.errors import InvalidIRError
from torch_ir.executor import ExecGraph, IRExecutor
from torch_ir.ir import IR, OpNode

Judged: TypeAlias = "str | DelegateBackend | Sequence[str | DelegateBackend] | Runner"
Tensors: TypeAlias = Mapping[str, torch.Tensor]


class WholePrograms(DelegateBackend):
    """A backend that takes whole programs, as one that takes any part of one.

    Args:
        name: Its name.
        make: The backend.
    """

    def __init__(self, name: str, make: Backend):
        self.name = name
        self._make = make

    def supports(self, node: OpNode, ir: IR) -> Support:
        """Return that it does: it says so of no node before it compiles a program."""
        return SUPPORTED

    def compile(self, ir: IR, payload: Tensors) -> Delegated:
        """Compile a part as a program of its own."""
        run = self._make(ir, {}, Options())
        names = ir.input_names

        def call(*given: Any) -> Sequence[torch.Tensor]:
            rest = iter(given)
            taken = [payload[name] if name in payload else next(rest) for name in names]
            return run(*taken, *rest)

        return call


def judged_executor(
    ir: IR, weights: Tensors | None, constants: Tensors | None, judged: Judged | None
) -> DelegatingExecutor | None:
    """Return the program as backends run it; None if nothing is judged but torch.

    Args:
        ir: The program.
        weights: Tensors by ``state_dict`` key.
        constants: Values that are in no state dict.
        judged: Backends, or a runner that has some.

    Raises:
        ExecutionError: There is no such backend.
        InvalidIRError: It is neither a backend nor a runner that can be looked into.
    """
    if judged is None:
        return None
    if isinstance(judged, DelegatingExecutor):
        return judged
    if isinstance(judged, str | DelegateBackend):
        judged = (judged,)
    if not isinstance(judged, Iterable):
        raise _opaque("backend", judged, "a name, a DelegateBackend or several")
    backends = [_backend(item) for item in cast(Sequence[Any], judged)]
    return DelegatingExecutor(ir, weights, backends, constants)


def graph_of(graph: ExecGraph | Runner) -> ExecGraph:
    """Return the compiled graph of a runner, or the graph itself.

    Raises:
        InvalidIRError: The runner cannot be looked into.
    """
    if isinstance(graph, IRExecutor | DelegatingExecutor):
        return graph.graph
    if not isinstance(graph, ExecGraph):
        raise _opaque("graph", graph, "a compiled graph, an IRExecutor")
    return graph


def _backend(item: Any) -> DelegateBackend:
    found: Any = find_backend(item) if isinstance(item, str) else item
    if isinstance(found, type) and issubclass(found, DelegateBackend):
        found = found()
    if isinstance(found, DelegateBackend):
        return found
    if isinstance(item, str):
        return WholePrograms(item, found)
    raise _opaque("backend", item, "a name, a DelegateBackend or several")


def _opaque(option: str, got: object, known: str) -> InvalidIRError:
    return InvalidIRError(
        f"{option}= takes {known} or a runner of compile(backend=...), got {type(got).__name__}: "
        "its nodes cannot be seen",
        remedy="Register what makes it with torch_ir.backends.register_backend, and give its name "
        "as backend=.",
    )
