"""Every denotation takes its operator's arguments by the schema's names, with its defaults."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from semantics.compare import NOT_GIVEN, operator
from torch_ir.semantics import denotation, denoted_operators

REQUIRED = inspect.Parameter.empty


def plain(value: Any) -> Any:
    """A default in one spelling: one number for all axes, nothing for an empty list."""
    if isinstance(value, (list, tuple)):
        return value[0] if value and len(set(value)) == 1 else tuple(value) or None
    return value


@pytest.mark.recorded
@pytest.mark.parametrize("op_type", [name for name in denoted_operators() if name[:5] == "aten."])
def test_arguments_are_the_schemas(op_type: str) -> None:
    arguments = [a for a in operator(op_type)._schema.arguments if a.name not in NOT_GIVEN]
    parameters = dict(inspect.signature(denotation(op_type).function).parameters)
    parameters.pop("draws", None)
    others = [p for p in parameters.values() if p.kind is p.VAR_KEYWORD]
    for argument in arguments:
        if others and argument.name not in parameters:
            continue  # such as "from", which is no name in Python
        parameter = parameters.pop(argument.name)
        if argument.name == "dtype" and parameter.default is None:
            continue  # None stands for the operator's own, also where the schema numbers one
        if argument.has_default_value():
            assert plain(parameter.default) == plain(argument.default_value), argument.name
        else:
            assert parameter.kind is not parameter.POSITIONAL_ONLY
    left = [p.name for p in parameters.values() if p.default is REQUIRED and p not in others]
    assert left == []
