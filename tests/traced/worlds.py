"""Random sequences of changes between calls of a function: does it ever answer for the past?

Two equal worlds live side by side. Each has a function with all that it depends on: arguments,
closed-over tensors and values, a module, torch's modes. The same changes are made to both; one
calls the function, the other one its traced form.

Usage: ``PYTHONPATH=tests python -m traced.worlds [SEQUENCES] [FIRST_SEED]``
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from torch_ir import make_traced
from traced.comparing import same

SCALARS = (1, 1.0, True, 0.0, -0.0, 2.5)
DTYPES = (torch.float32, torch.float64)


class Scale(nn.Module):
    """A module with a number, a buffer and a method that may be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 2.0
        self.register_buffer("offset", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.moved(x * self.factor)

    def moved(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.offset


class World:
    """A function, and everything that it depends on."""

    def __init__(self, seed: int, *, traced: bool):
        torch.manual_seed(seed)
        self.net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.3), Scale())
        self.x = torch.randn(3, 3)
        self.y = torch.randn(3, 3)
        self.scalar: Any = 2
        self.modes = {"grad": True, "autocast": False, "double": False, "inference": False}
        self.config = SimpleNamespace(bias=1.0, table={"k": 1}, tensors=[torch.randn(3)])
        self.items: list[Any] = [1, 2.0]
        self.functions, self.bind = closures(self)
        self.called = [make_traced(f) if traced else f for f in self.functions]

    def call(self, which: int) -> Any:
        """The result of a function, and gradients of it."""
        torch.set_default_dtype(torch.float64 if self.modes["double"] else torch.float32)
        torch.manual_seed(7)
        try:
            with (
                torch.set_grad_enabled(self.modes["grad"]),
                torch.autocast("cpu", enabled=self.modes["autocast"]),
                torch.inference_mode(self.modes["inference"]),
            ):
                result = self.called[which](self.x, self.y, self.scalar)
                return result, self.gradients(result)
        finally:
            torch.set_default_dtype(torch.float32)

    def gradients(self, result: Any) -> Any:
        """Gradients of a result in all leaves."""
        ends = [r.sum() for r in result if isinstance(r, torch.Tensor) and r.requires_grad]
        leaves = [t for t in self.tensors() if t.requires_grad and t.is_leaf]
        if not ends or not leaves or self.modes["inference"]:
            return None
        return torch.autograd.grad(sum(ends), leaves, allow_unused=True)

    def tensors(self) -> list[torch.Tensor]:
        """Everything that a call may write."""
        found = [self.x, self.y, self.bind("b"), *self.config.tensors]
        return [*found, *self.net.parameters(), *self.net.buffers()]

    def state(self) -> Any:
        """What a call leaves behind."""
        return [t.detach() for t in self.tensors()], torch.get_rng_state()


def closures(world: World) -> tuple[list[Callable[..., Any]], Callable[..., Any]]:
    """Functions over variables of their own, and what reads and binds these."""
    b: Any = torch.randn(3)
    flag: Any = True
    net, config, items = world.net, world.config, world.items

    def plain(x, y, s, power=2):
        z = x * s + b if flag else x - b
        return z + config.bias + sum(items), y.pow(power) * config.table["k"]

    def module(x, y, s):
        return (net(x) * s, y)

    def writes(x, y, s):
        x.add_(y * s)
        b.mul_(0.5)
        return x + b, x.view(-1) if x.is_contiguous() else x

    def draws(x, y, s):
        return torch.nn.functional.dropout(x, 0.5, bool(flag)) + torch.rand(3) * s, y.t()

    def reads(x, y, s):
        return x * y.sum().item(), config.tensors[0] * s, s

    def shapes(x, y, s):
        rows = x.shape[0]
        return (x / rows, x is y) if rows > 3 else (x * rows, y.stride()[0])

    def bind(name: str, *value: Any) -> Any:
        nonlocal b, flag
        if value and name == "b":
            b = value[0]
        elif value:
            flag = value[0]
        return b if name == "b" else flag

    return [plain, module, writes, draws, reads, shapes], bind


# -- changes --------------------------------------------------------------------------------------


def _fresh(draw: random.Random, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(draw.randrange(10**6))
    return torch.randn(*shape, dtype=dtype, generator=generator)


def argument(world: World, draw: random.Random) -> None:
    rows = draw.choice((2, 4))
    dtype = torch.float64 if draw.random() < 0.15 else torch.float32
    made = _fresh(draw, rows, 3, dtype=dtype)
    if draw.random() < 0.3:
        made = _fresh(draw, 3, rows, dtype=dtype).t()
    made.requires_grad_(draw.random() < 0.3)
    name = draw.choice("xy")
    setattr(world, name, made)
    other = world.y if name == "x" else world.x
    if other.shape != made.shape or draw.random() < 0.5:
        other = _fresh(draw, rows, 3, dtype=dtype).requires_grad_(draw.random() < 0.3)
        setattr(world, "y" if name == "x" else "x", other)


def aliasing(world: World, draw: random.Random) -> None:
    base = _fresh(draw, 5, 3)
    kind = draw.randrange(5)
    if kind == 0:
        world.y = world.x
    elif kind == 1:
        world.x, world.y = base[:3], base[1:4]
    elif kind == 2:
        world.x, world.y = base[:3], base[:3]
    elif kind == 3:
        world.bind("b", base[0])
        world.x, world.y = base[:4], base[1:]
    else:
        world.x = world.config.tensors[0] = base
        world.y = base.clone()


def scalar(world: World, draw: random.Random) -> None:
    world.scalar = draw.choice(SCALARS)


def flag(world: World, draw: random.Random) -> None:
    world.bind("flag", draw.choice((True, False, 1, 0)))


def closed_tensor(world: World, draw: random.Random) -> None:
    b, kind = world.bind("b"), draw.randrange(6)
    if kind == 0:
        world.bind("b", _fresh(draw, 3))
    elif kind == 1:
        world.bind("b", _fresh(draw, 3, dtype=draw.choice(DTYPES)))
    elif kind == 2:
        with torch.no_grad():
            b.mul_(-1)
    elif kind == 3:
        b.data = _fresh(draw, *draw.choice(((3,), (1,), (1, 3))), dtype=b.dtype)
    elif kind == 4:
        world.bind("b", _fresh(draw, 3).requires_grad_(draw.random() < 0.5))
    else:
        world.bind("b", _fresh(draw, 6)[::2])


def config(world: World, draw: random.Random) -> None:
    kind = draw.randrange(5)
    if kind == 0:
        world.config.bias = draw.choice(SCALARS)
    elif kind == 1:
        world.config.table["k"] = draw.choice(SCALARS)
    elif kind == 2:
        world.config.table = {"j": 3, "k": draw.choice(SCALARS)}
    elif kind == 3:
        world.items.append(draw.choice(SCALARS))
    else:
        world.config.tensors[0] = _fresh(draw, draw.choice((1, 3)))


def module_state(world: World, draw: random.Random) -> None:
    linear, norm, dropout, scale = world.net
    kind = draw.randrange(10)
    if kind == 0:
        world.net.train(draw.random() < 0.5)
    elif kind == 1:
        with torch.no_grad():
            linear.weight.mul_(0.5)
    elif kind == 2:
        linear.weight = nn.Parameter(_fresh(draw, 3, 3), requires_grad=draw.random() < 0.7)
    elif kind == 3:
        linear.bias.requires_grad_(draw.random() < 0.5)
    elif kind == 4:
        scale.factor = draw.choice((2.0, 2, 3.0, True))
    elif kind == 5:
        scale.offset = _fresh(draw, 3)
    elif kind == 6:
        dropout.p = draw.choice((0.0, 0.3, 0.6))
    elif kind == 7:
        norm.momentum = draw.choice((0.1, 0.5))
    elif kind == 8:
        scale.offset.data = _fresh(draw, draw.choice((1, 3)))
    else:
        scale.moved = draw.choice((torch.neg, torch.abs))


def hooks(world: World, draw: random.Random) -> None:
    if draw.random() < 0.5:
        world.net[0].register_forward_hook(_doubled)
    else:
        world.net[0]._forward_hooks.clear()


def _doubled(module: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
    return result * 2


def mode(world: World, draw: random.Random) -> None:
    name = draw.choice(("grad", "grad", "autocast", "double"))
    world.modes[name] = not world.modes[name]


def default(world: World, draw: random.Random) -> None:
    world.functions[0].__defaults__ = (draw.choice((1, 2, 3, 2.0)),)


CHANGES = (
    *(argument, argument, aliasing, scalar, flag, closed_tensor, closed_tensor),
    *(config, module_state, module_state, hooks, mode, default),
)


def run(seed: int, steps: int = 10) -> str:
    """Run one sequence; a sentence about the first call that went wrong, or nothing."""
    eager, traced = World(seed, traced=False), World(seed, traced=True)
    draw = random.Random(seed)
    log: list[str] = []
    few = draw.sample(range(len(eager.functions)), 2)
    for _ in range(steps):
        for change in draw.choices(CHANGES, k=draw.choice((0, 0, 1, 1, 2))):
            seeds = draw.random()
            for world in (eager, traced):
                change(world, random.Random(seeds))
            log.append(change.__name__)
        which = draw.choice(few) if draw.random() < 0.8 else draw.randrange(len(eager.functions))
        log.append(f"call {eager.functions[which].__name__}")
        expected, found = attempt(eager, which), attempt(traced, which)
        if isinstance(expected, Exception):
            if not isinstance(found, Exception):
                return f"seed {seed}: {log}: eager raises {expected!r}, got {found}"
            return ""  # what is left half done is another matter
        if isinstance(found, Exception):
            return f"seed {seed}: {log}: raises {found!r}"
        if not same(found, expected):
            return f"seed {seed}: {log}: got {found}, eager gives {expected}"
    return ""


def attempt(world: World, which: int) -> Any:
    """A result with what the call leaves behind, or the error."""
    try:
        return world.call(which), world.state()
    except Exception as error:  # noqa: BLE001  # whatever it is, the other one must raise too
        return error


def main() -> int:
    warnings.simplefilter("ignore")
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    wrong = [text for seed in range(first, first + count) if (text := run(seed))]
    print("\n".join(wrong))  # noqa: T201  # a script
    print(f"{count:,} sequences, {len(wrong)} wrong")  # noqa: T201  # a script
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
