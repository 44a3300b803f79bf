"""Results of runtimes share memory with arguments, weights and each other as those of eager do."""

from importlib.util import find_spec
from itertools import combinations

import pytest
import torch
from torch import nn

import torch_ir
from backends.torch_again import TorchAgain
from torch_ir import extract_ir

pytestmark = pytest.mark.filterwarnings("ignore")


class Apart(TorchAgain):
    """A runtime that gives memory of its own, and in order."""

    name = "apart"

    def build(self, program, options):
        run = program.module()
        return lambda *given: [torch.clone(x).contiguous() for x in run(*given)]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.w = nn.Parameter(torch.randn(8, 8))


class Views(Model):
    def forward(self, x):
        y = self.fc(x).relu()
        return y, y.t(), x[1:], self.w.t(), y.unsqueeze(0).expand(2, -1, -1), y.t().exp()


class Pieces(Model):
    def forward(self, x):
        a, b = self.fc(x).relu().chunk(2, 1)
        return a, b, b + 1, *torch.split(self.fc(x), [1, 3]), *torch.unbind(x)


class OfResultsAlone(Model):
    def forward(self, x):
        y = self.fc(x).sigmoid()
        return y.view(2, 2, 8)[0], y.view(-1), y.t().contiguous()


class Written(Model):
    def forward(self, x):
        old = x + 1
        x.mul_(2)
        return x, x[1:].t(), self.fc(x), old


class WrittenThroughViews(Model):
    def forward(self, x):
        v = x.view(-1)
        v.mul_(2)
        w = x[1:]
        w.add_(1)
        return v, w, self.fc(x), x[:].t_()


class WrittenWithAResult(Model):
    def forward(self, x):
        y = self.fc(x)
        x.copy_(y)
        return y, x, y.view(-1)


class Autocast(Model):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.fc(x)
        z = self.fc(x)
        return y, y.t(), x[0], z, z.t()


class State(Model):
    """Results that show buffers, which each call changes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.zeros(4, 8))
        self.register_buffer("c", torch.ones(4, 8))

    def forward(self, x):
        y = self.fc(x).relu()
        self.b.add_(y)
        v = self.c[1:]
        v.mul_(2)
        return self.b[1:], self.b, y + 1, self.b.t(), v, self.c.view(-1)


def shared(results, x, model):
    """Which of all that the caller sees shares memory, by place."""
    seen = enumerate([*results, x, *model.parameters()])
    pairs = combinations([(i, t.untyped_storage().data_ptr()) for i, t in seen], 2)
    return {(i, j) for (i, one), (j, other) in pairs if one == other}


@pytest.fixture(params=[Apart(), "onnxruntime", "openvino", "executorch", "inductor"])
def backend(request):
    name = request.param
    if isinstance(name, str) and name != "inductor" and find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


@pytest.mark.parametrize(
    "kind",
    [Views, Pieces, OfResultsAlone, Written, WrittenThroughViews, WrittenWithAResult, Autocast],
)
def test_results_share_memory_as_in_eager(kind, backend):
    torch.manual_seed(0)
    model, x = kind().eval().requires_grad_(False), torch.randn(4, 8)
    ir = extract_ir(model, (x.clone(),))
    run = torch_ir.compile(ir, dict(model.named_parameters()), backend=backend)
    assert any(verdict.used for verdict in run.verdicts)
    for _ in range(2):
        given, wanted_given = x.clone(), x.clone()
        results, wanted = run(given), model(wanted_given)
        for made, want in zip((*results, given), (*wanted, wanted_given), strict=True):
            tolerance = 1e-2 if want.dtype == torch.bfloat16 else 1e-5
            torch.testing.assert_close(made, want, check_stride=False, rtol=0, atol=tolerance)
        assert shared(results, given, model) == shared(wanted, wanted_given, model)


def test_results_that_show_state_are_those_of_each_call(backend):
    torch.manual_seed(0)
    model, again = State().eval().requires_grad_(False), State().eval().requires_grad_(False)
    again.load_state_dict(model.state_dict())
    ir = extract_ir(model, (torch.randn(4, 8),))
    run = torch_ir.compile(ir, again.state_dict(), backend=backend)
    for _ in range(3):
        x = torch.randn(4, 8)
        for made, want in zip(run(x), model(x), strict=True):
            torch.testing.assert_close(made, want, check_stride=False, rtol=0, atol=1e-5)
