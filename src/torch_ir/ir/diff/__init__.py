"""What changed between two IRs."""

from torch_ir.ir.diff.structure import Change, Diff, diff

__all__ = ["Change", "Diff", "diff"]
