"""OpenVINO as a backend: delegates are converted by its own frontend, run by its CPU plugin."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from functools import cached_property
from itertools import chain
from typing import Any

import torch
from torch.export import ExportedProgram

from torch_ir.backends.known_options import Known
from torch_ir.backends.native.native_backend import NativeBackend, facts_of
from torch_ir.backends.protocol import Delegated
from torch_ir.backends.runtimes.narrowing import room_for_integers
from torch_ir.backends.runtimes.openvino_model import openvino_model
from torch_ir.backends.runtimes.openvino_request import Request
from torch_ir.lazy import optional_module
from torch_ir.quiet import quietly

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
        with quietly():
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
        return Request(self._runtime, compiled, room)

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
        if not isinstance(built, Request):
            return None
        stream = io.BytesIO()
        built.compiled.export_model(stream)
        return stream.getvalue()

    def unpack(
        self, blob: bytes, program: ExportedProgram, options: Mapping[str, Any]
    ) -> Delegated:
        """Read a compiled model."""
        compiled = self._runtime.Core().import_model(io.BytesIO(blob), "CPU", _settings(options))
        return Request(self._runtime, compiled, self._room(program))


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of a compiled model, which its file does not hold."""
    return {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
        **options,
    }


OPENVINO = OpenVino()
"""The backend."""
