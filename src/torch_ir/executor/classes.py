"""Containers of other classes: named tuples, torch's own result types, registered classes.

A file names a class; it is looked up among what this process has imported, and nothing is imported
for it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import reduce
from typing import Any, cast

import torch

from torch_ir.errors import ExecutionError, InputError
from torch_ir.ir import Container
from torch_ir.torch_api import pytree

NAMED_TUPLE = "namedtuple"


def children_of(tree: Container, value: Any, path: str) -> Sequence[Any]:
    """The children of a Python object that stands where the tree has this container.

    Raises:
        InputError: It is of another class or structure.
        ExecutionError: This process does not know the class.
    """
    kind = _class(tree)
    if type(value) is not kind:
        raise InputError(f"{path} must be a {kind.__name__}, got {type(value).__name__}")
    if tree.type == NAMED_TUPLE:
        return tuple(value)
    children, context = pytree.SUPPORTED_NODES[kind].flatten_fn(value)
    if len(children) != len(tree.children) or context != _context(tree):
        raise InputError(
            f"{path} is a {kind.__name__} of another structure than the program was extracted with"
        )
    return children


def rebuild(tree: Container, children: Sequence[Any]) -> Any:
    """The object of such a class from its children.

    Raises:
        ExecutionError: This process does not know the class.
    """
    kind = _class(tree)
    if tree.type == NAMED_TUPLE:
        return kind(*children)
    return pytree.SUPPORTED_NODES[kind].unflatten_fn(children, _context(tree))


def _class(tree: Container) -> type[Any]:
    if tree.type == NAMED_TUPLE:
        return _named_tuple_class(tree)
    result_type = getattr(torch.return_types, tree.type.rpartition(".")[2], None)
    if tree.type.startswith("torch.return_types.") and result_type in pytree.SUPPORTED_NODES:
        return cast(type[Any], result_type)
    found = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(tree.type)
    if found is None:
        raise ExecutionError(
            f"no class is registered with torch's pytree under the name {tree.type!r}",
            remedy="Import the module that registers it, or use execute(), which takes and "
            "returns plain tensors.",
        )
    return found


def _named_tuple_class(tree: Container) -> type[Any]:
    """The named tuple class that the context names, in a module that is already imported."""
    try:
        described = json.loads(tree.context)
        name, fields = str(described["class"]), tuple(described["fields"])
    except (ValueError, KeyError, TypeError):
        raise ExecutionError(f"{tree.context!r:.80} does not describe a named tuple") from None
    for module, path in _splits(name):
        found = reduce(lambda held, part: getattr(held, part, None), path, sys.modules.get(module))
        is_named_tuple = isinstance(found, type) and issubclass(found, tuple)
        if is_named_tuple and getattr(found, "_fields", None) == fields:
            return cast(type[Any], found)
    raise ExecutionError(
        f"no named tuple {name!r} with the fields {', '.join(fields)} is imported",
        remedy="Import the module that defines it, or use execute(), which takes and returns "
        "plain tensors.",
    )


def _splits(name: str) -> list[tuple[str, list[str]]]:
    """Each way to read a dotted name as a module and a path in it."""
    parts = name.split(".")
    return [(".".join(parts[:i]), parts[i:]) for i in range(len(parts) - 1, 0, -1)]


def _context(tree: Container) -> Any:
    """What the registration of the class needs besides the children."""
    if tree.context in ("", "null"):
        return None
    # torch's own reader of the format: it runs the decoder registered for the class, and nothing
    # from the file.
    document = json.dumps([1, {"type": tree.type, "context": tree.context, "children_spec": []}])
    return pytree.treespec_loads(document).context
