"""ONNX Runtime as a backend: delegates become ONNX models, run by its CPU provider."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch.export import ExportedProgram

from torch_ir.backends.native.native_backend import NativeBackend
from torch_ir.backends.protocol import Delegated
from torch_ir.backends.runtimes.onnx_model import array_of, onnx_bytes, onnx_operators
from torch_ir.lazy import optional_module
from torch_ir.quiet import quietly

_OPTIONS = frozenset(("threads", "providers", "graph_optimization_level"))


class OnnxRuntime(NativeBackend):
    """Runs delegates on ONNX Runtime. Sessions are safe to call from several threads.

    Options: ``threads`` (those of torch by default), ``providers`` (``CPUExecutionProvider``), and
    ``graph_optimization_level``, a name such as ``"ORT_ENABLE_BASIC"``.
    """

    name = "onnxruntime"
    is_thread_safe = True

    @cached_property
    def _runtime(self) -> Any:
        return optional_module("onnxruntime", "the backend 'onnxruntime'", "onnxruntime")

    @property
    def version(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # read only
        """The version of the installed package."""
        return self._runtime.__version__

    @cached_property
    def takes(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]  # read only
        """The operators that torch's exporter translates."""
        return frozenset(self.operators())

    def known_options(self) -> Collection[str]:
        """Return the names of the options."""
        return _OPTIONS

    def operators(self) -> Collection[str]:
        """Return the operators for which torch's exporter has a translation."""
        _ = self._runtime
        optional_module("onnxscript", "the backend 'onnxruntime'", "onnxruntime")
        with quietly():
            return onnx_operators()

    def build(self, program: ExportedProgram, options: Mapping[str, Any]) -> Delegated:
        """Convert a program to ONNX, and make a session of it."""
        model = onnx_bytes(program)
        return _Session(self._runtime, model, options)

    def pack(self, built: Delegated) -> bytes | None:
        """Return the ONNX model."""
        return built.model if isinstance(built, _Session) else None

    def unpack(
        self, blob: bytes, program: ExportedProgram, options: Mapping[str, Any]
    ) -> Delegated:
        """Make a session of an ONNX model."""
        return _Session(self._runtime, blob, options)


class _Session:
    """A session: takes tensors and sizes, gives tensors."""

    def __init__(self, runtime: Any, model: bytes, options: Mapping[str, Any]):
        settings = runtime.SessionOptions()
        settings.intra_op_num_threads = options.get("threads", torch.get_num_threads())
        settings.log_severity_level = 4
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if level := options.get("graph_optimization_level"):
            settings.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, level)
        providers = list(options.get("providers", ["CPUExecutionProvider"]))
        self.model = model
        session = runtime.InferenceSession(model, settings, providers=providers)
        self._names = list(enumerate([given.name for given in session.get_inputs()]))
        self._outputs = [made.name for made in session.get_outputs()]
        # below the session is one that does not look at the names of each call again
        self._run: Callable[..., list[Any]] = getattr(session, "_sess", session).run

    def __call__(self, *given: Any) -> Sequence[torch.Tensor]:
        try:
            feed = {name: given[index].numpy() for index, name in self._names}
        except (AttributeError, RuntimeError):  # a number, or a tensor that requires gradients
            feed = {name: array_of(given[index]) for index, name in self._names}
        return list(map(torch.from_numpy, self._run(self._outputs, feed, None)))


ONNXRUNTIME = OnnxRuntime()
"""The backend."""
