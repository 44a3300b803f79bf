"""Batch norm of inference, folded into the weights of the layer before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import torch

from torch_ir.errors import PassError
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.aliases import StorageGroups
from torch_ir.ir.builder import Builder

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


@dataclass(frozen=True, slots=True)
class FoldedProgram:
    """A program without batch norm, and its weights.

    Attributes:
        ir: The program.
        weights: Its weights by key: those that were given, but for the layers that took in a
            batch norm.
        folded: The names of the layers that did.
    """

    ir: IR
    weights: Mapping[str, torch.Tensor] = field(repr=False)
    folded: tuple[str, ...]


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
        self.weights = dict(weights)
        self.external = ir.external_values()
        self.memory = StorageGroups(ir)
        self.builder = Builder(ir)
        self.metas = {meta.name: meta for meta in ir.weights}
        self.mapping = dict(ir.weight_name_mapping)
        self.layers: dict[str, OpNode] = {}
        self.folded: set[str] = set()

    def run(self) -> FoldedProgram:
        for node in self.ir.nodes:
            layer = self._layer(node)
            if layer is not None:
                self._fold(layer, node)
        if not self.layers:
            return FoldedProgram(self.ir, dict(self.weights), ())
        for node in self.ir.nodes:
            if not any(meta.name in self.folded for meta in node.outputs):
                self.builder.keep(self.layers.get(node.name, node))
        return self._without_unused(self.builder.finish())

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
        found = self.external.get(meta.name)
        written = {mutation.target for mutation in self.ir.mutations}
        return (
            found is not None
            and found[0] in self.metas
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
        operand = layer.tensor("weight")
        dtype = operand.dtype if operand is not None else "float32"
        key = self.external[operand.name][0] if operand is not None else ""
        stem = key.removesuffix(".weight")
        pair = self._added(key, scaled, dtype), self._added(f"{stem}.bias", shift, dtype)
        self.layers[layer.name] = _with_weights(layer, *pair).derived_from(layer, norm)
        self.folded.add(norm.outputs[0].name)
        self.builder.replace(norm.outputs[0], layer.outputs[0])

    def _value(self, meta: TensorMeta | None, default: torch.Tensor | None = None) -> torch.Tensor:
        """The value of a weight, in float64."""
        if meta is None:
            return cast(torch.Tensor, default)
        key = self.external[meta.name][0]
        value = self.weights.get(key)
        if value is None or tuple(value.shape) != meta.shape:
            got = "is not given" if value is None else f"has shape {list(value.shape)}"
            raise PassError(
                f"the weight {key!r} {got}; folding batch norm needs it as {meta}",
                remedy="Give the weights that the program runs with.",
            )
        return value.detach().to("cpu", torch.float64)

    def _added(self, key: str, value: torch.Tensor, dtype: str) -> TensorMeta:
        """A weight with that value, under a key of its own."""
        wanted, number = f"{key}.folded", 1
        while wanted in self.metas or wanted in self.weights or wanted in self.ir.constants:
            wanted, number = f"{key}.folded_{number}", number + 1
        self.weights[wanted] = value.to(getattr(torch, dtype))
        meta = TensorMeta(wanted, tuple(value.shape), dtype)
        self.metas[wanted] = meta
        name = self.builder.names.fresh(f"p_{wanted.replace('.', '_')}")
        self.mapping[name] = wanted
        return meta.replace(name=name)

    def _without_unused(self, ir: IR) -> FoldedProgram:
        """The program without the weights that only batch norms and folded layers used."""
        before = {meta.name for node in self.ir.nodes for meta in node.inputs}
        kept = {meta.name for node in ir.nodes for meta in node.inputs}.union(ir.output_names)
        kept |= {name for m in ir.mutations for name in (m.target, m.value.name)}
        keys = {self.mapping.get(name, name) for name in kept}
        gone = {self.mapping.get(name, name) for name in before - kept} - keys
        weights = {key: value for key, value in self.weights.items() if key not in gone}
        ir = ir.replace(
            weights=[meta for key, meta in self.metas.items() if key not in gone],
            weight_name_mapping={n: k for n, k in self.mapping.items() if k not in gone},
            weight_aliases={a: k for a, k in self.ir.weight_aliases.items() if k not in gone},
        )
        return FoldedProgram(ir, weights, tuple(self.layers))


def _with_weights(layer: OpNode, weight: TensorMeta, bias: TensorMeta) -> OpNode:
    given = cast(TensorMeta, layer.tensor("input"))
    attrs = {name: value for name, value in layer.attrs.items() if name != "bias"}
    operands = {"input": 0, "weight": 1, "bias": 2}
    return layer.replace(inputs=(given, weight, bias), operands=operands, attrs=attrs)
