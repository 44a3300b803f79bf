"""Documents without a version: those of pytorch-ir 0.2.3, and others of its shape.

Such a document differs from ours in five ways. Taking one of several results is a node of its own
(``<built-in function getitem>``) that takes all of them; how list arguments are grouped stands in
the attribute ``_tensor_list_sizes``; values that nodes make and graph outputs do not name their
producer; inputs name themselves as their producer; and constants are listed among the weights too.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from torch_ir.ops.schema import Argument, Slots, bind_in_order, lookup
from torch_ir.serde.constant_data import constant_of_lists
from torch_ir.serde.json.decode import decode_tensor
from torch_ir.serde.json.explain import explain
from torch_ir.serde.json.faults import each, each_value
from torch_ir.serde.json.wire import MAX_RANK, TensorRecord

GETITEM = "<built-in function getitem>"
LIST_SIZES = "_tensor_list_sizes"
NONE_MASKS = "_tensor_list_none_masks"


class ForeignTensor(Struct, gc=False):
    """A tensor; other keys are ignored, as in all records here."""

    name: str
    shape: Annotated[list[int | str], Meta(max_length=MAX_RANK)]
    dtype: str
    producer_node: str | None = None
    producer_output_idx: int = 0


class ForeignNode(Struct):
    """A node."""

    name: str
    op_type: str
    inputs: list[ForeignTensor]
    outputs: list[ForeignTensor]
    attrs: dict[str, Any] = field(default_factory=dict[str, Any])


class ForeignConstant(Struct):
    """A constant: its values as nested lists, and no shape."""

    data: Any
    dtype: str = "float32"


class ForeignDocument(Struct):
    """A program."""

    graph_inputs: list[ForeignTensor]
    graph_outputs: list[ForeignTensor]
    weights: list[ForeignTensor]
    nodes: list[ForeignNode]
    weight_name_mapping: dict[str, str] = field(default_factory=dict[str, str])
    constants: dict[str, ForeignConstant] = field(default_factory=dict[str, ForeignConstant])
    model_name: str = ""
    pytorch_version: str = ""


def from_version_0(document: Mapping[str, Any]) -> dict[str, Any]:
    """Upgrade a document without a version to version 1.

    Raises:
        Fault: The document is not of this shape.
    """
    try:
        foreign = msgspec.convert(document, ForeignDocument)
    except msgspec.ValidationError as error:
        raise explain(error, document, ForeignDocument) from None
    _check_tensors(foreign)
    values = _ForeignValues(foreign)
    nodes = [_node(node, values) for node in foreign.nodes if node.name not in values.folded]
    return {
        "format_version": 1,
        "model_name": foreign.model_name,
        "pytorch_version": foreign.pytorch_version,
        "graph_inputs": [_tensor(meta, None, 0) for meta in foreign.graph_inputs],
        "graph_outputs": [values.use(meta) for meta in foreign.graph_outputs],
        "weights": [
            _tensor(w, None, 0) for w in foreign.weights if w.name not in foreign.constants
        ],
        "weight_name_mapping": foreign.weight_name_mapping,
        "nodes": nodes,
        "constants": _constants(foreign),
    }


def _check_tensors(foreign: ForeignDocument) -> None:
    """Refuse bad shapes and dtypes while the paths are still those of the file."""
    for name in ("graph_inputs", "graph_outputs", "weights"):
        each(_check_tensor, getattr(foreign, name), f".{name}")
    each(_check_node, foreign.nodes, ".nodes")


def _check_node(node: ForeignNode) -> None:
    each(_check_tensor, node.inputs, ".inputs")
    each(_check_tensor, node.outputs, ".outputs")


def _check_tensor(meta: ForeignTensor) -> None:
    decode_tensor(TensorRecord(name=meta.name, shape=meta.shape, dtype=meta.dtype))


def _tensor(meta: ForeignTensor, producer: str | None, index: int) -> dict[str, Any]:
    tensor = {"name": meta.name, "shape": meta.shape, "dtype": meta.dtype}
    return (
        tensor
        if producer is None
        else {
            **tensor,
            "producer_node": producer,
            "producer_output_idx": index,
        }
    )


class _ForeignValues:
    """The values that nodes make, under the names and producers that this package gives them."""

    def __init__(self, foreign: ForeignDocument):
        self.outputs: dict[str, list[dict[str, Any]]] = {}
        self.by_name: dict[str, dict[str, Any]] = {}
        self.folded: set[str] = set()
        self._inputs = {meta.name for meta in foreign.graph_inputs}
        for node in foreign.nodes:
            picked = self._picked(node) if node.op_type == GETITEM else None
            if picked is not None:
                self.folded.add(node.name)
            made = [picked] if picked is not None else _outputs(node)
            self.outputs[node.name] = made
            self.by_name.update(
                {meta.name: value for meta, value in zip(node.outputs, made, strict=False)}
            )

    def _picked(self, node: ForeignNode) -> dict[str, Any] | None:
        """The result that a getitem takes, or None where it does not say which."""
        producer = node.inputs[0].producer_node if node.inputs else None
        made = self.outputs.get(producer or "", [])
        index = node.attrs.get("index")
        return next(
            (value for value in made if value.get("producer_output_idx", 0) == index), None
        )

    def use(self, meta: ForeignTensor) -> dict[str, Any]:
        """The value that a node or the graph's output takes."""
        producer = meta.producer_node
        if producer is None:
            return self.by_name.get(meta.name) or _tensor(meta, None, 0)
        made = self.outputs.get(producer)
        if made is None:
            is_input = producer in self._inputs
            return _tensor(meta, None if is_input else producer, meta.producer_output_idx)
        if 0 <= meta.producer_output_idx < len(made):
            return made[meta.producer_output_idx]
        return _tensor(meta, producer, meta.producer_output_idx)


def _outputs(node: ForeignNode) -> list[dict[str, Any]]:
    """The results of a node; ``split_1`` is the second of ``split`` even where it is alone."""
    if any(meta.producer_node is not None for meta in node.outputs):
        return [_tensor(m, m.producer_node, m.producer_output_idx) for m in node.outputs]
    suffixes = [meta.name.removeprefix(f"{node.name}_") for meta in node.outputs]
    if any(not suffix.isdecimal() for suffix in suffixes):
        return [_tensor(meta, node.name, index) for index, meta in enumerate(node.outputs)]
    return [
        {**_tensor(meta, node.name, int(suffix)), "name": f"{node.name}.{suffix}"}
        for meta, suffix in zip(node.outputs, suffixes, strict=True)
    ]


def _node(node: ForeignNode, values: _ForeignValues) -> dict[str, Any]:
    attrs = {name: v for name, v in node.attrs.items() if name not in (LIST_SIZES, NONE_MASKS)}
    made = {
        "name": node.name,
        "op_type": node.op_type,
        "inputs": [values.use(meta) for meta in node.inputs],
        "outputs": values.outputs[node.name],
        "attrs": attrs,
    }
    operands = _operands(node, attrs)
    return made if operands is None else {**made, "operands": operands}


def _operands(node: ForeignNode, attrs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Which argument takes which input: in the schema's order, lists as long as the file says."""
    schema = lookup(node.op_type)
    if schema is None:
        return None
    sizes, masks = _integers(node.attrs.get(LIST_SIZES)), _masks(node.attrs.get(NONE_MASKS))
    if not sizes:
        return bind_in_order(schema, len(node.inputs), attrs)
    if sum(sizes) > len(node.inputs):
        return None
    operands: dict[str, Slots] = {}
    used = 0
    for argument in schema.arguments:
        if argument.name in attrs or (used >= len(node.inputs) and not sizes):
            continue
        if argument.takes_tensor_list and sizes:
            size = sizes.pop(0)
            operands[argument.name] = _grouped(used, size, argument, masks)
            used += size
        elif argument.takes_tensor:
            operands[argument.name] = used
            used += 1
    return operands if used == len(node.inputs) and not sizes else None


def _grouped(first: int, size: int, argument: Argument, masks: list[list[bool]]) -> Slots:
    """The inputs of one list argument, None where the file says that an entry is absent."""
    slots = iter(range(first, first + size))
    if "?" in argument.type and masks and masks[0].count(False) == size:
        return tuple([None if absent else next(slots) for absent in masks.pop(0)])
    return tuple(slots)


def _integers(value: object) -> list[int]:
    items: list[Any] = value if isinstance(value, list) else []
    return items if all(type(item) is int and item >= 0 for item in items) else []


def _masks(value: object) -> list[list[bool]]:
    items: list[Any] = value if isinstance(value, list) else []
    lists: list[list[Any]] = [item for item in items if isinstance(item, list)]
    return lists if all(type(entry) is bool for item in lists for entry in item) else []


def _constants(foreign: ForeignDocument) -> dict[str, Any]:
    shapes = {meta.name: meta.shape for meta in foreign.weights}

    def converted(item: tuple[str, ForeignConstant]) -> Any:
        key, constant = item
        # nested lists lose the shape of an empty tensor; the weight of that name has it
        shape = [d for d in shapes.get(key, []) if isinstance(d, int)]
        given = tuple(shape) if 0 in shape else None
        made = constant_of_lists(constant.data, constant.dtype, given)
        return {
            "dtype": made.dtype,
            "shape": list(made.shape),
            "base64": b64encode(made.tobytes()).decode(),
        }

    return each_value(converted, {k: (k, c) for k, c in foreign.constants.items()}, ".constants")
