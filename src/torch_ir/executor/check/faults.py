"""Faults of nodes, which end in a :class:`CompileError`."""

from __future__ import annotations

from collections.abc import Sequence

from torch_ir.errors import CompileError, counted
from torch_ir.ir import OpNode
from torch_ir.ir.check import Finding


class FaultError(Exception):
    """One thing that is wrong with one node; the compiler says at which.

    Args:
        code: The rule, as in :func:`torch_ir.ir.check.check`.
        message: What is wrong, in a sentence.
        expected: What the rule asks for, where it can be said in a word.
        got: What was found, in the same form.
        remedy: What to do about it.
    """

    def __init__(
        self, code: str, message: str, *, expected: str = "", got: str = "", remedy: str = ""
    ):
        super().__init__(message)
        self.code = code
        self.message = message
        self.expected = expected
        self.got = got
        self.remedy = remedy

    def at(self, node: OpNode | None, path: str = "") -> Finding:
        """Convert the fault to a finding about a node of the function at a path, or the graph."""
        message = f"{self.message}. {self.remedy}" if self.remedy else self.message
        if node is None:
            return Finding(self.code, message, path.rstrip("/"), self.expected, self.got)
        return Finding(
            self.code, message, path + node.name, self.expected, self.got, node.location
        )


def compile_error(findings: Sequence[Finding], node: OpNode | None) -> CompileError:
    """Return the error for one or more findings; its message is about the first.

    Args:
        findings: All that was found.
        node: The node that the first is about, if it is about one.
    """
    first = findings[0]
    where = f"node {first.node!r}: " if first.node else ""
    details = (
        f" (expected {first.expected}, got {first.got})" if first.expected or first.got else ""
    )
    picture = [] if node is None else [str(node)]
    if first.location is not None:
        picture.append(f"at {first.location}")
    others = len(findings) - 1
    return CompileError(
        f"{where}{first.message}{details}",
        picture="\n".join(picture) or None,
        remedy=f"The error has {counted(others, 'more finding')}." if others else None,
        findings=tuple(findings),
    )
