"""Records as the data model; what the data model refuses is a fault with its path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec import UNSET, UnsetType

from torch_ir.errors import InvalidIRError
from torch_ir.frozen import FrozenDict
from torch_ir.ir.graph import IR, Mutation, SymbolRange
from torch_ir.ir.node import Location, OpNode
from torch_ir.ir.symbols import SymExpr, as_dim
from torch_ir.ir.tensor import Constant, TensorMeta
from torch_ir.ir.tree import Container, Signature, TensorLeaf, Tree, ValueLeaf
from torch_ir.ir.values import dtype_name
from torch_ir.ops.schema import Slots, parse_schema
from torch_ir.serde.attributes import MAX_DEPTH, decode_attribute, too_deep
from torch_ir.serde.constant_data import decode_constant, decode_constants
from torch_ir.serde.json.faults import Fault, as_fault, at, each, each_value
from torch_ir.serde.json.wire import (
    ConstantRecord,
    Document,
    LocationRecord,
    MutationRecord,
    NodeRecord,
    RangeRecord,
    SignatureRecord,
    TensorRecord,
    TreeRecord,
)

V = TypeVar("V")

FetchConstant = Callable[[ConstantRecord], Constant]
"""The constant of a record, in place or from an archive."""


def decode_ir(document: Document, fetch: FetchConstant = decode_constant, depth: int = 0) -> IR:
    """Decode a document to its IR.

    Raises:
        Fault: A value that the data model refuses, with its path.
    """
    if depth > MAX_DEPTH:
        raise too_deep()
    tensor = _Tensors()
    functions = each_value(
        lambda function: decode_ir(function, fetch, depth + 1),
        _given(document.functions, {}),
        ".functions",
    )
    return IR(
        nodes=each(lambda node: decode_node(node, tensor), document.nodes, ".nodes"),
        graph_inputs=each(tensor, document.graph_inputs, ".graph_inputs"),
        graph_outputs=each(tensor, document.graph_outputs, ".graph_outputs"),
        weights=each(tensor, document.weights, ".weights"),
        weight_name_mapping=FrozenDict(document.weight_name_mapping),
        constants=FrozenDict(decode_constants(_given(document.constants, {}), fetch)),
        model_name=document.model_name,
        pytorch_version=document.pytorch_version,
        symbols=FrozenDict(each_value(_decode_range, _given(document.symbols, {}), ".symbols")),
        functions=FrozenDict(functions),
        mutations=each(
            lambda mutation: _decode_mutation(mutation, tensor),
            _given(document.mutations, []),
            ".mutations",
        ),
        signature=None
        if document.signature is UNSET
        else at(".signature", _decode_signature, document.signature),
        dialect=_given(document.dialect, "export"),
        weight_aliases=FrozenDict(_given(document.weight_aliases, {})),
        guards=each(SymExpr, _given(document.guards, []), ".guards"),
        operators=FrozenDict(
            each_value(_checked_schema, _given(document.operators, {}), ".operators")
        ),
        metadata=FrozenDict(
            each_value(decode_attribute, _given(document.metadata, {}), ".metadata")
        ),
    )


def _checked_schema(text: str) -> str:
    """The text itself, if it is a schema."""
    parse_schema(text)
    return text


def _given(value: V | UnsetType, default: V) -> V:
    return default if isinstance(value, UnsetType) else value


class _Tensors:
    """Tensors of records; equal records give one object, which producer and consumers share."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], TensorMeta] = {}

    def __call__(self, record: TensorRecord) -> TensorMeta:
        key = (
            record.name,
            record.producer_node,
            record.producer_output_idx,
            record.dtype,
            *record.shape,
        )
        meta = self._known.get(key)
        if meta is None:
            meta = self._known[key] = decode_tensor(record)
        return meta


def decode_tensor(record: TensorRecord) -> TensorMeta:
    """Decode the record of a tensor.

    Raises:
        Fault: The data model refuses a dimension or the dtype.
    """
    try:
        return TensorMeta(
            record.name,
            tuple(record.shape),  # pyright: ignore[reportArgumentType]  # the data model reads text as an expression
            record.dtype,
            _given(record.producer_node, None),
            _given(record.producer_output_idx, 0),
        )
    except InvalidIRError as error:
        each(as_dim, record.shape, ".shape")
        at(".dtype", dtype_name, record.dtype)
        raise as_fault(error, "") from None


def decode_node(
    record: NodeRecord, tensor: Callable[[TensorRecord], TensorMeta] = decode_tensor
) -> OpNode:
    """Decode the record of a node.

    Raises:
        Fault: The data model refuses a part of it.
    """
    attrs = each_value(decode_attribute, record.attrs, ".attrs") if record.attrs else {}
    return OpNode(
        record.name,
        record.op_type,
        each(tensor, record.inputs, ".inputs"),
        each(tensor, record.outputs, ".outputs"),
        FrozenDict(attrs),
        None if record.operands is UNSET else FrozenDict(_decode_operands(record.operands)),
        None if record.location is UNSET else _decode_location(record.location),
        _given(record.binds, {}),
        _given(record.origins, ()),
    )


def _decode_operands(operands: Mapping[str, int | list[int | None] | None]) -> dict[str, Slots]:
    return {
        name: tuple(slots) if isinstance(slots, list) else slots
        for name, slots in operands.items()
    }


def _decode_location(record: LocationRecord) -> Location:
    return Location(
        _given(record.file, ""),
        _given(record.line, 0),
        _given(record.code, ""),
        _given(record.module, ""),
        _given(record.module_type, ""),
    )


def _decode_range(record: RangeRecord) -> SymbolRange:
    return SymbolRange(record.lower, _given(record.upper, None))


def _decode_mutation(
    record: MutationRecord, tensor: Callable[[TensorRecord], TensorMeta]
) -> Mutation:
    return Mutation(record.target, at(".value", tensor, record.value))


def _decode_signature(record: SignatureRecord) -> Signature:
    return Signature(
        at(".inputs", decode_tree, record.inputs), at(".outputs", decode_tree, record.outputs)
    )


def decode_tree(record: TreeRecord | str, depth: int = 0) -> Tree:
    """Decode the record of a tree.

    Raises:
        Fault: The record is neither a leaf nor a container, or is nested too deeply.
    """
    if isinstance(record, str):
        return TensorLeaf(record)
    parts = (record.type, record.children, record.keys, record.context)
    if record.value is not UNSET:
        if any(part is not UNSET for part in parts):
            raise Fault("", "a leaf with a value cannot be a container too")
        return ValueLeaf(at(".value", decode_attribute, record.value))
    if record.type is UNSET or record.children is UNSET:
        raise Fault("", "expected a tensor's name, a value, or a container with type and children")
    if depth >= MAX_DEPTH:
        raise too_deep()
    return Container(
        record.type,
        each(lambda child: decode_tree(child, depth + 1), record.children, ".children"),
        each(decode_attribute, _given(record.keys, []), ".keys"),
        _given(record.context, ""),
    )
