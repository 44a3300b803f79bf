"""Backends are opaque: what is wrong in them is found at the node of the program."""

import json

import pytest
import torch
from torch import nn

from torch_ir import (
    DelegateBackend,
    Partitioner,
    capture,
    compare,
    compile_graph,
    decompose,
    extract_ir,
    functionalize,
    parse,
    register_backend,
    to_backend,
    validate,
)
from torch_ir.backends import SUPPORTED, Support, unregister_backend
from torch_ir.errors import BackendError, ExecutionError, InputError, InvalidIRError
from torch_ir.executor import IRExecutor

PROGRAM = parse("""ir {
  input %x: f32[3]
  input %y: f32[3]
  %a: f32[3] = aten.exp.default(%x)  # net.py:7: a = x.exp()
  %b: f32[3] = aten.mul.Tensor(%a, %y)  # net.py:8: b = a * y
  return %b
}""")
INPUTS = (torch.ones(3), torch.ones(3))


class Off(DelegateBackend):
    name = "off"

    def supports(self, node, ir):
        return SUPPORTED if node.op_type == "aten.mul.Tensor" else Support.refused("no")

    def compile(self, ir, payload):
        return lambda a, b: [a * b + 1]


class Whole(DelegateBackend):
    """Takes all that there is and runs it with torch, but for faults that are planted."""

    name = "whole"

    def __init__(self, fault=lambda nodes, node, result: result):
        self.fault = fault

    def supports(self, node, ir):
        return SUPPORTED

    def compile(self, ir, payload):
        graph = compile_graph(ir, {})
        names = [node.name for node in ir.nodes]
        free = [name for name in ir.input_names if name not in payload]

        def run(*given):
            values = {**payload, **dict(zip(free, given, strict=True))}
            for node in ir.nodes:
                part = to_part(ir, node)
                made = compile_graph(part).eval([values[m.name] for m in part.graph_inputs])
                changed = [self.fault(names, node, t) for t in made]
                values |= dict(zip(part.output_names, changed, strict=True))
            return [values[name] for name in ir.output_names]

        del graph
        return run


def to_part(ir, node):
    from torch_ir.ir.builder import subgraph

    return subgraph(ir, [node], node.outputs)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(6, 8), nn.LayerNorm(8)
        self.second = nn.Linear(8, 4)

    def forward(self, x):
        h = torch.nn.functional.gelu(self.norm(self.first(x)))
        return torch.softmax(self.second(h) + h[:, :4] * 2, -1).tanh()


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    model, inputs = Net().eval(), (torch.randn(3, 6),)
    ir = extract_ir(model, inputs)
    return ir, dict(model.state_dict()), inputs


def test_a_wrong_kernel_in_a_delegate_is_found_at_its_source_line():
    report = compare(PROGRAM, {}, INPUTS, run=Off())
    assert report.verdict == "disagree"
    assert (report.first.node, report.first.kind, report.first.mode) == (
        "b",
        "numeric",
        "isolated",
    )
    assert report.first.location.startswith("net.py:8")
    assert report.first.region == ("b",)
    assert report.compared == ("a", "b")
    assert all(len(line) <= 100 for line in str(report).split("\n"))
    assert json.loads(json.dumps(report.to_dict()))["verdict"] == "disagree"
    assert "<table>" in report._repr_html_()


def test_a_registered_backend_and_its_runner_are_judged_as_well():
    from torch_ir import compile

    register_backend("off")(Off())
    try:
        assert compare(PROGRAM, {}, INPUTS, run="off").first.node == "b"
        runner = compile(PROGRAM, {}, backend="off")
        assert compare(PROGRAM, {}, INPUTS, run=runner).first.node == "b"
    finally:
        unregister_backend("off")


def test_every_planted_fault_of_a_node_behind_an_opaque_delegate_is_found(net):
    ir, weights, inputs = net
    core = decompose(ir)
    for node in core.nodes:
        fault = Whole(lambda names, at, r, w=node.name: r + 0.25 if at.name == w else r)
        report = compare(core, weights, inputs, run=fault)
        assert {found.node for found in report.divergences} == {node.name}
        assert report.first.location == str(node.location or "")


class Raising(Whole):
    """Takes one node, and raises when it runs."""

    def __init__(self, wanted):
        self.wanted = wanted

    def supports(self, node, ir):
        return SUPPORTED if node.name == self.wanted else Support.refused("not mine")

    def compile(self, ir, payload):
        def run(*given):
            raise RuntimeError("out of order")

        return run


def test_a_part_that_raises_is_told_and_the_rest_is_compared(net):
    ir, weights, inputs = net
    for node in ir.nodes:
        report = compare(ir, weights, inputs, run=Raising(node.name))
        assert [(d.node, d.kind) for d in report.divergences] == [(node.name, "error")]
        assert report.divergences[0].reason == "RuntimeError: out of order"
        assert report.not_compared == {node.name: "it raised"}
        assert len(report.compared) == len(ir.nodes) - 1


def test_two_faults_are_both_found_and_no_other(net):
    ir, weights, inputs = net
    core = decompose(ir)
    wrong = {core.nodes[2].name, core.nodes[-2].name}
    report = compare(
        core, weights, inputs, run=Whole(lambda names, at, r: r * 1.1 if at.name in wrong else r)
    )
    assert {found.node for found in report.divergences} == wrong


def test_a_fault_of_a_fused_pair_is_told_as_a_region(net):
    ir, weights, inputs = net
    core = decompose(ir)
    pairs = [
        (node.name, core.users[node.outputs[0].name][0].name)
        for node in core.nodes
        if len(node.outputs) == 1 and len(core.users.get(node.outputs[0].name, ())) == 1
    ]
    for first, second in pairs:

        def fault(names, at, result, first=first, second=second):
            return result + 0.5 if at.name == second and first in names else result

        report = compare(core, weights, inputs, run=Whole(fault))
        assert report.first.region == (first, second)
        assert report.first.node == second


@pytest.mark.parametrize("last", ["layer_norm.default(%e, [64])", "cumprod.default(%e, 1)"])
@pytest.mark.parametrize("wide", ["10000.0", "30000.0"])
def test_a_fault_of_a_pair_that_only_a_later_node_shows_is_told_as_the_pair(last, wide):
    program = parse(f"""ir {{
      input %x: f32[16, 64]
      %a: f32[16, 64] = aten.exp.default(%x)
      %b: f32[16, 64] = aten.add.Tensor(%a, {wide})
      %c: f32[16, 64] = aten.sub.Tensor(%b, {wide})
      %d: f32[16, 64] = aten.sigmoid.default(%c)
      %e: f32[16, 64] = aten.mul.Tensor(%d, 0.5)
      %f: f32[16, 64] = aten.{last}
      return %f
    }}""")

    def fault(names, at, result):
        return result * 1.001 if at.name == "e" and "d" in names else result

    x = torch.linspace(-1, 1, 1024).reshape(16, 64)
    found = compare(program, {}, (x,), run=Whole(fault), mode="isolated").first
    assert (found.node, found.region) == ("e", ("d", "e"))


def test_a_fault_of_a_pair_is_found_in_a_subgraph_that_is_judged_in_pieces(net, monkeypatch):
    ir, weights, inputs = net
    monkeypatch.setattr("torch_ir.debug.comparing.isolation.MAX_BYTES", 512)
    first, second = (node.name for node in ir.nodes[:2])
    bodies = []

    def fault(names, at, result):
        bodies.append(len(names))
        return result + 0.5 if at.name == second and first in names else result

    report = compare(ir, weights, inputs, run=Whole(fault), mode="isolated")
    assert report.first.region == (first, second)
    assert max(bodies) < len(ir.nodes)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda a, b: [], "missing"),
        (lambda a, b: [(a * b)[None]], "shape"),
        (lambda a, b: [(a * b).double()], "dtype"),
        (lambda a, b: [(a * b).log() * float("nan")], "nan"),
        (lambda a, b: [a * b * 1.01], "numeric"),
        (lambda a, b: a.no_such_thing, "error"),
    ],
)
def test_kinds_are_told_apart(change, kind):
    class Wrong(Off):
        def compile(self, ir, payload):
            return change

    report = compare(PROGRAM, {}, INPUTS, run=Wrong())
    assert (report.first.kind, report.first.node) == (kind, "b")


def test_a_right_backend_agrees_and_nothing_is_left_out(net):
    ir, weights, inputs = net
    for run in (Whole(), "aten", "eager", "reference", compile_graph(PROGRAM)):
        if run.__class__.__name__ == "ExecGraph":
            report = compare(PROGRAM, {}, INPUTS, run=run)
        else:
            report = compare(ir, weights, inputs, run=run)
        assert report.verdict == "agree", report
        assert len(report.compared) + len(report.covered) == report.nodes
    assert compare(ir, weights, inputs, run="aten", against="eager").verdict == "agree"


def test_a_program_agrees_with_its_own_lowering_and_a_wrong_node_is_told_as_the_original(net):
    ir, weights, inputs = net
    core = decompose(ir)
    report = compare(ir, weights, inputs, run=core)
    assert report.verdict == "agree", report
    wrong = {"aten.exp.default", "aten.mul.Tensor", "aten.mm.default", "aten.addmm.default"}
    for position, node in enumerate(core.nodes):
        scale = (
            node.replace(op_type="aten.mul.Tensor") if node.op_type == "aten.add.Tensor" else None
        )
        if scale is None:
            continue
        nodes = [*core.nodes[:position], scale, *core.nodes[position + 1 :]]
        found = compare(ir, weights, inputs, run=core.replace(nodes=nodes))
        assert found.first.node == (node.origins or (node.name,))[-1]
    del wrong


def test_a_wrong_node_of_a_scope_that_lowering_wrote_out_is_told_by_its_call():
    class Scoped(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x):
            with torch.no_grad():
                scale = torch.sin(x).mul(2.0).to(torch.float32)
            return scale * self.weight

    model, inputs = Scoped(), (torch.arange(3.0),)
    ir = extract_ir(model, inputs)
    (call,) = [node.name for node in ir.nodes if node.functions]
    core = decompose(functionalize(ir))
    for name in ("sin", "mul"):
        other = "aten.cos.default" if name == "sin" else "aten.add.Scalar"
        changed = [n.replace(op_type=other) if n.name == name else n for n in core.nodes]
        wrong = core.replace(nodes=changed)
        first = compare(ir, dict(model.state_dict()), inputs, run=wrong).first
        assert (first.node, first.value) == (f"{call}.{name}",) * 2
    right = compare(ir, dict(model.state_dict()), inputs, run=core)
    assert right.verdict == "agree"


def test_one_changed_value_of_a_golden_file_is_exactly_that_node(net, tmp_path):
    ir, weights, inputs = net
    golden = capture(IRExecutor(ir, weights).graph, inputs)
    golden.save(tmp_path / "golden.safetensors")
    assert compare(ir, weights, run=tmp_path / "golden.safetensors").verdict == "agree"
    from dataclasses import replace

    for node in ir.nodes:
        (meta,) = node.outputs
        values = {**golden.values, meta.name: golden.values[meta.name] + 0.1}
        report = compare(ir, weights, run=replace(golden, values=values))
        assert [found.node for found in report.divergences] == [node.name]
        rest = {name: t for name, t in golden.values.items() if name != meta.name}
        report = compare(ir, weights, run=replace(golden, values=rest))
        assert report.verdict == "not compared"
        assert list(report.not_compared) == [node.name]
        assert report.divergences == ()


def test_a_fault_that_only_a_later_sample_shows_is_found():
    class Seventh(Off):
        def compile(self, ir, payload):
            return lambda a, b: [torch.where(b > 6, a, a * b)]

    samples = [(torch.ones(3), torch.full((3,), float(i))) for i in range(1, 9)]
    report = compare(PROGRAM, {}, INPUTS, run=Seventh(), samples=samples)
    assert (report.first.sample, report.first.node) == (7, "b")


def test_what_cannot_be_read_is_refused():
    with pytest.raises(InvalidIRError, match="nothing can be read from a int"):
        compare(PROGRAM, {}, INPUTS, run=3)
    with pytest.raises(ExecutionError, match="there is no backend 'nope'"):
        compare(PROGRAM, {}, INPUTS, run="nope")
    with pytest.raises(InvalidIRError, match="inputs are missing: x, y"):
        compare(PROGRAM, {}, run="aten")
    with pytest.raises(InvalidIRError, match="there is no mode 'both ways'"):
        compare(PROGRAM, {}, INPUTS, mode="both ways")
    with pytest.raises(InvalidIRError, match=r"There are isolated, accumulated, both\."):
        compare(PROGRAM, {}, INPUTS, mode="iso")
    for judge in (compare, validate):
        with pytest.raises(InputError, match="there is no symbol 's0'\nThe program has none"):
            judge(PROGRAM, {}, INPUTS, symbols={"s0": 3})
    assert to_backend(PROGRAM, Partitioner(Off())).functions


def test_what_follows_from_another_of_several_equal_elements_is_no_error_of_a_whole_run():
    ir = parse("""ir {
      input %x: f32[64, 32]
      input %w: f32[32, 40]
      input %t: f32[40, 4]
      %m: f32[64, 40] = aten.mm.default(%x, %w)
      %k: i64[64, 40] = aten.argsort.default(%m, dim=1)
      %f: f32[64, 40, 4] = aten.embedding.default(%t, %k)
      return %f
    }""")
    torch.manual_seed(0)
    half, table = torch.randn(32, 20), torch.randn(40, 4)
    inputs = (torch.randn(64, 32), torch.cat([half, half.flip(1)], 1), table)
    found = compare(ir, {}, inputs, mode="accumulated")
    assert found.divergences == (), str(found)


PARTS = {
    "imag.default": "f32[3, 5]",
    "view_as_real.default": "f32[3, 5, 2]",
    "conj_physical.default": "c64[3, 5]",
    "abs.default": "f32[3, 5]",
    "sin.default": "c64[3, 5]",
}


@pytest.mark.parametrize("part", PARTS)
def test_complex_numbers_are_off_in_any_direction(part):
    ir = parse(f"""ir {{
      input %x: f32[3, 8]
      %z: c64[3, 5] = aten.fft_rfft.default(%x, dim=-1)
      %p: {PARTS[part]} = aten.{part}(%z)
      return %p
    }}""")
    for seed in range(4):
        inputs = (torch.randn(3, 8, generator=torch.Generator().manual_seed(seed)),)
        assert compare(ir, {}, inputs, mode="accumulated").divergences == ()


@pytest.mark.parametrize(
    ("nodes", "verdict"),
    [
        ("%y: f32[3] = aten.bernoulli.p(%x, 0.5)", "not compared"),
        ("%y: f32[3] = aten.empty_like.default(%x)", "agree"),
    ],
)
def test_values_that_are_drawn_are_not_compared_and_open_ones_have_none(nodes, verdict):
    report = compare(parse(f"ir {{\n input %x: f32[3]\n {nodes}\n return %y\n}}"), {}, INPUTS[:1])
    assert (report.verdict, bool(report.not_compared)) == (verdict, verdict == "not compared")


def test_a_fault_of_three_nodes_is_found_in_a_subgraph_of_which_nothing_can_be_told():
    program = parse("""ir {
      input %x: f32[3]
      %a: f32[3] = aten.mul.Tensor(%x, 1000.0)
      %b: f32[3] = aten.mul.Tensor(%a, 1000.0)
      %c: f32[3] = aten.sin.default(%b)
      %d: f32[3] = aten.add.Tensor(%c, 2.0)
      %e: f32[3] = aten.exp.default(%d)
      %f: f32[3] = aten.sqrt.default(%e)
      return %f
    }""")

    def fault(nodes, node, result):
        return result * 1.5 if {"d", "e", "f"} <= {*nodes} and node.name == "f" else result

    x = torch.tensor([1.4, 1.45, 1.5])
    assert not compare(program, {}, (x,), run=Whole()).divergences
    found = compare(program, {}, (x,), run=Whole(fault)).first
    assert found is not None
    assert found.region == ("d", "e", "f")


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        ("%z: f32[4] = aten.mul.Tensor(%y, 2.0)", "not compared"),
        ("%z: f32[3] = aten.slice.Tensor(%y, 0, 0, 3)", "agree"),
        ("%z: f32[4] = aten.fill.Scalar(%y, 2.0)", "agree"),
        ("%z: f32[] = aten.amax.default(%y)", "not compared"),
    ],
)
def test_what_is_written_to_open_memory_is_judged(last, verdict):
    program = parse(f"""ir {{
      input %x: f32[3]
      %o: f32[4] = aten.new_empty.default(%x, [4])
      %y: f32[4] = aten.slice_scatter.default(%o, %x, 0, 0, 3)
      {last}
      return %z
    }}""")
    x = torch.tensor([1.0, 2.0, 3.0])
    assert validate(program, {}, (x,), backend=Whole()).verdict == verdict

    def fault(nodes, node, result):
        places = torch.arange(result.numel()).reshape(result.shape)
        return torch.where(places == 1, result + 0.5, result) if node.name == "z" else result

    found = validate(program, {}, (x,), backend=Whole(fault))
    assert found.verdict == ("disagree" if program.node("z").outputs[0].shape else verdict)


class Writes(Whole):
    """Gives what torch gives, and then writes to its first argument."""

    def compile(self, ir, payload):
        graph = compile_graph(ir, {})

        def run(*given):
            made = [result.clone() for result in graph.eval(given)]
            given[0].add_(1)
            return made

        return run


@pytest.mark.parametrize("sides", ["run", "against"])
@pytest.mark.parametrize("mode", ["isolated", "accumulated"])
def test_a_backend_that_writes_to_what_it_is_given_is_wrong_though_its_results_are_right(
    sides, mode
):
    x = torch.arange(3.0)
    told = "the backend 'whole' writes to its input %"
    if sides == "against" and mode == "accumulated":
        report = compare(PROGRAM, {}, (x, x + 1), against=Writes(), mode=mode)
        assert report.verdict == "not compared"
        assert told in str(report)
        return
    if sides == "against":
        with pytest.raises(BackendError, match=told):
            compare(PROGRAM, {}, (x, x + 1), against=Writes(), mode=mode)
        return
    report = compare(PROGRAM, {}, (x, x + 1), run=Writes(), mode=mode)
    assert report.verdict == "disagree"
    assert report.first.kind == "error"
    assert told in report.first.reason
    assert x.tolist() == [0.0, 1.0, 2.0]
