"""Recurrent networks that train: their decomposition drops out between layers, as kernels do."""

import pytest
import torch
from torch import nn

from torch_ir import IRExecutor, decompose, extract_ir, validate

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


class Network(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.network = KINDS[kind](4, 3, 3, dropout=0.5, **options)

    def forward(self, x):
        return self.network(x)[0]


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"batch_first": True}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_dropout_between_layers_is_written_out(kind, options):
    model = Network(kind, **options)
    x = torch.randn(2, 4, 4) if options.get("batch_first") else torch.randn(4, 2, 4)
    ir, weights = extract_ir(model, (x,)), dict(model.named_parameters())
    torch.manual_seed(3)
    wanted = model(x)
    state = torch.get_rng_state()
    torch.manual_seed(3)
    made = IRExecutor(decompose(ir), weights)(x)
    assert torch.allclose(made, wanted, atol=1e-5)
    assert torch.equal(torch.get_rng_state(), state)
    assert validate(ir, weights, (x,)).verdict != "disagree"


def test_networks_that_do_not_train_drop_nothing_out():
    model = Network("lstm").eval()
    x = torch.randn(4, 2, 4)
    lowered = decompose(extract_ir(model, (x,)))
    assert not any("dropout" in node.op_type or "rand" in node.op_type for node in lowered.nodes)
    weights = dict(model.named_parameters())
    made = IRExecutor(lowered, weights)(x)
    assert torch.allclose(made, model(x), atol=1e-5)
