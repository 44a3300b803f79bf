"""``python -m torch_ir`` is the command ``torch-ir``."""

from torch_ir.cli.process import run

if __name__ == "__main__":
    run()
