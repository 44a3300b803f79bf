"""Records models that torchao quantizes, for the tests, where no torchao is installed.

    pip install torchao==0.18.0
    python tools/record_quantized_models.py

Each becomes an archive with its weights in ``tests/models/quantized``. PT2E quantizes the first
ones, with the quantizer of torchao's own tests for XNNPACK and that for x86; the last ones have
weights of 8, 4 and 2 bits. torch's own seed makes them; another torchao may choose other scales.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torchao.quantization import IntxWeightOnlyConfig, PerAxis, PerGroup, quantize_
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
from torchao.testing.pt2e._xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torchao.utils import unwrap_tensor_subclass

from torch_ir import extract_ir
from torch_ir.serde import save

FOLDER = Path(__file__).parents[1] / "tests/models/quantized"


class Convolutions(nn.Module):
    """Convolutions with a residual sum, pooling, ``cat``, a slice and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Linear(8 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of images ``[1, 3, 8, 8]``."""
        x = torch.relu(self.norm(self.first(x)))
        y = torch.max_pool2d(torch.relu(self.second(x) + x), 2)
        return self.last(torch.cat([y, y], 1)[:, :8].flatten(1))


class Rows(nn.Module):
    """An embedding and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 32)
        self.last = nn.Linear(32, 8)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """Numbers ``[…, 8]`` for indices of rows."""
        return torch.relu(self.last(self.table(indices)))


def perceptron() -> nn.Module:
    """Two linear layers."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def xnnpack(*, per_channel: bool) -> Any:
    """The quantizer of int8."""
    return XNNPACKQuantizer().set_global(
        get_symmetric_quantization_config(is_per_channel=per_channel)
    )


def inductor() -> Any:
    """The quantizer of uint8 with weights of int8."""
    return x86.X86InductorQuantizer().set_global(
        x86.get_default_x86_inductor_quantization_config()
    )


def pt2e(model: nn.Module, quantizer: Any, *shape: int) -> tuple[nn.Module, tuple[Any, ...]]:
    """The model after post-training quantization, and what it is called with."""
    args = (torch.randn(shape),)
    prepared = prepare_pt2e(torch.export.export(model.eval(), args).module(), quantizer)
    for _ in range(4):
        prepared(torch.randn(shape))
    return convert_pt2e(prepared), args


def weights_only(dtype: torch.dtype, granularity: Any) -> tuple[nn.Module, tuple[Any, ...]]:
    """A model with quantized weights, and what it is called with."""
    model = Rows().eval()
    config = IntxWeightOnlyConfig(weight_dtype=dtype, granularity=granularity)
    quantize_(model, config, filter_fn=lambda m, _: isinstance(m, nn.Linear | nn.Embedding))
    return unwrap_tensor_subclass(model), (torch.tensor([[1, 2, 3]]),)


MODELS: Mapping[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {
    "cnn-int8": lambda: pt2e(Convolutions(), xnnpack(per_channel=True), 1, 3, 8, 8),
    "cnn-int8-per-tensor": lambda: pt2e(Convolutions(), xnnpack(per_channel=False), 1, 3, 8, 8),
    "cnn-uint8": lambda: pt2e(Convolutions(), inductor(), 1, 3, 8, 8),
    "mlp-int8": lambda: pt2e(perceptron(), xnnpack(per_channel=True), 2, 8),
    "mlp-uint8": lambda: pt2e(perceptron(), inductor(), 2, 8),
    "rows-int8": lambda: weights_only(torch.int8, PerAxis(0)),
    "rows-int4": lambda: weights_only(torch.int4, PerGroup(16)),
    "rows-int2": lambda: weights_only(torch.int2, PerGroup(32)),
}


def main() -> None:
    """Write every archive."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in MODELS.items():
        torch.manual_seed(0)
        model, args = make()
        exported = torch.export.export(model, args)
        ir = extract_ir(exported, model_name=name)
        used = {meta.name for node in ir.nodes for meta in node.inputs}
        keys = {ir.weight_name_mapping.get(value, value) for value in used}
        kept = [meta for meta in ir.weights if meta.name in keys]
        mapping = {value: key for value, key in ir.weight_name_mapping.items() if value in used}
        ir = ir.replace(weights=kept, weight_name_mapping=mapping)
        values = {**exported.state_dict, **exported.constants}
        weights = {meta.name: values[meta.name] for meta in kept}
        save(ir, FOLDER / f"{name}.tir", weights=weights)
        print(name, len(ir.nodes), "nodes")


if __name__ == "__main__":
    main()
