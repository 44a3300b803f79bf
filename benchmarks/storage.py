"""A graph of 6,000 nodes, saved and loaded, against ``torch.export`` and the same program."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from deep import deep_model
from timing import report, side_by_side

import torch_ir
from torch_ir import IR


def main() -> None:
    model, inputs = deep_model()
    exported = torch.export.export(model, inputs)
    ir = torch_ir.extract_ir(exported, model_name="deep")
    with tempfile.TemporaryDirectory() as folder:
        files = {suffix: Path(folder) / f"deep.{suffix}" for suffix in ("pt2", "json", "tir")}
        saved = side_by_side(
            {
                "torch.export.save": lambda: torch.export.save(exported, files["pt2"]),
                "IR.save .json": lambda: ir.save(files["json"]),
                "IR.save .tir": lambda: ir.save(files["tir"]),
            },
            rounds=3,
        )
        report(f"saving {len(ir.nodes)} nodes", saved, "torch.export.save")
        loaded = side_by_side(
            {
                "torch.export.load": lambda: torch.export.load(files["pt2"]),
                "IR.load .json": lambda: IR.load(files["json"]),
                "IR.load .tir": lambda: IR.load(files["tir"]),
            },
            rounds=3,
        )
        report(
            f"loading {len(ir.nodes)} nodes (target: below 300 ms)", loaded, "torch.export.load"
        )
        for name, path in files.items():
            print(f"  {name:<5} {path.stat().st_size / 2**20:6.1f} MiB")


if __name__ == "__main__":
    main()
