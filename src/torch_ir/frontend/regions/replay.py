"""Results of calls on tensors without data, made anew where an equal call was made before.

A fake tensor costs a tenth of the call of torch that gives it. Equal functions, plain arguments
and types give equal types, so that layers that repeat are run by what the first of them showed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import FunctionType
from typing import Any, cast

import torch

from torch_ir.torch_api import FakeTensor, FakeTensorMode, state_of_torch, storage_of, version_of
from torch_ir.torch_modes import beneath_traces, is_any_autocast_enabled, without_torch_functions

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))
TORCH = (torch.dtype, torch.layout, torch.memory_format, torch.device, torch.Size)


class ReplayedCalls:
    """Calls of torch on the tensors of one mode.

    Only a call that gives new tensors, what it is given and views of that is known: nothing
    written, no gradient, no value, no size that varies. All others are made.

    Args:
        mode: The mode.
    """

    def __init__(self, mode: FakeTensorMode):
        self._mode = mode
        self._known: dict[Hashable, Callable[[list[torch.Tensor]], Any]] = {}

    def call(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return what torch gives, or tensors of the types that it gave before."""
        given: list[torch.Tensor] = []
        try:
            key = _state(func), self._key(args, given), self._key(kwargs, given)
        except _UnknownError:
            return func(*args, **kwargs)
        known = self._known.get(key)
        if known is not None:
            return known(given)
        versions = [version_of(tensor) for tensor in given]
        result = func(*args, **kwargs)
        try:
            is_as_before = key[1:] == (self._key(args, []), self._key(kwargs, []))
            if is_as_before and versions == [version_of(tensor) for tensor in given]:
                self._known[key] = self._maker(result, given)
        except _UnknownError:
            pass
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
        return tensor.dtype, sizes, tensor.device, tensor.storage_offset()

    def _maker(
        self, result: Any, given: Sequence[torch.Tensor]
    ) -> Callable[[list[torch.Tensor]], Any]:
        """How a result is made anew of the tensors of an equal call."""
        if type(result) in (list, tuple) or type(result).__module__ == "torch.return_types":
            items, kind = cast(Sequence[Any], result), type(result)
            if not all(isinstance(item, torch.Tensor) for item in items):
                raise _UnknownError
            new = {storage_of(item) for item in items}.difference(map(storage_of, given))
            if len(new) not in (0, len(items)) or len({*map(id, items)}) < len(items):
                raise _UnknownError  # some are views of another, or the same
            makers = [self._maker(item, given) for item in items]
            return lambda given: kind([make(given) for make in makers])
        if not isinstance(result, torch.Tensor):
            raise _UnknownError
        self._type(result)
        of = [i for i, tensor in enumerate(given) if storage_of(tensor) == storage_of(result)]
        if len(of) > 1 or (of and given[of[0]].dtype != result.dtype):
            raise _UnknownError
        if of and given[of[0]] is result:
            return lambda given: given[of[0]]
        if not of and result.storage_offset():
            raise _UnknownError
        size, strides, device = tuple(result.shape), result.stride(), result.device
        dtype, offset = result.dtype, result.storage_offset()

        def make(given: list[torch.Tensor]) -> torch.Tensor:
            with without_torch_functions(), beneath_traces():
                if of:  # a view counts the writes to what it is of
                    made = torch.as_strided(given[of[0]], size, strides, offset)
                else:
                    made = torch.empty_strided(size, strides, dtype=dtype, device="meta")
            return FakeTensor(self._mode, made, device)

        return make


class _UnknownError(Exception):
    """A call has arguments on whose values its result may depend."""


def _state(func: Any) -> Hashable:
    """Tell a function of torch and the state that it may read."""
    is_of_torch = not isinstance(func, FunctionType) or func.__module__.startswith("torch.")
    if not is_of_torch or is_any_autocast_enabled():
        raise _UnknownError
    return func, torch.is_inference_mode_enabled(), state_of_torch()
