"""Named tuples, torch's result types and registered classes, in arguments and results."""

from __future__ import annotations

import enum
import json
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import torch_ir
from older_torch import since_2_13
from torch_ir.errors import ExecutionError, InputError
from torch_ir.executor import IRExecutor, execute_ir
from torch_ir.ir import IR, Container, OpNode, Signature, TensorLeaf, TensorMeta
from whole_way import kept, runs_as_eager, same


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


class Sums(nn.Module):
    """A named tuple in and out, inside other structures."""

    def forward(self, pairs):
        total = sum(pair.left @ pair.right for pair in pairs["all"])
        return {"out": [Pair(total, total.T)], "first": pairs["all"][0]}


class Results(nn.Module):
    """What torch's own operators return, as results."""

    def forward(self, x):
        return x.max(1), torch.linalg.qr(x), [torch.sort(x), x.topk(2)], torch.frexp(x)


class Mode(enum.Enum):
    PLAIN = "plain"
    DOUBLE = 2


class Bag:
    """A class whose context is a tuple."""

    def __init__(self, items, tag):
        self.items, self.tag = items, tag


pytree.register_pytree_node(
    Bag,
    lambda bag: (list(bag.items), bag.tag),
    lambda items, tag: Bag(list(items), tag),
    serialized_type_name="tests.Bag",
)


class Boxed(Bag):
    """A class that writes its context itself, as a dict."""


pytree.register_pytree_node(
    Boxed,
    lambda bag: (list(bag.items), bag.tag),
    lambda items, tag: Boxed(list(items), tag),
    serialized_type_name="tests.Boxed",
    to_dumpable_context=lambda tag: {"tag": tag},
    from_dumpable_context=lambda context: context["tag"],
)


class Containers(nn.Module):
    """The containers of Python's library, members of an enumeration, and registered classes."""

    def forward(self, given, queue, mode):
        total = given["b"] @ given["a"] if mode is Mode.PLAIN else given["a"]
        return (
            defaultdict(list, {2: total, 1: queue[0]}),
            OrderedDict(z=defaultdict(None, {"x": queue[1]})),
            deque([total], maxlen=3),
            {Mode.DOUBLE: total, (1, "k"): total + 1},
            Bag([total], ("a", (1, None))),
            Boxed([total], "box"),
        )


X = torch.arange(9.0).reshape(3, 3).sin()
PAIRS = ({"all": [Pair(X, X + 1), Pair(X * 2, X - 1)]},)


def test_named_tuples_go_in_and_come_out():
    runs_as_eager(lambda: Sums().eval(), PAIRS, ({"all": [Pair(-X, X), Pair(X, X)]},))
    result = IRExecutor(torch_ir.extract_ir(Sums().eval(), PAIRS))(*PAIRS)
    assert type(result["out"][0]) is Pair
    assert result["first"].left is PAIRS[0]["all"][0].left


def test_results_of_torch_keep_their_class():
    runs_as_eager(lambda: Results().eval(), (X,), (X.cos(),))
    result = IRExecutor(torch_ir.extract_ir(Results().eval(), (X,)))(X)
    assert type(result[0]) is torch.return_types.max
    assert torch.equal(result[0].indices, X.argmax(1))


def test_another_class_in_its_place_is_refused():
    executor = IRExecutor(torch_ir.extract_ir(Sums().eval(), PAIRS))
    for given, kind in (((X, X), "tuple"), ([X, X], "list"), (X, "Tensor")):
        with pytest.raises(InputError) as caught:
            executor({"all": [Pair(X, X), given]})
        assert str(caught.value) == f"args[0]['all'][1] must be a Pair, got {kind}"


def test_a_named_tuple_class_that_is_not_imported_is_named(monkeypatch):
    module = type(sys)("torch_ir_test_shapes")
    module.Box = namedtuple("Box", ["width", "height"], module="torch_ir_test_shapes")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    class Boxes(nn.Module):
        def forward(self, x):
            return module.Box(x + 1, x - 1)

    ir = kept(torch_ir.extract_ir(Boxes().eval(), (X,)))
    assert same(IRExecutor(ir)(X), module.Box(X + 1, X - 1))
    monkeypatch.delitem(sys.modules, module.__name__)
    with pytest.raises(ExecutionError) as caught:
        IRExecutor(ir)(X)
    assert str(caught.value) == (
        "no named tuple 'torch_ir_test_shapes.Box' with the fields width, height is imported\n"
        "Import the module that defines it (--import on the command line), or use execute(), "
        "which takes and returns plain tensors."
    )
    assert same(execute_ir(ir, (X,), {}), (X + 1, X - 1))
    module.Box = namedtuple("Box", ["height", "width"], module="torch_ir_test_shapes")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(ExecutionError, match="with the fields width, height is imported"):
        IRExecutor(ir)(X)  # the fields are in another order


def test_a_registered_class_that_is_not_imported_is_named():
    ir = torch_ir.extract_ir(Sums().eval(), PAIRS)
    outputs = torch_ir.ir.Container("some.library.Thing", ir.signature.outputs.children)
    changed = ir.replace(signature=torch_ir.ir.Signature(ir.signature.inputs, outputs))
    with pytest.raises(ExecutionError) as caught:
        IRExecutor(changed)(*PAIRS)
    assert str(caught.value) == (
        "no class is registered with torch's pytree under the name 'some.library.Thing'\n"
        "Import the module that registers it (--import on the command line), or use execute(), "
        "which takes and returns plain tensors."
    )


ENUMERATIONS = since_2_13("exports no model that takes a member of an enumeration")
GIVEN = (defaultdict(list, a=X, b=X + 1), deque([X, X * 2]), Mode.PLAIN)


@ENUMERATIONS
def test_containers_of_pythons_library_go_in_and_come_out():
    reordered = (defaultdict(list, b=X, a=X - 1), deque([X + 3, X]), Mode.PLAIN)
    runs_as_eager(lambda: Containers().eval(), GIVEN, reordered)
    result = IRExecutor(torch_ir.extract_ir(Containers().eval(), GIVEN))(*GIVEN)
    assert type(result[0]) is defaultdict
    assert result[0].default_factory is list
    assert result[2].maxlen == 3
    assert result[4].tag == ("a", (1, None))
    assert result[5].tag == "box"


@ENUMERATIONS
def test_other_keys_and_members_are_refused():
    executor = IRExecutor(torch_ir.extract_ir(Containers().eval(), GIVEN))
    given, queue, mode = GIVEN
    with pytest.raises(InputError) as caught:
        executor(given, queue, Mode.DOUBLE)
    assert str(caught.value).startswith(
        "args[2] is <Mode.DOUBLE: 2>, the program was extracted for <Mode.PLAIN: 'plain'>"
    )
    with pytest.raises(InputError) as caught:
        executor(defaultdict(list, a=X), queue, mode)
    assert str(caught.value) == "args[0] has the keys ['a'], expected ['a', 'b']"


def test_a_size_stands_for_a_tuple():
    class Reshaped(nn.Module):
        def forward(self, x, size):
            return x.view(size)

    ir = kept(torch_ir.extract_ir(Reshaped().eval(), (X, torch.Size([9]))))
    assert same(IRExecutor(ir)(X, torch.Size([9])), X.view(9))
    assert same(IRExecutor(ir)(X, (9,)), X.view(9))


@ENUMERATIONS
def test_a_context_imports_nothing():
    ir = torch_ir.extract_ir(Containers().eval(), GIVEN)
    children = ir.signature.outputs.children
    member = {"__enum__": True, "fqn": "antigravity:Mode", "name": "PLAIN"}
    contexts = {
        "tests.Bag": (json.dumps(member), "no enumeration antigravity.Mode is imported"),
        "collections.defaultdict": (
            '["antigravity.list", []]',
            "antigravity.list' is not built",
        ),
        "enum": (json.dumps(member), "no enumeration antigravity.Mode is imported"),
    }
    for kind, (context, message) in contexts.items():
        container = torch_ir.ir.Container(kind, children[:1], context=context)
        outputs = torch_ir.ir.Container("tuple", (container, *children[1:]))
        changed = ir.replace(signature=torch_ir.ir.Signature(ir.signature.inputs, outputs))
        with pytest.raises(ExecutionError, match=message):
            IRExecutor(changed)(*GIVEN)
        assert "antigravity" not in sys.modules


class Stranger:
    """A container whose registration fails as only a stranger's can."""

    def __init__(self, items):
        self.items = items


def fails(*given):
    raise KeyError("no such part")


pytree.register_pytree_node(Stranger, fails, fails, serialized_type_name="tests.Fails")


def relu_with(outputs=None, inputs=None):
    x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
    positional = Container("tuple", (inputs or TensorLeaf("x"),))
    arguments = Container("tuple", (positional, Container("dict", (), ())))
    signature = Signature(arguments, outputs or TensorLeaf("y"))
    return IR([OpNode("y", "aten.relu.default", [x], [y])], [x], [y], [], signature=signature)


@pytest.mark.parametrize(
    ("kind", "context"),
    [
        ("torch.return_types.max", ""),
        ("collections.defaultdict", '["subprocess.Popen", ["a"]]'),
        ("collections.defaultdict", '["builtins.exec", ["a"]]'),
        ("collections.defaultdict", '["builtins.list", 3]'),
        ("collections.defaultdict", '["builtins.list", ["a", "b"]]'),
        ("collections.defaultdict", '["builtins.list", [["a"]]]'),
        ("tests.Fails", ""),
        ("namedtuple", '{"class": "sys.version_info", "fields": ["a"]}'),
        ("namedtuple", '{"class": "urllib.parse.SplitResult", "fields": [1]}'),
    ],
)
def test_classes_of_strangers_fail_as_errors_of_the_package(kind, context):
    x = torch.ones(2)
    made = Container(kind, (TensorLeaf("y"),), (), context)
    with pytest.raises(ExecutionError):
        IRExecutor(relu_with(outputs=made))(x)
    taken = Container(kind, (TensorLeaf("x"),), (), context)
    for given in (x, [x], (x,), {"a": x}, defaultdict(list, a=x), Stranger([x]), None):
        with pytest.raises(ExecutionError):
            IRExecutor(relu_with(inputs=taken))(given)
    assert torch.equal(IRExecutor(relu_with(outputs=made), {}).execute((x,))[0], x)
