"""Every command on a program of calls answers as on the same program without calls."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from torch import nn

from torch_ir import IR, compile_graph, extract_ir, reduce, shard
from torch_ir.cli import main
from torch_ir.ir.functions import written_out
from torch_ir.passes import functionalize, inline_functions, outline
from torch_ir.viz.overlays import overlays_of, values_by_path

BACKEND = """
import torch
from torch_ir.backends import SUPPORTED, DelegateBackend, Support
from torch_ir import compile_graph

class Half(DelegateBackend):
    name = "half"

    def supports(self, node, ir):
        return Support.refused("it is linear") if "linear" in node.op_type else SUPPORTED

    def compile(self, ir, payload):
        graph, names = compile_graph(ir), ir.input_names

        def run(*given):
            rest = iter(given)
            return graph.eval([payload[n] if n in payload else next(rest) for n in names])

        return run
"""


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return torch.tanh(self.down(torch.relu(self.up(x))))


class Block(nn.Module):
    """Layers in a layer, a branch, and a write to a buffer."""

    def __init__(self, has_state: bool):
        super().__init__()
        self.experts = nn.ModuleList([Expert() for _ in range(2)])
        self.gate = nn.Linear(4, 2)
        self.has_state = has_state
        if has_state:
            self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        gates = torch.softmax(self.gate(x), -1)
        first, second = [gates[..., i : i + 1] * e(x) for i, e in enumerate(self.experts)]
        y = first + second
        if self.has_state:
            y = torch.cond(y.sum() > 0, torch.sin, torch.cos, (y,))
            self.total.add_(y.mean(0))
            y = y + self.total
        return x + y


class Net(nn.Module):
    def __init__(self, has_state: bool):
        super().__init__()
        self.layers = nn.ModuleList([Block(has_state) for _ in range(2)])
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


NET = """
import torch
from {module} import Net

def build():
    torch.manual_seed(0)
    return Net({state}).eval().requires_grad_(False), (torch.ones(2, 4),)
"""

CALL = ["--inputs", "x.safetensors", "--weights", "w.safetensors"]
SAME: dict[str, list[list[str]]] = {
    "attribute": [["attribute", "FILE", *CALL]],
    "bench": [],  # times; tests of the partition are below
    "bisect": [["bisect", "FILE", "-p", "no-ops,cse,dce", *CALL, "--json"]],
    "cases": [["cases", "FILE"], ["cases", "FILE", "--json"]],
    "check": [["check", "FILE", "--json"]],
    "compare": [
        ["compare", "FILE", "--run", "half.py:Half", *CALL, "--json"],
        ["compare", "FILE", "--run", "eager", *CALL, "--json"],
        ["compare", "FILE", "--run", "aten", "--mode", "accumulated", *CALL],
    ],
    "cost": [["cost", "FILE", "--by", by] for by in ("node", "operator", "module")],
    "cut": [
        ["cut", "FILE", "--nodes", "layers_1.softmax", "--around", "2"],
        ["cut", "FILE", "--outputs", "layers_0.softmax"],
        ["cut", "FILE", "--nodes", "layers_1.softmax", "--record", "part.npz", *CALL],
    ],
    "fingerprint": [["fingerprint", "FILE"]],
    "partition": [["partition", "FILE", "--backend", "half.py:Half"]],
    "profile": [],  # times
    "reduce": [],  # the script that it writes is of what is left
    "run": [
        ["run", "FILE", *CALL],
        ["run", "FILE", "--backend", "half.py:Half", *CALL],
        ["run", "FILE", "--capture", "OUT.safetensors", *CALL],
    ],
    "shard": [],  # programs for ranks are compared below
    "show": [["show", "FILE", "--around", "layers_1.softmax"]],
    "support": [["support", "FILE", "--backend", "half.py:Half", "--json"]],
    "validate": [
        ["validate", "FILE", *CALL, "--json"],
        ["validate", "FILE", "--backend", "half.py:Half", *CALL, "--json"],
    ],
    "verify": [["verify", "FILE", "net.py:build", "--json"]],
}
WRITES = {"compare", "partition", "support", "validate"}
"""Commands that tell nodes of a functional program, or which names a pass has chosen."""
STRUCTURE = {
    "browse", "convert", "diff", "info", "lower", "opt", "plan", "plot", "view",
}  # fmt: skip
"""Commands that show or change the program as it is written; tests are below and elsewhere."""
NO_PROGRAM = {"completion", "conform", "extensions", "extract", "fuzz", "operators"}


@pytest.fixture(scope="module", params=[False, True], ids=["pure", "with state"])
def programs(request, tmp_path_factory) -> tuple[Any, IR, IR]:
    """A folder with a program of calls, and the same with its calls written out."""
    folder = tmp_path_factory.mktemp("calls")
    torch.manual_seed(0)
    net = Net(request.param).eval().requires_grad_(False)
    x = torch.randn(2, 4)
    made = outline(extract_ir(net, (x,)))
    nested = made.functions["layers"]
    assert len(made.nodes) == 3
    assert "experts" in nested.functions
    plain = made.replace(nodes=[node.replace(origins=()) for node in made.nodes])
    flat = written_out(plain)
    assert not inline_functions(made).diff(flat)
    save_file(net.state_dict(), folder / "w.safetensors")
    save_file({"x": x}, folder / "x.safetensors")
    (folder / "half.py").write_text(BACKEND)
    (folder / "net.py").write_text(NET.format(module=Net.__module__, state=request.param))
    plain.save(folder / "calls.tir")
    flat.save(folder / "flat.tir")
    return folder, plain, flat


def run(*words: str) -> tuple[int, str]:
    """The status and the output of a command."""
    result = CliRunner().invoke(main, list(words))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_every_command_is_listed():
    assert isinstance(main, click.Group)
    known = {*SAME, *STRUCTURE, *NO_PROGRAM}
    assert set(main.list_commands(click.Context(main))) == known


@pytest.mark.parametrize(
    "words", [words for lists in SAME.values() for words in lists], ids=lambda words: words[0]
)
def test_commands_answer_the_same(programs, words, monkeypatch):
    folder, calls, _ = programs
    monkeypatch.chdir(folder)
    if words[0] in WRITES and "total" in str(calls):
        lowered = functionalize(calls)
        lowered.replace(nodes=[n.replace(origins=()) for n in lowered.nodes]).save("f.calls.tir")
        written_out(lowered).save("f.flat.tir")
        words = [word.replace("FILE", "f.FILE") for word in words]
    answers = [
        run(*[word.replace("FILE", f"{name}.tir").replace("OUT", name) for word in words])
        for name in ("calls", "flat")
    ]
    assert answers[0] == (answers[1][0], answers[1][1].replace("flat.tir", "calls.tir"))


def test_profiles_measure_the_nodes_of_functions(programs, monkeypatch):
    folder, calls, flat = programs
    monkeypatch.chdir(folder)
    found = [
        json.loads(run("profile", f"{name}.tir", "--repeat", "1", "--json", *CALL)[1])
        for name in ("calls", "flat")
    ]
    rows = [
        [(n["node"], n["flops"], n["bytes_read"]) for n in report["nodes"]] for report in found
    ]
    assert rows[0] == rows[1]
    assert [name for name, _, _ in rows[0]] == [node.name for node in flat.nodes]
    (times, *_) = overlays_of(found[0])
    shown = values_by_path(times, calls)
    assert {"layers_0", "layers_1", "layers/softmax", "layers/experts/relu"} <= shown.keys()
    whole = sum(times.values.values())
    assert sum(shown[node.name] for node in calls.nodes) == pytest.approx(whole)


def test_a_failing_program_of_calls_is_reduced(programs):
    folder, *both = programs
    weights, inputs = load_file(folder / "w.safetensors"), load_file(folder / "x.safetensors")

    def fails(ir, weights, inputs):
        return any("softmax" in node.op_type for _, _, node in ir.walk())

    for program in both:
        small = reduce(program, weights, (inputs["x"],), oracle=fails).ir
        assert [node.op_type for node in small.nodes] == ["aten.softmax.int"]


def test_calls_are_sharded_as_their_nodes(programs):
    _, calls, flat = programs
    if "higher_order.cond" in str(calls):
        pytest.skip("branches are not shared by ranks")
    plan = {"*.up": "column", "*.down": "row"}
    kinds = [
        [[node.op_type for node in of_rank.nodes] for of_rank in shard(program, plan, ranks=2)]
        for program in (calls, flat)
    ]
    assert kinds[0] == kinds[1]
    assert "_c10d_functional.all_reduce.default" in kinds[0][0]


@pytest.mark.parametrize("dialect", ["aten", "core_aten", "edge"])
def test_lowered_calls_are_lowered_programs(programs, dialect, monkeypatch):
    folder, _, _ = programs
    monkeypatch.chdir(folder)
    made = []
    for name in ("calls", "flat"):
        assert run("lower", f"{name}.tir", "--to", dialect, "-o", f"{name}.low.tir")[0] == 0
        made.append(IR.load(f"{name}.low.tir"))
    assert not inline_functions(made[0]).diff(inline_functions(made[1]))


def test_reports_on_structure_know_calls(programs, monkeypatch):
    folder, _, flat = programs
    monkeypatch.chdir(folder)
    assert (
        "they are the same where calls of functions are written out"
        in (run("diff", "calls.tir", "flat.tir")[1])
    )
    facts = [json.loads(run("info", f"{name}.tir", "--json")[1]) for name in ("calls", "flat")]
    assert facts[0]["operators"] == facts[1]["operators"]
    assert facts[0]["nodes_with_calls"] == facts[1]["nodes"] == len(flat.nodes)
    for suffix in ("html", "mmd", "dot", "me.json", "txt", "json"):
        assert run("convert", "calls.tir", "-o", f"out.{suffix}")[0] == 0
    assert run("plan", "calls.tir")[0] == run("plan", "flat.tir")[0]


def test_gradients_of_calls_are_those_of_their_nodes(programs):
    folder, calls, flat = programs
    if "total" in str(calls):
        pytest.skip("the program writes a buffer whose gradient nobody asks for")
    weights, inputs = load_file(folder / "w.safetensors"), load_file(folder / "x.safetensors")
    found = []
    for program in (calls, flat):
        graph = compile_graph(program, weights, grad=True)
        (result,), pullback = graph.vjp((inputs["x"],))
        found.append((result, *pullback((torch.ones_like(result),))))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
