"""Validate every node of many models: against their denotations and against eager torch.

``CASES`` is ``file.py:name``: a list, or a function that gives one, of triples (name, model,
inputs); the last two are functions that build an ``nn.Module`` and the tuple of its arguments.
Each case runs in a process of its own with a time limit. One line of JSON is written for each;
the totals follow. The exit status is 1 where a node diverges or a case fails.

Usage: ``python tools/validate_models.py CASES [--only SUBSTRING] [--seconds 120] [--out PATH]``
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, TimeoutError
from importlib.util import module_from_spec, spec_from_file_location
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

import torch

from torch_ir import extract_ir, validate

Case: TypeAlias = tuple[str, Callable[[], torch.nn.Module], Callable[[], tuple[Any, ...]]]


def main() -> int:
    options = arguments()
    cases = [case for case in read_cases(options.cases) if options.only in case[0]]
    records: list[dict[str, Any]] = []
    with Path(options.out).open("w") as out:
        for record in validated(cases, options.seconds):
            records.append(record)
            out.write(json.dumps(record) + "\n")
            out.flush()
            print(line(record), flush=True)
    print(totals(records))
    return 1 if any(r.get("fault") or r.get("divergences") for r in records) else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", metavar="CASES", help="file.py:name")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--seconds", type=float, default=120, help="time limit of a case")
    parser.add_argument("--out", default=os.devnull, help="where the lines of JSON go")
    return parser.parse_args()


def read_cases(place: str) -> list[Case]:
    """The cases that ``file.py:name`` names."""
    path, _, name = place.rpartition(":")
    spec = spec_from_file_location("cases", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, name)
    return list(found() if callable(found) else found)


def validated(cases: Iterable[Case], seconds: float) -> Iterator[dict[str, Any]]:
    """One record for each case, in order."""
    for case in cases:
        pool = ProcessPoolExecutor(1, mp_context=get_context("fork"))
        _CASES[case[0]] = case
        job = pool.submit(record_of, case[0])
        try:
            yield job.result(timeout=seconds)
        except TimeoutError:
            yield {"name": case[0], "fault": f"more than {seconds:g} s"}
        except Exception as error:  # noqa: BLE001  # the process died: that is its record
            yield {"name": case[0], "fault": f"{type(error).__name__}: {error}"}
        finally:
            for process in list(pool._processes.values()):
                process.kill()
            pool.shutdown(wait=True, cancel_futures=True)


_CASES: dict[str, Case] = {}
"""What a forked process is to do, by name: models cannot be sent to it."""


def record_of(name: str) -> dict[str, Any]:
    """What became of one case."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    _, build, arguments_of = _CASES[name]
    start = time.perf_counter()
    try:
        model, inputs = build(), arguments_of()
        ir = extract_ir(model, inputs, model_name=name, strict=False)
        ready = time.perf_counter()
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        report = validate(ir, model.state_dict(), tensors)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is told
        return {"name": name, "fault": f"{type(error).__name__}: {str(error)[:400]}"}
    worst = next(iter(report.worst().values()), None)
    return {
        "name": name,
        "nodes": report.nodes,
        "compared": dict(report.compared),
        "decomposed": report.decomposed,
        "random": len(report.random),
        "undenoted": dict(Counter(report.undenoted.values())),
        "divergences": [
            [str(d.node), d.text.split(" = ", 1)[-1][:160], d.reader, d.reason]
            for d in report.divergences
        ],
        "worst": None if worst is None else [worst.operator, worst.part],
        "extract_s": round(ready - start, 2),
        "validate_s": round(time.perf_counter() - ready, 2),
    }


def line(record: dict[str, Any]) -> str:
    """A record as one line, and one more for its first divergence."""
    name = record["name"]
    if "fault" in record:
        return f"{name}: FAULT {record['fault']}"
    text = f"{name}: {record['nodes']} nodes, {record['validate_s']} s"
    if record["undenoted"]:
        text += f", without denotation {record['undenoted']}"
    found = record["divergences"]
    return f"{text}, {len(found)} DIVERGE\n    {found[0]}" if found else text


def totals(records: list[dict[str, Any]]) -> str:
    """How many models, nodes, comparisons and divergences there were."""
    good = [record for record in records if "fault" not in record]
    compared = sum((Counter(record["compared"]) for record in good), Counter[str]())
    without = sum((Counter(record["undenoted"]) for record in good), Counter[str]())
    worst: Counter[str] = Counter()
    for record in good:
        if record["worst"] is not None:
            operator, part = record["worst"]
            worst[operator] = max(worst[operator], part)
    operator, part = max(worst.items(), key=lambda item: item[1], default=("none", 0))
    return (
        f"{len(good)} of {len(records)} models, {sum(r['nodes'] for r in good)} nodes; "
        f"{compared['denotation']} compared with the denotation "
        f"({sum(r['decomposed'] for r in good)} by decomposition), {compared['eager']} with "
        f"eager; {sum(len(r['divergences']) for r in good)} divergences in "
        f"{sum(bool(r['divergences']) for r in good)} models; "
        f"{sum(without.values())} nodes without denotation; nearest to its tolerance: "
        f"{operator}, {part:.2f} of it"
    )


if __name__ == "__main__":
    sys.exit(main())
