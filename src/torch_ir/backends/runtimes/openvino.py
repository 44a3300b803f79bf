"""OpenVINO as a backend: delegates are converted by its own frontend, run by its CPU plugin."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import torch
from torch.export import ExportedProgram

from torch_ir.backends.native.native_backend import NativeBackend
from torch_ir.backends.protocol import Delegated
from torch_ir.backends.runtimes.onnx_model import quietly
from torch_ir.lazy import optional_module

_OPTIONS = frozenset(("INFERENCE_PRECISION_HINT", "INFERENCE_NUM_THREADS", "PERFORMANCE_HINT"))
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
        """The operators that its frontend names."""
        return frozenset(self.operators())

    @cached_property
    def _operators(self) -> frozenset[str]:
        _ = self._runtime
        module = optional_module(
            "openvino.frontend.pytorch.torchdynamo.op_support", _NEEDED, "openvino"
        )
        named = module.OperatorSupport(None)._support_dict
        return frozenset(key.removeprefix("torch.ops.") for key in named)

    def operators(self) -> Collection[str]:
        """Return the operators that its frontend names."""
        return self._operators

    def known_options(self) -> Collection[str]:
        """Return the names of the options."""
        return _OPTIONS

    def build(self, program: ExportedProgram, options: Mapping[str, Any]) -> Delegated:
        """Convert a program to OpenVINO's model, and compile it."""
        with quietly():
            model = self._runtime.convert_model(program)
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "PERFORMANCE_HINT": "LATENCY",
            **options,
        }
        return _Request(self._runtime.Core().compile_model(model, "CPU", settings))

    def pack(self, built: Delegated) -> bytes | None:
        """Return the compiled model."""
        if not isinstance(built, _Request):
            return None
        stream = io.BytesIO()
        built.compiled.export_model(stream)
        return stream.getvalue()

    def unpack(self, blob: bytes, program: ExportedProgram) -> Delegated:
        """Read a compiled model."""
        return _Request(self._runtime.Core().import_model(io.BytesIO(blob), "CPU"))


class _Request:
    """An inference request: takes tensors and sizes, gives tensors of their own."""

    def __init__(self, compiled: Any):
        self.compiled = compiled
        self._request = compiled.create_infer_request()
        self._count = len(compiled.outputs)
        types = [str(output.get_element_type().get_type_name()) for output in compiled.outputs]
        self._is_bfloat16 = ["bf16" in name for name in types]

    def __call__(self, *given: Any) -> Sequence[torch.Tensor]:
        arrays = {index: _array(item) for index, item in enumerate(given)}
        self._request.infer(arrays, share_inputs=True, share_outputs=False)
        made: list[torch.Tensor] = []
        for index in range(self._count):
            array = self._request.get_output_tensor(index).data
            if self._is_bfloat16[index]:  # whose bits are handed out as float16
                made.append(torch.from_numpy(array.view("int16").copy()).view(torch.bfloat16))
            else:
                made.append(torch.from_numpy(array.copy()))
        return made


def _array(item: Any) -> Any:
    import numpy as np

    if type(item) is int:
        return np.asarray(item, dtype=np.int64)
    return cast(torch.Tensor, item).detach().numpy()


OPENVINO = OpenVino()
"""The backend."""
