"""The dialects by name: what each allows, and whether a program keeps to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module

from torch_ir.arguments import public
from torch_ir.dialects.rules import GraphRule, NodeRule
from torch_ir.dialects.scope import VerifierScope
from torch_ir.errors import DialectError, code_of
from torch_ir.ir import IR
from torch_ir.ir.check import check
from torch_ir.ir.diagnostics import Diagnostic, dialect_error, errors_among
from torch_ir.lazy import module_with_torch
from torch_ir.ops.extensions import Registry


def _violation(found: object) -> Diagnostic:
    """Require that a rule, which may be of another package, yields violations."""
    if isinstance(found, Diagnostic):
        return found
    raise TypeError(f"it yields {found!r:.60}, which is no violation; see scope.violation")


@dataclass(frozen=True, slots=True)
class Dialect:
    """An operator set and invariants.

    Attributes:
        name: What ``IR.dialect`` says.
        summary: What it is for, in a sentence.
        node_rules: Rules of one call each.
        graph_rules: Rules of a graph as a whole.
    """

    name: str
    summary: str
    node_rules: tuple[NodeRule, ...] = field(default=(), repr=False)
    graph_rules: tuple[GraphRule, ...] = field(default=(), repr=False)

    def verify(
        self, ir: IR, *, allow: Iterable[str] = (), types: bool = True
    ) -> tuple[Diagnostic, ...]:
        """Find everything in a program that breaks a rule; see :func:`verify`."""
        root = VerifierScope(ir, "", ir.operators, frozenset(allow))
        found = [*errors_among(check(ir))]
        malformed = {violation.node for violation in found}
        for scope in root.walk():
            found += self._in_scope(scope)
            if types:
                found += _derived(scope, malformed)
        return tuple(dict.fromkeys(found))

    def _in_scope(self, scope: VerifierScope) -> Iterator[Diagnostic]:
        rule: GraphRule | NodeRule | None = None
        try:
            for rule in self.graph_rules:
                yield from map(_violation, rule(scope))
            for node in scope.ir.nodes:
                for rule in self.node_rules:
                    yield from map(_violation, rule(scope, node))
        except Exception:  # a context around each rule at each node would cost as much as it
            named = f"the rule {getattr(rule, '__name__', rule)} of the dialect {self.name!r}"
            with code_of(rule, named, DialectError):
                raise

    def require(
        self, ir: IR, *, allow: Iterable[str] = (), method: str = "", types: bool = True
    ) -> None:
        """Raise if a program breaks a rule.

        Raises:
            DialectError: It does; the message lists all violations.
        """
        violations = self.verify(ir, allow=allow, types=types)
        if violations:
            raise dialect_error(ir, self.name, violations, method=method)

    def __str__(self) -> str:
        return f"{self.name}: {self.summary}"


def _derived(scope: VerifierScope, malformed: set[str]) -> Iterable[Diagnostic]:
    feature, also = "deriving the types of a program anew", ", or pass types=False."
    derive = module_with_torch("torch_ir.dialects.type_rules", feature, also)
    return derive.type_violations(scope, malformed)


# -- by name --------------------------------------------------------------------------------------

_HOMES = {
    "export": "torch_ir.dialects.aten.dialects",
    "aten": "torch_ir.dialects.aten.dialects",
    "core_aten": "torch_ir.dialects.aten.dialects",
    "prims": "torch_ir.dialects.aten.dialects",
    "edge": "torch_ir.dialects.edge.dialect",
    "backend": "torch_ir.dialects.backend.dialect",
}


DIALECTS = Registry[Dialect]("torch_ir.dialects", "dialect", _HOMES)
"""Dialects that programs and installed packages add."""


def dialect_names() -> tuple[str, ...]:
    """Return the names of all dialects: ours in the order in which a program is lowered."""
    return (*_HOMES, *DIALECTS.names())


@public
def register_dialect(added: Dialect) -> Dialect:
    """Let :func:`dialect` and :func:`verify` find a dialect by its name.

    A package offers one by an entry point of the group ``torch_ir.dialects``.

    Raises:
        InvalidIRError: There is a dialect of that name.

    Example:
        >>> flat = register_dialect(with_rules(dialect("edge"), name="flat", summary="Flat."))
        >>> dialect("flat") is flat
        True
        >>> DIALECTS.unregister("flat")
    """
    return DIALECTS.register(added.name)(added)


@public
def dialect(name: str) -> Dialect:
    """Return the dialect of that name.

    Raises:
        InvalidIRError: There is none; the message names the closest.

    Example:
        >>> dialect("core_aten").name
        'core_aten'
    """
    if name not in _HOMES:
        return DIALECTS.find(name)
    return getattr(import_module(_HOMES[name]), name.upper())


@public
def verify(
    ir: IR,
    dialect_or_name: Dialect | str | None = None,
    *,
    allow: Iterable[str] = (),
    types: bool = True,
) -> tuple[Diagnostic, ...]:
    """Find everything in a program that breaks a rule of a dialect.

    All nodes are looked at: in functions and branches, and those whose results nothing uses.
    Shapes and dtypes are derived anew, not believed.

    Args:
        ir: The program.
        dialect_or_name: The dialect; that which ``ir.dialect`` names if not given.
        allow: Exact overloads to allow although they are not in the operator set.
        types: Derive shapes and dtypes anew; this needs torch.

    Raises:
        InvalidIRError: There is no such dialect.

    Example:
        >>> from torch_ir.ir import OpNode, TensorMeta
        >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> ir = IR([OpNode("y", "aten.relu_.default", [x], [y])], [x], [y], [])
        >>> print(*verify(ir, "aten", types=False))
        [writes-argument] node 'y': aten.relu_.default writes its argument 'self' (expected a \
functional operator, got aten::relu_(Tensor(a!) self) -> Tensor(a!))
            Run the pass functionalize.
    """
    chosen = dialect_or_name if dialect_or_name is not None else ir.dialect
    kept = dialect(chosen) if isinstance(chosen, str) else chosen
    return kept.verify(ir, allow=allow, types=types)


@public
def with_rules(
    base: Dialect, *rules: NodeRule, name: str | None = None, summary: str | None = None
) -> Dialect:
    """Return a dialect with more rules of nodes, and a name of its own if one is given."""
    return replace(
        base,
        name=name or base.name,
        summary=summary or base.summary,
        node_rules=(*base.node_rules, *rules),
    )
