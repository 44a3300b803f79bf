"""convert to the formats of other tools."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from torch_ir import IR, extract_ir, parse
from torch_ir.ir.builder import with_weights_as_inputs
from torch_ir.ir.tree import Container, Signature, TensorLeaf
from torch_ir.serde import save

MODEL = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()
X = torch.randn(2, 3)


@pytest.fixture
def files(tmp_path):
    from safetensors.torch import save_file

    ir = extract_ir(MODEL, (X,))
    ir.save(tmp_path / "bare.tir")
    save(ir, tmp_path / "full.tir", weights=MODEL.state_dict())
    save_file(MODEL.state_dict(), tmp_path / "w.safetensors")


@pytest.mark.parametrize("given", [["full.tir"], ["bare.tir", "--weights", "w.safetensors"]])
def test_an_exported_program_has_the_weights(run, files, given):
    assert run("convert", given[0], "m.pt2", *given[1:]).err == ""
    assert torch.equal(torch.export.load("m.pt2").module()(X), MODEL(X))


def test_without_weights_they_are_arguments(run, files):
    result = run("convert", "bare.tir", "m.pt2")
    assert result.err == "note: no weights are given: the program takes them as arguments\n"
    module = torch.export.load("m.pt2").module()
    given = with_weights_as_inputs(IR.load("bare.tir")).input_names[1:]
    weights = [MODEL.state_dict()[name] for name in given]
    assert torch.equal(module(X, *weights), MODEL(X))


def test_onnx_has_the_weights_inside(run, files):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    assert run("convert", "full.tir", "m.onnx").code == 0
    session = runtime.InferenceSession("m.onnx")
    (got,) = session.run(None, {session.get_inputs()[0].name: X.numpy()})
    torch.testing.assert_close(torch.from_numpy(got), MODEL(X))
    assert run("convert", "bare.tir", "m.onnx").code == 0
    given = runtime.InferenceSession("m.onnx").get_inputs()
    assert len(given) == len(with_weights_as_inputs(IR.load("bare.tir")).graph_inputs)


class Counts(nn.Module):
    """Writes buffers and an argument, and normalizes by its batch."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("seen", torch.zeros(2, 3))
        self.register_buffer("none", torch.zeros(0, 3))

    def forward(self, x, y):
        self.seen[:, 0] += x[:, 1]
        y.mul_(2)
        return self.norm(x) + self.seen, self.none, self.seen


def test_onnx_takes_and_gives_what_a_program_writes(run, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    model = Counts()
    save(extract_ir(model, (X, X)), tmp_path / "m.tir", weights=model.state_dict())
    assert run("convert", "m.tir", "m.onnx").err == (
        "note: a model of ONNX has no state: what the program writes is among the inputs, and its "
        "new values are the last outputs: norm.num_batches_tracked, norm.running_mean, "
        "norm.running_var, seen, y\n"
    )
    session = runtime.InferenceSession("m.onnx")
    keys = ["norm.num_batches_tracked", "norm.running_mean", "norm.running_var", "seen"]
    names = [item.name for item in session.get_inputs()]
    assert names == ["x", "y", *(key.replace(".", "_") for key in keys)]
    state = [model.state_dict()[key].numpy().copy() for key in keys]
    for _ in range(2):
        x, y = torch.randn(2, 3), torch.randn(2, 3)
        given = [x.numpy(), y.numpy().copy(), *state]
        got = session.run(None, dict(zip(names, given, strict=True)))
        expected = [*model(x, y), *(model.state_dict()[key] for key in keys), y]
        for one, other in zip(got, expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(one), other)
        state = got[3:-1]


@pytest.mark.parametrize("kind", ["pt2", "onnx"])
def test_a_program_that_writes_is_converted_without_weights(run, tmp_path, kind):
    if kind == "onnx":
        pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    extract_ir(Counts(), (X, X)).save(tmp_path / "m.tir")
    assert run("convert", "m.tir", f"m.{kind}").code == 0


def test_onnx_says_what_its_translation_gets_wrong(run, tmp_path):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    text = "ir {\n  input %x: f32[2]\n  %y: f32[2] = aten.log1p.default(%x)\n  return %y\n}"
    parse(text).save(tmp_path / "m.tir")
    assert run("convert", "m.tir", "m.onnx").err == (
        "note: the model is off at 'y', aten.log1p.default: "
        "log(1 + x) has no digits of a small x\n"
    )


def test_onnx_needs_no_class_of_the_arguments_and_keeps_their_names(run, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    ir = parse(
        "ir {\n  input %x: f32[2, 3]\n  %y: f32[2, 3] = aten.relu.default(%x)\n  return %y\n}"
    )
    outputs = Container("elsewhere.Output", (TensorLeaf("y"),))
    signature = replace(Signature.of(["x"], ()), outputs=outputs)
    ir.replace(signature=signature).save(tmp_path / "m.tir")
    assert run("convert", "m.tir", "m.onnx").err == ""
    (got,) = runtime.InferenceSession("m.onnx").run(None, {"x": X.numpy()})
    torch.testing.assert_close(torch.from_numpy(got), X.relu())


def test_weights_are_for_programs_of_other_tools(run, files):
    result = run("convert", "full.tir", "m.json", "--weights", "w.safetensors")
    assert (result.code, result.err.splitlines()[-1]) == (
        2,
        "Error: --weights is for .pt2 and .onnx",
    )


def test_an_empty_name_is_no_output(run, files):
    result = run("convert", "bare.tir", "", "--to", "json")
    assert (result.code, result.out) == (2, "")
    assert result.err.splitlines()[-1] == "Error: Invalid value for '[OUTPUT]': it is empty"
