"""Faults of kernels: calls over operators, types, sizes, masks and layouts, made wrong.

Each call of ``measure_thresholds.cases`` is computed by torch and then spoiled. A fault is *above
the threshold* where it moves some element by more than what the tolerance allows, and *below* it
elsewhere: those no judge that knows only the meaning can tell from rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from measure_thresholds import MASKS, TYPES, Case, cases
from semantics_calls import bound as named
from semantics_calls import to_numpy
from torch_ir.semantics import denotation
from torch_ir.semantics.tolerance import bound

SIZES = (4, 16)
LAYOUTS = ("contiguous", "view")
Spoil = Callable[[torch.Tensor], torch.Tensor]


def _one(value: torch.Tensor, change: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    """The result with its greatest finite element changed."""
    made = value.clone(memory_format=torch.contiguous_format)
    flat = made.view(-1)
    sizes = torch.where(flat.isfinite(), flat.abs(), -1.0)
    place = int(sizes.float().argmax())
    flat[place] = change(flat[place].double())
    return made


def _relative(units: int) -> Spoil:
    return lambda value: _one(value, lambda x: x * (1 + units * torch.finfo(value.dtype).eps))


def _part(value: torch.Tensor, fill: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    made = value.clone(memory_format=torch.contiguous_format)
    flat = made.view(-1)
    half = len(flat) // 2
    flat[half:] = fill(flat)[: len(flat) - half]
    return made


def _exchanged(value: torch.Tensor) -> torch.Tensor:
    made = value.clone(memory_format=torch.contiguous_format)
    flat = made.view(-1)
    low, high = int(flat.float().argmin()), int(flat.float().argmax())
    flat[[low, high]] = flat[[high, low]]
    return made


KINDS: Mapping[str, Spoil] = {
    "zeros": torch.zeros_like,
    "half of it zero": lambda value: _part(value, torch.zeros_like),
    "half of it stale": lambda value: _part(value, torch.clone),
    "negated": torch.neg,
    "shifted by one": lambda value: value.roll(1, -1) if value.ndim else value + 1,
    "two elements exchanged": _exchanged,
    "one element off by 8 units": _relative(8),
    "one element off by a 64th": lambda value: _one(value, lambda x: x * (1 + 1 / 64)),
    "one element NaN": lambda value: _one(value, lambda _: float("nan")),
    "computed in bfloat16": lambda value: (value * 1.0).bfloat16().mul(1.004).to(value.dtype),
}


@dataclass(frozen=True)
class KernelFault:
    """A call, and what its kernel does to the first result.

    Attributes:
        case: The operator and how its arguments are made.
        dtype: Their element type.
        size: How large they are.
        mask: What is put on a part of each row.
        layout: Whether the operands are views of other memory.
        what: What is wrong.
    """

    case: Case
    dtype: torch.dtype
    size: int
    mask: float | None
    layout: str
    what: str

    @property
    def op(self) -> str:
        """The operator."""
        return self.case.op_type

    @property
    def told(self) -> str:
        """What is wrong, and where."""
        mask = "" if self.mask is None else f", mask {self.mask:g}"
        return f"{self.what} ({str(self.dtype)[6:]}, size {self.size}{mask}, {self.layout})"


def kernel_faults() -> Iterator[KernelFault]:
    """Every fault, in a fixed order."""
    for case in cases():
        for dtype in TYPES:
            for mask in MASKS if case.masked else MASKS[:1]:
                if mask is not None and mask < torch.finfo(dtype).min:
                    continue
                for index, size in enumerate(SIZES):
                    for what in KINDS:
                        yield KernelFault(case, dtype, size, mask, LAYOUTS[index], what)


@dataclass(frozen=True)
class Call:
    """A call as a program's parts: its tensors, and all else by name."""

    tensors: dict[str, torch.Tensor]
    attrs: dict[str, Any]
    limits: np.ndarray[Any, Any]


@cache
def call_of(case: Case, dtype: torch.dtype, size: int, mask: float | None, layout: str) -> Call:
    """The arguments of a case, and what the tolerance allows in its first result."""
    generator = torch.Generator().manual_seed(size)

    def make(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    given = named(operator(case.op_type), case.arguments(make, size, mask), {})
    tensors = {k: v for k, v in given.items() if isinstance(v, torch.Tensor)}
    attrs = {k: v for k, v in given.items() if not isinstance(v, torch.Tensor)}
    if layout == "view":
        views = {name: _as_view(tensor) for name, tensor in tensors.items()}
        with suppress(RuntimeError):  # some kernels take whole tensors alone
            operator(case.op_type)(**views, **attrs)
            tensors = views
    arguments = {name: to_numpy(value) for name, value in (attrs | tensors).items()}
    with np.errstate(all="ignore"):
        meant = denotation(case.op_type).function(**arguments)
        results = list(meant) if isinstance(meant, tuple) else [meant]
        (limits, *_) = bound(case.op_type, arguments, results) or [np.zeros(results[0].shape)]
    return Call(tensors, attrs, limits)


def _as_view(tensor: torch.Tensor) -> torch.Tensor:
    """The same values as a part of other memory, its axes in another order."""
    whole = torch.zeros([size + 1 for size in reversed(tensor.shape)], dtype=tensor.dtype)
    view = whole[tuple(slice(1, None) for _ in tensor.shape)]
    view = view.permute(*reversed(range(tensor.ndim)))
    return view.copy_(tensor)


def operator(op_type: str) -> Any:
    """torch's operator of an exact overload."""
    namespace, base, overload = op_type.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload)


def spoiled(fault: KernelFault, call: Call) -> tuple[torch.Tensor, torch.Tensor]:
    """The first result as torch computes it, and as the faulty kernel does."""
    made = operator(fault.op)(**call.tensors, **call.attrs)
    right = made[0] if isinstance(made, tuple) else made
    return right, KINDS[fault.what](right)


def is_above(fault: KernelFault, call: Call) -> bool:
    """Whether some element is off by more than twice what is allowed, torch's error included."""
    right, wrong = (value.double().numpy() for value in spoiled(fault, call))
    with np.errstate(all="ignore"):
        moved = np.abs(right - wrong)
    return bool(((moved > 2 * call.limits) | (np.isnan(wrong) != np.isnan(right))).any())


def kernel(fault: KernelFault, names: Sequence[str]) -> tuple[str, Any]:
    """The operator, and the kernel that computes it wrongly from operands of these names."""

    def run(inputs: Sequence[torch.Tensor], attributes: Any) -> list[torch.Tensor]:
        given = dict(zip(names, inputs, strict=True)) | dict(attributes)
        made = operator(fault.op)(**given)
        results = list(made) if isinstance(made, tuple) else [made]
        return [KINDS[fault.what](results[0]), *results[1:]]

    return fault.op, run
