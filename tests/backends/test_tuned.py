"""Other kernels of torch's own: right, verified, and left out where they do not gain."""

import math
import warnings

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import extract_ir
from torch_ir.backends.torch import tuned

pytestmark = pytest.mark.filterwarnings("ignore")


class Residual(nn.Module):
    """Convolutions of each kind: with and without bias, norm, addition and relu after them."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second, self.second_norm = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8)
        self.third = nn.Conv2d(8, 8, 1, dilation=1)
        self.head = nn.Linear(8, 5)
        for norm in (self.norm, self.second_norm):
            nn.init.uniform_(norm.weight, 0.5, 2.0)
            nn.init.uniform_(norm.running_var, 0.5, 2.0)
            nn.init.normal_(norm.running_mean)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        y = self.second_norm(self.second(x))
        x = torch.max_pool2d(torch.relu(y + x), 2)
        x = x + self.third(x)  # the sum is read twice
        return self.head(x.flatten(2).transpose(1, 2)), x


MODELS = {
    "residual": (Residual, (2, 3, 12, 12)),
    "no bias": (lambda: nn.Linear(16, 8, bias=False), (4, 16)),
    "three axes": (lambda: nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 4)), (2, 3, 16)),
    "depthwise": (lambda: nn.Conv2d(4, 8, 3, padding=(1, 0), groups=4), (1, 4, 9, 7)),
}


@pytest.mark.parametrize("name", MODELS)
def test_whatever_is_rewritten_is_right_and_looks_like_eagers(name, monkeypatch):
    monkeypatch.setattr(tuned, "GAIN", math.inf)
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = make().eval()
    ir = extract_ir(model, (torch.randn(shape),))
    weights = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    run = torch_ir.compile(ir, weights, backend="tuned")
    anchors = {n.name for n in ir.nodes if n.op_type in ("aten.linear.default", tuned.CONVOLUTION)}
    assert anchors <= run.assignment.takers.keys()
    assert all(verdict.part <= 1 for verdict in run.verdicts if verdict.used)
    for _ in range(2):
        x = torch.randn(shape)
        with torch.no_grad():
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
    for key, tensor in model.state_dict().items():
        assert torch.equal(weights[key], tensor)


def test_what_does_not_gain_is_left_to_torch(monkeypatch):
    monkeypatch.setattr(tuned, "GAIN", 0.0)
    model = nn.Linear(16, 8)
    run = torch_ir.compile(
        extract_ir(model, (torch.randn(4, 16),)), model.state_dict(), backend="tuned"
    )
    (verdict,) = run.verdicts
    assert not verdict.used
    assert verdict.reason.startswith("BackendError: torch's own kernels take ")


def test_what_has_no_other_kernel_is_refused_at_once():
    class Mixed(nn.Module):
        def forward(self, x, w):
            return torch.sin(x) @ w, nn.functional.linear(x, w)

    ir = extract_ir(Mixed(), (torch.randn(4, 4), torch.randn(4, 4)))
    reasons = torch_ir.backends.support(ir, tuned.TUNED).operators
    assert {row.operator: row.reason for row in reasons} == {
        "aten.linear.default": "its weight is computed",
        "aten.matmul.default": "torch has one kernel for it",
        "aten.sin.default": "torch has one kernel for it",
    }


@pytest.mark.parametrize("name", ["residual", "three axes"])
def test_it_takes_what_it_can_where_warnings_are_errors(name, monkeypatch):
    monkeypatch.setattr(tuned, "GAIN", math.inf)
    make, shape = MODELS[name]
    model, x = make().eval(), torch.randn(shape)
    ir = extract_ir(model, (x,))
    with warnings.catch_warnings(action="error"):
        run = torch_ir.compile(ir, model.state_dict(), backend="tuned")
    assert run.delegates
    assert not [verdict.reason for verdict in run.verdicts if not verdict.used]
