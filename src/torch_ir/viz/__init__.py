"""Pictures of an IR: a viewer in one file of HTML, tables for notebooks, Mermaid diagrams."""

from typing import TYPE_CHECKING

from torch_ir.lazy import lazy_names

if TYPE_CHECKING:
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

__getattr__ = lazy_names(
    __name__,
    {
        "torch_ir.viz.mermaid": ("generate_op_distribution_pie", "ir_to_mermaid"),
        "torch_ir.viz.html": ("ir_html",),
        "torch_ir.viz.page": ("view", "view_html", "Page"),
        "torch_ir.viz.plots": ("plot", "Plot"),
        "torch_ir.viz.viewers": ("register_viewer",),
    },
)
