"""Requests of OpenVINO, which take and give tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from torch_ir.backends.native.building import DeclinedError
from torch_ir.backends.protocol import TupleCalled
from torch_ir.backends.runtimes.narrowing import WIDE, is_within
from torch_ir.backends.runtimes.onnx_model import array_of
from torch_ir.ir.values import dtype_name

_WIDE = tuple(np.dtype(dtype_name(dtype)) for dtype in WIDE)


class Request(TupleCalled):
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
        """Run on some arguments."""
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
