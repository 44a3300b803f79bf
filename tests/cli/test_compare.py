"""``torch-ir compare`` and ``torch-ir cut``: what is printed, and the exit status."""

import json
import os
import sys

from torch_ir import parse

PROGRAM = """ir {
  input %x: f32[3]
  %a: f32[3] = aten.exp.default(%x)
  %b: f32[3] = aten.neg.default(%a)  # net.py:8: b = -a
  return %b
}"""
DEVICE = """
from torch_ir import DelegateBackend
from torch_ir.backends import SUPPORTED

class Device(DelegateBackend):
    name = "device"
    shift = 1
    def supports(self, node, ir):
        return SUPPORTED
    def compile(self, ir, payload):
        from torch_ir import compile_graph
        graph = compile_graph(ir)
        wrong = any(node.op_type == "aten.neg.default" for node in ir.nodes)
        return lambda *args: [t + self.shift * wrong for t in graph.eval(args)]

class Right(Device):
    shift = 0
"""


def test_a_device_in_a_file_is_judged_with_its_exit_status(run, place):
    (place / "p.ir").write_text(PROGRAM)
    (place / "device.py").write_text(DEVICE)
    found = run("compare", "p.ir", "--run", "device.py:Device", "--random")
    assert found.code == 1
    assert "node 'b' (aten.neg.default): numeric of %b\n      at net.py:8: b = -a\n" in found.out
    told = run("compare", "p.ir", "--run", "device.py:Device", "--random", "--json")
    assert json.loads(told.out)["divergences"][0]["node"] == "b"
    right = run("compare", "p.ir", "--run", "device.py:Right", "--random", "--samples", "2")
    assert right.code == 0
    assert right.out.startswith("device agrees with reference on the program: 2 compared")
    assert run("compare", "p.ir", "--run", "device.py:Nope", "--random").code == 1
    assert run("compare", "p.ir", "--mode", "other", "--random").code == 2


def test_a_program_as_text_or_from_a_pipe_is_compared(run, place):
    (place / "p.ir").write_text(PROGRAM)
    read, write = os.pipe()
    os.write(write, PROGRAM.replace("aten.neg", "aten.abs").encode())
    os.close(write)
    alike = run("compare", "p.ir", "--run", "p.ir", "--random")
    found = run("compare", "p.ir", "--run", f"/dev/fd/{read}", "--random")
    os.close(read)
    assert (alike.code, found.code) == (0, 1)
    assert f"/dev/fd/{read} DISAGREES with reference on the program" in found.out
    assert "node 'b' (aten.neg.default)" in found.out


def test_parts_are_cut_and_their_inputs_recorded(run, place):
    (place / "p.ir").write_text(PROGRAM)
    made = run("cut", "p.ir", "--inputs", "a", "--outputs", "b")
    assert made.code == 0
    assert [node.name for node in parse(made.out).nodes] == ["b"]
    made = run("cut", "p.ir", "--nodes", "b", "--record", "in.npz", "--random", "-o", "q.tir")
    assert made.code == 0
    assert (place / "in.npz").exists()
    assert run("compare", "q.tir", "--inputs", "in.npz").code == 0
    values = ["--inputs", "a", "--record", "a.npz", "--random"]
    made = run("cut", "p.ir", *values, "-o", "q.tir")
    assert made.code == 0
    assert run("compare", "q.tir", "--inputs", "a.npz").code == 0
    assert run("cut", "p.ir").code == 2
    assert run("cut", "p.ir", "--outputs", "c").code == 1
    assert run("fingerprint", "p.ir").out.split()[1] == "p.ir"
    assert run("cost", "p.ir", "--json").code == 0
    assert run("diff", "p.ir", "q.tir", "--stat").code == 1


def test_a_failing_program_is_reduced_to_a_script_that_fails_alone(run, place):
    import subprocess
    import sys

    (place / "p.ir").write_text(PROGRAM)
    (place / "device.py").write_text(DEVICE)
    found = run("reduce", "p.ir", "--random", "--run", "device.py:Device", "-o", "small")
    assert found.code == 0, found.err
    assert found.out.splitlines()[1] == "  numeric of aten.neg.default"
    environment = {"PYTHONPATH": ":".join(sys.path)}
    script = [sys.executable, str(place / "small" / "repro.py")]
    assert (
        subprocess.run(script, env=environment, check=False, capture_output=True).returncode == 1
    )
    (place / "t.py").write_text(
        "import sys\nfrom torch_ir import IR\nir = IR.load(sys.argv[1])\n"
        "sys.exit(3 * any('neg' in n.op_type for n in ir.nodes))\n"
    )
    test = f"{sys.executable} {place / 't.py'}"
    found = run("reduce", "p.ir", "--random", "--test", test, "-o", "less", "--json")
    assert json.loads(found.out)["failure"] == "exit status 3"
    assert json.loads(found.out)["nodes"] == 1
    assert run("reduce", "p.ir", "--random", "-o", "x").code == 2
    assert run("reduce", "p.ir", "--random", "--test", "true", "-o", "x").code == 1


def test_a_test_may_print_what_is_no_text(run, place):
    (place / "p.ir").write_text(PROGRAM)
    (place / "test.py").write_text(
        "import os; os.write(1, b'\\xff\\xfe boom'); raise SystemExit(1)"
    )
    test = f"{sys.executable} test.py"
    found = run("reduce", "p.ir", "--random", "--test", test, "--match", "boom", "-o", "made")
    assert found.code == 0, found.err
    assert "match of boom" in found.out


def test_a_pass_of_a_file_is_watched_and_searched_for(run, place):
    (place / "p.ir").write_text(PROGRAM)
    (place / "mine.py").write_text(
        "from torch_ir.passes import Pass, PassResult\n"
        "class Mine(Pass):\n"
        "    name = 'mine'\n"
        "    def call(self, ir):\n"
        "        n = ir.nodes[0].replace(op_type='aten.log.default')\n"
        "        return PassResult(ir.replace(nodes=(n, *ir.nodes[1:])), True)\n"
    )
    passes = "cse,mine.py:Mine,dce"
    found = run("bisect", "p.ir", "-p", passes, "--random")
    assert found.code == 1
    assert found.out.startswith("pass 2 of 3, mine, breaks the program\n")
    assert run("bisect", "p.ir", "-p", "cse,dce", "--random", "--json").code == 0
    watched = run("opt", "p.ir", "-p", passes, "--validate", "each", "--random", "-o", "out.tir")
    assert watched.code == 1
    assert "mine made a program that computes something else" in watched.err
    assert not (place / "out.tir").exists()
    changed = run("opt", "p.ir", "-p", passes, "--print-changed", "-o", "out.ir")
    assert "# mine\n1 replaced\n- %a: f32[3] = aten.exp.default(%x)" in changed.out
