"""Arithmetic operations by formula: as torch counts products, and unknown where unknown."""

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from torch_ir import extract_ir
from torch_ir.ir import OpNode, TensorMeta
from torch_ir.ops.flops import flops


def shapes(metas):
    return [tuple(meta.shape) for meta in metas]


def count(node):
    return flops(node.op_type, node.arguments(shapes(node.inputs)), shapes(node.outputs))


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def ones(*shape):
    return torch.ones(shape)


def counted_by_torch(model, args):
    with (
        torch.no_grad(),
        torch.backends.mkldnn.flags(enabled=False),
        sdpa_kernel(SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        model(*args)
    return counter.get_total_flops()


@pytest.mark.parametrize(
    ("model", "args"),
    [
        (nn.Linear(3, 4), [ones(5, 2, 3)]),
        (nn.Conv1d(4, 6, 3, stride=2), [ones(2, 4, 9)]),
        (nn.Conv2d(4, 6, (3, 2), padding=1, groups=2), [ones(2, 4, 9, 8)]),
        (nn.Conv3d(2, 3, 2, dilation=2), [ones(1, 2, 5, 5, 5)]),
        (nn.ConvTranspose1d(4, 6, 3), [ones(2, 4, 9)]),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), [ones(2, 4, 5, 7)]),
        (Call(torch.mm), [ones(2, 3), ones(3, 4)]),
        (Call(torch.bmm), [ones(5, 2, 3), ones(5, 3, 4)]),
        (Call(torch.addmm), [ones(4), ones(2, 3), ones(3, 4)]),
        (Call(torch.baddbmm), [ones(5, 2, 4), ones(5, 2, 3), ones(5, 3, 4)]),
        (Call(torch.matmul), [ones(7, 1, 2, 3), ones(5, 3, 4)]),
        (Call(nn.functional.scaled_dot_product_attention), [ones(2, 3, 7, 8)] * 3),
        (
            Call(nn.functional.scaled_dot_product_attention),
            [ones(2, 3, 5, 8), ones(2, 3, 7, 8), ones(2, 3, 7, 4)],
        ),
        (nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True), [ones(2, 5, 3)]),
        (nn.GRU(3, 4), [ones(5, 2, 3)]),
        (Call(lambda a, b: torch.einsum("bik,bkj->bij", a, b)), [ones(5, 2, 3), ones(5, 3, 4)]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_products_count_as_torch_counts_them(model, args):
    ir = extract_ir(model.eval(), tuple(args))
    total = sum(count(node) for node in ir.nodes)
    assert total == counted_by_torch(model, args) > 0


def single(op_type, inputs, output, **attrs):
    metas = [TensorMeta(f"x{i}", shape, "float32") for i, shape in enumerate(inputs)]
    return OpNode("y", op_type, metas, [TensorMeta("y", output, "float32", "y")], attrs)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (single("aten.mv.default", [(3, 4), (4,)], (3,)), 24),
        (single("aten.dot.default", [(4,), (4,)], ()), 8),
        (single("aten.add.Tensor", [(2, 3), (3,)], (2, 3)), 6),
        (single("aten.gelu.default", [(2, 3)], (2, 3)), 6),
        (single("aten.relu_.default", [(2, 3)], (2, 3)), 6),
        (single("aten.max.other", [(3,), (2, 3)], (2, 3)), 6),
        (single("aten.max.default", [(2, 3)], ()), 6),
        (single("aten.sum.dim_IntList", [(4, 3)], (4,), dim=[1]), 12),
        (single("aten.softmax.int", [(4, 3)], (4, 3), dim=1), 60),
        (single("aten.layer_norm.default", [(4, 3)], (4, 3), normalized_shape=[3]), 84),
        (single("aten.avg_pool2d.default", [(1, 8, 8)], (1, 4, 4), kernel_size=[2]), 64),
        (single("aten.max_pool2d.default", [(1, 8, 9)], (1, 4, 3), kernel_size=[2, 3]), 72),
        (single("aten.dropout.default", [(4,)], (4,), p=0.5, train=False), 0),
        (single("aten.dropout.default", [(4,)], (4,), p=0.5, train=True), 8),
        (single("aten.view.default", [(4,)], (2, 2), size=[2, 2]), 0),
        (single("aten.embedding.default", [(9, 2), (4,)], (4, 2)), 0),
        (single("aten.clone.default", [(4,)], (4,)), 0),
        (single("aten.linalg_inv.default", [(4, 4)], (4, 4)), None),
        (single("aten.sort.default", [(4,)], (4,)), None),
        (single("mylib.fused.default", [(4,)], (4,)), None),
        (single("aten.einsum.default", [(2, 3)], (2,), equation="ij->i"), None),
    ],
    ids=lambda value: value.op_type if isinstance(value, OpNode) else "",
)
def test_everything_else_counts_by_the_element_or_is_unknown(node, expected):
    assert count(node) == expected
