"""Print how often the Edge dtype table and torch's kernels disagree on a fresh random sample.

Usage: ``python tools/measure_edge_constraints.py [--count N] [--seed N]``; exit 1 if they do.

A combination of dtypes is drawn for an operator, each argument from all that Edge has, none
pruned. Torch is called; the table has to take exactly the combinations that torch takes, with the
dtypes that it gives and no others.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from edge_recipes import REAL
from generate_edge_constraints import Prober
from torch_ir.ops.dtype_constraints import DTypeTable, constrained_operators, constraint_of


def disagreements(
    prober: Prober, table: DTypeTable, dtypes: tuple[str | None, ...]
) -> Iterator[tuple[str, dict[str, str | None]]]:
    """``false accept`` or ``false reject`` with the query, for one combination of arguments."""
    names = prober.names()
    given = {a.name: d for a, d in zip(prober.inputs, dtypes, strict=True) if d is not None}
    made = prober.call(dtypes)
    for results in made:
        found = dict(zip(names[len(dtypes) :], results, strict=True))
        query = {**given, **{name: d for name, d in found.items() if d is not None}}
        if not table.validate(query):
            yield "false reject", query
    for claimed in product(REAL, repeat=len(prober.results)) if len(prober.results) == 1 else ():
        query = {**given, **dict(zip(prober.results, claimed, strict=True))}
        if claimed not in made and table.validate(query):
            yield "false accept", query
    if not made and table.validate(given, partial=True):
        yield "false accept", given


def measure(count: int, seed: int) -> tuple[dict[str, int], int]:
    """The number of disagreements of each kind, which are printed, and of legal combinations."""
    warnings.simplefilter("ignore")
    draw = random.Random(seed)
    probers = {name: Prober(name) for name in constrained_operators()}
    counts = {"false accept": 0, "false reject": 0}
    legal = 0
    for _ in range(count):
        name = draw.choice(list(probers))
        prober = probers[name]
        dtypes = drawn(prober, draw)
        table = constraint_of(name)
        assert table is not None
        legal += bool(prober.call(dtypes))
        for kind, query in disagreements(prober, table, dtypes):
            counts[kind] += 1
            print(f"{kind}: {name} {query}")
    return counts, legal


def drawn(prober: Prober, draw: random.Random) -> tuple[str | None, ...]:
    """A combination; half of them mostly of one dtype, since few others are legal."""
    dtypes = [draw.choice(prober.choices(a)) for a in prober.inputs]
    if draw.random() < 0.5:
        one = draw.choice(REAL)
        for position, argument in enumerate(prober.inputs):
            if one in prober.choices(argument) and draw.random() < 0.8:
                dtypes[position] = one
    return tuple(dtypes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=5000, help="combinations to draw")
    parser.add_argument("--seed", type=int, help="for a sample that can be repeated")
    arguments = parser.parse_args()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    counts, legal = measure(arguments.count, seed)
    print(
        f"{arguments.count} combinations of {len(constrained_operators())} operators, {legal} "
        f"legal (seed {seed}): {counts['false accept']} false accepts, "
        f"{counts['false reject']} false rejects"
    )
    return 1 if any(counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
