"""Results of calls on tensors without data, made anew where an equal call was made before.

A fake tensor costs a tenth of the call of torch that gives it. Equal functions, plain arguments
and types give equal types, so that layers that repeat are run by what the first of them showed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import FunctionType
from typing import Any, cast

import torch

from torch_ir.torch_api import (
    FakeTensor,
    FakeTensorMode,
    is_any_autocast_enabled,
    outside_of_traces,
    state_of_torch,
    storage_of,
    version_of,
)

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))
TORCH = (torch.dtype, torch.layout, torch.memory_format, torch.device, torch.Size)


class ReplayedCalls:
    """Calls of torch on the tensors of one mode.

    Only a call that gives one new tensor is known: no view, nothing written, no gradient, no
    value, no size that varies. All others are made.

    Args:
        mode: The mode.
    """

    def __init__(self, mode: FakeTensorMode):
        self._mode = mode
        self._known: dict[Hashable, Callable[[], torch.Tensor]] = {}

    def call(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return what torch gives, or a new tensor of the type that it gave before."""
        given: list[torch.Tensor] = []
        try:
            key = _state(func), self._key(args, given), self._key(kwargs, given)
        except _UnknownError:
            return func(*args, **kwargs)
        known = self._known.get(key)
        if known is not None:
            return known()
        versions = [version_of(tensor) for tensor in given]
        result = func(*args, **kwargs)
        if versions == [version_of(tensor) for tensor in given] and self._is_new(result, given):
            self._known[key] = self._maker(result)
        return result

    def _key(self, value: Any, given: list[torch.Tensor]) -> Hashable:
        """Tell arguments apart by what types depend on; note the tensors among them."""
        if isinstance(value, torch.Tensor):
            given.append(value)
            return self._type(value)
        if type(value) in PLAIN or isinstance(value, TORCH):
            return type(value), value
        if isinstance(value, list | tuple):
            items = cast(Sequence[Any], value)
            return type(items), tuple([self._key(item, given) for item in items])
        if isinstance(value, dict):
            pairs = cast(Mapping[Any, Any], value).items()
            return dict, tuple([(str(name), self._key(item, given)) for name, item in pairs])
        if isinstance(value, slice):
            ends = (value.start, value.stop, value.step)
            return slice, tuple([self._key(end, given) for end in ends])
        raise _UnknownError

    def _type(self, tensor: torch.Tensor) -> Hashable:
        """Tell a tensor of the mode by its type."""
        if not isinstance(tensor, FakeTensor) or tensor.fake_mode is not self._mode:
            raise _UnknownError
        if tensor.constant is not None or tensor.requires_grad:
            raise _UnknownError
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
            raise _UnknownError
        sizes = *tensor.shape, *tensor.stride()
        if any(type(size) is not int for size in sizes):
            raise _UnknownError
        return tensor.dtype, sizes, tensor.device

    def _is_new(self, result: Any, given: Sequence[torch.Tensor]) -> bool:
        if not isinstance(result, torch.Tensor):
            return False
        try:
            self._type(result)
        except _UnknownError:
            return False
        storages = {storage_of(tensor) for tensor in given}
        return storage_of(result) not in storages and not result.storage_offset()

    def _maker(self, result: torch.Tensor) -> Callable[[], torch.Tensor]:
        size, strides, device = tuple(result.shape), result.stride(), result.device
        dtype = result.dtype

        def make() -> torch.Tensor:
            with outside_of_traces():
                empty = torch.empty_strided(size, strides, dtype=dtype, device="meta")
            return FakeTensor(self._mode, empty, device)

        return make


class _UnknownError(Exception):
    """A call has arguments on whose values its result may depend."""


def _state(func: Any) -> Hashable:
    """Tell a function of torch and the state that it may read."""
    is_of_torch = not isinstance(func, FunctionType) or func.__module__.startswith("torch.")
    if not is_of_torch or is_any_autocast_enabled():
        raise _UnknownError
    return func, torch.is_inference_mode_enabled(), state_of_torch()
