"""Calls on meta tensors, and faster bindings that dispatch to the same overload.

A call is run once on meta tensors of its arguments' types: that says what it gives. Then torch's
own Python bindings of that name are called under a mode that records what they dispatch: one that
reaches exactly this overload with exactly these arguments may stand for it, and saves the look-ups
of the operator object. Both are remembered for calls of equal types.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_ir.errors import first_line
from torch_ir.ir.tensor import row_major
from torch_ir.torch_api import (
    NO_FAKE_RESULT,
    BelowViewTracking,
    FakeTensorMode,
    OpOverload,
    enable_python_dispatcher,
    fake_tensor_log,
    pytree,
)


class Type(NamedTuple):
    """The type of one tensor.

    Attributes:
        shape: Its sizes.
        stride: Its strides, in elements.
        dtype: Its element type.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Type:
        """Return the type of a strided tensor."""
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype)

    def meta(self) -> torch.Tensor:
        """Make a tensor of this type without data."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")

    def fake(self) -> torch.Tensor:
        """Make a tensor of this type, a fake one where fake tensors are in force."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype)


class Exact(NamedTuple):
    """A number or string of a call's types: ``1``, ``1.0`` and ``True`` are three."""

    kind: type
    value: Any


Pattern: TypeAlias = Any
"""An argument of a :class:`Signature`: a Type, an Exact, a tuple of patterns, or None."""


class Signature(NamedTuple):
    """A call with its tensors replaced by their types.

    Attributes:
        operator: What is called.
        args: The positional arguments.
        kwargs: The keyword arguments.
    """

    operator: OpOverload
    args: tuple[Pattern, ...]
    kwargs: tuple[tuple[str, Pattern], ...]


def in_row_major_order(signature: Signature) -> Signature:
    """Replace the tensors of a call by contiguous ones of the same shapes."""

    def ordered(item: Pattern) -> Pattern:
        if isinstance(item, Type):
            return Type(item.shape, row_major(item.shape), item.dtype)
        if type(item) is tuple:  # a list, not an Exact
            return tuple([ordered(part) for part in cast(tuple[Pattern, ...], item)])
        return item

    args = tuple([ordered(item) for item in signature.args])
    kwargs = tuple([(name, ordered(item)) for name, item in signature.kwargs])
    return Signature(signature.operator, args, kwargs)


@dataclass(frozen=True, slots=True)
class Binding:
    """A way to call an operator.

    Attributes:
        home: The module that has the function; empty for a method of the first argument.
        name: The function's name.
        is_spread: Whether the last argument, a list, is given item by item.
    """

    home: str
    name: str
    is_spread: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """One result of a call.

    Attributes:
        type: Its type.
        shares: Positions, among the call's tensors in order, whose storage it has.
    """

    type: Type
    shares: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found about a call.

    Attributes:
        results: Its results, flattened: None for what is no tensor. None as a whole if they depend
            on data or are not dense.
        refusal: Why torch refuses the call; empty if it does not.
        binding: A binding that reaches the operator; None if none is shown to.
        in_place: A binding that reaches the operator's in-place variant, or None.
        takes_tensor: Whether the second argument, a number, may as well be a tensor without
            dimensions of the result's type.
    """

    results: tuple[Result | None, ...] | None
    refusal: str = ""
    binding: Binding | None = None
    in_place: Binding | None = None
    takes_tensor: bool = False


@lru_cache(maxsize=16_384)
def prove(signature: Signature) -> Proof:
    """Run a call on tensors without data, and look for a binding that reaches its operator.

    Example:
        >>> x = Type((2, 3), (3, 1), torch.float32)
        >>> proof = prove(Signature(torch.ops.aten.relu.default, (x,), ()))
        >>> proof.results[0].type == x, proof.binding.name, proof.in_place.name
        (True, 'relu', 'relu_')
    """
    with no_gradients():
        try:
            args, kwargs = _arguments(signature, _ON_META)
            made = signature.operator(*args, **kwargs)
        except Exception:  # noqa: BLE001  # a kernel may lack a meta version in any way
            return prove_fake(signature)
        results = _results(made, args, kwargs)
        if results is None:
            return prove_fake(signature)
        binding = _first(_candidates(signature), signature.operator, args, kwargs, made)
        in_place = _in_place(signature, args, kwargs, results)
    return Proof(results, "", binding, in_place, _takes_tensor(signature, results))


@lru_cache(maxsize=16_384)
def prove_fake(signature: Signature) -> Proof:
    """Evaluate a call on torch's fake tensors, which know the CPU's peculiarities."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with _quiet(), mode, enable_python_dispatcher(), torch.no_grad():
        try:
            args, kwargs = _arguments(signature, _ON_FAKE)
            made = signature.operator(*args, **kwargs)
        except NO_FAKE_RESULT:
            return Proof(None)
        except Exception as error:  # noqa: BLE001  # kernels raise anything; it is told
            if isinstance(error.__cause__, NO_FAKE_RESULT):
                return Proof(None)
            return Proof(None, refusal=first_line(error))
        return Proof(_results(made, args, kwargs))


@contextmanager
def _quiet() -> Generator[None]:
    """Keep torch from logging the refusals that a proof asks for: they are told as faults."""
    before = fake_tensor_log.disabled
    fake_tensor_log.disabled = True
    try:
        yield
    finally:
        fake_tensor_log.disabled = before


class no_gradients:  # noqa: N801  # a context, spelled as torch.no_grad is
    """Run below autograd: results are plain tensors, and composite operators stay whole."""

    def __enter__(self) -> None:
        self._before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        self._guard = BelowViewTracking()
        self._guard.__enter__()

    def __exit__(self, *error: object) -> None:
        self._guard.__exit__(None, None, None)
        torch.set_grad_enabled(self._before)


_ARITHMETIC = (
    torch.ops.aten.add.Tensor,
    torch.ops.aten.sub.Tensor,
    torch.ops.aten.mul.Tensor,
    torch.ops.aten.div.Tensor,
)
_COMPUTED_AS_THEY_ARE = (torch.float32, torch.float64, torch.int32, torch.int64)


def _takes_tensor(signature: Signature, results: tuple[Result | None, ...]) -> bool:
    """Whether a number may be given as a tensor, made once instead of at every call.

    torch wraps a number into a tensor and converts that to the type in which it computes. Where
    this is the first argument's own type, which weighs more than a number, the converted tensor
    gives the same call of the same kernel. (Half types read the number itself, in more bits.)
    """
    if signature.operator not in _ARITHMETIC or signature.kwargs or len(signature.args) != 2:
        return False
    first, second = signature.args
    made = results[0]
    return (
        isinstance(first, Type)
        and isinstance(second, Exact)
        and second.kind in (int, float)
        and made is not None
        and made.type.dtype == first.dtype
        and first.dtype in _COMPUTED_AS_THEY_ARE
        and (second.kind is int or first.dtype.is_floating_point)
        and -(2**63) <= second.value < 2**63
    )


# -- arguments and results ------------------------------------------------------------------------

_ON_META, _ON_FAKE = "meta", "cpu"


def _arguments(signature: Signature, device: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args = tuple([_argument(item, device) for item in signature.args])
    return args, {name: _argument(item, device) for name, item in signature.kwargs}


def _argument(item: Pattern, device: str) -> Any:
    match item:
        case Type():
            return item.meta() if device == _ON_META else item.fake()
        case Exact(value=torch.device()):
            return torch.device(device)
        case Exact(value=value):
            return value
        case tuple():
            return [_argument(part, device) for part in cast(tuple[Pattern, ...], item)]
        case _:
            return item


def _results(
    made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Result | None, ...] | None:
    given = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    results: list[Result | None] = []
    for item in flatten(made):
        if not isinstance(item, torch.Tensor):
            results.append(None)
            continue
        if item.layout != torch.strided or any(isinstance(s, torch.SymInt) for s in item.shape):
            return None
        results.append(Result(Type.of(item), tuple(_sharing(item, given))))
    return tuple(results)


def flatten(made: object) -> Iterator[object]:
    """Yield the results of an operator, one after the other; None counts as one."""
    if isinstance(made, list | tuple):
        for item in cast(list[object], made):
            yield from flatten(item)
    else:
        yield made


def _sharing(tensor: torch.Tensor, given: Sequence[torch.Tensor]) -> Iterator[int]:
    storage = tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]  # without data there is no pointer to compare
    for position, other in enumerate(given):
        if other.untyped_storage()._cdata == storage:  # pyright: ignore[reportPrivateUsage]  # as above
            yield position


# -- bindings -------------------------------------------------------------------------------------

_HOMES = {
    "torch": torch._C._VariableFunctions,  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # what torch.add and its like are
    "torch._C._nn": torch._C._nn,  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # what torch.nn.functional calls
    "torch._C._linalg": torch._C._linalg,  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # what torch.linalg is
    "torch._C._fft": torch._C._fft,  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # what torch.fft is
    "torch._C._special": torch._C._special,  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]  # what torch.special is
}


def _candidates(signature: Signature) -> Iterator[Binding]:
    """The bindings that have the operator's name, those that cost least first."""
    namespace, _, rest = str(signature.operator).partition(".")
    if namespace != "aten":
        return
    yield from _bindings_named(rest.partition(".")[0], signature)


def _bindings_named(name: str, signature: Signature) -> Iterator[Binding]:
    args = signature.args
    if args and isinstance(args[0], Type) and hasattr(torch.Tensor, name):
        last = args[-1]
        is_sizes = type(last) is tuple and bool(last) and all(_is_int(part) for part in last)
        if is_sizes and not signature.kwargs:
            yield Binding("", name, is_spread=True)
        yield Binding("", name)
    for home, module in _HOMES.items():
        if hasattr(module, name):
            yield Binding(home, name)


def _is_int(item: Pattern) -> bool:
    return isinstance(item, Exact) and item.kind is int


def function_of(binding: Binding) -> Any:
    """Return the Python function behind a binding."""
    return getattr(_HOMES[binding.home] if binding.home else torch.Tensor, binding.name)


def _first(
    bindings: Iterator[Binding],
    operator: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    made: Any,
) -> Binding | None:
    return next((b for b in bindings if _reaches(b, operator, args, kwargs, made)), None)


def _reaches(
    binding: Binding,
    operator: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    made: Any,
) -> bool:
    """Whether a binding dispatches exactly this operator, once, with exactly these arguments."""
    given = (*args[:-1], *args[-1]) if binding.is_spread else args
    recorder = _Recorder(operator, args, kwargs, made)
    try:
        with recorder:
            function_of(binding)(*given, **kwargs)
    except (_AnotherCallError, TypeError, RuntimeError, IndexError, ValueError):
        return False  # it takes other arguments, or calls something else
    return recorder.calls == 1


class _AnotherCallError(Exception):
    """A binding dispatched another call than the one wanted."""


class _Recorder(TorchDispatchMode):
    """Answers the wanted call with its known results, and refuses every other."""

    def __init__(
        self, operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], made: Any
    ):
        super().__init__()
        self.calls = 0
        self._operator = operator
        self._wanted = _bound(operator, args, kwargs)
        self._made = made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compare a call with the wanted one."""
        if func is not self._operator or self.calls:
            raise _AnotherCallError
        if not _same(_bound(func, args, kwargs or {}), self._wanted):
            raise _AnotherCallError
        self.calls += 1
        return self._made


def _bound(operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The value of every argument of the schema, defaults filled in."""
    arguments = operator._schema.arguments  # pyright: ignore[reportPrivateUsage]  # torch has no public accessor
    values: list[Any] = []
    for position, argument in enumerate(arguments):
        if position < len(args):
            values.append(args[position])
        else:
            default = argument.default_value if argument.has_default_value() else None
            values.append(kwargs.get(argument.name, default))
    return values


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        return left is right
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        items, others = cast(Sequence[Any], left), cast(Sequence[Any], right)
        return len(items) == len(others) and all(map(_same, items, others))
    if type(left) is not type(right):
        return False
    return bool(left == right) or (left != left and right != right)  # NaN is itself


def _in_place(
    signature: Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    results: tuple[Result | None, ...],
) -> Binding | None:
    """A binding of the twin that writes its result into its first argument."""
    operator, first = signature.operator, signature.args[0] if signature.args else None
    if torch.Tag.pointwise not in operator.tags or not isinstance(first, Type):
        return None
    made = results[0] if len(results) == 1 else None
    if made is None or made.shares or made.type != first:
        return None
    twin = twin_of(operator)
    if twin is None:
        return None
    bindings = _bindings_named(str(twin).split(".")[1], signature)
    return _first(bindings, twin, args, kwargs, args[0])


def twin_of(operator: OpOverload) -> OpOverload | None:
    """Return the in-place overload that computes the same; its schema differs by a mark."""
    namespace, name, overload = str(operator).split(".")
    packet = getattr(getattr(torch.ops, namespace), f"{name}_", None)
    twin = getattr(packet, overload, None) if packet is not None else None
    if not isinstance(twin, OpOverload):
        return None
    wanted = [(a.name, str(a.type)) for a in operator._schema.arguments]  # pyright: ignore[reportPrivateUsage]  # torch has no public accessor
    found = [(a.name, str(a.type)) for a in twin._schema.arguments]  # pyright: ignore[reportPrivateUsage]  # as above
    return twin if wanted == found else None
