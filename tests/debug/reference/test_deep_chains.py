"""Chains with many products in a row, of which worst cases say nothing."""

import numpy as np
import pytest
import torch
from torch import nn

from torch_ir import decompose, extract_ir, functionalize
from torch_ir.debug.judging import trial
from torch_ir.debug.judging.trial import ProgramJudge, judge_of
from torch_ir.debug.reference.denotation import evaluate, meaning_of
from torch_ir.executor import IRExecutor
from torch_ir.ir.builder import subgraph
from torch_ir.semantics import chain


class Layers(nn.Module):
    """Layers of products, of which the first and the last are shown."""

    def __init__(self, count, head):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(count))
        self.head = head

    def forward(self, x):
        first = x = self.layers[0](x).tanh()
        for layer in self.layers[1:]:
            x = x + layer(x).tanh()
        return first, self.head(x)


def judged(count, head, dtype=torch.float32):
    torch.manual_seed(0)
    x, model = torch.randn(3, 16).to(dtype), Layers(count, head).to(dtype).eval()
    model.requires_grad_(False)
    ir = functionalize(extract_ir(model, (x,)))
    names = ir.weight_name_mapping
    values = {name: model.state_dict()[key] for name, key in names.items()}
    values[ir.input_names[0]] = x
    results = [*IRExecutor(ir, model.state_dict())(x)]
    body = subgraph(ir, ir.nodes, ir.graph_outputs)
    return body, values, results


@pytest.fixture
def carried(monkeypatch):
    """How often errors were carried through a node by their worst case."""
    calls = []
    known = chain.carried
    monkeypatch.setattr(chain, "carried", lambda *args: calls.append(1) or known(*args))
    return calls


@pytest.mark.parametrize("count", [4, 20])
def test_errors_of_deep_chains_are_found_and_worst_cases_left_out(count, carried):
    body, values, results = judged(count, nn.LayerNorm(16))
    judge = judge_of(body)
    known = {**values, **dict(zip(body.output_names, results, strict=True))}
    assert not judge(known, results, known, {}).reason
    assert len(carried) <= 4 or count == 4
    for place in range(2):
        wrong = [result.clone() for result in results]
        wrong[place][1, 5] += 1e-3
        assert judge(known, wrong, known, {}).reason
        swapped = [result.flip(-1) if i == place else result for i, result in enumerate(results)]
        assert judge(known, swapped, known, {}).reason


def test_what_is_not_deep_keeps_its_worst_case():
    bounds = []
    for count in (4, 20):
        body, values, _ = judged(count, nn.Identity())
        first = body.output_names[0]
        call = body.nodes[0].replace(inputs=body.graph_inputs, outputs=body.graph_outputs)
        given = [values[meta.name] for meta in body.graph_inputs]
        evaluated = evaluate(meaning_of(body), call, given, {})
        bounds.append(evaluated.bounds[first])
        assert set(body.output_names) <= evaluated.made.keys()
    np.testing.assert_array_equal(*bounds)


def test_choices_of_deep_chains_keep_their_worst_case(carried):
    class Most(nn.Module):
        def forward(self, x):
            return x.argmax(-1)

    body, values, results = judged(20, Most())
    known = {**values, **dict(zip(body.output_names, results, strict=True))}
    judge_of(body)(known, results, known, {})
    assert len(carried) > 20


def test_deep_chains_of_float64_keep_their_worst_case(carried):
    body, values, results = judged(20, nn.LayerNorm(16), torch.float64)
    known = {**values, **dict(zip(body.output_names, results, strict=True))}
    assert not judge_of(body)(known, results, known, {}).reason
    assert len(carried) > 20


def test_a_result_of_another_name_is_judged_by_the_program(monkeypatch):
    evaluated = []
    known_evaluate = trial.evaluate
    monkeypatch.setattr(trial, "evaluate", lambda *a: evaluated.append(1) or known_evaluate(*a))
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8)).requires_grad_(False)
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    ir = functionalize(extract_ir(net, (x,)))
    split = decompose(ir)
    assert split.output_names != ir.output_names
    judge = ProgramJudge(ir)
    result = net(x)
    for program in (ir, split):
        body = subgraph(program, program.nodes, program.graph_outputs)
        values = {
            name: net.state_dict()[program.weight_name_mapping[name]]
            for name in body.input_names
            if name in program.weight_name_mapping
        }
        known = {**values, ir.input_names[0]: x, body.output_names[0]: result}
        assert not judge.judge_of(body)(known, [result], known, {}).reason
        wrong = result.clone()
        wrong[0, 0] += 1e-3
        assert judge.judge_of(body)(known, [wrong], known, {}).reason
    assert len(evaluated) == 1
