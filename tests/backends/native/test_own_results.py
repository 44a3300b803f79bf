"""Results are the caller's: what is written in one is in no other, and in no later one."""

from importlib.util import find_spec

import pytest
import torch
from torch import nn

import torch_ir
from backends.torch_again import TorchAgain
from torch_ir import extract_ir

pytestmark = pytest.mark.filterwarnings("ignore")


class Remembered(TorchAgain):
    """A runtime that computes what no argument decides once, and gives the same memory again."""

    name = "remembered"

    def build(self, program, options):
        run, args = program.module(), program.example_inputs[0]
        first, second = run(*args), run(*[x * 2 - 1 for x in args])
        pairs = enumerate(zip(first, second, strict=True))
        known = {place: one for place, (one, other) in pairs if torch.equal(one, other)}
        return lambda *given: [known.get(i, made) for i, made in enumerate(run(*given))]


class Deciding(nn.Module):
    """Results that arguments decide, that weights decide, and that neither does."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("bias", torch.tensor([1.0, -2.0, 0.5, 3.0]))

    def forward(self, x):
        y = self.fc(x)
        return (
            *(y.relu(), y.tanh() * self.bias, x + 0),
            *(self.bias * 2 + 1, self.bias + 0, self.bias.unsqueeze(0) + 0, self.bias.relu()),
            *(self.bias.expand_as(x) + 0, torch.ones_like(x) * 3 + self.bias),
            *(torch.arange(4.0) + 1, torch.ones(4, 4).tril(), x.new_zeros(4)),
        )


@pytest.fixture(params=["remembered", "onnxruntime", "openvino", "executorch", "inductor"])
def backend(request):
    if request.param == "remembered":
        return Remembered()
    if request.param != "inductor" and find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return request.param


@pytest.mark.parametrize("verify", [True, False], ids=["verified", "unverified"])
def test_what_is_written_in_results_is_in_no_later_ones(backend, verify):
    if not verify and isinstance(backend, Remembered):
        pytest.skip("what build returns is believed")
    model, x = Deciding().eval(), torch.randn(3, 4)
    run = torch_ir.compile(
        extract_ir(model, (x,)), model.state_dict(), backend=backend, verify=verify
    )
    assert any(verdict.used for verdict in run.verdicts)
    kept = []
    for _ in range(4):
        x = torch.randn(3, 4)
        results, wanted = run(x), model(x)
        for result, want in zip(results, wanted, strict=True):
            torch.testing.assert_close(result, want, check_stride=False)
        for result in results:
            result.fill_(7.0)
        kept.append(results)
    assert all(bool((result == 7).all()) for results in kept for result in results)
