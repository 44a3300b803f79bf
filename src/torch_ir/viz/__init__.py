"""Pictures of an IR: a viewer in one file of HTML, tables for notebooks, Mermaid diagrams."""

from torch_ir.viz.html import ir_html
from torch_ir.viz.mermaid import generate_op_distribution_pie, ir_to_mermaid
from torch_ir.viz.page import Page, view, view_html
from torch_ir.viz.plots import Plot, plot
from torch_ir.viz.viewers import register_viewer

__all__ = [
    "generate_op_distribution_pie",
    "ir_html",
    "ir_to_mermaid",
    "view",
    "view_html",
    "plot",
    "register_viewer",
    "Page",
    "Plot",
]
