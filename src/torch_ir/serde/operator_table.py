"""The table of operators: schemas and defaults, for readers in other languages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_ir.ir import IR
from torch_ir.ir.values import default_attribute
from torch_ir.ops.schema import Argument, Schema, known_operators, lookup
from torch_ir.serde.attributes import encode_attribute


def operator_table(
    ir: IR | None = None, libraries: Mapping[str, Schema] | None = None
) -> dict[str, Any]:
    """Return the schemas of all operators of torch, or of those that a program calls.

    Args:
        ir: The program; schemas that it recorded count.
        libraries: Schemas of other operators, by overload.

    Returns:
        By overload, ``schema``: torch's text; ``arguments``: each with ``name``, ``type`` and,
        where it may be left out, ``default`` as documents encode attributes; ``returns``: each
        with ``type``. An operator whose schema nobody recorded is None.

    Example:
        >>> table = operator_table()
        >>> table["aten.addmm.default"]["arguments"][3]
        {'name': 'beta', 'type': 'Scalar', 'default': 1}
    """
    if ir is None:
        schemas: dict[str, Schema | None] = {name: lookup(name) for name in known_operators()}
        schemas |= libraries or {}
    else:
        schemas = {node.op_type: graph.schema_of(node.op_type) for _, graph, node in ir.walk()}
        known = libraries or {}
        schemas = {name: schema or known.get(name) for name, schema in schemas.items()}
    return {name: _described(schemas[name]) for name in sorted(schemas)}


def _described(schema: Schema | None) -> dict[str, Any] | None:
    if schema is None:
        return None
    return {
        "schema": schema.text,
        "arguments": [_argument(argument) for argument in schema.arguments],
        "returns": [{"type": result.type} for result in schema.returns],
    }


def _argument(argument: Argument) -> dict[str, Any]:
    described: dict[str, Any] = {"name": argument.name, "type": argument.type}
    if argument.default is not None:
        described["default"] = encode_attribute(default_attribute(argument))
    return described
