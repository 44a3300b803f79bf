"""torch's inductor as a backend: whole subgraphs become C++ or Triton, not bitwise as eager."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_ir.backends.assignment import assign, left_over
from torch_ir.backends.backend_registry import Options, Runner
from torch_ir.backends.delegating import DelegatingExecutor
from torch_ir.backends.protocol import SUPPORTED, DelegateBackend, Delegated, Support
from torch_ir.backends.torch.graph_module import graph_module, unsuitable
from torch_ir.errors import (
    BackendError,
    ExecutionError,
    InputError,
    OptionalDependencyError,
    did_you_mean,
    first_line,
    raised_as,
)
from torch_ir.infer.resolve import require_allowed
from torch_ir.ir import IR, OpNode
from torch_ir.passes.functionalization import without_writes
from torch_ir.passes.requirements import is_functional

_NAMESPACES = ("aten", "prims")


@dataclass(frozen=True)
class Inductor(DelegateBackend):
    """Compiles subgraphs with inductor.

    It fuses and reorders arithmetic, so that results differ from eager's in their last bits. It
    needs a C++ compiler where tensors are on the CPU.

    Args:
        options: Inductor's own configuration for these subgraphs, such as
            ``{"max_autotune": True}``.

    Raises:
        InputError: Inductor has no such option.
    """

    options: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    name = "inductor"  # pyright: ignore[reportUnannotatedClassAttribute]  # no field: it is of the class

    def __post_init__(self) -> None:
        if not self.options:
            return
        from torch._inductor import list_options

        known = list_options()
        for option in self.options:
            if option.replace("-", "_") not in known:
                raise InputError(
                    f"inductor has no option {option!r:.60}",
                    remedy=did_you_mean(str(option), known)
                    or "torch._inductor.list_options() lists them.",
                )

    def supports(self, node: OpNode, ir: IR) -> Support:
        """Return whether the node is an operator of torch's own, of static shapes."""
        if (reason := unsuitable(node)) is not None:
            return Support.refused(reason)
        if node.op_type.partition(".")[0] not in _NAMESPACES:
            return Support.refused("it is an operator of a library")
        return SUPPORTED

    def compile(self, ir: IR, payload: Mapping[str, torch.Tensor]) -> Delegated:
        """Compile the subgraph by inductor when it is first called.

        Raises:
            OptionalDependencyError: There is no C++ compiler.
        """
        if all(tensor.device.type == "cpu" for tensor in payload.values()):
            _require_compiler()
        return _Lazy(graph_module(ir, payload), self.options)

    def __call__(
        self, ir: IR, weights: Mapping[str, torch.Tensor] | None, options: Options
    ) -> Runner:
        """The whole program on inductor.

        Raises:
            CompileError: It has nodes that inductor does not take, or that a program may not
                call; all are listed.
            ExecutionError: Gradients are asked for.
        """
        require_allowed(ir)
        if options.grad:
            raise ExecutionError(
                "the backend 'inductor' has no gradients", remedy="Use the backend 'aten'."
            )
        program = ir if is_functional(ir) else without_writes(ir)
        found = assign(program, [self])
        if found.left:
            raise left_over(found, [self.name], "Use the backend 'aten'.")
        return DelegatingExecutor(program, weights, self)


class _Lazy:
    """A graph that is compiled for the tensors of its first call, and for each other device."""

    def __init__(self, module: torch.fx.GraphModule, options: Mapping[str, Any]):
        self._module = module
        self._options = dict(options)
        self._compiled: dict[torch.device | None, Callable[..., Any]] = {}
        self._turn = threading.Lock()

    def __call__(self, *given: torch.Tensor) -> Sequence[torch.Tensor]:
        tensors = [tensor.detach().contiguous() for tensor in given]
        device = tensors[0].device if tensors else None
        run = self._compiled.get(device)
        if run is None:
            with self._turn:
                run = self._compiled[device] = self._compile(tensors)
        return run(*tensors)

    def _compile(self, tensors: list[torch.Tensor]) -> Callable[..., Any]:
        from torch._inductor import compile as compile_module

        failed = raised_as(
            lambda error: BackendError(
                f"inductor fails to compile a subgraph: {first_line(error):.200}",
                remedy="Use the executor 'aten', or report it to torch.",
            )
        )
        with failed, torch.no_grad():
            given: list[Any] = list(tensors)
            made: Any = compile_module(self._module, given, options=self._options)
            return made


def _require_compiler() -> None:
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


INDUCTOR = Inductor()
"""The backend without options."""
