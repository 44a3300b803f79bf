"""Every public function says which argument is of a wrong kind, in an error of this package."""

import importlib
import inspect
import os
import sys
from collections.abc import Sequence
from typing import Literal

import pytest
import torch

import torch_ir
from torch_ir.errors import ArgumentError, TorchIRError

IR = torch_ir.parse(
    """ir "m" {
  input %x: f32[2]
  weight @w: f32[2]
  %y: f32[2] = aten.add.Tensor(%x, @w)
  return %y
}"""
)
X = torch.ones(2)
WEIGHTS = {"w": X}
WRONG = (
    *(None, 3, "x", b"x", [], {}, [None], {"x": None}, {1: 2}, object(), object),
    *(X, X.numpy(), torch.nn.Identity(), IR, torch),
)
GOOD = {
    **dict.fromkeys(("ir", "graph"), IR),
    **dict.fromkeys(("weights", "payload", "state_dict"), WEIGHTS),
    **dict.fromkeys(("inputs", "values", "args", "example_inputs", "test_inputs"), (X,)),
    **dict.fromkeys(("model", "original_model"), torch.nn.ReLU()),
    "op_type": "aten.relu.default",
    "node": IR.nodes[0],
    "programs": [IR],
    "seconds": 0.01,
}
OBJECTS = {
    type(thing): thing
    for thing in (
        *(IR, IR.nodes[0], IR.nodes[0].outputs[0], torch_ir.Constant.from_list([1.0], "float32")),
        *(torch_ir.SymExpr("s0"), torch_ir.cost(IR), torch_ir.cases([IR]), torch_ir.to_edge(IR)),
        *(torch_ir.IRExecutor(IR, WEIGHTS), torch_ir.compile_graph(IR, WEIGHTS)),
    )
}
CALLED = {"backend", "oracle", "make"}
"""What is given for these may be called, and raises what it likes."""
ASKED_IN_LOOPS = {
    *(torch_ir.IR.effects, torch_ir.IR.schema_of, torch_ir.IR.view),
    *(torch_ir.OpNode.argument, torch_ir.OpNode.tensor, torch_ir.OpNode.tensors),
}
"""Queries of a pass, for which one more frame of the interpreter counts."""
WORKS_FOR_SECONDS = {"calibrate", "conform", "fuzz"}
"""Arguments that they do not look at let them work."""


def public_functions():
    """What the packages list: functions, classes and their methods, by where they are."""
    found = {}
    for name in ("", *(f".{name}" for name in torch_ir._SUBMODULES if name != "cli")):
        package = importlib.import_module(f"torch_ir{name}")
        for value in [getattr(package, name) for name in getattr(package, "__all__", ())]:
            if inspect.isfunction(value) and value.__name__ not in WORKS_FOR_SECONDS:
                found[f"{value.__module__}.{value.__qualname__}"] = value
            elif inspect.isclass(value) and value.__module__.startswith("torch_ir."):
                found |= {f"{m.__module__}.{m.__qualname__}": m for m in callables(value)}
    return found


def callables(kind):
    """A class, and the methods of one of its objects; those of the class where there is none."""
    if inspect.isfunction(kind.__init__) and not getattr(kind, "_is_protocol", False):
        yield kind
    for name, function in inspect.getmembers(kind, inspect.isroutine):
        method = getattr(OBJECTS.get(kind, kind), name)
        if function in ASKED_IN_LOOPS or (name.startswith("_") and name != "__call__"):
            continue
        if inspect.ismethod(method) and method.__module__.startswith("torch_ir."):
            yield method


FUNCTIONS = public_functions()


def calls(function):
    """Arguments of which one is of a wrong kind, and all where no good one is known."""
    parameters = inspect.signature(function).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    required = [p.name for p in named if p.default is p.empty]
    for wrong in WRONG:
        good = {name: GOOD.get(name, wrong) for name in required}
        for parameter in parameters:
            if parameter.kind is parameter.VAR_POSITIONAL:
                yield [*good.values(), wrong], {}
            elif parameter in named and not (callable(wrong) and parameter.name in CALLED):
                yield [], {**good, parameter.name: wrong}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrong_kinds(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hook = sys.excepthook
    strange = {}
    function = FUNCTIONS[name]
    for args, kwargs in calls(function):
        try:
            function(*args, **kwargs)
        except TorchIRError:
            continue
        except Exception as error:  # noqa: BLE001  # whatever it is, it is not ours
            strange[ascii((args, kwargs))[:200]] = repr(error)
    assert strange == {}
    assert sys.excepthook is hook  # nothing of a call stays behind


def test_the_error_names_the_argument_and_what_was_given():
    with pytest.raises(ArgumentError) as raised:
        torch_ir.denote_ranks(IR, [None], [(X,)], groups={})
    assert str(raised.value) == (
        "denote_ranks() takes payloads: Sequence[Mapping[str, Any]], and payloads[0] is None\n"
        "Give what the annotation says; help(denote_ranks) tells what it means."
    )
    assert isinstance(raised.value, TypeError)
    assert isinstance(raised.value.__cause__, TypeError | AttributeError)


def test_of_two_functions_the_one_that_was_called_is_named(tmp_path):
    with pytest.raises(ArgumentError, match=r"^save_ir\(\) takes ir: IR, got 3\n"):
        torch_ir.save_ir(3, tmp_path / "m.json")


def test_too_few_arguments_are_told_by_python():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'ir'") as raised:
        torch_ir.cost()
    assert not isinstance(raised.value, TorchIRError)


def test_an_error_of_the_callers_own_code_passes_as_it_is():
    def fails(ir, weights, inputs):
        return ir.no_such_field

    with pytest.raises(AttributeError, match="no_such_field") as raised:
        torch_ir.reduce(IR, WEIGHTS, (X,), fails)
    assert not isinstance(raised.value, TorchIRError)


def test_an_integer_is_no_path_of_an_open_file(tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for function in (torch_ir.load_ir, torch_ir.serde.load, torch_ir.serde.read_archive_weights):
        with pytest.raises(TorchIRError):
            function(descriptor)
    os.close(descriptor)  # which raises if it is closed


def test_an_error_passes_beside_an_argument_that_is_one_of_some_words():
    @torch_ir.arguments.public
    def fails(level: Literal["off", "each"], names: Literal["a"] | Sequence[Literal["a", "b"]]):
        raise LookupError("no power")

    for names in ("a", ["a", "b"], ()):
        with pytest.raises(LookupError, match="no power"):
            fails("each", names)
    with pytest.raises(ArgumentError, match="takes level"):
        fails("all", "a")


TEXTS = {
    "a text for a list": (
        lambda: torch_ir.decompose(IR, preserve="aten.linear.default"),
        "decompose() takes preserve: Iterable[str], got 'aten.linear.default'\n"
        "Write ['aten.linear.default']; help(decompose) tells what it means.",
    ),
    "a misspelled word": (
        lambda: torch_ir.extract_ir(torch.nn.Linear(4, 3), (X,), regions="auot"),
        "extract_ir() takes regions: Literal['auto'] | Sequence[str] | None, got 'auot'\n"
        "Did you mean auto?",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_not_taken_for_the_list_of_its_letters(name):
    call, told = TEXTS[name]
    with pytest.raises(ArgumentError) as raised:
        call()
    assert str(raised.value) == told


def test_an_error_about_an_item_of_a_list_passes_as_it_is():
    with pytest.raises(torch_ir.errors.PassError, match="there is no operator"):
        torch_ir.decompose(IR, preserve=["aten.nope"])
