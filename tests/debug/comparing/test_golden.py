"""Captured values on either side of a comparison: all are used, and what they lack is told."""

import random
from dataclasses import replace

import pytest
import torch
from torch import nn

from torch_ir import (
    DelegateBackend,
    capture,
    compare,
    compile_graph,
    decompose,
    extract_ir,
    parse,
)
from torch_ir import compile as compile_for
from torch_ir.backends import SUPPORTED, Support
from torch_ir.errors import InvalidIRError

RELU = """ir {
  input %x: f32[2]
  %relu: f32[2] = aten.relu.default(%x)
  return %relu
}
"""


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x):
        h = torch.relu(self.a(x)) + x
        left, right = self.norm(h).chunk(2, -1)
        h = torch.softmax(self.b(torch.cat([right, left * 3], -1)), -1)
        return torch.sin(h) * x, h.sum(-1)


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    model, inputs = Net().eval(), (torch.randn(4, 6),)
    ir, weights = extract_ir(model, inputs), dict(model.state_dict())
    return ir, weights, inputs, capture(compile_graph(ir, weights), inputs)


class Whole(DelegateBackend):
    """Takes every node, and runs what it takes with torch."""

    name = "whole"

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        weights = {name: payload[name] for name in ir.input_names if name in payload}

        def run(*tensors):
            given = iter(tensors)
            values = [weights[n] if n in weights else next(given) for n in ir.input_names]
            return compile_graph(ir, {}).eval(values)

        return run


class TakesNothing(Whole):
    """Leaves every node to torch."""

    def supports(self, node, ir):
        return Support.refused("not mine")


class EveryOther(Whole):
    """Leaves every other node to torch."""

    name = "every other"

    def supports(self, node, ir):
        is_taken = [n.name for n in ir.nodes].index(node.name) % 2
        return SUPPORTED if is_taken else Support.refused("not mine")


def changed(captured, *names):
    values = dict(captured.values)
    return replace(captured, values=values | {name: values[name] + 0.5 for name in names})


def without(captured, *names):
    kept = {name: value for name, value in captured.values.items() if name not in names}
    return replace(captured, values=kept)


SIDES = ["run", "eager", "reference", Whole(), EveryOther(), "ir"]


@pytest.mark.parametrize("side", SIDES)
def test_a_wrong_value_is_found_alone_and_those_left_out_are_told(net, side):
    ir, weights, inputs, captured = net
    made = [meta.name for node in ir.nodes for meta in node.outputs]
    wrong, *missing = random.Random(SIDES.index(side)).sample(made, 4)
    node = ir.producers[wrong].name
    untold = {ir.producers[name].name for name in missing} | {node}
    for golden, blamed, left in (
        (captured, [], set()),
        (changed(captured, wrong), [node], set()),
        (without(captured, wrong, *missing), [], untold),
        (without(changed(captured, wrong), *missing), [node], untold - {node}),
    ):
        judged = decompose(ir) if side == "ir" else side
        sides = {"run": golden} if side == "run" else {"run": judged, "against": golden}
        report = compare(ir, weights, inputs, **sides)
        assert list(dict.fromkeys(d.node for d in report.divergences)) == blamed
        unseen = set(report.not_compared)
        assert unseen == left or (side == "ir" and unseen <= left)  # regions cover them


@pytest.mark.parametrize("reader", ["aten", "eager", "reference", Whole()])
def test_a_whole_run_is_compared_with_what_was_captured(net, reader):
    ir, weights, inputs, captured = net
    last = ir.output_names[0]
    sides = {"run": reader, "mode": "accumulated"}
    outputs = [name for name in captured.values if name not in ir.output_names]
    alone = without(captured, *outputs)
    for golden in (captured, alone):
        assert compare(ir, weights, inputs, against=golden, **sides).verdict == "agree"
        found = compare(ir, weights, inputs, against=changed(golden, last), **sides)
        assert [d.node for d in found.divergences] == [ir.producers[last].name]
    nothing = compare(ir, weights, inputs, against=without(captured, *captured.values), **sides)
    assert nothing.verdict == "not compared"
    assert set(nothing.not_compared.values()) == {"nothing shows its values"}
    half = compare(ir, weights, inputs, against=without(alone, last), **sides)
    assert half.not_compared == {"sin": "nothing shows it", "mul_1": "nothing shows it"}


@pytest.mark.parametrize("side", ["run", "against"])
def test_captured_values_are_of_one_run_alone(net, side):
    ir, weights, inputs, captured = net
    other = (inputs[0] + 1,)
    with pytest.raises(InvalidIRError) as caught:
        compare(ir, weights, inputs, samples=[other], **{side: captured})
    assert str(caught.value) == (
        "captured values are of one run, so there are none for other samples\n"
        "Leave the samples out, or compare with something that runs."
    )
    with pytest.raises(InvalidIRError) as caught:
        compare(ir, weights, other, **{side: captured})
    assert str(caught.value) == (
        "golden was captured on another input %x: 24 of 24 values differ by up to 1\n"
        "Give the inputs of that run, or none: those captured are then taken."
    )


@pytest.mark.parametrize("side", ["run", "against"])
def test_captured_values_of_another_program_are_refused(net, side):
    ir, weights, inputs, captured = net
    made = [meta.name for node in ir.nodes for meta in node.outputs]
    advice = "Capture a run of this program: torch-ir run FILE --capture PATH."
    told = "golden has no value that a node of the program makes; it has"
    renamed = {f"{name}_of_mine": captured.values[name] for name in made}
    first = [f"{name}_of_mine" for name in made[:4]]
    for values, message in (
        (
            renamed,
            f"{told} {', '.join(first)}, ...",
        ),
        ({"!": inputs[0]}, f"{told} !"),
    ):
        golden = replace(captured, values=values)
        with pytest.raises(InvalidIRError) as caught:
            compare(ir, weights, inputs, **{side: golden})
        assert caught.value.message == message
        assert caught.value.remedy.startswith(advice)
    assert caught.value.remedy == advice


def test_the_closest_captured_name_is_told():
    ir = parse(RELU)
    golden = capture(compile_graph(ir, {}), [torch.ones(2)])
    renamed = replace(golden, values={"relu_1": torch.ones(2)})
    with pytest.raises(InvalidIRError) as caught:
        compare(ir, {}, [torch.ones(2)], run=renamed)
    assert str(caught.value) == (
        "golden has no value that a node of the program makes; it has relu_1\n"
        "Capture a run of this program: torch-ir run FILE --capture PATH. "
        "For %relu: did you mean relu_1?"
    )


def test_a_runner_without_delegates_is_refused():
    ir = parse(RELU)
    with pytest.raises(InvalidIRError) as caught:
        compare(ir, {}, [torch.ones(2)], run=compile_for(ir, {}, backend=TakesNothing()))
    assert str(caught.value) == (
        "the runner has no delegates: torch runs the whole program\n"
        "torch_ir.backends.support(ir, backend) says why it takes nothing. To compare the kernels "
        "of torch, give 'aten'."
    )
