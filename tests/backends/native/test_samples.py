"""What samples prove of delegates, and what they do not."""

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import extract_ir
from torch_ir.backends import NativeBackend

pytestmark = pytest.mark.filterwarnings("ignore")


class Large(NativeBackend):
    """A runtime that gives one percent too much."""

    name = "large"
    version = "1"

    def build(self, program, options):
        run = program.module()
        return lambda *given: [result * 1.01 for result in run(*given)]


class Marked(nn.Module):
    def forward(self, x, ids):
        return x[ids == 87].tanh() * 2


class Scaled(nn.Module):
    def forward(self, x, scale):
        return x.tanh() * scale.item()


MASKED = (torch.tensor([0.5, 1.0, -2.0]), torch.tensor([87, 1, 87]))


def test_a_delegate_that_was_right_about_empty_tensors_is_judged_by_the_first_others():
    ir, (x, ids) = extract_ir(Marked(), MASKED), MASKED
    run = torch_ir.compile(ir, {}, backend=Large())
    (verdict,) = [verdict for verdict in run.verdicts if "tanh" in verdict.nodes]
    assert verdict.reason == "not judged enough yet: its next calls give torch's results"
    assert run(x, ids * 0).numel() == 0
    for _ in range(2):
        assert torch.equal(run(x, ids), Marked()(x, ids))
    (verdict,) = [verdict for verdict in run.verdicts if "tanh" in verdict.nodes]
    assert not verdict.used
    assert verdict.reason.startswith("2 of 2 values are off by up to 0.0")


class Absolute(NativeBackend):
    """A runtime that forgets signs."""

    name = "absolute"
    version = "1"

    def build(self, program, options):
        run = program.module()
        return lambda *given: [result.abs() for result in run(*given)]


class Beyond(NativeBackend):
    """A runtime that is wrong beside integers beyond a limit, and notes what it is called with."""

    name = "beyond"
    version = "1"

    def __init__(self, limit):
        self.limit, self.called = limit, []

    def build(self, program, options):
        run = program.module()

        def call(ids):
            self.called.append(ids.clone())
            return [result + (ids.max() > self.limit) for result in run(ids)]

        return call


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(200, 4)

    def forward(self, ids):
        return self.table(ids).tanh()


def test_two_sets_are_enough_for_a_program_of_integers_and_one_goes_far():
    model, ids, backend = Embedded(), torch.tensor([[5, 0, 7] * 500]), Beyond(9)
    run = torch_ir.compile(extract_ir(model, (ids,)), model.state_dict(), backend=backend)
    assert [verdict.used for verdict in run.verdicts] == [True]
    tried = {tuple(given.flatten().tolist()) for given in backend.called}
    assert sorted(map(max, tried)) == [1, 9]
    run = torch_ir.compile(extract_ir(model, (ids,)), model.state_dict(), backend=Beyond(8))
    assert not any(verdict.used for verdict in run.verdicts if "embedding" in verdict.nodes)


def test_two_calls_with_the_same_arguments_count_once():
    ir, (x, ids) = extract_ir(Marked(), MASKED), MASKED
    run = torch_ir.compile(ir, {}, backend=Absolute())
    for given in (x.abs(), x.abs(), x.abs(), x, x):
        assert torch.equal(run(given, ids), Marked()(given, ids))
    assert not any(verdict.used for verdict in run.verdicts if "tanh" in verdict.nodes)


def test_numbers_that_data_decides_are_known_of_samples():
    given = (torch.tensor([0.5, 1.0, -2.0]), torch.tensor(3.0))
    run = torch_ir.compile(extract_ir(Scaled(), given), {}, backend=Large())
    assert [verdict.used for verdict in run.verdicts] == [False, False]
    assert torch.equal(run(*given), Scaled()(*given))


class First(NativeBackend):
    """A runtime that names the first of equal elements."""

    name = "first"
    version = "1"

    def build(self, program, options):
        topk = torch.ops.aten.topk.default
        for node in program.graph.find_nodes(op="call_function", target=topk):
            node.target = first_of_equal
        return program.module()


def first_of_equal(values, k, **_):
    made = values.sort(stable=True, descending=True)
    return made.values[..., :k], made.indices[..., :k]


class Routed(nn.Module):
    def forward(self, x, marks):
        apart = x + torch.arange(16.0)
        weights, experts = torch.where(marks > 2**40, 200.0, apart).topk(2)
        order = experts.view(-1).sort(stable=True).indices
        return weights.view(-1)[order], order


def test_numbers_of_a_sample_that_only_integers_are_judged_by_are_not_compared():
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
    given = (x, torch.ones(8, 16, dtype=torch.int64))
    run = torch_ir.compile(extract_ir(Routed(), given), {}, backend=First())
    assert [verdict.reason for verdict in run.verdicts] == [""]


class Sparse(nn.Module):
    def forward(self, x):
        return x.relu().topk(3).indices + 1


def test_a_node_that_chooses_others_of_equal_elements_on_torch_stays_there():
    x = -torch.ones(4, 40)
    run = torch_ir.compile(extract_ir(Sparse(), (x,)), {}, backend=First(), verify=[(x,)])
    refused = {v.nodes: v.reason for v in run.verdicts if not v.used}
    assert refused == {("topk",): "of equal elements torch chooses others than the first"}
    assert torch.equal(run(x), Sparse()(x))


ATEN = torch.ops.aten


class Loose(NativeBackend):
    """A runtime that leaves out what keeps divisors from being 0."""

    name = "loose"
    version = "1"

    def build(self, program, options):
        for node in program.graph.nodes:
            if node.target in (ATEN.layer_norm.default, ATEN.group_norm.default):
                node.args = (*node.args[:4], 0.0, *node.args[5:])
        return program.module()


@pytest.mark.parametrize(
    ("module", "is_given"),
    [(nn.LayerNorm(6, eps=1e-12), False), (nn.GroupNorm(2, 4, eps=1e-12), True)],
    ids=str,
)
def test_norms_are_tried_with_rows_that_have_no_spread(module, is_given):
    model = nn.Sequential(module, nn.Tanh())
    x = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))
    verify = [(x,)] if is_given else True
    ir = extract_ir(model, (x,))
    run = torch_ir.compile(ir, model.state_dict(), backend=Loose(), verify=verify)
    assert {v.nodes: v.used for v in run.verdicts}[("tanh",)]
    assert not all(verdict.used for verdict in run.verdicts)
    x[1] = 0
    torch.testing.assert_close(run(x), model(x))
