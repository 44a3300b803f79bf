"""One graph as the rules of a dialect look at it: the program, or a function that it calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from torch_ir.errors import InvalidIRError
from torch_ir.ir import IR, DType, FunctionRef, OpNode
from torch_ir.ir.diagnostics import Diagnostic, about
from torch_ir.ops.bodies import AUTOCAST_REGION
from torch_ir.ops.spec import OpSpec, spec_of

Region: TypeAlias = tuple[str, str, bool]
"""An autocast region: its device type, its dtype (empty for the default), whether it is on."""


@dataclass(frozen=True, slots=True)
class VerifierScope:
    """A graph with where it stands.

    Attributes:
        ir: The graph.
        path: The names of the functions that lead to it, joined by ``/``.
        operators: The schemas that the program recorded.
        allow: Operators that the caller allows whatever the operator set says.
        regions: The autocast regions around the graph, outermost first.
    """

    ir: IR
    path: str = ""
    operators: Mapping[str, str] = field(default_factory=dict[str, str])
    allow: frozenset[str] = frozenset()
    regions: tuple[Region, ...] = ()

    def inner(self) -> Iterator[VerifierScope]:
        """Yield the functions of the graph, each as a scope of its own."""
        regions = dict(_regions(self.ir))
        for name, function in self.ir.functions.items():
            path = f"{self.path}/{name}" if self.path else name
            operators = {**self.operators, **function.operators}
            inside = (*self.regions, *regions.get(name, ()))
            yield VerifierScope(function, path, operators, self.allow, inside)

    def walk(self) -> Iterator[VerifierScope]:
        """Yield this graph and all functions within, outermost first."""
        yield self
        for scope in self.inner():
            yield from scope.walk()

    def spec(self, node: OpNode) -> OpSpec | None:
        """Look up the spec of the operator that a node calls, or None if its schema is unknown."""
        try:
            return spec_of(node.op_type, self.operators)
        except InvalidIRError:
            return None

    def named(self, node: str) -> str:
        """Return the name of a node with the path that leads to it."""
        return "/".join(filter(None, (self.path, node)))

    def violation(
        self,
        rule: str,
        node: OpNode,
        message: str,
        *,
        expected: str = "",
        found: str = "",
        remedy: str = "",
    ) -> Diagnostic:
        """Make the violation of a rule by a node of this graph."""
        found_here = Diagnostic(rule, message, expected=expected, found=found, remedy=remedy)
        return about(found_here, node, f"{self.path}/" if self.path else "")


def _regions(ir: IR) -> Iterator[tuple[str, tuple[Region, ...]]]:
    """The functions that are bodies of autocast regions, each with its region."""
    for node in ir.nodes:
        if node.op_type == AUTOCAST_REGION:
            dtype = node.attrs.get("dtype")
            kind = dtype.name if isinstance(dtype, DType) else ""
            region = (str(node.attrs.get("device_type")), kind, node.attrs.get("enabled") is True)
            for value in node.attrs.values():
                if isinstance(value, FunctionRef):
                    yield value.name, (region,)
