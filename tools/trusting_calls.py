"""Calls that are right in their types and wrong in all else."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from ops.calls import TEXTS, Maker
from torch_ir.ops.schema import Argument, Schema

Arguments = dict[str, Any]

WILD = (10**12, -(10**12), -1, 2**31 - 1, -(2**31), 2**62, 0, 1, 2, 7)
FLOATS = (0.0, -1.0, math.nan, math.inf, -math.inf, 1e30, 3e38, -1e30, 0.01, 1e-19, 1e-30)
DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool)
LARGEST = 1 << 16
"""Bytes of the largest tensor that a call is made of."""


# -- right calls ----------------------------------------------------------------------------------


class Recorder(TorchDispatchMode):
    """Keeps the first calls of each overload, with copies of small tensors."""

    def __init__(self, kept: dict[str, list[Arguments]], count: int):
        super().__init__()
        self._kept, self._count = kept, count

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        calls = self._kept.setdefault(str(func), [])
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        small = all(t.layout is torch.strided and t.nbytes < LARGEST for t in tensors)
        if len(calls) < self._count and small:
            names = [argument.name for argument in func._schema.arguments]
            given = {**dict(zip(names, args, strict=False)), **(kwargs or {})}
            calls.append(tree_map(_copied, given))
        return func(*args, **(kwargs or {}))


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def recorded_calls(samples: int) -> dict[str, list[Arguments]]:
    """What the samples that torch tests itself with call, forwards and backwards, by overload."""
    kept: dict[str, list[Arguments]] = {}
    for entry in op_db:
        if entry.name.startswith("jiterator"):
            continue
        floats = entry.supports_dtype(torch.float32, "cpu")
        dtypes = [torch.float32 if floats else torch.int64]
        with contextlib.suppress(Exception):
            for dtype in dtypes:
                backward = floats and entry.supports_autograd
                for sample in _first(entry, dtype, samples, backward=backward):
                    _record_whole(kept, entry, sample)
                    with contextlib.suppress(Exception), Recorder(kept, 3):
                        made = entry(sample.input, *sample.args, **sample.kwargs)
                        ends = [t for t in tree_leaves(made) if _requires_grad(t)]
                        torch.autograd.backward(ends, [torch.ones_like(t) for t in ends])
    return kept


def _record_whole(kept: dict[str, list[Arguments]], entry: Any, sample: Any) -> None:
    """Keep the call of the operator itself, which has parts of its own where it is composite."""
    packet = getattr(torch.ops.aten, entry.aten_name, None)
    for name in () if packet is None else packet.overloads():
        operator = getattr(packet, name)
        calls = kept.setdefault(str(operator), [])
        args = (sample.input, *sample.args)
        tensors = [t for t in tree_leaves((args, sample.kwargs)) if isinstance(t, torch.Tensor)]
        if len(calls) >= 3 or any(t.nbytes >= LARGEST for t in tensors):
            continue
        with contextlib.suppress(Exception):
            operator(*tree_map(_copied, args), **tree_map(_copied, sample.kwargs))
            names = [argument.name for argument in operator._schema.arguments]
            given = {**dict(zip(names, args, strict=False)), **sample.kwargs}
            calls.append(tree_map(_copied, given))
            return


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _first(entry: Any, dtype: torch.dtype, count: int, *, backward: bool) -> Iterator[Any]:
    samples = entry.sample_inputs("cpu", dtype, requires_grad=backward)
    for _, sample in zip(range(count), samples, strict=False):
        yield sample


# -- wrong calls ----------------------------------------------------------------------------------


class WrongCalls:
    """Calls of one overload, the same in every process.

    Args:
        schema: The overload's.
        right: Right calls of it, if some are known.
        count: How many calls are made up at random, after those with one fault each.
        kind: What becomes of their tensors, one of ``KINDS``; "" for nothing. Where it is
            something, only as many calls with one fault are made.
    """

    def __init__(self, schema: Schema, right: list[Arguments], count: int, kind: str = ""):
        self._schema = schema
        self.kind = kind
        self._right = right
        self._planned = list(_one_fault_each(right)) if right else []
        if kind and len(self._planned) > count:
            self._planned = random.Random(schema.op_type).sample(self._planned, count)
        self.count = len(self._planned) + count

    def call(self, attempt: int) -> Arguments:
        """A call with up to three faults; every fourth has tensors and numbers of any kind."""
        rng = random.Random(f"{self._schema.op_type} {attempt}")
        if attempt < len(self._planned):
            made = self._planned[attempt]()
        elif self._right and attempt % 4 != 3:
            made = self._changed(rng, dict(self._right[attempt % len(self._right)]))
        else:
            made = self._changed(rng, Maker(self._schema, attempt).arguments())
        if self.kind:
            made = {name: tree_map(KINDS[self.kind], value) for name, value in made.items()}
        return {
            name: value
            if name.startswith("out") or name == "grad_input"
            else tree_map(guarded, value)
            for name, value in made.items()
        }

    def _changed(self, rng: random.Random, made: Arguments) -> Arguments:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            argument = rng.choice(self._schema.arguments or [None])
            if argument is not None and (argument.name in made or rng.random() < 0.3):
                made[argument.name] = _wrong(rng, argument, made.get(argument.name))
        return made


def _one_fault_each(right: list[Arguments]) -> Iterator[Callable[[], Arguments]]:
    """Every right call as it is, and with each fault of a kind in each argument."""
    rng = random.Random(0)
    for call in _lively(right):
        yield lambda call=call: call
        for name, value in call.items():
            for fault in _faults(rng, value):
                yield lambda call=call, name=name, fault=fault: {**call, name: fault()}
        tensors = [name for name, value in call.items() if isinstance(value, torch.Tensor)]
        for pair in combinations(tensors, 2):
            for size in (1, 3):
                yield lambda call=call, pair=pair, size=size: _with_axis(call, pair, size)
                yield lambda call=call, pair=pair, size=size: _both_resized(call, pair, size)


def _lively(right: list[Arguments]) -> Iterator[Arguments]:
    """The calls, and again with 2 for numbers of 0, of which a kernel may have nothing to do."""
    yield from right
    for call in right:
        zeros = [n for n, value in call.items() if isinstance(value, float) and not value]
        if zeros:
            yield {**call, **dict.fromkeys(zeros, 2.0)}


def _with_axis(call: Arguments, names: Sequence[str], size: int) -> Arguments:
    """Two tensors with one axis more in front: rules may ask only whether these are alike."""
    return {**call, **{n: call[n].expand(size, *call[n].shape).contiguous() for n in names}}


def _both_resized(call: Arguments, names: Sequence[str], factor: int) -> Arguments:
    """Two tensors whose first size in common is 1, or three times as large, in both."""
    common = next((size for size in call[names[0]].shape if size in call[names[1]].shape), None)
    if common is None:
        return call
    made = dict(call)
    for name in names:
        axis = [*call[name].shape].index(common)
        first = call[name].narrow(axis, 0, min(common, 1))
        longer = torch.cat([call[name]] * factor, axis)
        if longer.nbytes < LARGEST:
            made[name] = first.contiguous() if factor == 1 else longer
    return made


def _faults(rng: random.Random, value: Any) -> Iterator[Callable[[], Any]]:
    match value:
        case torch.Tensor():
            if value.dtype in (torch.int64, torch.int32) and value.numel():
                limits = torch.iinfo(value.dtype)
                for wild in (10**12, -(10**12), -1, value.numel(), 10**6):
                    number = min(max(wild, limits.min), limits.max)
                    yield lambda number=number: torch.full_like(value, number)
                    yield lambda number=number: _with_first(value, number)
            if value.is_floating_point() and value.numel():
                for wild in FLOATS[1:8]:
                    yield lambda wild=wild: torch.full_like(value, wild)
                    yield lambda wild=wild: _with_first(value, wild)
            yield lambda: _strided(rng, value)
            shapes = [_resized(rng, value) for _ in range(6)]
            yield from [lambda shape=shape: shape for shape in shapes]
        case bool():
            yield lambda: not value
        case int():
            yield from [lambda wild=wild: wild for wild in (10**12, -(10**12), -1, 0, value + 1)]
        case float():
            yield from [lambda wild=wild: wild for wild in FLOATS]
        case list() | tuple() if value:
            yield lambda: [*value[:-1]]
            yield lambda: [*value, value[-1]]
            yield list
            for fault in _faults(rng, value[0]):
                yield lambda fault=fault: [fault(), *value[1:]]
        case _:
            return


def _with_first(tensor: torch.Tensor, value: float) -> torch.Tensor:
    changed = tensor.clone()
    changed.view(-1)[0] = value
    return changed


def _wrong(rng: random.Random, argument: Argument, value: Any) -> Any:
    if argument.is_optional and rng.random() < 0.2:
        return None
    match value:
        case torch.Tensor():
            return _wrong_tensor(rng, value)
        case bool():
            return not value
        case int():
            return rng.choice((*WILD, value + 1, value - 1))
        case float():
            return rng.choice(FLOATS)
        case str():
            return rng.choice(TEXTS.get(argument.name, ("none", "sum", "mean", "")))
        case torch.dtype():
            return rng.choice(DTYPES)
        case list() | tuple():
            return _wrong_list(rng, argument, list(value))
        case None if argument.takes_tensor:
            return _wrong_tensor(rng, torch.ones(3, 3))
        case None if argument.type.startswith(("int", "SymInt")) and "[" not in argument.type:
            return rng.choice(WILD)
        case None if argument.type.startswith(("int[", "SymInt[")):
            return [rng.choice(WILD) for _ in range(rng.randrange(4))]
        case None if argument.type in ("float?", "Scalar?"):
            return rng.choice(FLOATS)
        case _:
            return value


def _wrong_list(rng: random.Random, argument: Argument, value: list[Any]) -> list[Any]:
    kind = rng.random()
    if not value:
        return [1] if argument.type.startswith(("int", "SymInt")) else value
    if kind < 0.25:
        return value[:-1]
    if kind < 0.4:
        return [*value, value[-1]]
    if kind < 0.5:
        return []
    position = rng.randrange(len(value))
    value[position] = _wrong(rng, argument, value[position])
    return value


def _wrong_tensor(rng: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    kinds: list[Callable[[random.Random, torch.Tensor], torch.Tensor]] = [_resized, _retyped]
    if tensor.dtype in (torch.int64, torch.int32) and tensor.numel():
        kinds = [_wild, _wild, _wild, _resized, _strided]
    elif tensor.is_floating_point():
        kinds = [_resized, _resized, _retyped, _strided, _far]
    return rng.choice(kinds)(rng, tensor)


def _wild(rng: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    """Some elements are far out, or just out, or all are."""
    limits = torch.iinfo(tensor.dtype)
    value = rng.choice((10**12, -(10**12), -1, tensor.numel(), 100, int(tensor.max()) + 1))
    value = min(max(value, limits.min), limits.max)
    changed = tensor.clone()
    if rng.random() < 0.3:
        return changed.fill_(value)
    changed.view(-1)[rng.randrange(changed.numel())] = value
    return changed


def _far(rng: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    """Some elements are no numbers, or so large that no index is."""
    chosen = torch.tensor([rng.choice(FLOATS) for _ in range(tensor.numel())], dtype=tensor.dtype)
    return chosen.reshape(tensor.shape)


def _resized(rng: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    shape = [*tensor.shape]
    kind = rng.random()
    if kind < 0.15 and shape:
        shape.pop(rng.randrange(len(shape)))
    elif kind < 0.3:
        shape.insert(rng.randrange(len(shape) + 1), rng.choice((1, 2, 3)))
    elif shape:
        axis = rng.randrange(len(shape))
        size = shape[axis]
        shape[axis] = rng.choice((0, 1, size + 1, size + 3, max(size - 1, 0), 3 * size))
    if math.prod(shape) * tensor.element_size() > LARGEST:
        return tensor
    made = torch.zeros(shape, dtype=tensor.dtype)
    if tensor.numel() and made.numel():
        flat = tensor.reshape(-1)
        made.view(-1).copy_(flat[torch.arange(made.numel()) % flat.numel()])
    return made


def _retyped(rng: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(rng.choice(DTYPES))


def _strided(rng: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    """The same shape, with one element in memory for all."""
    del rng
    return tensor.reshape(-1)[:1].clone().expand(tensor.shape) if tensor.numel() else tensor


# -- other kinds of tensors -----------------------------------------------------------------------


def _floats_as(dtype: torch.dtype) -> Callable[[Any], Any]:
    def cast(value: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(dtype) if is_float else value

    return cast


def _short_indices(value: Any) -> Any:
    is_index = isinstance(value, torch.Tensor) and value.dtype is torch.int64
    return value.clamp(-(2**31), 2**31 - 1).to(torch.int32) if is_index else value


def _in_layout(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    def changed(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        with contextlib.suppress(Exception):  # not every tensor has every layout
            return change(value)
        return value

    return changed


KINDS: dict[str, Callable[[Any], Any]] = {
    **{
        str(dtype).removeprefix("torch."): _floats_as(dtype)
        for dtype in (
            *(torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8),
            *(torch.bool, torch.complex64),
        )
    },
    "int32 indices": _short_indices,
    "sparse": _in_layout(torch.Tensor.to_sparse),
    "compressed": _in_layout(torch.Tensor.to_sparse_csr),
    "nested": _in_layout(lambda value: torch.nested.as_nested_tensor([*value])),
}
"""What becomes of the tensors of a call that is right in float32 and int64."""


# -- memory whose end is guarded ------------------------------------------------------------------

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def guarded(value: Any) -> Any:
    """A copy of a tensor that ends where a page begins that nobody may touch.

    The memory is never given back: the process that calls this ends soon.
    """
    if not isinstance(value, torch.Tensor) or value.is_neg() or value.is_conj():
        return value
    if value.is_nested or value.layout is not torch.strided:
        return value
    storage = value.untyped_storage()
    size = storage.nbytes()
    if not 0 < size <= 4 * LARGEST:
        return value
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    start = _LIBC.mmap(
        None, pages + mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, _ANONYMOUS, -1, 0
    )
    _LIBC.mprotect(start + pages, mmap.PAGESIZE, 0)
    place = start + pages - size
    ctypes.memmove(place, storage.data_ptr(), size)
    buffer = (ctypes.c_char * size).from_address(place)
    flat = torch.frombuffer(buffer, dtype=value.dtype)
    return flat.as_strided(value.shape, value.stride(), value.storage_offset())


def touched(made: Any) -> None:
    """Read whatever a call gave, where that is not too much."""
    for value in tree_leaves(made):
        if isinstance(value, torch.Tensor) and not value.is_nested and value.numel() < 1 << 20:
            (value if value.layout is torch.strided else value.to_dense()).clone()


def called(operator: Any, schema: Schema, made: Mapping[str, Any]) -> Any:
    """Call an operator with arguments by name, as many as it takes by position."""
    args: list[Any] = []
    rest = dict(made)
    for argument in schema.arguments:
        if argument.keyword_only or argument.name not in made:
            break
        args.append(rest.pop(argument.name))
    return operator(*args, **rest)
