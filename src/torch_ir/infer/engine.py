"""The engine that says what a call gives: operators run on tensors without data.

Outcomes are kept for calls of equal signatures, since models repeat theirs; those of custom
operators are not, which may be registered anew.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import torch

from torch_ir.errors import ExecutionError, InvalidIRError, PassError, Raised, attempt, first_line
from torch_ir.frontend.meta import fake_tensor_mode
from torch_ir.frontend.symbols.scalars import expression
from torch_ir.infer.binder import bind
from torch_ir.infer.preconditions.table import find_shape_fault
from torch_ir.infer.recurrence import in_two_steps
from torch_ir.infer.resolve import map_argument, resolve_operator
from torch_ir.infer.types import Callee, CallSignature, Kind, Outcome, Region, TensorType, name_of
from torch_ir.ir import OpNode
from torch_ir.ir.expressions import Number
from torch_ir.ir.symbols import as_dim
from torch_ir.torch_api import (
    NEEDS_DATA,
    NO_FAKE_RESULT,
    OpOverload,
    ShapeEnv,
    enable_python_dispatcher,
    fake_tensor_log,
    storage_of,
)

T = TypeVar("T")

MAX_KNOWN = 65_536
"""How many outcomes are kept."""

_LASTING = frozenset({"aten", "prims", "dim_order_ops", "executorch_prims", "edge"})
"""The namespaces of operators that are never registered anew."""


# -- the cache ------------------------------------------------------------------------------------


_KNOWN: dict[object, object] = {}


def remembered(find: Callable[..., T], signature: CallSignature, *more: Hashable) -> T:
    """Return what a function finds about a call, which it is asked once unless it may change.

    Args:
        find: Takes the signature and what follows.
        signature: The call.
        more: What else the answer depends on.
    """
    op_type, attrs, operands, *others = signature
    if op_type.partition(".")[0] not in _LASTING:
        return find(signature, *more)
    slots = None if operands is None else tuple(operands.items())
    default = torch.get_default_dtype()  # of numbers and of what has no tensor to take it from
    key = (find, op_type, _exact(attrs), slots, default, *others, more)
    known = _KNOWN.get(key)
    if known is None:
        if len(_KNOWN) >= MAX_KNOWN:
            _KNOWN.clear()
        known = _KNOWN[key] = find(signature, *more)
    return cast(T, known)


def _exact(attrs: Mapping[str, Any]) -> Hashable:
    """The arguments as a key that tells 1 from 1.0 and True, and is cheaper than they are."""
    kinds: list[object] = []
    for value in attrs.values():
        kind = type(value)
        if kind is not tuple:
            kinds.append(kind)
        elif tuple in (inner := tuple(map(type, value))):
            return cast(Hashable, attrs)
        else:
            kinds.append(inner)
    return (*attrs.items(), *kinds)


# -- calls that may fail --------------------------------------------------------------------------


def refused(op_type: str, raised: Raised) -> Outcome:
    """Return the outcome of a call of an operator that raised an error."""
    error = raised.error
    if isinstance(error, NO_FAKE_RESULT) or isinstance(error.__cause__, NO_FAKE_RESULT):
        return Outcome(kind=_unknown_kind(op_type, error))
    if isinstance(error, InvalidIRError):  # an expression has no value
        return Outcome(kind="data-dependent")
    if isinstance(error, PassError | ExecutionError):
        return Outcome(kind="refused", refusal=error.message, remedy=error.remedy or "")
    return Outcome(kind="refused", refusal=first_line(error))


def _unknown_kind(op_type: str, error: Exception) -> Kind:
    """The kind of a call without a result: it needs data, or nobody wrote a fake kernel."""
    operator = resolve_operator(op_type)
    if not isinstance(operator, OpOverload) or operator.namespace in ("aten", "prims"):
        return "data-dependent"
    tags = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
    needs_data = bool(tags & {*operator.tags}) or any(
        isinstance(raised, NEEDS_DATA) for raised in (error, error.__cause__)
    )
    return "data-dependent" if needs_data else "no-fake-kernel"


@contextmanager
def outside_of_modes() -> Generator[None]:
    """Leave the caller's modes: torch's decompositions ask for them, and remember the answer."""
    with torch.inference_mode(False), torch.autocast("cpu", enabled=False):
        yield


@contextmanager
def quiet() -> Generator[None]:
    """Keep torch from logging the refusals that are asked for: they are told as outcomes."""
    before = fake_tensor_log.disabled
    fake_tensor_log.disabled = True
    try:
        yield
    finally:
        fake_tensor_log.disabled = before


# -- calls of known sizes -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trial:
    """A call that was made: its tensors and arguments, and what it gave."""

    given: Sequence[torch.Tensor]
    args: list[Any]
    kwargs: dict[str, Any]
    made: Any

    def outcome(self) -> Outcome:
        """Return the types of the results, and whose storage they have."""
        flat = list(flatten(self.made))
        types = tuple([_type(item) for item in flat])
        shares = tuple([sharing(item, self.given) for item in flat])
        known = [t is not None and len(t.strides) == len(t.shape) for t in types]
        is_ok = all(
            is_known or not isinstance(item, torch.Tensor)
            for item, is_known in zip(flat, known, strict=True)
        )
        return Outcome(types, shares, "ok" if is_ok else "data-dependent")


def trial(signature: CallSignature, device: str = "cpu") -> Trial:
    """Make a call with empty tensors of a device, fake ones where fake tensors are in force."""
    given = [kind.empty(device) for kind in signature.types]
    args, kwargs = _bound(signature, given, device)
    fault = find_shape_fault(signature.op_type, args, kwargs)
    if fault is not None:
        raise ExecutionError(fault)  # some of these kernels die even without data
    operator: Any = resolve_operator(signature.op_type)
    return Trial(given, args, kwargs, operator(*args, **kwargs))


def call_with(
    signature: CallSignature,
    values: Sequence[torch.Tensor],
    operator: Callable[..., Any] | None = None,
) -> Any:
    """Make a call with given tensors, on the CPU; of the operator, or of what stands for it."""
    args, kwargs = _bound(signature, values, "cpu")
    called: Any = resolve_operator(signature.op_type) if operator is None else operator
    return called(*args, **kwargs)


def _bound(signature: CallSignature, values: Sequence[torch.Tensor], device: str) -> Any:
    """Positional and named arguments, whose devices are the given one."""
    where = torch.device(device)
    bound = bind(signature, values, dict(signature.symbols))
    return map_argument(bound, lambda leaf: where if isinstance(leaf, torch.device) else leaf)


def evaluate(signature: CallSignature) -> Outcome:
    """Return the outcome of a call under torch's fake tensors, which know the CPU's peculiarities.

    Raises:
        ExecutionError: torch has no such operator.

    Example:
        >>> from torch_ir.ir import FrozenDict
        >>> x = TensorType((2, 3), "float32", (3, 1))
        >>> evaluate(CallSignature("aten.t.default", FrozenDict(), FrozenDict(self=0), (x,)))
        Outcome(results=(TensorType(shape=(3, 2), dtype='float32', strides=(1, 3)),), \
shares=(frozenset({0}),), kind='ok', refusal='', remedy='')
    """
    return in_two_steps(partial(remembered, _evaluate), signature)


def _evaluate(signature: CallSignature) -> Outcome:
    return _on_fakes(signature, Trial.outcome, None)


def evaluate_unbacked(signature: CallSignature) -> Outcome:
    """Return the outcome of a call with sizes that data decides as symbols of torch's own.

    Raises:
        ExecutionError: torch has no such operator.

    Example:
        >>> from torch_ir.ir import FrozenDict
        >>> x = TensorType((2, 3), "float32", (3, 1))
        >>> nonzero = CallSignature("aten.nonzero.default", FrozenDict(), FrozenDict(self=0), (x,))
        >>> evaluate_unbacked(nonzero).results
        (TensorType(shape=(SymExpr('u0'), 2), dtype='int64', strides=()),)
    """
    return in_two_steps(partial(remembered, _evaluate_unbacked), signature)


def _evaluate_unbacked(signature: CallSignature) -> Outcome:
    return _on_fakes(signature, _open_outcome, ShapeEnv())


def _open_outcome(made: Trial) -> Outcome:
    types = tuple([_open_type(item) for item in flatten(made.made)])
    return Outcome(types, tuple([frozenset[int]()] * len(types)), "data-dependent")


def _open_type(made: object) -> TensorType | None:
    if not isinstance(made, torch.Tensor):
        return None
    sizes = [size if type(size) is int else as_dim(expression(size)) for size in made.shape]
    return TensorType(tuple(sizes), name_of(made.dtype), ())


def _on_fakes(
    signature: CallSignature, look: Callable[[Trial], Outcome], sizes: ShapeEnv | None
) -> Outcome:
    """What is seen of a call of fake tensors; with ``sizes``, data may decide some."""
    operator = resolve_operator(signature.op_type)  # an error is not remembered
    if not isinstance(operator, OpOverload) or draws_by_name(signature):
        return Outcome(kind="data-dependent")
    with ExitStack() as stack:
        # with torch's Python implementations, as torch.export traces: some kernels would read data
        for context in (
            quiet(),
            fake_tensor_mode(sizes, allow_non_fake_inputs=True),
            enable_python_dispatcher(),
            torch.no_grad(),
            *map(autocast, signature.regions),
        ):
            stack.enter_context(cast(Any, context))
        made = attempt(trial, signature)
        return refused(signature.op_type, made) if isinstance(made, Raised) else look(made)


def autocast(region: Region) -> Any:
    """Return the context of an autocast region."""
    device, dtype, enabled = region
    kind = getattr(torch, dtype) if dtype else None
    return torch.autocast(device, dtype=kind, enabled=enabled, cache_enabled=False)


def call_at(
    node: OpNode,
    types: Sequence[TensorType],
    symbols: Mapping[str, Number],
    regions: tuple[Region, ...] = (),
) -> Outcome:
    """Return the outcome of a node for inputs of known sizes.

    Args:
        node: The node; a higher-order operator is data-dependent.
        types: The type of each of its inputs, without symbols.
        symbols: The value of each symbol.
        regions: The autocast regions around it.
    """
    try:
        return evaluate(CallSignature.of(node, tuple(types), symbols, regions))
    except ExecutionError as error:  # torch has no such operator
        return Outcome(kind="refused", refusal=error.message, remedy=error.remedy or "")


def draws_by_name(node: Callee) -> bool:
    """Return whether a node draws from a generator of the user's, which no trial may advance."""
    return isinstance(node.attrs.get("generator"), str)


# -- results --------------------------------------------------------------------------------------


def flatten(made: object) -> Iterator[object]:
    """Yield the results of an operator, one after the other; None counts as one."""
    if isinstance(made, list | tuple):
        for item in cast(list[object], made):
            yield from flatten(item)
    else:
        yield made


def _type(made: object) -> TensorType | None:
    if not isinstance(made, torch.Tensor) or any(type(size) is not int for size in made.shape):
        return None  # no tensor, or its size depends on data
    return TensorType.of(made)


def sharing(made: object, given: Sequence[torch.Tensor]) -> frozenset[int]:
    """Return the positions of the tensors that have the storage of a result."""
    if not isinstance(made, torch.Tensor) or made.layout != torch.strided:
        return frozenset()
    storage = storage_of(made)
    dense = [(i, other) for i, other in enumerate(given) if other.layout == torch.strided]
    return frozenset([i for i, other in dense if storage_of(other) == storage])
