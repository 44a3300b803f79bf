"""Decomposition of programs that make sparse tensors, which types do not tell."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from functions import Call
from torch_ir import IRExecutor, decompose, extract_ir, functionalize, parse, validate
from torch_ir.errors import PassError


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


def test_what_torch_cannot_write_out_of_a_sparse_tensor_is_told_by_its_layout():
    softmax = Call(lambda x: torch.sparse.softmax(x.to_sparse(), 1).to_dense())
    with pytest.raises(PassError) as raised:
        decompose(extract_ir(softmax, (X,)))
    assert "it may take a sparse tensor" in str(raised.value)


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


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_an_input_that_is_sparse_is_known_to_be(layout):
    x = X.to_sparse() if layout == "coo" else X.to_sparse_csr()
    ir = extract_ir(Call(lambda given: (given * 2).to_dense()), (x,))
    assert ir.metadata["input_layouts"] == {"x": f"sparse_{layout}"}
    for done in (ir, functionalize(ir), decompose(ir), parse(str(decompose(ir)))):
        made = IRExecutor(done, {})(x)
        assert made.layout == torch.strided
        assert torch.equal(made, X * 2)


class GraphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.eye(3).roll(1, 0).to_sparse())
        self.linear = nn.Linear(4, 4)

    def forward(self, x, other):
        x = torch.nn.functional.silu(torch.sparse.mm(self.edges, self.linear(x)))
        x = torch.nn.functional.silu(torch.sparse.mm(other, x) + x)
        return torch.log_softmax(other @ x, 1), (x[:, :3] + other).sigmoid()


def test_products_with_dense_tensors_are_dense():
    model, x = GraphNet().requires_grad_(False), torch.randn(3, 4)
    args = x, torch.rand(3, 3).to_sparse()
    ir, wanted = extract_ir(model, args), model(*args)
    for done in (ir, decompose(ir)):
        for made, expected in zip(
            IRExecutor(done, model.state_dict())(*args), wanted, strict=True
        ):
            assert made.layout == torch.strided
            torch.testing.assert_close(made, expected)
