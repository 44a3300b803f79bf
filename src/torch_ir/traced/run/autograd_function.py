"""Gradients of programs that run without autograd: they are programs too, on the same executors.

The backward pass takes what the forward pass took, computes its values again, and differentiates
them by the formulas of torch's operators. What comes of that is traced, and run as a program.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast

import torch

from torch_ir.executor import compile_graph
from torch_ir.traced.call_key import flatten
from torch_ir.traced.capture import trace
from torch_ir.traced.functional import Compute, Functional, with_inputs
from torch_ir.traced.guards.closure import Closure
from torch_ir.traced.modes import modes
from torch_ir.traced.program import Program, program_of
from torch_ir.traced.results import assembler

_MOST = 64
"""So many gradients of one program are kept: they differ in sizes, and in what is wanted."""


class MakesRunner(Protocol):
    """What makes a program ready to run; :class:`~torch_ir.traced.run.runners.Preference` does."""

    def __call__(
        self,
        program: Program,
        closed: Mapping[str, torch.Tensor],
        tensors: Sequence[torch.Tensor],
    ) -> Any:
        """The program, with what it closes over, ready to run on such tensors."""
        ...


def autograd_function(
    program: Program, functional: Functional, compute: Compute, runner: MakesRunner
) -> Compute:
    """Wrap ``compute`` so that torch's autograd knows its gradients.

    Args:
        program: The program.
        functional: What ``compute`` computes.
        compute: Computes it, without autograd.
        runner: Runs the gradients.
    """
    gradient = _Gradient(program, functional, runner)
    count = len(functional.requires_grad)

    def call(*inputs: torch.Tensor) -> Sequence[Any]:
        # what is written after this must not change what gradients are computed from
        given = [
            tensor.clone() if position in functional.written else tensor
            for position, tensor in enumerate(inputs)
        ]
        numbers: list[Any] = []
        made = cast(Any, _ProgramWithGradient).apply(gradient, compute, count, numbers, *given)
        return [*made, *numbers]

    return call


class _ProgramWithGradient(torch.autograd.Function):
    """Runs a program, and its gradients when they are asked for."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch passes what apply is given
        ctx: Any,
        gradient: _Gradient,
        compute: Compute,
        count: int,
        numbers: list[Any],
        *inputs: Any,
    ) -> tuple[torch.Tensor, ...]:
        ctx.gradient = gradient
        ctx.random_state = torch.get_rng_state() if gradient.draws else None
        made = list(compute(*[tensor.detach() for tensor in inputs]))
        numbers += made[count:]
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)
        pairs = list(zip(made[:count], gradient.requires_grad, strict=True))
        ctx.mark_non_differentiable(*[tensor for tensor, requires in pairs if not requires])
        return tuple(made[:count])

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]  # as above
        with _random_state(ctx.random_state):
            found = ctx.gradient(ctx.saved_tensors, cotangents)
        return (None, None, None, None, *found)


@contextmanager
def _random_state(state: torch.Tensor | None) -> Generator[None]:
    """Draw the random numbers of the forward pass again; restore the generator afterwards."""
    if state is None:
        yield
        return
    before = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield
    finally:
        torch.set_rng_state(before)


class _Gradient:
    """The gradients of a program, traced once for each kind of call."""

    def __init__(self, program: Program, functional: Functional, runner: MakesRunner):
        self.requires_grad = functional.requires_grad
        self.draws = functional.draws is not None
        self._title = program.ir.model_name
        self._runner = runner
        self._written = functional.written
        self._chosen = functional.chosen
        # as the function calls them: regions without gradients and writes mean what they do there
        operators, _ = with_inputs(program.ir, program.ir.weight_name_mapping)
        self._graph = compile_graph(operators, grad=())
        self._entries: dict[Any, tuple[Callable[..., Any], Callable[..., Any]]] = {}
        self._turn = threading.RLock()

    def __call__(
        self, inputs: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor | None]
    ) -> Sequence[torch.Tensor | None]:
        """The gradient of each input."""
        given = (tuple(inputs), tuple(cotangents))
        flat = flatten(given, {})
        key = (modes(), *flat.tokens)
        entry = self._entries.get(key)
        if entry is None:
            with self._turn:
                if len(self._entries) >= _MOST:
                    self._entries.pop(next(iter(self._entries)))
                entry = self._entries[key] = self._entry(given, flat)
        run, assemble = entry
        return assemble(*run(flat.tensors))

    def _entry(self, given: Any, flat: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
        constants = list(self._graph.payload.values())
        closure = Closure([("constants", constants)])
        traced = trace(self._pulled_back, given, {}, flat, closure, dynamic=False)
        names = [f"x{position}" for position in range(len(flat.tensors))]
        title = f"gradient of {self._title}"
        program = program_of(traced, names, closure.paths, (given, {}), flat.positions, title)
        closed = {key: closure.tensors[index] for key, index in program.closed.items()}
        return self._runner(program, closed, flat.tensors).run, assembler(program)

    def _pulled_back(self, inputs: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        """The gradients by the formulas of torch's operators."""
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            given = [t.clone() if i in self._written else t for i, t in enumerate(inputs)]
            results = self._graph.run(given, {})[0]
            made = [results[position] for position in self._chosen]
            written = [given[position] for position in self._written]
            ends = [
                (tensor, cotangent)
                for tensor, cotangent in zip([*made, *written], cotangents, strict=True)
                if cotangent is not None and tensor.requires_grad
            ]
            wanted = [tensor for tensor in inputs if tensor.requires_grad]
            found: Sequence[Any] = [None] * len(wanted)
            if ends and wanted:
                found = torch.autograd.grad(
                    [tensor for tensor, _ in ends],
                    wanted,
                    [cotangent for _, cotangent in ends],
                    allow_unused=True,
                    create_graph=again,
                )
        gradients = iter(found)
        return [next(gradients) if tensor.requires_grad else None for tensor in inputs]
