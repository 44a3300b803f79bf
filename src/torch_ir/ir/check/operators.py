"""The operators that a node may not call, by the rules for all programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from torch_ir.ir.diagnostics import Diagnostic, DiagnosticError
from torch_ir.ir.node import OpNode
from torch_ir.ir.values import PLAIN, OperatorRef, attribute_leaves, is_plain
from torch_ir.ops.rules import (
    FORBIDDEN,
    OperatorRule,
    computes_tensors,
    recorded_rule,
    turns_checks_off,
)
from torch_ir.ops.schema import KNOWN_NAMESPACES, lookup


class OperatorCall(Protocol):
    """An operator with its arguments that are no tensors: a node is one."""

    @property
    def op_type(self) -> str:
        """The operator."""
        ...

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The arguments."""
        ...


def check_operators(node: OpNode) -> Iterator[Diagnostic]:
    """Find what a node may not call; it is no fault of the program, which can be read."""
    if "unsafe" not in node.attrs and computes_tensors(node.op_type):
        return
    for fault in forbidden_calls(node, _rule_of):
        yield replace(fault.at(node), severity="warning")


def forbidden_calls(
    node: OperatorCall, rule_of: Callable[[str], OperatorRule | None]
) -> Iterator[DiagnosticError]:
    """Find the operators that a node may not call: its own, and those that it hands on.

    Args:
        node: The node.
        rule_of: Gives the verdict on an operator; None where it has none.
    """
    own = rule_of(node.op_type)
    attrs = node.attrs
    if own is not None and not own.allowed:
        yield forbidden(own)
    elif "unsafe" in attrs:
        checked = turns_checks_off(node.op_type, attrs["unsafe"])
        if checked is not None:
            yield forbidden(checked)
    if PLAIN.issuperset(map(type, attrs.values())):
        return
    for name in _operators_handed_on(node):
        rule = rule_of(name)
        schema = lookup(name)
        if rule is not None and rule.allowed and schema is not None and "unsafe" in schema.names:
            rule = turns_checks_off(name, None)  # the call says so where nobody sees it
        if rule is not None and not rule.allowed:
            yield forbidden(rule)


def _operators_handed_on(node: OperatorCall) -> Iterator[str]:
    for value in node.attrs.values():
        if not is_plain(value):
            for item in attribute_leaves(value):
                if isinstance(item, OperatorRef):
                    yield item.name


def forbidden(rule: OperatorRule) -> DiagnosticError:
    """Return the fault that a call is which a rule refuses."""
    name = rule.op_type
    return DiagnosticError(
        FORBIDDEN,
        f"a program may not call {name}: {rule.rule}",
        remedy=f'Only if you trust the program, allow it: allow_operators("{name}") in Python, '
        f"--allow {name} on the command line",
    )


def _rule_of(op_type: str) -> OperatorRule | None:
    """The verdict on an operator that is known; what is unknown is reported as that."""
    rule = recorded_rule(op_type)
    if rule is None or rule.allowed:
        return rule
    namespace = op_type.partition(".")[0]
    return None if namespace in KNOWN_NAMESPACES and lookup(op_type) is None else rule
