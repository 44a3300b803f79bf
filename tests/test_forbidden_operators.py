"""No door lets a program reach files: nothing is created, read or changed through an operator."""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import torch_ir
from torch_ir import CompileError, IRExecutor, TorchIRError, allow_operators, parse, serde
from torch_ir.cli import main
from torch_ir.executor import compile_graph
from torch_ir.ir.diagnostics import errors_among
from torch_ir.passes import fold_constants, pass_names, passes_named, run_passes

SECRET = b"secret words"
CALLS = {
    "aten.from_file.default": 'aten.from_file.default(filename="{file}", shared=True, size=64, '
    "dtype=torch.uint8)",
    "aten.from_file.out": 'aten.from_file.out(filename="{file}", shared=True, size=64, '
    "out={input})",
    "debugprims.load_tensor.default": 'debugprims.load_tensor.default(name="{file}", size=[64], '
    'stride=[1], dtype=torch.uint8, device=device("cpu"))',
}
GRAPH = """ir "Graph" {{
  input %x: u8[64]
  %f: u8[64] = {call}
  %z: u8[64] = aten.bitwise_not.default(%f)
  %y: u8[64] = aten.add.Tensor(%x, %z)
  return %y
}}"""
FUNCTION = """ir "Function" {{
  func &block "block" {{
    signature ((%a,), {{}}) -> (%b,)
    input %a: u8[64]
    %f: u8[64] = {call}
    %b: u8[64] = aten.add.Tensor(%a, %f)
    return %b
  }}
  input %x: u8[64]
  %c.0: u8[64] = c: higher_order.invoke_subgraph(operands=[%x], identifier="block", \
subgraph=&block)
  return %c.0
}}"""
BRANCH = """ir "Branch" {{
  func &yes "yes" {{
    signature ((%a,), {{}}) -> (%b,)
    input %a: u8[64]
    %f: u8[64] = {call}
    %b: u8[64] = aten.add.Tensor(%a, %f)
    return %b
  }}
  func &no "no" {{
    signature ((%a,), {{}}) -> (%b,)
    input %a: u8[64]
    %b: u8[64] = aten.bitwise_not.default(%a)
    return %b
  }}
  input %x: u8[64]
  input %p: bool[]
  %c.0: u8[64] = c: higher_order.cond(pred=%p, operands=[%x], true_fn=&yes, false_fn=&no)
  return %c.0
}}"""
HANDED_ON = """ir "HandedOn" {{
  input %x: u8[64]
  %f: u8[64] = higher_order.out_dtype(op=operator("{op_type}"), output_dtype=torch.uint8, \
args=["{file}", True, 64])
  %y: u8[64] = aten.add.Tensor(%x, %f)
  return %y
}}"""
PLACES = {"graph": GRAPH, "function": FUNCTION, "branch": BRANCH, "handed on": HANDED_ON}


def program(op_type: str, place: str, file: Path) -> torch_ir.IR:
    inside = "%a" if place in ("function", "branch") else "%x"
    call = CALLS[op_type].format(file=file, input=inside)
    return parse(PLACES[place].format(call=call, op_type=op_type, file=file))


def inputs(ir: torch_ir.IR) -> tuple[torch.Tensor, ...]:
    given = (torch.ones(64, dtype=torch.uint8), torch.tensor(True))
    return given[: len(ir.graph_inputs)]


def profiled(ir: torch_ir.IR) -> Any:
    return torch_ir.profile(torch_ir.compile_graph(ir), inputs(ir), repeat=1)


REFUSING: dict[str, Callable[[torch_ir.IR], Any]] = {
    "compile": lambda ir: torch_ir.compile_graph(ir).eval(inputs(ir)),
    "compile all": lambda ir: torch_ir.compile_graph(ir, collect=True).eval(inputs(ir)),
    "no types": lambda ir: torch_ir.compile_graph(ir, check_types=False).eval(inputs(ir)),
    "executor": lambda ir: IRExecutor(ir, {}).execute(inputs(ir)),
    "execute_ir": lambda ir: torch_ir.execute_ir(ir, inputs(ir), {}),
    "aten": lambda ir: torch_ir.compile(ir)(*inputs(ir)),
    "inductor": lambda ir: torch_ir.compile(ir, backend="inductor")(*inputs(ir)),
    "validate": lambda ir: torch_ir.validate(ir, {}, inputs(ir)),
    "profile": profiled,
    "exported": torch_ir.to_exported_program,
    "decompose": torch_ir.decompose,
    "functionalize": torch_ir.functionalize,
    "edge": torch_ir.to_edge,
}


@pytest.fixture(params=["there", "missing"])
def file(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "notes.bin"
    if request.param == "there":
        path.write_bytes(SECRET)
        os.utime(path, ns=(10**18, 10**18))
    before = _state(tmp_path)
    yield path
    assert _state(tmp_path) == before, "an operator reached a file"


def _state(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file that is not the test's own: what it holds, and when it was changed."""
    found = sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt"))
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("op_type", CALLS)
def test_no_door_of_python_runs_it(file, op_type, place):
    for door, opened in REFUSING.items():
        ir = program(op_type, place, file)
        with pytest.raises(CompileError) as raised:
            opened(ir)
        codes = {finding.code for finding in raised.value.findings}
        assert "forbidden-operator" in codes, f"{door}: {raised.value}"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("op_type", CALLS)
def test_no_pass_computes_it(file, op_type, place):
    ir = program(op_type, place, file)
    assert fold_constants(ir) == ir
    for name in pass_names():
        for allowed in ((), (op_type,)):
            try:
                made = run_passes(ir, passes_named(name), verify="off", allow=allowed).ir
            except TorchIRError:
                continue
            assert not any(constant.nbytes == 64 for constant in made.constants.values()), name


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("op_type", CALLS)
def test_looking_at_it_is_free(file, op_type, place):
    ir = program(op_type, place, file)
    found = ir.check()
    assert "forbidden-operator" in {finding.code for finding in found}
    assert {finding.severity for finding in found if finding.code == "forbidden-operator"} == {
        "warning"
    }
    assert not errors_among(found)
    assert torch_ir.validate_ir(ir)
    assert parse(str(ir)) == ir
    assert serde.loads(serde.dumps(ir)) == ir
    assert "forbidden-operator" in {finding.code for finding in torch_ir.check_types(ir)}
    with pytest.raises(TorchIRError):
        torch_ir.denote_all(ir, {}, [tensor.numpy() for tensor in inputs(ir)])


COMMANDS = [
    ["run", "m.json", "--random"],
    ["run", "m.json", "--random", "--capture", "c.safetensors"],
    ["run", "m.json", "--random", "--reference"],
    ["profile", "m.json", "--random", "--repeat", "1"],
    ["validate", "m.json", "--random"],
    ["validate", "m.json", "--random", "--against", "eager"],
    *[["lower", "m.json", "--to", target] for target in ("aten", "core_aten", "edge")],
]
LOOKING = [
    ["opt", "m.json", "-o", "o.json"],
    ["check", "m.json"],
    ["check", "m.json", "--no-types"],
    ["info", "m.json"],
    ["show", "m.json"],
    ["plan", "m.json"],
    ["convert", "m.json", "m2.tir"],
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("op_type", CALLS)
def test_no_command_runs_it(file, op_type, place):
    serde.save(program(op_type, place, file), "m.json")
    for command in COMMANDS:
        result = CliRunner().invoke(main, command, prog_name="torch-ir")
        assert result.exit_code == 1, (command, result.output)
        if "--reference" not in command:
            text = " ".join(result.output.split())
            assert f"a program may not call {op_type}" in text, (command, text)
            assert f"--allow {op_type}" in text
    for command in LOOKING:
        result = CliRunner().invoke(main, command, prog_name="torch-ir")
        assert result.exit_code in (0, 1), (command, result.output)
        assert "Traceback" not in result.output
    assert SECRET.hex().encode() not in Path("o.json").read_bytes()


def test_the_error_shows_the_line_and_what_widens_it(file):
    ir = program("aten.from_file.default", "graph", file)
    with pytest.raises(CompileError) as raised:
        torch_ir.compile_graph(ir)
    text = str(raised.value)
    assert "rule 2" in text
    assert "%f: u8[64] = aten.from_file.default(" in text
    assert 'allow_operators("aten.from_file.default")' in text
    assert raised.value.node == "f"


def test_a_call_that_turns_checks_off_is_refused_and_others_are_not():
    text = """ir {{
      input %x: f32[4]
      input %n: i64[2]
      %y: f32[2] = aten.segment_reduce.default(%x, "sum", lengths=%n{more})
      return %y
    }}"""
    x, lengths = torch.arange(4.0), torch.tensor([1, 3])
    assert not parse(text.format(more="")).check()
    unsafe = parse(text.format(more=", unsafe=True"))
    assert [finding.code for finding in unsafe.check()] == ["forbidden-operator"]
    with pytest.raises(CompileError, match="rule 4"):
        torch_ir.compile_graph(unsafe).eval((x, lengths))


# -- what the caller allows -----------------------------------------------------------------------


@pytest.fixture
def readable(tmp_path):
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(range(64)))
    op_type = "aten.from_file.default"
    text = str(program(op_type, "graph", path)).replace("shared=True", "shared=False")
    return parse(text), op_type, 256 - torch.arange(64, dtype=torch.uint8)


def test_each_door_takes_an_allowance_for_one_call(readable):
    ir, op_type, wanted = readable
    x, allow = inputs(ir), (op_type,)
    assert torch.equal(torch_ir.compile_graph(ir, allow=allow).eval(x)[0], wanted)
    assert torch.equal(torch_ir.compile(ir, allow=allow)(*x)[0], wanted)
    assert torch.equal(IRExecutor(ir, {}, allow=allow).execute(x)[0], wanted)
    assert torch.equal(torch_ir.execute_ir(ir, x, {}, allow=allow)[0], wanted)
    assert torch_ir.validate(ir, {}, x, against=("eager",), allow=allow).is_valid
    exported = torch_ir.to_exported_program(ir, allow=allow)
    assert torch.equal(exported.module()(*x)[0], wanted)
    with pytest.raises(CompileError, match="may not call"):
        torch_ir.compile_graph(ir)  # what was compiled before is not handed out


def test_a_block_allows_what_is_made_in_it(readable):
    ir, _, wanted = readable
    with allow_operators("aten.*"):
        executor = IRExecutor(ir, {})
        graph = torch_ir.compile_graph(ir)
    assert torch.equal(executor.execute(inputs(ir))[0], wanted)
    assert torch.equal(graph.eval(inputs(ir))[0], wanted)


def test_the_command_line_allows_it(readable, tmp_path, monkeypatch):
    ir, op_type, _ = readable
    monkeypatch.chdir(tmp_path)
    serde.save(ir, "m.json")
    for command in (["run", "m.json", "--random"], ["profile", "m.json", "--random"]):
        result = CliRunner().invoke(main, [*command, "--allow", op_type], prog_name="torch-ir")
        assert result.exit_code == 0, result.output


def test_an_allowance_does_not_widen_folding(readable):
    ir, _, _ = readable
    with allow_operators("aten.*"):
        assert fold_constants(ir) == ir


@pytest.mark.parametrize(
    "call",
    [
        "aten.empty.memory_format([4])",
        "aten.rand.default([4])",
        "aten.empty_strided.default([4], [1])",
        'prims.empty_strided.default([4], [1], dtype=torch.float32, device=device("cpu"), '
        "requires_grad=False)",
    ],
)
def test_folding_keeps_what_is_not_the_same_again(call):
    ir = parse(f"""ir {{
      input %x: f32[4]
      %a: f32[4] = {call}
      %b: f32[4] = aten.neg.default(%a)
      %y: f32[4] = aten.add.Tensor(%x, %b)
      return %y
    }}""")
    assert fold_constants(ir) == ir


@pytest.mark.parametrize(
    ("call", "declared"),
    [
        ("aten.full.default([1000000000000], 1.0)", "f32[2]"),
        ("aten.arange.default(1000000000000)", "i64[2]"),
    ],
)
def test_folding_makes_nothing_that_is_larger_than_it_says(call, declared):
    ir = parse(f"""ir {{
      input %x: {declared}
      %a: {declared} = {call}
      %b: {declared} = aten.neg.default(%a)
      %y: {declared} = aten.add.Tensor(%x, %b)
      return %y
    }}""")
    assert fold_constants(ir) == ir


@pytest.mark.parametrize("between", ["", "  %v: f32[8] = aten.view.default(%f, size=[8])\n"])
def test_no_result_takes_the_place_of_a_file_that_is_mapped(tmp_path, between):
    path = tmp_path / "values"
    path.write_bytes(torch.arange(8.0).numpy().tobytes())
    ir = torch_ir.parse(f"""ir {{
  input %x: f32[8]
  %f: f32[8] = aten.from_file.default(filename={json.dumps(str(path))}, shared=True, size=8, \
dtype=torch.float32)
{between}  %a: f32[8] = aten.neg.default(%{"v" if between else "f"})
  %g: f32[8] = aten.add.Tensor(%a, %x)
  return %g
}}""")
    graph = torch_ir.compile_graph(ir, allow=("aten.from_file.default",))
    assert torch.equal(graph.eval((torch.ones(8),))[0], 1 - torch.arange(8.0))
    assert path.read_bytes() == torch.arange(8.0).numpy().tobytes()
    assert "a.add_(x)" in graph.source


def test_the_gate_costs_a_call_for_a_node():
    nodes = [f"%v{i + 1}: f32[2] = aten.add.Tensor(%v{i}, %v{i})" for i in range(50)]
    text = "\n".join(["ir {", "input %v0: f32[2]", *nodes, "return %v50", "}"])
    compile_graph(parse(text))
    ir = parse(text)
    called = Counter()

    def count(frame, event, _argument):
        if event == "call":
            called[frame.f_code.co_filename.rpartition("torch_ir/")[2]] += 1

    sys.setprofile(count)
    try:
        compile_graph(ir)
    finally:
        sys.setprofile(None)
    gate = ("ops/rules.py", "ir/check/operators.py", "infer/preconditions/table.py")
    assert sum(called[name] for name in gate) <= 1.2 * len(ir.nodes)
