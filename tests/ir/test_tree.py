"""The structure of arguments and results, without torch's pytree."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given, settings

from strategies import trees
from torch_ir.errors import InvalidIRError
from torch_ir.ir import Container, TensorLeaf, ValueLeaf
from torch_ir.ir.tree import leaves, map_names, tensor_names, unflatten

exactly = settings(max_examples=60, derandomize=True, deadline=None)

NESTED = Container(
    "tuple",
    (
        TensorLeaf("x"),
        Container("dict", (ValueLeaf(None), Container("list", (TensorLeaf("y"),))), ("a", 1)),
        Container("OrderedDict", (ValueLeaf(2.5),), ("z",)),
    ),
)


def value(leaf):
    return leaf.name if isinstance(leaf, TensorLeaf) else leaf.value


def test_a_tree_is_rebuilt_as_python_containers():
    made = unflatten(NESTED, value)
    assert made == ("x", {"a": None, 1: ["y"]}, OrderedDict(z=2.5))
    assert [type(part) for part in made] == [str, dict, OrderedDict]
    assert list(leaves(NESTED)) == [
        TensorLeaf("x"),
        ValueLeaf(None),
        TensorLeaf("y"),
        ValueLeaf(2.5),
    ]
    assert tensor_names(NESTED) == ("x", "y")


@exactly
@given(trees())
def test_the_leaves_come_in_order_whatever_is_around_them(tree):
    order = list(leaves(tree))
    seen = []
    unflatten(tree, seen.append, lambda container, children: None)
    assert seen == order
    renamed = map_names(tree, lambda name: name + "!")
    assert tensor_names(renamed) == tuple(name + "!" for name in tensor_names(tree))
    assert map_names(renamed, lambda name: name[:-1]) == tree
    assert hash(map_names(renamed, lambda name: name[:-1])) == hash(tree)


def test_leaves_are_compared_exactly():
    assert ValueLeaf(1) != ValueLeaf(True)
    assert ValueLeaf(0.0) != ValueLeaf(-0.0)
    assert ValueLeaf(float("nan")) == ValueLeaf(float("nan"))
    assert hash(ValueLeaf(float("nan"))) == hash(ValueLeaf(float("nan")))
    assert Container("dict", (ValueLeaf(),), (1,)) != Container("dict", (ValueLeaf(),), (True,))


def test_a_registered_class_is_rebuilt_by_who_knows_it():
    tree = Container("mylib.Point", (ValueLeaf(1), ValueLeaf(2)), context="[]")
    rebuilt = unflatten(tree, value, lambda container, children: (container.type, children))
    assert rebuilt == ("mylib.Point", [1, 2])
    with pytest.raises(InvalidIRError) as caught:
        unflatten(tree, value)
    assert str(caught.value) == (
        "the structure has a mylib.Point, which only a program with torch can rebuild"
    )


def test_a_dict_has_a_key_for_each_child():
    with pytest.raises(InvalidIRError) as caught:
        Container("dict", (ValueLeaf(), ValueLeaf()), ("a",))
    assert str(caught.value) == "a dict of 2 children has 1 keys"
    with pytest.raises(InvalidIRError) as caught:
        Container("list", (ValueLeaf(),), ("a",))
    assert str(caught.value) == "a list of 1 children has 1 keys"
