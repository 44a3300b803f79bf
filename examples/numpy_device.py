"""A complete backend in one page: a 'device' that computes four operators with NumPy.

Run it with ``python examples/numpy_device.py``: it shows what of a small model runs where, runs
the model, and compares the results with torch's. What it does not support stays on torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

import torch_ir
from torch_ir import IR, OpNode, decompose, extract_ir
from torch_ir.backends import SUPPORTED, DelegateBackend, Support, register_backend, support

KERNELS = {
    "aten.add.Tensor": np.add,
    "aten.mul.Tensor": np.multiply,
    "aten.relu.default": lambda x: np.maximum(x, np.float32(0)),
    "aten.mm.default": np.matmul,
}


class NumpyDevice(DelegateBackend):
    """Runs add, mul, relu and mm of float32 tensors."""

    name = "numpy_device"

    def supports(self, node: OpNode, ir: IR) -> Support:
        """By operator and element type alone."""
        if node.op_type not in KERNELS:
            return Support.refused("the device has no kernel for it")
        others = {meta.dtype for meta in (*node.inputs, *node.outputs)} - {"float32"}
        if others:
            return Support.refused(f"the device computes float32, not {', '.join(sorted(others))}")
        if node.attrs:  # a number as an operand, or alpha
            return Support.refused(f"the kernel takes no {' and no '.join(sorted(node.attrs))}")
        return SUPPORTED

    def compile(self, ir: IR, payload: Mapping[str, torch.Tensor]) -> Any:
        """The subgraph as a loop over its nodes; a real device would emit its code here."""
        held = {name: tensor.numpy() for name, tensor in payload.items()}
        given = [meta.name for meta in ir.graph_inputs if meta.name not in held]
        steps = [(KERNELS[n.op_type], [m.name for m in n.inputs], n.name) for n in ir.nodes]
        results = [meta.name for meta in ir.graph_outputs]

        def run(*tensors: torch.Tensor) -> Sequence[torch.Tensor]:
            values = held | {n: t.numpy() for n, t in zip(given, tensors, strict=False)}
            for kernel, inputs, name in steps:
                values[name] = kernel(*[values[i] for i in inputs])
            return [torch.from_numpy(values[name]) for name in results]

        return run


class Model(nn.Module):
    """Two layers with an operator between them that the device does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16, bias=False)
        self.second = nn.Linear(16, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """f32[N, 4] of f32[N, 8]."""
        hidden = torch.softmax(self.first(x).relu(), dim=-1)
        return (self.second(hidden) * 2 + x[:, :4]).relu()


def main() -> None:
    """Register, partition, run, compare."""
    register_backend(NumpyDevice.name)(NumpyDevice())
    model, x = Model().eval(), torch.randn(3, 8)
    ir = decompose(extract_ir(model, (x,)))
    print(support(ir, NumpyDevice()))
    run = torch_ir.compile(ir, model.state_dict(), backend=NumpyDevice.name)
    with torch.no_grad():
        difference = (run(x) - model(x)).abs().max()
    print(f"\nthe largest difference from torch: {float(difference):.1e}")


if __name__ == "__main__":
    main()
