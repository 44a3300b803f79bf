"""The options of commands that run a program: its file, weights, inputs and symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from torch_ir.cli.files import STDIO, has_weights, read_ir
from torch_ir.cli.memory import require_memory
from torch_ir.cli.options import BACKEND, INPUT, SEED, allow_option, require_torch
from torch_ir.errors import ExecutionError
from torch_ir.weights.presence import require_weights

if TYPE_CHECKING:
    import torch

    from torch_ir.executor import IRExecutor
    from torch_ir.ir import IR

WEIGHTS_REMEDY = "Give --weights PATH, or --random-weights for a quick try."

Command = TypeVar("Command", bound=Callable[..., None])


def symbol_of(value: str) -> tuple[str, int]:
    """Read the argument ``NAME=VALUE`` of an option.

    Raises:
        BadParameter: It has another form.
    """
    name, _, size = value.partition("=")
    if not name or not size.isdecimal():
        raise click.BadParameter(f"{value!r} is not NAME=VALUE, such as s0=16")
    return name, int(size)


_OPTIONS = (
    click.option("--inputs", metavar="PATH", help="Inputs by name, from .safetensors or .npz."),
    click.option("--random", "random", is_flag=True, help="Random inputs; integers are 0 or 1."),
    click.option(
        "--symbol",
        "symbols",
        type=symbol_of,
        multiple=True,
        metavar="NAME=VALUE",
        help="Size of a symbolic dimension, for --random [2]; may be repeated.",
    ),
    click.option(
        "--seed", type=SEED, default=0, show_default=True, help="Seed of random numbers."
    ),
    click.option(
        "--weights",
        metavar="PATH",
        help="Weights, from .safetensors, .pt, .pt2, .tir, ... [FILE].",
    ),
    click.option("--random-weights", is_flag=True, help="Random weights, for a quick try."),
    click.option(
        "--constants",
        metavar="PATH",
        help="Values that no state_dict has, by key, from .safetensors or .npz.",
    ),
    click.option("--force", is_flag=True, help="Run even if it needs more memory than is free."),
    click.option(
        "--trust", is_flag=True, help="Let torch unpickle what a .pt2 weights file holds."
    ),
    allow_option,
)


def call_options(command: Command) -> Command:
    """Give a command the options that make a :class:`Call`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


backend_option = click.option(
    "--backend",
    type=BACKEND,
    metavar="NAME",
    help="What runs the IR: a backend's name, or package.module:NAME or file.py:NAME [torch].",
)


def graph_of(runner: Any, backend: str) -> Any:
    """Return the compiled graph of what a backend made of a program.

    Raises:
        ExecutionError: It shows none.
    """
    graph = getattr(runner, "graph", None)
    if graph is None:
        raise ExecutionError(
            f"the backend {backend!r} shows no graph",
            remedy="Use a DelegateBackend, or torch-ir bench, which times whole programs.",
        )
    return graph


@dataclass(frozen=True, slots=True)
class Invocation:
    """What to run a program on; the fields are the options."""

    inputs: str | None
    random: bool
    symbols: tuple[tuple[str, int], ...]
    seed: int
    weights: str | None
    random_weights: bool
    constants: str | None
    trust: bool
    force: bool
    allow: tuple[str, ...]

    @classmethod
    def opened(cls, file: str, options: Mapping[str, Any]) -> tuple[Self, IR]:
        """Return what the options say of a run on torch, and the program of a file.

        Raises:
            UsageError: Options exclude each other, or inputs are missing.
            OptionalDependencyError: There is no torch.
            TorchIRError: As :meth:`check_usage` and :meth:`read`.
        """
        call = cls(**options)
        call.check_usage()
        ir = call.read(file)
        require_torch()
        return call, ir

    def check_usage(self) -> None:
        """Refuse options that exclude each other, and files that are not there.

        Raises:
            UsageError: Two of them do.
            InputError: There is no such file.
        """
        if self.inputs and self.random:
            raise click.UsageError("--inputs and --random exclude each other")
        if self.weights and self.random_weights:
            raise click.UsageError("--weights and --random-weights exclude each other")
        for path in (self.inputs, self.weights, self.constants):
            if path is not None:
                INPUT.check(path)

    def refuse_constants(self, option: str) -> None:
        """Refuse constants beside an option that has no way to take them.

        Raises:
            UsageError: They are given.
        """
        if self.constants is not None:
            raise click.UsageError(f"{option} and --constants exclude each other")

    def read(self, file: str) -> IR:
        """Read the program.

        Raises:
            UsageError: It takes inputs, and nothing says which.
            MissingWeightsError: It has weights, and nothing says which.
            TooLittleMemoryError: It needs more memory than is free.
            SerializationError: It cannot be read.
            ParseError: It is text that is no IR text.
        """
        ir = read_ir(file)
        if ir.graph_inputs and not self.inputs and not self.random:
            names = ", ".join(str(meta) for meta in ir.graph_inputs)
            raise click.UsageError(f"give --inputs or --random; the inputs are {names}")
        given = self.random_weights or self.constants or self.weights_of(file)
        require_weights(ir, given or None, WEIGHTS_REMEDY)
        if not self.force:
            require_memory(ir, dict(self.symbols), weights=self.random_weights, inputs=self.random)
        return ir

    def weights_of(self, file: str) -> str | None:
        """Return the file of the weights: the program's own if it holds any."""
        given = self.weights is not None or self.random_weights
        return file if not given and file != STDIO and has_weights(file) else self.weights

    def tensors(self, ir: IR) -> tuple[torch.Tensor, ...]:
        """Return the inputs to run with.

        Raises:
            InputError: They cannot be read, or are not those of the program.
        """
        from torch_ir.cli.tensors import random_inputs, read_inputs

        if self.inputs:
            return tuple(read_inputs(ir, self.inputs))
        return tuple(random_inputs(ir, self.seed, dict(self.symbols)))

    def samples(self, ir: IR, count: int) -> list[tuple[torch.Tensor, ...]]:
        """Return more random inputs, of the seeds after the first."""
        from torch_ir.cli.tensors import random_inputs

        seeds = range(self.seed + 1, self.seed + 1 + count)
        return [tuple(random_inputs(ir, seed, dict(self.symbols))) for seed in seeds]

    def executor(self, ir: IR, file: str) -> IRExecutor:
        """Return an executor of the program with its weights.

        Raises:
            WeightLoadError: They cannot be read, or are not those of the program.
            InputError: The file of constants cannot be read.
        """
        from torch_ir.cli.tensors import read_tensors
        from torch_ir.executor import IRExecutor

        values = read_tensors(self.constants) if self.constants else None
        return IRExecutor(ir, self.weight_tensors(ir, file), values, allow=self.allow)

    def runner(self, ir: IR, file: str, backend: str) -> Any:
        """Return the program compiled for a backend, with its weights.

        Raises:
            ExecutionError: There is no such backend.
            CompileError: It does not take the program.
            UsageError: Constants are given, which it has no way to take.
        """
        from torch_ir.backends import compile as compile_program

        self.refuse_constants("--backend")
        weights = self.weight_tensors(ir, file)
        return compile_program(ir, weights, backend=backend, allow=self.allow)

    def weight_tensors(self, ir: IR, file: str) -> Any:
        """Return the weights to run with; None where nothing says which."""
        from torch_ir.cli.tensors import random_weights
        from torch_ir.weights import load_weights

        path = self.weights_of(file)
        if self.random_weights:
            return random_weights(ir, self.seed)
        return None if path is None else load_weights(path, trust=self.trust)
