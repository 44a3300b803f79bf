"""The text form of an IR: ``str(ir)`` prints it, :func:`parse` reads it back as an equal IR."""

from torch_ir.ir.text.parser import parse
from torch_ir.ir.text.printer import ir_text, node_text

__all__ = ["ir_text", "node_text", "parse"]
