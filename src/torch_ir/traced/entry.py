"""One traced call, ready to run again."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from operator import is_
from typing import Any

import torch

from torch_ir.errors import InputError
from torch_ir.executor.inputs import check_inputs
from torch_ir.ir import IR
from torch_ir.traced.arguments import Flat
from torch_ir.traced.describe import Description
from torch_ir.traced.environment import Environment
from torch_ir.traced.program import Program
from torch_ir.traced.results import assembler
from torch_ir.traced.runners import MakeRunner


class Entry:
    """A program with the environment that it was traced in.

    Args:
        program: The program.
        environment: What the function closed over.
        flat: The call that it was traced for.
        runner: Makes what runs it.
        description: The call in words.

    Attributes:
        choice: What runs the program.
    """

    def __init__(
        self,
        program: Program,
        environment: Environment,
        flat: Flat,
        runner: MakeRunner,
        description: Description,
    ):
        self.description = description
        self.program = program
        self.environment = environment
        self._make = runner
        self._overlap = _overlap(flat.tensors, environment)
        self._closed = frozenset(map(id, environment.tensors))
        closed = {k: environment.tensors[i] for k, i in program.closed.items()}
        self.choice = runner(program, closed, flat.tensors)
        self._run = self.choice.run
        self._assemble = assembler(program)
        self._is_dynamic = any(not meta.is_static for meta in program.ir.graph_inputs)

    @property
    def title(self) -> str:
        """The function's name, and the types of its tensors."""
        ir = self.program.ir
        return f"{ir.model_name}({', '.join(str(meta)[1:] for meta in ir.graph_inputs)})"

    def fits(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether tensors of a call have sizes that the program is for.

        They must also be shared with the environment as they were.
        """
        if self._is_dynamic and not _has_sizes(self.program.ir, tensors):
            return False
        if not self._overlap and self._closed.isdisjoint(map(id, tensors)):
            return True
        return _overlap(tensors, self.environment) == self._overlap

    def run(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The function's result."""
        return self._assemble(*self._run(tensors))

    def moved(self, environment: Environment, flat: Flat) -> Entry:
        """The same program where other objects hold equal values and tensors of equal types."""
        tensors = environment.tensors
        if all(map(is_, tensors, self.environment.tensors)):
            entry = copy.copy(self)
            entry.environment = environment
            return entry
        return Entry(self.program, environment, flat, self._make, self.description)


def _overlap(tensors: Sequence[torch.Tensor], environment: Environment) -> dict[int, int]:
    found = {i: environment.position_of(tensor) for i, tensor in enumerate(tensors)}
    return {i: position for i, position in found.items() if position is not None}


def _has_sizes(ir: IR, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether tensors have the sizes that a program with symbolic sizes is for."""
    try:
        check_inputs(ir, tensors, None, {})
    except InputError:
        return False
    return True
