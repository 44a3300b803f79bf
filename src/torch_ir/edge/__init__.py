"""The Edge workflow: ``to_edge`` and the programs that it makes."""

from torch_ir.edge.edge_program import EdgeOptions, EdgeProgram
from torch_ir.edge.to_edge import to_edge

__all__ = ["EdgeOptions", "EdgeProgram", "to_edge"]
