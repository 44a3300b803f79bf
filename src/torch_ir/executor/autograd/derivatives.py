"""Derivative formulas of torch: found by trial tensors for each call, not assumed.

A call is run once on tensors without data that require gradients, and the gradient is taken. What
torch would say at run time it says here: that a formula is missing, or it gives a node of the
autograd graph whose name says so. All is remembered for calls of equal types.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import torch
import torch.autograd.forward_ad as forward_ad

from torch_ir.errors import ExecutionError, first_line
from torch_ir.infer.meta import Exact, Pattern, Signature, Type, flatten
from torch_ir.torch_api import FakeTensorMode, enable_python_dispatcher


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


@lru_cache(maxsize=16_384)
def prove_formula(
    signature: Signature, wanted: tuple[bool, ...], *, forward: bool, autocast: Autocast | None
) -> Formula:
    """Take the gradient of a call on trial tensors.

    Args:
        signature: The call.
        wanted: For each of its tensors, in order, whether a gradient is wanted of it.
        forward: Carry tangents forward instead of gradients back.
        autocast: The region that it stands in, if any.

    Example:
        >>> x = Type((2, 3), (3, 1), torch.float32)
        >>> relu = Signature(torch.ops.aten.relu.default, (x,), ())
        >>> prove_formula(relu, (True,), forward=False, autocast=None)
        Formula(recorded=(True,), refusal='')
        >>> igamma = Signature(torch.ops.aten.igamma.default, (x, x), ())
        >>> prove_formula(igamma, (True, False), forward=False, autocast=None).refusal
        "the derivative for 'igamma: input' is not implemented."
    """
    region = autocast or nullcontext
    first: Exception | None = None
    for trial in (_Fake(), _Real()):  # the second where torch cannot tell without data
        try:
            with trial, torch.inference_mode(False), region():
                return _forward(signature, wanted) if forward else _backward(signature, wanted)
        except ExecutionError:  # it is not the call that is at fault
            raise
        except Exception as error:  # noqa: BLE001  # kernels and formulas raise anything; it is told
            first = first or error
    return Formula((), first_line(first))


# -- trial tensors --------------------------------------------------------------------------------


class _Fake:
    """Tensors without data."""

    def __enter__(self) -> None:
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._dispatcher = enable_python_dispatcher()
        self._mode.__enter__()
        self._dispatcher.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._dispatcher.__exit__(*error)
        self._mode.__exit__(*error)


class _Real:
    """Tensors of ones, which are indices and sizes too."""

    def __enter__(self) -> None:
        self._seed = torch.random.get_rng_state()

    def __exit__(self, *error: Any) -> None:
        torch.random.set_rng_state(self._seed)


class _Arguments:
    """The arguments of a trial call.

    Attributes:
        leaves: What gradients are taken of.
    """

    def __init__(self, signature: Signature, wanted: tuple[bool, ...], *, forward: bool):
        self.leaves: list[torch.Tensor] = []
        self._wanted = iter(wanted)
        self._forward = forward
        self.args = [self._argument(item) for item in signature.args]
        self.kwargs = {name: self._argument(item) for name, item in signature.kwargs}

    def _argument(self, item: Pattern) -> Any:
        match item:
            case Type():
                return self._tensor(item, is_wanted=next(self._wanted))
            case Exact(value=torch.device()):
                return torch.device("cpu")
            case Exact(value=value):
                return value
            case tuple():
                return [self._argument(part) for part in cast(tuple[Pattern, ...], item)]
            case _:
                return item

    def _tensor(self, kind: Type, *, is_wanted: bool) -> torch.Tensor:
        tensor = _ones(kind)
        if not is_wanted:
            return tensor
        if self._forward:
            return forward_ad.make_dual(tensor, torch.ones_like(tensor))
        self.leaves.append(tensor.requires_grad_())
        return tensor.clone()  # operators may write to it, but not to a leaf


def _ones(kind: Type) -> torch.Tensor:
    pairs = zip(kind.shape, kind.stride, strict=True)
    extent = 1 + sum([(size - 1) * stride for size, stride in pairs])
    return torch.ones(max(extent, 0), dtype=kind.dtype).as_strided(kind.shape, kind.stride)


def _backward(signature: Signature, wanted: tuple[bool, ...]) -> Formula:
    formula, made, leaves = _recorded(signature, wanted)
    ends = [item for item in made if item.requires_grad]
    if ends and not formula.refusal:
        torch.autograd.grad(ends, leaves, [torch.ones_like(e) for e in ends], allow_unused=True)
    return formula


def _recorded(
    signature: Signature, wanted: tuple[bool, ...]
) -> tuple[Formula, list[torch.Tensor], list[torch.Tensor]]:
    """What the call records, without taking a gradient; its tensors; and those it started from."""
    with torch.enable_grad():
        given = _Arguments(signature, wanted, forward=False)
        results = list(flatten(signature.operator(*given.args, **given.kwargs)))
    made = [item for item in results if isinstance(item, torch.Tensor)]
    recorded = tuple([isinstance(r, torch.Tensor) and r.requires_grad for r in results])
    missing = next((name for name in _nodes(made) if "NotImplemented" in name), None)
    return Formula(recorded, _NONE if missing else ""), made, given.leaves


_NONE = "it has none"


def _nodes(tensors: list[torch.Tensor]) -> Iterator[str]:
    """The names of the nodes of the autograd graph behind tensors."""
    pending: list[Any] = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen: set[Any] = set()
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            yield node.name()
            pending.extend(below for below, _ in node.next_functions if below is not None)


def _forward(signature: Signature, wanted: tuple[bool, ...]) -> Formula:
    """As backward; a result that drops its tangent, as kernels without a formula do, is told."""
    formula, _, _ = _recorded(signature, wanted)
    if formula.refusal:
        return formula
    with forward_level(), torch.no_grad():
        given = _Arguments(signature, wanted, forward=True)
        results = list(flatten(signature.operator(*given.args, **given.kwargs)))
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
