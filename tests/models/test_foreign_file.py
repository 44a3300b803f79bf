"""A file that pytorch-ir 0.2.3 wrote loads, is well-formed, and computes what torch computes.

``tests/golden/pytorch-ir-0.2.3.json`` was written by that PyPI package from ``Net`` below, in its
own environment with torch 2.13.0: ``extract_ir(Net().eval(), inputs(), strict=False).save(path)``.
"""

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # the field's own name

from torch_ir import IR, IRExecutor

GOLDEN = Path(__file__).parents[1] / "golden/pytorch-ir-0.2.3.json"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 6)
        self.bn = nn.BatchNorm2d(3)
        self.c = nn.Conv2d(3, 3, 3, padding=1)
        self.emb = nn.Embedding(10, 6)
        self.ln = nn.LayerNorm(6)
        self.pool = nn.MaxPool2d(2)
        self.register_buffer("npb", torch.ones(4), persistent=False)
        self.idx = torch.tensor([1, 0])
        mask = torch.tensor([[0.0, float("-inf")], [0.0, 0.0]])
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x, im, tokens):
        y = self.l(x * self.npb)
        a, b = torch.split(y, 3, dim=1)
        z = torch.cat([b, a], 1).softmax(-1)[self.idx]
        z = self.ln(z.view(-1, 6) + self.emb(tokens))
        w = z.masked_fill(z < 0, float("-inf"))
        q = z.view(1, 1, 2, 6)
        s = F.scaled_dot_product_attention(q, q, q, attn_mask=self.mask)
        p = self.pool(self.bn(self.c(im)).relu_())
        g = p[:, [0, 2], :, [1, 0]]
        v, i = torch.max(z, dim=1)
        _, j = torch.topk(z, 2, dim=1)
        return z, p, v, {"i": i, "g": g}, w, s, j


def inputs():
    x = torch.arange(8.0).view(2, 4) / 3
    image = torch.arange(75.0).view(1, 3, 5, 5) / 75
    return x, image, torch.tensor([3, 7])


def test_it_is_well_formed_and_survives_our_format(tmp_path):
    ir = IR.load(GOLDEN)
    assert ir.check() == ()
    assert not any("getitem" in node.op_type for node in ir.nodes)
    assert [node.name for node in ir.nodes if node.operands is None] == []
    assert set(ir.constants) == {"idx", "lifted_tensor_0", "lifted_tensor_1", "npb", "mask"}
    assert set(ir.constants).isdisjoint(weight.name for weight in ir.weights)
    for name in ("m.json", "m.tir"):
        ir.save(tmp_path / name)
        assert IR.load(tmp_path / name) == ir


def test_it_computes_what_torch_computes():
    torch.manual_seed(0)
    model = Net().eval()
    executor = IRExecutor(IR.load(GOLDEN))
    executor.load_weights_from_state_dict(model.state_dict())
    got = executor.execute(inputs())
    with torch.no_grad():
        z, p, v, named, w, s, j = model(*inputs())
    want = (z, p, v, named["i"], named["g"], w, s, j)
    assert len(got) == len(want)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
