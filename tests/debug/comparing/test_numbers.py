"""Numbers that tensors hold, results that are not all used, and infinities of exact operators."""

import pytest
import torch

from torch_ir import (
    DelegateBackend,
    capture,
    compare,
    compile_graph,
    decompose,
    parse,
    validate,
)
from torch_ir.backends import SUPPORTED
from torch_ir.backends.delegate import sizes_of

SCALED = parse("""ir {
  symbol z0: ..
  input %x: f32[3]
  input %s: f32[]
  item: aten.item.default(%s) -> z0
  %a: f32[3] = aten.mul.Tensor(%x, other=`z0`)
  %b: f32[3] = aten.exp.default(%a)
  return %b
}""")
CHOSEN = parse("""ir {
  symbol u0: 0..6
  input %x: f32[2, 3]
  %m: b8[2, 3] = aten.gt.Scalar(%x, other=0)
  %i: f32[u0] = aten.index.Tensor(%x, [%m])
  few: aten._assert_scalar.default(`u0 <= 6`, "too many")
  %a: f32[u0] = aten.exp.default(%i)
  %z: f32[u0] = aten.new_zeros.default(%x, size=[`u0`], pin_memory=False)
  %b: f32[u0] = aten.add.Tensor(%a, %z)
  return %b
}""")
_NORM = "aten._native_batch_norm_legit_functional.default"
STATISTICS = parse(f"""ir {{
  input %x: f32[4, 2]
  input %m: f32[2]
  input %v: f32[2]
  %n.0: f32[4, 2], %n.3: f32[2], %n.4: f32[2] = {_NORM}(%x, None, None, %m, %v, True, 0.1, 1e-05)
  return %n.0, %n.3, %n.4
}}""")
X = torch.tensor([[1.0, -2.0, 3.0], [0.5, -1.0, 2.0]])
PROGRAMS = {
    "a number of a tensor": (SCALED, (X[0], torch.tensor(1.25))),
    "a size that data decides": (CHOSEN, (X,)),
    "results that are not all there": (
        STATISTICS,
        (X.reshape(3, 2)[[0, 1, 2, 0]], X[0, :2], X[1, ::2]),
    ),
}


class Whole(DelegateBackend):
    """Takes all that there is; what the named nodes make is off by 1."""

    name = "whole"

    def __init__(self, *wrong):
        self.wrong = set(wrong)

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        names = [str(size) for size in sizes_of(ir)]
        graph = compile_graph(ir, {})
        last = {meta.name for node in ir.nodes if node.name in self.wrong for meta in node.outputs}

        def run(*given):
            tensors, numbers = given[: len(ir.graph_inputs)], given[len(ir.graph_inputs) :]
            made = graph.run(tensors, dict(zip(names, numbers, strict=True)))[0]
            pairs = zip(ir.output_names, made, strict=True)
            return [t + 1 if name in last else t for name, t in pairs]

        return run


def readers(ir, inputs):
    table = capture(compile_graph(ir, {}), inputs)
    return ["aten", "eager", "reference", Whole(), decompose(ir), table]


@pytest.mark.parametrize("against", ["reference", "eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_reader_of_a_right_program_agrees(name, against):
    ir, inputs = PROGRAMS[name]
    for run in readers(ir, inputs):
        report = compare(ir, {}, inputs, run=run, against=against)
        assert report.verdict == "agree", (run, report)
    for mode in ("isolated", "accumulated"):
        assert validate(ir, {}, inputs, backend=Whole(), mode=mode).verdict == "agree"


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("a number of a tensor", "a"),
        ("a number of a tensor", "b"),
        ("a size that data decides", "a"),
        ("a size that data decides", "b"),
        ("results that are not all there", "n"),
    ],
)
def test_a_wrong_node_behind_it_is_found(name, node, tmp_path):
    ir, inputs = PROGRAMS[name]
    report = compare(ir, {}, inputs, run=Whole(node), against="reference", repro=tmp_path)
    assert report.verdict == "disagree"
    assert {found.node for found in report.divergences} == {node}
    assert (tmp_path / "program.tir").exists()
    report = validate(ir, {}, inputs, backend=Whole(node))
    assert {found.node for found in report.divergences} == {node}


@pytest.mark.parametrize("call", ["max.dim(%x, dim=0)", "cummax.default(%x, dim=0)"])
@pytest.mark.parametrize("against", ["reference", "eager"])
def test_nan_in_the_place_of_an_infinity_is_no_rounding_of_what_only_picks(call, against):
    shape = "[2, 2]" if "cummax" in call else "[2]"
    ir = parse(f"""ir {{
      input %x: f32[2, 2]
      %y.0: f32{shape}, %y.1: i64{shape} = aten.{call}
      return %y.0, %y.1
    }}""")

    class Wrong(Whole):
        def compile(self, ir, payload):
            graph = compile_graph(ir, {})

            def run(x):
                values, *rest = graph.eval([x])
                return [torch.where(values.isinf(), torch.nan, values), *rest]

            return run

    inputs = (torch.tensor([[torch.inf, 1.0], [0.0, 2.0]]),)
    assert compare(ir, {}, inputs, run=Wrong(), against=against).verdict == "disagree"
    assert compare(ir, {}, inputs, run=Whole(), against=against).verdict == "agree"
    assert validate(ir, {}, inputs, backend=Wrong()).verdict == "disagree"
