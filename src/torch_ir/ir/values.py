"""Attribute values: what a non-tensor argument of an operator can be.

An attribute is None, a bool, int, float, complex or str; a symbolic expression; one of torch's
enumerations as the torch-free values below; a reference to a function of the IR or to an operator;
or a tuple or dict of such values. Everything is immutable and compared exactly: ``1``, ``1.0`` and
``True`` are three values, ``0.0`` is not ``-0.0``, and NaN equals NaN, so that equal IRs have
equal text and equal bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch_ir.errors import InvalidIRError, did_you_mean
from torch_ir.frozen import FrozenDict, frozen_mapping, plain_text, set_plain_text
from torch_ir.ir.dtypes import ALIASES, DTYPES
from torch_ir.ir.symbols import SymExpr
from torch_ir.ops.schema import Argument, default_of, typed

LAYOUTS = (
    "strided",
    "sparse_coo",
    "sparse_csr",
    "sparse_csc",
    "sparse_bsr",
    "sparse_bsc",
    "jagged",
    "_mkldnn",
)
MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
RUN_DEVICE = "run"
MAX_DEPTH = 100
"""How deep lists in an attribute may be nested."""


@dataclass(frozen=True, slots=True)
class _Named:
    """A value that is a name: in text ``torch.NAME``, unless it says another way."""

    name: str

    def __post_init__(self) -> None:
        set_plain_text(self, "name")

    def __str__(self) -> str:
        return f"torch.{self.name}"


@dataclass(frozen=True, slots=True)
class DType(_Named):
    """An element type as an argument: ``aten.to.dtype(%x, dtype=torch.float32)``.

    Example:
        >>> str(DType("float32"))
        'torch.float32'
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", dtype_name(self.name))


@dataclass(frozen=True, slots=True)
class Layout(_Named):
    """A tensor layout as an argument, such as ``torch.strided``."""

    def __post_init__(self) -> None:
        _Named.__post_init__(self)
        _require_known("layout", self.name, LAYOUTS)


@dataclass(frozen=True, slots=True)
class MemoryFormat(_Named):
    """A memory format as an argument, such as ``torch.channels_last``."""

    def __post_init__(self) -> None:
        _Named.__post_init__(self)
        _require_known("memory format", self.name, MEMORY_FORMATS)


@dataclass(frozen=True, slots=True)
class Device(_Named):
    """A device as an argument.

    ``Device("run")`` means *where the program runs*: extraction records it for the device that the
    model lived on (meta, usually), and an executor substitutes its own device.

    Example:
        >>> str(Device("cuda:1")), str(Device("run"))
        ('device("cuda:1")', 'device("run")')
    """

    name: str = RUN_DEVICE

    def __str__(self) -> str:
        return f'device("{self.name}")'


@dataclass(frozen=True, slots=True)
class FunctionRef(_Named):
    """The name of an entry of ``IR.functions``, as an argument of a higher-order operator."""

    def __str__(self) -> str:
        return f"&{self.name}"


@dataclass(frozen=True, slots=True)
class OperatorRef(_Named):
    """An exact operator overload, as an argument of a higher-order operator.

    Example:
        >>> str(OperatorRef("aten.mm.default"))
        'operator("aten.mm.default")'
    """

    def __str__(self) -> str:
        return f'operator("{self.name}")'


Attribute = (
    None
    | bool
    | int
    | float
    | complex
    | str
    | SymExpr
    | DType
    | Layout
    | MemoryFormat
    | Device
    | FunctionRef
    | OperatorRef
    | tuple["Attribute", ...]
    | FrozenDict[str, "Attribute"]
)


PLAIN = frozenset([bool, int, float, complex, str, type(None)])
"""Types of attributes that hold no other value, no symbol and no reference."""


def is_plain(value: Attribute) -> bool:
    """Return whether a value is a plain number or text, or a list of nothing else.

    Example:
        >>> is_plain((1, 2.5)), is_plain((OperatorRef("aten.neg.default"),))
        (True, False)
    """
    kind = type(value)
    return kind in PLAIN or (kind is tuple and PLAIN.issuperset(map(type, cast(Any, value))))


def attribute_leaves(value: Attribute) -> Iterator[Attribute]:
    """Yield what lists and dicts in a value hold, or the value itself, from left to right.

    Example:
        >>> list(attribute_leaves(as_attribute([1, [2.5, None], {"a": "b"}])))
        [1, 2.5, None, 'b']
    """
    if not isinstance(value, tuple | FrozenDict):
        yield value
        return
    for item in value.values() if isinstance(value, FrozenDict) else value:
        if isinstance(item, tuple | FrozenDict):
            yield from attribute_leaves(item)
        else:
            yield item


def attribute_symbols(value: Attribute) -> tuple[str, ...]:
    """Return the symbols of the expressions in an attribute, and in what it holds.

    Example:
        >>> attribute_symbols(as_attribute([1, SymExpr("s0 + s1")]))
        ('s0', 's1')
    """
    leaves = attribute_leaves(value)
    return tuple([s for leaf in leaves if isinstance(leaf, SymExpr) for s in leaf.symbols])


def map_attribute(value: Attribute, change: Callable[[Attribute], Attribute]) -> Attribute:
    """Return a value with each leaf changed, in the same lists and dicts.

    Example:
        >>> map_attribute(as_attribute([1, [2, "a"]]), lambda leaf: leaf * 2)
        (2, (4, 'aa'))
    """
    if isinstance(value, tuple):
        return tuple([map_attribute(item, change) for item in value])
    if isinstance(value, FrozenDict):
        return FrozenDict({key: map_attribute(item, change) for key, item in value.items()})
    return change(value)


def layout_name(layout: object) -> str:
    """Return the name of a layout of torch.

    Example:
        >>> import torch
        >>> layout_name(torch.ones(2).to_sparse().layout)
        'sparse_coo'
    """
    return str(layout).removeprefix("torch.")


def dtype_name(value: object, *, strict: bool = True) -> str:
    """Return torch's canonical name of an element type given as a name or a ``torch.dtype``.

    Args:
        value: The name or the dtype.
        strict: Refuse a name that no IR has; otherwise it is returned without ``torch.``.

    Example:
        >>> dtype_name("torch.float"), dtype_name("int64"), dtype_name("torch.uint4", strict=False)
        ('float32', 'int64', 'uint4')

    Raises:
        InvalidIRError: The name is not an element type.
    """
    name = str(plain_text(value)).removeprefix("torch.")
    name = ALIASES.get(name, name)
    if strict and name not in DTYPES:
        raise InvalidIRError(
            f"{name!r} is not an element type",
            remedy=did_you_mean(name, DTYPES) or _one_of(DTYPES),
        )
    return name


_NAMED: Mapping[str, type[DType | Layout | MemoryFormat | Device]] = {
    f"{kind}{optional}": named
    for kind, named in (
        ("ScalarType", DType),
        ("Layout", Layout),
        ("MemoryFormat", MemoryFormat),
        ("Device", Device),
    )
    for optional in ("", "?")
}


def as_argument(kind: str, value: Attribute) -> Attribute:
    """Return an attribute as an operator takes it that declares an argument of that type.

    Other producers spell names as plain strings, and a list of equal numbers as one of them.

    Args:
        kind: The type of the argument in the schema.
        value: The attribute.

    Raises:
        InvalidIRError: The argument is one of a few names, and the value is none: torch would
            take a number for it and look that up beyond the end of its tables.

    Example:
        >>> as_argument("ScalarType?", "float32"), as_argument("int[2]", 3)
        (DType(name='float32'), (3, 3))
    """
    named = _NAMED.get(kind)
    if named is None:
        return typed(kind, value) if isinstance(value, int | float | SymExpr) else value
    if value is None or isinstance(value, named):
        return value
    if not isinstance(value, str):
        raise InvalidIRError(
            f"{value!r:.60} is no {named.__name__}", remedy="Give a name of torch's."
        )
    return named(value if named is Device else value.removeprefix("torch."))


_NUMBERED = (
    *("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"),
    *("complex32", "complex64", "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16"),
)
"""Dtypes by the number that torch's schemas write for them, as they do for memory formats."""


def default_attribute(argument: Argument) -> Attribute:
    """Return the default of an argument as an attribute; None if it has none.

    Example:
        >>> default_attribute(Argument("memory_format", "MemoryFormat", "0"))
        MemoryFormat(name='contiguous_format')
    """
    value = default_of(argument)
    if type(value) is int and argument.type.startswith("ScalarType"):
        return DType(_NUMBERED[value]) if value < len(_NUMBERED) else value
    if type(value) is int and argument.type.startswith("MemoryFormat"):
        return MemoryFormat(MEMORY_FORMATS[value])
    return value


def as_attribute(value: object) -> Attribute:
    """Convert a Python value to an immutable attribute value.

    Lists become tuples, torch's enumerations their torch-free form.

    Example:
        >>> as_attribute([1, [2.5, None]])
        (1, (2.5, None))

    Raises:
        InvalidIRError: The value cannot be stored in an IR.
    """
    return _as_attribute(value, 0)


def _as_attribute(value: object, depth: int) -> Attribute:
    if type(value) in _EXACT:
        return cast(Attribute, value)
    if isinstance(value, _PLAIN):
        return _widen(value)  # a subclass (an IntEnum, numpy's float64) would print as another
    if isinstance(value, list | tuple):
        if depth == MAX_DEPTH:
            raise InvalidIRError(f"an attribute cannot be nested more than {MAX_DEPTH} deep")
        items = cast(Iterable[object], value)
        return tuple([_as_attribute(item, depth + 1) for item in items])
    if isinstance(value, Mapping):
        return _as_mapping(cast(Mapping[object, object], value), depth)
    if type(value).__module__ in ("torch", "torch._ops"):
        return _from_torch(value)
    raise InvalidIRError(
        f"an attribute cannot hold {value!r:.80} of type {type(value).__name__}",
        remedy="Attributes are None, bool, int, float, complex, str, symbolic expressions, "
        "dtypes, devices, layouts, memory formats, function and operator references, and lists "
        "and dicts of these; tensors are operands.",
    )


_EXACT = PLAIN | {SymExpr, DType, Layout, MemoryFormat, Device, FunctionRef, OperatorRef}
_PLAIN = tuple(_EXACT)


def _widen(value: object) -> Attribute:
    """The builtin value of a subclass instance (an IntEnum member, numpy.float64)."""
    match value:
        case int():
            return int(value)
        case float():
            return float(value)
        case complex():
            return complex(value)
        case str():
            return plain_text(value)
        case _:
            pass
    raise InvalidIRError(f"an attribute cannot hold a {type(value).__name__}")


def _as_mapping(value: Mapping[object, object], depth: int) -> FrozenDict[str, Attribute]:
    if depth == MAX_DEPTH:
        raise InvalidIRError(f"an attribute cannot be nested more than {MAX_DEPTH} deep")
    for key in value:
        if not isinstance(key, str):
            raise InvalidIRError(f"the keys of an attribute are strings, got {key!r:.60}")
    items = cast(Mapping[str, object], value).items()
    return frozen_mapping({key: _as_attribute(item, depth + 1) for key, item in items})


def _from_torch(value: object) -> Attribute:
    """torch.float32 and its kind, told by the type's name: this package never imports torch."""
    name = str(value).removeprefix("torch.")
    match type(value).__name__:
        case "dtype":
            return DType(name)
        case "layout":
            return Layout(name)
        case "memory_format":
            return MemoryFormat(name)
        case "device":
            return Device(name)
        case "OpOverload":
            return OperatorRef(name)
        case kind:
            raise InvalidIRError(
                f"an attribute cannot hold a torch.{kind}",
                remedy="Tensors are operands; sizes are expressions.",
            )


def _require_known(kind: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise InvalidIRError(
            f"{name!r} is not a {kind}", remedy=did_you_mean(str(name), known) or _one_of(known)
        )


def _one_of(names: Iterable[str]) -> str:
    return "One of " + ", ".join(names) + "."


# -- the values of tensors ------------------------------------------------------------------------

PIECE = 2**16
"""Bytes that are compared or hashed at once."""


def is_one_value(raw: memoryview, size: int) -> bool:
    """Return whether elements of a size, at least two of them, all have the same bytes."""
    if raw[:size] != raw[size : 2 * size] or raw[:size] != raw[-size:]:
        return False
    piece = bytes(raw[:size]) * (PIECE // size)
    starts = range(0, len(raw), len(piece))
    return all(piece.startswith(bytes(raw[start : start + len(piece)])) for start in starts)


def tensor_memory(tensor: Any) -> memoryview:
    """Return the bytes of a dense ``torch.Tensor`` in row-major order, its own where they are so.

    Raises:
        InvalidIRError: It is no tensor, or has no values of its own.
    """
    if not hasattr(tensor, "is_nested"):
        raise InvalidIRError(f"a constant is made of a torch.Tensor, got {type(tensor).__name__}")
    torch = sys.modules["torch"]  # the caller has it: it made the tensor
    kind = kind_without_values(tensor)
    if kind:
        raise InvalidIRError(f"a {kind} tensor has no plain values to keep as a constant")
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    flat = dense.as_strided((dense.numel(),), (1,))  # one element may have any stride
    return memoryview(flat.view(torch.uint8).numpy(force=True) if dense.numel() else b"")


def kind_without_values(tensor: Any) -> str:
    """Return what kind of ``torch.Tensor`` one is whose memory is not its values; else empty."""
    torch = sys.modules["torch"]
    kinds = {
        "nested": tensor.is_nested,
        "meta": tensor.is_meta,
        "quantized": tensor.is_quantized,
        "fake": type(tensor).__name__ == "FakeTensor",
        "functional": torch._is_functional_tensor(tensor),
        str(tensor.layout): tensor.layout is not torch.strided,
    }
    return next((kind for kind, has_none in kinds.items() if has_none), "")


_MAX_DIMENSIONS = 64
"""Of a NumPy array, and of a torch tensor."""


def require_numbers(values: object, dtype: str, kind: str) -> None:
    """Refuse what NumPy would convert in silence: text, None, a fraction to int, 2 to bool.

    Raises:
        InvalidIRError: One of the values is such a thing, or they are nested too deeply.
    """
    stack = [(values, 0)]
    while stack:
        item, depth = stack.pop()
        if depth > _MAX_DIMENSIONS:
            raise InvalidIRError(f"a constant has at most {_MAX_DIMENSIONS} dimensions")
        if isinstance(item, list | tuple):
            stack.extend([(inner, depth + 1) for inner in cast(list[object], item)])
        elif (
            not isinstance(item, int | float | complex)
            or (kind in "iu" and isinstance(item, float) and not item.is_integer())
            or (kind == "b" and item not in (0, 1))
        ):
            raise InvalidIRError(f"a constant of {dtype} cannot hold {item!r:.80}")


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, counted in elements, of a tensor in row-major order.

    Example:
        >>> row_major((2, 3, 4)), row_major((2, 0))
        ((12, 4, 1), (1, 1))
    """
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
