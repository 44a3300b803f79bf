"""Containers and values of classes that say of themselves what they like."""

import itertools
from collections import Counter, OrderedDict, deque

import pytest
import torch
from torch import nn

from torch_ir import IRExecutor, extract_ir, make_traced

X = torch.ones(2)
BASES = {
    tuple: ([2.0],),
    list: ([2.0],),
    deque: ([2.0],),
    set: ([2.0],),
    frozenset: ([2.0],),
    dict: ({"a": 2.0},),
    OrderedDict: ({"a": 2.0},),
    Counter: ({"a": 2},),
    str: ("2",),
    int: (2,),
    float: (2.0,),
}
METHODS = ("__iter__", "__len__", "__bool__", "__getitem__", "__eq__", "__repr__", "keys")
METHODS += ("values", "items")
LESS = {"__len__": 0, "__bool__": False, "__eq__": True, "__repr__": "?"}


def fails(*_, **__):
    raise NotImplementedError


def classes():
    """Each of Python's classes with each method replaced: one that fails, one that says less."""
    for base, name in itertools.product(BASES, METHODS):
        told = LESS.get(name, ())
        less = (lambda *_: iter(())) if name == "__iter__" else lambda *_, told=told: told
        for how, function in (("fails", fails), ("less", less)) if hasattr(base, name) else ():
            if base is Counter and name == "__len__" and how == "fails":
                continue  # which Python itself calls as it makes one
            own = {name: function, "__hash__": base.__hash__ or object.__hash__}
            yield pytest.param(type("Own", (base,), own), base, id=f"{base.__name__} {name} {how}")


def read(value, base):
    """What the class of Python's own that a value is made of has in it."""
    if base in (int, float):
        return float(base.__add__(value, 0))
    return float(
        next(iter(base.values(value) if issubclass(base, dict) else base.__iter__(value)))
    )


def changed(value, base):
    """The value with 3 in place of 2: itself, where it can be changed."""
    if issubclass(base, dict):
        base.__setitem__(value, "a", 3)
    elif base in (list, deque):
        base.__setitem__(value, 0, 3.0)
    else:
        return type(value)([3.0] if base in (tuple, set, frozenset) else "3")
    return value


@pytest.mark.parametrize(("kind", "base"), [*classes()])
def test_what_a_container_holds_is_seen_whatever_its_class_says(kind, base):
    box = [kind(*BASES[base])]
    closed = make_traced(lambda x: x * read(box[0], base))
    taken = make_traced(lambda x, value: x * read(value, base))
    for value in (2.0, 3.0):
        assert torch.equal(closed(X), X * value)
        assert base is set or torch.equal(taken(X, box[0]), X * value)
        box[0] = changed(box[0], base)


@pytest.mark.parametrize("base", BASES)
def test_a_model_is_extracted_whatever_its_attributes_say(base):
    model = nn.Linear(2, 2)
    for number, (kind, of) in enumerate(parameter.values for parameter in classes()):
        if of is base:
            setattr(model, f"own{number}", kind(*BASES[base]))
            setattr(model, f"among{number}", [kind(*BASES[base])])
    ir = extract_ir(model, (X,))
    assert torch.equal(IRExecutor(ir, model.state_dict())(X), model(X))


class Equal:
    """A key that is equal to all others like it."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


@pytest.mark.parametrize("kind", [dict, OrderedDict])
@pytest.mark.parametrize("keys", [(Equal(2.0), Equal(3.0)), (1, True), (1, 1.0)])
def test_keys_of_arguments_that_are_equal_are_told_apart(kind, keys):
    def named(x, given):
        key = next(iter(given))
        return x * getattr(key, "value", len(type(key).__name__))

    traced = make_traced(named)
    for key in keys:
        assert torch.equal(traced(X, kind({key: 1.0})), named(X, {key: 1.0}))
