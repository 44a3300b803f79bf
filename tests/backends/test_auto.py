"""The fastest way that there is: never wrong, never slower than torch on purpose."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import torch_ir
from torch_ir import extract_ir
from torch_ir.backends import SUPPORTED, NativeBackend
from torch_ir.backends.native import auto
from torch_ir.errors import ExecutionError, InputError, InvalidIRError

pytestmark = pytest.mark.filterwarnings("ignore")


class Operations(TorchDispatchMode):
    """A clock that does not depend on the machine: it counts calls of operators."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def operations(functions, seconds=0.0, renewals=()):
    """What stands for `least`: the calls of operators of each function."""
    counts = []
    for function in functions:
        with Operations() as clock:
            function()
        counts.append(float(clock.count))
    return counts


class Slow(NativeBackend):
    """Calls four operators for each one of the net."""

    name, version = "slow", "1"

    def supports(self, node, ir):
        return SUPPORTED

    def build(self, program, options):
        run = program.module()

        def call(*given):
            for _ in range(3):
                run(*given)
            return run(*given)

        return call


class Fast(Slow):
    """Answers at once, for a net whose result is always the same."""

    name = "fast"

    def build(self, program, options):
        results = [node.meta["val"] for node in program.graph.find_nodes(op="output")[0].args[0]]
        shape = tuple(results[0].shape)
        return lambda *given: [torch.zeros(shape)]


class Failing(Slow):
    name = "failing"

    def build(self, program, options):
        raise ValueError("no")


class Zeros(nn.Module):
    def forward(self, x):
        for _ in range(40):
            x = (x * 0).tanh()
        return x


class Halves(nn.Module):
    def forward(self, x):
        for _ in range(40):
            x = (x * 0).tanh()
        for _ in range(40):
            x = (x - x).sin()
        return x


class Half(Fast):
    """Answers at once, for one half of the nodes."""

    def __init__(self, name, *operators):
        self.name, self._operators = name, {f"aten.{o}" for o in operators}

    def operators(self):
        return self._operators

    supports = NativeBackend.supports


def compiled(monkeypatch, *backends, model=Zeros, least=operations, **more):
    known = {backend.name: backend for backend in backends}
    monkeypatch.setattr(auto, "installed_runtimes", lambda: list(known))
    monkeypatch.setattr(auto, "find_backend", known.__getitem__)
    monkeypatch.setattr(auto, "least", least)
    ir = extract_ir(model(), (torch.randn(8, 8),))
    return torch_ir.compile(ir, {}, backend="auto", verify=[(torch.randn(8, 8),)], **more)


def test_torch_runs_what_nothing_runs_faster(monkeypatch):
    run = compiled(monkeypatch, Slow(), Failing())
    assert run.backend == "aten"
    reasons = {candidate.name: candidate.reason for candidate in run.candidates}
    assert reasons == {
        "slow": "nothing is faster on it",
        "failing": "nothing runs on it",
        "aten": "",
    }
    assert run.verdicts == ()
    assert len(run.assignment.left) == 80
    assert torch.equal(run(torch.randn(8, 8)), torch.zeros(8, 8))


def test_the_fastest_is_chosen_and_remembered(monkeypatch, tmp_path):
    calls = []

    def least(*given):
        calls.append(1)
        return operations(*given)

    for turn in range(2):
        calls.clear()
        run = compiled(monkeypatch, Slow(), Fast(), least=least, cache=tmp_path)
        assert run.backend == "fast"
        (verdict,) = run.verdicts
        assert verdict.used
        assert verdict.part <= 1
        assert bool(calls) is (turn == 0)
        assert torch.equal(run(torch.randn(8, 8)), torch.zeros(8, 8))
    assert "fast" in run.report()


def test_what_the_fastest_leaves_to_torch_goes_to_another(monkeypatch, tmp_path):
    left = Half("left", "mul.Tensor", "tanh.default")
    right = Half("right", "sub.Tensor", "sin.default")
    for turn in range(2):
        run = compiled(monkeypatch, left, right, model=Halves, cache=tmp_path)
        assert run.backend in ("left+right", "right+left")
        assert {verdict.runtime for verdict in run.verdicts if verdict.used} == {"left", "right"}
        assert run.assignment.left == ()
        assert torch.equal(run(torch.randn(8, 8)), torch.zeros(8, 8))
        assert len(run.candidates) == (1 if turn else 4)


def test_what_was_chosen_in_haste_does_not_hold_for_more_time(monkeypatch, tmp_path):
    for seconds, backend in ((0, "aten"), (60, "fast"), (0, "fast")):
        run = compiled(monkeypatch, Fast(), cache=tmp_path, seconds=seconds)
        assert run.backend == backend
        assert len(run.candidates) == (2 if (seconds, backend) != (0, "fast") else 1)


def test_without_time_torch_runs_all(monkeypatch):
    run = compiled(monkeypatch, Fast(), seconds=0)
    assert run.backend == "aten"
    assert run.candidates[0].reason == "there was no time to try it"


def test_gradients_are_refused():
    with pytest.raises(ExecutionError, match="the backend 'auto' has no gradients"):
        torch_ir.compile(extract_ir(nn.ReLU(), (torch.ones(2),)), backend="auto", grad=True)


@pytest.mark.parametrize("rows", [1, 3])
def test_arguments_that_torch_refuses_are_not_timed_with(rows):
    ir = torch_ir.parse(f"""ir {{
      input %x: f32[{rows}]
      input %i: i64[2]
      %y: f32[{rows}] = aten.index_fill.int_Scalar(%x, 0, %i, 2.0)
      return %y
    }}""")
    run = torch_ir.compile(ir, {}, backend="auto", seconds=2)
    (made,) = run(torch.zeros(rows), torch.tensor([0, 0]))
    assert made.tolist() == [2.0, *[0.0] * (rows - 1)]


def test_where_torch_refuses_all_made_up_arguments_it_runs_the_program():
    ir = torch_ir.parse("""ir {
      input %x: f32[3]
      input %i: i64[1]
      %two: i64[1] = aten.sub.Scalar(%i, 7)
      %y: f32[1] = aten.gather.default(%x, 0, %two)
      return %y
    }""")
    run = torch_ir.compile(ir, {}, backend="auto", seconds=2)
    (made,) = run(torch.arange(3.0), torch.tensor([9]))
    assert made.tolist() == [2.0]


REAL = auto.least


class Row(nn.Module):
    """A decode step: it writes a row of a table, at a place that each call moves on."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.zeros(4, 8))
        self.register_buffer("place", torch.zeros(1, dtype=torch.int64))

    def forward(self, x, place):
        self.table.index_copy_(0, self.place, x[:1])
        self.place.add_(1)
        row = self.table[place]
        place.add_(1)
        x.mul_(2)
        for _ in range(40):
            row = (row * 0).tanh()
        return row + self.table.sum()


@pytest.mark.parametrize("is_given", [False, True], ids=["drawn", "given"])
def test_calls_are_timed_as_the_first_whatever_they_write(is_given, monkeypatch):
    def least(functions, seconds=0.4, renewals=()):
        return REAL(functions, 0.001, renewals)

    monkeypatch.setattr(auto, "installed_runtimes", lambda: ["slow", "fast"])
    monkeypatch.setattr(auto, "find_backend", {"slow": Slow(), "fast": Fast()}.__getitem__)
    monkeypatch.setattr(auto, "least", least)
    given = torch.ones(2, 8), torch.zeros(1, dtype=torch.int64)
    kept = [tensor.clone() for tensor in given]
    model = Row()
    weights = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    run = torch_ir.compile(
        extract_ir(model, given),
        weights,
        backend="auto",
        verify=[given] if is_given else True,
    )
    assert all(map(torch.equal, given, kept))
    for place in range(4):
        tensors = torch.ones(2, 8), torch.tensor([place])
        twin = [tensor.clone() for tensor in tensors]
        assert torch.equal(run(*tensors), model(*twin))
        assert all(map(torch.equal, tensors, twin))


@pytest.mark.parametrize("backend", ["auto", Slow()], ids=["auto", "named"])
def test_given_arguments_have_to_be_those_of_a_call(backend):
    ir = extract_ir(nn.Embedding(3, 2), (torch.tensor([1, 2]),))
    weights = nn.Embedding(3, 2).state_dict()
    for given, kind, told in (
        (torch.ones(2, 3), InputError, "input 0 (%input: i64[2]) has the wrong dtype"),
        (torch.ones(3).long(), InputError, "input 0 (%input: i64[2]) has the wrong shape"),
        (None, InputError, "input 0 (%input: i64[2]) must be a tensor, got NoneType"),
        (torch.tensor([1, 3]), ExecutionError, "aten.embedding.default failed: index out of"),
    ):
        with pytest.raises(kind) as raised:
            torch_ir.compile(ir, weights, backend=backend, verify=[(given,)])
        assert told in str(raised.value)


@pytest.mark.parametrize("tolerance", ["1", -1.0, float("nan")])
def test_a_tolerance_is_a_number(tolerance):
    ir = extract_ir(nn.ReLU(), (torch.ones(2),))
    with pytest.raises(InvalidIRError) as raised:
        torch_ir.compile(ir, backend=Slow(), tolerance=tolerance)
    assert str(raised.value) == f"a tolerance is a number from 0 on, got {tolerance!r}"


@pytest.mark.parametrize("backend", ["aten", "tuned", Slow()], ids=str)
def test_random_numbers_go_on_as_if_nothing_was_compiled(backend):
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 8))
    ir = extract_ir(model, (torch.ones(2, 8),))
    before = torch.get_rng_state()
    torch_ir.compile(ir, model.state_dict(), backend=backend)
    assert torch.equal(torch.get_rng_state(), before)
