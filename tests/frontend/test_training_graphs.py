"""Forward and backward in one program: the result, and the gradient of each weight and input."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn
from torch.export.experimental import _export_forward_backward

import torch_ir
from torch_ir.executor import IRExecutor
from whole_way import kept, same


class Regression(nn.Module):
    """A loss alone, and a buffer that counts."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 2)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x, y):
        self.calls.add_(1)
        return F.mse_loss(self.last(self.first(x).tanh()), y)


class Normalized(nn.Module):
    """A loss after layers with statistics and with random numbers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 3)
        )

    def forward(self, x, labels):
        return F.cross_entropy(self.layers(x), labels)


class Tied(nn.Module):
    """A weight that is used twice."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(7, 4)

    def forward(self, tokens, labels):
        return F.cross_entropy(self.words(tokens) @ self.words.weight.T, labels)


LABELS = torch.tensor([0, 2, 1])
X = torch.arange(12.0).reshape(3, 4).sin()
CASES = [
    (Regression, (X, X[:, :2].cos()), True),
    (Normalized, (X, LABELS), False),
    (Tied, (LABELS + 3, LABELS), False),
]


def close(left, right):
    """Whether two results are the same but for rounding."""
    torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-6)
    return True


@pytest.mark.parametrize(("make", "args", "exact"), CASES)
@pytest.mark.filterwarnings("ignore:the model is in training mode")
def test_a_train_step_gives_the_loss_and_the_gradients_of_eager(make, args, exact):
    # torch decomposes some backward operators, and sums in another order than eager then
    agree = same if exact else close
    torch.manual_seed(0)
    model = make().train()
    state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    joint = _export_forward_backward(torch.export.export(model, args))
    ir = kept(torch_ir.convert_exported_program(joint, "step"))
    executor = IRExecutor(ir, state)
    for seed in (1, 2):
        torch.manual_seed(seed)
        loss, gradients = executor(*args)
        torch.manual_seed(seed)
        model.zero_grad()
        expected = model(*args)
        expected.backward()
        assert agree(loss, expected.detach())
        assert agree(gradients, {key: p.grad for key, p in model.named_parameters()})
    buffers = dict(model.named_buffers())
    assert agree(executor.buffers, {key: buffers[key] for key in executor.buffers})
    assert bool(executor.buffers) == bool(buffers)


def test_a_train_step_descends():
    torch.manual_seed(0)
    model, args = Regression(), CASES[0][1]
    joint = _export_forward_backward(torch.export.export(model, args))
    ir = torch_ir.convert_exported_program(joint)
    weights = {key: tensor.detach().clone() for key, tensor in model.state_dict().items()}
    losses = []
    for _ in range(5):
        loss, gradients = IRExecutor(ir, weights)(*args)
        losses.append(float(loss))
        weights = {key: w - 0.1 * gradients.get(key, 0) for key, w in weights.items()}
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]
