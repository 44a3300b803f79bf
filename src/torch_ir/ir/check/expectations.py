"""Expectations of a program's text, in the language of LLVM's FileCheck."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch_ir.arguments import public
from torch_ir.errors import InvalidIRError, OptionalDependencyError, did_you_mean
from torch_ir.ir.diagnostics import Diagnostic
from torch_ir.quiet import quietly

if TYPE_CHECKING:
    from torch_ir.ir.graph import IR

KINDS = ("NEXT", "SAME", "NOT", "DAG", "LABEL", "EMPTY")
NO_NUMBERS = "numbers are not computed here: [[NAME:[0-9]+]] captures one as text"
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


@public
def expect(ir: IR | str, text: str, *, prefix: str = "CHECK") -> tuple[Diagnostic, ...]:
    r"""Check a program's text against expectations; return the first that is not met, or nothing.

    The directives are those of FileCheck: ``CHECK``, ``CHECK-NEXT``, ``-SAME``, ``-NOT``,
    ``-DAG``, ``-COUNT-n``, ``-LABEL`` and ``-EMPTY``, each with ``{{regex}}``, ``[[NAME:regex]]``
    and ``[[NAME]]``. Lines without one are remarks. The source lines of nodes are not in the text
    that is matched. The package ``filecheck`` does the matching.

    Args:
        ir: The program, or text to match as it is.
        text: The expectations.
        prefix: What the directives begin with.

    Raises:
        InvalidIRError: The text has no directives, begins with one that follows another, or is
            malformed.
        OptionalDependencyError: The package ``filecheck`` is not installed.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   %y: f32[2] = aten.relu.default(%x)
        ...   return %y
        ... }''')
        >>> expect(ir, "CHECK: aten.relu.default\nCHECK-NOT: aten.gelu")
        ()
        >>> expect(ir, "CHECK: aten.gelu.default")[0].message
        'line 1: Couldn\'t match "aten.gelu.default".'
    """
    _require_directives(text, prefix)
    try:
        from filecheck.error import ParseError
        from filecheck.matcher import Matcher
        from filecheck.options import DumpInputKind, Options
        from filecheck.parser import Parser, pattern_for_opts
    except ImportError as error:
        raise OptionalDependencyError(
            "expectations are matched by the package filecheck, which is not installed",
            remedy="Install it with: pip install 'torch-ir[expect]'",
        ) from error
    options = Options(
        _LINE, check_prefixes=[prefix], dump_input=DumpInputKind.FAIL, reject_empty_vars=True
    )
    try:
        operations: Any = tuple(Parser(options, io.StringIO(text), *pattern_for_opts(options)))
    except ParseError as error:
        reason = NO_NUMBERS if "[[#" in error.offending_line else error.message
        raise InvalidIRError(
            f"line {error.line_no} of the expectations: {reason}",
            picture=error.offending_line.rstrip("\n"),
        ) from None
    _require_patterns(operations, options, text)
    matcher = Matcher(options, _input(text_without_places(ir)), operations)
    told = matcher.stderr = io.StringIO()
    with quietly():  # the matcher prints where it is
        is_met = matcher.run() == 0
    return () if is_met else (_unmet(told.getvalue()),)


_LINE = "line"


def _input(text: str) -> Any:
    """What the matcher searches; ``^`` stands where a search begins, too, as in FileCheck.

    So ``CHECK-SAME: {{^}}`` asks for what follows the last match at once.
    """
    from filecheck.finput import FInput

    class Input(FInput):
        def find(self, pattern: re.Pattern[str], this_line: bool = False) -> Any:
            if "^" not in pattern.pattern:
                return super().find(pattern, this_line)
            start, end = self.range.start, min(self.range.end, len(self.content))
            if this_line and (line := self.content.find("\n", start, end)) != -1:
                end = line
            found = pattern.search(self.content[start:end])
            return found and _Shifted(found, start)

    return Input(_LINE, text)


class _Shifted:
    """A match in a part of a text, with places in the whole."""

    def __init__(self, match: re.Match[str], by: int):
        self.group = match.group
        self._match = match
        self._by = by

    def start(self, group: int = 0) -> int:
        return self._match.start(group) + self._by

    def end(self, group: int = 0) -> int:
        return self._match.end(group) + self._by


def _unmet(report: str) -> Diagnostic:
    """What the matcher tells, as a finding: the first line has the line and what is missing."""
    lines = _COLOR.sub("", report).replace("error: ", "").splitlines()
    first, *rest = lines or ["an expectation is not met"]
    number, _, message = first.removeprefix(f"{_LINE}:").partition(":")
    # a remedy is printed as one line
    seen = " | ".join([line.strip() for line in rest if line.strip(" ^")])
    return Diagnostic("not-met", f"line {number}: {message.strip()}", remedy=seen)


def _require_patterns(operations: Sequence[Any], options: Any, text: str) -> None:
    """Check that each pattern can be compiled, and that what it refers to was captured before.

    The matcher would tell so as an expectation that is not met.
    """
    from filecheck.compiler import compile_uops
    from filecheck.error import CheckError
    from filecheck.ops import Capture, NumSubst, Subst

    lines, known = text.splitlines(), set[str]()

    def fault(operation: Any, reason: str, remedy: str | None = None) -> InvalidIRError:
        place = f"line {operation.source_line} of the expectations"
        line = lines[operation.source_line - 1].strip()
        return InvalidIRError(f"{place}: {reason}", picture=line, remedy=remedy)

    for operation in operations:
        if any(isinstance(part, NumSubst) for part in operation.uops):
            raise fault(operation, NO_NUMBERS)
        is_label = operation.name == "LABEL"
        if is_label and any(isinstance(part, Capture | Subst) for part in operation.uops):
            raise fault(operation, "a label has no variables: it stands alone")
        wanted = [part.variable for part in operation.uops if isinstance(part, Subst)]
        try:
            _, captured = compile_uops(operation, dict.fromkeys([*known, *wanted], "x"), options)
        except CheckError as error:
            raise fault(operation, error.message) from None
        known |= captured.keys()
        for name in wanted:
            if name not in known:
                remedy = f"Capture it by [[{name}:regex]]."
                raise fault(operation, f"nothing before captures {name}", remedy)


def text_without_places(ir: IR | str) -> str:
    """Return a program's text without the source lines of its nodes; other text as it is."""
    if isinstance(ir, str):
        return ir

    def without(graph: IR) -> IR:
        functions = {name: without(body) for name, body in graph.functions.items()}
        nodes = [node.replace(location=None) for node in graph.nodes]
        return graph.replace(nodes=nodes, functions=functions)

    return f"{without(ir)}\n"


def _require_directives(text: str, prefix: str) -> None:
    """Check that there are directives, known ones, and that the first follows no other."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", prefix):
        raise InvalidIRError(f"a prefix is a word, got {prefix!r:.60}")
    pattern = re.compile(
        rf"(?:^|[^\w-]){re.escape(prefix)}(?:-([A-Z]+)(-\d+)?)?(?:\{{LITERAL\}})?:", re.M
    )
    found = list(pattern.finditer(text))
    if not found:
        raise InvalidIRError(
            f"there is no directive {prefix}: in the expectations",
            remedy=f"As in {prefix}: aten.linear.default",
        )
    for match in found:
        kind = match[1]
        line = text.count("\n", 0, match.end()) + 1
        if kind == "COUNT" and not match[2]:
            raise InvalidIRError(
                f"line {line} of the expectations: {prefix}-COUNT says no number",
                remedy=f"As in {prefix}-COUNT-3: aten.linear.default",
            )
        if kind and kind not in (*KINDS, "COUNT"):
            raise InvalidIRError(
                f"line {line} of the expectations: there is no directive {prefix}-{kind}",
                remedy=did_you_mean(kind, KINDS) or f"There are {', '.join(KINDS)} and COUNT-n.",
            )
    if found[0][1] in ("NEXT", "SAME", "EMPTY"):
        raise InvalidIRError(
            f"the expectations begin with {prefix}-{found[0][1]}, which follows another directive",
            remedy=f"Begin with {prefix}: or {prefix}-LABEL:.",
        )
