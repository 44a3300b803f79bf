"""Whole processes: importing the package, and the command line on a file of 6,000 nodes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from deep import deep_model
from timing import report, side_by_side

import torch_ir


def process(*command: str) -> None:
    """Run a command to its end; its output is thrown away."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    python = sys.executable
    report(
        "importing, as a whole process",
        side_by_side(
            {
                "python": lambda: process(python, "-c", "pass"),
                "python, import torch_ir": lambda: process(python, "-c", "import torch_ir"),
                "python, import numpy": lambda: process(python, "-c", "import numpy"),
                "python, import torch": lambda: process(python, "-c", "import torch"),
            }
        ),
        "python",
    )
    model, inputs = deep_model()
    ir = torch_ir.extract_ir(model, inputs, model_name="deep")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "deep.json")
        ir.save(path)
        cli = (python, "-m", "torch_ir")
        report(
            f"the command line on {len(ir.nodes)} nodes, as a whole process "
            "(target: info below 500 ms)",
            side_by_side(
                {
                    "python": lambda: process(python, "-c", "pass"),
                    "torch-ir --version": lambda: process(*cli, "--version"),
                    "torch-ir info": lambda: process(*cli, "info", path),
                    "torch-ir show": lambda: process(*cli, "show", path),
                }
            ),
            "python",
        )


if __name__ == "__main__":
    main()
