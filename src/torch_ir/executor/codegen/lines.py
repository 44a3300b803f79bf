"""The lines of generated Python: how a node, an argument and a literal are written."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from typing import Any, NamedTuple, cast

import torch

from torch_ir.errors import ExecutionError
from torch_ir.executor.autograd.formulas import FORMULAS
from torch_ir.executor.codegen.names import IdentifierPool, printable
from torch_ir.infer.binder import BoundCall
from torch_ir.infer.dispatch import PythonBinding
from torch_ir.infer.generators import name_of
from torch_ir.ir import OpNode, SymExpr
from torch_ir.ir.expressions import FUNCTIONS, renamed
from torch_ir.ir.tensor import type_text
from torch_ir.torch_api import HigherOrderOperator, OpOverload


class CodeLine(NamedTuple):
    """One line, and the node that it runs.

    Attributes:
        text: The line.
        node: The node.
        is_call: Whether it is the line that calls the node's operator.
        writes: Whether it writes a buffer or an input when the program ends.
    """

    text: str
    node: OpNode | None = None
    is_call: bool = False
    writes: bool = False

    def explained(self) -> str:
        """Return the line with a comment that gives a call's types, operator and source."""
        node = self.node
        if node is None or not self.is_call:
            return self.text
        types = ", ".join([type_text(meta) for meta in node.outputs])
        place = f"  {node.location}" if node.location is not None else ""
        return self.text + printable(f"  # {types} {node.op_type}{place}")


class GeneratedModule:
    """What the functions of one module share: names, and objects that are made once.

    Args:
        recorded: Whether gradients are taken of what they give.
    """

    def __init__(self, *, recorded: bool = False) -> None:
        self.recorded = recorded
        self.names = IdentifierPool()
        self.kernels: dict[str, BoundCall] = {}
        self._header: dict[str, str] = {}
        for name in ("bind", "payload", "kernels"):
            self.names.of("own", name)

    def header(self) -> list[str]:
        """Return the lines that import and make the objects that functions use."""
        return list(self._header.values())

    def imported(self, home: str, name: str) -> str:
        """Import something from a module; return its identifier."""
        given = self.names.of(home, name)
        renamed = "" if given == name else f" as {given}"
        self._header.setdefault(given, f"from {home} import {name}{renamed}")
        return given

    def made(self, kind: str, name: str, text: str) -> str:
        """Make an object once; return its identifier."""
        given = self.names.of(kind, name)
        self._header.setdefault(given, f"{given} = {text}")
        return given

    def called(self, call: BoundCall, binding: PythonBinding | None) -> str:
        """Return an expression for the function that a call calls."""
        if binding is not None:
            prefix = binding.home.rpartition(".")[2].strip("_")
            home = "torch._C._VariableFunctions" if binding.home == "torch" else binding.home
            path = f"{home}.{binding.name}"
            return self.made("function", f"{prefix}_{binding.name}", path)
        if call.is_registered:
            self.kernels[call.node.name] = call
            return f"kernels[{call.node.name!a}]"
        return self.operator(cast(Any, call.target))

    def operator(self, operator: OpOverload | HigherOrderOperator) -> str:
        """Return the identifier of an operator, or of what gives the same and has a gradient."""
        if isinstance(operator, HigherOrderOperator):
            name = operator.name()
            return self.made("operator", name, f"torch.ops.higher_order.{name}")
        if self.recorded and (formula := FORMULAS.get(str(operator))):
            return self.imported(formula.__module__, formula.__name__)
        packet, _, overload = str(operator).rpartition(".")
        path = f"torch.ops.{operator}"
        if iskeyword(overload):
            path = f"getattr(torch.ops.{packet}, {overload!a})"
        return self.made("operator", str(operator), path)

    def scalar(self, value: float, dtype: torch.dtype) -> str:
        """Return the identifier of a tensor without dimensions."""
        kind = self.literal(dtype, frozen=True)
        text = f"torch.tensor({self.literal(value, frozen=True)}, dtype={kind})"
        return self.made("scalar", f"{kind}_{value!r}", text)

    # -- literals ---------------------------------------------------------------------------------

    def literal(self, value: Any, *, frozen: bool) -> str:
        """Write a constant; where ``frozen`` allows, lists become tuples, which are made once."""
        match value:
            case None | bool() | int() | str():
                return ascii(value)
            case float():
                return self._float(value)
            case list() | tuple():
                items = [self.literal(item, frozen=frozen) for item in cast(list[Any], value)]
                return sequence(items, is_tuple=frozen or isinstance(value, tuple))
            case complex():
                parts = f"{self._float(value.real)}, {self._float(value.imag)}"
                return self.made("complex", f"complex_{value}", f"complex({parts})")
            case torch.dtype() | torch.layout() | torch.memory_format():
                return self.imported("torch", str(value).removeprefix("torch."))
            case torch.device():
                return self.made("device", f"device_{value}", f"torch.device({str(value)!a})")
            case OpOverload() | HigherOrderOperator():
                return self.operator(value)
            case torch.Generator():
                name = name_of(value)
                find = self.imported("torch_ir.infer.generators", "find_generator")
                return self.made("generator", f"generator_{name}", f"{find}({name!a})")
            case dict():
                pairs = cast(dict[str, Any], value).items()
                inner = [f"{key!a}: {self.literal(item, frozen=frozen)}" for key, item in pairs]
                return f"{{{', '.join(inner)}}}"
            case _:
                raise ExecutionError(f"an argument cannot be {type(value).__name__}")

    def _float(self, value: float) -> str:
        if math.isfinite(value):
            return repr(value)
        name = self.imported("math", "nan" if math.isnan(value) else "inf")
        return f"-{name}" if value < 0 else name


def sequence(items: Sequence[str], *, is_tuple: bool) -> str:
    """Write a tuple or a list of items that are written already."""
    inner = ", ".join(items)
    if not is_tuple:
        return f"[{inner}]"
    return f"({inner},)" if len(items) == 1 else f"({inner})"


def spelled(module: GeneratedModule, value: SymExpr, symbols: Mapping[str, str]) -> str:
    """Write an expression in Python, whose syntax it has.

    Args:
        module: Where it stands.
        value: The expression.
        symbols: The identifier of each of its symbols.
    """
    if "**" in value.text:  # the size of its value counts
        bindings = ", ".join(f"{name!a}: {given}" for name, given in symbols.items())
        evaluate = module.imported("torch_ir.ir.expressions", "evaluate_expression")
        return f"{evaluate}({value.text!a}, {{{bindings}}})"

    def rename(name: str) -> str:
        if name not in FUNCTIONS:
            return symbols[name]
        table = module.imported("torch_ir.ir.expressions", "FUNCTIONS")
        return module.made("expression", f"symbolic_{name}", f"{table}[{name!a}]")

    return ast.unparse(ast.parse(renamed(value.text, rename)))
