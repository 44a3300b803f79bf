"""Immutable mappings, and exact equality of nested values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, Self, TypeVar, cast

from torch_ir.errors import InvalidIRError

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """A dict that cannot be changed, is compared exactly, and copies as itself.

    Example:
        >>> attrs = FrozenDict(alpha=2)
        >>> attrs["alpha"], attrs == {"alpha": 2}, attrs == {"alpha": 2.0}
        (2, True, False)
        >>> attrs["alpha"] = 3
        Traceback (most recent call last):
        ...
        TypeError: a FrozenDict cannot be changed; build a new one
    """

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a FrozenDict cannot be changed; build a new one")

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = _refuse  # type: ignore[assignment]  # every mutator of dict refuses, whatever its signature
    __ior__ = _refuse  # type: ignore[assignment]  # as above

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Mapping) and identical(self, cast(Any, other)))

    def __ne__(self, other: object) -> bool:  # dict has its own, which compares 2 with 2.0
        return not self == other

    def __hash__(self) -> int:  # type: ignore[override]  # dict is unhashable, a frozen one is not
        return hash(frozenset(self))  # of the keys: two NaN are equal here, but not their hashes

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[dict[K, V]]]:
        return type(self), (dict(self),)


class Functions(FrozenDict[str, V]):
    """Functions by name; to ask for one that is not there is a fault of the program that does.

    Example:
        >>> Functions(f=2)["f"], Functions().get("f"), "f" in Functions()
        (2, None, False)
    """

    __slots__ = ()

    def __missing__(self, name: object) -> NoReturn:
        raise InvalidIRError(
            f"there is no function {name!r}", remedy="See ir.check(), or torch-ir check."
        )


EMPTY: FrozenDict[Any, Any] = FrozenDict()
"""No items; one for all fields without any, as it cannot change."""


def plain_text(value: object) -> Any:
    """Return text of a subclass (an enumeration, torch.__version__) as a plain str.

    Its characters count, not its ``__str__``; everything else is returned as it is.
    """
    return str.__str__(value) if isinstance(value, str) else value


def set_plain_text(value: object, *names: str) -> None:
    """Replace text of a subclass in fields of a frozen value by plain text.

    Raises:
        InvalidIRError: A field is no text.
    """
    holder: Any = type(value)
    for name in names:
        given = getattr(value, name)
        if given is None and "None" in holder.__dataclass_fields__[name].type:
            continue
        if not isinstance(given, str):
            kind, got = type(value).__name__, type(given).__name__
            raise InvalidIRError(f"the {name} of {kind} is text, got {got}")
        if type(given) is not str:
            object.__setattr__(value, name, plain_text(given))


def frozen_items(values: Iterable[V], kind: type[V], what: str) -> tuple[V, ...]:
    """Return the items of a field as a tuple.

    Raises:
        InvalidIRError: They are no sequence, or one is of another class.
    """
    if type(values) is tuple and not values:
        return values
    try:
        items = tuple(values)
    except TypeError:
        raise InvalidIRError(f"{what} are a list, got {type(values).__name__}") from None
    for item in items:
        if type(item) is not kind and not isinstance(item, kind):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
            raise InvalidIRError(f"{what} are of {kind.__name__}, got {type(item).__name__}")
    return items


def frozen_mapping(
    mapping: Mapping[str, V], kind: type[FrozenDict[str, V]] = FrozenDict
) -> FrozenDict[str, V]:
    """Freeze a mapping from text as one of a class, with plain text as keys and values.

    Raises:
        InvalidIRError: It is no mapping.
    """
    if not isinstance(mapping, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
        raise InvalidIRError(f"expected a mapping from names, got {type(mapping).__name__}")
    if not mapping and kind is FrozenDict:
        return EMPTY
    types = {*map(type, mapping), *map(type, mapping.values())} - {str}
    if any(issubclass(kind, str) for kind in types):
        mapping = {plain_text(key): plain_text(item) for key, item in mapping.items()}
    return kind(mapping)


def identical(left: object, right: object) -> bool:
    """Return whether two values are equal and of the same type; containers by element.

    Zeros differ by their sign, and NaN is the same as any NaN.

    Example:
        >>> identical(1, True), identical(0.0, -0.0), identical((float("nan"),), (float("nan"),))
        (False, False, True)
    """
    if left is right:
        return True
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        a, b = cast(Mapping[Any, Any], left), cast(Mapping[Any, Any], right)
        return a.keys() == b.keys() and all(identical(value, b[key]) for key, value in a.items())
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        other = cast(float, right)
        if left != left or other != other:
            return left != left and other != other
        return left == other and math.copysign(1.0, left) == math.copysign(1.0, other)
    if isinstance(left, complex):
        other = cast(complex, right)
        return identical(left.real, other.real) and identical(left.imag, other.imag)
    if isinstance(left, tuple | list):
        a, b = cast(tuple[Any, ...], left), cast(tuple[Any, ...], right)
        return len(a) == len(b) and all(map(identical, a, b))
    return left == right


class Same:
    """An object that is equal to itself alone."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __repr__(self) -> str:
        return f"{type(self.value).__name__} at {id(self.value):#x}"
