"""Running the demo model: the executor against eager and against the exported program itself."""

from __future__ import annotations

import torch
from minilm_model import minilm
from timing import report, side_by_side

import torch_ir


def main() -> None:
    model, inputs = minilm()
    exported = torch.export.export(model, inputs)
    module = exported.module()
    executor = torch_ir.IRExecutor(torch_ir.extract_ir(exported), model.state_dict())
    with torch.no_grad():
        seconds = side_by_side(
            {
                "eager": lambda: model(*inputs),
                "torch.export's module": lambda: module(*inputs),
                "IRExecutor": lambda: executor(*inputs),
            },
            rounds=15,
        )
    report("running the demo model, 6 sentences of 16 tokens", seconds, "eager")


if __name__ == "__main__":
    main()
