"""support: what of a program a backend runs, by name and by file, and what goes wrong."""

import pytest

from torch_ir.backends import register_backend, unregister_backend

BACKEND = """
from torch_ir.backends import SUPPORTED, DelegateBackend, Support

class Relu(DelegateBackend):
    name = "relu_only"

    def supports(self, node, ir):
        is_relu = node.op_type == "aten.relu.default"
        return SUPPORTED if is_relu else Support.refused("it has no kernel")

    def compile(self, ir, payload):
        raise AssertionError("nothing is compiled for a report")

number = 3
"""

REPORT = """\
Net on relu_only: 1 of 2 nodes in 1 subgraph, 14% of 56 FLOPs

not supported
      1  aten.linear.default
         it has no kernel
         first at net.py:7 in fc (Linear): y = self.fc(x)

supported
      1  aten.relu.default
"""


@pytest.fixture(autouse=True)
def backend_file(place):
    (place / "relu_backend.py").write_text(BACKEND)


def test_a_backend_in_a_file(run, ir):
    result = run("support", "m.json", "--backend", "relu_backend.py:Relu")
    assert (result.code, result.err, result.out) == (0, "", REPORT)


def test_a_registered_backend(run, ir, place):
    namespace = {}
    exec(BACKEND, namespace)
    register_backend("relu_only")(namespace["Relu"]())
    try:
        assert run("support", "m.tir", "--backend", "relu_only").out == REPORT
    finally:
        unregister_backend("relu_only")


def test_json_has_everything(run, ir):
    result = run("support", "m.json", "--backend", "relu_backend.py:Relu", "--json")
    assert result.json == {
        "model": "Net",
        "backend": "relu_only",
        "nodes": 2,
        "supported_nodes": 1,
        "flops": 56,
        "supported_flops": 8,
        "unknown_flops": 0,
        "subgraphs": [1],
        "operators": [
            {
                "operator": "aten.linear.default",
                "supported": False,
                "reason": "it has no kernel",
                "count": 1,
                "nodes": ["linear"],
                "flops": 48,
                "unknown_flops": 0,
                "location": "net.py:7 in fc (Linear): y = self.fc(x)",
            },
            {
                "operator": "aten.relu.default",
                "supported": True,
                "reason": "",
                "count": 1,
                "nodes": ["relu"],
                "flops": 8,
                "unknown_flops": 0,
                "location": "",
            },
        ],
    }


def test_small_subgraphs(run, ir):
    options = ("--backend", "relu_backend.py:Relu", "--min-nodes", 2)
    result = run("support", "m.json", *options)
    assert "its subgraph has 1 node, fewer than 2" in result.out
    assert result.out.startswith("Net on relu_only: 0 of 2 nodes in 0 subgraphs, 0% of 56 FLOPs")


def test_symbolic_sizes_have_no_count(run, place):
    (place / "dynamic.ir").write_text("""ir "Dynamic" {
  symbol s0: 2..8
  input %x: f32[s0]
  %y: f32[s0] = aten.relu.default(%x)
  return %y
}
""")
    result = run("support", "dynamic.ir", "--backend", "relu_backend.py:Relu")
    assert result.out.splitlines()[0] == (
        "Dynamic on relu_only: 1 of 1 node in 1 subgraph, 0% of 0 FLOPs (and 1 node without a "
        "count)"
    )


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        (
            "relu_onyl",
            "error: there is no backend 'relu_onyl'\nKnown backends: ",
        ),
        (
            "aten",
            "error: the backend 'aten' takes whole programs: it does not say which operators it "
            "supports\nA backend that does is an instance of torch_ir.backends.DelegateBackend.\n",
        ),
        (
            "relu_backend.py:number",
            "error: relu_backend.py:number: 3 is no backend\nA backend is a name, an instance or ",
        ),
        ("relu_backend.py:Rleu", "error: relu_backend.py:Rleu: there is no 'Rleu'\nDid you mean "),
        ("nowhere.py:Relu", "error: there is no file nowhere.py\n"),
    ],
)
def test_what_is_no_backend(run, ir, backend, message):
    result = run("support", "m.json", "--backend", backend)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(message)


def test_a_backend_must_be_named(run, ir):
    result = run("support", "m.json")
    assert (result.code, result.err) == (
        2,
        "Usage: torch-ir support [OPTIONS] FILE\nTry 'torch-ir support --help' for help.\n\n"
        "Error: Missing option '--backend'.\n",
    )
    assert run("support", "m.json", "--backend", ":x").code == 2
