"""Running models: the compiled graph against eager and everything else that runs an export.

Usage: ``python benchmarks/executor.py [--rounds N] [--page] [--peer PYTHON] [MODEL ...]``

All contenders of a model take turns in one process and one thread; what counts is the ratio to
eager. ``--peer`` is the Python of an environment with pytorch-ir (and transformers), which runs in
a process of its own and is measured there against its own eager. ``--page`` writes
``docs/performance.md``.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from executor_models import MODELS, build
from torch import nn

Contender = Callable[[], object]
Ratios = dict[str, float]

PEER = """
import sys, json
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from executor_models import build
from executor import interleaved
from torch_ir import extract_ir, IRExecutor
model, inputs = build(sys.argv[2])
ir = extract_ir(model, inputs, strict=False)
peer = IRExecutor(ir, model.state_dict())
with torch.inference_mode():
    ratios = interleaved(
        {"eager": lambda: model(*inputs), "peer": lambda: peer.execute(inputs)}, int(sys.argv[3])
    )
print(json.dumps(ratios["peer"]))
"""


def contenders(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> dict[str, Contender]:
    """Everything that runs the model, by name."""
    import torch_ir

    exported = torch.export.export(model, inputs)
    module = exported.module()
    interpreter = torch.fx.Interpreter(module)
    executor = torch_ir.IRExecutor(torch_ir.extract_ir(exported), model.state_dict())
    found: dict[str, Contender] = {
        "eager": lambda: model(*inputs),
        "torch-ir": lambda: executor(*inputs),
        "ep.module()": lambda: module(*inputs),
        "fx.Interpreter": lambda: interpreter.run(*inputs),
    }
    if hasattr(model, "embedding"):
        found["its linear layers alone"] = linear_layers(model)
    elif hasattr(model, "layers"):
        found["straight-line bindings"] = straight_line(model, inputs)
    return found


def straight_line(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Contender:
    """What a person writes who wants no overhead: the bindings that torch.nn calls, in a row."""
    names = {
        "linear": torch._C._nn.linear,
        "relu": torch._C._VariableFunctions.relu,
        "add": torch._C._VariableFunctions.add,
    }
    lines = ["def run(x):"]
    for number, layer in enumerate(model.layers):
        names[f"w{number}"], names[f"b{number}"] = layer.weight, layer.bias
        lines.append(f"    x = add(relu(linear(x, w{number}, b{number})), 1)")
    exec("\n".join([*lines, "    return x"]), names)
    run = names["run"]
    return lambda: run(*inputs)


def linear_layers(model: nn.Module) -> Contender:
    """What a step of one token cannot do without: each linear layer reads its weights once."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    tokens = {layer.in_features: torch.randn(1, 1, layer.in_features) for layer in layers}
    calls = [(tokens[layer.in_features], layer.weight) for layer in layers]

    def run() -> None:
        for token, weight in calls:
            torch._C._nn.linear(token, weight)

    return run


def interleaved(runs: dict[str, Contender], rounds: int) -> Ratios:
    """The median over rounds of each contender's time, divided by eager's of the same round."""
    started = time.perf_counter()
    for run in runs.values():
        run()
    once = (time.perf_counter() - started) / len(runs)
    repeats = max(1, min(200, int(0.05 / once)))
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            gc.collect()
            started = time.perf_counter()
            for _ in range(repeats):
                run()
            seconds[name].append((time.perf_counter() - started) / repeats)
    eager = seconds["eager"]
    return {
        name: statistics.median(t / e for t, e in zip(times, eager, strict=True))
        for name, times in seconds.items()
    }


def measure(name: str, rounds: int, peer: str | None) -> Ratios:
    """The ratios of one model, after a look whether the results are eager's bit for bit."""
    model, inputs = build(name)
    with torch.inference_mode():
        expected = copy.deepcopy(model)(*inputs)
        runs = contenders(copy.deepcopy(model), inputs)
        got = runs["torch-ir"]()
        if not torch.equal(got, expected):
            raise SystemExit(f"{name}: torch-ir is not equal to eager")
        ratios = interleaved(runs, rounds)
    if peer is not None:
        folder = str(Path(__file__).parent)
        command = [peer, "-c", PEER, folder, name, str(rounds)]
        run = subprocess.run(command, capture_output=True, text=True)
        lines = run.stdout.strip().splitlines()
        if run.returncode == 0 and lines:
            ratios["pytorch-ir"] = json.loads(lines[-1])
        else:
            print(f"pytorch-ir cannot run it: {run.stderr.strip().splitlines()[-1]}")
    return ratios


# -- compiling and memory -------------------------------------------------------------------------


def compile_times(rounds: int) -> dict[str, float]:
    """Microseconds a node: types derived anew, derived before, and for a graph compiled before."""
    import torch_ir
    from torch_ir.infer.meta import prove

    model, inputs = build("BERT of MiniLM's size")
    ir, weights = torch_ir.extract_ir(model, inputs), model.state_dict()

    def cold() -> None:
        prove.cache_clear()
        torch_ir.compile_graph(ir.replace(), weights)

    ways = {
        "types derived": cold,
        "types derived before": lambda: torch_ir.compile_graph(ir.replace(), weights),
        "without types": lambda: torch_ir.compile_graph(ir.replace(), weights, check_types=False),
        "graph compiled before": lambda: torch_ir.compile_graph(ir, weights),
    }
    found: dict[str, float] = {}
    for name, way in ways.items():
        way()
        times: list[float] = []
        for _ in range(rounds):
            gc.collect()
            started = time.process_time()
            way()
            times.append(time.process_time() - started)
        found[name] = min(times) / len(ir.nodes) * 1e6
    return found


CHAIN = """
import gc, re, sys, torch
class Chain(torch.nn.Module):
    def forward(self, x):
        for number in range(200):
            x = torch.sin(x) if number % 2 else x.flip(0)
        return x
def resident(which):
    return int(re.search(which + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
x = torch.ones(2, 1024, 1024)
if sys.argv[1] == "eager":
    run = Chain()
else:
    import torch_ir
    run = torch_ir.IRExecutor(torch_ir.extract_ir(Chain(), (torch.ones(2, 1024, 1024),)))
    run.graph
with torch.no_grad():
    run(x)  # loads kernels, which are memory too
    gc.collect()
    open("/proc/self/clear_refs", "w").write("5")  # the peak counts from here
    before = resident("VmRSS")
    run(x)
print((resident("VmHWM") - before) / 8192)
"""


def peak_of_a_chain(way: str) -> float:
    """How far a chain of 200 activations of 8 MiB raises the peak, in activations (Linux)."""
    command = [sys.executable, "-c", CHAIN, way]
    # what is freed goes back to the system at once, and shows
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1048576"}
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return float(run.stdout)


# -- the page -------------------------------------------------------------------------------------

COLUMNS = (
    *("torch-ir", "straight-line bindings", "its linear layers alone", "ep.module()"),
    *("fx.Interpreter", "pytorch-ir"),
)


def page(table: dict[str, Ratios], times: dict[str, float], peaks: dict[str, float]) -> str:
    """``docs/performance.md``."""
    rows = ["| model | " + " | ".join(COLUMNS) + " |", "|---|" + "---|" * len(COLUMNS)]
    for name, ratios in table.items():
        cells = [f"{ratios[c]:.2f}" if c in ratios else "" for c in COLUMNS]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(
        [
            "<!-- Written by `python benchmarks/executor.py --page`; do not edit. -->",
            "",
            "# Performance",
            "",
            "Time of a run as a ratio to eager PyTorch's, one thread, "
            f"torch {torch.__version__.partition('+')[0]}, CPU. Below 1 is faster than eager. All",
            "contenders of a row take turns in one process; the figure is the median over rounds.",
            "Every result of torch-ir is checked to be eager's, bit for bit.",
            "",
            "A step of one token is bound by reading weights: its linear layers alone, nothing",
            "between them, are the floor of whatever calls the same kernels.",
            "",
            *rows,
            "",
            "Compiling a graph, in microseconds a node:",
            "",
            "| " + " | ".join(times) + " |",
            "|" + "---|" * len(times),
            "| " + " | ".join(f"{value:.0f}" for value in times.values()) + " |",
            "",
            "A chain of 200 activations raises the peak memory of its process by this many of",
            "them: " + ", ".join(f"{way} {peak:.1f}" for way, peak in peaks.items()) + ".",
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--page", action="store_true", help="write docs/performance.md")
    parser.add_argument("--peer", default=os.environ.get("PEER"), metavar="PYTHON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    table: dict[str, Ratios] = {}
    for name in arguments.models:
        table[name] = measure(name, arguments.rounds, arguments.peer)
        shown = ", ".join(f"{way} {ratio:.3f}" for way, ratio in table[name].items())
        print(f"{name}: {shown}", flush=True)
    times = compile_times(max(arguments.rounds // 3, 3))
    print("compile, µs a node: " + ", ".join(f"{k} {v:.0f}" for k, v in times.items()))
    peaks = {way: peak_of_a_chain(way) for way in ("eager", "torch-ir")}
    print("peak of a chain: " + ", ".join(f"{k} {v:.1f}" for k, v in peaks.items()))
    if arguments.page:
        target = Path(__file__).parents[1] / "docs/performance.md"
        target.write_text(page(table, times, peaks), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
