"""The nested structure of a program's arguments and results, without torch's pytree.

A tree is a container over subtrees, or a leaf. A leaf names a tensor value of the graph or is
itself a value: None, a number, a string, or an expression over symbols.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from torch_ir.errors import InvalidIRError
from torch_ir.frozen import identical, set_plain_text
from torch_ir.ir.values import Attribute, as_attribute

BUILTIN_CONTAINERS: dict[str, type[Any]] = {
    "tuple": tuple,
    "list": list,
    "dict": dict,
    "OrderedDict": OrderedDict,
}
"""The class of each container that needs no registration, by ``Container.type``."""


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
        object.__setattr__(self, "children", tuple(self.children))
        object.__setattr__(self, "keys", as_attribute(self.keys))
        set_plain_text(self, "type", "context")
        if len(self.keys) != (len(self.children) if self.type in ("dict", "OrderedDict") else 0):
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


Tree: TypeAlias = Container | TensorLeaf | ValueLeaf


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
    match tree:
        case Container(type=kind, children=children, keys=keys, context=context):
            return Container(
                kind, tuple([map_names(child, rename) for child in children]), keys, context
            )
        case TensorLeaf(name=name):
            return TensorLeaf(rename(name))
        case ValueLeaf():
            return tree
