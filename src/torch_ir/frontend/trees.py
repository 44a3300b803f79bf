"""torch's pytree specifications as the IR's trees, and back to Python objects."""

from __future__ import annotations

import json
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from typing import Any, cast

import torch

from torch_ir.errors import InvalidIRError
from torch_ir.ir import Container, TensorLeaf, Tree, ValueLeaf
from torch_ir.ir.tree import BUILTIN_CONTAINERS
from torch_ir.torch_api import pytree

_NAMES: dict[Any, str] = {kind: name for name, kind in BUILTIN_CONTAINERS.items()}


def tree_from_spec(spec: pytree.TreeSpec, leaves: Iterator[TensorLeaf | ValueLeaf]) -> Tree:
    """The tree of a specification, its leaves taken from ``leaves`` in order.

    Raises:
        InvalidIRError: A class in it cannot be written to a file.
    """
    if spec.is_leaf():
        return next(leaves)
    children = tuple([tree_from_spec(child, leaves) for child in spec.children()])
    if spec.type in _NAMES:
        keys = tuple(spec.context) if spec.type in (dict, OrderedDict) else ()
        return Container(_NAMES[spec.type], children, keys)
    name, context = _registered(spec)
    return Container(name, children, context=context)


def _registered(spec: pytree.TreeSpec) -> tuple[str, str]:
    """The serialised name and context of a class, from torch's own registry where it has them.

    A named tuple is told by its class and fields: torch would refuse to write one that is not
    registered.
    """
    if spec.type is namedtuple:
        kind: Any = spec.context
        fields = {"class": f"{kind.__module__}.{kind.__qualname__}", "fields": list(kind._fields)}
        return "namedtuple", json.dumps(fields)
    if spec.type.__module__ == torch.return_types.__name__:
        return f"{spec.type.__module__}.{spec.type.__name__}", "null"
    shallow = pytree.TreeSpec(spec.type, spec.context, [])
    try:
        document = json.loads(pytree.treespec_dumps(shallow))[1]
    except (NotImplementedError, TypeError, ValueError) as error:
        raise InvalidIRError(
            f"the structure has a {spec.type.__name__}, which has no serialised form: {error}",
            remedy="Register the class with torch.export.register_dataclass or with "
            "torch.utils._pytree.register_pytree_node(..., serialized_type_name=...).",
        ) from None
    return str(document["type"]), str(document["context"])


def tree_from_value(value: object, leaf: Any) -> Tree:
    """The tree of a nested tuple, list or dict of traced nodes, each leaf made by ``leaf``."""
    if isinstance(value, list | tuple):
        items = cast(list[object], value)
        children = tuple([tree_from_value(item, leaf) for item in items])
        return Container("list" if isinstance(value, list) else "tuple", children)
    if isinstance(value, dict):
        entries = cast(dict[Any, object], value)
        children = tuple([tree_from_value(item, leaf) for item in entries.values()])
        return Container("dict", children, tuple(entries))
    return leaf(value)
