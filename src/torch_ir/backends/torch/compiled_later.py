"""Subgraphs that inductor compiles when they are first called."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from torch_ir.backends.native.attempts import shared_places
from torch_ir.errors import BackendError, OptionalDependencyError, first_line, raised_as


class CompiledLater:
    """A program that is compiled for the tensors of its first call, and for each other device."""

    def __init__(self, program: ExportedProgram, options: Mapping[str, Any]):
        self._program = program
        self._options = dict(options)
        self._compiled: dict[torch.device | None, Callable[..., Any]] = {}
        self._turn = threading.Lock()

    def __call__(self, *given: Any) -> Sequence[torch.Tensor]:
        """Run on some arguments, and compile before where no call had tensors on their device."""
        tensors = [item.detach() if isinstance(item, torch.Tensor) else item for item in given]
        device = next((item.device for item in tensors if isinstance(item, torch.Tensor)), None)
        run = self._compiled.get(device)
        if run is None:
            with self._turn:
                run = self._compiled[device] = self._compile(tensors)
        return run(*tensors)

    def _compile(self, given: list[Any]) -> Callable[..., Any]:
        from torch._inductor import compile as compile_module

        module: Any = self._program.module(check_guards=False)
        nodes = module.graph.find_nodes(op="placeholder")
        values = [node.meta["val"] for node in nodes]
        sizes = [value.shape for value in values if isinstance(value, torch.Tensor)]
        is_static = all(type(size) is int for shape in sizes for size in shape)
        if is_static and len(sizes) == len(values):
            values = given  # which have a device
        failed = raised_as(
            lambda error: BackendError(
                f"inductor fails to compile a subgraph: {first_line(error):.200}",
                remedy="Use the executor 'aten', or report it to torch.",
            )
        )
        with failed, torch.no_grad():
            made: Any = compile_module(module, values, options=self._options)
        return _with_own_results(made, given)


def _with_own_results(made: Callable[..., Any], given: Sequence[Any]) -> Callable[..., Any]:
    """Return a compiled function that gives no memory of its own: constants are results too.

    Args:
        made: The function.
        given: Arguments of a call: what has the same memory in two calls is its own.
    """
    first, second = made(*given), made(*given)
    resident = {
        place
        for place, result in enumerate(second)
        if shared_places(first, [result]) and not shared_places(given, [result])
    }
    if not resident:
        return made

    def call(*given: Any) -> Sequence[torch.Tensor]:
        return [r.clone() if i in resident else r for i, r in enumerate(made(*given))]

    return call


def require_compiler() -> None:
    """Refuse to go on where there is no C++ compiler."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise OptionalDependencyError(
            "inductor needs a C++ compiler, and there is none",
            remedy="Install one (such as g++), name it in the variable CXX, or use another "
            "executor.",
        ) from error
