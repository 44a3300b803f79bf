"""A model of Llama-70B's shape, 80 layers on the meta device: extraction, memory, and the file.

Extraction and ``torch.export`` alone run in turn, each in a process of its own, so that the
high-water mark of memory is theirs.
"""

from __future__ import annotations

import gc
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

import torch_ir

ROUNDS = 3
LAYERS = 80
TOKENS = 16


def llama() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """The model and its inputs, without memory."""
    config = transformers.LlamaConfig(
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=LAYERS,
        num_attention_heads=64,
        num_key_value_heads=8,
        vocab_size=128256,
        use_cache=False,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config).eval()
        return model, (torch.zeros(1, TOKENS, dtype=torch.long),)


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """How long a call takes, and its result; what was left behind before is collected first."""
    gc.collect()
    started = time.perf_counter()
    result = call()
    return time.perf_counter() - started, result


def measure(which: str) -> dict[str, float]:
    """One side, in this process: seconds, and the high-water mark of memory in MiB."""
    model, inputs = llama()
    torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))  # imports what it imports late
    if which == "export":
        duration, _ = seconds(lambda: torch.export.export(model, inputs))
        return {"seconds": duration, "MiB": _high_water()}
    duration, ir = seconds(lambda: torch_ir.extract_ir(model, inputs))
    figures = {"seconds": duration, "MiB": _high_water(), "nodes": len(ir.nodes)}
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("json", "tir"):
            path = Path(folder) / f"llama.{suffix}"
            figures[f"save .{suffix}"], _ = seconds(lambda path=path: ir.save(path))
            figures[f"load .{suffix}"], loaded = seconds(lambda path=path: torch_ir.IR.load(path))
            figures[f"MB .{suffix}"] = path.stat().st_size / 1e6
            if loaded != ir:
                raise SystemExit(f"the {suffix} file does not give the IR back")
    return figures


def _high_water() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    if len(sys.argv) == 2:
        print(json.dumps(measure(sys.argv[1])))
        return
    runs: dict[str, list[dict[str, float]]] = {"export": [], "extract": []}
    for _ in range(ROUNDS):
        for which, results in runs.items():
            command = [sys.executable, __file__, which]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            results.append(json.loads(output.splitlines()[-1]))
    medians = {
        which: {key: statistics.median(r[key] for r in results) for key in results[0]}
        for which, results in runs.items()
    }
    print(
        f"\nLlama-70B's shape on meta, {medians['extract']['nodes']:.0f} nodes (targets: 1.1, 1.1)"
    )
    for key in ("seconds", "MiB"):
        ours, base = medians["extract"][key], medians["export"][key]
        print(
            f"  extract_ir {ours:>10.1f} {key:<8} {ours / base:>7.3f} x torch.export ({base:.1f})"
        )
    for suffix in ("json", "tir"):
        save, load = (medians["extract"][f"{what} .{suffix}"] for what in ("save", "load"))
        size = medians["extract"][f"MB .{suffix}"]
        print(f"  .{suffix:<5} {size:.1f} MB, saved in {save:.2f} s, loaded in {load:.2f} s")


if __name__ == "__main__":
    main()
