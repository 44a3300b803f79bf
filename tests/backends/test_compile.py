"""The one door: a program, its weights and a backend become a function."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest
import torch
from torch import nn
from torch.export import Dim

import torch_ir
from small_models import CASES
from torch_ir.backends import (
    backend_registry,
    known_backends,
    register_backend,
    unregister_backend,
)
from torch_ir.errors import BackendError, CompileError, ExecutionError, MissingWeightsError
from torch_ir.ir import Mutation
from torch_ir.ops import extensions
from whole_way import same


def extracted(name):
    case = CASES[name]
    model = case.model()
    args, kwargs = case.inputs()
    return model, args, kwargs, torch_ir.extract_ir(model, args, kwargs=kwargs)


@pytest.mark.parametrize("name", ["linear", "nested", "conv", "passing", "in place"])
def test_it_takes_and_gives_what_the_model_does(name):
    model, args, kwargs, ir = extracted(name)
    run = torch_ir.compile(ir, model.state_dict())
    mine = torch.utils._pytree.tree_map(_copied, (args, kwargs))
    assert same(run(*mine[0], **mine[1]), model(*args, **kwargs))
    assert same(mine, (args, kwargs)), "inputs that the program writes are written"


def _copied(leaf):
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


@pytest.mark.filterwarnings("ignore:the model is in training mode")
def test_state_goes_on_from_call_to_call():
    model, (x,), _, ir = extracted("counting")
    run = torch_ir.compile(ir, CASES["counting"].model().state_dict())
    for scale in (1.0, 2.0, 3.0):
        assert same(run(x * scale), model(x * scale))


@pytest.mark.filterwarnings("ignore:the model is in training mode")
@pytest.mark.parametrize("name", ["linear", "conv", "nested", "passing", "counting", "in place"])
def test_the_denotation_takes_and_gives_what_the_model_does(name):
    model, args, kwargs, ir = extracted(name)
    run = torch_ir.compile(ir, CASES[name].model().state_dict(), backend="reference")
    mine = torch.utils._pytree.tree_map(_copied, (args, kwargs))
    for _ in range(2):  # state goes on, and inputs are written
        result, expected = run(*mine[0], **mine[1]), model(*args, **kwargs)
        assert _spec(result) == _spec(expected)
        torch.testing.assert_close(_tensors(result), _tensors(expected))
        torch.testing.assert_close(_tensors(mine), _tensors((args, kwargs)))


def _spec(tree):
    return torch.utils._pytree.tree_structure(tree)


def _tensors(tree):
    leaves = torch.utils._pytree.tree_leaves(tree)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


DELAY = """
ir {
  input %x: f32[2]
  weight @line: f32[2]
  %y: f32[2] = aten.add.Tensor(%x, @line)
  %z: f32[2] = aten.mul.Tensor(%x, 2)
  return %y
}
"""


def test_the_denotation_keeps_state_and_writes_inputs():
    ir = torch_ir.parse(DELAY)
    by_name = ir.by_name
    ir = ir.replace(
        mutations=(
            Mutation("line", by_name["y"].outputs[0]),
            Mutation("x", by_name["z"].outputs[0]),
        )
    )
    given = {"line": torch.ones(2)}
    for backend in ("aten", "reference"):
        run = torch_ir.compile(ir, given, backend=backend)
        x = torch.ones(2)
        found = [run(x)[0].tolist(), x.tolist(), run(x)[0].tolist(), x.tolist()]
        assert found == [[2, 2], [2, 2], [4, 4], [4, 4]], backend
    assert given["line"].tolist() == [1, 1]


def test_paths_are_read(tmp_path):
    model, args, _, ir = extracted("linear")
    torch_ir.save_ir(ir, tmp_path / "linear.json")
    torch.save(model.state_dict(), tmp_path / "linear.pt")
    run = torch_ir.compile(tmp_path / "linear.json", str(tmp_path / "linear.pt"))
    assert same(run(*args), model(*args))
    assert run.graph.source.startswith("'Linear: 1 nodes'")
    (tmp_path / "linear.ir").write_text(str(ir))
    assert same(
        torch_ir.compile(tmp_path / "linear.ir", dict(model.state_dict()))(*args), run(*args)
    )


def test_weights_are_those_in_the_file_of_the_program_if_none_are_given(tmp_path):
    model, args, _, ir = extracted("linear")
    ir.save(tmp_path / "own.tir", weights=model.state_dict())
    assert same(torch_ir.compile(tmp_path / "own.tir")(*args), model(*args))
    others = {key: tensor * 2 for key, tensor in model.state_dict().items()}
    assert same(torch_ir.compile(tmp_path / "own.tir", others)(*args), model(*args) * 2)
    ir.save(tmp_path / "none.tir")
    with pytest.raises(MissingWeightsError):
        torch_ir.compile(tmp_path / "none.tir")


def test_parameters_get_gradients_where_they_are_asked_for():
    model, (x,), _, ir = extracted("linear")
    run = torch_ir.compile(ir, dict(model.named_parameters()), grad=True)
    run(x).sum().backward()
    mine = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    assert same(mine, [parameter.grad for parameter in model.parameters()])
    assert not torch_ir.compile(ir, dict(model.named_parameters()))(x).requires_grad


# -- what is refused ------------------------------------------------------------------------------


def test_an_unknown_backend_has_a_hint():
    _, _, _, ir = extracted("linear")
    with pytest.raises(ExecutionError) as caught:
        torch_ir.compile(ir, backend="atne")
    assert str(caught.value) == (
        "there is no backend 'atne'\nKnown backends: aten, auto, executorch, inductor, "
        "onnxruntime, openvino, reference, tuned. Did you mean aten or tuned?"
    )


def test_what_is_no_program_is_refused():
    with pytest.raises(ExecutionError) as caught:
        torch_ir.compile(nn.Linear(3, 2))
    assert str(caught.value) == (
        "what is compiled is an IR or the path of one, got Linear\n"
        "Make one with torch_ir.extract_ir(model, example_inputs)."
    )


def test_missing_weights_are_told_at_once():
    _, _, _, ir = extracted("linear")
    with pytest.raises(MissingWeightsError, match="has 2 weights and none were given"):
        torch_ir.compile(ir)


def test_a_program_that_cannot_be_compiled_is_refused_at_once():
    model, _, _, ir = extracted("linear")
    node = ir.nodes[0].replace(op_type="aten.linaer.default")
    with pytest.raises(CompileError) as caught:
        torch_ir.compile(ir.replace(nodes=(node,)), model.state_dict())
    assert caught.value.findings[0].code == "unknown-operator"


def test_the_denotation_has_no_gradients():
    model, _, _, ir = extracted("linear")
    with pytest.raises(ExecutionError) as caught:
        torch_ir.compile(ir, model.state_dict(), backend="reference", grad=True)
    assert str(caught.value) == (
        "the backend 'reference' has no gradients\nUse the backend 'aten'."
    )


def test_sizes_are_as_they_are_required():
    model, (x,), _, static = extracted("linear")
    dynamic = torch_ir.extract_ir(model, (x,), dynamic_shapes=({0: Dim("n")},))
    weights = model.state_dict()
    assert same(torch_ir.compile(static, weights, dynamic=False)(x), model(x))
    assert same(torch_ir.compile(dynamic, weights, dynamic=True)(x[:2]), model(x[:2]))
    with pytest.raises(ExecutionError) as caught:
        torch_ir.compile(static, weights, dynamic=True)
    assert str(caught.value) == (
        "dynamic=True, but no input of the program has a symbolic size\n"
        "Extract the model with dynamic_shapes."
    )
    with pytest.raises(ExecutionError) as caught:
        torch_ir.compile(dynamic, weights, dynamic=False)
    assert str(caught.value) == (
        "dynamic=False, but the program has the symbolic size s0 "
        "(dimension 0 of %input: f32[s0, 3])\n"
        "Extract the model without dynamic_shapes."
    )
    with pytest.raises(ExecutionError) as caught:
        torch_ir.compile(static, weights, dynamic="auto")
    assert str(caught.value) == "dynamic is None, True or False, got 'auto'"


# -- the registry ---------------------------------------------------------------------------------


def test_a_backend_is_registered_under_one_name():
    _, _, _, ir = extracted("linear")
    seen = []

    @register_backend("echo")
    def echo(ir, weights, options):
        seen.append((ir.model_name, weights, options.grad))
        return lambda *args: args

    try:
        assert "echo" in known_backends()
        assert torch_ir.compile(ir, {}, backend="echo", grad=True)(1, 2) == (1, 2)
        assert seen == [("Linear", {}, True)]
        with pytest.raises(ExecutionError) as caught:
            register_backend("echo")(echo)
        assert str(caught.value) == (
            "there is a backend 'echo' already\nRemove it with unregister_backend('echo') first."
        )
        with pytest.raises(ExecutionError) as caught:
            register_backend("aten")(echo)
        assert str(caught.value) == "there is a backend 'aten' already\nChoose another name."
    finally:
        unregister_backend("echo")
    assert "echo" not in known_backends()


def test_installed_packages_offer_backends(monkeypatch):
    model, _, _, ir = extracted("linear")
    points = [
        EntryPoint(
            "loaded", "torch_ir.backends.reference:compile_reference", backend_registry.GROUP
        ),
        EntryPoint("absent", "no_such_package:make", backend_registry.GROUP),
    ]
    monkeypatch.setattr(extensions, "entry_points", lambda group: EntryPoints(points))
    assert {"absent", "aten", "inductor", "loaded"} <= {*known_backends()}
    with pytest.raises(ExecutionError) as caught:
        torch_ir.compile(ir, {}, backend="absent")
    assert str(caught.value) == (
        "the backend 'absent' of no_such_package:make cannot be loaded: "
        "ModuleNotFoundError: No module named 'no_such_package'\n"
        "Correct the entry point in no_such_package:make, and install that again."
    )
    assert callable(torch_ir.compile(ir, model.state_dict(), backend="loaded"))


@pytest.mark.parametrize("backends", [["tuned", "tuned"], ["tuned", "aten", "tuned"]])
def test_each_backend_is_named_once(backends):
    ir = torch_ir.extract_ir(nn.ReLU(), (torch.ones(2),))
    with pytest.raises(BackendError) as raised:
        torch_ir.compile(ir, {}, backend=backends)
    assert str(raised.value) == (
        f"2 of the backends are named {backends[0]!r}\n"
        "Name each once; delegates are known by the names of their backends."
    )
