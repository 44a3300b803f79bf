"""Pictures of an IR as text that others draw: Mermaid diagrams and HTML tables."""

from torch_ir.viz.html import ir_html
from torch_ir.viz.mermaid import generate_op_distribution_pie, ir_to_mermaid

__all__ = ["generate_op_distribution_pie", "ir_html", "ir_to_mermaid"]
