"""OpenVINO as a backend: delegates are converted by its own frontend, run by its CPU plugin."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram

from torch_ir.backends.known_options import Known
from torch_ir.backends.native.building import DeclinedError
from torch_ir.backends.native.native_backend import NativeBackend, facts_of
from torch_ir.backends.protocol import Delegated, TupleCalled
from torch_ir.backends.runtimes.narrowing import WIDE, is_within, room_for_integers
from torch_ir.backends.runtimes.onnx_model import array_of
from torch_ir.backends.runtimes.openvino_model import openvino_model
from torch_ir.ir.values import dtype_name
from torch_ir.lazy import optional_module

_OPTIONS: Known = {
    "INFERENCE_PRECISION_HINT": ("f32", "bf16", "f16", "dynamic"),
    "INFERENCE_NUM_THREADS": int,
    "PERFORMANCE_HINT": ("LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT"),
}
_NEEDED = "the backend 'openvino'"


class OpenVino(NativeBackend):
    """Runs delegates on OpenVINO. A delegate has one request, and its calls take turns.

    Options are properties of its CPU plugin: ``INFERENCE_PRECISION_HINT`` (``"f32"`` by default:
    lower ones ask for a tolerance), ``INFERENCE_NUM_THREADS`` (those of torch) and
    ``PERFORMANCE_HINT``.
    """

    name = "openvino"

    @cached_property
    def _runtime(self) -> Any:
        return optional_module("openvino", _NEEDED, "openvino")

    @property
    def version(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # read only
        """The version of the installed package."""
        return self._runtime.__version__

    @cached_property
    def takes(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]  # read only
        """The operators that its frontend translates."""
        _ = self._runtime
        module = optional_module(
            "openvino.frontend.pytorch.torchdynamo.op_support", _NEEDED, "openvino"
        )
        named = module.OperatorSupport(None)._support_dict
        known = facts_of(self.name).translated
        return known | {key.removeprefix("torch.ops.") for key in named}

    def operators(self) -> Collection[str]:
        """Return the operators that its frontend translates: it names those of torch.compile."""
        return self.takes

    def known_options(self) -> Known:
        """Return the options."""
        return _OPTIONS

    def build(self, program: ExportedProgram, options: Mapping[str, Any]) -> Delegated:
        """Convert a program to OpenVINO's model, and compile it."""
        room = self._room(program)
        model = openvino_model(self._runtime, program)
        compiled = self._runtime.Core().compile_model(model, "CPU", _settings(options))
        return _Request(self._runtime, compiled, room)

    def _room(self, program: ExportedProgram) -> int:
        """How far integers of inputs may be, so that those that grow stay exact.

        What grows is what is given to it in no such type.

        Raises:
            BackendError: There is none.
        """
        known = [rule for rule in facts_of(self.name).results if "inputs" not in rule]
        rules = [rule["operators"] for rule in known if "int64" in rule.get("dtypes", ())]
        return room_for_integers(program, frozenset(chain.from_iterable(rules)))

    def pack(self, built: Delegated) -> bytes | None:
        """Return the compiled model."""
        if not isinstance(built, _Request):
            return None
        stream = io.BytesIO()
        built.compiled.export_model(stream)
        return stream.getvalue()

    def unpack(
        self, blob: bytes, program: ExportedProgram, options: Mapping[str, Any]
    ) -> Delegated:
        """Read a compiled model."""
        compiled = self._runtime.Core().import_model(io.BytesIO(blob), "CPU", _settings(options))
        return _Request(self._runtime, compiled, self._room(program))


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of a compiled model, which its file does not hold."""
    return {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
        **options,
    }


_WIDE = tuple(np.dtype(dtype_name(dtype)) for dtype in WIDE)


class _Request(TupleCalled):
    """An inference request: takes tensors and sizes, gives tensors of their own."""

    def __init__(self, runtime: Any, compiled: Any, room: int):
        self.compiled = compiled
        self._room = room
        self._tensor = runtime.Tensor
        request = compiled.create_infer_request()
        self._set: Callable[..., None] = request.set_input_tensor
        self._get: Callable[..., Any] = request.get_output_tensor
        # that of the class below, as its own infer takes 20 to 40 us to sort its arguments
        below: Any = super(type(request), request)
        self._infer: Callable[..., Any] = below.infer
        self._types = [given.get_element_type().to_dtype() for given in compiled.inputs]
        types = [str(output.get_element_type().get_type_name()) for output in compiled.outputs]
        self._is_bfloat16 = ["bf16" in name for name in types]
        self._bound: list[Any] = [None] * len(self._types)

    def on(self, given: tuple[Any, ...], /) -> Sequence[torch.Tensor]:
        for index, item in enumerate(given):
            where = _where(item)
            if where is not None and where == self._bound[index]:
                continue
            array = whole = array_of(item)
            if array.dtype in _WIDE and not is_within(array, -self._room, self._room):
                raise DeclinedError("the CPU plugin compares integers as 32-bit floats")
            array = array.astype(self._types[index], copy=False)
            self._bound[index] = None  # until it is known, as an interrupt may come in between
            self._set(index, self._tensor(array, shared_memory=True))
            self._bound[index] = where if array is whole else None
        self._infer({}, share_outputs=True, decode_strings=False)
        made: list[torch.Tensor] = []
        for index, is_bfloat16 in enumerate(self._is_bfloat16):
            array = self._get(index).data.copy()
            if is_bfloat16:  # whose bits are handed out as float16
                made.append(torch.from_numpy(array.view("int16")).view(torch.bfloat16))
            else:
                made.append(torch.from_numpy(array))
        return made


def _where(item: Any) -> object:
    """Where a tensor lies whose values need no look, so that a call may leave it as it is bound.

    Buffers are in the same place in each call, and to bind one takes 4 microseconds.
    """
    if not isinstance(item, torch.Tensor) or item.dtype in WIDE:
        return None
    return item.data_ptr(), item.dtype, item.shape


OPENVINO = OpenVino()
"""The backend."""
