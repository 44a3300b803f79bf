"""Decomposition of programs that make sparse tensors, which types do not tell."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from torch_ir import IRExecutor, decompose, extract_ir, functionalize, validate
from torch_ir.errors import PassError


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def _written(x):
    indices = torch.tensor([[0, 1]])
    made = torch.sparse_coo_tensor(indices, x.flatten()[:2], (3,)).to_dense()
    made[::2].add_(made[::2].clone())
    return made


CALLS = {
    "to dense": lambda x: x.to_sparse().to_dense() * 2,
    "twice": lambda x: (x.to_sparse() * 2).to_dense(),
    "joined": lambda x: torch.cat([x.to_sparse(), x.to_sparse()]).to_dense() + 1,
    "compressed": lambda x: x.to_sparse_csr().to_dense().sin(),
    "written": _written,
}
X = torch.tensor([[1.0, 0.0, -2.0], [0.0, 3.0, 4.0]])


@pytest.mark.parametrize("name", CALLS)
def test_results_are_dense_where_eager_gives_dense_ones(name):
    model = Call(CALLS[name])
    ir, wanted = extract_ir(model, (X,)), model(X)
    for done in (ir, functionalize(ir), decompose(ir)):
        made = IRExecutor(done, {})(X)
        assert made.layout == wanted.layout
        assert torch.equal(made, wanted)
    assert validate(ir, {}, (X,)).verdict == "agree"


def test_what_is_written_for_dense_tensors_takes_no_sparse_one():
    ir = extract_ir(Call(lambda x: x.to_sparse().t().to_dense()), (X,))
    with pytest.raises(PassError) as raised:
        decompose(ir)
    assert (
        "node 't': aten.t.default: it may take a sparse tensor, and decompositions are of dense "
        "ones" in str(raised.value)
    )
    kept = decompose(ir, preserve=("aten.t.default",))
    assert torch.equal(IRExecutor(kept, {})(X), X.t())
