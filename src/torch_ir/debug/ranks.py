"""Programs of ranks compared with the whole program, in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import torch

from torch_ir.arguments import public
from torch_ir.debug.validation import Verdict
from torch_ir.errors import InvalidIRError, counted
from torch_ir.executor.inputs import flatten_arguments
from torch_ir.ir import IR
from torch_ir.ir.process_groups import groups_of
from torch_ir.ops.rules import allow_collectives
from torch_ir.passes.decomposition import decompose
from torch_ir.semantics import denote, denote_ranks
from torch_ir.semantics.dtypes import widest
from torch_ir.semantics.numbers import same
from torch_ir.tables import Shown
from torch_ir.weights import load_weights, shard_weights


@dataclass(frozen=True, slots=True)
class RanksReport(Shown):
    """How far what ranks compute is from what the whole program means.

    Attributes:
        ranks: How many ranks there are.
        errors: For each result of the program, the greatest difference on any rank, as a part of
            the greatest magnitude in that result.
        allowed: What each of them may be: sums over ranks are rounded in another order.
    """

    ranks: int
    errors: tuple[float, ...]
    allowed: tuple[float, ...]

    @property
    def verdict(self) -> Verdict:
        """``"agree"`` if every result of every rank is as near as it has to be."""
        pairs = zip(self.errors, self.allowed, strict=True)
        return "agree" if all(error <= most for error, most in pairs) else "disagree"

    def __str__(self) -> str:
        worst = max(self.errors, default=0.0)
        what = f"{counted(self.ranks, 'rank')}, {counted(len(self.errors), 'result')}"
        return f"{what}: {self.verdict}; greatest relative difference {worst:.2g}"


@public
def validate_ranks(
    ir: IR,
    programs: Sequence[IR],
    weights: Mapping[str, torch.Tensor] | str | PathLike[str],
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    tolerance: float | None = None,
    seed: int = 0,
) -> RanksReport:
    """Compare the programs of ranks with the whole program, all in one process.

    Both are decomposed and evaluated by :func:`torch_ir.denote_ranks`, without process groups.

    Args:
        ir: The whole program.
        programs: That of each rank, as :func:`torch_ir.shard` gives them.
        weights: The whole weights, or their file; each rank gets its parts.
        inputs: The arguments of the program, the same on every rank, and
        kwargs: its keyword arguments.
        tolerance: How far a result may be off, relative to its greatest magnitude; 256 units in
            the last place of 1 if not given, 16 for types of 16 bits, and nothing for integers.
        seed: The seed of random numbers.

    Raises:
        InvalidIRError: The ranks have more than one group.
        ExecutionError: An operator has no denotation.
        WeightLoadError: A weight is missing, or cannot be split so.

    Example:
        >>> from torch_ir import parse, shard
        >>> ir = parse('''ir {
        ...   weight @up.weight: f32[8, 4] as %a
        ...   input %x: f32[1, 4]
        ...   %h: f32[1, 8] = aten.linear.default(%x, %a)
        ...   return %h
        ... }''')
        >>> programs = shard(ir, {"up": "column"}, ranks=2)
        >>> weights = {"up.weight": torch.ones(8, 4)}
        >>> print(validate_ranks(ir, programs, weights, [torch.ones(1, 4)]))
        2 ranks, 1 result: agree; greatest relative difference 0
    """
    whole = weights if isinstance(weights, Mapping) else load_weights(weights, ir=ir)
    given, _symbols = flatten_arguments(ir, tuple(inputs), kwargs or {})
    with allow_collectives():
        core = {id(p): decompose(p) for p in {id(p): p for p in programs}.values()}
        meant = denote(decompose(ir), whole, given, seed=seed)
    found = denote_ranks(
        [core[id(program)] for program in programs],
        [shard_weights(program, whole, rank) for rank, program in enumerate(programs)],
        [given] * len(programs),
        groups=_one_group(programs),
        seed=seed,
    )
    errors = [
        max(_difference(expected, of_rank[position]) for of_rank in found)
        for position, expected in enumerate(meant)
    ]
    allowed = [_allowed(expected) if tolerance is None else tolerance for expected in meant]
    return RanksReport(len(programs), tuple(errors), tuple(allowed))


def _one_group(programs: Sequence[IR]) -> dict[str, list[range]]:
    if not programs:
        raise InvalidIRError("there is no program of a rank", remedy="Give what shard() returns.")
    names = {name for program in programs for name in groups_of(program)}
    if len(names) > 1:
        raise InvalidIRError(f"the ranks have more than one group: {', '.join(sorted(names))}")
    return {name: [range(len(programs))] for name in names}


def _difference(expected: Any, got: Any) -> float:
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return float("inf")
    a, b = widest(expected), widest(got)
    is_same = same(a, b)
    if is_same.all():
        return 0.0
    off = float(np.abs(np.where(is_same, 0, b - a)).max())
    greatest = float(np.abs(np.where(np.isfinite(a), a, 0)).max())
    return off / greatest if greatest and off == off else float("inf")


def _allowed(expected: Any) -> float:
    import ml_dtypes

    if expected.dtype.kind in "biu":
        return 0.0
    real = expected.real.dtype
    return float(ml_dtypes.finfo(real).eps) * (16 if real.itemsize <= 2 else 256)
