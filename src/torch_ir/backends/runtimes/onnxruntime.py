"""ONNX Runtime as a backend: delegates become ONNX models, run by its CPU provider."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch.export import ExportedProgram

from torch_ir.backends.known_options import Known
from torch_ir.backends.native.native_backend import NativeBackend
from torch_ir.backends.protocol import Delegated, TupleCalled
from torch_ir.backends.runtimes.onnx_model import array_of, onnx_bytes, onnx_operators
from torch_ir.lazy import optional_module
from torch_ir.quiet import quietly


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
        return _Session(self._runtime, model, options)

    def into(self, built: Delegated, places: Mapping[int, int]) -> Delegated:
        """Return a session that writes some results in the memory of arguments."""
        assert isinstance(built, _Session)  # noqa: S101  # what build and unpack return
        return _InPlace(built, places)

    def pack(self, built: Delegated) -> bytes | None:
        """Return the ONNX model."""
        return built.model if isinstance(built, _Session) else None

    def unpack(
        self, blob: bytes, program: ExportedProgram, options: Mapping[str, Any]
    ) -> Delegated:
        """Make a session of an ONNX model."""
        return _Session(self._runtime, blob, options)


class _Session(TupleCalled):
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
        self.session = session = runtime.InferenceSession(model, settings, providers=providers)
        self._names = list(enumerate([given.name for given in session.get_inputs()]))
        self._outputs = [made.name for made in session.get_outputs()]
        # below the session is one that does not look at the names of each call again
        self._run: Callable[..., list[Any]] = getattr(session, "_sess", session).run

    def on(self, given: tuple[Any, ...], /) -> Sequence[torch.Tensor]:
        try:
            feed = {name: given[index].numpy() for index, name in self._names}
        except (AttributeError, RuntimeError):  # a number, or a tensor that requires gradients
            feed = {name: array_of(given[index]) for index, name in self._names}
        return list(map(torch.from_numpy, self._run(self._outputs, feed, None)))


class _InPlace(TupleCalled):
    """A session that gives some results in the memory of its inputs; calls take turns.

    It binds what is not where it was: each call of Python or torch costs some 10 microseconds
    where no cache holds its code, as after a large model.
    """

    def __init__(self, plain: _Session, places: Mapping[int, int]):
        self._plain, self._places = plain, places
        session = plain.session
        self._given = [given.name for given in session.get_inputs()]
        self._made = [made.name for made in session.get_outputs()]
        self._moving = [i for i in range(len(self._given)) if i not in places.values()]
        self._own = [i for i in range(len(self._made)) if i not in places]
        self._run, self._binding = session.run_with_iobinding, session.io_binding()
        # below the binding is one that makes no object for each result
        self._outputs = getattr(self._binding, "_iobinding", self._binding).get_outputs
        self._bound: dict[int, Any] = {}
        self._turn = threading.Lock()

    def on(self, given: tuple[Any, ...], /) -> Sequence[torch.Tensor]:
        moving = [_tensor_of(given[i]) for i in self._moving]
        if not all(tensor.numel() for tensor in moving):
            return self._plain.on(given)  # what is empty lies nowhere
        with self._turn:
            for position, tensor in zip(self._moving, moving, strict=True):
                where = (tensor.data_ptr(), tensor.shape)
                if self._bound.get(position) != where:
                    self._bound[position] = None  # until it is known, if an interrupt comes
                    self._binding.bind_input(self._given[position], *_memory(tensor))
                    self._bound[position] = where
            for result, place in self._places.items():
                where = given[place].data_ptr()  # which a tensor may have changed
                if self._bound.get(place) != where:
                    self._bound[place] = None
                    self._binding.bind_input(self._given[place], *_memory(given[place]))
                    self._binding.bind_output(self._made[result], *_memory(given[place]))
                    self._bound[place] = where
            for position in self._own:  # else it writes where the last call's result is
                self._binding.bind_output(self._made[position], "cpu")
            self._run(self._binding)
            made = self._outputs()
        results = {result: given[place] for result, place in self._places.items()}
        results |= {i: torch.from_numpy(made[i].numpy()) for i in self._own}
        return [results[i] for i in range(len(self._made))]


def _tensor_of(item: Any) -> torch.Tensor:
    return item if isinstance(item, torch.Tensor) else torch.from_numpy(array_of(item))


def _memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Where a tensor lies, as a binding takes it."""
    return "cpu", 0, array_of(tensor).dtype, tuple(tensor.shape), tensor.data_ptr()


ONNXRUNTIME = OnnxRuntime()
"""The backend."""
