"""``torch-ir compare`` and ``torch-ir cut``: what is printed, and the exit status."""

import json

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


def test_parts_are_cut_and_their_inputs_recorded(run, place):
    (place / "p.ir").write_text(PROGRAM)
    made = run("cut", "p.ir", "--inputs", "a", "--outputs", "b")
    assert made.code == 0
    assert [node.name for node in parse(made.out).nodes] == ["b"]
    made = run("cut", "p.ir", "--nodes", "b", "--record", "in.npz", "--random", "-o", "q.tir")
    assert made.code == 0
    assert (place / "in.npz").exists()
    assert run("compare", "q.tir", "--inputs", "in.npz").code == 0
    assert run("cut", "p.ir").code == 2
    assert run("cut", "p.ir", "--outputs", "c").code == 1
    assert run("fingerprint", "p.ir").out.split()[1] == "p.ir"
    assert run("cost", "p.ir", "--json").code == 0
    assert run("diff", "p.ir", "q.tir", "--stat").code == 1
