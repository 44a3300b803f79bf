"""Entry points that name another thing than their group holds."""

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from torch_ir import (
    InvalidIRError,
    WeightLoadError,
    dialects,
    extract_ir,
    load_weights,
    parse,
    register_decomposition,
    register_op,
)
from torch_ir.backends import as_backend, register_backend
from torch_ir.cli.files import write_ir
from torch_ir.errors import ExecutionError, ExportError, PassError, SerializationError
from torch_ir.ops import extensions
from torch_ir.ops.flops import counts_operations
from torch_ir.passes import Pass, pass_named, register_pass
from torch_ir.semantics import denotes
from torch_ir.viz import register_viewer
from torch_ir.weights import register_weight_reader

PROGRAM = parse("ir {\n  input %x: f32[2]\n  return %x\n}")


@pytest.fixture
def point(monkeypatch):
    def offer(group, name, value):
        found = EntryPoints([EntryPoint(name, value, f"torch_ir.{group}")])
        monkeypatch.setattr(extensions, "entry_points", found.select)

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
        "the dialect 'other' of math:pi: its entry point names 3.141592653589793, not a Dialect\n"
        "Correct the entry point in math:pi, and install that again."
    )


def test_what_functions_of_packages_give_is_looked_at(point, tmp_path, monkeypatch):
    file = tmp_path / "m.other"
    file.touch()
    point("weight_readers", ".other", "json:dumps")
    with pytest.raises(WeightLoadError, match=r"cannot read .*m\.other: TypeError: "):
        load_weights(file)
    point("weight_readers", ".other", "builtins:str")
    with pytest.raises(WeightLoadError) as told:
        load_weights(file)
    assert str(told.value) == (
        f"cannot read {file}: the reader of .other files gave a value of type str, not tensors by "
        "name\nThe fault is in the file or in builtins.str, the reader of .other files."
    )
    point("weight_readers", ".other", "builtins:vars")
    with pytest.raises(WeightLoadError) as told:
        load_weights(file)
    assert told.value.remedy == (
        "The fault is in the file or in builtins.vars, the reader of .other files."
    )
    point("viewers", "other", "builtins:len")
    with pytest.raises(SerializationError, match=r"^the viewer 'other' failed: TypeError: "):
        write_ir(PROGRAM, None, "other", None)
    point("viewers", "other", "builtins:half_a_pair")
    monkeypatch.setattr("builtins.half_a_pair", lambda ir: "\ud800", raising=False)
    with pytest.raises(SerializationError, match=r"^the viewer 'other' failed: Unicode"):
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


def the_state(name):
    (listed,) = [entry for entry in extensions.extensions() if entry.name == name]
    return listed.fault, listed.remedy


SMALL = "it is a suffix in small letters with its dot, such as .npz"
BARE = "it is a suffix in small letters without its dot, such as csv"
IN_LISTS = "it stands in lists, so it has no comma and no colon"
SPACES = "a namespace of operators is letters, digits and _"


@pytest.mark.parametrize(
    ("group", "name", "rule"),
    [
        ("operators", "acme.npu", SPACES),
        ("denotations", "acme::npu", SPACES),
        ("passes", "a,b", IN_LISTS),
        ("passes", "file:Pass", IN_LISTS),
        ("backends", "a,b", IN_LISTS),
        ("backends", " a", IN_LISTS),
        ("weight_readers", "other", SMALL),
        ("weight_readers", ".OTHER", SMALL),
        ("weight_readers", ".other.gz", SMALL),
        ("viewers", ".other", BARE),
        ("viewers", "Other", BARE),
    ],
)
def test_a_name_that_nothing_can_ask_for_is_told(point, group, name, rule):
    point(group, name, "json:dumps")
    fault = "nothing can ask for it by this name"
    assert the_state(name) == (fault, f"Choose another name: {rule}.")


@pytest.mark.parametrize("name", ["my pass", "fuse-softclip", "a.b"])
def test_a_name_that_a_list_can_have_is_taken(point, name):
    point("passes", name, "torch_ir.passes:EliminateDeadCode")
    assert the_state(name) == ("", "")


def named(name):
    return type("Named", (Pass,), {"name": name, "call": lambda self, ir: None})


def test_nothing_is_registered_that_nothing_can_ask_for():
    for register, message, rule in (
        (lambda: register_weight_reader("npz"), "a reader of weights 'npz'", SMALL),
        (lambda: register_viewer(".csv"), "a viewer '.csv'", BARE),
        (lambda: register_pass(named("a,b")), "a pass 'a,b'", IN_LISTS),
        (lambda: register_backend("a:b"), "a backend 'a:b'", IN_LISTS),
    ):
        with pytest.raises((InvalidIRError, PassError, ExecutionError)) as caught:
            register()
        told = f"nothing can ask for {message}\nChoose another name: {rule}."
        assert str(caught.value) == told
    for name in ("", None):
        with pytest.raises(PassError, match="the name of a pass is a text, got "):
            register_pass(named(name))
    with pytest.raises(PassError) as caught:
        register_pass(type("Bare", (Pass,), {"call": lambda self, ir: None}))
    assert str(caught.value) == (
        "the pass Bare has no name\nGive the class Bare an attribute name, a text."
    )


def test_a_format_of_ours_is_no_suffix_of_others():
    with pytest.raises(InvalidIRError, match="there is a viewer 'mermaid' already"):
        register_viewer("mermaid")(str)


@pytest.mark.parametrize(
    ("group", "closest"),
    [
        ("torch_ir.pass", "torch_ir.passes"),
        ("torch_ir.readers", "torch_ir.weight_readers"),
        ("torch-ir.passes", "torch_ir.passes"),
        ("torch_ir_backends", "torch_ir.backends"),
    ],
)
def test_a_group_that_nobody_reads_is_told(monkeypatch, group, closest):
    found = EntryPoints([EntryPoint("other", "json:dumps", group)])
    monkeypatch.setattr(extensions, "entry_points", found.select)
    fault, remedy = the_state("other")
    assert fault == "torch-ir reads no group of this name"
    assert remedy.startswith(f"Did you mean {closest}")


def test_a_group_of_another_package_is_none_of_ours(monkeypatch):
    found = EntryPoints([EntryPoint("other", "json:dumps", "torch_irony.passes")])
    monkeypatch.setattr(extensions, "entry_points", found.select)
    assert not [entry for entry in extensions.extensions() if entry.name == "other"]


LACKS = "Correct the entry point in {value}, and install that again."


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ("no_such_module:P", LACKS),
        ("json.no_such_part:P", LACKS),
        ("json:dumsp", f"Did you mean dump or dumps? {LACKS}"),
        ("not a place!", LACKS),
        ("needs_another:P", "Install no_such_package, which needs_another imports."),
        (
            "that_raises:P",
            "The fault is in that_raises:P: python -c 'import that_raises' shows it.",
        ),
    ],
)
def test_what_cannot_be_loaded_says_what_to_do(point, tmp_path, monkeypatch, value, remedy):
    (tmp_path / "needs_another.py").write_text("import no_such_package\n")
    (tmp_path / "that_raises.py").write_text("{}['licence']\n")
    monkeypatch.syspath_prepend(tmp_path)
    point("passes", "other", value)
    remedy = remedy.format(value=value)
    assert the_state("other")[1] == remedy
    with pytest.raises(PassError) as caught:
        pass_named("other")
    assert caught.value.remedy == remedy


def test_a_class_that_is_abstract_is_told(point):
    point("passes", "other", "torch_ir.passes:Pass")
    assert the_state("other")[0] == "the class Pass lacks call"


@pytest.mark.parametrize(
    "register", [denotes, counts_operations, register_decomposition, register_op]
)
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("acme.softclip", "Name the exact overload, such as 'acme.softclip.default'."),
        ("acme::softclip", "Name the exact overload, such as 'acme.softclip.default'."),
        ("aten.relu", "It is aten.relu.default or aten.relu.out."),
        (len, "Name the exact overload, such as 'mylib.double.default'."),
    ],
    ids=str,
)
def test_what_is_registered_for_an_operator_names_its_overload(register, name, hint):
    with pytest.raises(InvalidIRError) as caught:
        register(name)
    assert str(caught.value) == f"{name!r} names no operator\n{hint}"


@pytest.mark.parametrize(
    ("tolerance", "hint"),
    [
        ("sums", "Did you mean sum?"),
        (
            0.5,
            "It is a function that gives bounds, or one of exact, rounded, function, sum, steps.",
        ),
    ],
)
def test_a_tolerance_is_a_kind_or_a_function(tolerance, hint):
    with pytest.raises(InvalidIRError) as caught:
        denotes("acme.softclip.default", tolerance=tolerance)
    assert str(caught.value) == f"{tolerance!r} is no kind of tolerance\n{hint}"


def test_the_keys_of_read_weights_are_texts(tmp_path):
    @register_weight_reader(".numbered")
    def numbered(path):
        return {1: path}

    file = tmp_path / "m.numbered"
    file.touch()
    with pytest.raises(WeightLoadError, match=r"files gave the key 1, which is no text\n"):
        load_weights(file)
