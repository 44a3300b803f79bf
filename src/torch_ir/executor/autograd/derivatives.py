"""Derivative formulas of torch: found by trial tensors for each call, not assumed.

A call is run once on tensors without data that require gradients, and the gradient is taken. What
torch would say at run time it says here: that a formula is missing, or it gives a node of the
autograd graph whose name says so. All is remembered for calls of equal types.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.autograd.forward_ad as forward_ad

from torch_ir.errors import ExecutionError, Raised, attempt, first_line
from torch_ir.executor.autograd.formulas import FORMULAS
from torch_ir.frontend.meta import fake_tensor_mode
from torch_ir.infer.engine import call_with, flatten, remembered
from torch_ir.infer.types import CallSignature, TensorType
from torch_ir.torch_api import enable_python_dispatcher
from torch_ir.torch_modes import is_in_forward_level


@dataclass(frozen=True, slots=True)
class Autocast:
    """A region in which torch chooses the types of operators.

    Attributes:
        dtype: The type that it chooses.
        is_enabled: Whether it does.
    """

    dtype: torch.dtype
    is_enabled: bool

    def __call__(self) -> AbstractContextManager[Any]:
        """The region as a context."""
        return torch.autocast("cpu", self.dtype, enabled=self.is_enabled)


@dataclass(frozen=True, slots=True)
class Formula:
    """What was found about the gradient of a call.

    Attributes:
        recorded: For each result, flattened: whether it depends differentiably on an argument of
            which a gradient is wanted.
        refusal: Why there is no gradient; empty if there is one.
    """

    recorded: tuple[bool, ...]
    refusal: str = ""


def prove_formula(
    signature: CallSignature, wanted: tuple[bool, ...], *, forward: bool, autocast: Autocast | None
) -> Formula:
    """Take the gradient of a call on trial tensors.

    Args:
        signature: The call.
        wanted: For each of its types whether a gradient is wanted of it.
        forward: Carry tangents forward instead of gradients back.
        autocast: The region that it stands in, if any.

    Example:
        >>> from torch_ir.ir import FrozenDict
        >>> x = TensorType((2, 3), "float32", (3, 1))
        >>> relu = CallSignature("aten.relu.default", FrozenDict(), FrozenDict(self=0), (x,))
        >>> prove_formula(relu, (True,), forward=False, autocast=None)
        Formula(recorded=(True,), refusal='')
        >>> both = FrozenDict(self=0, other=1)
        >>> igamma = CallSignature("aten.igamma.default", FrozenDict(), both, (x, x))
        >>> prove_formula(igamma, (True, False), forward=False, autocast=None).refusal
        "the derivative for 'igamma: input' is not implemented."
    """
    return remembered(_prove, signature, wanted, forward, autocast)


def _prove(
    signature: CallSignature, wanted: tuple[bool, ...], forward: bool, autocast: Autocast | None
) -> Formula:
    region = autocast or nullcontext
    failures: list[Exception] = []
    for tensors in (_without_data, _with_ones):  # the second where torch cannot tell without data

        def tried(tensors: Callable[[], AbstractContextManager[None]] = tensors) -> Formula:
            with tensors(), torch.inference_mode(False), region():
                return _forward(signature, wanted) if forward else _backward(signature, wanted)

        found = attempt(tried)
        if not isinstance(found, Raised):
            return found
        if isinstance(found.error, ExecutionError):  # it is not the call that is at fault
            raise found.error
        failures.append(found.error)
    return Formula((), first_line(failures[0]))


# -- trial tensors --------------------------------------------------------------------------------


@contextmanager
def _without_data() -> Generator[None]:
    with fake_tensor_mode(allow_non_fake_inputs=True), enable_python_dispatcher():
        yield


def _with_ones() -> AbstractContextManager[None]:
    """Tensors have ones, which are indices and sizes too; no state of random numbers changes."""
    return torch.random.fork_rng(devices=())


def _results(signature: CallSignature, values: Sequence[torch.Tensor]) -> list[object]:
    return list(flatten(call_with(signature, values, FORMULAS.get(signature.op_type))))


def _ones(kind: TensorType, *, is_dual: bool = False) -> torch.Tensor:
    shape, strides = cast(tuple[int, ...], kind.shape), cast(tuple[int, ...], kind.strides)
    pairs = zip(shape, strides, strict=True)
    extent = 1 + sum([(size - 1) * stride for size, stride in pairs])
    dtype: torch.dtype = getattr(torch, kind.dtype)
    memory = torch.ones(max(extent, 0), dtype=dtype)
    if is_dual:  # of the memory: torch makes no dual of what lies in one place twice
        memory = forward_ad.make_dual(memory, torch.ones_like(memory))
    return memory.as_strided(shape, strides)


def _backward(signature: CallSignature, wanted: tuple[bool, ...]) -> Formula:
    formula, made, leaves = _recorded(signature, wanted)
    ends = [item for item in made if item.requires_grad]
    if ends and not formula.refusal:
        torch.autograd.grad(ends, leaves, [torch.ones_like(e) for e in ends], allow_unused=True)
    return formula


def _recorded(
    signature: CallSignature, wanted: tuple[bool, ...]
) -> tuple[Formula, list[torch.Tensor], list[torch.Tensor]]:
    """What the call records, without taking a gradient; its tensors; and those it started from."""
    pairs = zip(signature.types, wanted, strict=True)
    with torch.enable_grad():
        given = [_ones(kind).requires_grad_(flag) for kind, flag in pairs]
        # operators may write to what they take, but not to a leaf
        taken = [tensor.clone() if tensor.requires_grad else tensor for tensor in given]
        results = _results(signature, taken)
    made = [item for item in results if isinstance(item, torch.Tensor)]
    recorded = tuple([isinstance(r, torch.Tensor) and r.requires_grad for r in results])
    names = (node.name() for node in backward_nodes(item.grad_fn for item in made))
    missing = next((name for name in names if "NotImplemented" in name), None)
    leaves = [tensor for tensor in given if tensor.requires_grad]
    return Formula(recorded, _NONE if missing else ""), made, leaves


_NONE = "it has none"


def backward_nodes(roots: Iterable[Any]) -> Iterator[Any]:
    """Yield each node of autograd's graph below some of them, once; None is no node."""
    seen: set[Any] = set()
    pending = list(roots)
    while pending:
        node = pending.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            pending.extend(below for below, _ in node.next_functions)


def _forward(signature: CallSignature, wanted: tuple[bool, ...]) -> Formula:
    """As backward; a result that drops its tangent, as kernels without a formula do, is told."""
    formula, _, _ = _recorded(signature, wanted)
    if formula.refusal:
        return formula
    level = nullcontext() if is_in_forward_level() else forward_level()  # they do not nest
    with level, torch.no_grad():
        pairs = zip(signature.types, wanted, strict=True)
        results = _results(signature, [_ones(kind, is_dual=flag) for kind, flag in pairs])
        for result, is_recorded in zip(results, formula.recorded, strict=True):
            if is_recorded and forward_ad.unpack_dual(cast(Any, result)).tangent is None:
                return Formula(formula.recorded, _NONE)
    return formula


_LEVEL = threading.RLock()


@contextmanager
def forward_level() -> Generator[None]:
    """Enter a level of forward-mode differentiation; torch has one for all threads.

    Raises:
        ExecutionError: There is one around already.
    """
    with _LEVEL:
        try:
            level = forward_ad.enter_dual_level()
        except RuntimeError as error:
            raise ExecutionError(
                "forward-mode differentiation does not nest: another level is around this call"
            ) from error
        try:
            yield
        finally:
            forward_ad.exit_dual_level(level=level)
