"""Containers of other classes: named tuples, torch's own result types, registered classes.

A file names a class; it is looked up among what this process has imported, and nothing is imported
for it.
"""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch

from torch_ir.errors import (
    ExecutionError,
    InputError,
    InvalidIRError,
    attempt,
    first_line,
    raised_as,
)
from torch_ir.ir import Container
from torch_ir.ir.tree import (
    DEFAULT_DICT,
    ENUM_MEMBER,
    NAMED_TUPLE,
    WRITTEN_CONTEXT,
    class_name,
    context_value,
    imported_class,
)
from torch_ir.torch_api import pytree


def children_of(tree: Container, value: Any, path: str) -> Sequence[Any]:
    """Return the children of an object that stands where the tree has this container.

    Raises:
        InputError: It is of another class or structure.
        ExecutionError: This process does not know the class.
    """
    if tree.type == ENUM_MEMBER:
        return _same_member(_value(tree), value, path)
    kind = _class(tree)
    if type(value) is not kind:
        raise InputError(f"{path} must be a {kind.__name__}, got {type(value).__name__}")
    if tree.type == NAMED_TUPLE:
        return tuple(value)
    expected = _context(tree)
    if kind in (dict, OrderedDict, defaultdict):
        return _items(kind, expected, value, path)
    with raised_as(lambda error: InputError(_failed(path, kind, "comes apart", error))):
        children, context = pytree.SUPPORTED_NODES[kind].flatten_fn(value)
        children = list(children)
    if len(children) != len(tree.children) or not _is_equal(context, expected):
        raise InputError(
            f"{path} is a {kind.__name__} of another structure than the program was extracted "
            f"with: {context!r:.80} instead of {expected!r:.80}"
        )
    return children


def rebuild(tree: Container, children: Sequence[Any]) -> Any:
    """Build the object of such a class from its children.

    Raises:
        ExecutionError: This process does not know the class.
    """
    if tree.type == ENUM_MEMBER:
        return _value(tree)
    kind = _class(tree)
    context = None if tree.type == NAMED_TUPLE else _context(tree)
    with raised_as(lambda error: ExecutionError(_failed("a result", kind, "is built", error))):
        if tree.type == NAMED_TUPLE:
            return kind(*children)
        return pytree.SUPPORTED_NODES[kind].unflatten_fn(children, context)


def _failed(what: str, kind: type[Any], does: str, error: Exception) -> str:
    return f"{what} is a {kind.__name__}, and no {kind.__name__} {does} so: {first_line(error)}"


def _is_equal(context: object, expected: object) -> bool:
    return attempt(lambda: bool(context == expected)) is True  # strangers' compare as they like


def _same_member(expected: object, value: object, path: str) -> Sequence[Any]:
    if value is not expected:
        raise InputError(
            f"{path} is {value!r:.80}, the program was extracted for {expected!r:.80}",
            remedy="Extract the model again with the value that you want.",
        )
    return ()


def _items(kind: type[Any], expected: Any, value: Mapping[Any, Any], path: str) -> Sequence[Any]:
    """The values of a dict in the order of the program's, whatever their order in it."""
    keys = expected[1] if kind is defaultdict else expected
    if not isinstance(keys, list) or len(value) != len(keys) or any(k not in value for k in keys):
        raise InputError(f"{path} has the keys {list(value)!r:.80}, expected {keys!r:.80}")
    return [value[key] for key in keys]


def _class(tree: Container) -> type[Any]:
    if tree.type == NAMED_TUPLE:
        return _named_tuple_class(tree)
    result_type = getattr(torch.return_types, tree.type.rpartition(".")[2], None)
    if tree.type.startswith("torch.return_types.") and result_type in pytree.SUPPORTED_NODES:
        return cast(type[Any], result_type)
    found = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(tree.type) or imported_class(tree.type)
    if found not in pytree.SUPPORTED_NODES:
        raise ExecutionError(
            f"no class is registered with torch's pytree under the name {tree.type!r}",
            remedy="Import the module that registers it (--import on the command line), or use "
            "execute(), which takes and returns plain tensors.",
        )
    return found


def _named_tuple_class(tree: Container) -> type[Any]:
    """The named tuple class that the context names, in a module that is already imported."""
    try:
        described = json.loads(tree.context)
        name, fields = str(described["class"]), tuple(described["fields"])
    except (ValueError, KeyError, TypeError):
        raise ExecutionError(f"{tree.context!r:.80} does not describe a named tuple") from None
    found = imported_class(name)
    is_named_tuple = found is not None and issubclass(found, tuple)
    if is_named_tuple and getattr(found, "_fields", None) == fields:
        return cast(type[Any], found)
    raise ExecutionError(
        f"no named tuple {name!r} with the fields {', '.join(map(str, fields))} is imported",
        remedy="Import the module that defines it (--import on the command line), or use "
        "execute(), which takes and returns plain tensors.",
    )


def _context(tree: Container) -> Any:
    """What the registration of the class needs besides the children."""
    if tree.context in ("", "null"):
        return None
    if tree.type == DEFAULT_DICT:
        return _default_dict_context(tree)
    kind = _class(tree)
    registered = pytree.SUPPORTED_SERIALIZED_TYPES.get(kind)
    decode = None if registered is None else registered.from_dumpable_context
    if decode is None:  # torch's own reader of such a text imports modules that it names
        return _value(tree)
    text = tree.context
    written = _value(tree) if text.startswith(f'{{"{WRITTEN_CONTEXT}":') else None
    with raised_as(
        lambda error: ExecutionError(
            f"the registration of {tree.type} does not read its context {text!r:.80}: {error}"
        )
    ):
        return decode(text if written is None else written[WRITTEN_CONTEXT])


def _default_dict_context(tree: Container) -> list[Any]:
    value = _value(tree)
    if not (isinstance(value, list) and len(cast(list[Any], value)) == 2):
        raise ExecutionError(f"{tree.context!r:.80} does not describe a defaultdict")
    name, keys = cast(list[Any], value)
    with raised_as(lambda error: ExecutionError(f"{keys!r:.80} are no keys of a dict: {error}")):
        frozenset(keys)
    if name is not None and name not in _FACTORIES:
        raise ExecutionError(
            f"a defaultdict of {name!r:.80} is not built: its class would be called",
            remedy=f"The classes are {', '.join(_FACTORIES)}; or use execute(), which takes and "
            "returns plain tensors.",
        )
    return [_FACTORIES.get(name), keys]


_FACTORIES: dict[Any, type[Any]] = {
    class_name(kind): kind for kind in (int, float, str, bool, list, dict, set, tuple)
}
"""What may make the missing values of a dict that a file describes: classes without effects."""


def _value(tree: Container) -> Any:
    try:
        return context_value(tree.context)
    except InvalidIRError as error:
        raise ExecutionError(f"the structure has a {tree.type}: {error.message}") from None
