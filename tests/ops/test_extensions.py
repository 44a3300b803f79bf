"""Entry points that name another thing than their group holds."""

from importlib.metadata import EntryPoint

import pytest

from torch_ir import InvalidIRError, WeightLoadError, dialects, extract_ir, load_weights, parse
from torch_ir.backends import as_backend
from torch_ir.cli.files import write_ir
from torch_ir.errors import ExecutionError, ExportError, PassError, SerializationError
from torch_ir.ops import extensions
from torch_ir.passes import pass_named

PROGRAM = parse("ir {\n  input %x: f32[2]\n  return %x\n}")


@pytest.fixture
def point(monkeypatch):
    def offer(group, name, value):
        found = [EntryPoint(name, value, f"torch_ir.{group}")]
        monkeypatch.setattr(
            extensions,
            "entry_points",
            lambda group: [entry for entry in found if entry.group == group],
        )

    return offer


USES = {
    "passes": (lambda name, path: pass_named(name), PassError),
    "backends": (lambda name, path: as_backend(name), ExecutionError),
    "dialects": (lambda name, path: dialects.verify(PROGRAM, name), InvalidIRError),
    "weight_readers": (lambda name, path: load_weights(path / f"m{name}"), InvalidIRError),
    "viewers": (lambda name, path: write_ir(PROGRAM, None, name, None), InvalidIRError),
}


@pytest.mark.parametrize("value", ["json", "math:pi", "json:decoder.scanner"])
@pytest.mark.parametrize("group", USES)
def test_what_fits_no_group_is_told_when_it_is_used_and_listed(point, tmp_path, group, value):
    name = ".other" if group == "weight_readers" else "other"
    (tmp_path / "m.other").touch()
    point(group, name, value)
    use, error = USES[group]
    with pytest.raises(error, match="other"):
        use(name, tmp_path)
    (listed,) = [entry for entry in extensions.extensions() if entry.name == name]
    assert listed.fault.startswith("its entry point names ")


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("operators", "aten"),
        ("denotations", "prims"),
        ("passes", "dce"),
        ("backends", "aten"),
        ("dialects", "edge"),
        ("weight_readers", ".safetensors"),
        ("viewers", "html"),
    ],
)
def test_a_name_that_is_ours_is_told(point, group, name):
    point(group, name, "json:dumps")
    (listed,) = [entry for entry in extensions.extensions() if entry.name == name]
    assert listed.fault == "torch-ir has its own of this name, which is used"


def test_a_module_that_ends_the_process_is_told(point, tmp_path, monkeypatch):
    (tmp_path / "that_exits.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    point("viewers", "other", "that_exits:view")
    told = "RuntimeError: it ends the process, with 3"
    (listed,) = [entry for entry in extensions.extensions() if entry.name == "other"]
    assert listed.fault == told
    with pytest.raises(InvalidIRError, match=told):
        write_ir(PROGRAM, None, "other", None)


def test_the_fault_says_what_is_wanted(point):
    point("dialects", "other", "math:pi")
    with pytest.raises(InvalidIRError) as caught:
        dialects.verify(PROGRAM, "other")
    assert str(caught.value) == (
        "the dialect 'other' of math:pi: its entry point names 3.141592653589793, not a Dialect"
    )


def test_what_functions_of_packages_give_is_looked_at(point, tmp_path):
    file = tmp_path / "m.other"
    file.touch()
    point("weight_readers", ".other", "json:dumps")
    with pytest.raises(WeightLoadError, match=r"cannot read .*m\.other: TypeError: "):
        load_weights(file)
    point("weight_readers", ".other", "builtins:str")
    with pytest.raises(WeightLoadError, match=r"the reader of \.other files gave a value of type"):
        load_weights(file)
    point("viewers", "other", "builtins:len")
    with pytest.raises(SerializationError, match=r"^the viewer 'other' failed: TypeError: "):
        write_ir(PROGRAM, None, "other", None)
    point("viewers", "other", "builtins:id")
    with pytest.raises(SerializationError) as caught:
        write_ir(PROGRAM, None, "other", None)
    assert str(caught.value) == "the viewer 'other' gave a value of type int, not text or bytes"


def test_a_model_that_calls_what_nobody_imported_is_told_the_module(point):
    import torch

    class Unknown(torch.nn.Module):
        def forward(self, x):
            return torch.ops.never_imported.call(x)

    inputs = (torch.ones(2),)
    with pytest.raises(ExportError) as caught:
        extract_ir(Unknown(), inputs)
    assert "or an entry point 'never_imported' of the group" in str(caught.value)
    point("operators", "never_imported", "their.operators")
    with pytest.raises(ExportError) as caught:
        extract_ir(Unknown(), inputs)
    assert str(caught.value).endswith(
        "\nImport their.operators, which registers them: --import their.operators on the command "
        "line."
    )
