"""Documents as JSON, of this version and without one."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from torch_ir.serde.json.wire import FORMAT_VERSION

Files = dict[str, Callable[[int], bytes]]

VERSION = b'{"format_version": %d' % FORMAT_VERSION
NODE = {"name": "n", "op_type": "aten.relu.default", "inputs": [], "outputs": []}


def tensor(name: str, *shape: Any, **more: Any) -> dict[str, Any]:
    """Make the record of a tensor."""
    return {"name": name, "shape": list(shape), "dtype": "float32", **more}


def document(**fields: Any) -> bytes:
    """Make a document of the current version."""
    empty = dict.fromkeys(("graph_inputs", "graph_outputs", "weights", "nodes"), ())
    return json.dumps({"format_version": FORMAT_VERSION, **empty, **fields}).encode()


def filled(size: int, make: Callable[[int], Any]) -> list[Any]:
    """Make items until their JSON has that many bytes."""
    items: list[Any] = []
    while size > 0:
        items.append(make(len(items)))
        size -= len(json.dumps(items[-1])) + 2
    return items


def mapping(size: int, make: Callable[[int], Any]) -> dict[str, Any]:
    """Make a mapping of that many bytes."""
    return {f"k{i}": value for i, value in enumerate(filled(size, make))}


def nested(depth: int, value: Any, around: Callable[[Any], Any] = lambda value: [value]) -> Any:
    """Put a value into so many containers."""
    for _ in range(depth):
        value = around(value)
    return value


OPERATORS = (
    *("aten.add.Tensor", "aten.convolution.default", "aten.stack.default", "prims.mul.default"),
    *("aten.index_put.default", "aten.lstm.input", "aten._foreach_add.List", "aten.where.self"),
)

# -- expressions ------------------------------------------------------------------------------

SUM = " + ".join([f"a{i}" for i in range(250)])
EXPRESSIONS: dict[str, Callable[[int], str]] = {
    "names": lambda i: f"s{i}",
    "sums": lambda i: f"s{i} + 1",
    "multiples": lambda i: f"{i}*s0",
    "products": lambda i: f"a{i}*b*c{i}",
    "quotients": lambda i: f"s0//{i + 2}",
    "rests of sums": lambda i: f"(s0 + {i}) % (s1 + 2)",
    "maxima": lambda i: f"max(s0, {i}, s1)",
    "floats": lambda i: f"floor(s0*{i}.5)",
    "expanded powers": lambda i: f"(a + b + c + d)**{8 + i % 2} + {i}",
    "expanded products": lambda i: f"({SUM})*(a0 + {i})",
    "long sums": lambda i: f"{SUM} + {i}",
    "large powers": lambda i: f"(2**63)**{i % 60} + {i} + s0",
    "long numbers": lambda i: f"{'9' * 1200}{i} + s0",
    "deep functions": lambda i: f"{'abs(' * 60}s{i}{')' * 60}",
    "deep brackets": lambda i: f"{'(' * 150}s{i}{')' * 150}",
    "signs": lambda i: f"{'-' * 60}s{i}",
    "nested maxima": lambda i: f"{'max(1, ' * 30}s{i}{')' * 30}",
    "a rotation": lambda i: f"s{i % 5000} + 1",
    "spaces": lambda i: f"{' ' * (i % 1000)}s0 + 1",
    "conditions": lambda i: f"int(s{i} < 1 and s1 < 2)",
}
SHAPES: Files = {
    f"json: shapes of {what}": lambda size, make=make: document(
        graph_inputs=filled(size, lambda i: tensor(f"x{i}", make(i)))
    )
    for what, make in EXPRESSIONS.items()
}
GUARDS: Files = {
    "json: guards": lambda size: document(guards=filled(size, lambda i: f"s{i} < 5")),
    "json: guards that are long": lambda size: document(
        guards=filled(size, lambda i: " and ".join([f"s{i + k} != {k}" for k in range(60)]))
    ),
    "json: guards that expand": lambda size: document(
        guards=filled(size, lambda i: f"(a + b + c + {i})**7 == 3")
    ),
    "json: guards of chains": lambda size: document(
        guards=filled(size, lambda i: f"{i}{' < s0' * 60}")
    ),
    "json: a guard that is none, at the end": lambda size: document(
        guards=[*filled(size, lambda i: f"s{i} < 5"), "s0 <"]
    ),
}

# -- attributes -----------------------------------------------------------------------------------


def attributes(make: Callable[[int], Any]) -> Callable[[int], bytes]:
    """Make a document whose nodes have these attributes."""
    return lambda size: document(
        nodes=filled(size, lambda i: {**NODE, "name": f"n{i}", "attrs": {"a": make(i)}})
    )


def in_one(make: Callable[[int], Any]) -> Callable[[int], bytes]:
    """Make a document whose one attribute lists these values."""
    return lambda size: document(nodes=[{**NODE, "attrs": {"a": filled(size, make)}}])


ATTRIBUTES: Files = {
    "json: attributes nested 55 deep": attributes(lambda i: nested(55, i)),
    "json: attributes nested 55 deep in one": in_one(lambda i: nested(55, i)),
    "json: attributes of small lists": in_one(lambda i: []),
    "json: attributes of pairs": in_one(lambda i: [i % 10, []]),
    "json: attributes of dicts": in_one(lambda i: {"$dict": {}}),
    "json: attributes of dicts, deep": in_one(
        lambda i: nested(30, i, lambda value: {"$dict": {"a": value}})
    ),
    "json: attributes of numbers": in_one(lambda i: i % 10),
    "json: attributes of floats": in_one(lambda i: 0.5),
    "json: attributes of dtypes": in_one(lambda i: {"$dtype": "float32"}),
    "json: attributes of devices": in_one(lambda i: {"$device": ""}),
    "json: attributes of wrong dtypes": in_one(
        lambda i: {"$dtype": "float32" if i < 30_000 else "float23"}
    ),
    "json: attributes of expressions": in_one(lambda i: {"$expr": f"s{i}+1"}),
    "json: attributes of expanded expressions": in_one(lambda i: {"$expr": f"(a+b+c+{i})**9"}),
    "json: attributes of long integers": in_one(lambda i: {"$int": f"9{i:04000}"}),
    "json: attributes of complex numbers": in_one(lambda i: {"$complex": [0.5, 1.5]}),
    "json: attributes of operators": in_one(lambda i: {"$operator": f"a{i}"}),
    "json: attributes by many names": lambda size: document(
        nodes=[{**NODE, "attrs": mapping(size, lambda i: 0)}]
    ),
    "json: an attribute that is none, at the end": lambda size: document(
        nodes=[{**NODE, "attrs": {**mapping(size, lambda i: 0), "z": {"$expresion": "s0"}}}]
    ),
    "json: metadata": lambda size: document(metadata=mapping(size, lambda i: [[i]])),
    "json: metadata nested 60 deep": lambda size: document(
        metadata=mapping(size, lambda i: nested(60, i))
    ),
    "json: metadata of expressions": lambda size: document(
        metadata=mapping(size, lambda i: {"$expr": f"s{i}//2"})
    ),
    "json: metadata in one dict": lambda size: document(
        metadata={"a": {"$dict": mapping(size, lambda i: "x")}}
    ),
}

# -- other parts of a document --------------------------------------------------------------------


def functions_in(depth: int, width: int) -> bytes:
    """Make a document with functions in functions."""
    made = json.loads(document())
    for _ in range(depth):
        inner = {f"f{i}": json.loads(document()) for i in range(width)}
        made = {**json.loads(document()), "functions": {"f": made, **inner}}
    return json.dumps(made).encode()


def _views(size: int) -> bytes:
    data = base64.b64encode(bytes(size // 4)).decode()
    base = {"dtype": "uint8", "shape": [size // 4], "base64": data}
    views = mapping(
        size // 2,
        lambda i: {"dtype": "uint8", "shape": [2], "view": {"of": "b", "strides": [1]}},
    )
    return document(constants={"b": base, **views})


PARTS: Files = {
    "json: nodes": lambda size: document(nodes=filled(size, lambda i: {**NODE, "name": f"n{i}"})),
    "json: nodes of one name": lambda size: document(nodes=filled(size, lambda i: NODE)),
    "json: nodes of unknown operators": lambda size: document(
        nodes=filled(size, lambda i: {**NODE, "op_type": f"a.b{i}.c"})
    ),
    "json: nodes of all operators": lambda size: document(
        nodes=filled(size, lambda i: {**NODE, "op_type": OPERATORS[i % len(OPERATORS)]})
    ),
    "json: a node with many inputs": lambda size: document(
        nodes=[{**NODE, "inputs": filled(size, lambda i: tensor("x"))}]
    ),
    "json: lists without operands": lambda size: document(
        nodes=filled(
            size,
            lambda i: {**NODE, "op_type": "aten.cat.default", "inputs": [tensor("x")] * 50},
        )
    ),
    "json: a node with many results": lambda size: document(
        nodes=[{**NODE, "outputs": filled(size, lambda i: tensor(f"x{i}"))}]
    ),
    "json: values without producers": lambda size: document(
        nodes=filled(
            size,
            lambda i: {
                **NODE,
                "name": f"n{i}",
                "inputs": [tensor(f"v{i}")],
                "outputs": [tensor(f"v{i + 1}")],
            },
        )
    ),
    "json: operands": lambda size: document(
        nodes=[{**NODE, "operands": {"self": filled(size, lambda i: None)}}]
    ),
    "json: operands by many names": lambda size: document(
        nodes=[{**NODE, "operands": mapping(size, lambda i: -1)}]
    ),
    "json: bound symbols": lambda size: document(
        nodes=[{**NODE, "binds": mapping(size, lambda i: i)}]
    ),
    "json: origins": lambda size: document(
        nodes=[{**NODE, "origins": filled(size, lambda i: f"{i}")}]
    ),
    "json: locations": lambda size: document(
        nodes=filled(size, lambda i: {**NODE, "location": {"line": i, "code": f"{i}"}})
    ),
    "json: long names": lambda size: document(
        graph_inputs=[tensor("é" * (size // 12)), tensor("\0" * (size // 12))]
    ),
    "json: shapes of 128 sizes": lambda size: document(
        graph_inputs=filled(size, lambda i: tensor(f"x{i}", *[1] * 128))
    ),
    "json: shapes of long numbers": lambda size: document(
        graph_inputs=filled(size, lambda i: tensor("x", "9" * 4000))
    ),
    "json: graph outputs": lambda size: document(
        graph_outputs=filled(size, lambda i: tensor(f"x{i}", producer_node="n"))
    ),
    "json: weights": lambda size: document(weights=filled(size, lambda i: tensor(f"x{i}"))),
    "json: names of weights": lambda size: document(
        weight_name_mapping=mapping(size, lambda i: "w")
    ),
    "json: aliases of weights": lambda size: document(weight_aliases=mapping(size, lambda i: "w")),
    "json: symbols": lambda size: document(symbols=mapping(size, lambda i: {})),
    "json: symbols of empty ranges": lambda size: document(
        symbols={**mapping(size, lambda i: {}), "s": {"lower": 2, "upper": 1}}
    ),
    "json: mutations": lambda size: document(
        mutations=filled(size, lambda i: {"target": f"b{i}", "value": tensor(f"v{i}", "s0")})
    ),
    "json: schemas": lambda size: document(
        operators={
            f"m.o{i}.default": f"m::o{i}(Tensor a, int b=1) -> Tensor"
            for i, _ in enumerate(filled(size, lambda i: f"m.o{i}.default" + 40 * "."))
        }
    ),
    "json: a schema of many arguments": lambda size: document(
        operators={"m.o.default": f"m::o({', '.join(['int a=1'] * (size // 9))}) -> Tensor"}
    ),
    "json: a schema of quotes": lambda size: document(
        operators={"m.o.default": f'm::o(str a="{chr(92) + chr(34) * 1}' * (size // 14) + ") -> T"}
    ),
    "json: a schema of escapes": lambda size: document(
        operators={"m.o.default": 'm::o(str a="' + '\\"' * (size // 4) + ") -> Tensor"}
    ),
    "json: a schema of brackets": lambda size: document(
        operators={"m.o.default": f"m::o({'(' * (size // 2)}{')' * (size // 2)}) -> Tensor"}
    ),
    "json: a schema of alias marks": lambda size: document(
        operators={"m.o.default": f"m::o({'(a -> ' * (size // 6)}) -> Tensor"}
    ),
    "json: a schema of arrows": lambda size: document(
        operators={"m.o.default": f"m::o({') -> ' * (size // 5)}"}
    ),
    "json: signature, wide": lambda size: document(
        signature={"inputs": {"type": "tuple", "children": ["x"] * (size // 5)}, "outputs": "y"}
    ),
    "json: signature, of tuples": lambda size: document(
        signature={
            "inputs": {
                "type": "tuple",
                "children": filled(
                    size,
                    lambda i: nested(60, "x", lambda value: {"type": "list", "children": [value]}),
                ),
            },
            "outputs": "y",
        }
    ),
    "json: signature, of keys": lambda size: document(
        signature={
            "inputs": {
                "type": "dict",
                "children": ["x"] * (size // 20),
                "keys": [[[i]] for i in range(size // 20)],
            },
            "outputs": "y",
        }
    ),
    "json: signature, of values": lambda size: document(
        signature={
            "inputs": {
                "type": "tuple",
                "children": filled(size, lambda i: {"value": {"$expr": f"s{i}*3"}}),
            },
            "outputs": "y",
        }
    ),
    "json: signature, of contexts": lambda size: document(
        signature={
            "inputs": {
                "type": "tuple",
                "children": filled(
                    size, lambda i: {"type": "m.C", "children": [], "context": "[" * 400}
                ),
            },
            "outputs": "y",
        }
    ),
    "json: functions": lambda size: document(
        functions=mapping(size, lambda i: json.loads(document()))
    ),
    "json: functions in functions": lambda size: functions_in(60, size // 8000),
    "json: functions in functions, one wrong": lambda size: functions_in(60, size // 8000).replace(
        b'"nodes": []', b'"nodes": [0]', 1
    ),
    "json: constants": lambda size: document(
        constants=mapping(size, lambda i: {"dtype": "int64", "shape": [], "data": i})
    ),
    "json: constants of no elements": lambda size: document(
        constants=mapping(size, lambda i: {"dtype": "int64", "shape": [0, 2**40], "data": []})
    ),
    "json: a constant as lists": lambda size: document(
        constants={"c": {"dtype": "int8", "shape": [size // 3], "data": [1] * (size // 3)}}
    ),
    "json: a constant as small lists": lambda size: document(
        constants={"c": {"dtype": "int8", "shape": [size // 5, 1], "data": [[1]] * (size // 5)}}
    ),
    "json: a constant as deep lists": lambda size: document(
        constants={
            "c": {
                "dtype": "int8",
                "shape": [size // 203, *[1] * 99],
                "data": [nested(99, 1)] * (size // 203),
            }
        }
    ),
    "json: constants as empty lists": lambda size: document(
        constants={"c": {"dtype": "int8", "shape": [size // 4, 0], "data": [[]] * (size // 4)}}
    ),
    "json: a constant of another package's dtype": lambda size: document(
        constants={"c": {"dtype": "bfloat16", "shape": [size // 3], "data": [1] * (size // 3)}}
    ),
    "json: a constant in base64": lambda size: document(
        constants={
            "c": {
                "dtype": "uint8",
                "shape": [size * 3 // 4],
                "base64": base64.b64encode(bytes(size * 3 // 4)).decode(),
            }
        }
    ),
    "json: views of one constant": _views,
    "json: views of views": lambda size: document(
        constants={
            f"k{i}": {
                "dtype": "int8",
                "shape": [1],
                "view": {"of": f"k{i + 1}", "strides": [1]},
            }
            for i in range(size // 80)
        }
    ),
    "json: an unknown key of a MB": lambda size: document(**{"x" * size: 1}),
    "json: unknown keys": lambda size: document(**mapping(size, lambda i: 0)),
    "json: a wrong value at the end": lambda size: document(
        nodes=[*filled(size, lambda i: NODE), {**NODE, "name": 1}]
    ),
    "json: a wrong value in a mapping": lambda size: document(
        weight_name_mapping={**mapping(size, lambda i: "w"), "z": 1}
    ),
    "json: brackets": lambda size: b"[" * size,
    "json: brackets in an attribute": lambda size: VERSION + b', "metadata": {"a": ' + b"[" * size,
    "json: a number out of range, deep": lambda size: (
        b'{"x": ' + b"[" * 800 + b"1," * (size // 2) + b"1e999" + b"]" * 800 + b"}"
    ),
    "json: a number out of range in keys": lambda size: (
        b'{"x": ' + b'{"' + b"k" * 1000 + b'": [' + b"1," * (size // 2) + b"1e999]}}"
    ),
    "json: NaN": lambda size: b'{"nodes": [' + b"NaN," * (size // 4) + b"NaN]}",
    "json: half a character at the end": lambda size: (
        VERSION + b', "metadata": {"a": [' + b'"\\u0041",' * (size // 9) + b'"\\ud800"]}}'
    ),
    "json: a long integer": lambda size: b'{"format_version": ' + b"9" * size + b"}",
    "json: spaces": lambda size: b" " * size,
    "json: no UTF-8 at the end": lambda size: b'{"model_name": "' + b"a" * size + b'\xff"}',
}

# -- old documents --------------------------------------------------------------------------------


def old(**fields: Any) -> bytes:
    """Make a document without a version."""
    found = json.loads(document(**fields))
    return json.dumps({k: v for k, v in found.items() if k != "format_version"}).encode()


GETITEM = {**NODE, "op_type": "<built-in function getitem>"}


def _split(size: int) -> bytes:
    count = size // 260
    results = [tensor(f"s_{i}") for i in range(count)]
    takes = [
        {
            **GETITEM,
            "name": f"g{i}",
            "inputs": [tensor("s_0", producer_node="s")],
            "outputs": [tensor(f"g{i}")],
            "attrs": {"index": count - 1},
        }
        for i in range(count)
    ]
    return old(nodes=[{**NODE, "name": "s", "outputs": results}, *takes])


OLD: Files = {
    "old: constants": lambda size: old(constants=mapping(size, lambda i: {"data": [i]})),
    "old: constants and weights": lambda size: old(
        constants=mapping(size // 2, lambda i: {"data": []}),
        weights=filled(size // 2, lambda i: tensor(f"k{i}", 0)),
    ),
    "old: a constant as small lists": lambda size: old(
        constants={"c": {"data": [[1]] * (size // 5)}}
    ),
    "old: a constant as deep lists": lambda size: old(
        constants={"c": {"data": [nested(60, 1)] * (size // 125)}}
    ),
    "old: results taken one by one": _split,
    "old: nodes": lambda size: old(nodes=filled(size, lambda i: {**NODE, "name": f"n{i}"})),
    "old: list sizes": lambda size: old(
        nodes=[
            {
                **NODE,
                "op_type": "aten.cat.default",
                "attrs": {"_tensor_list_sizes": [0] * (size // 3)},
            }
        ]
    ),
    "old: masks": lambda size: old(
        nodes=filled(
            size,
            lambda i: {
                **NODE,
                "op_type": "aten.index.Tensor",
                "inputs": [tensor("x")],
                "attrs": {
                    "_tensor_list_sizes": [0],
                    "_tensor_list_none_masks": [[True] * 200],
                },
            },
        )
    ),
    "old: expressions": lambda size: old(
        graph_inputs=filled(size, lambda i: tensor(f"x{i}", f"s{i}//2"))
    ),
    "old: attributes nested 55 deep": lambda size: old(
        nodes=filled(size, lambda i: {**NODE, "attrs": {"a": nested(55, i)}})
    ),
    "old: NaN": lambda size: old(constants={"c": {"data": [float("nan")] * (size // 5)}}),
}

DOCUMENTS: Files = {**SHAPES, **GUARDS, **ATTRIBUTES, **PARTS, **OLD}
