"""Operators that libraries outside of torch have registered in this process."""

from __future__ import annotations

from dataclasses import dataclass

from torch_ir.ops.extensions import OPERATORS, OWN_NAMESPACES, extensions, points_of
from torch_ir.ops.schema import Schema
from torch_ir.torch_api import has_fake_kernel, library_operators, operator_schema, overload


@dataclass(frozen=True, slots=True)
class ForeignOperator:
    """An operator of a library.

    Attributes:
        op_type: The overload.
        schema: Its schema.
        module: The module that made it a custom operator; empty for other libraries.
        has: What is registered for it: ``fake kernel``, ``decomposition``, ``denotation``, ...
    """

    op_type: str
    schema: Schema
    module: str
    has: tuple[str, ...]


def foreign_operators() -> tuple[ForeignOperator, ...]:
    """Return the operators of libraries, by name, with what torch and this package know of them.

    They are those of ``torch.library.custom_op``, and all of the namespaces that packages name or
    for whose operators something is registered. Nothing is imported.
    """
    facts: dict[str, list[str]] = {}
    for extension in extensions(load=False):
        if extension.name.count(".") == 2:
            facts.setdefault(extension.name, []).append(extension.group)
    namespaces = {*points_of(OPERATORS), *(name.partition(".")[0] for name in facts)}
    found: list[ForeignOperator] = []
    for op_type, module in library_operators(namespaces - OWN_NAMESPACES).items():
        operator = overload(*op_type.split(".", 2))
        if operator is not None:
            fake = ["fake kernel"] if has_fake_kernel(operator) else []
            has = (*fake, *facts.get(op_type, ()))
            found.append(ForeignOperator(op_type, operator_schema(operator), module, has))
    return tuple(found)
