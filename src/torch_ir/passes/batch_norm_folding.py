"""Batch norm of inference, folded into the weights of the layer before it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import cast

import torch

from torch_ir.arguments import public
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.aliases import StorageGroups
from torch_ir.passes.patterns.elements import Call, Element, Match, Pattern, Value
from torch_ir.passes.patterns.matcher import Matcher
from torch_ir.passes.weight_folding import FoldedProgram, WeightEditor

_LAYERS = frozenset(
    {
        *(f"aten.conv{rank}d.default" for rank in (1, 2, 3)),
        "aten.convolution.default",
        "aten.linear.default",
    }
)
"""Layers whose weight has the result's channels as its first dimension."""

_NORM = "aten.batch_norm.default"
_NORMS = frozenset({_NORM, "aten._native_batch_norm_legit_no_training.default"})


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
        for match in Matcher(self.ir, self.memory).occurrences(self._pattern()):
            self._fold(match)
        if not self.layers:
            return FoldedProgram(self.ir, dict(self.edited.weights), ())
        for node in self.ir.nodes:
            if not any(meta.name in self.folded for meta in node.outputs):
                self.edited.builder.keep(self.layers.get(node.name, node))
        return self.edited.finished(tuple(self.layers))

    def _pattern(self) -> Pattern:
        """A batch norm of inference behind a layer, all weights of both fixed."""
        fixed = partial(Value, where=self._is_fixed)
        operands: dict[str, Element] = {
            "input": Value("input"),
            "weight": fixed("weight"),
            "bias": fixed("bias", is_optional=True),
        }
        layer = Call("layer", _LAYERS, operands, where=_has_channels)
        operands = {
            "input": layer,
            "weight": fixed("scale", is_optional=True),
            "bias": fixed("shift", is_optional=True),
            "running_mean": fixed("mean"),
            "running_var": fixed("variance"),
        }
        return Pattern({"result": Call("norm", _NORMS, operands, where=_is_inference)})

    def _is_fixed(self, meta: TensorMeta) -> bool:
        """Whether a value is a weight that nothing writes, in floating point."""
        written = {mutation.target for mutation in self.ir.mutations}
        return (
            bool(self.edited.key(meta))
            and meta.name not in written
            and not self.memory.is_written(meta.name)
            and meta.dtype in ("float16", "bfloat16", "float32", "float64")
        )

    def _fold(self, match: Match) -> None:
        layer, norm = match.nodes["layer"], match.nodes["norm"]
        operand = match.values["weight"]
        weight, mean, variance = [
            self._value(match, name) for name in ("weight", "mean", "variance")
        ]
        scale = self._value(match, "scale", 1.0) / torch.sqrt(variance + float(norm.attrs["eps"]))
        shift = (self._value(match, "bias", 0.0) - mean) * scale + self._value(match, "shift", 0.0)
        scaled = weight * scale.reshape(-1, *[1] * (weight.dim() - 1))
        dtype: torch.dtype = getattr(torch, operand.dtype)
        key = self.edited.key(operand)
        new = {key: scaled, f"{key.removesuffix('.weight')}.bias": shift}
        pair = [self.edited.added(key, value.to(dtype)) for key, value in new.items()]
        self.layers[layer.name] = _with_weights(layer, *pair).derived_from(layer, norm)
        self.folded.add(norm.outputs[0].name)
        self.edited.builder.replace(norm.outputs[0], layer.outputs[0])

    def _value(self, match: Match, name: str, default: float = 0.0) -> torch.Tensor:
        """The value of a weight in float64, or what stands for one that is not there."""
        meta = match.values.get(name)
        if meta is None:
            return torch.tensor(default, dtype=torch.float64)
        return self.edited.value(meta).to("cpu", torch.float64)


def _has_channels(layer: OpNode) -> bool:
    """Whether dimension 0 of a layer's weight is dimension 1 of its result.

    Without a batch the result's channels are its first dimension, and a batch norm scales another.
    """
    weight = cast(TensorMeta, layer.tensor("weight"))
    is_batched = len(layer.outputs[0].shape) == len(weight.shape)
    return is_batched and not layer.attrs.get("transposed")


def _is_inference(norm: OpNode) -> bool:
    """Whether a batch norm takes the statistics that it is given."""
    return norm.op_type != _NORM or norm.attrs.get("training") is False


def _with_weights(layer: OpNode, weight: TensorMeta, bias: TensorMeta) -> OpNode:
    given = cast(TensorMeta, layer.tensor("input"))
    attrs = {name: value for name, value in layer.attrs.items() if name != "bias"}
    operands = {"input": 0, "weight": 1, "bias": 2}
    return layer.replace(inputs=(given, weight, bias), operands=operands, attrs=attrs)
