"""A machine's calibration: small programs of one kind of node, timed once and kept."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from itertools import product
from math import isqrt, prod
from pathlib import Path
from typing import TypeAlias

import torch

from torch_ir.arguments import public
from torch_ir.executor import IRExecutor
from torch_ir.ir.analysis.calibrations import WEIGHTS, Calibration, Measured
from torch_ir.ir.analysis.costs import workloads
from torch_ir.ir.tensor import TensorMeta
from torch_ir.ir.text import parse
from torch_ir.ops.flops import GATES
from torch_ir.steps import steps

Axes: TypeAlias = tuple[tuple[int, ...], ...]
Written: TypeAlias = Callable[..., str]

_MANY, _FEW = 16, 2
"""How often a program has its node, each time on the same operands: small ones and others."""
_SMALL = 1 << 16
"""Bytes of a small node's first operand."""
_SECONDS = 0.012
"""How long each program runs at least in a round; the fastest run counts."""
_LARGEST = 1e9
"""Operations above which a call is not measured: it takes what fewer rows do, for each row."""
_CLOCK = 1e-4
"""Seconds between two readings of the clock, at least."""
_READ = (1, 512), (8, 512), (64, 512)
"""How many weights are read, and their rows and columns."""


@public
def calibrate(*, fresh: bool = False, rounds: int = 6) -> Calibration:
    """Return what this machine takes for nodes of each kind, measured once and then kept.

    The file is in ``torch-ir`` in the user's folder of caches, one for each processor, version of
    torch and number of threads.

    Args:
        fresh: Measure again.
        rounds: How often all kinds are measured in turn; more find a quiet moment for each.

    Raises:
        SerializationError: What is kept cannot be read.
    """
    machine = processor_name(), torch.__version__, torch.get_num_threads()
    path = calibration_path(*machine)
    if path.exists() and not fresh:
        return Calibration.load(path)
    grids = {kind: _Grid(*known) for kind, known in _KINDS.items()}
    everything = [timed for grid in grids.values() for timed in grid.programs.values()]
    reading = {_Timed(_read(*known)): known for known in _READ}
    for _ in steps(range(max(rounds, 1))):  # what disturbs for a while disturbs no kind alone
        for timed in (*everything, *reading):
            timed.run()
    found = {kind: grid.measured() for kind, grid in grids.items()}
    found[WEIGHTS] = Measured(
        (tuple(4.0 * count * width**2 for count, width in _READ),),
        tuple(t.calls * t.seconds for t in reading),
    )
    calibration = Calibration(*machine, found)
    calibration.save(path)
    return calibration


def calibration_path(processor: str, version: str, threads: int) -> Path:
    """Return where the calibration of a machine is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    # the last number is that of the file's format
    key = sha256(f"{processor}/{version}/{threads}/2".encode()).hexdigest()[:12]
    return Path(base) / "torch-ir" / f"calibration-{key}.json"


def processor_name() -> str:
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


class _Timed:
    """A program of one kind of work, and the least seconds that doing it once was seen to take."""

    def __init__(self, text: str):
        ir = parse(text)
        self._graph = IRExecutor(ir, {}).graph
        self._inputs = [_values(meta) for meta in ir.graph_inputs]
        work = workloads(ir)
        self.work = work[-1]
        self.calls = sum(w.kind == self.work.kind for w in work)
        self.seconds = float("inf")

    def run(self) -> None:
        """Run it for a while.

        A single thread is timed by what it ran, which other processes do not lengthen.
        """
        clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        end, at_once, now = time.perf_counter() + _SECONDS, 1, 0.0
        while now < end:
            start = clock()
            for _ in range(at_once):
                self._graph.run(self._inputs, {})
            taken, now = clock() - start, time.perf_counter()
            self.seconds = min(self.seconds, taken / at_once / self.calls / self.work.times)
            at_once = max(1, min(64, int(_CLOCK * at_once / max(taken, 1e-7))))


def _values(meta: TensorMeta) -> torch.Tensor:
    sizes = [d for d in meta.shape if isinstance(d, int)]
    if meta.dtype == "float32":
        return torch.rand(sizes)
    return torch.arange(prod(sizes)).reshape(sizes)  # indices


class _Grid:
    """The programs of one kind of call, at each combination of sizes that is not too large."""

    def __init__(self, axes: Axes, written: Written, counts: bool):
        self.axes = axes
        self.programs = {
            sizes: _Timed(written(*sizes))
            for sizes in product(*axes)
            if not counts or 2 * prod(sizes) <= _LARGEST or sizes[0] == axes[0][0]
        }

    def measured(self) -> Measured:
        if len(self.axes) == 1:
            found = {timed.work.sizes[0]: timed.seconds for timed in self.programs.values()}
            return Measured((tuple(found),), tuple(found.values()))
        return Measured(self.axes, tuple(map(self._seconds, product(*self.axes))))

    def _seconds(self, sizes: tuple[int, ...]) -> float:
        if sizes in self.programs:
            return self.programs[sizes].seconds
        fewer = self.axes[0][self.axes[0].index(sizes[0]) - 1]
        return self._seconds((fewer, *sizes[1:])) * sizes[0] / fewer


def _by_elements(name: str, operands: str = "%a", overload: str = "default") -> Written:
    """Programs of calls on so many elements, in rows of at most 256."""

    def written(count: int) -> str:
        size = f"{max(count // 256, 1)}, {min(count, 256)}"
        return _repeated([size] * operands.count("%"), size, name, operands, overload)

    return written


def _copied(count: int) -> str:
    """Copies of what is transposed."""
    columns = min(count // 4, 64)
    rows = count // columns
    view = f"  %t: f32[{columns}, {rows}] = aten.t.default(%a)"
    text = _repeated([f"{rows}, {columns}"], f"{columns}, {rows}", "contiguous", "%t")
    return text.replace("  %y0", f"{view}\n  %y0")


def _indexed(count: int) -> str:
    shape = f"{count // 16}, 16"
    lines = [
        f"ir {{\n  input %a: f32[{shape}]\n  input %i: i64[{count // 16}]",
        f"  %y: f32[{shape}] = aten.index.Tensor(%a, [%i])",
        "  return %y\n}",
    ]
    return "\n".join(lines)


def _sorted(count: int) -> str:
    rows, columns = max(count // 64, 1), min(count, 64)
    results = f"%y.0: f32[{rows}, 4], %y.1: i64[{rows}, 4]"
    call = f"  {results} = aten.topk.default(%a, k=4)"
    return f"ir {{\n  input %a: f32[{rows}, {columns}]\n{call}\n  return %y.0, %y.1\n}}"


def _rows(name: str, operands: str = "%a", overload: str = "default") -> Written:
    """Programs of calls on rows of some length."""

    def written(rows: int, length: int) -> str:
        size = f"{rows}, {length}"
        result = f"{rows}" if name == "mean" else size
        shapes = [size, *[f"{length}"] * (operands.count("%") - 1)]
        return _repeated(shapes, result, name, operands.format(length), overload)

    return written


def _normalized(channels: int, positions: int) -> str:
    side = isqrt(positions)
    size = f"1, {channels}, {side}, {side}"
    more = "None, None, %b, %c, training=False, momentum=0.1, eps=1e-5, cudnn_enabled=False"
    shapes = [size, f"{channels}", f"{channels}"]
    return _repeated(shapes, size, "batch_norm", f"%a, {more}")


def _pooled(made: int, area: int) -> str:
    side, window = 4 if made < 1 << 12 else 28, isqrt(area)
    channels = max(made // side**2, 1)
    sizes = f"kernel_size=[{window}, {window}], stride=[2, 2]"
    more = f"%a, {sizes}, padding=[{window // 3}, {window // 3}]"
    taken, result = f"1, {channels}, {2 * side}, {2 * side}", f"1, {channels}, {side}, {side}"
    return _repeated([taken], result, "max_pool2d", more)


def _product(rows: int, inner: int, columns: int) -> str:
    shapes = [f"{rows}, {inner}", f"{columns}, {inner}", f"{columns}"]
    return _repeated(shapes, f"{rows}, {columns}", "linear", "%a, %b, %c")


def _convolution(side: int) -> Written:
    more = f"None, stride=[1, 1], padding=[{side // 2}, {side // 2}], dilation=[1, 1]"

    def written(positions: int, inner: int, made: int) -> str:
        n, taken = isqrt(positions), inner // side**2
        shapes = [f"1, {taken}, {n}, {n}", f"{made}, {taken}, {side}, {side}"]
        return _repeated(shapes, f"1, {made}, {n}, {n}", "conv2d", f"%a, %b, {more}")

    return written


def _depthwise(positions: int, channels: int, area: int) -> str:
    n, side = isqrt(positions), isqrt(area)
    more = f"padding=[{side // 2}, {side // 2}], dilation=[1, 1], groups={channels}"
    size = f"1, {channels}, {n}, {n}"
    kernel = f"{channels}, 1, {side}, {side}"
    return _repeated([size, kernel], size, "conv2d", f"%a, %b, None, stride=[1, 1], {more}")


def _transposed(positions: int, inner: int, made: int) -> str:
    n = isqrt(positions)
    shapes = [f"1, {inner}, {n}, {n}", f"{inner}, {made // 4}, 2, 2"]
    result = f"1, {made // 4}, {2 * n}, {2 * n}"
    return _repeated(shapes, result, "conv_transpose2d", "%a, %b, None, stride=[2, 2]", "input")


def _attention(more: str) -> Written:
    def written(queries: int, keys: int, width: int) -> str:
        shapes = [f"1, 4, {n}, {width}" for n in (queries, keys, keys)]
        shapes += [f"1, 1, {queries}, {keys}"] * more.count("%")
        name = "scaled_dot_product_attention"
        return _repeated(shapes, f"1, 4, {queries}, {width}", name, f"%a, %b, %c{more}")

    return written


def _recurrent(name: str) -> Written:
    """One layer over some steps."""

    def written(count: int, batch: int, hidden: int) -> str:
        wide = f"{GATES[name] * hidden}"
        state, made = f"1, {batch}, {hidden}", f"{count}, {batch}, {hidden}"
        shapes = [made, state, *[f"{wide}, {hidden}"] * 2, wide, wide]
        inputs = [f"  input %{'abcdef'[i]}: f32[{shape}]" for i, shape in enumerate(shapes)]
        given, last = ("[%b, %b]", f", %y.2: f32[{state}]") if name == "lstm" else ("%b", "")
        more = "has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False"
        call = f"aten.{name}.input(%a, {given}, [%c, %d, %e, %f], {more}, batch_first=False)"
        lines = f"  %y.0: f32[{made}], %y.1: f32[{state}]{last} = {call}"
        return "\n".join(["ir {", *inputs, lines, "  return %y.0", "}"])

    return written


def _read(count: int, width: int) -> str:
    weights = [f"  input %w{i}: f32[{width}, {width}]" for i in range(count)]
    calls = [
        f"  %y{i}: f32[1, {width}] = aten.linear.default(%{f'y{i - 1}' if i else 'x'}, %w{i})"
        for i in range(count)
    ]
    end = f"  return %y{count - 1}"
    return "\n".join(["ir {", f"  input %x: f32[1, {width}]", *weights, *calls, end, "}"])


def _repeated(
    shapes: list[str], result: str, name: str, operands: str, overload: str = "default"
) -> str:
    inputs = [f"  input %{'abcd'[i]}: f32[{shape}]" for i, shape in enumerate(shapes)]
    is_small = prod(map(int, shapes[0].split(", "))) * 4 <= _SMALL
    count = _MANY if is_small else _FEW
    calls = [f"  %y{i}: f32[{result}] = aten.{name}.{overload}({operands})" for i in range(count)]
    return "\n".join(["ir {", *inputs, *calls, f"  return %y{count - 1}", "}"])


_ELEMENTS: Axes = ((16, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22),)
_PRODUCTS: Axes = (1, 8, 64, 512), (16, 128, 1024), (16, 128, 1024)
_ROWS: Axes = (1, 64, 2048), (16, 256, 2048)
_HEADS: Axes = (1, 32, 256), (32, 256), (32, 128)
_STATES: Axes = (2, 64), (1, 8, 64), (32, 128, 256, 512)
_NAMES: Mapping[str, tuple[str, str, str]] = {
    "pointwise": ("add", "%a, %b", "Tensor"),
    "exponential": ("sigmoid", "%a", "default"),
    "function": ("gelu", "%a", "default"),
}
_KINDS: Mapping[str, tuple[Axes, Written, bool]] = {
    "view": ((), lambda: _repeated(["8, 8"], "8, 8", "t", "%a"), False),
    **{kind: (_ELEMENTS, _by_elements(*call), False) for kind, call in _NAMES.items()},
    "softmax": (_ROWS, _rows("softmax", "%a, dim=1", "int"), False),
    "layer norm": (_ROWS, _rows("layer_norm", "%a, [{}], %b, %c"), False),
    "RMS norm": (_ROWS, _rows("rms_norm", "%a, [{}], %b"), False),
    "reduction": (_ROWS, _rows("mean", "%a, dim=[1]", "dim"), False),
    "normalization": (((8, 64, 512), (16, 784, 12544)), _normalized, False),
    "pooling": (((256, 15680, 250880), (4, 9)), _pooled, False),
    "copy": (_ELEMENTS, _copied, False),
    "indexing": (_ELEMENTS, _indexed, False),
    "sorting": (_ELEMENTS, _sorted, False),
    "product": (_PRODUCTS, _product, True),
    "convolution": (
        ((49, 784, 12544), (36, 144, 576, 2304), (8, 64, 256)),
        _convolution(3),
        True,
    ),
    "convolution of points": (
        ((49, 784, 12544), (16, 96, 576), (16, 96, 576)),
        _convolution(1),
        True,
    ),
    "depthwise": (((49, 784, 12544), (16, 96, 576), (9, 49)), _depthwise, True),
    "transposed convolution": (((49, 784), (32, 256), (64, 512)), _transposed, True),
    "attention": (_HEADS, _attention(""), True),
    "masked attention": (_HEADS, _attention(", attn_mask=%d"), True),
    **{name: (_STATES, _recurrent(name), True) for name in GATES},
}
"""The sizes of each kind, how a program is written for them, and whether they count operations."""
