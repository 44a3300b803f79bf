"""Compare every denotation with torch on the samples that PyTorch tests its operators with.

Each entry of ``torch.testing._internal.common_methods_invocations.op_db`` is called on its first
samples in eight dtypes; where the core set has backward operators, with gradients too. Every call
that reaches an overload with a denotation is made again by the denotation, and the results are
compared within ``torch_ir.semantics.tolerance``. The table goes to the end of
``docs/conformance.md``. The exit status is 1 where something disagrees.

Usage: ``python tools/semantics_agreement.py [--jobs 2] [--only SUBSTRING]``
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from semantics_calls import BACKWARD, DTYPES, OPERATORS, Call, recorded
from semantics_page import write_section
from torch_ir.debug.reference.tolerance_check import as_ordered, ties_resolved
from torch_ir.errors import TorchIRError
from torch_ir.ops.choices import VALUES_OPEN, leaves_order_open, leaves_ties_open
from torch_ir.semantics import denotation
from torch_ir.semantics.bounds.algebra.relations import relation
from torch_ir.semantics.draws import Draws
from torch_ir.semantics.tolerance import bound

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/conformance.md"
SAMPLES = 20


@dataclass
class Agreement:
    """What came of the calls of one overload.

    Attributes:
        calls: How many there were in each dtype.
        refused: How many the denotation refuses, in each dtype.
        worst: The greatest error, as a part of what is allowed.
        exact: Whether all results were equal to the bit.
        faults: What did not agree, and how often.
    """

    calls: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    worst: float = 0.0
    exact: bool = True
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, other: Agreement) -> None:
        """Take in what came of more calls."""
        self.calls += other.calls
        self.refused += other.refused
        self.worst = max(self.worst, other.worst)
        self.exact &= other.exact
        self.faults += other.faults


def main() -> int:
    options = arguments()
    names = [i for i, operator in enumerate(OPERATORS) if options.only in operator.name]
    known: dict[str, Agreement] = defaultdict(Agreement)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("fork")) as pool:
        for found in pool.map(of_operator, names, chunksize=4):
            for op_type, agreement in found.items():
                known[op_type].add(agreement)
    for op_type, agreement in sorted(known.items()):
        for fault, count in agreement.faults.items():
            print(f"{op_type}: {fault} ({count})", flush=True)
    if not options.only:
        write_section(PAGE, known, SAMPLES)
    return 1 if any(agreement.faults for agreement in known.values()) else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--only", default="", help="operators whose name has this in it")
    return parser.parse_args()


def of_operator(index: int) -> dict[str, Agreement]:
    """The agreement of all calls that one operator's samples make."""
    warnings.simplefilter("ignore")
    torch.set_warn_always(False)
    torch.set_num_threads(1)
    operator, found = OPERATORS[index], defaultdict[str, Agreement](Agreement)
    for dtype in DTYPES:
        if operator.supports_dtype(dtype, "cpu"):
            for call in calls_of(operator, dtype):
                found[call.op_type].add(agreement(call, str(dtype).removeprefix("torch.")))
    return dict(found)


def calls_of(operator: Any, dtype: torch.dtype) -> Iterator[Call]:
    yield from recorded(operator, dtype, SAMPLES, backward=False)
    if operator.name in BACKWARD and dtype.is_floating_point:
        yield from recorded(operator, dtype, SAMPLES, backward=True)


def agreement(call: Call, dtype: str) -> Agreement:
    """Whether the denotation gives what torch gave."""
    result = Agreement(Counter([dtype]))
    try:
        result.worst = worst_error(call)
        result.exact = result.worst == 0
    except TorchIRError:
        return Agreement(refused=Counter([dtype]))
    except AssertionError as error:
        result.exact = False
        result.faults[f"{dtype}: {str(error).splitlines()[0][:150]}"] += 1
    except Exception as error:  # noqa: BLE001  # a denotation must raise nothing else: report it
        result.exact = False
        result.faults[f"{dtype}: {type(error).__name__}: {str(error)[:120]}"] += 1
    return result


def worst_error(call: Call) -> float:
    """The greatest error of a call's results, as a part of what is allowed."""
    with np.errstate(all="ignore"):
        known = denotation(call.op_type)
        draws = {"draws": Draws(0, "node")} if known.draws else {}
        given = known.function(**call.arguments, **draws)
        mine, theirs = as_list(given), as_list(call.result)
        assert len(mine) == len(theirs), f"{len(mine)} results, torch has {len(theirs)}"
        pairs = [pair for pair in zip(mine, theirs, strict=True) if required(*pair)]
        if call.op_type in VALUES_OPEN or known.draws:
            return 0.0
        if leaves_order_open(call.op_type, call.arguments):
            kernel = [theirs for _, theirs in pairs]
            ordered = as_ordered(call.arguments, *kernel, [mine for mine, _ in pairs])
            pairs = [*zip(ordered, kernel, strict=True)]
        if leaves_ties_open(call.op_type, call.arguments):
            mine, theirs = pairs[-1]
            pairs[-1] = ties_resolved(call.arguments, mine, theirs), theirs
        holds = relation(call.op_type)
        if holds is not None:  # there are many right answers
            sides = holds(call.arguments, [theirs for _, theirs in pairs])
            return max((error_of((e.expected, e.got), e.bound) for e in sides), default=0.0)
        bounds = bound(call.op_type, call.arguments, [first for first, _ in pairs]) or []
        errors = map(error_of, pairs, bounds)
        return max(errors, default=0.0)


def as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def required(mine: Any, theirs: Any) -> bool:
    """Whether the two are arrays to compare; what is not must be equal."""
    if not isinstance(theirs, np.ndarray):
        same = mine == theirs or (mine != mine and theirs != theirs)
        assert same, f"{mine!r}, torch has {theirs!r}"
        return False
    assert isinstance(mine, np.ndarray), f"{type(mine).__name__}, torch has an array"
    assert mine.dtype == theirs.dtype, f"{mine.dtype}, torch has {theirs.dtype}"
    assert mine.shape == theirs.shape, f"{mine.shape}, torch has {theirs.shape}"
    return True


def error_of(pair: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]], bound: Any) -> float:
    is_closed = np.broadcast_to(bound, pair[0].shape) < np.inf
    mine, theirs = (array[is_closed] for array in pair)
    bound = np.broadcast_to(bound, pair[0].shape)[is_closed]
    if mine.dtype.kind in "iub":
        assert np.array_equal(mine, theirs), "other integers"
        return 0.0
    wide = "complex128" if mine.dtype.kind == "c" else "float64"
    mine, theirs = mine.astype(wide), theirs.astype(wide)
    assert np.array_equal(np.isnan(mine), np.isnan(theirs)), "NaN elsewhere"
    different = (mine != theirs) & ~np.isnan(theirs)
    if not different.any():
        return 0.0
    error, allowed = np.abs(mine - theirs)[different], bound[different]
    parts = np.where(allowed == np.inf, 0, error / allowed)
    worst = float(parts.max()) if allowed.all() else float("inf")
    assert worst <= 1, f"off by {worst:.3g} of what is allowed, absolutely {error.max():.3g}"
    return worst


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
