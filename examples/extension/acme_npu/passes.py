"""The passes: rewrites by pattern. ``torch-ir opt model.tir -p fuse-softclip`` runs one."""

import torch

from acme_npu import operators
from torch_ir.passes.patterns import Rewrite, RewritePatterns, fusion


class FuseSoftclip(RewritePatterns):
    """Puts softclip where a model spells it out."""

    name = "fuse-softclip"
    rewrites = (
        Rewrite(
            lambda x, *, limit: x / (1 + x.abs() / limit),
            lambda x, *, limit: torch.ops.acme.softclip(x, limit),
            (torch.randn(2, 3),),
            attributes={"limit": 1.5},
            examples=({"limit": 0.25},),
            tolerance=1e-6,
        ),
    )


class FuseConvBnRelu(RewritePatterns):
    """Puts one operator where a convolution, a batch norm and a relu follow each other."""

    name = "fuse-conv-bn-relu"
    rewrites = (
        fusion(
            "acme.conv_bn_relu.default",
            operators.CONV_INPUTS,
            attributes={"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "eps": 1e-5},
        ),
    )
