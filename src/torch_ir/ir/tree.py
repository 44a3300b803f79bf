"""The nested structure of a program's arguments and results, without torch's pytree.

A tree is a container over subtrees, or a leaf. A leaf names a tensor value of the graph or is
itself a value: None, a number, a string, or an expression over symbols.

A context is what the registration of a container's class holds besides its children, as JSON
text: plain JSON, plus three tagged objects for tuples, members of enumerations and dicts whose
keys are no strings. A class is named and looked up among what this process has imported; nothing
is ever imported for a file.
"""

from __future__ import annotations

import enum
import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias, cast

from torch_ir.arguments import public
from torch_ir.errors import InvalidIRError
from torch_ir.frozen import frozen_items, identical, set_plain_text
from torch_ir.ir.symbols import SymExpr
from torch_ir.ir.values import Attribute, as_attribute, map_attribute

BUILTIN_CONTAINERS: dict[str, type[Any]] = {
    "tuple": tuple,
    "list": list,
    "dict": dict,
    "OrderedDict": OrderedDict,
}
"""The class of each container that needs no registration, by ``Container.type``."""

NAMED_TUPLE = "namedtuple"
ENUM_MEMBER = "enum"
"""The type of a container that is no container: a member of an enumeration, in its context."""
DEFAULT_DICT = "collections.defaultdict"
WRITTEN_CONTEXT = "__written__"
"""The key of a context that a registered class has written itself, and not as a string."""

_TUPLE, _ENUM, _ITEMS = "__tuple__", "__enum__", "__items__"
_TAGS = frozenset({_TUPLE, _ENUM, _ITEMS})


@dataclass(frozen=True, slots=True)
class TensorLeaf:
    """A leaf that is a tensor: the value of that name in the graph."""

    name: str

    def __post_init__(self) -> None:
        set_plain_text(self, "name")


@dataclass(frozen=True, slots=True, eq=False)
class ValueLeaf:
    """A leaf that is not a tensor: None, a number, a string, or an expression over symbols."""

    value: Attribute = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", as_attribute(self.value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueLeaf) and identical(self.value, other.value)

    def __hash__(self) -> int:
        return hash((ValueLeaf, repr(self.value)))  # two NaN are equal, but not their hashes


@dataclass(frozen=True, slots=True, eq=False)
class Container:
    """A container of subtrees.

    Attributes:
        type: ``"tuple"``, ``"list"``, ``"dict"``, ``"OrderedDict"``, or the name under which
            torch's pytree registry serializes a registered class.
        children: The subtrees, in order.
        keys: For the dicts, the key of each child.
        context: For a registered class, the JSON text that its registration needs to rebuild it.
    """

    type: str
    children: tuple[Tree, ...] = ()
    keys: tuple[Attribute, ...] = ()
    context: str = ""

    def __post_init__(self) -> None:
        if type(self.children) is not tuple:
            children = frozen_items(self.children, object, "the children of a container")
            object.__setattr__(self, "children", children)
        if type(self.keys) is not tuple or self.keys:
            object.__setattr__(self, "keys", as_attribute(self.keys))
        if not type(self.type) is type(self.context) is str:
            set_plain_text(self, "type", "context")
        keyed = self.type in ("dict", "OrderedDict")
        if (self.keys or keyed) and len(self.keys) != (len(self.children) if keyed else 0):
            raise InvalidIRError(
                f"a {self.type} of {len(self.children)} children has {len(self.keys)} keys"
            )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Container)
            and (self.type, self.children, self.context)
            == (other.type, other.children, other.context)
            and identical(self.keys, other.keys)
        )

    def __hash__(self) -> int:
        return hash((self.type, self.children, repr(self.keys), self.context))


Leaf: TypeAlias = TensorLeaf | ValueLeaf
Tree: TypeAlias = Container | Leaf


@dataclass(frozen=True, slots=True)
class Signature:
    """How the graph's values make up the arguments and results of the program.

    Attributes:
        inputs: A tuple of two: the positional arguments as a tuple, the keyword arguments as a
            dict.
        outputs: What the program returns.
    """

    inputs: Tree
    outputs: Tree

    @classmethod
    @public
    def of(cls, given: Iterable[str | Leaf], results: Iterable[str | Leaf]) -> Signature:
        """Return one with these leaves, all positional, in tuples; a text names a tensor.

        Example:
            >>> Signature.of(["x"], [ValueLeaf(3)]).outputs
            Container(type='tuple', children=(ValueLeaf(value=3),), keys=(), context='')
        """
        arguments, outputs = (
            Container("tuple", tuple([TensorLeaf(x) if isinstance(x, str) else x for x in row]))
            for row in (given, results)
        )
        return cls(Container("tuple", (arguments, Container("dict"))), outputs)

    @property
    def sizes(self) -> tuple[SymExpr, ...]:
        """The expressions over symbols among the arguments, in order."""
        values = [leaf.value for leaf in leaves(self.inputs) if isinstance(leaf, ValueLeaf)]
        return tuple([value for value in values if isinstance(value, SymExpr)])

    @property
    def arguments(self) -> tuple[Container, Container] | None:
        """The positional and the keyword arguments; None if the inputs are no such tuple."""
        match self.inputs:
            case Container(
                "tuple", (Container("tuple") as positional, Container("dict") as named)
            ):
                return positional, named
            case _:
                return None

    def flat(self) -> Signature:
        """Return one with the same leaves, all positional, in tuples: no class is rebuilt.

        Example:
            >>> kept = Container("transformers.Output", (TensorLeaf("x"),))
            >>> Signature(Container("tuple", (kept, Container("dict"))), kept).flat().outputs
            Container(type='tuple', children=(TensorLeaf(name='x'),), keys=(), context='')
        """
        return Signature.of(leaves(self.inputs), leaves(self.outputs))


def leaves(tree: Tree) -> Iterator[TensorLeaf | ValueLeaf]:
    """Yield the leaves of a tree, from left to right.

    Example:
        >>> options = Container("dict", (ValueLeaf(3),), ("n",))
        >>> list(leaves(Container("tuple", (TensorLeaf("x"), options))))
        [TensorLeaf(name='x'), ValueLeaf(value=3)]
    """
    stack = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, Container):
            stack.extend(reversed(item.children))
        else:
            yield item


def tensor_names(tree: Tree) -> tuple[str, ...]:
    """Return the names of the tensor leaves, from left to right."""
    return tuple([leaf.name for leaf in leaves(tree) if isinstance(leaf, TensorLeaf)])


Rebuild: TypeAlias = Callable[[Container, Sequence[Any]], Any]
"""Makes the Python object of a container of a registered class from its children."""


def unflatten(
    tree: Tree, leaf: Callable[[TensorLeaf | ValueLeaf], Any], rebuild: Rebuild | None = None
) -> Any:
    """Build the Python object that a tree describes, each leaf made by ``leaf``.

    Raises:
        InvalidIRError: A container is of a registered class and ``rebuild`` is not given.

    Example:
        >>> tree = Container("dict", (TensorLeaf("x"), ValueLeaf(3)), ("a", "b"))
        >>> unflatten(tree, lambda l: l.name if isinstance(l, TensorLeaf) else l.value)
        {'a': 'x', 'b': 3}
    """
    if not isinstance(tree, Container):
        return leaf(tree)
    children = [unflatten(child, leaf, rebuild) for child in tree.children]
    match tree.type:
        case "tuple":
            return tuple(children)
        case "list":
            return children
        case "dict":
            return dict(zip(cast(Any, tree.keys), children, strict=True))
        case "OrderedDict":
            return OrderedDict(zip(cast(Any, tree.keys), children, strict=True))
        case _ if rebuild is not None:
            return rebuild(tree, children)
        case kind:
            raise InvalidIRError(
                f"the structure has a {kind}, which only a program with torch can rebuild"
            )


def map_names(tree: Tree, rename: Callable[[str], str]) -> Tree:
    """Replace the name of each tensor leaf of a tree."""
    return map_leaves(
        tree, lambda leaf: TensorLeaf(rename(leaf.name)) if isinstance(leaf, TensorLeaf) else leaf
    )


def map_values(tree: Tree, change: Callable[[Attribute], Attribute]) -> Tree:
    """Return a tree with each value changed that is no tensor, and each inside one."""
    return map_leaves(
        tree,
        lambda leaf: (
            ValueLeaf(map_attribute(leaf.value, change)) if isinstance(leaf, ValueLeaf) else leaf
        ),
    )


def map_leaves(tree: Tree, change: Callable[[TensorLeaf | ValueLeaf], Tree]) -> Tree:
    """Return a tree with each leaf changed, in the same containers.

    Example:
        >>> tree = Container("tuple", (TensorLeaf("x"), ValueLeaf(3)))
        >>> map_leaves(tree, lambda leaf: TensorLeaf("y")).children
        (TensorLeaf(name='y'), TensorLeaf(name='y'))
    """
    if not isinstance(tree, Container):
        return change(tree)
    children = tuple([map_leaves(child, change) for child in tree.children])
    return Container(tree.type, children, tree.keys, tree.context)


def context_text(value: object) -> str:
    """Write a context as text.

    Raises:
        InvalidIRError: It holds something that cannot be written.

    Example:
        >>> context_text([1, ("a", None)])
        '[1, {"__tuple__": ["a", null]}]'
    """
    try:
        return json.dumps(_plain(value))
    except (RecursionError, ValueError) as error:
        raise InvalidIRError(f"a context cannot be written: {error}") from None


def context_value(text: str) -> Any:
    """Read the context that a text was written from.

    Raises:
        InvalidIRError: The text is not one, or names an enumeration that is not imported.

    Example:
        >>> context_value('{"__tuple__": ["a", null]}')
        ('a', None)
    """
    try:
        return json.loads(text, object_hook=_tagged)
    except (RecursionError, ValueError) as error:
        raise InvalidIRError(f"{text!r:.80} is not a context: {error}") from None


def imported_class(name: str) -> type[Any] | None:
    """Find the class of a dotted name in an imported module; None if there is none.

    Example:
        >>> imported_class("builtins.list")
        <class 'list'>
    """
    parts = name.split(".")
    for i in range(len(parts) - 1, 0, -1):
        module = sys.modules.get(".".join(parts[:i]))
        # not getattr, by which a module may import what it is asked for
        found = reduce(lambda held, part: _own(held).get(part), parts[i:], cast(Any, module))
        if isinstance(found, type):
            return cast(type[Any], found)
    return None


def class_name(kind: type[Any]) -> str:
    """Return the dotted name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _own(held: object) -> Mapping[str, Any]:
    return getattr(held, "__dict__", {})


def _plain(value: object) -> object:
    if isinstance(value, enum.Enum):
        fqn = f"{type(value).__module__}:{type(value).__qualname__}"  # as torch spells it
        return {_ENUM: True, "fqn": fqn, "name": value.name}
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is tuple:
        return {_TUPLE: [_plain(item) for item in cast(tuple[object, ...], value)]}
    if type(value) is list:
        return [_plain(item) for item in cast(list[object], value)]
    if type(value) is dict:
        entries = cast(dict[object, object], value)
        if all(type(key) is str for key in entries) and not _TAGS & entries.keys():
            return {cast(str, key): _plain(item) for key, item in entries.items()}
        return {_ITEMS: [[_plain(key), _plain(item)] for key, item in entries.items()]}
    raise InvalidIRError(f"a {type(value).__name__} cannot be written")


def _tagged(entries: dict[str, Any]) -> object:
    if _TUPLE in entries:
        return tuple(_listed(entries[_TUPLE]))
    if _ENUM in entries:
        return _member(entries)
    if _ITEMS in entries:
        pairs = _listed(entries[_ITEMS])
        try:
            return dict(pairs)
        except TypeError as error:  # not pairs, or a key that cannot be one
            raise ValueError(str(error)) from None
    return entries


def _listed(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list, got {type(value).__name__}")
    return cast(list[Any], value)


def _member(entries: Mapping[str, Any]) -> enum.Enum:
    module, _, path = str(entries.get("fqn")).partition(":")
    kind = imported_class(f"{module}.{path}")
    name = entries.get("name")
    if kind is None or not issubclass(kind, enum.Enum):
        raise ValueError(f"no enumeration {module}.{path} is imported")
    if name not in kind.__members__:
        raise ValueError(f"{kind.__name__} has no member {name!r:.80}")
    return kind.__members__[str(name)]
