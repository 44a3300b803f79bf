"""The example package: every kind of extension, found by its entry points alone."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "extension"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder on the path with the package as an installer leaves it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "acme_npu").symlink_to(EXAMPLE / "acme_npu")
    install(folder, (EXAMPLE / "pyproject.toml").read_text())
    return folder


def install(folder, pyproject):
    """Write what an installer writes of a package beside its modules."""
    info = folder / "acme_npu-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-npu\nVersion: 0.1\n")
    lines = []
    for group, points in tomllib.loads(pyproject)["project"]["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines))


def run(site, code, *args, module=None):
    env = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT / 'src'}", "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-W",
        "ignore",
        *(("-c", code) if code else ("-m", "torch_ir")),
        *args,
    ]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=env)
    return done.returncode, done.stdout, done.stderr


PROGRAM = """ir "Net" {
  weight @w: f32[4, 3]
  operator "acme::softclip(Tensor x, float limit=1.0) -> Tensor"
  input %x: f32[2, 3]
  %h: f32[2, 4] = aten.linear.default(%x, @w)
  %s: f32[2, 4] = acme.softclip.default(x=%h, limit=2.0)
  %y: f32[2, 4] = aten.cumsum.default(%s, dim=1)
  return %y
}
"""


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.ir"
    path.write_text(PROGRAM)
    return path


COMMANDS = {
    "run": ("--random", "--random-weights"),
    "run by meaning": ("--random", "--random-weights", "--reference"),
    "validate": ("--random", "--random-weights"),
    "validate on the device": ("--random", "--random-weights", "--backend", "acme"),
    "lower": ("--to", "edge"),
    "lower and preserve": ("--to", "edge", "--preserve", "acme.softclip.default"),
    "support": ("--backend", "acme"),
    "opt": ("-p", "fuse-softclip,fuse-conv-bn-relu", "--explain"),
    "extensions": (),
    "operators": (),
    "partition": ("--backend", "acme"),
    "cost": ("--by", "node"),
    "convert": ("--to", "acme-calls"),
    "check": (),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_finds_what_it_needs(site, net, name):
    given = () if name == "extensions" else (net,)
    status, out, err = run(site, "", name.split()[0], *given, *COMMANDS[name])
    assert status == 0, err
    if name == "lower":
        assert "aten.abs.default" in out
        assert "acme.softclip" not in out.replace("operator", "")
    if name == "lower and preserve":
        assert "acme.softclip.default(x=%" in out
    if name == "partition":
        assert "func &acme_0" in out
        assert err == "note: 2 of 3 nodes in 1 subgraph of 'acme'\n"
    if name == "extensions":
        assert out.count("loaded") == 8
    if name == "cost":
        assert re.search(r"^s +1 +32 ", out, re.MULTILINE)  # 4 for each of 8 elements
    if name == "convert":
        assert out == ("h aten.linear.default\ns acme.softclip.default\ny aten.cumsum.default\n")
    if name.startswith("validate"):
        assert "all readers agree" in out


EVERYTHING = """
import torch
from torch_ir import DelegateBackend, register_backend, register_decomposition
from torch_ir.backends import SUPPORTED
from torch_ir.dialects import dialect, register_dialect, with_rules
from torch_ir.dialects.edge import register_constraint
from torch_ir.ops.flops import counts_operations
from torch_ir.passes import Pass, PassResult, register_pass
from torch_ir.semantics import denotes
from torch_ir.viz import register_viewer
from torch_ir.weights import register_weight_reader

@torch.library.custom_op("zz::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2

double.register_fake(torch.empty_like)
half = torch.library.custom_op(
    "zz::half", lambda x: x / 2, mutates_args=(), schema="(Tensor x) -> Tensor"
)
register_decomposition("zz.double.default")(lambda x: x + x)
register_constraint("- func: double\\n  inherits: zz::double\\n  type_alias:\\n    T0: [Float]\\n"
                    "  type_constraint:\\n  - x: T0\\n    __ret_0: T0\\n")
denotes("zz.double.default", tolerance="exact")(lambda x: x + x)
counts_operations("zz.double.default")(lambda arguments, results: 8)

@register_pass
class Still(Pass):
    \"\"\"Does nothing.\"\"\"
    name = "still"
    def call(self, ir):
        return PassResult(ir, False)

@register_backend("zzb")
class Everywhere(DelegateBackend):
    name = "zzb"
    def supports(self, node, ir):
        return SUPPORTED
    def compile(self, ir, payload):
        return lambda x: (x + x,)

register_dialect(with_rules(dialect("export"), name="zz4d", summary="Flat."))
register_weight_reader(".zz")(lambda path: {})
register_viewer("zz")(lambda ir: "zz")
"""


@pytest.fixture
def everything(tmp_path):
    (tmp_path / "everything.py").write_text(EVERYTHING)
    return tmp_path / "everything.py"


def test_what_an_imported_module_registers_is_listed(tmp_path, everything):
    status, out, err = run(tmp_path, "", "extensions", "--json", "--import", everything)
    assert (status, err) == (0, "")
    assert [(row["group"], row["name"]) for row in json.loads(out)] == [
        ("decomposition", "zz.double.default"),
        ("denotation", "zz.double.default"),
        ("dtype rows", "zz.double.default"),
        ("operation count", "zz.double.default"),
        ("torch_ir.backends", "zzb"),
        ("torch_ir.dialects", "zz4d"),
        ("torch_ir.passes", "still"),
        ("torch_ir.viewers", "zz"),
        ("torch_ir.weight_readers", ".zz"),
        ("operator", "zz.double.default"),
        ("operator", "zz.half.default"),
        ("fake kernel", "zz.double.default"),
    ]
    status, out, _ = run(tmp_path, "", "operators", "--import", everything)
    has = "fake kernel, decomposition, denotation, dtype rows, operation count"
    assert out.splitlines()[-2:] == [
        f"zz::double(Tensor x) -> Tensor  # {has}",
        "zz::half(Tensor x) -> Tensor  # nothing more",
    ]
    status, out, _ = run(tmp_path, "", "opt", "--list", "--import", everything)
    assert re.search(r"^still +Does nothing\.$", out, re.MULTILINE)


def test_what_is_registered_for_no_operator_is_told(tmp_path, everything):
    everything.write_text(EVERYTHING.replace('denotes("zz.double.d', 'denotes("zz.duoble.d'))
    status, out, _ = run(tmp_path, "", "extensions", "--json", "--import", everything)
    assert status == 1
    (row,) = [row for row in json.loads(out) if row["fault"]]
    assert (row["name"], row["fault"]) == (
        "zz.duoble.default",
        "there is no operator of this name",
    )
    assert row["remedy"] == "Did you mean zz.double.default or zz.half.default?"
    net = tmp_path / "net.ir"
    net.write_text("""ir {
  input %x: f32[2]
  %y: f32[2] = zz.duoble.default(x=%x)
  return %y
}
""")
    status, _, err = run(tmp_path, "", "run", net, "--random", "--import", everything)
    assert status == 1
    assert "has no operator 'zz.duoble.default'. Did you mean double?\n" in err


def test_the_list_of_operators_says_what_they_mean(site):
    status, out, _ = run(site, "", "operators")
    has = "fake kernel, decomposition, denotation, dtype rows, operation count"
    assert status == 0
    assert f"acme::softclip(Tensor x, float limit=1.) -> Tensor  # {has}\n" in out


def test_a_file_is_imported_once(tmp_path, everything):
    net = tmp_path / "net.ir"
    net.write_text("""ir "Net" {
  input %x: f32[2]
  %y: f32[2] = zz.double.default(x=%x)
  return %y
}
""")
    command = ("run", net, "--random", "--import", everything)
    status, _, err = run(tmp_path, "", *command, "--backend", f"{everything}:Everywhere")
    assert status == 0, err


CODE = """
import itertools, sys, torch, torch_ir
from torch import nn
from torch_ir import *
from torch_ir.passes import pass_named, run_passes
from torch_ir.passes.patterns import near_misses

class Block(nn.Module):
    def __init__(self, stride, padding, dilation, kernel):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, kernel, stride, padding, dilation, bias=False)
        self.norm = nn.BatchNorm2d(4)
    def forward(self, x):
        return self.norm(self.conv(x)).relu()

step = pass_named("fuse-conv-bn-relu")
x, count = torch.randn(1, 3, 8, 8), 0
for options in itertools.product((1, 2), (0, 1, 2), (1, 2), (1, 2, 3)):
    model = Block(*options).eval()
    ir = extract_ir(model, (x,))
    fused = run_passes(ir, [step]).ir
    assert [n.op_type for n in fused.nodes] == ["acme.conv_bn_relu.default"], options
    assert torch.equal(IRExecutor(fused, model.state_dict())(x), model(x))
    count += 1
again = decompose(fused)
assert "acme.conv_bn_relu.default" not in {n.op_type for n in again.nodes}
report = validate(fused, model.state_dict(), (x,))
print(count, report.verdict)
"""


def test_the_package_of_the_docs_works_as_it_is_written(tmp_path):
    page = (ROOT / "docs" / "extending.md").read_text()
    blocks = re.findall(r"```(?:python|toml)\n(# (\S+)\n.*?)```", page, re.DOTALL)
    (tmp_path / "acme_npu").mkdir()
    for text, name in blocks:
        (tmp_path / name).write_text(text)
    install(tmp_path, (tmp_path / "pyproject.toml").read_text())
    net = tmp_path / "net.ir"
    net.write_text("""ir "Net" {
  input %x: f32[2, 3]
  %a: f32[2, 3] = aten.abs.default(%x)
  %b: f32[2, 3] = aten.div.Tensor(%a, 3.0)
  %c: f32[2, 3] = aten.add.Tensor(%b, 1)
  %d: f32[2, 3] = aten.div.Tensor(%x, %c)
  %y: f32[2, 3] = aten.tanh.default(%d)
  return %y
}""")
    fused = tmp_path / "fused.ir"
    assert run(tmp_path, "", "opt", net, "-p", "fuse-softclip", "-o", fused)[0] == 0
    assert "acme.softclip.default(x=%x, limit=3.0)" in fused.read_text()
    status, out, err = run(tmp_path, "", "validate", fused, "--random", "--backend", "acme_doc")
    assert status == 0, err
    assert out.startswith("all readers agree on Net")


def test_a_dialect_and_a_file_of_weights_of_a_package(site, net, tmp_path):
    deep = tmp_path / "deep.ir"
    deep.write_text(
        'ir "Deep" {\n  input %x: f32[2]\n  %y: f32[1, 1, 1, 1, 2] = '
        "aten.view_copy.default(%x, [1, 1, 1, 1, 2])\n  return %y\n}"
    )
    status, out, _ = run(site, "", "check", deep, "--dialect", "acme")
    assert status == 1
    assert "[too-many-dimensions] node 'y': %y has 5 dimensions (expected at most 4)" in out
    weights = tmp_path / "w.acme"
    weights.write_text(json.dumps({"w": [[0.0] * 3] * 4}))
    status, out, err = run(site, "", "run", net, "--random", "--weights", weights)
    assert status == 0, err
    weights.write_text("{")
    status, _, err = run(site, "", "run", net, "--random", "--weights", weights)
    assert status == 1
    assert err.startswith(f"error: cannot read {weights}: JSONDecodeError: Expecting property")


def test_a_name_of_a_format_or_dialect_that_nobody_has_names_the_closest(site, net):
    status, _, err = run(site, "", "convert", net, "--to", "acme-call")
    assert status == 2
    assert "there is no format 'acme-call'. Did you mean acme-calls?" in " ".join(err.split())
    status, _, err = run(site, "", "check", net, "--dialect", "acmee")
    assert status == 1
    assert err.startswith("error: there is no dialect 'acmee'\nDid you mean acme?")


BROKEN = """[project.entry-points."torch_ir.passes"]
abstract = "broken:Abstract"
eager = "broken:Eager"
ghost = "broken:Ghost"
fuse-softclip = "broken:Eager"
[project.entry-points."torch_ir.operators"]
acme = "broken"
"""
BROKEN_MODULE = """from torch_ir.passes import Pass

class Abstract(Pass):
    name = "abstract"

class Eager(Pass):
    name = "eager"
    def __init__(self, size): pass
    def call(self, ir): pass
"""


def test_passes_of_a_package_that_cannot_be_made_are_its_fault(net, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    (first / "broken.py").write_text(BROKEN_MODULE)
    install(first, BROKEN)
    for name, reason in (
        ("abstract", "'abstract' cannot be made: TypeError: Can't instantiate abstract class"),
        ("eager", "'eager' cannot be made: TypeError: Eager.__init__() missing"),
        (
            "ghost",
            "'ghost' of broken:Ghost (acme-npu) cannot be loaded: AttributeError: "
            "module 'broken' has no attribute 'Ghost'\n",
        ),
    ):
        status, _, err = run(first, "", "opt", net, "-p", name)
        assert status == 1
        assert err.startswith(f"error: the pass {reason}"), err
        assert "fault of torch-ir" not in err
    assert "Of broken:Ghost." in run(first, "", "opt", "--list")[1]


def test_names_that_two_packages_have_are_listed(site, tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN_MODULE)
    install(tmp_path, BROKEN)
    (tmp_path / "acme_npu-0.1.dist-info").rename(tmp_path / "other-0.1.dist-info")
    metadata = tmp_path / "other-0.1.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("acme-npu", "other"))
    status, out, err = run(f"{site}{os.pathsep}{tmp_path}", "", "extensions", "--json")
    assert status == 1, err
    faults = {(e["name"], e["package"]): e["fault"] for e in json.loads(out) if e["fault"]}
    assert faults["acme", "other"] == "acme_npu.operators (acme-npu) has the same name"
    assert faults["acme", "acme-npu"] == "broken (other) has the same name"
    assert "has the same name" in faults["fuse-softclip", "other"]


def test_one_rule_takes_all_36_kinds_of_convolution(site):
    status, out, err = run(site, CODE)
    assert (status, out) == (0, "36 agree\n"), err


def test_a_name_of_a_namespace_that_nobody_has_says_what_to_do(net):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "torch_ir", "run", str(net), "--random", "--random-weights"]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 1
    assert "--import MODULE on the command line, or an entry point 'acme'" in done.stderr
    missing = subprocess.run(
        [*command, "--import", "no_such"], capture_output=True, text=True, env=env
    )
    assert missing.stderr.startswith("error: there is no module 'no_such'\n")


VERIFY = """
import torch, torch_ir
from torch_ir.backends import DelegateBackend, Partitioner, as_backend, support
from acme_npu.backend import Acme

model, x = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()).eval(), torch.randn(2, 3)
ir = torch_ir.extract_ir(model, (x,))
for backend in ("acme", Acme, Acme()):
    assert torch.equal(torch_ir.compile(ir, model.state_dict(), backend=backend)(x), model(x))
    assert torch_ir.verify(ir, model, (x,), backend=backend).is_valid
    assert len(Partitioner(backend)(ir).subgraphs) == 1

class Fails(Acme):
    def compile(self, ir, payload):
        def call(*tensors):
            raise RuntimeError("no power")
        return call

for wrong in (Fails, 3):
    try:
        torch_ir.verify(ir, model, (x,), backend=wrong) if wrong is Fails else as_backend(wrong)
    except (torch_ir.BackendError, torch_ir.ExecutionError) as error:
        print(type(error).__name__, error.message)
"""


def test_a_backend_is_a_name_a_class_or_an_instance_at_every_door(site):
    status, out, err = run(site, VERIFY)
    assert status == 0, err
    reason = "the backend 'acme' fails to run 'acme_0', a delegate of linear, tanh: "
    assert f"BackendError {reason}RuntimeError: no power" in out
    assert "ExecutionError 3 is no backend" in out
