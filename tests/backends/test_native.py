"""Native runtimes, right and with planted faults: what is used was verified, the rest is torch."""

import math

import pytest
import torch
from torch import nn
from torch.export import Dim

import torch_ir
from counting import calls_made
from torch_ir import extract_ir, parse
from torch_ir.backends import (
    SUPPORTED,
    NativeBackend,
    Support,
    register_backend,
    support,
    unregister_backend,
)
from torch_ir.backends.backend_registry import find_backend
from torch_ir.errors import BackendError, ExecutionError

pytestmark = pytest.mark.filterwarnings("ignore")


def as_module(function):
    """A module whose forward is a function."""
    model = nn.Module()
    model.forward = function
    return model


class Torch(NativeBackend):
    """A runtime whose programs are torch's, with a fault in those that have an operator."""

    name = "again"
    version = "1"

    def __init__(self, fault=None, operator="aten.tanh.default", refused=()):
        self.fault, self.operator, self.refused = fault, operator, refused
        self.builds = 0

    def supports(self, node, ir):
        return Support.refused("it is denied") if node.op_type in self.refused else SUPPORTED

    def build(self, program, options):
        self.builds += 1
        targets = {str(node.target) for node in program.graph.nodes}
        run = program.module()
        if self.fault is None or self.operator not in targets:
            return run
        return self.fault(run)


class Attention(nn.Module):
    def forward(self, x):  # on torch its result lies so that heads can be viewed as one
        heads = x.transpose(1, 2)
        seen = nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return seen.transpose(1, 2).view(2, 5, -1) * 2


def test_a_view_in_a_delegate_is_right_whatever_the_layout_of_its_inputs():
    x = torch.randn(2, 5, 4, 8, generator=torch.Generator().manual_seed(0))
    backend = Torch(raises_in_build, "aten.scaled_dot_product_attention.default")
    backend.takes = frozenset((backend.operator,))
    run = torch_ir.compile(extract_ir(Attention(), (x,)), {}, backend=backend)
    used = [verdict.nodes for verdict in run.verdicts if verdict.used]
    assert used == [("transpose",), ("transpose_1", "view", "mul")]
    torch.testing.assert_close(run(x), Attention()(x))


CALLS = torch.ops.aten
APART = {
    "aten.lstm_cell.default": (nn.LSTMCell(4, 3), (5, 4)),
    "aten.gru_cell.default": (nn.GRUCell(4, 3, bias=False), (5, 4)),
    "aten.std.correction": (as_module(lambda x: CALLS.std.correction(x, [0, 2])), (4, 3, 5)),
    "aten.std.dim": (as_module(lambda x: CALLS.std.dim(x, [1], False)), (4, 3, 5)),
    "aten.var.correction": (as_module(lambda x: CALLS.var.correction(x, correction=2)), (4, 3)),
    "aten._native_batch_norm_legit_functional.default": (nn.BatchNorm2d(3), (2, 3, 4, 4)),
}


@pytest.mark.parametrize("operator", APART)
def test_what_a_runtime_lacks_is_written_with_what_it_has(operator):
    model, shape = APART[operator]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)) + 1
    backend = Torch(refused=(operator, "aten.var.correction"))
    weights = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    run = torch_ir.compile(extract_ir(model, (x,)), weights, backend=backend)
    assert run.assignment.left == ()
    torch.testing.assert_close(run(x), model(x))
    state = dict(model.state_dict())  # with the statistics that the call wrote
    torch.testing.assert_close({**state, **run.buffers}, state)


def planted(change):
    """A fault that changes the first result."""

    def fault(run):
        def call(*given):
            first, *rest = run(*given)
            return [change(first.clone()), *rest]

        return call

    return fault


def raises_in_build(run):
    raise ValueError("Unsupported: tanh\nwith a second line")


def raises_in_the_first_call(run):
    def call(*given):
        raise RuntimeError("invalid argument")

    return call


def one_nan(tensor):
    tensor.view(-1)[-1] = math.nan
    return tensor


def one_wrong(tensor):
    tensor.view(-1)[0] += 0.01
    return tensor


def writes_inputs(run):
    def call(*given):
        results = [r.clone() for r in run(*given)]
        next(g for g in given if isinstance(g, torch.Tensor)).zero_()
        return results

    return call


def reuses_its_buffer(run):
    kept = []

    def call(*given):
        results = list(run(*given))
        if not kept:
            kept.extend(r.clone() for r in results)
        for buffer, result in zip(kept, results, strict=True):
            buffer.resize_(result.shape).copy_(result)
        return kept

    return call


def answers_from_memory(run):
    kept = []

    def call(*given):
        kept.append([r.clone() for r in run(*given)])
        return [r.clone() for r in kept[0]]

    return call


FAULTS = {
    "raises in build": raises_in_build,
    "raises in the first call": raises_in_the_first_call,
    "rounded": planted(lambda t: t.half().float()),
    "bfloat16 inside": planted(lambda t: t.bfloat16().float()),
    "negated": planted(torch.neg),
    "one wrong": planted(one_wrong),
    "one nan": planted(one_nan),
    "another type": planted(torch.Tensor.double),
    "another shape": planted(lambda t: t[:, :-1]),
    "another rank": planted(lambda t: t[0]),
    "no tensor": planted(lambda t: t.tolist()),
    "too few": lambda run: lambda *given: list(run(*given))[:-1],
    "too many": lambda run: lambda *given: [*run(*given), torch.ones(1)],
    "writes inputs": writes_inputs,
    "reuses its buffer": reuses_its_buffer,
    "answers from memory": answers_from_memory,
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 4)
        self.register_buffer("seen", torch.zeros(4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.seen.mul_(0.5).add_(x.sum(0))
        self.count += 1
        y = torch.tanh(self.first(x).relu() * 2 + 1)
        z = torch.sigmoid(self.second(y)) + self.seen
        return {"z": z - z.mean(0), "n": self.count * 2, "top": z.argmax(1)}


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    model = Net()
    shapes = ({0: Dim("b", min=2, max=64)},)
    return model, extract_ir(model, (torch.randn(3, 4),), dynamic_shapes=shapes)


def right(run, model, sizes=(3, 5, 3)):
    """Calls give what eager gives, as long as the results of all are looked at."""
    eager = Net()
    eager.load_state_dict(model.state_dict())
    results = []
    for rows in sizes:
        x = torch.randn(rows, 4)
        copy = x.clone()
        got, expected = run(x), eager(x)
        assert torch.equal(x, copy)
        results.append((got, expected))
    for got, expected in results:
        for key in expected:
            assert got[key].dtype == expected[key].dtype
            torch.testing.assert_close(got[key], expected[key], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(run.buffers["seen"], eager.seen)
    assert int(run.buffers["count"]) == int(eager.count)


class TestARightRuntime:
    def test_it_runs_all_in_verified_delegates(self, net):
        model, ir = net
        state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
        run = torch_ir.compile(ir, model.state_dict(), backend=Torch())
        right(run, model)
        (verdict,) = run.verdicts
        assert verdict.used
        assert verdict.part <= 1
        assert verdict.runtime == "again"
        assert set(run.assignment.takers.values()) == {"again"}
        assert run.assignment.left == ()
        assert all(torch.equal(state[key], model.state_dict()[key]) for key in state)
        assert run.report().startswith(
            f"again runs {len(verdict.nodes)} of {len(verdict.nodes)} nodes in 1 delegate"
        )

    def test_given_arguments_are_among_those_that_it_is_verified_on(self, net):
        model, ir = net
        seen = []

        class Seeing(Torch):
            def build(self, program, options):
                run = program.module()

                def call(*given):
                    seen.extend(given)
                    return run(*given)

                return call

        x = torch.full((7, 4), 0.25)
        run = torch_ir.compile(ir, model.state_dict(), backend=Seeing(), verify=[(x,)])
        assert any(isinstance(t, torch.Tensor) and torch.equal(t, x) for t in seen)
        right(run, model)

    def test_unverified_ones_say_so(self, net):
        model, ir = net
        run = torch_ir.compile(ir, model.state_dict(), backend=Torch(), verify=False)
        right(run, model)
        (verdict,) = run.verdicts
        assert verdict.used
        assert math.isnan(verdict.part)
        assert verdict.reason == "unverified: verify=False"

    def test_an_option_that_it_does_not_have(self, net):
        with pytest.raises(ExecutionError) as error:
            torch_ir.compile(net[1], net[0].state_dict(), backend=Torch(), options={"fast": 1})
        assert str(error.value) == "the backend 'again' has no option 'fast'\nIt has none."

    def test_gradients_are_refused(self, net):
        with pytest.raises(ExecutionError, match="the backend 'again' has no gradients"):
            torch_ir.compile(net[1], net[0].state_dict(), backend=Torch(), grad=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_operator_alone_is_refused(net, fault):
    model, ir = net
    run = torch_ir.compile(ir, model.state_dict(), backend=Torch(FAULTS[fault]))
    right(run, model)
    used = [verdict for verdict in run.verdicts if verdict.used]
    (refused,) = [verdict for verdict in run.verdicts if not verdict.used]
    assert [run.assignment.nodes[i].op_type for i in places(run, refused)] == ["aten.tanh.default"]
    assert refused.reason
    assert refused.location is not None
    assert all(verdict.part <= 1 for verdict in used)
    count = len(run.assignment.nodes)
    assert sum(len(verdict.nodes) for verdict in used) == count - 1
    assert run.assignment.reasons[refused.nodes[0]]["again"] == refused.reason


def places(run, verdict):
    return [i for i, n in enumerate(run.assignment.nodes) if n.name in verdict.nodes]


def test_the_reason_is_the_runtimes_own(net):
    model, ir = net
    run = torch_ir.compile(ir, model.state_dict(), backend=Torch(raises_in_build))
    (refused,) = [verdict for verdict in run.verdicts if not verdict.used]
    assert refused.reason == "ValueError: Unsupported: tanh with a second line"
    assert math.isnan(refused.part)


def test_one_fault_among_many_nodes_costs_a_logarithm_of_builds():
    names = [f"n{i}" for i in range(64)]
    lines = [
        f"  %{name}: f32[2] = aten.{'tanh' if i == 37 else 'relu'}.default(%{before})"
        for i, (name, before) in enumerate(zip(names, ["x", *names[:-1]], strict=True))
    ]
    ir = parse("\n".join(["ir {", "  input %x: f32[2]", *lines, "  return %n63", "}"]))
    backend = Torch(planted(torch.neg))
    run = torch_ir.compile(ir, {}, backend=backend)
    assert [v.nodes for v in run.verdicts if not v.used] == [("n37",)]
    assert backend.builds <= 1 + 2 * 6 + 2


def test_a_runtime_that_is_always_wrong_leaves_all_to_torch(net):
    model, ir = net

    class Wrong(Torch):
        def build(self, program, options):
            return planted(lambda t: t + 1)(program.module())

    run = torch_ir.compile(ir, model.state_dict(), backend=Wrong())
    right(run, model)
    count = len(run.assignment.nodes)
    assert run.report().splitlines()[0] == f"nothing runs on again: torch runs {count} nodes"
    assert not any(verdict.used for verdict in run.verdicts)


def test_without_time_a_refused_delegate_goes_to_torch_whole(net):
    model, ir = net
    backend = Torch(raises_in_build)
    run = torch_ir.compile(ir, model.state_dict(), backend=backend, seconds=0)
    right(run, model)
    assert backend.builds == 1
    assert {verdict.reason for verdict in run.verdicts} == {
        "the time is up for finding the node that is at fault: "
        "ValueError: Unsupported: tanh with a second line"
    }


def test_what_is_wrong_only_as_a_whole_is_kept_in_halves():
    class Small(Torch):
        def build(self, program, options):
            calls = [n for n in program.graph.nodes if n.op == "call_function"]
            if len(calls) > 2:
                raise ValueError("too large")
            return program.module()

    ir = parse("""ir {
      input %x: f32[2]
      %a: f32[2] = aten.relu.default(%x)
      %b: f32[2] = aten.neg.default(%a)
      %c: f32[2] = aten.exp.default(%b)
      %d: f32[2] = aten.cos.default(%c)
      return %d
    }""")
    run = torch_ir.compile(ir, {}, backend=Small())
    assert [(v.nodes, v.used) for v in run.verdicts] == [(("a", "b"), True), (("c", "d"), True)]
    x = torch.randn(2)
    assert torch.equal(run(x)[0], (-x.relu()).exp().cos())


def test_a_tolerance_allows_lower_precision(net):
    model, ir = net
    fault = FAULTS["rounded"]
    run = torch_ir.compile(ir, model.state_dict(), backend=Torch(fault), tolerance=1e-2)
    (verdict,) = run.verdicts
    assert verdict.used
    assert 0 < verdict.part <= 1


def test_a_runtime_that_fails_later_is_replaced_by_torch():
    class Limited(Torch):
        def build(self, program, options):
            run = program.module()

            def call(x):
                if len(x) > 20:
                    raise RuntimeError("no such size")
                return run(x)

            return call

    model = nn.Tanh()
    ir = extract_ir(model, (torch.ones(3),), dynamic_shapes=({0: Dim("n", min=2, max=64)},))
    run = torch_ir.compile(ir, {}, backend=Limited())
    for size in (3, 50, 4):
        x = torch.randn(size)
        torch.testing.assert_close(run(x), model(x))
    (verdict,) = run.verdicts
    assert (verdict.used, verdict.reason) == (False, "RuntimeError: no such size")


def test_what_no_sample_reaches_is_judged_in_real_calls():
    class Checked(nn.Module):
        def forward(self, ids, x):
            n = int(ids.sum())
            torch._check(n > 5)
            torch._check(n < 9)
            return torch.tanh(x * n)

    given = torch.tensor([3, 4]), torch.randn(3)
    ir = extract_ir(Checked(), given)
    for fault in (None, planted(torch.neg)):
        run = torch_ir.compile(ir, {}, backend=Torch(fault))
        for _ in range(3):
            torch.testing.assert_close(run(*given), Checked()(*given))
        assert [v.used for v in run.verdicts if v.runtime == "again"][-1] is (fault is None)


def test_a_border_costs_a_few_calls_whatever_the_size_of_the_result():
    class Quick(Torch):
        def build(self, program, options):
            return lambda *given: [given[0] + 1]

    for model in (lambda x: x + 1, lambda x: (x + 1,)):
        x = torch.randn(2, 16)
        run = torch_ir.compile(extract_ir(as_module(model), (x,)), {}, backend=Quick())
        assert run.assignment.left == ()
        with torch.no_grad():
            _ = [run(x) for _ in range(9)]
            assert calls_made(lambda: run(x)) <= 16  # noqa: B023  # called at once


def test_results_of_another_type_are_replaced_in_later_calls_too():
    class Changing(Torch):
        def build(self, program, options):
            seen = []

            def call(x):
                seen.append(x)
                return [(x + 1).double() if len(seen) > 3 else x + 1]

            return call

    x = torch.randn(2, 16)
    run = torch_ir.compile(extract_ir(as_module(lambda x: x + 1), (x,)), {}, backend=Changing())
    for _ in range(3):
        torch.testing.assert_close(run(x), x + 1)
    (verdict,) = run.verdicts
    assert not verdict.used
    assert verdict.reason == "it gives f64[2, 16] in place of f32[2, 16]"


def test_several_backends_take_in_turn_what_is_left(net):
    model, ir = net

    class Second(Torch):
        name = "second"

    first = Torch(refused={"aten.tanh.default", "aten.sigmoid.default"})
    run = torch_ir.compile(ir, model.state_dict(), backend=[first, Second(), "aten"])
    right(run, model)
    assert {v.runtime for v in run.verdicts if v.used} == {"again", "second"}
    assert run.assignment.left == ()


def test_support_tells_of_the_program_that_would_run(net):
    model, ir = net
    backend = Torch(refused={"aten.linear.default", "aten.gelu.default", "aten.sigmoid.default"})
    run, told = torch_ir.compile(ir, model.state_dict(), backend=backend), support(ir, backend)
    assert told.nodes == len(run.assignment.nodes)
    assert told.supported_nodes == len(run.assignment.takers)
    assert {row.operator for row in told.operators if row.reason} == {
        node.op_type for node in run.assignment.left
    }


def test_calls_of_functions_are_never_asked_about():
    class Branches(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x.tanh(),)) * 2

    class Asked(Torch):
        def supports(self, node, ir):
            assert node.op_type.startswith("aten.")
            return SUPPORTED

    ir = extract_ir(Branches(), (torch.ones(2),))
    run = torch_ir.compile(ir, {}, backend=Asked())
    for x in (torch.ones(2), -torch.ones(2)):
        torch.testing.assert_close(run(x), Branches()(x))
    assert sum(len(verdict.nodes) for verdict in run.verdicts if verdict.used) >= 3


class TestPlainDelegates:
    def test_a_failing_compile_is_named(self):
        class Broken(torch_ir.DelegateBackend):
            name = "acme"

            def supports(self, node, ir):
                return SUPPORTED

            def compile(self, ir, payload):
                raise ValueError("no such opcode")

        model = nn.Sequential(nn.ReLU(), nn.Tanh())
        ir = extract_ir(model, (torch.ones(2),))
        with pytest.raises(BackendError) as error:
            torch_ir.compile(ir, {}, backend=Broken())
        place = f" at {ir.nodes[0].location}"
        assert str(error.value) == (
            "the backend 'acme' fails to compile 'acme_0', a delegate of 2 nodes, the first"
            f"{place}: ValueError: no such opcode"
        )
        assert type(error.value.__cause__) is ValueError

    def test_results_of_another_type_are_refused(self):
        class Double(torch_ir.DelegateBackend):
            name = "acme"

            def supports(self, node, ir):
                return SUPPORTED

            def compile(self, ir, payload):
                return lambda x: [x.double()]

        run = torch_ir.compile(extract_ir(nn.ReLU(), (torch.ones(2),)), backend=Double())
        with pytest.raises(ExecutionError, match=r"gave f64\[2\] in place of f32\[2\]"):
            run(torch.ones(2))


class TestEntryPoints:
    def test_a_class_is_made_without_arguments(self):
        register_backend("acme")(Torch)
        try:
            assert isinstance(find_backend("acme"), Torch)
            run = torch_ir.compile(extract_ir(nn.ReLU(), (torch.ones(2),)), backend="acme")
            assert torch.equal(run(-torch.ones(2)), torch.zeros(2))
        finally:
            unregister_backend("acme")

    def test_a_class_that_takes_arguments_is_refused(self):
        class Acme(Torch):
            def __init__(self, target, *, level):
                super().__init__()

        register_backend("acme")(Acme)
        try:
            for ask in (find_backend, torch_ir.backends.support_report.delegate_backend):
                with pytest.raises(ExecutionError) as error:
                    ask("acme")
                assert str(error.value) == (
                    "the backend 'acme' is the class Acme, which takes target, level\n"
                    "Register an instance of Acme."
                )
        finally:
            unregister_backend("acme")


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64])
def test_faults_that_zero_and_one_do_not_show_are_found(dtype):
    def saturated(tensor):
        return tensor.clamp(-6, 200)

    ir = extract_ir(as_module(lambda x: (x * 3, x.float().tanh())), (torch.ones(64).to(dtype),))
    run = torch_ir.compile(ir, {}, backend=Torch(planted(saturated), "aten.mul.Tensor"))
    assert [(v.delegate, v.used) for v in run.verdicts if not v.used] == [("mul", False)]
    low, high = (-9, 9) if dtype is torch.int64 else (0, 100)
    x = torch.arange(low, high).repeat(64)[:64].to(dtype)
    assert torch.equal(run(x)[0], x * 3)


def test_far_integers_are_not_given_to_tables():
    table = torch.randn(4, 3)
    take = as_module(lambda x, y: (nn.functional.embedding(x, table), y - 1))
    ir = extract_ir(take, (torch.ones(20).long(),) * 2)
    run = torch_ir.compile(ir, {}, backend=Torch(planted(lambda t: t.abs()), "aten.sub.Tensor"))
    assert {v.delegate: v.used for v in run.verdicts if not v.used} == {"sub": False}


def from_the_quotient(y, x):
    """An angle that is right unless y is 0."""
    angle = (y / x).atan()
    turned = angle + torch.where(y > 0, math.pi, -math.pi)
    return torch.where(x < 0, turned, angle)


@pytest.mark.parametrize(
    ("operator", "right", "wrong", "count"),
    [
        ("log_sigmoid", lambda x: nn.functional.logsigmoid(x), lambda x: x.sigmoid().log(), 1),
        ("atan2", lambda y, x: torch.atan2(y, x), from_the_quotient, 2),
        ("floor_divide", lambda x, y: x // y, lambda x, y: (x / y).floor(), 2),
    ],
)
def test_faults_at_special_numbers_alone_are_found(operator, right, wrong, count):
    torch.manual_seed(0)
    inputs = tuple([torch.rand(3, 4) + 0.5 for _ in range(count)])
    torch.testing.assert_close(wrong(*inputs), right(*inputs))
    backend = Torch(lambda _: lambda *given: (wrong(*given),), f"aten.{operator}.default")
    run = torch_ir.compile(extract_ir(as_module(right), inputs), {}, backend=backend)
    assert [verdict.used for verdict in run.verdicts] == [False]
