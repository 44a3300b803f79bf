"""torch's pytree specifications as the IR's trees, and back to Python objects."""

from __future__ import annotations

import enum
import json
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Iterator
from typing import Any, cast

import torch

from torch_ir.errors import InvalidIRError
from torch_ir.ir import Container, Tree
from torch_ir.ir.tree import (
    BUILTIN_CONTAINERS,
    DEFAULT_DICT,
    ENUM_MEMBER,
    NAMED_TUPLE,
    WRITTEN_CONTEXT,
    class_name,
    context_text,
    context_value,
    imported_class,
)
from torch_ir.ir.values import as_attribute
from torch_ir.torch_api import pytree

_NAMES: dict[Any, str] = {kind: name for name, kind in BUILTIN_CONTAINERS.items()}


def tree_from_spec(spec: pytree.TreeSpec, leaves: Iterator[Tree]) -> Tree:
    """Build the tree of a specification, its leaves taken from ``leaves`` in order.

    Raises:
        InvalidIRError: A class in it cannot be written to a file.
    """
    if spec.is_leaf():
        return next(leaves)
    children = tuple([tree_from_spec(child, leaves) for child in spec.children()])
    if spec.type in _NAMES:
        keys = tuple(spec.context) if spec.type in (dict, OrderedDict) else ()
        if _are_attributes(keys):
            return Container(_NAMES[spec.type], children, keys)
    name, context = _registered(spec)
    return Container(name, children, context=context)


def tree_from_member(member: enum.Enum) -> Container:
    """Return the leaf of a member of an enumeration among the arguments.

    Raises:
        InvalidIRError: Its class cannot be told by its name.
    """
    context = context_text(member)
    try:
        is_found = context_value(context) is member
    except InvalidIRError:
        is_found = False
    if not is_found:
        raise InvalidIRError(
            f"an argument is {member!r}, whose class cannot be found by its name",
            remedy="Define the class at the top of a module.",
        )
    return Container(ENUM_MEMBER, context=context)


def _are_attributes(keys: tuple[Any, ...]) -> bool:
    try:
        as_attribute(keys)
    except InvalidIRError:
        return False
    return True


def _registered(spec: pytree.TreeSpec) -> tuple[str, str]:
    """The serialized name and context of a class, from torch's own registry where it has them.

    A named tuple is told by its class and fields, and a class that is registered without a name
    by its own: torch would refuse to write them.
    """
    if spec.type is namedtuple:
        kind: Any = spec.context
        fields = {"class": f"{kind.__module__}.{kind.__qualname__}", "fields": list(kind._fields)}
        return NAMED_TUPLE, json.dumps(fields)
    if spec.type is defaultdict:
        return DEFAULT_DICT, _default_dict_context(*spec.context)
    if spec.type.__module__ == torch.return_types.__name__:
        return f"{spec.type.__module__}.{spec.type.__name__}", "null"
    definition = pytree.SUPPORTED_SERIALIZED_TYPES.get(spec.type)
    name = _serialized_name(spec.type, definition)
    try:
        if definition is None or definition.to_dumpable_context is None:
            return name, context_text(spec.context)
        written = definition.to_dumpable_context(spec.context)
        if isinstance(written, str):
            return name, written
        return name, context_text({WRITTEN_CONTEXT: written})
    except InvalidIRError as error:
        raise InvalidIRError(
            f"the structure has a {spec.type.__name__}, whose context cannot be written: "
            f"{error.message}"
        ) from None


def _serialized_name(kind: type[Any], definition: Any) -> str:
    name = None if definition is None else definition.serialized_type_name
    if isinstance(name, str) and name != pytree.NO_SERIALIZED_TYPE_NAME_FOUND:
        return name
    if imported_class(class_name(kind)) is not kind:
        raise InvalidIRError(
            f"the structure has a {kind.__name__}, which has no serialized form",
            remedy="Define the class at the top of a module, or register it with "
            "torch.export.register_dataclass or torch.utils._pytree.register_pytree_node and a "
            "serialized_type_name=.",
        )
    return class_name(kind)


def _default_dict_context(factory: Any, keys: list[Any]) -> str:
    name = None if factory is None else class_name(factory)
    if factory is not None and imported_class(str(name)) is not factory:
        raise InvalidIRError(
            f"the structure has a defaultdict with the values of {factory!r:.80}, which is no "
            "class that can be found by its name",
            remedy="Use a class of a module, such as list, or a dict.",
        )
    return context_text([name, keys])


def tree_from_value(value: object, leaf: Any) -> Tree:
    """Build the tree of a nested container of traced nodes, each leaf made by ``leaf``."""
    if isinstance(value, list | tuple):
        items = cast(list[object], value)
        children = tuple([tree_from_value(item, leaf) for item in items])
        return Container("list" if isinstance(value, list) else "tuple", children)
    if isinstance(value, dict):
        entries = cast(dict[Any, object], value)
        children = tuple([tree_from_value(item, leaf) for item in entries.values()])
        return Container("dict", children, tuple(entries))
    return leaf(value)
