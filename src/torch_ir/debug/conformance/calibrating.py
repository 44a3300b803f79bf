"""A machine's calibration: small programs of one kind of node, timed once and kept."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from hashlib import sha256
from math import prod
from pathlib import Path

import torch

from torch_ir.executor import IRExecutor
from torch_ir.ir import IR
from torch_ir.ir.analysis.calibrations import COMPUTING, WEIGHTS, Calibration
from torch_ir.ir.analysis.costs import cost
from torch_ir.ir.text import parse
from torch_ir.steps import steps

_MANY, _FEW = 16, 2
"""How often a program has its node, each time on the same operands: small ones and others."""
_SMALL = 1 << 16
"""Bytes of a small node's first operand."""
_SECONDS, _RUNS = 0.25, 40
"""How long a program is run at least, and how often; the fastest run counts, as undisturbed."""


def calibrate(*, fresh: bool = False) -> Calibration:
    """Return what this machine takes for nodes of each kind, measured once and then kept.

    The file is in ``torch-ir`` in the user's folder of caches, one for each processor, version of
    torch and number of threads.

    Args:
        fresh: Measure again.

    Raises:
        SerializationError: What is kept cannot be read.
    """
    machine = processor_name(), torch.__version__, torch.get_num_threads()
    path = calibration_path(*machine)
    if path.exists() and not fresh:
        return Calibration.load(path)
    points: dict[str, list[tuple[float, float]]] = {}
    for kind, text in steps(list(_programs())):
        ir = parse(text)
        node = cost(ir).nodes[0]
        work = (node.flops or 0) if kind in COMPUTING else node.bytes_read + node.bytes_written
        times = len(ir.nodes) if kind == WEIGHTS else 1  # what all of them take
        points.setdefault(kind, []).append((float(work * times), _timed(ir) * times))
    found = {kind: tuple(sorted(known)) for kind, known in points.items()}
    calibration = Calibration(*machine, found)
    calibration.save(path)
    return calibration


def calibration_path(processor: str, version: str, threads: int) -> Path:
    """Return where the calibration of a machine is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    key = sha256(f"{processor}/{version}/{threads}".encode()).hexdigest()[:12]
    return Path(base) / "torch-ir" / f"calibration-{key}.json"


def processor_name() -> str:
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _timed(ir: IR) -> float:
    """The seconds of one node: those of the fastest run by the number of nodes."""
    graph = IRExecutor(ir, {}).graph
    inputs = [
        torch.rand([d for d in meta.shape if isinstance(d, int)]) for meta in ir.graph_inputs
    ]
    end, best, runs = time.monotonic() + _SECONDS, float("inf"), 0
    while runs < _RUNS or time.monotonic() < end:
        start = time.perf_counter()
        graph.run(inputs, {})
        best, runs = min(best, time.perf_counter() - start), runs + 1
    return best / len(ir.nodes)


def _programs() -> Iterator[tuple[str, str]]:
    """Programs of one kind of node, as text."""
    yield "view", _repeated(["8, 8"], "8, 8", "t", "%a")
    for n in (16, 1 << 10, 1 << 14, 1 << 17, 1 << 20):
        rows = f"{max(n // 256, 1)}, {min(n, 256)}"
        yield "pointwise", _repeated([f"{n}", f"{n}"], f"{n}", "add", "%a, %b", "Tensor")
        yield "exponential", _repeated([f"{n}"], f"{n}", "sigmoid", "%a")
        yield "function", _repeated([f"{n}"], f"{n}", "gelu", "%a")
        yield "row", _repeated([rows], rows, "softmax", "%a, dim=1", "int")
    for n in (4, 16, 64, 128, 256, 512, 1024):
        shapes = [f"32, {n}", f"{n}, {n}", f"{n}"]
        yield "product", _repeated(shapes, f"32, {n}", "linear", "%a, %b, %c")
    for n in (8, 32, 128, 256):
        size = f"1, 4, {n}, 64"
        operands = "%a, %b, %c"
        call = _repeated([size] * 3, size, "scaled_dot_product_attention", operands)
        yield "attention", call
    for channels, n in ((4, 8), (16, 16), (64, 28), (128, 28)):
        image, kernel = f"1, {channels}, {n}, {n}", f"{channels}, {channels}, 3, 3"
        more = "%a, %b, None, stride=[1, 1], padding=[1, 1], dilation=[1, 1]"
        yield "convolution", _repeated([image, kernel], image, "conv2d", more)
    for channels, n in ((4, 8), (16, 16), (64, 28), (128, 56)):
        size = f"1, {channels}, {n}, {n}"
        more = "%a, kernel_size=[3, 3], stride=[1, 1], padding=[1, 1]"
        yield "pooling", _repeated([size], size, "max_pool2d", more)
        more = (
            "%a, None, None, %b, %c, training=False, momentum=0.1, eps=1e-5, cudnn_enabled=False"
        )
        shapes = [size, f"{channels}", f"{channels}"]
        yield "normalization", _repeated(shapes, size, "batch_norm", more)
    for count in (1, 8, 64):
        weights = [f"  input %w{i}: f32[512, 512]" for i in range(count)]
        calls = [
            f"  %y{i}: f32[1, 512] = aten.linear.default(%{f'y{i - 1}' if i else 'x'}, %w{i})"
            for i in range(count)
        ]
        end = f"  return %y{count - 1}"
        yield WEIGHTS, "\n".join(["ir {", "  input %x: f32[1, 512]", *weights, *calls, end, "}"])


def _repeated(
    shapes: list[str], result: str, name: str, operands: str, overload: str = "default"
) -> str:
    inputs = [f"  input %{'abc'[i]}: f32[{shape}]" for i, shape in enumerate(shapes)]
    is_small = prod(map(int, shapes[0].split(", "))) * 4 <= _SMALL
    count = _MANY if is_small else _FEW  # a long run is more likely to be interrupted
    calls = [f"  %y{i}: f32[{result}] = aten.{name}.{overload}({operands})" for i in range(count)]
    return "\n".join(["ir {", *inputs, *calls, f"  return %y{count - 1}", "}"])
