"""The backend inductor: sizes that vary, fallback, and what it does not take."""

import pytest
import torch
from torch import nn
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler
from torch.export import Dim

import torch_ir
from torch_ir import extract_ir
from torch_ir.errors import CompileError

pytestmark = pytest.mark.filterwarnings("ignore")


def has_compiler():
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return False
    return True


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        y = self.fc(x).relu() / x.shape[0]
        return y * torch.view_as_real(torch.complex(y, y)).sum()


@pytest.mark.skipif(not has_compiler(), reason="inductor needs a C++ compiler")
def test_sizes_vary_and_torch_runs_what_inductor_does_not_take():
    model = Net()
    ir = extract_ir(model, (torch.randn(3, 4),), dynamic_shapes=({0: Dim("b", min=2, max=64)},))
    run = torch_ir.compile(ir, model.state_dict(), backend="inductor")
    for rows in (3, 7, 2):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
    used = [verdict for verdict in run.verdicts if verdict.used]
    assert {"linear", "relu"} <= {name for verdict in used for name in verdict.nodes}
    assert "aten.complex.default" in {node.op_type for node in run.assignment.left}


def test_without_fallback_everything_has_to_be_taken():
    ir = extract_ir(Net(), (torch.randn(3, 4),))
    with pytest.raises(CompileError, match="'inductor' does not take 2 of"):
        torch_ir.compile(ir, Net().state_dict(), backend="inductor", options={"fallback": False})
