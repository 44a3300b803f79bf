"""The data model as records. Mappings are sorted, so that equal IRs have equal documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

from torch_ir.ir.graph import IR, Mutation, SymbolRange
from torch_ir.ir.node import Location, OpNode
from torch_ir.ir.tensor import Constant, TensorMeta
from torch_ir.ir.tree import Container, Signature, TensorLeaf, Tree, ValueLeaf
from torch_ir.ops.schema import Slots
from torch_ir.serde.attributes import MAX_DEPTH, encode_attribute, too_deep
from torch_ir.serde.constant_data import encode_constant, encode_view
from torch_ir.serde.json.faults import Fault, at, each, each_value
from torch_ir.serde.json.wire import (
    FORMAT_VERSION,
    MAX_RANK,
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

StoreConstant = Callable[[str, Constant], ConstantRecord]
"""Makes the record of a constant with the given key: complete, or by reference into an archive."""


def store_in_place(key: str, constant: Constant) -> ConstantRecord:
    """Encode a constant with its values in the document."""
    return encode_constant(constant)


def encode_ir(ir: IR, store: StoreConstant = store_in_place) -> Document:
    """Encode an IR as a document.

    Raises:
        Fault: A value that the format cannot hold.
    """
    document = _encode_program(ir, store, 0)
    document.format_version = FORMAT_VERSION if _has_fill(document) else 1
    return document


def _has_fill(document: Document) -> bool:
    constants, functions = document.constants, document.functions
    records = () if constants is UNSET else constants.values()
    return any(record.fill is not UNSET for record in records) or any(
        map(_has_fill, () if functions is UNSET else functions.values())
    )


def _encode_program(ir: IR, store: StoreConstant, depth: int) -> Document:
    if depth > MAX_DEPTH:
        raise too_deep()
    return Document(
        model_name=ir.model_name,
        pytorch_version=ir.pytorch_version,
        dialect=UNSET if ir.dialect == "export" else ir.dialect,
        graph_inputs=list(each(encode_tensor, ir.graph_inputs, ".graph_inputs")),
        graph_outputs=list(each(encode_tensor, ir.graph_outputs, ".graph_outputs")),
        weights=list(each(encode_tensor, ir.weights, ".weights")),
        weight_name_mapping=_in_order(ir.weight_name_mapping),
        weight_aliases=_in_order(ir.weight_aliases) or UNSET,
        guards=[guard.text for guard in ir.guards] or UNSET,
        operators=_in_order(ir.operators) or UNSET,
        symbols={name: _encode_range(r) for name, r in _in_order(ir.symbols).items()} or UNSET,
        mutations=list(each(_encode_mutation, ir.mutations, ".mutations")) or UNSET,
        signature=UNSET if ir.signature is None else _encode_signature(ir.signature),
        metadata=each_value(encode_attribute, _in_order(ir.metadata), ".metadata") or UNSET,
        nodes=list(each(encode_node, ir.nodes, ".nodes")),
        constants=_encode_constants(ir, store) or UNSET,
        functions=each_value(
            lambda function: _encode_program(function, store, depth + 1),
            _in_order(ir.functions),
            ".functions",
        )
        or UNSET,
    )


def _in_order(mapping: Mapping[str, V]) -> dict[str, V]:
    return dict(sorted(mapping.items()))


def _encode_constants(ir: IR, store: StoreConstant) -> dict[str, ConstantRecord]:
    def record(item: tuple[str, Constant]) -> ConstantRecord:
        key, constant = item
        if constant.view is None:
            return store(key, constant)
        return encode_view(ir.constants, key, constant.view)

    ordered = _in_order(ir.constants)
    return each_value(record, {k: (k, c) for k, c in ordered.items()}, ".constants")


def encode_tensor(meta: TensorMeta) -> TensorRecord:
    """Encode a tensor, without data, as a record."""
    if len(meta.shape) > MAX_RANK:
        raise Fault(".shape", f"a file holds tensors of at most {MAX_RANK} dimensions")
    has_producer = meta.producer_node is not None
    return TensorRecord(
        name=meta.name,
        shape=[d if type(d) is int else str(d) for d in meta.shape],
        dtype=meta.dtype,
        producer_node=meta.producer_node if has_producer else UNSET,
        producer_output_idx=(
            meta.producer_output_idx if has_producer or meta.producer_output_idx else UNSET
        ),
    )


def encode_node(node: OpNode) -> NodeRecord:
    """Encode a node as a record."""
    return NodeRecord(
        name=node.name,
        op_type=node.op_type,
        inputs=list(each(encode_tensor, node.inputs, ".inputs")),
        outputs=list(each(encode_tensor, node.outputs, ".outputs")),
        attrs=each_value(encode_attribute, _in_order(node.attrs), ".attrs") if node.attrs else {},
        operands=_encode_operands(node.operands),
        location=UNSET if node.location is None else _encode_location(node.location),
        binds=dict(sorted(node.binds.items())) if node.binds else UNSET,
        origins=list(node.origins) if node.origins else UNSET,
    )


def _encode_operands(
    operands: Mapping[str, Slots] | None,
) -> dict[str, int | list[int | None] | None] | UnsetType:
    if operands is None:
        return UNSET
    return {
        name: list(slots) if isinstance(slots, tuple) else slots
        for name, slots in sorted(operands.items())
    }


def _encode_location(location: Location) -> LocationRecord:
    return LocationRecord(
        file=location.file or UNSET,
        line=location.line or UNSET,
        code=location.code or UNSET,
        module=location.module or UNSET,
        module_type=location.module_type or UNSET,
    )


def _encode_range(symbol: SymbolRange) -> RangeRecord:
    return RangeRecord(lower=symbol.lower, upper=UNSET if symbol.upper is None else symbol.upper)


def _encode_mutation(mutation: Mutation) -> MutationRecord:
    return MutationRecord(
        target=mutation.target, value=at(".value", encode_tensor, mutation.value)
    )


def _encode_signature(signature: Signature) -> SignatureRecord:
    return SignatureRecord(
        inputs=at(".signature.inputs", encode_tree, signature.inputs),
        outputs=at(".signature.outputs", encode_tree, signature.outputs),
    )


def encode_tree(tree: Tree, depth: int = 0) -> TreeRecord | str:
    """Encode a tree as a record; a tensor leaf is its name.

    Raises:
        Fault: The tree is nested too deeply, or a value in it is one that the format cannot hold.
    """
    match tree:
        case TensorLeaf(name=name):
            return name
        case ValueLeaf(value=value):
            return TreeRecord(value=at(".value", encode_attribute, value))
        case Container(type=kind, children=children, keys=keys, context=context):
            if depth >= MAX_DEPTH:
                raise too_deep()
            encoded: Any = each(lambda child: encode_tree(child, depth + 1), children, ".children")
            return TreeRecord(
                type=kind,
                children=list(encoded),
                keys=list(each(encode_attribute, keys, ".keys")) or UNSET,
                context=context or UNSET,
            )
