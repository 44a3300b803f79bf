"""A backend with more than one fault, and faults that only a later call shows."""

import pytest
import torch

from torch_ir import DelegateBackend, compare, compile_graph, parse, validate
from torch_ir.backends import SUPPORTED
from torch_ir.ir.builder import subgraph

PROGRAM = parse("""ir {
  input %x: f32[3]
  %a: f32[3] = aten.exp.default(%x)
  %b: f32[3] = aten.neg.default(%a)
  %c: f32[3] = aten.sin.default(%b)
  return %c
}""")
INPUTS = (torch.ones(3),)
A, B, C = PROGRAM.nodes


class Faulty(DelegateBackend):
    """Runs a part node by node with torch; ``fault`` changes what a node gives in a call."""

    name = "faulty"

    def __init__(self, fault):
        self.fault = fault

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        graphs = [compile_graph(subgraph(ir, [node], node.outputs)) for node in ir.nodes]
        calls = [0]

        def run(value):
            calls[0] += 1
            made = {}
            for node, graph in zip(ir.nodes, graphs, strict=True):
                (value,) = graph.eval((value,))
                made[node.name] = value = self.fault(node.name, value, calls[0], len(graphs))
            return [made[name] for name in ir.output_names]

        return run


def found(fault):
    report = compare(PROGRAM, {}, INPUTS, run=Faulty(fault))
    return report, [(item.node, item.kind, item.region) for item in report.divergences]


def failing(*names):
    def fault(name, value, call, size):
        if name in names:
            raise RuntimeError(f"no kernel for {name}")
        return value

    return fault


def test_each_node_that_raises_is_named():
    report, faults = found(failing("a", "c"))
    assert faults == [("a", "error", ("a",)), ("c", "error", ("c",))]
    assert [item.reason for item in report.divergences] == [
        "RuntimeError: no kernel for a",
        "RuntimeError: no kernel for c",
    ]
    assert report.not_compared == {"a": "it raised", "c": "it raised"}


def test_a_node_that_raises_is_named_beside_one_that_is_wrong():
    raising = failing("c")

    def fault(name, value, call, size):
        return raising(name, value + (name == "a"), call, size)

    report, faults = found(fault)
    assert faults == [("a", "numeric", ("a",)), ("c", "error", ("c",))]
    assert report.not_compared == {"c": "it raised"}


def test_what_cannot_run_alone_is_no_fault_where_it_runs_with_a_neighbor():
    def fault(name, value, call, size):
        if size == 1 and name == "a":
            raise RuntimeError("too small")
        return value + (name == "c")

    report, faults = found(fault)
    assert faults == [("c", "numeric", ("c",))]
    assert report.not_compared == {"a": "alone it raised RuntimeError: too small"}

    def raising(name, value, call, size):
        return failing("c")(name, fault(name, value, call, size), call, size)

    report, faults = found(raising)
    assert faults == [("c", "error", ("c",))]


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_fault_of_a_second_call(nodes):
    wrong = {"a", "c"} if nodes == 3 else {"a"}
    program = PROGRAM if nodes == 3 else subgraph(PROGRAM, [A], A.outputs)

    def fault(name, value, call, size):
        return value + (call > 1 and name in wrong)

    report = compare(program, {}, INPUTS, run=Faulty(fault))
    assert [item.node for item in report.divergences] == sorted(wrong)
    assert all(item.reason.endswith("allowed, in a second call") for item in report.divergences)


def test_a_fault_of_a_second_call_is_found_in_a_run_too():
    used_up = Faulty(lambda name, value, call, size: value + (call > 1 and name == "b"))
    report = validate(PROGRAM, {}, INPUTS, backend=used_up)
    assert {item.node for item in report.divergences} == {"b"}
    assert report.divergences[0].reason.endswith("allowed, in a second call")
    right = Faulty(lambda name, value, call, size: value)
    assert validate(PROGRAM, {}, INPUTS, backend=right).verdict == "agree"


def test_a_fault_of_a_second_call_of_the_whole():
    def fault(name, value, call, size):
        if call > 1 and size == 3 and name == "c":
            raise RuntimeError("used up")
        return value

    report, faults = found(fault)
    assert faults == [("c", "error", ("a", "b", "c"))]
    assert report.first.reason == "RuntimeError: used up, in a second call"


def test_each_pair_that_only_together_is_wrong_is_named():
    ops = ["exp", "neg", "sin", "cos", "abs", "tanh"]
    lines = [f"%v{i + 1}: f32[3] = aten.{op}.default(%v{i})" for i, op in enumerate(ops)]
    program = parse("\n".join(["ir {", "input %v0: f32[3]", *lines, "return %v6", "}"]))

    class Fused(Faulty):
        def compile(self, ir, payload):
            names = [node.name for node in ir.nodes]
            pairs = [pair for pair in (("v1", "v2"), ("v4", "v5")) if {*pair} <= {*names}]
            plain = Faulty(lambda name, value, *_: value + any(name in p[1:] for p in pairs))
            return plain.compile(ir, payload)

    report = compare(program, {}, INPUTS, run=Fused(None))
    assert [item.region for item in report.divergences] == [("v1", "v2"), ("v4", "v5")]


def test_what_varies_within_its_bound_is_no_fault():
    _, faults = found(lambda name, value, call, size: value.nextafter(value + call))
    assert faults == []
