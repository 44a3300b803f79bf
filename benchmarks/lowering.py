"""A transformer of 36 layers lowered to Edge and verified, against torch's decompositions."""

from __future__ import annotations

import torch
from timing import report, side_by_side
from torch import nn

import torch_ir
from torch_ir.dialects import verify


def main() -> None:
    torch.set_num_threads(1)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 36, enable_nested_tensor=False).eval()
    exported = torch.export.export(model, (torch.randn(2, 6, 32),))
    ir = torch_ir.extract_ir(exported, model_name="deep")
    program = torch_ir.to_edge(ir).ir()
    seconds = side_by_side(
        {
            "run_decompositions": lambda: exported.run_decompositions(),
            "to_edge": lambda: torch_ir.to_edge(ir),
            "verify": lambda: verify(program),
        },
        rounds=3,
    )
    count = len(program.nodes)
    report(f"lowering to {count} nodes (target: 1,500 ms)", seconds, "run_decompositions")


if __name__ == "__main__":
    main()
