"""Runs that keep their memory (``options={"keep_memory": True}``) against eager with its own.

Usage: ``python benchmarks/keep_memory.py [--rounds N] [MODEL ...]``

The setting is one of the whole process, and how much memory glibc keeps without it follows from
what a process allocated before: so each contender of a model has a fresh process, and they take
turns. Prints rows of the table in ``docs/runtimes.md``: ratios of medians to eager's, and the page
faults of a call. Ends with an error where a result is not eager's bit for bit.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from executor_models import MODELS, First, Model
from runtimes import MORE
from torch import nn

import torch_ir

CONTENDERS = ("eager", "aten", "keep_memory")


class Separable(nn.Module):
    """Six blocks of three convolutions of 32 channels; the one in the middle is depthwise."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([self.block() for _ in range(6)])

    @staticmethod
    def block() -> nn.Module:
        shapes = ((1, 1), (3, 32), (1, 1))
        made = [nn.Conv2d(32, 32, k, padding=k // 2, groups=groups) for k, groups in shapes]
        return nn.Sequential(*[layer for conv in made for layer in (conv, nn.ReLU())])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class UNet(nn.Module):
    """Down once and up once, with the image of the way down beside that of the way up."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.deep, self.last = self.block(3, 16), self.block(16, 32), self.block(32, 16)
        self.up = nn.ConvTranspose2d(32, 16, 2, 2)

    @staticmethod
    def block(given: int, made: int) -> nn.Module:
        conv = nn.Conv2d(given, made, 3, padding=1)
        return nn.Sequential(conv, nn.BatchNorm2d(made), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.wide(x)
        deep = self.deep(nn.functional.max_pool2d(wide, 2))
        return self.last(torch.cat([wide, self.up(deep)], 1))


def of_transformers(name: str, size: int = 224) -> Callable[[], Model]:
    def make() -> Model:
        import transformers

        config = getattr(transformers, f"{name}Config")()
        model = First(getattr(transformers, f"{name}Model")(config), ("pixel_values",))
        return model, (torch.randn(1, 3, size, size),)

    return make


ALL: dict[str, Callable[[], Model]] = {
    **MODELS,
    **MORE,
    "MobileNetV1": of_transformers("MobileNetV1"),
    "ConvNeXt": of_transformers("ConvNext"),
    "SegFormer": of_transformers("Segformer", 256),
    "separable convolutions of 96 x 96": lambda: (Separable(), (torch.randn(1, 32, 96, 96),)),
    "U-Net of 256 x 256": lambda: (UNet(), (torch.randn(1, 3, 256, 256),)),
}


class Turn(NamedTuple):
    """What one turn of a contender took, a call."""

    seconds: float
    faults: float


def work(contender: str, name: str) -> None:
    """Be a contender: read how many calls to make, and write what they took, until the end."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, inputs = ALL[name]()
    model = model.eval().requires_grad_(False)
    ir = torch_ir.extract_ir(model, inputs)
    options = {"keep_memory": True} if contender == "keep_memory" else {}
    run = torch_ir.compile(ir, model.state_dict(), options=options)
    with torch.inference_mode():
        is_equal = torch.equal(run(*inputs), model(*inputs))
        called = model if contender == "eager" else run
        print(json.dumps(is_equal), flush=True)
        for line in sys.stdin:
            calls = int(line)
            before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
            for _ in range(calls):
                called(*inputs)
            took = time.perf_counter() - started
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before.ru_minflt
            print(json.dumps([took / calls, faults / calls]), flush=True)


class Worker:
    """A contender in a process of its own."""

    def __init__(self, contender: str, name: str):
        command = [sys.executable, "-W", "ignore", __file__, "--work", contender, name]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self.read() is not True:
            raise SystemExit(f"{name}: the result is not eager's bit for bit")

    def read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline() or "null")

    def turn(self, calls: int) -> Turn:
        print(calls, file=self.process.stdin, flush=True)
        return Turn(*self.read())

    def end(self) -> None:
        self.process.communicate()


def measure(name: str, rounds: int) -> dict[str, Turn]:
    """The medians of each contender of a model over its turns."""
    workers = {contender: Worker(contender, name) for contender in CONTENDERS}
    calls = max(1, min(2000, int(0.3 / workers["eager"].turn(2).seconds)))
    turns: dict[str, list[Turn]] = {contender: [] for contender in CONTENDERS}
    for _ in range(rounds):
        for contender, worker in workers.items():
            turns[contender].append(worker.turn(calls))
    for worker in workers.values():
        worker.end()
    return {
        contender: Turn(*map(statistics.median, zip(*found, strict=True)))
        for contender, found in turns.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(ALL)}")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(*given.models)
        return
    if unknown := set(given.models) - set(ALL):
        parser.error(f"there is no model {sorted(unknown)[0]!r}; there are {', '.join(ALL)}")
    print("| model | page faults of eager | `aten` | `keep_memory` | its page faults |")
    print("|---|---|---|---|---|")
    ratios: list[float] = []
    for name in given.models or ALL:
        eager, aten, kept = measure(name, given.rounds).values()
        ratios.append(kept.seconds / eager.seconds)
        print(
            f"| {name} | {eager.faults:,.0f} | {aten.seconds / eager.seconds:.2f} | "
            f"{ratios[-1]:.2f} | {kept.faults:,.0f} |",
            flush=True,
        )
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"| geometric mean | | | {mean:.2f} | |")


if __name__ == "__main__":
    main()
