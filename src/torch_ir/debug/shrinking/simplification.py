"""Simpler forms of a small program: fewer weights, sizes, dtypes, plain values and attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from torch_ir.errors import TorchIRError
from torch_ir.infer.fake import call_on
from torch_ir.ir import IR, DType, OpNode, TensorMeta
from torch_ir.ir.builder import with_attributes, with_inputs
from torch_ir.ir.queries import given_values
from torch_ir.ir.values import default_attribute

MAX_NODES = 40
"""So many nodes at most have their types derived anew for each candidate."""
VIEWS = frozenset({"aten.view.default", "aten.reshape.default", "aten._unsafe_view.default"})


@dataclass(frozen=True, slots=True)
class Failing:
    """A program with its weights by key and a tensor for each input."""

    ir: IR
    weights: Mapping[str, torch.Tensor]
    inputs: tuple[torch.Tensor, ...]


Simplification: TypeAlias = Callable[[Failing], Iterator["Failing | None"]]


def simpler(*, shapes: bool) -> tuple[Simplification, ...]:
    """Return what yields simpler cases of a case, in the order to try."""
    return (_weights_as_inputs, *((_sizes,) if shapes else ()), _dtypes, _values, _attributes)


def _weights_as_inputs(case: Failing) -> Iterator[Failing | None]:
    ir = case.ir
    if not ir.weights or ir.mutations:
        return
    external = {
        n: key for n, (key, v) in ir.external_values().items() if isinstance(v, TensorMeta)
    }
    used = {meta.name for node in ir.nodes for meta in node.inputs}
    names = [name for name in external if name in used]
    metas = {meta.name: meta for meta in ir.weights}
    given = [metas[external[name]].replace(name=name) for name in names]
    left = {name: key for name, key in ir.weight_name_mapping.items() if name not in external}
    yield Failing(
        ir.replace(
            graph_inputs=(*ir.graph_inputs, *given),
            weights=(),
            weight_name_mapping=left,
            weight_aliases={},
            signature=None,
        ),
        {},
        (*case.inputs, *[case.weights[external[name]] for name in names]),
    )


# -- sizes ----------------------------------------------------------------------------------------


def _sizes(case: Failing) -> Iterator[Failing | None]:
    """Every size, all occurrences together, made 1, 2, 3 or half."""
    metas = (*case.ir.graph_inputs, *case.ir.weights)
    known = sorted({d for meta in metas for d in meta.shape if isinstance(d, int) and d > 1})
    for size in reversed(known):
        for new in dict.fromkeys((1, 2, 3, size // 2)):
            if 0 < new < size:
                yield _resized(case, size, new)
    for index, meta in enumerate(case.ir.graph_inputs):  # one dimension alone
        for axis, size in enumerate(meta.shape):
            if isinstance(size, int) and size > 1:
                yield _resized(case, size, 1, only=(index, axis))


def _resized(
    case: Failing, old: int, new: int, only: tuple[int, int] | None = None
) -> Failing | None:
    if case.ir.functions or case.ir.constants or len(case.ir.nodes) > MAX_NODES:
        return None

    def shape(meta: TensorMeta, index: int = -1) -> TensorMeta:
        dims = [
            new if d == old and (only is None or only == (index, axis)) else d
            for axis, d in enumerate(meta.shape)
        ]
        return meta.replace(shape=tuple(dims))

    def tensor(value: torch.Tensor, meta: TensorMeta) -> torch.Tensor:
        for axis, size in enumerate(meta.shape):
            value = value.narrow(axis, 0, int(size)) if isinstance(size, int) else value
        return value.contiguous().clone()

    inputs = [shape(meta, index) for index, meta in enumerate(case.ir.graph_inputs)]
    weights = [meta if only else shape(meta) for meta in case.ir.weights]
    ir = case.ir.replace(graph_inputs=inputs, weights=weights)
    if only is None:
        ir = ir.replace(nodes=[_with_size(node, old, new) for node in ir.nodes])
    ir = retyped(ir)
    if ir is None:
        return None
    values = {meta.name: tensor(case.weights[meta.name], meta) for meta in weights}
    given = [tensor(v, meta) for v, meta in zip(case.inputs, inputs, strict=True)]
    return Failing(ir, values, tuple(given))


def _with_size(node: OpNode, old: int, new: int) -> OpNode:
    """The node with one size replaced in its lists of sizes."""

    def changed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple([new if type(item) is int and item == old else item for item in value])
        return value

    attrs = {name: changed(value) for name, value in node.attrs.items()}
    return node if attrs == node.attrs else node.replace(attrs=attrs)


def retyped(ir: IR) -> IR | None:
    """Derive the types of all results anew from those of the inputs; None where that fails."""
    values = dict(given_values(ir))
    nodes: list[OpNode] = []
    for node in ir.nodes:
        new = _fitted(with_inputs(node, values))
        try:
            outcome = call_on(ir, new)
        except (TorchIRError, RuntimeError, ValueError):
            return None
        if not outcome.results:
            return None
        outputs = [
            meta
            if (made := outcome.result(meta)) is None
            else meta.replace(shape=made.shape, dtype=made.dtype)
            for meta in node.outputs
        ]
        nodes.append(new.replace(outputs=outputs))
        values |= {meta.name: meta for meta in outputs}
    outputs = [values.get(meta.name, meta) for meta in ir.graph_outputs]
    made = ir.replace(nodes=nodes, graph_outputs=outputs, signature=None)
    return None if any(finding.is_error for finding in made.check()) else made


def _fitted(node: OpNode) -> OpNode:
    """A view with sizes that multiply to what it views."""
    name = "size" if "size" in node.attrs else "shape"
    sizes: Any = node.attrs.get(name)
    if node.op_type not in VIEWS or not all(isinstance(item, int) for item in sizes):
        return node
    dims = node.inputs[0].shape
    if not all(isinstance(dim, int) for dim in dims) or -1 in sizes:
        return node
    count = math.prod([int(str(dim)) for dim in dims])
    if math.prod(sizes) == count:
        return node
    for index, size in enumerate(sizes):
        others = math.prod(sizes) // size if size else 0
        if others and count % others == 0:
            fitted = (*sizes[:index], count // others, *sizes[index + 1 :])
            return node.replace(attrs={**node.attrs, name: fitted})
    return node


# -- dtypes, values, attributes -------------------------------------------------------------------


def _dtypes(case: Failing) -> Iterator[Failing | None]:
    """All other floating-point dtypes as float32."""
    others = ("float64", "float16", "bfloat16")
    metas = (*case.ir.graph_inputs, *case.ir.weights)
    if not any(meta.dtype in others for meta in metas) or case.ir.functions:
        return

    def plain(meta: TensorMeta) -> TensorMeta:
        return meta.replace(dtype="float32") if meta.dtype in others else meta

    def leaf(value: Any) -> Any:
        is_other = isinstance(value, DType) and value.name in others
        return DType("float32") if is_other else value

    ir = retyped(
        case.ir.replace(
            graph_inputs=[plain(m) for m in case.ir.graph_inputs],
            weights=[plain(m) for m in case.ir.weights],
            nodes=[with_attributes(node, leaf) for node in case.ir.nodes],
        )
    )
    if ir is not None:
        weights = {key: _float32(tensor) for key, tensor in case.weights.items()}
        yield Failing(ir, weights, tuple(map(_float32, case.inputs)))


def _float32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def _values(case: Failing) -> Iterator[Failing | None]:
    """Each input as zeros, ones or small whole numbers."""
    for index, tensor in enumerate(case.inputs):
        if tensor.is_complex() or tensor.numel() == 0:
            continue
        for plain in _plainer(tensor):
            if torch.equal(plain, tensor):
                break
            inputs = (*case.inputs[:index], plain, *case.inputs[index + 1 :])
            yield Failing(case.ir, case.weights, inputs)


def _plainer(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    yield torch.zeros_like(tensor)
    yield torch.ones_like(tensor)
    if tensor.is_floating_point():
        whole = tensor.double().nan_to_num(0.0, 8.0, -8.0).clamp(-8, 8).round()
        yield whole.to(tensor.dtype)


def _attributes(case: Failing) -> Iterator[Failing | None]:
    """Each attribute as the schema's default."""
    for position, node in enumerate(case.ir.nodes):
        schema = case.ir.schema_of(node.op_type)
        for argument in schema.arguments if schema is not None else ():
            value = node.attrs.get(argument.name)
            is_plain = argument.default is not None and argument.name in node.attrs
            if is_plain and value != default_attribute(argument):
                attrs = {k: v for k, v in node.attrs.items() if k != argument.name}
                nodes: Sequence[OpNode] = (
                    *case.ir.nodes[:position],
                    node.replace(attrs=attrs),
                    *case.ir.nodes[position + 1 :],
                )
                ir = retyped(case.ir.replace(nodes=nodes))
                yield None if ir is None else Failing(ir, case.weights, case.inputs)
