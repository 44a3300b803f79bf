"""The structural difference of two IRs."""

from torch_ir.ir.diff.stat import DiffStat
from torch_ir.ir.diff.structure import Change, Diff, diff, node_pairs

__all__ = ["Change", "Diff", "DiffStat", "diff", "node_pairs"]
