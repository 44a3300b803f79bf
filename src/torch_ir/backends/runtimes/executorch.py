"""ExecuTorch as a backend: XNNPACK takes what it can of a delegate, portable kernels the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import torch
from torch.export import ExportedProgram

from torch_ir.backends.known_options import Known
from torch_ir.backends.native.native_backend import NativeBackend, facts_of
from torch_ir.backends.protocol import Delegated, Support, TupleCalled
from torch_ir.ir import IR, OpNode
from torch_ir.lazy import optional_module
from torch_ir.quiet import quietly, silent_stderr

_NEEDED = "the backend 'executorch'"
_BINDINGS = "executorch.extension.pybindings.portable_lib"
_WHOLE = frozenset(
    ("linear", "conv1d", "conv2d", "max_pool2d", "hardtanh", "hardswish", "relu6", "batch_norm")
)
"""Operators that its own passes look for before they decompose."""


class ExecuTorch(NativeBackend):
    """Runs delegates on ExecuTorch. A delegate has one method, and its calls take turns.

    Options: ``xnnpack`` (True); without it all kernels are the portable ones.
    """

    name = "executorch"

    @cached_property
    def version(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # read only
        """The version of the installed package."""
        from importlib.metadata import version

        optional_module("executorch.exir", _NEEDED, "executorch")
        return version("executorch")

    @cached_property
    def _kernels(self) -> frozenset[str]:
        with quietly():
            library = optional_module(_BINDINGS, _NEEDED, "executorch")
        found = [name.partition("::") for name in library._get_operator_names()]
        return _WHOLE | {rest.split(".")[0] for space, _, rest in found if space == "aten"}

    def known_options(self) -> Known:
        """Return the options."""
        return {"xnnpack": bool}

    def supports(self, node: OpNode, ir: IR) -> Support:
        """Return whether some overload of the operator has a kernel, and what denies it."""
        namespace, packet = node.op_type.split(".")[:2]  # a call of functions has no overload
        has_kernel = packet in self._kernels or f"{packet}_copy" in self._kernels
        is_quantized = node.op_type in facts_of(self.name).inexact
        if not is_quantized and not (namespace == "aten" and has_kernel):
            return Support.refused(f"executorch has no kernel for {node.op_type}")
        if packet.startswith("conv") and len(node.inputs[0].shape) > 4:
            return Support.refused("executorch has no convolution of volumes")
        if packet == "batch_norm" and node.argument("training") is not False:
            return Support.refused("executorch has batch norm of inference alone")
        if any(0 in meta.shape for meta in (*node.inputs, *node.outputs)):
            return Support.refused("executorch ends the process at strides of empty tensors")
        dims = [node.attrs.get(name) for name in ("dim", "dims", "dimension")]
        if any(dim not in (None, ()) for dim in dims) and not all(m.shape for m in node.inputs):
            return Support.refused("executorch ends the process at dimensions of scalars")
        if any(ir.symbols[name].upper is None for name in node.symbols & ir.symbols.keys()):
            return Support.refused("executorch plans memory, and a size has no upper bound")
        return super().supports(node, ir)

    def build(self, program: ExportedProgram, options: Mapping[str, Any]) -> Delegated:
        """Lower a program and load it."""
        exir = optional_module("executorch.exir", _NEEDED, "executorch")
        partitioners: list[Any] = []
        with quietly():
            if options.get("xnnpack", True):
                place = "executorch.backends.xnnpack.partition.xnnpack_partitioner"
                xnnpack = optional_module(place, _NEEDED, "executorch")
                partitioners.append(xnnpack.XnnpackPartitioner())
            config = exir.EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True)
            edge = exir.to_edge_transform_and_lower(
                program, partitioner=partitioners, compile_config=config
            )
            return _Method(bytes(edge.to_executorch().buffer))

    def pack(self, built: Delegated) -> bytes | None:
        """Return the program's file."""
        return built.program if isinstance(built, _Method) else None

    def unpack(
        self, blob: bytes, program: ExportedProgram, options: Mapping[str, Any]
    ) -> Delegated:
        """Load a program's file."""
        return _Method(blob)


@cache
def _make_threads() -> None:
    """Let it make its threads, of which it writes to stderr, before a call does."""
    with quietly():
        library = optional_module(_BINDINGS, _NEEDED, "executorch")
    count = getattr(library, "_threadpool_get_thread_count", None)
    if count is not None:
        with silent_stderr():
            count()


class _Method(TupleCalled):
    """A loaded method: takes tensors and sizes, gives tensors of their own."""

    def __init__(self, program: bytes):
        _make_threads()
        runtime = optional_module("executorch.runtime", _NEEDED, "executorch").Runtime.get()
        self.program = program
        with quietly():
            method = runtime.load_program(program).load_method("forward")
        # below the method is what its ``execute`` calls
        self._execute: Callable[..., list[Any]] = getattr(method, "_method", method.execute)
        self.on_plain = self._execute  # what takes its results looks at them

    def on(self, given: tuple[Any, ...], /) -> Sequence[torch.Tensor]:
        made = self._execute(given)  # tensors are copied out of its memory
        for item in made:
            if item.__class__ is not torch.Tensor:
                return [torch.as_tensor(item) for item in made]
        return made


EXECUTORCH = ExecuTorch()
"""The backend."""
