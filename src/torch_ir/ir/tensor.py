"""Tensors as an IR holds them: metadata without data, and constants, whose values it keeps."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from torch_ir.arguments import public
from torch_ir.errors import InvalidIRError, counted, raised_as
from torch_ir.frozen import frozen_items, set_plain_text
from torch_ir.ir.dtypes import DTYPES
from torch_ir.ir.symbols import Dim, as_dim
from torch_ir.ir.values import (
    PIECE,
    dtype_name,
    is_one_value,
    require_numbers,
    row_major,
    tensor_memory,
)

if TYPE_CHECKING:
    import numpy as np


def _is_static_shape(shape: object) -> bool:
    """Whether a shape is a tuple of sizes, which needs no conversion."""
    if type(shape) is not tuple:
        return False
    for dim in cast(tuple[object, ...], shape):  # noqa: SIM110  # half the time of all(): graphs hold a great many
        if type(dim) is not int or dim < 0:
            return False
    return True


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """Shape and element type of a tensor, without data.

    Attributes:
        name: Name of the value, unique in its graph.
        shape: Dimensions, each a non-negative int or a symbolic expression.
        dtype: torch's name of the element type, such as ``"float32"``.
        producer_node: Name of the node that makes it; None for graph inputs, weights and
            constants.
        producer_output_idx: Which of the producer's results it is.

    Raises:
        InvalidIRError: A dimension is negative or no dimension, or the dtype is unknown.

    Example:
        >>> x = TensorMeta("x", [2, "s0 + 1"], "float32")
        >>> x.shape, str(x)
        ((2, SymExpr('s0 + 1')), '%x: f32[2, s0 + 1]')
    """

    name: str
    shape: tuple[Dim, ...]
    dtype: str
    producer_node: str | None = None
    producer_output_idx: int = 0

    def __post_init__(self) -> None:
        if not _is_static_shape(self.shape):
            if isinstance(self.shape, str) or not isinstance(self.shape, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
                raise InvalidIRError(f"a shape is a list of dimensions, got {self.shape!r:.80}")
            object.__setattr__(self, "shape", tuple([as_dim(d) for d in self.shape]))
        producer = self.producer_node
        if type(self.name) is not str or not (producer is None or type(producer) is str):
            set_plain_text(self, "name", "producer_node")
        if type(self.dtype) is not str or self.dtype not in DTYPES:
            object.__setattr__(self, "dtype", dtype_name(self.dtype))

    def __str__(self) -> str:
        return f"%{self.name}: {type_text(self)}"

    @property
    def is_static(self) -> bool:
        """Whether every dimension is an int."""
        return {int}.issuperset(map(type, self.shape))

    @property
    def nbytes(self) -> int | None:
        """Bytes of the data, or None if a dimension is symbolic."""
        if not self.is_static:
            return None
        return math.prod(cast(tuple[int, ...], self.shape)) * DTYPES[self.dtype].itemsize

    def replace(self, **changes: Any) -> Self:
        """Return a copy with the given fields changed."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Convert this tensor to its JSON document."""
        from torch_ir.serde import tensor_to_dict

        return tensor_to_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TensorMeta:
        """Read the tensor of a JSON document.

        Raises:
            SerializationError: The document is not that of a tensor.
        """
        from torch_ir.serde import tensor_from_dict

        return tensor_from_dict(data)


class _Typed(Protocol):
    @property
    def dtype(self) -> object: ...
    @property
    def shape(self) -> Iterable[object]: ...


def type_text(value: _Typed) -> str:
    """Return dtype and shape of a value, constant or tensor in short spelling: ``f32[2, s0]``.

    A dtype that no IR has keeps torch's name: ``uint4[2]``.
    """
    known = DTYPES.get(value.dtype) if type(value.dtype) is str else None
    dtype = known.short if known else _short_name(value.dtype)
    return f"{dtype}[{', '.join(map(str, value.shape))}]"


def _short_name(dtype: object) -> str:
    name = dtype_name(dtype, strict=False)
    return DTYPES[name].short if name in DTYPES else name


MAX_EXPANDED_BYTES = 2**30
"""The largest view, in bytes, whose values are written out where its base has fewer."""

_MAX_BYTES = 2**63 - 1
MAX_DENSE = 64
"""Elements of the largest constant of one value whose data has all of them."""


@dataclass(frozen=True, slots=True)
class ConstantView:
    """Where the values of a constant lie among those of another one, its base.

    Attributes:
        base: The base's key in ``ir.constants``: a constant of the same dtype that is no view.
        strides: Elements of the base from one position to the next, for each dimension; from 0.
        offset: The element of the base that is the first one.

    Raises:
        InvalidIRError: A stride or the offset is negative or no int.

    Example:
        >>> base = Constant.from_list([[1, 2, 3], [4, 5, 6]], "int64")
        >>> base.view_of("table", (2,), strides=(3,), offset=1).tolist()
        [2, 5]
    """

    base: str
    strides: tuple[int, ...]
    offset: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "strides", frozen_items(self.strides, int, "the strides"))
        set_plain_text(self, "base")
        for number in (*self.strides, self.offset):
            if type(number) is not int or number < 0:
                what = f"strides {list(self.strides)} and offset {self.offset}"
                raise InvalidIRError(
                    f"a view of a constant cannot have the {what:.200}",
                    remedy="Strides and offset are integers from 0.",
                )

    def __str__(self) -> str:
        return f"strides {list(self.strides)} from element {self.offset}"

    def end(self, shape: Sequence[int]) -> int:
        """Return the number of elements that the base needs: one more than the last shown."""
        if 0 in shape:
            return self.offset
        last = [(size - 1) * step for size, step in zip(shape, self.strides, strict=True)]
        return self.offset + sum(last) + 1


class _Tensor:
    """A value that torch's functions take as the tensor that it is."""

    __slots__ = ()

    def torch(self: Any) -> Any:
        """Return the values as a new tensor on the CPU, of exactly these bits and strides.

        Example:
            >>> Constant.from_list([1.5, -0.0], "bfloat16").torch()
            tensor([1.5000, -0.0000], dtype=torch.bfloat16)
        """
        from torch_ir.torch_api import constant_tensor  # only who has torch asks for a tensor

        return constant_tensor(self)

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch with tensors for constants."""
        given = {name: _with_tensors(value) for name, value in (kwargs or {}).items()}
        return func(*_with_tensors(list(args)), **given)


@dataclass(frozen=True, slots=True, eq=False)
class Constant(_Tensor):
    """A tensor with its values: little-endian, contiguous, in row-major order.

    A constant of more than 64 elements that are one value, such as a cache that is yet empty, has
    the bytes of one element as its data, however it is made.

    A constant that shows part of the memory of another one, or shows it in another order, is a
    view: it says where its values lie in the other's, and has no data of its own.

    Two constants are equal if dtype, shape, view and bytes are. IR text names the bytes of a large
    constant by their hash alone; what is parsed from it is such a constant without data, equal to
    the one with data.

    Attributes:
        dtype: torch's name of the element type.
        shape: Dimensions, all ints.
        data: The bytes; a view into a mapped file where it came from an archive; None where only
            the hash is known. Those of a view are all bytes of its base.
        sha256: Hash of the data in hexadecimal; computed when first asked for if not given.
        view: Where the values lie in the data, for a constant that shares it with its base; None
            where they fill it.
        is_filled: Whether the data is one element, and all elements are it.

    Raises:
        InvalidIRError: The number of bytes is not that of the shape and dtype, a view shows
            elements that its base does not have or is quantized, or neither data nor hash is
            given.

    Example:
        >>> c = Constant.from_list([[1, 2], [3, 4]], "int64")
        >>> c
        Constant(i64[2, 2])
        >>> c.tolist()
        [[1, 2], [3, 4]]
        >>> c.view_of("c", (2, 2), strides=(1, 2)).tolist()
        [[1, 3], [2, 4]]
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes | memoryview | None
    sha256: str = ""
    view: ConstantView | None = None
    is_filled: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        object.__setattr__(self, "shape", frozen_items(self.shape, object, "the sizes"))
        set_plain_text(self, "sha256")
        if any(type(d) is not int or d < 0 for d in self.shape):
            raise InvalidIRError(f"a constant cannot have the shape {list(self.shape)}")
        if self.view is not None:
            _check_view(self.dtype, self.shape, self.view)
        _check_data(self)
        _fill(self)

    def __repr__(self) -> str:
        return f"Constant({type_text(self)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return NotImplemented
        if (self.dtype, self.shape, self.view) != (other.dtype, other.shape, other.view):
            return False
        return self.has_data_of(other)

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape, self.view, self.digest()))

    @public
    def has_data_of(self, other: Constant) -> bool:
        """Return whether both have the same data, whatever each shows of it."""
        if self.data is None or other.data is None:
            return self.digest() == other.digest()
        if self.data is other.data:
            return True
        return memoryview(self.data).cast("B") == memoryview(other.data).cast("B")

    def digest(self) -> str:
        """Return the SHA-256 of the data, in hexadecimal; that of a view is its base's."""
        if not self.sha256:
            found = hashlib.sha256()
            for piece in data_pieces(self):
                found.update(piece)
            object.__setattr__(self, "sha256", found.hexdigest())
        return self.sha256

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one position to the next, for each dimension."""
        return row_major(self.shape) if self.view is None else self.view.strides

    @public
    def view_of(
        self, key: str, shape: Sequence[int], *, strides: Sequence[int], offset: int = 0
    ) -> Constant:
        """Make a view of this constant, which has that key in ``ir.constants``.

        Raises:
            InvalidIRError: It shows elements that this constant does not have, or this is a view
                itself.
        """
        if self.view is not None:
            raise InvalidIRError(
                f"{key!r} is itself a view of {self.view.base!r}",
                remedy=f"Say where the values lie in {self.view.base!r}.",
            )
        view = ConstantView(key, tuple(strides), offset)
        known = self.digest() if self.is_filled else self.sha256
        return Constant(self.dtype, tuple(shape), self.data, known, view, self.is_filled)

    def on_its_own(self) -> Constant:
        """Return a constant with the same values in row-major order that is no view.

        Raises:
            InvalidIRError: As :meth:`tobytes`.
        """
        return self if self.view is None else Constant(self.dtype, self.shape, self.tobytes())

    def tobytes(self) -> bytes:
        """Return the bytes of the values in row-major order.

        Raises:
            InvalidIRError: Only the hash is known, or a view shows the elements of its base so
                many times that they are more than 1 GiB.
        """
        if self.view is None and not self.is_filled:
            return bytes(_buffer(self))
        _require_bounded(self)
        return _elements(self, _bytes_type(self)).tobytes()

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the values as a read-only array; bfloat16, float8 as ml_dtypes.

        It is no copy, but for a constant of one value that is no view.

        Raises:
            InvalidIRError: NumPy has no such element type; use :meth:`tobytes`. Or the values are
                one, more than 1 GiB of it.
        """
        kind = _numpy_type(self.dtype)
        if not self.is_filled or self.view is not None:
            return _elements(self, kind)
        _require_bounded(self)
        (array := _elements(self, kind).copy()).flags.writeable = False
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        if dtype is not None or copy:
            _require_bounded(self)
        if dtype is not None:
            array = array.astype(dtype)
        return array.copy() if copy else array

    def tolist(self) -> Any:
        """Convert the values to nested lists of Python numbers.

        Raises:
            InvalidIRError: As :meth:`numpy` and :meth:`tobytes`.
        """
        _require_bounded(self)
        return self.numpy().tolist()

    @classmethod
    def from_list(cls, values: Any, dtype: str) -> Constant:
        """Make a constant of nested lists of numbers.

        Raises:
            InvalidIRError: The lists are ragged, hold something else than numbers, or do not fit
                the dtype.
        """
        return cls.from_numpy(_array_of(values, dtype))

    @classmethod
    @public
    def from_numpy(cls, array: np.ndarray[Any, Any]) -> Constant:
        """Make a constant with the values of an array.

        Its type is bool, an integer, float or complex one, or one of ml_dtypes.
        """
        import numpy as np

        contiguous = np.ascontiguousarray(array).reshape(array.shape)
        if contiguous.dtype.byteorder == ">":
            contiguous = contiguous.astype(contiguous.dtype.newbyteorder("<"))
        return cls(contiguous.dtype.name, array.shape, contiguous.tobytes())

    @classmethod
    def from_torch(cls, tensor: Any) -> Constant:
        """Make a constant with the values of a dense ``torch.Tensor``, of any element type.

        Raises:
            InvalidIRError: The tensor has no values (meta), or is sparse or quantized.
        """
        memory = tensor_memory(tensor)  # refuses what is no tensor
        shown = cls(str(tensor.dtype), tuple(tensor.shape), memory)
        return shown if shown.is_filled else replace(shown, data=shown.tobytes())


def _with_tensors(value: Any) -> Any:
    """Replace constants by tensors in an argument of torch, a list or tuple perhaps."""
    if isinstance(value, list | tuple):
        parts = cast(Sequence[Any], value)
        return type(parts)([_with_tensors(item) for item in parts])  # pyright: ignore[reportCallIssue]  # both take an iterable
    return value.torch() if isinstance(value, Constant) else value


def data_pieces(constant: Constant) -> Iterator[bytes | memoryview]:
    """Yield the bytes of the data of a constant in their order; of one value, some at a time.

    Raises:
        InvalidIRError: Only the hash is known.
    """
    raw = memoryview(_buffer(constant)).cast("B")
    if not constant.is_filled:
        yield raw
        return
    left = math.prod(constant.shape) * len(raw)
    piece = bytes(raw) * (PIECE // len(raw))
    while left > 0:
        yield piece[:left]
        left -= len(piece)


def _buffer(constant: Constant) -> bytes | memoryview:
    if constant.data is None:
        raise InvalidIRError(
            f"the values of this constant {type_text(constant)} are not in the text that it was "
            "parsed from",
            remedy="Give them to parse(text, constants=...), or load the IR from JSON or an "
            "archive.",
        )
    return constant.data


def _array_of(values: Any, dtype: str) -> np.ndarray[Any, Any]:
    """Nested lists of numbers as an array of a dtype."""
    import numpy as np

    if DTYPES[dtype_name(dtype)].numpy is None:
        raise InvalidIRError(f"a constant of {dtype} cannot be given as a list of numbers")
    kind = _numpy_type(dtype_name(dtype))
    require_numbers(values, dtype, kind.kind)
    try:
        return np.array(values, dtype=kind)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidIRError(
            f"the values of a constant are not a rectangle of {dtype} numbers: {error}"
        ) from None


def _require_bounded(constant: Constant) -> None:
    size = math.prod(constant.shape) * DTYPES[constant.dtype].itemsize
    if size > max(MAX_EXPANDED_BYTES, memoryview(_buffer(constant)).nbytes):
        raise InvalidIRError(
            f"the values of a {'view' if constant.view else 'constant'} {type_text(constant)} are "
            f"{size} bytes, more than are written out",
            remedy="Read it with numpy(), which copies nothing."
            if constant.view
            else "Its data is one element.",
        )


def _bytes_type(constant: Constant) -> Any:
    """A NumPy type of the size of an element, for types that NumPy lacks."""
    import numpy as np

    return np.dtype((np.void, DTYPES[constant.dtype].itemsize))


def _numpy_type(dtype: str) -> Any:
    """Return NumPy's or ml_dtypes' type of the elements of a dtype."""
    import numpy as np

    name = DTYPES[dtype].numpy
    if name is None:
        raise InvalidIRError(f"NumPy has no {dtype}", remedy="Read the bytes with tobytes().")
    if not hasattr(np, name) and name != "bool":
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


def _elements(constant: Constant, kind: Any) -> np.ndarray[Any, Any]:
    """The values as a read-only array of NumPy's ``kind``, without a copy."""
    import numpy as np

    raw = _buffer(constant)
    if constant.is_filled:
        array = np.ndarray(constant.shape, kind, raw, 0, (0,) * len(constant.shape))
    elif constant.view is None:
        array = np.frombuffer(raw, dtype=kind).reshape(constant.shape)
    else:
        strides = [step * kind.itemsize for step in constant.view.strides]
        offset = constant.view.offset * kind.itemsize
        try:
            array = np.ndarray(constant.shape, kind, raw, offset, strides)
        except ValueError as error:
            raise InvalidIRError(
                f"NumPy has no array of the shape of a view {type_text(constant)}: {error}"
            ) from None
    array.flags.writeable = False
    return array


def _check_data(constant: Constant) -> None:
    """Refuse data that is not that of the shape and dtype."""
    if constant.data is None:
        if not re.fullmatch("[0-9a-f]{64}", constant.sha256):
            raise InvalidIRError(
                f"a constant {type_text(constant)} needs its data or the SHA-256 of it"
            )
        return
    with raised_as(lambda _: InvalidIRError("the data of a constant is bytes")):
        got, itemsize = memoryview(constant.data).nbytes, DTYPES[constant.dtype].itemsize
    if constant.is_filled:
        if got != itemsize:
            raise InvalidIRError(
                f"one element of {type_text(constant)} has {itemsize} bytes, got {got}"
            )
    elif (view := constant.view) is not None:
        if view.end(constant.shape) * itemsize > got or got % itemsize:
            raise InvalidIRError(
                f"a view {type_text(constant)} of {view.base!r} with {view} needs "
                f"{counted(view.end(constant.shape), 'element')}, its base has {got / itemsize:g}"
            )
    elif got != (expected := math.prod(constant.shape) * itemsize):
        raise InvalidIRError(f"a constant {type_text(constant)} has {expected} bytes, got {got}")


def _fill(constant: Constant) -> None:
    """Keep one element of many that are one value, and all elements of few."""
    if constant.data is None or (constant.is_filled and constant.view is not None):
        return
    raw, size = memoryview(constant.data).cast("B"), DTYPES[constant.dtype].itemsize
    count = math.prod(constant.shape)
    is_one = not constant.is_filled and len(raw) > MAX_DENSE * size and is_one_value(raw, size)
    if is_one:
        _ = constant.view and constant.digest()  # which needs the size of the base
    if constant.is_filled and count * size > _MAX_BYTES:
        raise InvalidIRError(f"no tensor has the shape {list(constant.shape)}")
    if is_one or (constant.is_filled and count <= MAX_DENSE):
        object.__setattr__(constant, "data", bytes(raw[:size]) * (1 if is_one else count))
        object.__setattr__(constant, "is_filled", is_one)


def _check_view(dtype: str, shape: tuple[int, ...], view: ConstantView) -> None:
    """Refuse a view that no tensor can have, whatever its base is."""
    if dtype.startswith("q"):  # without a scheme torch has no strides for them
        raise InvalidIRError(f"a quantized constant ({dtype}) cannot be a view")
    if len(view.strides) != len(shape):
        raise InvalidIRError(
            f"a view of the shape {list(shape)} needs {counted(len(shape), 'stride')}, got "
            f"{list(view.strides)}"
        )
    itemsize = DTYPES[dtype].itemsize
    if max(math.prod(shape), view.end(shape)) * itemsize > _MAX_BYTES:
        raise InvalidIRError(f"no tensor has the shape {list(shape)} with {view}")


def as_constant(value: object) -> Constant:
    """Make a constant of a Constant, a ``torch.Tensor``, or a NumPy array."""
    if isinstance(value, Constant):
        return value
    if hasattr(value, "is_meta"):
        return Constant.from_torch(value)
    if hasattr(value, "__array_interface__"):
        return Constant.from_numpy(cast(Any, value))
    raise InvalidIRError(
        f"a constant cannot be a {type(value).__name__}",
        remedy="Give a tensor, an array, or a torch_ir.ir.Constant.",
    )
