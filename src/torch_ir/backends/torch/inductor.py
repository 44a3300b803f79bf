"""torch's inductor as a backend: whole subgraphs become C++ or Triton, not bitwise as eager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram

from torch_ir.backends.assignment import assign, left_over
from torch_ir.backends.backend_registry import Options, Runner
from torch_ir.backends.known_options import Known, Taken, require_options
from torch_ir.backends.native.native_backend import NativeBackend
from torch_ir.backends.protocol import Delegated, Support
from torch_ir.backends.torch.compiled_later import CompiledLater, require_compiler
from torch_ir.backends.torch.graph_module import uncallable
from torch_ir.infer.preconditions.table import asks_for_values
from torch_ir.infer.resolve import require_allowed
from torch_ir.ir import IR, OpNode
from torch_ir.passes.functionalization import functional_form

_NAMESPACES = ("aten", "prims")
_WRITTEN_OUT = frozenset(
    f"aten.{name}"
    for name in (
        *("_softmax_backward_data.default", "_log_softmax_backward_data.default"),
        *("smooth_l1_loss_backward.default", "div.Scalar_mode", "div.Tensor_mode"),
        *("grid_sampler.default", "grid_sampler_2d.default"),
    )
)
"""Operators that it writes as arithmetic: their own kernels, or gradients, ask for values."""

_FROZEN = {"freezing": True}
"""Weights never change, so that it may pack them once, and compute what follows from them."""


@dataclass(frozen=True)
class Inductor(NativeBackend):
    """Compiles subgraphs with inductor.

    It fuses and reorders arithmetic, so that results differ from eager's in their last bits. It
    needs a C++ compiler where tensors are on the CPU.

    Args:
        options: Inductor's own configuration for these subgraphs, such as
            ``{"max_autotune": True}``. ``freezing`` is on.

    Raises:
        ExecutionError: Inductor has no such option, or takes no such value.
    """

    options: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    name = "inductor"  # pyright: ignore[reportUnannotatedClassAttribute]  # no field: it is of the class
    version = torch.__version__  # pyright: ignore[reportUnannotatedClassAttribute]  # likewise
    is_thread_safe = True  # pyright: ignore[reportUnannotatedClassAttribute]  # likewise

    def __post_init__(self) -> None:
        if self.options:
            given = {name.replace("-", "_"): value for name, value in self.options.items()}
            require_options(self.name, given, _configuration())

    def known_options(self) -> Known:
        """Return inductor's options, and ``fallback``: let torch run the rest."""
        return {"fallback": bool, **_configuration()}

    def supports(self, node: OpNode, ir: IR) -> Support:
        """Return whether the node is an operator of torch's own, of real numbers."""
        if (reason := uncallable(node)) is not None:
            return Support.refused(reason)
        if node.op_type.partition(".")[0] not in _NAMESPACES:
            return Support.refused("it is an operator of a library")
        if asks_for_values(node.op_type) and node.op_type not in _WRITTEN_OUT:
            return Support.refused("its kernel trusts its caller, and inductor does not look")
        return super().supports(node, ir)

    def build(self, program: ExportedProgram, options: Mapping[str, Any]) -> Delegated:
        """Compile a program by inductor when it is first called.

        Raises:
            OptionalDependencyError: There is no C++ compiler.
        """
        if all(tensor.device.type == "cpu" for tensor in program.state_dict.values()):
            require_compiler()
        chosen = {key: value for key, value in options.items() if key != "fallback"}
        return CompiledLater(program, {**_FROZEN, **self.options, **chosen})

    def __call__(
        self, ir: IR, weights: Mapping[str, torch.Tensor] | None, options: Options
    ) -> Runner:
        """The program with what inductor takes and gets right, and the rest on torch.

        Raises:
            CompileError: It has nodes that a program may not call; or, without fallback, that
                inductor does not take. All are listed.
            ExecutionError: Gradients are asked for.
        """
        require_allowed(ir)
        if options.settings.get("fallback", True) is False:
            self.require_no_grad(options)
            found = assign(functional_form(ir), [self])
            if found.left:
                raise left_over(found, [self.name], "Use the backend 'aten'.")
        return super().__call__(ir, weights, options)


def _configuration() -> dict[str, Taken]:
    """Inductor's own options: those of a plain type take values of it, as torch asks."""
    from torch._inductor import config

    kinds = {name: type(value) for name, value in config.get_config_copy().items()}
    return {name: kind if kind in (bool, str) else None for name, kind in kinds.items()}


INDUCTOR = Inductor()
"""The backend without options."""
