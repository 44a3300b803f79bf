"""Results that go to a folder: one error of the family where there can be none."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from torch_ir import CaseSet, cases, compare, parse, reduce, save_ir, validate
from torch_ir.backends import SUPPORTED, DelegateBackend
from torch_ir.errors import SerializationError
from torch_ir.executor import compile_graph

PROGRAM = parse("""ir {
  input %x: f32[2]
  %y: f32[2] = aten.exp.default(%x)
  %z: f32[2] = aten.relu.default(%y)
  return %z
}""")
X = (torch.tensor([0.0, 1.0]),)


class Wrong(DelegateBackend):
    """Adds one to what is right."""

    name = "wrong"

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        graph = compile_graph(ir.replace(signature=None))
        return lambda *given: [result + 1 for result in graph.eval(given)]


WRITES = {
    "compare": lambda place: compare(PROGRAM, {}, X, run=Wrong(), repro=place),
    "validate": lambda place: validate(PROGRAM, {}, X, backend=Wrong(), repro=place),
    "reduce": lambda place: reduce(PROGRAM, {}, X, lambda *given: True).save(place),
    "cases": lambda place: cases([PROGRAM]).save(place),
    "save_ir": lambda place: save_ir(PROGRAM, Path(place) / "m.json"),
}
NO_FOLDERS = {
    "file": "Not a directory",
    "file/below": "Not a directory",
    "a\0b": "embedded null byte",
    "x" * 300: "File name too long",
}


@pytest.mark.parametrize("name", NO_FOLDERS, ids=["file", "below", "null", "long"])
@pytest.mark.parametrize("write", WRITES)
def test_no_folder_can_be_made(write, name, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SerializationError, match=f"cannot be written: {NO_FOLDERS[name]}$"):
        WRITES[write](tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", NO_FOLDERS, ids=["file", "below", "null", "long"])
def test_no_cases_can_be_read(name, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SerializationError, match="cannot be read as cases"):
        CaseSet.load(tmp_path / name)


def test_the_inputs_of_what_a_backend_gets_wrong_are_saved(tmp_path):
    place = tmp_path / "x.safetensors"
    report = validate(PROGRAM, {}, X, backend=Wrong(), save_inputs=place)
    assert report.verdict == "disagree"
    assert torch.equal(load_file(place)["x"], X[0])
