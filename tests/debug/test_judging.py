"""A backend is judged delegate by delegate, and the node at which it goes wrong is named."""

import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import torch_ir
from small_models import CASES
from torch_ir import IRExecutor, compile_graph, extract_ir, parse, validate
from torch_ir.backends import (
    SUPPORTED,
    DelegateBackend,
    Support,
    register_backend,
    unregister_backend,
)
from torch_ir.backends.delegate import body_of
from torch_ir.debug.judging import trial
from torch_ir.debug.judging.backends import OpaqueRunner
from torch_ir.debug.judging.trial import ProgramJudge, judge_of
from torch_ir.errors import InvalidIRError
from torch_ir.passes import decompose, functionalize
from torch_ir.semantics import has_denotation
from torch_ir.semantics.tolerance import kind_of


class Faulty(DelegateBackend):
    """Runs what it takes with torch, node by node, and changes what a node makes.

    Args:
        node: The node whose values are changed; None for every result of a body.
        change: Makes another value of one.
        fused: Whether it does so only in a body of several nodes.
        refused: How many nodes a body has that is not compiled.
        only: The operators that it takes; None for all.
    """

    name = "faulty"

    def __init__(self, node=None, change=None, fused=False, refused=(), name="faulty", only=None):
        self.node, self.change, self.fused, self.refused = node, change, fused, refused
        self.name, self.only = name, only
        self.compiled = []

    def supports(self, node, ir):
        taken = self.only is None or node.op_type in self.only
        return SUPPORTED if taken else Support.refused("another backend has it")

    def compile(self, ir, payload):
        if len(ir.nodes) in self.refused:
            raise ValueError("no such body")
        self.compiled.append(len(ir.nodes))
        graph = compile_graph(ir.replace(signature=None))
        sizes = [dim.text for dim in _symbols(ir)]

        def run(*given):
            values = iter(given)
            tensors = [
                payload[m.name] if m.name in payload else next(values) for m in ir.graph_inputs
            ]
            if self.fused and len(ir.nodes) == 1:
                return graph.run(tensors, dict(zip(sizes, values, strict=True)))[0]
            return self._changed(ir, tensors, dict(zip(sizes, values, strict=True)))

        return run

    def _changed(self, ir, tensors, symbols):
        known = dict(zip(ir.input_names, tensors, strict=True))
        for node in ir.nodes:
            part = torch_ir.ir.builder.subgraph(ir, [node], node.outputs)
            given = [known[meta.name] for meta in part.graph_inputs]
            made = compile_graph(part).run(given, symbols)[0]
            is_wrong = self.change is not None and self.node in (node.name, None)
            known.update(
                (meta.name, self.change(tensor) if is_wrong else tensor)
                for meta, tensor in zip(node.outputs, made, strict=True)
            )
        return [known[meta.name] for meta in ir.graph_outputs]


def _symbols(ir):
    from torch_ir.ir import ValueLeaf
    from torch_ir.ir.tree import leaves

    found = leaves(ir.signature.inputs) if ir.signature is not None else ()
    return [leaf.value for leaf in found if isinstance(leaf, ValueLeaf)]


def wrong(tensor):
    """A value with one element that is off."""
    if not tensor.numel():
        return tensor
    made = tensor.clone(memory_format=torch.contiguous_format)
    first = made.view(-1)[0]
    made.view(-1)[0] = ~first if made.dtype == torch.bool else first + 1 + abs(first)
    return made


def one_unit_off(tensor):
    if not tensor.is_floating_point():
        return tensor
    return torch.nextafter(tensor, torch.full_like(tensor, float("inf")))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x):
        y = self.second(torch.tanh(self.first(x)))
        return self.norm(x + y), y.sum()


@pytest.fixture(scope="module")
def block():
    torch.manual_seed(0)
    model, x = Block().eval(), torch.randn(3, 6)
    return functionalize(extract_ir(model, (x,))), model.state_dict(), (x,)


@pytest.mark.parametrize("mode", ["isolated", "accumulated"])
@pytest.mark.parametrize("fused", [False, True])
def test_each_node_wrong_in_turn(block, mode, fused):
    ir, weights, inputs = block
    for node in ir.nodes:
        report = validate(ir, weights, inputs, backend=Faulty(node.name, wrong, fused), mode=mode)
        assert report.verdict == "disagree"
        assert {d.node for d in report.divergences} == {node.name}
        assert report.first.location == str(node.location)
        assert report.first.delegate == "faulty_0"
        assert "in the delegate 'faulty_0'" in str(report)


@pytest.mark.parametrize("mode", ["isolated", "accumulated"])
@pytest.mark.parametrize("change", [None, one_unit_off])
def test_a_right_backend_agrees(block, mode, change):
    ir, weights, inputs = block
    report = validate(ir, weights, inputs, backend=Faulty(None, change), mode=mode)
    assert report.verdict == "agree", str(report)
    assert report.run_by_torch == {}


# -- a backend that is one function of a program --------------------------------------------------


def another_shape(tensor):
    return tensor.unsqueeze(0)


def another_type(tensor):
    return tensor.to(torch.float32 if tensor.dtype == torch.float64 else torch.float64)


def no_number(tensor):
    if not tensor.is_floating_point():
        return wrong(tensor)
    return torch.full_like(tensor, float("nan"))


def computed(ir, tensors, change=None, at=None, beside=None):
    """The results of a program on torch; a node that stands beside another goes wrong."""
    known = dict(zip(ir.input_names, tensors, strict=True))
    is_wrong = beside is None or beside in ir.by_name
    for node in ir.nodes:
        part = torch_ir.ir.builder.subgraph(ir, [node], node.outputs)
        made = compile_graph(part).run([known[meta.name] for meta in part.graph_inputs], {})[0]
        turn = change if is_wrong and at in (None, node.name) else None
        if turn is one_unit_off and not _rounds(node.op_type):
            turn = None
        for meta, tensor in zip(node.outputs, made, strict=True):
            known[meta.name] = tensor if turn is None else turn(tensor)
    return tuple([known[meta.name] for meta in ir.graph_outputs])


def _rounds(op_type):
    return has_denotation(op_type) and kind_of(op_type) != "exact"


@pytest.fixture
def opaque():
    """Registers a backend that takes programs, and says nothing of their nodes."""
    fault = {}

    @register_backend("opaque")
    def make(ir, weights, options):
        return lambda *tensors: computed(ir, tensors, **fault)

    yield fault
    unregister_backend("opaque")


MODELS = sorted(set(CASES) - {"bert", "llama", "scopes", "recurrent"})


def functional(name):
    case = CASES[name]
    args, kwargs = case.inputs()
    model = case.model()
    ir = functionalize(extract_ir(model, args, kwargs=kwargs))
    return ir, (model.state_dict(), args, kwargs)


@pytest.mark.parametrize("name", MODELS)
def test_faults_of_an_opaque_backend(name, opaque):
    ir, given = functional(name)
    opaque.update(change=one_unit_off)
    assert validate(ir, *given, backend="opaque").verdict == "agree"
    draw = random.Random(name)
    nodes = [node for node in ir.nodes if node.outputs]
    for change in (wrong, another_shape, another_type, no_number):
        node = draw.choice(nodes)
        opaque.update(change=change, at=node.name, beside=None)
        report = validate(ir, *given, backend="opaque")
        assert report.verdict == "disagree"
        assert report.first.node == node.name, (change.__name__, str(report))
        assert report.first.delegate == "opaque_0"


@pytest.mark.parametrize("mode", ["isolated", "accumulated"])
@pytest.mark.parametrize("name", ["conv", "casts", "dropping", "scatter", "spectrum"])
def test_a_pair_that_an_opaque_backend_fuses_wrongly(name, mode, opaque):
    ir, given = functional(name)
    pairs = [
        (node, user)
        for node in ir.nodes
        for user in ir.nodes
        if {meta.name for meta in node.outputs} & {meta.name for meta in user.inputs}
    ]
    for node, user in random.Random(name).sample(pairs, 2):
        opaque.update(change=wrong, at=node.name, beside=user.name)
        report = validate(ir, *given, backend="opaque", mode=mode)
        assert report.first is not None
        assert report.first.node == node.name, str(report)
        assert report.first.location == str(node.location)


@pytest.mark.parametrize("mode", ["isolated", "accumulated"])
@pytest.mark.parametrize(
    "results", ["%y, %z", "%z, %y", "%y, %y", "%w, %z, %y", "%x, %v, %w", "%u, %y, @b"]
)
def test_results_of_a_delegate_that_share_memory(results, mode):
    ir = parse(f"""ir "Shared" {{
      weight @b: f32[3, 2]
      input %x: f32[2, 3]
      %u: f32[2, 3] = aten.t.default(@b)
      %v: f32[3, 2] = aten.t.default(%x)
      %y: f32[2, 3] = aten.exp.default(%x)
      %z: f32[6] = aten.view.default(%y, [6])
      %w: f32[6] = aten.sin.default(%z)
      return {results}
    }}""")
    weights = {"b": torch.randn(3, 2)}
    for backend in ("aten", "reference", Faulty()):
        report = validate(ir, weights, (torch.randn(2, 3),), backend=backend, mode=mode)
        assert report.verdict == "agree", (backend, str(report))
    report = validate(ir, weights, (torch.randn(2, 3),), backend=Faulty("y", wrong), mode=mode)
    assert report.verdict == "disagree"


def test_another_count_of_results(block):
    ir, weights, inputs = block

    class Dropping(Faulty):
        def compile(self, ir, payload):
            run = super().compile(ir, payload)
            return lambda *given: run(*given)[: len(ir.nodes)] if len(ir.nodes) < 3 else []

    for mode in ("isolated", "accumulated"):
        report = validate(ir, weights, inputs, backend=Dropping(), mode=mode)
        assert report.first.node == ir.nodes[2].name
        assert report.first.reason == "the backend gave 0 results in place of 1"


def test_a_backend_that_fails(block):
    ir, weights, inputs = block

    def fails(tensor):
        raise ZeroDivisionError("no luck")

    name = ir.nodes[3].name
    for mode in ("isolated", "accumulated"):
        report = validate(ir, weights, inputs, backend=Faulty(name, fails), mode=mode)
        assert report.first.node == name
        assert report.first.reason.startswith("the backend fails: ZeroDivisionError: no luck")


# -- what is given --------------------------------------------------------------------------------


def test_what_compile_returns(opaque):
    ir, (weights, args, kwargs) = functional("nested")
    for backend in ("aten", "reference"):
        run = torch_ir.compile(ir, weights, backend=backend)
        assert validate(ir, weights, args, kwargs, graph=run).verdict == "agree"
    register_backend("parts")(Faulty("sub", wrong, name="parts"))
    try:
        run = torch_ir.compile(ir, weights, backend="parts")
        report = validate(ir, weights, args, kwargs, graph=run)
    finally:
        unregister_backend("parts")
    assert (report.first.node, report.first.delegate) == ("sub", "parts_0")


def test_a_runner_that_shows_no_nodes(tmp_path):
    model, x = CASES["counting"].model(), torch.arange(20.0).view(5, 4)
    ir, weights = extract_ir(model, (x,)), model.state_dict()

    def run(x):
        return torch_ir.compile(ir, weights)(x)

    report = validate(ir, weights, (x,), graph=run)
    assert report.verdict == "not compared"
    assert report.not_compared["runner_0"].startswith("the runner does not show what it leaves in")
    run.buffers = {}
    assert validate(ir, weights, (x,), graph=run).verdict == "disagree"
    reference = torch_ir.compile(ir, weights, backend="reference")
    assert validate(ir, weights, (x,), graph=reference).verdict == "agree"
    report = validate(ir, weights, (x,), graph=lambda x: run(x) * 2)
    assert report.verdict == "disagree"
    assert report.first.delegate == "runner_0"
    with pytest.raises(InvalidIRError, match="repro= needs to know what made the runner"):
        validate(ir, weights, (x,), graph=run, repro=tmp_path)
    with pytest.raises(InvalidIRError, match=r"graph= takes .* got int"):
        validate(ir, weights, (x,), graph=3)


def test_several_backends(block):
    ir, weights, inputs = block
    last = next(node for node in ir.nodes if "layer_norm" in node.op_type)
    linear = Faulty(name="linear", only={"aten.linear.default"})
    for change in (None, wrong):
        rest = Faulty(last.name, change, name="rest")
        for mode in ("isolated", "accumulated"):
            report = validate(ir, weights, inputs, backend=[linear, rest], mode=mode)
            found = {(d.node, d.delegate[:4]) for d in report.divergences}
            assert found == (set() if change is None else {(last.name, "rest")})


@pytest.mark.parametrize("mode", ["isolated", "accumulated"])
def test_refused_prefixes(block, mode):
    ir, weights, inputs = block
    for refused in ({2, 3}, {1, 4, 5}, {3}):
        node = ir.nodes[2]
        backend = Faulty(node.name, wrong, refused=refused)
        report = validate(ir, weights, inputs, backend=backend, mode=mode)
        assert report.first.node == node.name


# -- reduced precision, and errors that add up ----------------------------------------------------


def through_bfloat16(tensor):
    return tensor.bfloat16().to(tensor.dtype) if tensor.is_floating_point() else tensor


@pytest.mark.parametrize("mode", ["isolated", "accumulated"])
def test_reduced_precision_is_seen(block, mode):
    ir, weights, inputs = block
    report = validate(ir, weights, inputs, backend=Faulty(None, through_bfloat16), mode=mode)
    assert report.first.node == ir.nodes[0].name


@pytest.mark.parametrize("mode", ["isolated", "accumulated"])
def test_a_program_in_bfloat16(mode):
    torch.manual_seed(0)
    model, x = Block().eval().bfloat16(), torch.randn(3, 6).bfloat16()
    ir = functionalize(extract_ir(model, (x,)))
    for node in ir.nodes:
        backend = Faulty(node.name, wrong)
        report = validate(ir, model.state_dict(), (x,), backend=backend, mode=mode)
        assert report.first.node == node.name
    report = validate(ir, model.state_dict(), (x,), backend=Faulty(), mode=mode)
    assert report.verdict == "agree"


def test_accumulated_errors_are_carried_on():
    class Deep(nn.Module):
        def forward(self, x):
            for _ in range(6):
                x = torch.sin(x) * 3
            return x

    x = torch.linspace(-2, 2, 50)
    ir = extract_ir(Deep(), (x,))
    sines = Faulty(None, one_unit_off, only={"aten.sin.default"})
    report = validate(ir, {}, (x,), backend=sines, mode="accumulated")
    assert report.verdict == "agree"
    largest = [e.absolute for e in report.errors if e.operator == "aten.sin.default"]
    assert len(largest) >= 6
    assert max(largest[-2:]) > 2 * max(largest[:2])  # they add up
    last = Faulty(ir.nodes[-2].name, wrong, only={"aten.sin.default"})
    report = validate(ir, {}, (x,), backend=last, mode="accumulated")
    assert [d.node for d in report.divergences][:1] == [ir.nodes[-2].name]


# -- deep delegates, of which the worst case says nothing -----------------------------------------


class Residual(nn.Module):
    def __init__(self, make, norm):
        super().__init__()
        self.layers = nn.ModuleList(make() for _ in range(50))
        self.norms = nn.ModuleList(norm(4) for _ in range(50))

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + torch.relu(norm(layer(x)))
        return x


def dense():
    return Residual(partial(nn.Linear, 4, 4), nn.BatchNorm1d)


def convolutions():
    return Residual(partial(nn.Conv2d, 4, 4, 3, padding=1), nn.BatchNorm2d)


def attending():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)


DEEP = {
    "dense": (dense, (2, 4)),
    "convolutions": (convolutions, (1, 4, 5, 5)),
    "attention": (attending, (1, 3, 8)),
}


@pytest.fixture(scope="module", params=DEEP)
def deep(request):
    torch.manual_seed(0)
    make, sizes = DEEP[request.param]
    model, x = make().eval(), torch.randn(sizes)
    ir = functionalize(extract_ir(model, (x,)))
    return ir, model.state_dict(), (x,)


def larger(tensor):
    return tensor * 1.01 if tensor.is_floating_point() else tensor


def test_faults_deep_in_a_delegate(deep):
    ir, weights, inputs = deep
    whole = OpaqueRunner(ir, torch.relu, inputs, {}).ir
    (call,) = whole.nodes
    body = body_of(whole, call)
    keys = {name: key for name, (key, _) in ir.external_values().items()}
    given = [weights[keys[m.name]] if m.name in keys else inputs[0] for m in call.inputs]
    known = dict(zip(body.input_names, given, strict=True))
    judge = judge_of(body)

    def error(*backend):
        run = Faulty(*backend).compile(body, {})
        return judge(known, run(*given), known, {})

    assert error().part < 0.1
    assert error(None, one_unit_off).part < 0.5
    linear = [n.name for n in body.nodes if n.op_type.split(".")[1] in ("linear", "conv2d")]
    for name in linear[:: len(linear) // 3]:
        assert error(name, larger).reason, name


def test_a_chaotic_delegate_is_judged_in_parts():
    class Chaos(nn.Module):
        def forward(self, x):
            for _ in range(24):
                x = 3 * torch.sin(4 * x)
            return x

    x = torch.linspace(0.1, 0.9, 9)
    ir = extract_ir(Chaos(), (x,))

    class Pairs(Faulty):
        """Wrong where a few nodes are run at once."""

        def _changed(self, ir, tensors, symbols):
            made = super()._changed(ir, tensors, symbols)
            return [m * 1.01 for m in made] if len(ir.nodes) < 10 else made

    report = validate(ir, {}, (x,), backend=Faulty(None, one_unit_off))
    assert report.verdict == "not compared"
    assert "what its operators may round" in str(report)
    assert report.compared == {"denotation": 0, "eager": 0}
    assert validate(ir, {}, (x,), backend=Pairs(fused=True)).verdict == "disagree"
    known = {"x": x}
    run = Faulty(None, one_unit_off).compile(ir, {})
    assert "cannot be verified" in judge_of(ir)(known, run(x), known, {}).reason


def split_up(value=1):
    class Parts(nn.Module):
        def forward(self, x):
            return nn.functional.silu(torch.addcmul(x, x, x, value=value)) + 1

    x = torch.randn(3, 8)
    ir = functionalize(extract_ir(Parts(), (x,)))
    return ir, decompose(ir), x


def values_of(ir, x):
    """The input and torch's results by name, and a list of the latter."""
    results = [IRExecutor(ir, {})(x)]
    return {"x": x, **dict(zip(ir.output_names, results, strict=True))}, results


def test_delegates_of_one_program_are_judged_by_it(monkeypatch):
    evaluated = []
    known = trial.evaluate
    monkeypatch.setattr(trial, "evaluate", lambda *args: evaluated.append(1) or known(*args))
    ir, split, x = split_up()
    assert len(split.nodes) > len(ir.nodes) + 2
    judge = ProgramJudge(ir)
    for body in (ir, split):
        values, results = values_of(body, x)
        error = judge.judge_of(body)(values, results, values, {})
        assert 0 <= error.part < 1
        assert not error.reason
    assert len(evaluated) == 1
    values, results = values_of(split, x * 3)
    assert not judge.judge_of(split)(values, results, values, {}).reason
    assert len(evaluated) == 2
    wrong = [result * 1.001 for result in results]
    assert judge.judge_of(split)(values, wrong, values, {}).reason
    judge.forget()
    judge.judge_of(split)(values, results, values, {})
    judge.judge_of(split)(values, results, values, {})
    assert len(evaluated) > 3


def test_a_delegate_with_a_name_of_the_program_for_another_value():
    ir, _, _ = split_up()
    _, other, x = split_up(value=2)
    values, results = values_of(other, x)
    judge = ProgramJudge(ir).judge_of(other)
    assert ir.output_names == other.output_names
    assert not judge(values, results, values, {}).reason
    own = values_of(ir, x)[1]  # right for the program, not for the delegate
    assert judge(values, own, values, {}).reason


# -- the script that shows a fault ----------------------------------------------------------------

MODULE = """
import torch
from torch_ir import compile_graph
from torch_ir.backends import SUPPORTED, DelegateBackend

class Acme(DelegateBackend):
    name = "acme"

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        graph = compile_graph(ir.replace(signature=None))
        names = [node.op_type for node in ir.nodes]

        def run(*given):
            rest = iter(given)
            tensors = [payload[n] if n in payload else next(rest) for n in ir.input_names]
            made = list(graph.eval(tensors))
            return [m * 2 for m in made] if "aten.tanh.default" in names else made

        return run

ACME = Acme()
"""


def test_the_script_of_a_backend(block, tmp_path, monkeypatch):
    ir, weights, inputs = block
    (tmp_path / "judged_backend.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    from judged_backend import ACME

    report = validate(ir, weights, inputs, backend=ACME, repro=tmp_path / "out")
    assert report.first.node == "tanh"
    script = tmp_path / "out" / "repro.py"
    assert "from judged_backend import ACME" in script.read_text()
    path = {**os.environ, "PYTHONPATH": str(Path(torch_ir.__file__).parents[1])}
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, env=path)
    assert run.returncode == 1, run.stderr
    assert "node 'tanh': %tanh and the denotation disagree" in run.stdout
