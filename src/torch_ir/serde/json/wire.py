"""The records of the JSON format, as msgspec types: what a document may hold, field by field.

These types are the format: ``docs/ir.schema.json`` is generated from them, decoding is checked
against them, and encoding writes them in this order. ``docs/format.md`` explains them to people.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

FORMAT_VERSION = 2
"""The newest version that this package writes; it reads this one and all before it.

A document has the lowest version that can hold it: without a constant of one value that is 1.
"""

MAX_RANK = 128
"""Dimensions of one tensor."""

Shape = Annotated[
    list[int | str],
    Meta(
        max_length=MAX_RANK,
        description="Dimensions: integers from 0, or expressions over symbols such as '2*s0 + 1'.",
    ),
]
ConstantShape = Annotated[
    list[Annotated[int, Meta(ge=0, le=2**63 - 1)]], Meta(max_length=MAX_RANK)
]
Value = Annotated[
    Any,
    Meta(
        description="An attribute value: null, a boolean, an integer, a float (a number with a "
        "point or exponent), a string, a list of such values, or an object with one tag: $float, "
        "$int, $complex, $expr, $dtype, $layout, $memory_format, $device, $function, "
        "$operator, $dict."
    ),
]


class Record(Struct, forbid_unknown_fields=True):
    """A JSON object whose keys are all known; a field that is UNSET is left out of the file."""


class TensorRecord(Record, gc=False):
    """A tensor without data."""

    name: str
    shape: Shape
    dtype: str
    producer_node: str | UnsetType | None = UNSET
    producer_output_idx: int | UnsetType = UNSET


class LocationRecord(Record, gc=False):
    """Where a node came from."""

    file: str | UnsetType = UNSET
    line: int | UnsetType = UNSET
    code: str | UnsetType = UNSET
    module: str | UnsetType = UNSET
    module_type: str | UnsetType = UNSET


class NodeRecord(Record):
    """One call of one operator overload."""

    name: str
    op_type: str
    inputs: list[TensorRecord]
    outputs: list[TensorRecord]
    attrs: dict[str, Value] = field(default_factory=dict[str, Any])
    operands: dict[str, int | list[int | None] | None] | UnsetType = UNSET
    location: LocationRecord | UnsetType = UNSET
    binds: dict[str, int] | UnsetType = UNSET
    origins: list[str] | UnsetType = UNSET


class ViewRecord(Record):
    """Where the values of a constant lie among those of another one, counted in elements."""

    of: Annotated[str, Meta(description="The key of a constant that is itself no view.")]
    strides: Annotated[list[Annotated[int, Meta(ge=0, le=2**63 - 1)]], Meta(max_length=MAX_RANK)]
    offset: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0


class ConstantRecord(Record):
    """A tensor with values: lists, base64, one value, a reference into an archive, or a view."""

    dtype: str
    shape: ConstantShape
    data: Annotated[Any, Meta(description="Nested lists of numbers.")] | UnsetType = UNSET
    base64: (
        Annotated[bytes, Meta(description="Little-endian, contiguous, in row-major order.")]
        | UnsetType
    ) = UNSET
    fill: (
        Annotated[
            str,
            Meta(
                pattern="^([0-9a-f]{2})+$",
                description="The little-endian bytes of the element that all are, in hexadecimal.",
            ),
        ]
        | UnsetType
    ) = UNSET
    sha256: str | UnsetType = UNSET
    tensor: (
        Annotated[str, Meta(description="Its name in the archive's constants.safetensors.")]
        | UnsetType
    ) = UNSET
    view: ViewRecord | UnsetType = UNSET


class RangeRecord(Record, gc=False):
    """The values of a symbol, both ends included; null below or no upper end is unbounded."""

    lower: int | None = 0
    upper: int | UnsetType | None = UNSET


class MutationRecord(Record):
    """A buffer or graph input that the program writes."""

    target: str
    value: TensorRecord


class TreeRecord(Record):
    """A container of a signature, or a leaf that is a value; a tensor leaf is a plain string."""

    value: Value | UnsetType = UNSET
    type: str | UnsetType = UNSET
    children: list[TreeRecord | str] | UnsetType = UNSET
    keys: list[Value] | UnsetType = UNSET
    context: str | UnsetType = UNSET


class SignatureRecord(Record):
    """The structure of the program's arguments and results."""

    inputs: TreeRecord | str
    outputs: TreeRecord | str


class Document(Record, kw_only=True):
    """A program. Functions are documents too, without a version of their own."""

    format_version: Literal[1, 2] | UnsetType = UNSET
    model_name: str = ""
    pytorch_version: str = ""
    dialect: str | UnsetType = UNSET
    graph_inputs: list[TensorRecord]
    graph_outputs: list[TensorRecord]
    weights: list[TensorRecord]
    weight_name_mapping: dict[str, str] = field(default_factory=dict[str, str])
    weight_aliases: dict[str, str] | UnsetType = UNSET
    guards: list[str] | UnsetType = UNSET
    operators: dict[str, str] | UnsetType = UNSET
    symbols: dict[str, RangeRecord] | UnsetType = UNSET
    mutations: list[MutationRecord] | UnsetType = UNSET
    signature: SignatureRecord | UnsetType = UNSET
    metadata: dict[str, Value] | UnsetType = UNSET
    nodes: list[NodeRecord]
    constants: dict[str, ConstantRecord] | UnsetType = UNSET
    functions: dict[str, Document] | UnsetType = UNSET


RECORDS = (
    TensorRecord,
    LocationRecord,
    NodeRecord,
    ViewRecord,
    ConstantRecord,
    RangeRecord,
    MutationRecord,
    TreeRecord,
    SignatureRecord,
    Document,
)
FIELD_NAMES = tuple(sorted({name for record in RECORDS for name in record.__struct_fields__}))
"""Every key that a document may have somewhere, for the message about an unknown one."""
