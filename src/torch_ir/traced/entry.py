"""One traced call, ready to run again."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from operator import is_
from typing import Any

import torch

from torch_ir.errors import InputError
from torch_ir.executor.inputs import check_inputs
from torch_ir.traced.call_key import Flat
from torch_ir.traced.guards.closure import Closure
from torch_ir.traced.guards.explain import Description
from torch_ir.traced.program import Program
from torch_ir.traced.report import ExecutorReport
from torch_ir.traced.results import assembler
from torch_ir.traced.run.runners import MakeRunner


class CacheEntry:
    """A program with the closure that it was traced in.

    Args:
        program: The program.
        closure: What the function closed over.
        flat: The call that it was traced for.
        runner: Makes what runs it.
        description: The call in words.
        dynamic: Whether its key leaves sizes open.

    Attributes:
        choice: What runs the program.
    """

    def __init__(
        self,
        program: Program,
        closure: Closure,
        flat: Flat,
        runner: MakeRunner,
        description: Description,
        *,
        dynamic: bool,
    ):
        self.description = description
        self.program = program
        self.closure = closure
        self._make = runner
        self._overlap = _overlap(flat.tensors, closure)
        self._closed = frozenset(map(id, closure.tensors))
        closed = {k: closure.tensors[i] for k, i in program.closed.items()}
        self.choice = runner(program, closed, flat.tensors)
        run = self.choice.run
        self._run = torch.inference_mode()(run) if program.inference else run
        self._assemble = assembler(program)
        self._is_dynamic = dynamic
        self._drawn = [(_position(g, flat), g) for g in program.generators.values()]
        self._turn = threading.Lock()

    @property
    def title(self) -> str:
        """The function's name, and the types of its tensors."""
        ir = self.program.ir
        return f"{ir.model_name}({', '.join(str(meta)[1:] for meta in ir.graph_inputs)})"

    @property
    def report(self) -> ExecutorReport:
        """What runs each node."""
        choice = self.choice
        return ExecutorReport(self.title, choice.nodes, choice.subgraphs, choice.refused)

    def fits(self, flat: Flat) -> bool:
        """Return whether the tensors of a call have sizes that the program is for.

        They must also be shared with the closure as they were.
        """
        tensors = flat.tensors
        if self._is_dynamic and not self._has_sizes(tensors):
            return False
        if flat.generators and not is_apart(flat, self.closure):
            return False
        if not self._overlap and self._closed.isdisjoint(map(id, tensors)):
            return True
        return _overlap(tensors, self.closure) == self._overlap

    def run(self, flat: Flat) -> Any:
        """Run the program; return the function's result."""
        if self.choice.generators:
            return self._run_drawing(flat)
        return self._assemble(*self._run(flat.tensors))

    def _run_drawing(self, flat: Flat) -> Any:
        """The result of a program that draws from generators, which go on from where they are."""
        given = [
            generator if position is None else flat.generators[position]
            for position, generator in self._drawn
        ]
        with self._turn:
            for theirs, ours in zip(given, self.choice.generators, strict=True):
                ours.set_state(theirs.get_state())
            try:
                return self._assemble(*self._run(flat.tensors))
            finally:
                for theirs, ours in zip(given, self.choice.generators, strict=True):
                    theirs.set_state(ours.get_state())

    def moved(self, closure: Closure, flat: Flat) -> CacheEntry:
        """Return an entry of the same program for other objects with equal values and types."""
        tensors = closure.tensors
        if all(map(is_, tensors, self.closure.tensors)):
            entry = copy.copy(self)
            entry.closure = closure
            return entry
        return CacheEntry(
            self.program,
            closure,
            flat,
            self._make,
            self.description,
            dynamic=self._is_dynamic,
        )

    def _has_sizes(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether tensors have the sizes that the program is for, as traced and as it runs.

        What a lowering takes for true of sizes is a guard of what runs alone.
        """
        ir = self.program.ir
        more = [guard for guard in self.choice.ir.guards if guard not in ir.guards]
        try:
            check_inputs(ir.replace(guards=(*ir.guards, *more)) if more else ir, tensors, None, {})
        except InputError:
            return False
        return True


def is_apart(flat: Flat, closure: Closure) -> bool:
    """Return whether a call gives no generator that the function closes over."""
    return not any(given is known for given in flat.generators for known in closure.generators)


def _position(generator: torch.Generator, flat: Flat) -> int | None:
    """The position of a generator among those of a call; None for a closed-over one."""
    return next((i for i, given in enumerate(flat.generators) if given is generator), None)


def _overlap(tensors: Sequence[torch.Tensor], closure: Closure) -> dict[int, int]:
    found = {i: closure.position_of(tensor) for i, tensor in enumerate(tensors)}
    return {i: position for i, position in found.items() if position is not None}
