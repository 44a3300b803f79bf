"""The calls that torch's own operator samples make, each compared with the tables of ops."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ops.calls import watched
from torch_ir.ops.schema import lookup
from torch_samples import first_samples, op_db

REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError)
"""What torch raises for samples that it does not take."""

OPERATORS = [entry for entry in op_db if not entry.name.startswith("jiterator")]
"""The jiterator's operators are of GPUs only."""


class Watch(TorchDispatchMode):
    """Compares every call of a known overload with the tables.

    Attributes:
        calls: How many calls of each overload came.
        faults: Where the tables are wrong.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.faults: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs = kwargs or {}
        op_type = str(func)
        schema = lookup(op_type)
        if schema is None or not all(map(_has_memory, _tensors((args, kwargs)))):
            return func(*args, **kwargs)
        names = [argument.name for argument in schema.arguments]
        result, faults = watched(func, schema, {**dict(zip(names, args, strict=False)), **kwargs})
        self.calls[op_type] += 1
        self.faults += faults
        return result


PLAIN = (torch.Tensor, torch.nn.Parameter)
DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool)


def _has_memory(tensor: torch.Tensor) -> bool:
    is_strided = type(tensor) in PLAIN and tensor.layout is torch.strided
    return is_strided and not tensor._is_zerotensor() and tensor.device.type == "cpu"


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def watch_samples(count: int) -> Watch:
    """Watch the first samples of every operator: plain, in place, with ``out=``, and backward."""
    watch = Watch()
    for entry in OPERATORS:
        dtypes = [t for t in DTYPES if t in entry.dtypes]
        for call in _variants(entry, dtypes[0], count) if dtypes else ():
            torch.manual_seed(0)
            with contextlib.suppress(*REFUSALS), watch:
                call()
    return watch


def _variants(entry: Any, dtype: torch.dtype, count: int) -> Iterator[Any]:
    backward = entry.supports_autograd and dtype.is_floating_point
    for sample in first_samples(entry, dtype, count):
        args = (sample.input, *sample.args)
        yield lambda args=args, kwargs=sample.kwargs: entry(*args, **kwargs)
        yield lambda args=args, kwargs=sample.kwargs: _out(entry, args, kwargs)
        if entry.inplace_variant is not None:
            yield lambda args=args, kwargs=sample.kwargs: entry.inplace_variant(*args, **kwargs)
    if not backward:
        return
    for sample in first_samples(entry, dtype, count, requires_grad=True):
        args = (sample.input, *sample.args)
        yield lambda args=args, kwargs=sample.kwargs: _differentiate(entry, args, kwargs)


def _out(entry: Any, args: Any, kwargs: Any) -> None:
    if entry.supports_out:
        made = entry(*args, **kwargs)
        out = (
            tuple(map(torch.empty_like, made))
            if isinstance(made, tuple)
            else torch.empty_like(made)
        )
        entry(*args, **kwargs, out=out)


def _differentiate(entry: Any, args: Any, kwargs: Any) -> None:
    found = [t for t in _tensors(entry(*args, **kwargs)) if t.requires_grad]
    torch.autograd.backward([t.sum() for t in found])
