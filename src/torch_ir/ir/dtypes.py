"""The element types, named as torch names them, with what a torch-free reader needs to know."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DTypeInfo:
    """What is known of one element type.

    Attributes:
        name: torch's name without the prefix, such as ``"bfloat16"``.
        short: The spelling in IR text, such as ``"bf16"``; torch's own where torch has one.
        itemsize: Bytes per element.
        numpy: Name of the NumPy or ml_dtypes scalar type with the same bytes, or None.
        aliases: Other names that torch accepts for the same type.
    """

    name: str
    short: str
    itemsize: int
    numpy: str | None
    aliases: tuple[str, ...] = ()


_ALL = (
    DTypeInfo("float16", "f16", 2, "float16", ("half",)),
    DTypeInfo("bfloat16", "bf16", 2, "bfloat16"),
    DTypeInfo("float32", "f32", 4, "float32", ("float",)),
    DTypeInfo("float64", "f64", 8, "float64", ("double",)),
    DTypeInfo("float8_e4m3fn", "f8e4m3fn", 1, "float8_e4m3fn"),
    DTypeInfo("float8_e4m3fnuz", "f8e4m3fnuz", 1, "float8_e4m3fnuz"),
    DTypeInfo("float8_e5m2", "f8e5m2", 1, "float8_e5m2"),
    DTypeInfo("float8_e5m2fnuz", "f8e5m2fnuz", 1, "float8_e5m2fnuz"),
    DTypeInfo("float8_e8m0fnu", "f8e8m0fnu", 1, "float8_e8m0fnu"),
    DTypeInfo("float4_e2m1fn_x2", "f4e2m1fnx2", 1, None),
    DTypeInfo("complex32", "c32", 4, None, ("chalf",)),
    DTypeInfo("complex64", "c64", 8, "complex64", ("cfloat",)),
    DTypeInfo("complex128", "c128", 16, "complex128", ("cdouble",)),
    DTypeInfo("bool", "b8", 1, "bool"),
    DTypeInfo("int8", "i8", 1, "int8"),
    DTypeInfo("int16", "i16", 2, "int16", ("short",)),
    DTypeInfo("int32", "i32", 4, "int32", ("int",)),
    DTypeInfo("int64", "i64", 8, "int64", ("long",)),
    DTypeInfo("uint8", "u8", 1, "uint8"),
    DTypeInfo("uint16", "u16", 2, "uint16"),
    DTypeInfo("uint32", "u32", 4, "uint32"),
    DTypeInfo("uint64", "u64", 8, "uint64"),
    DTypeInfo("qint8", "qi8", 1, None),
    DTypeInfo("quint8", "qu8", 1, None),
    DTypeInfo("qint32", "qi32", 4, None),
)

DTYPES: dict[str, DTypeInfo] = {info.name: info for info in _ALL}
"""Every element type by its torch name."""

BY_SHORT_NAME: dict[str, DTypeInfo] = {info.short: info for info in _ALL}
"""The same by the spelling used in IR text."""

ALIASES: dict[str, str] = {alias: info.name for info in _ALL for alias in info.aliases}
"""torch's other names for an element type."""

STRUCT_CODES = {
    **dict(zip(("int8", "int16", "int32", "int64"), "bhiq", strict=True)),
    **dict(zip(("uint8", "uint16", "uint32", "uint64"), "BHIQ", strict=True)),
    **dict(zip(("bool", "float16", "float32", "float64"), "?efd", strict=True)),
}
"""The code of each element type that :mod:`struct` knows."""
