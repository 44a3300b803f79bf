"""Kernels that take the memory of an operand for dense get one that is, or are not called."""

from __future__ import annotations

import pytest
import torch

import torch_ir
from infer.trusting_calls import eager, program_of
from torch_ir import IRExecutor, compile_graph
from torch_ir.errors import ExecutionError
from torch_ir.infer.preconditions.table import find_shape_fault

X, G, W = torch.randn(2, 4, 3), torch.randn(2, 4, 3), torch.rand(4)
_, MEAN, RSTD = torch.native_group_norm(X, W, W, 2, 4, 3, 2, 1e-5)
_, CENTER, SCALE = torch.native_layer_norm(X, (3,), None, None, 1e-5)
CUBE = torch.randn(1, 2, 4, 4, 4)
POOLED, PLACES = torch.ops.aten.adaptive_max_pool3d(CUBE, [2, 2, 2])
_, PLACES_3D = torch.ops.aten.fractional_max_pool3d(
    CUBE, [2, 2, 2], [2, 2, 2], torch.rand(1, 2, 3)
)
TABLE, INDICES, OFFSETS = torch.rand(5, 3), torch.tensor([0, 3, 4]), torch.tensor([0, 2])
BAG = {"weight": TABLE, "indices": INDICES, "offsets": OFFSETS}
NORM = {"grad_out": G, "input": X, "mean": MEAN, "rstd": RSTD, "weight": W}
NORM |= {"N": 2, "C": 4, "HxW": 3, "group": 2, "output_mask": [True, True, True]}
LAYER = {"grad_out": G, "input": X, "normalized_shape": [3], "mean": CENTER, "rstd": SCALE}
LAYER |= {"weight": W[:3], "bias": W[:3], "output_mask": [True, True, True]}

CALLS = {
    "aten._embedding_bag.default": (BAG, ("indices", "offsets")),
    "aten._embedding_bag_forward_only.default": (BAG, ("indices", "offsets")),
    "aten._masked_softmax.default": (
        {"self": X, "mask": X > 0, "dim": 2, "mask_type": 2},
        ("self",),
    ),
    "aten._weight_int8pack_mm.default": (
        {"self": X[0], "mat2": torch.ones(5, 3, dtype=torch.int8), "scales": torch.rand(5)},
        ("scales",),
    ),
    "aten.median.dim": ({"self": X, "dim": 1}, ("self",)),
    "aten.nanmedian.dim": ({"self": X, "dim": 1}, ("self",)),
    "aten.native_group_norm.default": (
        {"input": X, "weight": W, "bias": W, "N": 2, "C": 4, "HxW": 3, "group": 2, "eps": 1e-5},
        ("weight", "bias"),
    ),
    "aten.native_group_norm_backward.default": (NORM, ("grad_out", "input", "mean", "weight")),
    "aten.native_layer_norm_backward.default": (LAYER, ("mean", "rstd")),
    "aten.adaptive_max_pool3d_backward.default": (
        {"grad_output": POOLED, "self": CUBE, "indices": PLACES},
        ("indices",),
    ),
    "aten.fractional_max_pool3d_backward.default": (
        {
            "grad_output": POOLED,
            "self": CUBE,
            "kernel_size": [2, 2, 2],
            "output_size": [2, 2, 2],
            "indices": PLACES_3D,
        },
        ("indices",),
    ),
    "aten.rrelu_with_noise.default": (
        {"self": X, "noise": G.clone(), "training": True},
        ("noise",),
    ),
}


def by_columns(tensor):
    """The same numbers, with the first of two last dimensions side by side in memory."""
    return tensor.mT.contiguous().mT


@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_flash_attention_is_not_called_with_columns_side_by_side(name):
    op_type = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    arguments = {role: torch.randn(1, 1, 8, 8) for role in ("query", "key", "value")}
    ir, tensors = given(op_type, arguments)
    graph = compile_graph(ir)
    graph.eval([tensor.clone() for tensor in tensors])
    wrong = [by_columns(t) if t is arguments[name] else t.clone() for t in tensors]
    with pytest.raises(ExecutionError, match=f"{name} has strides .*, and has to end with 1"):
        graph.eval(wrong)


def test_flash_attention_is_not_called_with_fewer_values_than_keys():
    op_type = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    arguments = {role: torch.randn(1, 2, 4, 8) for role in ("query", "key", "value")}
    assert find_shape_fault(op_type, (), arguments) is None
    arguments["value"] = torch.randn(1, 1, 4, 8)
    expected = "value is [1, 1, 4, 8], and has to be [1, 2, 4, 8]"
    assert find_shape_fault(op_type, (), arguments) == expected


def repeated(tensor):
    """The same shape, with one element in memory for all."""
    return tensor.reshape(-1)[:1].clone().expand(tensor.shape)


def given(op_type, arguments):
    made = eager(op_type, arguments)
    results = [made] if isinstance(made, torch.Tensor) else [*made]
    return program_of(op_type, arguments, results)


@pytest.mark.parametrize("op_type", CALLS)
def test_a_kernel_that_takes_memory_for_dense_is_not_called_with_other(op_type):
    arguments, names = CALLS[op_type]
    ir, tensors = given(op_type, arguments)
    graph = compile_graph(ir)
    graph.eval([tensor.clone() for tensor in tensors])
    for name in names:
        wrong = [repeated(t) if t is arguments[name] else t.clone() for t in tensors]
        with pytest.raises(ExecutionError, match=r"ha(s|ve) to (be contiguous|repeat no)"):
            graph.eval(wrong)
    assert graph.eval([tensor.clone() for tensor in tensors]) is not None


def test_the_remedy_is_a_copy():
    ir = torch_ir.parse("""
ir {
  input %x: f32[1, 3]
  %wide: f32[7, 3] = aten.expand.default(%x, size=[7, 3])
  %m.0: f32[3], %m.1: i64[3] = m: aten.median.dim(%wide, dim=0)
  return %m.0
}""")
    with pytest.raises(ExecutionError) as caught:
        compile_graph(ir).eval((torch.ones(1, 3),))
    assert str(caught.value) == (
        "node 'm': aten.median.dim cannot take these arguments: self has strides [0, 1], and has "
        "to repeat no element\n"
        "    %m.0: f32[3], %m.1: i64[3] = aten.median.dim(%wide, dim=0)\n"
        "Copy it in the model, by .contiguous(), or run what torch_ir.decompose(ir) makes."
    )


LOWERED = {
    "bags": (
        lambda w, i: torch.nn.functional.embedding_bag(i, w),
        (TABLE, INDICES[None]),
    ),
    "bags from": (
        lambda w, i, o: torch.nn.functional.embedding_bag(i, w, o),
        (TABLE, INDICES, OFFSETS),
    ),
    "median": (lambda x: x.median(1).values, (X,)),
    "nanmedian": (lambda x: x.nanmedian(-1).values, (X,)),
    "windows": (lambda x: x.unfold(1, 2, 1), (X,)),
}


def turned(tensor):
    """The same values with gaps, in the opposite order of dimensions."""
    dims = [*range(tensor.dim())][::-1]
    wide = torch.stack([tensor.permute(dims)] * 2, -1)
    return wide[..., 0].permute(dims)


@pytest.mark.parametrize("name", LOWERED)
def test_lowered_programs_run_whatever_the_strides_of_what_they_are_given(name):
    function, inputs = LOWERED[name]

    class Model(torch.nn.Module):
        def forward(self, *tensors):
            return function(*tensors)

    ir = torch_ir.extract_ir(Model(), inputs)
    wanted = function(*[t.clone() for t in inputs])
    for lower in (torch_ir.decompose, lambda ir: torch_ir.to_edge(ir).ir()):
        assert torch.equal(IRExecutor(lower(ir))(*map(turned, inputs)), wanted)
