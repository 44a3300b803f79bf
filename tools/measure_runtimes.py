"""Run the small models of the tests on every installed runtime, and count what runs where.

Usage: ``PYTHONPATH=tests python tools/measure_runtimes.py [--backends NAME ...]
[--only MODEL ...]``

Each model is compiled for each runtime, called twice, and compared with eager. Prints a row for
each pair: the nodes that the runtime runs, its delegates, the worst part of what is allowed, and
what is refused. Fails if a result is wrong, or a runtime raises.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import torch

import torch_ir
from small_models import CASES, Case
from torch_ir.backends.native.auto import CANDIDATES, installed_runtimes
from torch_ir.torch_api import pytree

TOLERANCE = 1e-3
"""The relative error that a result may have."""


def is_close(got: Any, expected: Any) -> bool:
    """Whether all tensors of a result are: integers equal, others by norm."""
    pairs = list(zip(pytree.tree_leaves(got), pytree.tree_leaves(expected), strict=True))
    return all(_is_close(*pair) for pair in pairs if isinstance(pair[1], torch.Tensor))


def _is_close(got: torch.Tensor, expected: torch.Tensor) -> bool:
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return False
    if not (got.is_floating_point() or got.is_complex()):
        return torch.equal(got, expected)
    size = float(expected.abs().nan_to_num(0, 0, 0).max()) if expected.numel() else 0.0
    return torch.allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE * size, equal_nan=True)


def measured(case: Case, backend: str) -> tuple[int, int, str]:
    """The nodes that a runtime runs of a model, those that there are, and the rest of the row.

    Raises:
        ValueError: A result is wrong.
    """
    args, kwargs = case.inputs()
    ir = torch_ir.extract_ir(case.model(), args, kwargs=kwargs)
    weights = {key: tensor.clone() for key, tensor in case.model().state_dict().items()}
    run = torch_ir.compile(ir, weights, backend=backend)
    eager = case.model()
    for _ in range(2):
        given, same = case.inputs(), case.inputs()
        torch.manual_seed(0)
        got = run(*given[0], **given[1])
        torch.manual_seed(0)
        with torch.no_grad():
            expected = eager(*same[0], **same[1])
        if not is_close(got, expected):
            raise ValueError("a result is wrong")
    used = [verdict for verdict in run.verdicts if verdict.used]
    part = max([verdict.part for verdict in used], default=0.0)
    refused = {verdict.reason[:70] for verdict in run.verdicts if not verdict.used}
    taken = sum(len(verdict.nodes) for verdict in used)
    row = f"{len(used)} delegates, part {part:.2g}  {'; '.join(sorted(refused))}"
    return taken, len(run.assignment.nodes), row


def main(arguments: Sequence[str]) -> int:
    """Print the rows; 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", nargs="*", default=[*CANDIDATES])
    parser.add_argument("--only", nargs="*", default=[*CASES])
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    failed = 0
    for backend in options.backends:
        if backend not in installed_runtimes():
            print(f"{backend}: not installed")
            continue
        taken = total = 0
        for name in options.only:
            try:
                own, nodes, row = measured(CASES[name], backend)
            except Exception as error:  # noqa: BLE001  # every model is tried
                failed += 1
                print(f"{backend:12} {name:28} FAILED {type(error).__name__}: {error}"[:160])
                continue
            taken, total = taken + own, total + nodes
            print(f"{backend:12} {name:28} {own:4} of {nodes:4} nodes, {row}", flush=True)
        print(f"{backend}: {taken} of {total} nodes ({taken / max(total, 1):.0%})\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
