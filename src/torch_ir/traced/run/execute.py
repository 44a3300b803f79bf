"""Runs of a graph that others traced, or of an IR, on an executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch.fx import GraphModule

from torch_ir.arguments import public
from torch_ir.backends import Options
from torch_ir.backends import compile as compile_ir
from torch_ir.backends.assignment import assign, left_over
from torch_ir.backends.native.native_executor import executor_of
from torch_ir.backends.protocol import DelegateBackend
from torch_ir.errors import InputError
from torch_ir.ir import IR
from torch_ir.passes.functionalization import functional_form
from torch_ir.traced.function import make_traced
from torch_ir.traced.run.executors import Executor, executors_of


@public
def execute(
    graph: GraphModule | IR,
    *args: Any,
    executor: str | DelegateBackend | Sequence[str | DelegateBackend] | None = "aten",
    executor_parameters: Mapping[str, Any] | None = None,
    strict: bool = False,
) -> Any:
    """Run a graph on its arguments.

    Args:
        graph: A graph module, such as ``make_fx`` gives, or an IR without weights.
        args: What it takes.
        executor: What runs it, or several in order of preference: as for :func:`make_traced`.
        executor_parameters: Parameters of the executor: inductor's own options.
        strict: That the first executor takes all of it.

    Raises:
        InputError: There is no such executor, it takes no such parameter, or the graph is none.
        CompileError: Nodes are left that no executor takes; all are listed.

    Example:
        >>> import torch
        >>> from torch.fx.experimental.proxy_tensor import make_fx
        >>> x = torch.ones(2)
        >>> execute(make_fx(torch.neg)(x), x)
        tensor([-1., -1.])
    """
    executors = executors_of(executor, executor_parameters)
    if isinstance(graph, IR):
        return _execute_ir(graph, executors, args, strict=strict)
    if not isinstance(graph, GraphModule):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
        raise InputError(
            f"what is executed is a graph module or an IR, got {type(graph).__name__}"
        )
    traced = make_traced(graph, executor=executor, strict=strict, cache=1)
    return traced(*args, executor_parameters=executor_parameters)


def _execute_ir(
    ir: IR, executors: Sequence[Executor], args: tuple[Any, ...], *, strict: bool
) -> Any:
    """Run an IR: the first executor takes it whole, or those that take parts share it."""
    first = executors[0]
    if first.is_torch:
        return compile_ir(ir, {})(*args)
    if not isinstance(first.backend, DelegateBackend) and (len(executors) == 1 or strict):
        return cast(Any, first.backend)(ir, {}, Options())(*args)
    program = functional_form(ir)
    until = next((i for i, e in enumerate(executors) if e.is_torch), len(executors))
    taking = executors[: 1 if strict else until]
    parts = [executor.parts for executor in taking if executor.parts is not None]
    found = assign(program, parts)
    if found.left and (strict or until == len(executors)):
        raise left_over(found, [backend.name for backend in parts])
    return executor_of(program, {}, parts)(*args)
