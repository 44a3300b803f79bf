"""The arguments of a traced call, split into operands and attributes by the operator's schema."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias, cast

import torch
from torch.fx.node import map_arg

from torch_ir.ir import Attribute, TensorMeta
from torch_ir.ops.schema import Slots
from torch_ir.torch_api import OpOverload, operator_schema, own_names, parameters_of

Resolve: TypeAlias = Callable[[torch.fx.Node], Any]
"""What a traced node stands for: a TensorMeta, an Attribute, or a nested list of these."""

ToAttribute: TypeAlias = Callable[[object], Attribute]

schema_of = lru_cache(maxsize=4096)(operator_schema)
"""The schema of an operator; torch writes its text anew each time that it is asked."""


@dataclass(slots=True)
class ExportedCall:
    """A call being put together: its inputs in the order of first use, and who takes them."""

    inputs: list[TensorMeta] = field(default_factory=list[TensorMeta])
    operands: dict[str, Slots] = field(default_factory=dict[str, Slots])
    attrs: dict[str, Attribute] = field(default_factory=dict[str, Attribute])

    def add(self, name: str, value: Any, to_attribute: ToAttribute) -> None:
        """Record the argument ``name``; ``value`` has no traced nodes in it any more."""
        if isinstance(value, TensorMeta):
            self.operands[name] = self._slot(value)
            return
        if not (isinstance(value, list | tuple) and any(isinstance(v, TensorMeta) for v in value)):
            self.attrs[name] = to_attribute(value)
            return
        items = cast(list[Any], value)
        self.operands[name] = tuple(
            [self._slot(v) if isinstance(v, TensorMeta) else None for v in items]
        )
        if any(v is not None and not isinstance(v, TensorMeta) for v in items):
            rest = [None if isinstance(v, TensorMeta) else to_attribute(v) for v in items]
            self.attrs[name] = tuple(rest)

    def _slot(self, meta: TensorMeta) -> int:
        self.inputs.append(meta)
        return len(self.inputs) - 1


def translate_call(
    node: torch.fx.Node, resolve: Resolve, to_attribute: ToAttribute
) -> ExportedCall:
    """Translate the call of an operator, every argument under its name in the schema.

    Raises:
        InvalidIRError: An argument cannot be stored.
    """
    call = ExportedCall()
    for name, value, skippable in named_arguments(node):
        value = map_arg(value, resolve)
        if value is None and skippable:
            continue
        call.add(name, value, to_attribute)
    return call


def named_arguments(node: torch.fx.Node) -> Iterator[tuple[str, Any, bool]]:
    """Yield each given argument: its name, its value, and whether a None may be left out.

    It may where None is the default: leaving it out says the same.
    """
    target = cast(Any, node.target)
    if isinstance(target, OpOverload):
        arguments = schema_of(target).arguments
        names = own_names(target)
        given = dict(zip(names.values(), node.args, strict=False)) | dict(node.kwargs)
        for argument in arguments:
            if names[argument.name] in given:
                yield argument.name, given[names[argument.name]], argument.default == "None"
        return
    signature = inspect.Signature(parameters_of(target))
    for name, value in signature.bind(*node.args, **node.kwargs).arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            for keyword, item in value.items():
                yield keyword, item, False
        else:
            yield name, value, False
