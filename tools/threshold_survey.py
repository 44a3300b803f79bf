"""Survey the bounds of every denoted operator that PyTorch's own samples reach.

The operands are those of ``op_db``. A bound is *tight* where a relative error of 8 units of the
type is seen in 95 of 100 elements, or where torch's own kernel takes a twentieth of it in some
call; *vacuous* where half of the elements of some result might be zero unnoticed; else *wide*.
What is judged by relations is counted by the sides of their equations.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from semantics_calls import BACKWARD, OPERATORS, Call, recorded
from torch_ir.errors import TorchIRError
from torch_ir.ops.choices import VALUES_OPEN
from torch_ir.semantics import denotation
from torch_ir.semantics.bounds.algebra.relations import relation
from torch_ir.semantics.tolerance import bound, kind_of

Array = np.ndarray[Any, Any]
UNITS, SEEN, OWN, LOST = 8, 0.95, 0.05, 0.5
FEW = 8
"""Results of fewer elements say nothing about a share."""


@dataclass
class Finding:
    """What the calls of one overload in one type say about its bound.

    Attributes:
        elements: How many finite elements that are normal numbers there were.
        seen: In how many of them a planted error of 8 units is seen.
        part: The greatest error of torch's kernel as a part of the bound.
        lost: The greatest share of a result's elements that might be zero unnoticed.
    """

    elements: int = 0
    seen: int = 0
    part: float = 0.0
    lost: float = 0.0

    @property
    def verdict(self) -> str:
        """``tight``, ``wide`` or ``vacuous``."""
        if self.lost >= LOST:
            return "vacuous"
        return "tight" if self.seen >= SEEN * self.elements or self.part >= OWN else "wide"

    def add(self, first: Array, second: Array, allowed: Array, eps: float) -> None:
        """Take in a result: what is meant, what torch gave, and how far apart they may be."""
        least = float(np.finfo("float32" if eps != 2**-10 else "float16").smallest_normal)
        first, second = first.astype("float64"), second.astype("float64")
        sizes = np.abs(first)
        counted = np.isfinite(first) & np.isfinite(second) & (sizes >= 4 * least)
        sizes, limits = sizes[counted], allowed[counted]
        if not sizes.size:
            return
        self.elements += sizes.size
        self.seen += int((UNITS * eps * sizes > limits).sum())
        errors = np.abs(first - second)[counted]
        parts = errors[limits > 0] / limits[limits > 0]
        self.part = max(self.part, float(parts.max(initial=0)))
        if sizes.size >= FEW:
            self.lost = max(self.lost, float((sizes <= limits).mean()))


def survey(
    types: tuple[torch.dtype, ...], samples: int, only: str = ""
) -> dict[tuple[str, str], Finding]:
    """The findings by overload and type."""
    warnings.simplefilter("ignore")
    found: dict[tuple[str, str], Finding] = defaultdict(Finding)
    for operator in OPERATORS:
        for dtype in types:
            if only in operator.name and operator.supports_dtype(dtype, "cpu"):
                for call in _calls(operator, dtype, samples):
                    _measure(call, found)
    return dict(found)


def _calls(operator: Any, dtype: torch.dtype, samples: int) -> Iterator[Call]:
    yield from recorded(operator, dtype, samples, backward=False)
    if operator.name in BACKWARD:
        yield from recorded(operator, dtype, samples, backward=True)


def _measure(call: Call, found: dict[tuple[str, str], Finding]) -> None:
    known = denotation(call.op_type)
    if call.op_type in VALUES_OPEN or known.draws or kind_of(call.op_type) == "exact":
        return
    with np.errstate(all="ignore"):
        try:
            given = known.function(**call.arguments)
            meant = [r for r in _listed(given) if isinstance(r, np.ndarray)]
            theirs = [r for r in _listed(call.result) if isinstance(r, np.ndarray)]
            limits = bound(call.op_type, call.arguments, meant) or []
        except TorchIRError:
            return
        equations = relation(call.op_type)
        if equations is not None and len(theirs) == len(meant):
            holds = [(e.expected, e.got, e.bound) for e in equations(call.arguments, theirs)]
            kind = str(theirs[-1].real.dtype)
            sides = [(np.abs(a), np.abs(b), c, kind) for a, b, c in holds]
        else:
            pairs = zip(meant, theirs, limits, strict=False)
            sides = [(a, b, c, str(a.dtype)) for a, b, c in pairs if a.shape == b.shape]
        for first, second, allowed, name in sides:
            # where the bound of each element is infinite, a judge says that it compares nothing
            if name in EPS and not (allowed.size and np.all(allowed == np.inf)):
                found[call.op_type, name].add(first, second, allowed, EPS[name])


EPS = {"float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def section(found: dict[tuple[str, str], Finding], samples: int) -> str:
    """The section of the page: counts, and what is not tight."""
    lines = [
        "\n## Every denoted operator that torch's samples reach\n",
        f"The first {samples} samples of each entry of `op_db`. A bound is *tight* where an error",
        f"of {UNITS} ε is seen in {SEEN:.0%} of elements, or torch's own kernel takes",
        f"{OWN:.0%} of it in some call; *vacuous* where {LOST:.0%} of a result might be",
        "zero unnoticed; else *wide*.",
        "Overloads without rounding, whose bound is 0, are not counted.\n",
        "| element type | tight | wide | vacuous |\n|---|---:|---:|---:|",
    ]
    for name in EPS:
        verdicts = [finding.verdict for (_, kind), finding in found.items() if kind == name]
        counts = [verdicts.count(verdict) for verdict in ("tight", "wide", "vacuous")]
        lines.append(f"| {name} | " + " | ".join(map(str, counts)) + " |")
    lines.append("\nNot tight:\n")
    for (op_type, kind), finding in sorted(found.items()):
        if finding.verdict != "tight":
            share = finding.seen / max(finding.elements, 1)
            said = f"seen in {share:.0%} of {finding.elements} elements, error {finding.part:.3f}"
            lines.append(f"* {finding.verdict}: `{op_type}`, {kind}: {said}")
    return "\n".join(lines) + "\n"
