"""Operators whose results are views, as views that can be followed: one for each item."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch_ir.ir import OpNode, TensorMeta
from torch_ir.ir.builder import Names

Followed = Iterator[tuple[OpNode, TensorMeta | None]]
"""Nodes that stand for one, each with the value that its results are views of, if they are."""
_Steps = list[tuple[str, Mapping[str, Any], tuple[Any, ...]]]
"""Views of views: the operator, its attributes and the shape that it gives."""
_Of = Callable[[OpNode, TensorMeta, TensorMeta, int], _Steps]
"""The views that give the result of an item: of the node, the item, the result, and its place."""


def _unread(node: OpNode, views: Sequence[TensorMeta], names: Names) -> OpNode:
    """The node with other names for what is said by views, which nothing reads of it then."""
    own = {meta.name for meta in views}
    made = [m.replace(name=names.fresh(m.name)) if m.name in own else m for m in node.outputs]
    return node.replace(outputs=made)


def _items(argument: str, of: _Of) -> Callable[[OpNode, Names], Followed]:
    """The last results are views, one for each item of an argument; what is before is computed."""

    def followed(node: OpNode, names: Names) -> Followed:
        taken = node.tensors(argument)
        views = node.outputs[len(node.outputs) - len(taken) :]
        if len(views) < len(node.outputs):
            yield _unread(node, views, names), None
        for place, (base, output) in enumerate(zip(taken, views, strict=True)):
            steps = of(node, base, output, place)
            for step, (op_type, attrs, shape) in enumerate(steps, 1):
                name = names.fresh(f"{node.name}_{place}")
                made = TensorMeta(name, shape, output.dtype, name)
                if step == len(steps):
                    made = output.replace(producer_node=name, producer_output_idx=0)
                yield _view(node, name, op_type, base, attrs, (made,)), base
                base = made

    return followed


def _view(
    node: OpNode,
    name: str,
    op_type: str,
    base: TensorMeta,
    attrs: Mapping[str, Any],
    outputs: tuple[TensorMeta, ...],
) -> OpNode:
    made = node.replace(
        name=name,
        op_type=op_type,
        inputs=(base,),
        outputs=outputs,
        attrs=attrs,
        operands={"self": 0},
    )
    return made.derived_from(node)


def _expanded(node: OpNode, base: TensorMeta, output: TensorMeta, place: int) -> _Steps:
    return [("aten.expand.default", {"size": output.shape}, output.shape)]


def _grid(node: OpNode, base: TensorMeta, output: TensorMeta, place: int) -> _Steps:
    """A line along its own axis, repeated along the others."""
    rank = len(output.shape)
    axis = 1 - place if place < 2 <= rank and node.attrs.get("indexing") == "xy" else place
    count = base.shape[0] if base.shape else 1
    line = tuple([count if i == axis else 1 for i in range(rank)])
    return [
        ("aten.view.default", {"size": line}, line),
        ("aten.expand.default", {"size": output.shape}, output.shape),
    ]


def _each(op_type: str) -> _Of:
    return lambda _, __, output, ___: [(op_type, {}, output.shape)]


def _split(node: OpNode, names: Names) -> Followed:
    """Parts between places of a tensor: a part that is read again has the sizes of the first time.

    Each call of the operator itself would make new symbols of them.
    """
    yield _unread(node, node.outputs, names), None
    name, base, dim = names.fresh(f"{node.name}_parts"), node.inputs[0], node.attrs.get("dim", 0)
    sizes = tuple([meta.shape[dim] for meta in node.outputs])
    outputs = tuple([meta.replace(producer_node=name) for meta in node.outputs])
    attrs = {"split_sizes": sizes, "dim": dim}
    yield _view(node, name, "aten.split_with_sizes.default", base, attrs, outputs), base


AS_VIEWS: Mapping[str, Callable[[OpNode, Names], Followed]] = {
    "aten.broadcast_tensors.default": _items("tensors", _expanded),
    "aten.meshgrid.default": _items("tensors", _grid),
    "aten.meshgrid.indexing": _items("tensors", _grid),
    **{
        f"aten.atleast_{n}d.Sequence": _items("tensors", _each(f"aten.atleast_{n}d.default"))
        for n in (1, 2, 3)
    },
    "aten.histogramdd.TensorList_bins": _items("bins", _each("aten.alias.default")),
    "aten.tensor_split.tensor_indices_or_sections": _split,
}
"""What these operators are, as nodes."""
