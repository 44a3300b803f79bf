"""Constants as JSON: nested lists where those give the same bytes back, base64 otherwise."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, cast

from msgspec import UNSET

from torch_ir.errors import InvalidIRError
from torch_ir.ir.constants import bound_view, view_fault, view_of_view
from torch_ir.ir.dtypes import DTYPES, STRUCT_CODES
from torch_ir.ir.tensor import Constant, ConstantView
from torch_ir.ir.values import dtype_name
from torch_ir.serde.json.faults import Fault, as_fault, each_value
from torch_ir.serde.json.wire import ConstantRecord, ViewRecord
from torch_ir.serde.tensors import checked_pieces

MAX_LISTED = 64
"""Elements of the largest constant that is written as nested lists; base64 takes less room."""


def encode_constant(constant: Constant) -> ConstantRecord:
    """Encode a constant as a record that is complete in itself.

    Raises:
        Fault: Only the hash of the constant is known.
        InvalidIRError: It is mapped from a file that was changed in place.
    """
    if constant.data is None:
        raise values_missing(constant)
    if constant.is_filled:
        return ConstantRecord(
            dtype=constant.dtype, shape=list(constant.shape), fill=constant.data.hex()
        )
    if constant.sha256 and isinstance(constant.data, memoryview):
        pieces = b"".join(checked_pieces(constant))
        constant = Constant(constant.dtype, constant.shape, pieces)
    data = _listed(constant)
    if data is not None:
        return ConstantRecord(dtype=constant.dtype, shape=list(constant.shape), data=data)
    return ConstantRecord(
        dtype=constant.dtype, shape=list(constant.shape), base64=constant.tobytes()
    )


def encode_view(constants: Mapping[str, Constant], key: str, view: ConstantView) -> ConstantRecord:
    """Encode a constant that is a view of another one.

    Raises:
        InvalidIRError: It is not a view of one of the constants, or of other values.
    """
    fault = view_fault(constants, key)
    if fault is not None:
        raise fault
    constant = constants[key]
    where = ViewRecord(of=view.base, strides=list(view.strides), offset=view.offset)
    return ConstantRecord(dtype=constant.dtype, shape=list(constant.shape), view=where)


def decode_constants(
    records: Mapping[str, ConstantRecord], fetch: Callable[[ConstantRecord], Constant]
) -> dict[str, Constant]:
    """Decode the constants of a program; views are bound when all others are known.

    Args:
        records: Their records by key.
        fetch: Makes those that are no views.

    Raises:
        Fault: A record is malformed, or a view is not one of a constant here.
    """
    views = {key: record for key, record in records.items() if record.view is not UNSET}
    known = each_value(fetch, {k: r for k, r in records.items() if k not in views}, ".constants")
    bound = each_value(
        lambda item: _decode_view(*item, views, known),
        {key: (key, record) for key, record in views.items()},
        ".constants",
    )
    return {key: bound[key] if key in bound else known[key] for key in records}


def _decode_view(
    key: str,
    record: ConstantRecord,
    views: Mapping[str, ConstantRecord],
    known: Mapping[str, Constant],
) -> Constant:
    parts = (record.data, record.base64, record.fill, record.tensor)
    if any(part is not UNSET for part in parts):
        raise Fault("", "a constant needs exactly one of data, base64, fill, tensor and view")
    where, name = cast(ViewRecord, record.view), f"the constant {key!r:.80}"
    if where.of in views:
        first = cast(ViewRecord, views[where.of].view).of
        raise as_fault(view_of_view(name, where.of, first), ".view.of")
    view = ConstantView(where.of, tuple(where.strides), where.offset)
    return bound_view(known, name, record.dtype, tuple(record.shape), view)


def values_missing(constant: Constant) -> Fault:
    """Return the fault of a constant whose values are not known, only their hash."""
    return Fault(
        "",
        f"the values of this constant {constant!r} are not in the text that it was parsed from",
        "Give them to parse(text, constants=...) before saving.",
    )


def _listed(constant: Constant) -> Any:
    """The nested lists of a small constant if they give exactly its bytes back, else None."""
    code = STRUCT_CODES.get(constant.dtype)
    if code is None or math.prod(max(d, 1) for d in constant.shape) > MAX_LISTED:
        return None
    raw = constant.tobytes()
    form = f"<{math.prod(constant.shape)}{code}"
    values = struct.unpack(form, raw)
    if not all(map(math.isfinite, values)) or struct.pack(form, *values) != raw:
        return None
    return _nest(iter(values), constant.shape)


def _nest(values: Iterator[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return next(values)
    return [_nest(values, shape[1:]) for _ in range(shape[0])]


def decode_constant(record: ConstantRecord) -> Constant:
    """Decode the record of a constant that is complete in itself.

    Raises:
        Fault: The data is missing, given twice, ragged, or does not fit the shape and dtype.
        InvalidIRError: The data model refuses the shape or the dtype.
    """
    given = [
        name for name in ("data", "base64", "fill", "tensor") if getattr(record, name) is not UNSET
    ]
    if len(given) != 1:
        raise Fault("", "a constant needs exactly one of data, base64, fill, tensor and view")
    if given == ["tensor"]:
        raise Fault("", "a constant can be given by reference in an archive only")
    shape = tuple(record.shape)
    if given == ["fill"]:
        return Constant(record.dtype, shape, bytes.fromhex(cast(str, record.fill)), is_filled=True)
    if given == ["base64"]:
        return Constant(record.dtype, shape, cast(bytes, record.base64))
    return constant_of_lists(record.data, record.dtype, shape)


def constant_of_lists(data: object, dtype: str, shape: tuple[int, ...] | None) -> Constant:
    """Make a constant of nested lists; its shape is read off them if it is not given.

    Raises:
        Fault: The lists are ragged, not of this shape, or hold what the dtype cannot.
        InvalidIRError: The dtype is unknown.
    """
    found = _shape_of(data) if shape is None else shape
    flat = _flatten(data, found)
    code = STRUCT_CODES.get(dtype_name(dtype))
    if code is None:
        return Constant(dtype, found, _packed_by_numpy(flat, dtype))
    if code == "?" and not all(value in (0, 1) for value in flat):
        raise Fault(".data", "the values are not all bool")
    try:
        return Constant(dtype, found, struct.pack(f"<{len(flat)}{code}", *flat))
    except (struct.error, OverflowError) as error:
        raise Fault(
            ".data", f"the values are not all {DTYPES[dtype_name(dtype)].name}: {error}"
        ) from None


def _packed_by_numpy(flat: list[Any], dtype: str) -> bytes:
    try:
        return Constant.from_list(flat, dtype).tobytes()
    except InvalidIRError as error:
        raise Fault(".data", error.message, error.remedy) from None


def _shape_of(data: object) -> tuple[int, ...]:
    shape: list[int] = []
    while isinstance(data, list | tuple):
        items = cast(list[object], data)
        shape.append(len(items))
        data = items[0] if items else None
    return tuple(shape)


def _flatten(data: object, shape: tuple[int, ...]) -> list[Any]:
    flat: list[Any] = [data]
    for depth, size in enumerate(shape):
        for index, item in enumerate(flat):
            if type(item) not in (list, tuple) or len(item) != size:
                place = _place(index, shape[:depth])
                raise Fault(place, f"expected a list of {size} to fill the shape")
        flat = list(chain.from_iterable(flat))
    for index, item in enumerate(flat):
        if not isinstance(item, bool | int | float):
            raise Fault(_place(index, shape), f"expected a number, got {type(item).__name__}")
    return flat


def _place(index: int, shape: tuple[int, ...]) -> str:
    """The path of an item by its number in row-major order."""
    steps: list[str] = []
    for size in reversed(shape):
        index, step = divmod(index, size)
        steps.append(f"[{step}]")
    return ".data" + "".join(reversed(steps))
