"""The search for the pass that breaks a program."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_ir.arguments import public
from torch_ir.debug.comparing.comparison import Comparison
from torch_ir.debug.comparing.lineage import Lineage
from torch_ir.debug.comparing.sources import Reader
from torch_ir.debug.shrinking.reduced import Oracle
from torch_ir.errors import counted
from torch_ir.executor.inputs import several
from torch_ir.ir import IR
from torch_ir.passes import Pass
from torch_ir.tables import Rows, Shown, report_text


@dataclass(frozen=True, slots=True)
class Bisection(Shown):
    """Which of some passes breaks a program.

    Attributes:
        index: The position of the pass; None if every pass is right.
        step: The pass.
        before: The program before it.
        after: The program after it.
        report: The comparison of the two, in names of ``before``; None with an oracle or if every
            pass is right.
        passes: The names of all passes.
        failure: What the oracle said, if there was one.
    """

    index: int | None
    step: Pass | None
    before: IR = field(repr=False)
    after: IR = field(repr=False)
    report: Comparison | None = field(repr=False)
    passes: tuple[str, ...]
    failure: str = ""

    def __str__(self) -> str:
        if self.index is None:
            return f"{counted(len(self.passes), 'pass')} compared, none breaks the program"
        head = f"pass {self.index + 1} of {len(self.passes)}, {self.step}, breaks the program"
        told = self.failure if self.report is None else str(self.report)
        return report_text([head, *told.split("\n")]).rstrip()

    def _grid(self) -> Rows:
        return [("", "pass"), *[(str(i + 1), name) for i, name in enumerate(self.passes)]]

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain data."""
        return {
            "index": self.index,
            "step": None if self.step is None else str(self.step),
            "passes": list(self.passes),
            "failure": self.failure,
            "report": None if self.report is None else self.report.to_dict(),
        }


@public
def bisect(
    ir: IR,
    passes: Sequence[Pass],
    weights: Mapping[str, torch.Tensor] | None,
    inputs: Sequence[torch.Tensor],
    *,
    against: Reader = "aten",
    oracle: Oracle | None = None,
) -> Bisection:
    """Find the pass that breaks a program, and the node at which it does.

    The passes run once. The program after the last is compared with the first, then halves.

    Args:
        ir: The program.
        passes: The passes, in order.
        weights: Tensors by ``state_dict`` key.
        inputs: A tensor for each graph input.
        against: What makes the values that are right.
        oracle: Says whether a program fails, in place of a comparison.

    Example:
        >>> from torch_ir import parse
        >>> from torch_ir.passes import passes_named
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   %y: f32[2] = aten.exp.default(%x)
        ...   return %y
        ... }''')
        >>> print(bisect(ir, passes_named("cse,dce"), {}, (torch.ones(2),)))
        2 passes compared, none breaks the program
    """
    inputs = several(inputs)
    names = tuple(map(str, passes))
    programs = [ir]
    for step in passes:
        programs.append(step(programs[-1]).ir)

    lineage = Lineage(weights, inputs, against)

    def failure(program: IR) -> str:
        if program is ir and oracle is None:
            return ""
        if oracle is not None:
            told = oracle(program, weights or {}, inputs)
            return "it fails" if told is True else (told or "")
        found = lineage.compare(ir, program).first
        return "" if found is None else str(found)

    if not failure(programs[-1]):
        return Bisection(None, None, ir, programs[-1], None, names)
    steps = range(1, len(passes))
    bad = 1 + bisect_left(steps, True, key=lambda step: bool(failure(programs[step])))
    before, after = programs[bad - 1], programs[bad]
    report = None
    if oracle is None:
        report = lineage.compare(before, after)
    told = failure(after) if oracle is not None else ""
    return Bisection(bad - 1, passes[bad - 1], before, after, report, names, told)
