"""Batch norm of inference, folded into the weights of the layer before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch

from torch_ir.arguments import public
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.aliases import StorageGroups
from torch_ir.passes.weight_folding import FoldedProgram, WeightEditor

_LAYERS = {
    "aten.conv1d.default": ("input", "weight", "bias"),
    "aten.conv2d.default": ("input", "weight", "bias"),
    "aten.conv3d.default": ("input", "weight", "bias"),
    "aten.convolution.default": ("input", "weight", "bias"),
    "aten.linear.default": ("input", "weight", "bias"),
}
"""Layers whose weight has the result's channels as its first dimension, with their arguments."""

_NORMS = {
    "aten.batch_norm.default": "training",
    "aten._native_batch_norm_legit_no_training.default": "",
}
"""Batch norms, with the flag that says whether they train."""


@public
def fold_batch_norm(ir: IR, weights: Mapping[str, torch.Tensor]) -> FoldedProgram:
    """Fold each batch norm of inference into the layer before it.

    The layer is a convolution or a linear layer whose result nothing else uses; its weight and
    bias change, and it gets a bias if it had none. The new values are computed in float64 and
    rounded once. The program's results are **not** the same bits: a product of rounded numbers
    is rounded in another place. In float32 they differ by a few units in the last place of the
    largest term.

    Args:
        ir: The program.
        weights: Its weights by ``state_dict`` key; they stay as they are.

    Raises:
        PassError: A weight that is needed is not given, or does not have its shape.

    Example:
        >>> from torch_ir import extract_ir
        >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4)).eval()
        >>> ir = extract_ir(net, (torch.ones(1, 3, 2, 2),))
        >>> fold_batch_norm(ir, net.state_dict()).folded
        ('conv2d',)
    """
    return _Folder(ir, weights).run()


class _Folder:
    def __init__(self, ir: IR, weights: Mapping[str, torch.Tensor]):
        self.ir = ir
        self.edited = WeightEditor(ir, weights)
        self.memory = StorageGroups(ir)
        self.layers: dict[str, OpNode] = {}
        self.folded: set[str] = set()

    def run(self) -> FoldedProgram:
        for node in self.ir.nodes:
            layer = self._layer(node)
            if layer is not None:
                self._fold(layer, node)
        if not self.layers:
            return FoldedProgram(self.ir, dict(self.edited.weights), ())
        for node in self.ir.nodes:
            if not any(meta.name in self.folded for meta in node.outputs):
                self.edited.builder.keep(self.layers.get(node.name, node))
        return self.edited.finished(tuple(self.layers))

    def _layer(self, norm: OpNode) -> OpNode | None:
        """The layer into which a batch norm can be folded."""
        flag = _NORMS.get(norm.op_type)
        if flag is None or (flag and norm.attrs.get(flag) is not False):
            return None
        given = norm.tensor("input")
        layer = self.ir.producers.get(given.name) if given is not None else None
        users = self.ir.users.get(given.name, ()) if given is not None else ()
        extra = [m.name for m in norm.outputs[1:] if self.ir.users.get(m.name)]
        if layer is None or layer.op_type not in _LAYERS or len(users) != 1 or extra:
            return None
        returned = {meta.name for meta in self.ir.graph_outputs}
        returned |= {mutation.value.name for mutation in self.ir.mutations}
        names = ("running_mean", "running_var")
        own = [layer.tensor("weight"), *(norm.tensor(name) for name in names)]
        optional = [layer.tensor("bias"), *(norm.tensor(n) for n in ("weight", "bias"))]
        known = all(meta is not None and self._is_fixed(meta) for meta in own)
        known = known and all(meta is None or self._is_fixed(meta) for meta in optional)
        channels = layer.op_type != "aten.linear.default" or len(layer.outputs[0].shape) == 2
        plain = not layer.attrs.get("transposed") and channels
        is_returned = layer.outputs[0].name in returned
        return layer if known and plain and not is_returned else None

    def _is_fixed(self, meta: TensorMeta) -> bool:
        """Whether a value is a weight that nothing writes, in floating point."""
        written = {mutation.target for mutation in self.ir.mutations}
        return (
            bool(self.edited.key(meta))
            and meta.name not in written
            and not self.memory.is_written(meta.name)
            and meta.dtype in ("float16", "bfloat16", "float32", "float64")
        )

    def _fold(self, layer: OpNode, norm: OpNode) -> None:
        weight = self._value(layer.tensor("weight"))
        mean, variance = [self._value(norm.tensor(n)) for n in ("running_mean", "running_var")]
        scale = self._value(norm.tensor("weight"), torch.ones_like(mean))
        scale = scale / torch.sqrt(variance + float(norm.attrs["eps"]))
        bias = self._value(layer.tensor("bias"), torch.zeros_like(mean))
        shift = (bias - mean) * scale
        shift = shift + self._value(norm.tensor("bias"), torch.zeros_like(mean))
        scaled = weight * scale.reshape(-1, *[1] * (weight.dim() - 1))
        operand = cast(TensorMeta, layer.tensor("weight"))
        dtype: torch.dtype = getattr(torch, operand.dtype)
        key = self.edited.key(operand)
        new = {key: scaled, f"{key.removesuffix('.weight')}.bias": shift}
        pair = [self.edited.added(key, value.to(dtype)) for key, value in new.items()]
        self.layers[layer.name] = _with_weights(layer, *pair).derived_from(layer, norm)
        self.folded.add(norm.outputs[0].name)
        self.edited.builder.replace(norm.outputs[0], layer.outputs[0])

    def _value(self, meta: TensorMeta | None, default: torch.Tensor | None = None) -> torch.Tensor:
        """The value of a weight, in float64."""
        if meta is None:
            return cast(torch.Tensor, default)
        return self.edited.value(meta).to("cpu", torch.float64)


def _with_weights(layer: OpNode, weight: TensorMeta, bias: TensorMeta) -> OpNode:
    given = cast(TensorMeta, layer.tensor("input"))
    attrs = {name: value for name, value in layer.attrs.items() if name != "bias"}
    operands = {"input": 0, "weight": 1, "bias": 2}
    return layer.replace(inputs=(given, weight, bias), operands=operands, attrs=attrs)
