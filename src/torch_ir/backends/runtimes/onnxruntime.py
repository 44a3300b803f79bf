"""ONNX Runtime as a backend: delegates become ONNX models, run by its CPU provider."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from torch.export import ExportedProgram

from torch_ir.backends.known_options import Known
from torch_ir.backends.native.native_backend import NativeBackend
from torch_ir.backends.protocol import Delegated
from torch_ir.backends.runtimes.onnx_model import onnx_bytes, onnx_operators
from torch_ir.backends.runtimes.onnx_session import InPlace, Session
from torch_ir.lazy import optional_module
from torch_ir.quiet import quietly, silent_stderr


class OnnxRuntime(NativeBackend):
    """Runs delegates on ONNX Runtime. Sessions are safe to call from several threads.

    Options: ``threads`` (those of torch by default), ``providers`` (``CPUExecutionProvider``), and
    ``graph_optimization_level``, a name such as ``"ORT_ENABLE_BASIC"``.
    """

    name = "onnxruntime"
    is_thread_safe = True
    in_place = frozenset(
        f"aten.{name}" for name in ("index_copy.default", "index_put.default", "scatter.src")
    )
    """Its kernels copy what they scatter to only where the result has other memory."""

    @cached_property
    def _runtime(self) -> Any:
        with silent_stderr():  # it writes there where it may not write to the home folder
            return optional_module("onnxruntime", "the backend 'onnxruntime'", "onnxruntime")

    @property
    def version(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # read only
        """The version of the installed package."""
        return self._runtime.__version__

    @cached_property
    def takes(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]  # read only
        """The operators that torch's exporter translates."""
        _ = self._runtime
        optional_module("onnxscript", "the backend 'onnxruntime'", "onnxruntime")
        with quietly():
            return onnx_operators()

    def known_options(self) -> Known:
        """Return the options, with the levels and providers of the installed package."""
        levels = [*self._runtime.GraphOptimizationLevel.__members__]
        return {
            "threads": int,
            "providers": frozenset(self._runtime.get_available_providers()),
            "graph_optimization_level": tuple(levels),
        }

    def operators(self) -> Collection[str]:
        """Return the operators for which torch's exporter has a translation."""
        return self.takes

    def build(self, program: ExportedProgram, options: Mapping[str, Any]) -> Delegated:
        """Convert a program to ONNX, and make a session of it."""
        model = onnx_bytes(program)
        return Session(self._runtime, model, options)

    def into(self, built: Delegated, places: Mapping[int, int]) -> Delegated:
        """Return a session that writes some results in the memory of arguments."""
        assert isinstance(built, Session)  # noqa: S101  # what build and unpack return
        return InPlace(built, places)

    def pack(self, built: Delegated) -> bytes | None:
        """Return the ONNX model."""
        return built.model if isinstance(built, Session) else None

    def unpack(
        self, blob: bytes, program: ExportedProgram, options: Mapping[str, Any]
    ) -> Delegated:
        """Make a session of an ONNX model."""
        return Session(self._runtime, blob, options)


ONNXRUNTIME = OnnxRuntime()
"""The backend."""
