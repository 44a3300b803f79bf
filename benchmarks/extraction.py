"""Extraction against ``torch.export`` alone: what the translation adds."""

from __future__ import annotations

import torch
from minilm_model import minilm
from timing import report, side_by_side

import torch_ir


def main() -> None:
    with torch.device("meta"):
        model, inputs = minilm()
    seconds = side_by_side(
        {
            "torch.export.export": lambda: torch.export.export(model, inputs),
            "torch_ir.extract_ir": lambda: torch_ir.extract_ir(model, inputs),
        }
    )
    report("extraction of the demo model (target: 1.1)", seconds, "torch.export.export")


if __name__ == "__main__":
    main()
