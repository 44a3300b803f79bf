"""The aten calls that PyTorch's own samples make, each with what torch gave."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_ir.semantics import has_denotation
from torch_ir.semantics.arguments import as_array

OPERATORS = [entry for entry in op_db if not entry.name.startswith("jiterator")]
"""The jiterator's operators are of GPUs only."""

DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.complex64,
    torch.int64,
    torch.uint8,
    torch.bool,
)
BACKWARD = {
    "_segment_reduce",
    "nn.functional.adaptive_avg_pool2d",
    "nn.functional.avg_pool2d",
    "nn.functional.avg_pool3d",
    "nn.functional.batch_norm",
    "nn.functional.binary_cross_entropy",
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.conv_transpose2d",
    "nn.functional.ctc_loss",
    "nn.functional.embedding",
    "nn.functional.embedding_bag",
    "nn.functional.group_norm",
    "nn.functional.layer_norm",
    "nn.functional.max_pool2d",
    "nn.functional.max_pool3d",
    "nn.functional.multi_margin_loss",
    "nn.functional.multilabel_margin_loss",
}
"""The operators whose gradients are operators of their own."""

ELSEWHERE = {"device", "layout", "pin_memory", "memory_format", "generator", "non_blocking"}
"""Arguments that say where or how a tensor is kept; a denotation takes none."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an overload: its arguments by their names in the schema, and its result."""

    op_type: str
    arguments: dict[str, Any]
    result: Any


def to_numpy(value: Any) -> Any:
    """What a denotation takes for an argument, or what it should give for a result."""
    if isinstance(value, torch.Tensor):
        return as_array(_copy(value.detach()))
    if isinstance(value, torch.dtype):
        return np.dtype(getattr(ml_dtypes, str(value)[6:], None) or str(value)[6:])
    if isinstance(value, list | tuple):
        return type(value)(map(to_numpy, value))
    return value


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that lies in memory as the tensor does, on which some bounds depend."""
    if tensor.is_conj() or tensor.is_neg() or not tensor.numel():
        return tensor.clone()
    if not all(tensor.stride()):  # repeated, of which the first are all
        first = tensor[tuple([slice(None if step else 1) for step in tensor.stride()])]
        return first.clone().expand(tensor.shape)
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return copy.copy_(tensor)


def bound(overload: torch._ops.OpOverload, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments by name."""
    names = [argument.name for argument in overload._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return {name: value for name, value in given.items() if name not in ELSEWHERE}


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether its elements are all of its storage, in order; else ``as_strided`` sees others."""
    return tensor.is_contiguous() and tensor.nbytes == tensor.untyped_storage().nbytes()


class Recorder(TorchDispatchMode):
    """Keeps every call of an overload that has a denotation and changes none of its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs = kwargs or {}
        op_type = str(func)
        known = op_type.startswith("aten.") and has_denotation(op_type)
        if not known or (func is torch.ops.aten.as_strided.default and not is_whole(args[0])):
            return func(*args, **kwargs)
        with _conjugating():
            arguments = to_numpy(list(bound(func, args, kwargs).values()))
            named = dict(zip(bound(func, args, kwargs), arguments, strict=True))
            result = func(*args, **kwargs)
            self.calls.append(Call(op_type, named, to_numpy(result)))
        return result


def _conjugating() -> Any:
    """Where conjugates are made as outside of a mode: torch leaves those of kernels' own out."""
    key = torch._C.DispatchKey.Conjugate
    return torch._C._SetExcludeDispatchKeyGuard(key, False)


def composite(operator: Any, sample: Any) -> Any:
    """The overload of the operator's own name that takes this sample, or None.

    What is composite never comes to a :class:`Recorder`; it sees the parts.
    """
    packet = getattr(torch.ops.aten, operator.aten_name or operator.name, None)
    if packet is None or packet is torch.ops.aten.as_strided:
        return None
    arguments = (sample.input, *sample.args)
    with contextlib.suppress(RuntimeError):  # no overload takes them
        name = torch._C._jit_resolve_packet(
            f"aten::{packet.__name__}", *arguments, **sample.kwargs
        )
        return getattr(packet, name or "default")
    return None


def recorded(operator: Any, dtype: torch.dtype, count: int, backward: bool) -> Iterator[Call]:
    """The calls that the operator's first samples make, each with what torch gave."""
    torch.manual_seed(0)
    samples = operator.sample_inputs("cpu", dtype, requires_grad=backward)
    for index, sample in enumerate(samples):
        if index == count:
            return
        recorder = Recorder()
        with contextlib.suppress(RuntimeError, ValueError, TypeError, IndexError), recorder:
            result = operator(sample.input, *sample.args, **sample.kwargs)  # torch may refuse it
            if backward:
                made = [t for t in tree_leaves(result) if getattr(t, "requires_grad", False)]
                torch.autograd.backward([(t * torch.rand_like(t)).sum() for t in made])
        overload = composite(operator, sample)
        seen = {call.op_type for call in recorder.calls}
        if overload is not None and has_denotation(str(overload)) and str(overload) not in seen:
            with contextlib.suppress(RuntimeError, ValueError, TypeError, IndexError):
                arguments = bound(overload, (sample.input, *sample.args), sample.kwargs)
                named = {name: to_numpy(value) for name, value in arguments.items()}
                result = overload(sample.input, *sample.args, **sample.kwargs)
                yield Call(str(overload), named, to_numpy(result))
        yield from recorder.calls
