"""Programs with sparse tensors give eager's values, or are refused where data decides a size."""

from __future__ import annotations

import pytest
import torch

from functions import Call, CallOfTwo
from torch_ir import IRExecutor, extract_ir, to_exported_program
from torch_ir.dialects import verify
from torch_ir.errors import ConversionError
from torch_ir.executor import check_types

pytestmark = pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state")

X = torch.tensor([[1.0, 0.0, -2.0], [0.0, 3.0, 4.0], [1.0, 0.0, 0.0]])
Y = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [5.0, 0.0, 0.0]])

WHOLE = {
    "coalesce": lambda x: x.to_sparse().coalesce(),
    "is coalesced": lambda x: x.to_sparse().is_coalesced(),
    "rows": lambda x: x.to_sparse_csr().crow_indices(),
    "columns": lambda x: x.to_sparse_csc().ccol_indices(),
    "dimensions": lambda x: x.to_sparse().sparse_dim(),
    "mask": lambda x: x.sparse_mask(x.to_sparse()),
    "product": lambda x: torch.sparse.mm(x.to_sparse(), x),
    "sparse product": lambda x: torch.sparse.mm(x.to_sparse(), x.to_sparse()),
    "sum": lambda x: torch.sparse.sum(x.to_sparse()),
    "sum of rows": lambda x: torch.sparse.sum(x.to_sparse(), 0),
    "softmax": lambda x: torch.sparse.softmax(x.to_sparse(), 1),
    "added product": lambda x: torch.sparse.addmm(x, x.to_sparse(), x),
    "transposed": lambda x: x.to_sparse().t() @ x,
    "resized": lambda x: x.to_sparse().sparse_resize_((4, 4), 2, 0),
    "sampled": lambda x: torch.sparse.sampled_addmm(x.to_sparse_csr(), x, x),
    "other layout": lambda x: x.to_sparse_csr().to_sparse(),
    "other dtype": lambda x: x.to_sparse().to(torch.float64) * 2,
    "times dense": lambda x: x.to_sparse() * x,
    "made of parts": lambda x: torch.sparse_coo_tensor(
        torch.tensor([[0, 0], [1, 1]]), x.flatten()[:2], (2, 2)
    ).coalesce(),
    "written": lambda x: x.to_sparse().clone().add_(x.to_sparse()),
    "values of parts": lambda x: torch.sparse_coo_tensor(
        torch.tensor([[0, 0], [1, 1]]), x.flatten()[:2], (2, 2)
    )._values(),
}
COUNTED = {
    "_nnz": (lambda x: x * x.to_sparse()._nnz(), 0),
    "values": (lambda x: x.to_sparse().values(), 0),
    "_values": (lambda x: torch.zeros(x.to_sparse()._values().shape[0]), 0),
    "indices": (lambda x: x.to_sparse().coalesce().indices(), 0),
    "_indices": (lambda x: x.to_sparse()._indices(), 0),
    "col_indices": (lambda x: x.to_sparse_csr().col_indices(), 0),
    "row_indices": (lambda x: x.to_sparse_csc().row_indices(), 0),
}


def dense(value):
    """A result as a plain value, with its layout."""
    return (value.layout, value.to_dense()) if isinstance(value, torch.Tensor) else ("", value)


@pytest.mark.parametrize("name", WHOLE)
def test_what_computes_with_sparse_tensors_as_a_whole_gives_what_eager_gives(name):
    model = Call(WHOLE[name])
    ir = extract_ir(model, (X,))
    assert not [*ir.check(), *check_types(ir), *verify(ir)]
    for x in (X, Y):
        (layout, made), (wanted_layout, wanted) = dense(IRExecutor(ir)(x)), dense(model(x))
        assert layout == wanted_layout
        assert torch.equal(torch.as_tensor(made), torch.as_tensor(wanted))


@pytest.mark.parametrize("name", COUNTED)
def test_what_depends_on_how_many_elements_are_stored_is_refused(name):
    function, count = COUNTED[name]
    with pytest.raises(ConversionError) as caught:
        extract_ir(Call(function), (X,))
    assert (
        f"node '{name}': aten.{name}.default tells how many elements a sparse tensor stores, "
        f"which data decides and torch.export takes for {count}" in str(caught.value)
    )
    assert str(caught.value).endswith(
        "Compute with the sparse tensor as a whole, or give its indices and values as dense "
        "tensors."
    )


LAYOUTS = {
    "coo": torch.Tensor.to_sparse,
    "csr": torch.Tensor.to_sparse_csr,
    "csc": torch.Tensor.to_sparse_csc,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_weights_and_arguments_come_back_from_an_exported_program(layout):
    model = CallOfTwo(lambda x, y: (model.held @ y, x.to_dense() + y))
    model.register_buffer("held", LAYOUTS[layout](X))
    args = (LAYOUTS[layout](Y), X)
    ir = extract_ir(model, args)
    back = extract_ir(to_exported_program(ir, model.state_dict()))
    for key in ("layouts", "input_layouts"):
        assert back.metadata[key] == ir.metadata[key]
    for made, wanted in zip(
        IRExecutor(back, model.state_dict())(*args), model(*args), strict=True
    ):
        assert torch.equal(made, wanted)
