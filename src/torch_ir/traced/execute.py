"""Running a graph that somebody else traced, or an IR, on an executor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.fx import GraphModule

from torch_ir.backends import compile as compile_ir
from torch_ir.errors import InputError
from torch_ir.ir import IR
from torch_ir.traced.function import make_traced
from torch_ir.traced.runners import executors_of, require_parameters


def execute(
    graph: GraphModule | IR,
    *args: Any,
    executor: str | None = "aten",
    executor_parameters: Mapping[str, Any] | None = None,
) -> Any:
    """Run a graph on its arguments.

    Args:
        graph: A graph module, such as ``make_fx`` gives, or an IR without weights.
        args: What it takes.
        executor: What runs it.
        executor_parameters: Parameters of the executor; ours take none.

    Raises:
        InputError: There is no such executor, it takes no such parameter, or the graph is none.

    Example:
        >>> import torch
        >>> from torch.fx.experimental.proxy_tensor import make_fx
        >>> x = torch.ones(2)
        >>> execute(make_fx(torch.neg)(x), x)
        tensor([-1., -1.])
    """
    names = executors_of(executor)
    require_parameters(names, executor_parameters)
    if isinstance(graph, IR):
        return compile_ir(graph, {}, backend=names[0])(*args)
    if not isinstance(graph, GraphModule):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
        raise InputError(
            f"what is executed is a graph module or an IR, got {type(graph).__name__}"
        )
    return make_traced(graph, executor=names, cache=1)(*args)
