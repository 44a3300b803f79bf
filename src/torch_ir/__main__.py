"""``python -m torch_ir`` is the command ``torch-ir``."""

from torch_ir.cli import main

if __name__ == "__main__":
    main(prog_name="torch-ir")
