"""What a call is given: bound to the model's own structure, and every misfit named."""

from __future__ import annotations

import re
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

import torch_ir
from small_models import CASES
from torch_ir.debug import capture, profile, validate
from torch_ir.errors import (
    CompileError,
    ExecutionError,
    InputError,
    MissingWeightsError,
    TorchIRError,
)
from torch_ir.executor import IRExecutor, compile_graph, execute_ir
from torch_ir.ir.text import parse
from torch_ir.semantics.denote import denote

MODEL = nn.Linear(3, 2).eval()
LINEAR = torch_ir.extract_ir(MODEL, (torch.ones(1, 3),))
RELU = torch_ir.extract_ir(nn.ReLU(), (torch.ones(1, 3),))
X = torch.ones(1, 3)


@pytest.fixture
def linear():
    return IRExecutor(LINEAR, MODEL.state_dict())


@pytest.fixture(scope="module")
def nested():
    args, kwargs = CASES["nested"].inputs()
    return IRExecutor(torch_ir.extract_ir(CASES["nested"].model(), args, kwargs=kwargs))


BY_POSITION = "It was extracted with %input by position."
WHERE = "input 0 (%input: f32[1, 3])"


ALONE = {
    "eval": lambda graph, x: graph.eval(x),
    "eval_all": lambda graph, x: list(graph.eval_all(x)),
    "values": lambda graph, x: list(graph.values(x, ["relu"])),
    "vjp": lambda graph, x: graph.vjp(x),
    "jvp": lambda graph, x: graph.jvp(x, (x,)),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_lone_tensor_is_told_how_to_be_one_input(name):
    with pytest.raises(InputError) as caught:
        ALONE[name](compile_graph(RELU), torch.ones(2, 3))
    told = "inputs are a tuple of tensors, got Tensor\nWrite (x,) for one input."
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((), "expected 1 input (%input: f32[1, 3]), got 0"),
        ((X, X), "expected 1 input (%input: f32[1, 3]), got 2"),
        (([1.0, 2.0, 3.0],), f"{WHERE} must be a tensor, got list"),
        ((X.numpy(),), f"{WHERE} must be a tensor, got ndarray"),
        ((None,), f"{WHERE} must be a tensor, got NoneType"),
        (
            (X.double(),),
            f"{WHERE} has the wrong dtype: expected f32[1, 3], got f64[1, 3]\n"
            "Convert it with .to(torch.float32).",
        ),
        (
            (torch.empty(1, 3, dtype=torch.uint4),),
            f"{WHERE} has the wrong dtype: expected f32[1, 3], got uint4[1, 3]\n"
            "Convert it with .to(torch.float32).",
        ),
        ((X.T,), f"{WHERE} has the wrong shape: expected f32[1, 3], got f32[3, 1]"),
        ((X[0],), f"{WHERE} has the wrong shape: expected f32[1, 3], got f32[3]"),
        ((X.to("meta"),), f"{WHERE} is on meta, expected cpu"),
        (X, "inputs are a tuple of tensors, got Tensor\nWrite (x,) for one input."),
        (None, "inputs are a tuple of tensors, got NoneType\nWrite (x,) for one input."),
    ],
)
def test_plain_tensors_that_do_not_fit(linear, inputs, message):
    with pytest.raises(InputError) as caught:
        linear.execute(inputs)
    assert str(caught.value) == message
    assert isinstance(caught.value, ExecutionError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, f"args has 0 arguments, expected 1\n{BY_POSITION}"),
        ((), {"input": X}, f"args has 0 arguments, expected 1\n{BY_POSITION}"),
        ((X, X), {}, f"args has 2 arguments, expected 1\n{BY_POSITION}"),
        ((X,), {"scale": 2}, "kwargs has the unexpected key 'scale'"),
    ],
)
def test_arguments_that_do_not_fit(linear, args, kwargs, message):
    with pytest.raises(InputError) as caught:
        linear(*args, **kwargs)
    assert str(caught.value) == message


def changed(**changes):
    """The arguments of the nested model with some of them replaced."""
    (pair, options, scale, name), keywords = CASES["nested"].inputs()
    given = {"pair": pair, "options": options, "scale": scale, "name": name, "keywords": keywords}
    given |= changes
    args = (given["pair"], given["options"], given["scale"], given["name"])
    return args, given["keywords"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pair": [1, 2]}, "args[0] must be a tuple, got list"),
        ({"pair": (X,)}, "args[0] has 1 item, expected 2"),
        ({"options": {}}, "args[1] lacks the key 'bias'"),
        (
            {"options": {"bias": [X], "bais": 1}},
            "args[1] has the unexpected key 'bais'\nDid you mean bias?",
        ),
        ({"options": OrderedDict(bias=[X])}, "args[1] must be a dict, got OrderedDict"),
        ({"options": {"bias": (X,)}}, "args[1]['bias'] must be a list, got tuple"),
        (
            {"scale": 3.0},
            "args[2] is 3.0, the program was extracted for 2.5\n"
            "Extract the model again with the value that you want.",
        ),
        (
            {"name": "other"},
            "args[3] is 'other', the program was extracted for 'net'\n"
            "Extract the model again with the value that you want.",
        ),
        ({"keywords": {}}, "kwargs lacks the key 'extra'"),
        ({"keywords": {"extra": None}}, "kwargs['extra'] must be a dict, got NoneType"),
        (
            {"keywords": {"extra": {"shift": torch.ones(4)}}},
            "input 3 (%extra_shift: f32[3]) has the wrong shape: expected f32[3], got f32[4]",
        ),
    ],
)
def test_a_misfit_deep_inside_is_named_by_its_path(nested, changes, message):
    args, kwargs = changed(**changes)
    with pytest.raises(InputError) as caught:
        nested(*args, **kwargs)
    assert str(caught.value) == message


def test_a_number_is_the_very_number(nested):
    args, kwargs = changed(scale=2.5)
    assert nested(*args, **kwargs)["count"] == 3
    args, kwargs = changed(scale=np.float64(2.5))  # eager would compute in another type with it
    with pytest.raises(InputError, match=r"^args\[2\] is .*2\.5.*, the program was extracted for"):
        nested(*args, **kwargs)


def test_a_graph_of_plain_tensors_takes_no_keywords():
    plain = IRExecutor(LINEAR.replace(signature=None), MODEL.state_dict())
    assert torch.equal(plain(X)[0], MODEL(X))
    with pytest.raises(InputError) as caught:
        plain(X, input=X)
    assert str(caught.value) == "this graph takes tensors only, got the keyword 'input'"


# -- weights ----------------------------------------------------------------------------------


def test_a_program_with_weights_needs_them():
    for use in (lambda e: e(X), lambda e: e.buffers):
        with pytest.raises(MissingWeightsError) as caught:
            use(IRExecutor(LINEAR))
        assert str(caught.value) == (
            "the program has 2 weights and none were given\n"
            "Call load_weights(path) or load_weights_from_state_dict(state_dict) first."
        )
    for ir in (LINEAR, RELU):
        with pytest.raises(MissingWeightsError) as caught:
            IRExecutor(ir).execute((X,))
        assert str(caught.value) == (
            "Weights not loaded\n"
            "Call load_weights(path) or load_weights_from_state_dict(state_dict) first."
        )
    assert torch.equal(IRExecutor(RELU)(X), X.relu())
    with pytest.raises(MissingWeightsError) as caught:
        execute_ir(LINEAR, (X,))
    assert str(caught.value) == (
        "Either weights or weights_path must be provided\n"
        "Pass weights={} for a program without weights."
    )
    assert isinstance(caught.value, ValueError)


def test_weights_that_do_not_fit_leave_those_before_in_force(linear):
    before = linear(X)
    with pytest.raises(
        TorchIRError, match=re.escape("'weight': expected f32[2, 3], found f32[3]")
    ):
        linear.load_weights_from_state_dict({"weight": torch.ones(3), "bias": torch.ones(2)})
    with pytest.raises(TorchIRError, match="not found"):
        linear.load_weights("no/such/file.pt")
    assert torch.equal(linear(X), before)
    assert linear.weights.keys() == {"weight", "bias"}


def test_weights_may_come_from_a_file_or_change_between_calls(linear, tmp_path):
    other = nn.Linear(3, 2)
    torch.save(other.state_dict(), tmp_path / "w.pt")
    linear.load_weights(tmp_path / "w.pt")
    assert torch.equal(linear(X), other(X))
    assert torch.equal(execute_ir(LINEAR, [X], weights_path=tmp_path / "w.pt")[0], other(X))


def test_weights_are_never_changed_nor_kept_from_their_owner():
    case = CASES["counting"]
    model = case.model()
    with pytest.warns(UserWarning, match="the model is in training mode"):
        ir = torch_ir.extract_ir(model, case.inputs()[0])
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    before = {key: value.clone() for key, value in weights.items()}
    execute_ir(ir, case.inputs()[0], weights=weights)
    assert all(torch.equal(weights[key], before[key]) for key in before)


def functional(tensor):
    with FunctionalTensorMode():
        return FunctionalTensor.to_functional(tensor)


WITHOUT_VALUES = {
    "meta": lambda: torch.ones(2, 3, device="meta"),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(3), torch.ones(2)]),
    "jagged": lambda: torch.nested.nested_tensor(
        [torch.ones(3), torch.ones(2)], layout=torch.jagged
    ),
    "mkldnn": lambda: torch.ones(2, 3).to_mkldnn(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2, 3), 1.0, 0, torch.qint8),
    "fake": lambda: FakeTensorMode().from_tensor(torch.ones(2, 3)),
    "functional": lambda: functional(torch.ones(2, 3)),
    "None": lambda: None,
    "array": lambda: torch.ones(2, 3).numpy(),
    "list": lambda: [[1.0] * 3] * 2,
    "number": lambda: 3,
    "text": lambda: "x",
}

WAYS = {
    "eval": lambda ir, v: compile_graph(ir).eval((v,)),
    "eval_all": lambda ir, v: compile_graph(ir).eval_all((v,)),
    "values": lambda ir, v: compile_graph(ir).values((v,), ["y"]),
    "vjp": lambda ir, v: compile_graph(ir).vjp((v,)),
    "jvp": lambda ir, v: compile_graph(ir).jvp((v,), (v,)),
    "call": lambda ir, v: IRExecutor(ir)(v),
    "call with gradients": lambda ir, v: IRExecutor(ir, grad=True)(v),
    "execute": lambda ir, v: IRExecutor(ir, {}).execute((v,)),
    "second call": lambda ir, v: [IRExecutor(ir)(given) for given in (torch.ones(2, 3), v)],
    "execute_ir": lambda ir, v: execute_ir(ir, (v,), {}),
    "profile": lambda ir, v: profile(compile_graph(ir), (v,), repeat=1),
    "capture": lambda ir, v: capture(compile_graph(ir), (v,)),
    "validate": lambda ir, v: validate(ir, {}, (v,)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", ["2", "s0"])
def test_no_way_of_running_takes_what_has_no_values(way, size):
    ir = parse(
        f"ir {{\n symbol s0: 1..9\n input %x: f32[{size}, 3]\n"
        f" %y: f32[{size}, 3] = aten.relu.default(%x)\n return %y\n}}"
    )
    WAYS[way](ir, torch.ones(2, 3))
    for name, make in WITHOUT_VALUES.items():
        with pytest.raises(InputError) as caught:
            WAYS[way](ir, make())
        assert "%x" in str(caught.value), (name, caught.value)


def test_the_denotation_takes_arrays_and_dense_tensors_only():
    ir = parse("ir {\n input %x: f32[2, 3]\n %y: f32[2, 3] = aten.relu.default(%x)\n return %y\n}")
    for name, make in WITHOUT_VALUES.items():
        if name != "array":
            with pytest.raises(InputError):
                denote(ir, {}, [make()])


@pytest.fixture
def default_dtype():
    before = torch.get_default_dtype()
    yield torch.set_default_dtype
    torch.set_default_dtype(before)


HALVES = torch_ir.parse("""ir {
  input %x: i64[3]
  %y: f32[3] = aten.mul.Tensor(%x, other=0.5)
  return %y
}""")
OF_FLOATS = torch_ir.parse("""ir {
  input %x: f32[3]
  %y: f32[3] = aten.mul.Tensor(%x, other=0.5)
  return %y
}""")


def test_a_program_whose_types_the_default_dtype_decides_runs_with_that_of_compiling(
    default_dtype,
):
    graph, floats = torch_ir.compile(HALVES, {}), torch_ir.compile(OF_FLOATS, {})
    x = torch.arange(3)
    assert graph(x)[0].dtype == torch.float32
    default_dtype(torch.float64)
    with pytest.raises(ExecutionError) as caught:
        graph(x)
    assert str(caught.value) == (
        "torch's default dtype is torch.float64, and the program was compiled for "
        "torch.float32: some of its results would have another type\n"
        "Call torch.set_default_dtype(torch.float32) before."
    )
    assert torch.equal(floats(x.float())[0], x.float() * 0.5)
    with pytest.raises(CompileError, match=r"expected f64\[3\], got f32\[3\]"):
        torch_ir.compile(HALVES, {})  # what was checked under another default is checked again
    default_dtype(torch.float32)
    assert graph(x)[0].dtype == torch.float32
