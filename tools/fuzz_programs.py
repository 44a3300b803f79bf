"""Mutations of programs that keep to their types: most of what they make compiles and runs.

A node gets another operator of the same arguments, another operand or attribute, or comes twice;
an input gets another type. Then the types of all results are derived anew, and what torch refuses
is left out.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from random import Random
from typing import Any

from torch_ir import IR, serde
from torch_ir.errors import TorchIRError
from torch_ir.infer.fake import call_on
from torch_ir.ir import OpNode, SymExpr, TensorMeta
from torch_ir.ir.builder import Names
from torch_ir.ir.values import Attribute, DType
from torch_ir.ops.rules import operator_rule
from torch_ir.ops.schema import Schema, known_operators, lookup

SIZES = (0, 1, 1, 2, 2, 3, 4, 5)
DTYPES = (
    *("float32", "float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"),
    "complex64",
)
NUMBERS = (-2, -1, -1, 0, 0, 1, 1, 2, 3, 5)
MAX_NODES = 60
"""Of a program that is changed so; what has more takes too long."""


def edited_program(data: bytes, kind: str, random: Random) -> bytes | None:
    """Return the bytes of a program near to that of a file; None if the file holds none."""
    ir = _program(data, kind)
    if ir is None or not ir.nodes:
        return None
    try:
        made = edited(ir, random)
        if kind == "text":
            return str(made).encode("utf8", "surrogateescape")
        if kind == "json":
            return serde.dumps(made)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "x.tir")
            serde.save(made, path)
            return path.read_bytes()
    except Exception:  # noqa: BLE001  # torch refuses such calls in any way; the reader is judged elsewhere
        return None


@lru_cache(maxsize=256)
def _program(data: bytes, kind: str) -> IR | None:
    from fuzz_judging import read  # which brings in all that judges

    with tempfile.TemporaryDirectory() as folder:
        try:
            found = read(kind, data, Path(folder))
        except TorchIRError:
            return None
    return found if found is not None and len(found.nodes) <= MAX_NODES else None


def edited(ir: IR, random: Random) -> IR:
    """Change some nodes or inputs of a program, and derive the types of all results."""
    inputs = [
        _other_type(meta, random) if random.random() < 0.15 else meta for meta in ir.graph_inputs
    ]
    changed = set(random.choices(range(len(ir.nodes)), k=random.choice((1, 1, 2, 3))))
    names = Names.of(ir)
    values = {meta.name: meta for meta in inputs}
    for name, (_, value) in ir.external_values().items():
        values[name] = TensorMeta(name, value.shape, value.dtype)
    nodes: list[OpNode] = []

    def place(node: OpNode) -> bool:
        typed = _typed(ir, node)
        if typed is not None:
            nodes.append(typed)
            values.update({meta.name: meta for meta in typed.outputs})
        return typed is not None

    for index, node in enumerate(ir.nodes):
        node = _with_values(node, values, random)
        if node is None:
            continue
        if index in changed and random.random() < 0.2:
            place(_again(node, names))
        if index in changed and place(_edited_node(node, values, random)):
            continue
        place(node)
    found = list(values.values())
    results = [values.get(meta.name) or random.choice(found) for meta in ir.graph_outputs]
    if random.random() < 0.5 and nodes and results and nodes[-1].outputs:
        results[random.randrange(len(results))] = random.choice(nodes[-1].outputs)
    signature = ir.signature if results == list(ir.graph_outputs) else None
    mutations = [m for m in ir.mutations if values.get(m.value.name) == m.value]
    return ir.replace(
        nodes=nodes,
        graph_inputs=inputs,
        graph_outputs=results,
        mutations=mutations,
        signature=signature,
        guards=() if signature is None else ir.guards,
    )


def _typed(ir: IR, node: OpNode) -> OpNode | None:
    """The node with the types of its results; None if torch does not tell them."""
    try:
        outcome = call_on(ir, node)
    except (TorchIRError, RuntimeError, TypeError, ValueError, NotImplementedError):
        return None
    if outcome.kind == "refused" or outcome.refusal:
        return None
    outputs: list[TensorMeta] = []
    for position, result in enumerate(outcome.results):
        known = next((m for m in node.outputs if m.producer_output_idx == position), None)
        if known is None and (position or len(node.outputs) != 1):
            continue
        known = known or node.outputs[0]
        if result is None:
            outputs.append(known)
            continue
        outputs.append(
            known.replace(shape=result.shape, dtype=result.dtype, producer_output_idx=position)
        )
    return node.replace(outputs=outputs or node.outputs)


def _with_values(node: OpNode, values: Mapping[str, TensorMeta], random: Random) -> OpNode | None:
    """The node on the values that there are now; another one stands for what is gone."""
    inputs: list[TensorMeta] = []
    for meta in node.inputs:
        found = values.get(meta.name) or _near(meta, values, random)
        if found is None:
            return None
        inputs.append(found)
    return node.replace(inputs=inputs)


def _near(meta: TensorMeta, values: Mapping[str, TensorMeta], random: Random) -> TensorMeta | None:
    alike = [
        v for v in values.values() if v.dtype == meta.dtype and len(v.shape) == len(meta.shape)
    ]
    found = alike if alike and random.random() < 0.8 else list(values.values())
    return random.choice(found) if found else None


def _again(node: OpNode, names: Names) -> OpNode:
    """The node once more, under other names."""
    name = names.fresh(node.name)
    outputs = [
        meta.replace(name=names.fresh(meta.name), producer_node=name) for meta in node.outputs
    ]
    return node.replace(name=name, outputs=outputs)


def _edited_node(node: OpNode, values: Mapping[str, TensorMeta], random: Random) -> OpNode:
    match random.randrange(3):
        case 0 if node.inputs:
            inputs = list(node.inputs)
            place = random.randrange(len(inputs))
            inputs[place] = _near(inputs[place], values, random) or inputs[place]
            return node.replace(inputs=inputs)
        case 1 if node.attrs:
            name = random.choice(sorted(node.attrs))
            return node.replace(attrs={**node.attrs, name: _other(node.attrs[name], random)})
        case _:
            return _other_operator(node, random)


def _other_operator(node: OpNode, random: Random) -> OpNode:
    schema = lookup(node.op_type)
    if schema is None or not node.outputs:
        return node
    op_type = random.choice(_alike().get(_form(schema), [node.op_type]))
    other = lookup(op_type)
    assert other is not None
    attrs = {name: value for name, value in node.attrs.items() if name in other.names}
    for argument in other.arguments:
        if argument.default is None and argument.name not in attrs and argument.type in _FILL:
            attrs[argument.name] = random.choice(_FILL[argument.type])
    try:
        return node.replace(op_type=op_type, attrs=attrs, operands=None)
    except TorchIRError:
        return node


_FILL: dict[str, tuple[Any, ...]] = {
    "int": NUMBERS,
    "SymInt": NUMBERS,
    "Scalar": (*NUMBERS, 0.5, -1.5, True),
    "float": (0.0, 0.5, 1.0, -2.5),
    "bool": (False, True),
    "int[1]": ((0,), (-1,), (0, 1)),
    "int[]": ((0,), (1, 0), ()),
    "SymInt[]": ((1, 2), (-1,), ()),
    "ScalarType": tuple(map(DType, DTYPES)),
}


def _form(schema: Schema) -> tuple[str, ...]:
    """The tensors that have to be given, and the results."""
    required = [a for a in schema.arguments if a.default is None]
    tensors = [a.type for a in required if a.takes_tensor or a.takes_tensor_list]
    return (*tensors, "->", *[r.type for r in schema.returns])


@cache
def _alike() -> dict[tuple[str, ...], list[str]]:
    """The operators that a program may call, by what they take and give."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for op_type in sorted(known_operators()):
        schema = lookup(op_type)
        if schema is None or not operator_rule(op_type).allowed:
            continue
        required = [a for a in schema.arguments if a.default is None]
        if all(a.takes_tensor or a.takes_tensor_list or a.type in _FILL for a in required):
            found[_form(schema)].append(op_type)
    return found


def _other(value: Attribute, random: Random) -> Attribute:
    """Another attribute of the kind that it is."""
    match value:
        case bool():
            return not value
        case int():
            return random.choice((*NUMBERS, value + 1, value - 1))
        case float():
            return random.choice((0.0, -value, value * 2, 1.0, float("inf")))
        case DType():
            return DType(random.choice(DTYPES))
        case tuple() if value:
            place = random.randrange(len(value))
            one = _other(value[place], random)
            return random.choice(
                ((*value[:place], one, *value[place + 1 :]), tuple(reversed(value)), value[:-1])
            )
        case SymExpr():
            return random.choice(NUMBERS)
        case _:
            return value


def _other_type(meta: TensorMeta, random: Random) -> TensorMeta:
    if random.random() < 0.4:
        return meta.replace(dtype=random.choice(DTYPES))
    shape = list(meta.shape)
    if not shape:
        return meta.replace(shape=(random.choice(SIZES),))
    place = random.randrange(len(shape))
    match random.randrange(3):
        case 0:
            shape[place] = random.choice(SIZES)
        case 1:
            shape.reverse()
        case _:
            shape[place:place] = [1]
    return meta.replace(shape=tuple(shape))
