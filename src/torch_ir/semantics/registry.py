"""The registry of denotations: one function for an exact overload."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

import numpy as np

from torch_ir.arguments import public
from torch_ir.errors import InvalidIRError, did_you_mean
from torch_ir.ops.collectives import COLLECTIVES
from torch_ir.ops.extensions import (
    DENOTATIONS,
    import_for,
    meaning_hint,
    note_extension,
    points_of,
)
from torch_ir.ops.rules import require_overload

Function: TypeAlias = Callable[..., Any]
F = TypeVar("F", bound=Function)

Kind = Literal["exact", "rounded", "function", "sum", "steps"]
"""Nothing is rounded; one rounding; a few functions; a sum of terms linear in each argument; a sum
whose parts are rounded to the result's own type."""
Bound: TypeAlias = Callable[
    [Mapping[str, Any], Sequence["np.ndarray[Any, Any]"]],
    Sequence["np.ndarray[Any, Any] | float"],
]
"""Takes the arguments by name and the results that are arrays; gives for each of these how far a
kernel may be off, float64 by element."""


@dataclass(frozen=True, slots=True)
class Denotation:
    """The meaning of one overload.

    Attributes:
        op_type: The exact overload, such as ``aten.add.Tensor``.
        function: Takes the operator's arguments by their names in the schema: tensors as NumPy
            arrays (one without dimensions stays an array), lists of tensors as lists, element
            types as NumPy's, numbers as Python's. What says where or how a tensor is kept (device,
            layout, pinning, memory format, generator) is not given. Returns an array, a number,
            or a tuple of them. It never writes to what it takes, and raises ``InvalidIRError``
            for what the operator refuses.
        draws: Whether it takes ``draws=``, a :class:`~torch_ir.semantics.draws.Draws`, for random
            numbers.
        tolerance: How far a kernel's results may be off, as given with the denotation; None for
            those of this package, whose rules ``torch_ir.semantics.bounds`` states, and where
            nothing is stated.
    """

    op_type: str
    function: Function
    draws: bool = False
    tolerance: Kind | Bound | None = None


_DENOTATIONS: dict[str, Denotation] = {}


def denotes(
    *op_types: str, draws: bool = False, tolerance: Kind | Bound | None = None
) -> Callable[[F], F]:
    """Declare that the decorated function is what these overloads mean.

    Args:
        *op_types: Exact overloads, such as ``acme.softclip.default``.
        draws: Whether the function takes ``draws=`` for random numbers.
        tolerance: How far a kernel's results may be off: a kind, or a function that gives the
            bound of each element. Without it, no kernel can be compared with the meaning.

    NumPy's warnings are off in it: NaN, infinities and wrapping are the meaning, not faults.

    Raises:
        InvalidIRError: An overload already has a meaning, the kind is none, or a name is no exact
            overload: nothing would ask for its meaning.

    Example:
        >>> import numpy as np
        >>> @denotes("example.double.default", tolerance="exact")
        ... def double(x):
        ...     return x + x
        >>> denotation("example.double.default").function(np.array([1.5]))
        array([3.])
    """
    for op_type in op_types:
        require_overload(op_type)
    kind: object = tolerance
    is_kind = isinstance(kind, str) and kind in get_args(Kind)
    if kind is not None and not is_kind and not callable(kind):
        known = f"It is a function that gives bounds, or one of {', '.join(get_args(Kind))}."
        raise InvalidIRError(
            f"{kind!r:.60} is no kind of tolerance",
            remedy=did_you_mean(str(kind), get_args(Kind)) or known,
        )

    def decorate(function: F) -> F:
        home = str(getattr(function, "__module__", ""))
        is_ours = home.partition(".")[0] == "torch_ir"
        meaning = np.errstate(all="ignore")(function if is_ours else _unable_to_write(function))
        for op_type in op_types:
            if op_type in _DENOTATIONS:
                raise InvalidIRError(
                    f"{op_type} already means {_DENOTATIONS[op_type].function.__qualname__}"
                )
            _DENOTATIONS[op_type] = Denotation(op_type, meaning, draws, tolerance)
            note_extension("denotation", op_type, function)
        return meaning

    return decorate


def _unable_to_write(function: F) -> F:
    """Return a meaning of another package, given operands that it cannot write to."""

    @wraps(function)
    def meaning(*args: Any, **arguments: Any) -> Any:
        given = {name: _read_only(value) for name, value in arguments.items()}
        return _writable(function(*map(_read_only, args), **given))

    return cast(F, meaning)


def _read_only(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return [*map(_read_only, value)] if isinstance(value, list) else value


def _writable(results: Any) -> Any:
    if isinstance(results, list | tuple):
        return [*map(_writable, cast(list[Any], results))]
    is_locked = isinstance(results, np.ndarray) and not results.flags.writeable
    return results.copy() if is_locked else results


def declare(function: Function, meaning: str, *op_types: str) -> None:
    """Declare one function of a family: what it means, and the overloads that mean it."""
    function.__doc__, function.__qualname__ = meaning, op_types[0].split(".")[1]
    denotes(*op_types)(function)


def restate(
    function: Function,
    *op_types: str,
    part: int | None = None,
    without: Collection[str] = (),
    **names: str,
) -> None:
    """Declare overloads that mean what another one does, or one of its results.

    Args:
        function: The meaning of the other.
        *op_types: The overloads.
        part: Which of the results; all if None.
        without: Their arguments that change nothing.
        **names: The other's argument for each of theirs that has another name.
    """

    def restated(**arguments: Any) -> Any:
        kept = {names.get(n, n): value for n, value in arguments.items() if n not in without}
        results = function(**kept)
        return results if part is None else results[part]

    restated.__module__ = function.__module__
    declare(restated, function.__doc__ or "", *op_types)


@public
def denotation(op_type: str) -> Denotation:
    """Return the denotation of an overload.

    Raises:
        InvalidIRError: Nothing says so; the message names the closest overload.

    Example:
        >>> import numpy as np
        >>> denotation("aten.relu.default").function(np.array([-1.0, 2.0]))
        array([0., 2.])
    """
    if op_type in COLLECTIVES and (meaning := _collective(op_type)) is not None:
        return Denotation(op_type, meaning)
    known = _known(op_type)
    if op_type not in known:
        raise InvalidIRError(
            f"{op_type} has no denotation",
            remedy=did_you_mean(op_type, known) or meaning_hint(op_type),
        )
    return known[op_type]


@public
def has_denotation(op_type: str) -> bool:
    """Return whether an overload has a denotation."""
    return op_type in _known(op_type) or (
        op_type in COLLECTIVES and _collective(op_type) is not None
    )


def _collective(op_type: str) -> Function | None:
    """What a collective means; :func:`denoted_operators` has those of one process alone."""
    from torch_ir.semantics.ranks import MEANINGS

    return MEANINGS.get(op_type.split(".")[1])


def denoted_operators() -> tuple[str, ...]:
    """Return every overload that has a denotation, sorted."""
    for namespace in points_of(DENOTATIONS):
        import_for(DENOTATIONS, namespace)
    return tuple(sorted(_known("")))


def _known(op_type: str) -> dict[str, Denotation]:
    """The denotations so far, those of the operator's library among them."""
    _import_families()
    if op_type not in _DENOTATIONS:
        import_for(DENOTATIONS, op_type.partition(".")[0])
    return _DENOTATIONS


@cache
def _import_families() -> None:
    package = import_module("torch_ir.semantics.operators")
    for module in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")
