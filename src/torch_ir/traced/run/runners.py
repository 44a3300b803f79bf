"""Runners of traced programs: the executors that were asked for, each with its nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias, cast

import torch

from torch_ir.backends import Options
from torch_ir.backends.assignment import Assignment, assign, left_over, not_taken, refused_nodes
from torch_ir.backends.native.native_executor import executor_of
from torch_ir.backends.protocol import DelegateBackend
from torch_ir.errors import ExecutionError, PassError, TorchIRError, TraceError
from torch_ir.executor import IRExecutor, compile_graph
from torch_ir.infer.generators import register_generator
from torch_ir.ir import IR, OpNode, Signature, SymExpr
from torch_ir.ir.builder import Names
from torch_ir.ir.queries import result_symbols, symbols_in
from torch_ir.ops.spec import tagged_traits
from torch_ir.traced.functional import (
    Functional,
    Run,
    flat_signature,
    functional_of,
    require_draws_in_order,
    run_functional,
    with_inputs,
    with_own_results,
)
from torch_ir.traced.program import Program
from torch_ir.traced.report import NodeReport, row, whole
from torch_ir.traced.run.autograd_function import autograd_function
from torch_ir.traced.run.executors import Executor

Closed: TypeAlias = Mapping[str, torch.Tensor]
Tensors: TypeAlias = Sequence[torch.Tensor]


@dataclass(frozen=True, slots=True)
class Choice:
    """What runs a program.

    Attributes:
        run: Runs it.
        ir: The program that it runs; its guards say for which sizes.
        nodes: What runs each node.
        subgraphs: How many each executor has that takes parts.
        refused: Why each executor that was preferred does not take the whole program.
        generators: The generators that it draws from, in the order of ``Program.generators``:
            they stand for those, whose state they are given.
    """

    run: Run
    ir: IR
    nodes: tuple[NodeReport, ...]
    subgraphs: Mapping[str, int]
    refused: Mapping[str, str]
    generators: tuple[torch.Generator, ...] = ()


MakeRunner: TypeAlias = Callable[[Program, Closed, Tensors], Choice]
"""Makes what runs a program, for its closed-over tensors and the tensors of a first call."""

_REFUSALS = (ExecutionError, PassError, TraceError)
"""By these an executor says that a program is not for it; anything else is a failure."""


@dataclass(frozen=True, slots=True)
class Preference:
    """Executors in order of preference.

    Attributes:
        executors: Them.
        dialect: What those are given that do not say.
        strict: That the first takes the whole program.
    """

    executors: tuple[Executor, ...]
    dialect: str
    strict: bool

    def __call__(self, program: Program, closed: Closed, tensors: Tensors) -> Choice:
        """What runs a program.

        Raises:
            CompileError: Nodes are left that none of them takes; all are listed.
            ExecutionError: None of them takes it. So do :class:`PassError` and
                :class:`TraceError`.
        """
        return _RunnerSearch(self, program, closed, tensors).run()


class _RunnerSearch:
    def __init__(self, preference: Preference, program: Program, closed: Closed, tensors: Tensors):
        self.preference = preference
        self.program = program
        self.closed = closed
        self.tensors = tensors
        self.refused: dict[str, str] = {}
        self.parts: list[Executor] = []

    def run(self) -> Choice:
        """The choice."""
        last: TorchIRError | None = None
        for executor in self.preference.executors:
            try:
                if self.parts and executor.is_torch:
                    return self._shared(host=executor)
                if self.parts and executor.parts is None:
                    raise ExecutionError("it takes whole programs alone")
                return self._whole(executor)
            except _REFUSALS as error:
                if self.preference.strict or len(self.preference.executors) == 1:
                    raise
                last = error
                self.refused[executor.name] = _in_short(error)
                if executor.parts is not None and self._takes_some(executor):
                    self.parts.append(executor)
        if self.parts:
            return self._shared(host=None)
        raise last or ExecutionError("no executor is given")

    # -- whole programs ---------------------------------------------------------------------------

    def _whole(self, executor: Executor) -> Choice:
        if executor.name == "aten":
            return self._torch()
        functional = self._functional(executor)
        ir = functional.ir
        if executor.is_torch:
            if self.preference.strict:
                _require_primitives(ir)
            checked = with_settled_sizes(ir)
            runner = IRExecutor(checked, {}, check_types=checked is ir)
            return self._choice(functional, executor.name, runner, whole(ir, "prims"))
        if isinstance(executor.backend, DelegateBackend):
            found = assign(ir, [executor.backend])
            self._require_none_left(found, [executor])
            compute = executor_of(ir, {}, (executor.backend,))
            return self._choice(functional, executor.name, compute, _rows(found), found)
        if executor.name == "reference" and self.program.needs_grad:
            _require_no_draws(functional)
        compute = cast(Any, executor.backend)(ir, {}, Options())
        return self._choice(functional, executor.name, compute, whole(ir, executor.name))

    def _torch(self) -> Choice:
        """Torch's kernels, called as the function did, in its order, writes and views included."""
        program, generators = _with_generators(self.program)
        run, ir = run_aten(program, self.closed, self.tensors)
        nodes = whole(program.ir, "aten")
        return Choice(run, ir, nodes, {}, dict(self.refused), generators)

    def _functional(self, executor: Executor) -> Functional:
        if executor.name != "reference":  # whose random numbers are its own
            require_draws_in_order(self.program.ir, self.tensors, self.closed)
        return functional_of(self.program, self._dialect(executor))

    def _dialect(self, executor: Executor) -> str:
        return executor.dialect or self.preference.dialect

    def _choice(
        self,
        functional: Functional,
        name: str,
        compute: Any,
        nodes: tuple[NodeReport, ...],
        found: Assignment | None = None,
    ) -> Choice:
        compute = with_own_results(functional, compute)
        if self.program.needs_grad:
            compute = autograd_function(self.program, functional, compute, self.preference)
        run = run_functional(name, functional, self.closed, compute)
        names = [executor.name for executor in self.preference.executors]
        subgraphs = {} if found is None else {n: found.subgraphs(n) for n in names}
        taken = {name: count for name, count in subgraphs.items() if count}
        return Choice(run, functional.ir, nodes, taken, dict(self.refused))

    # -- parts ------------------------------------------------------------------------------------

    def _assigned(self, executors: Sequence[Executor]) -> tuple[Functional, Assignment]:
        """The program in the dialect of the first of some executors, shared among them."""
        functional = self._functional(executors[0])
        return functional, assign(functional.ir, _parts(executors))

    def _takes_some(self, executor: Executor) -> bool:
        try:
            _, found = self._assigned([*self.parts, executor])
        except _REFUSALS:
            return False  # why was said of the whole program
        return executor.name in found.takers.values()

    def _shared(self, host: Executor | None) -> Choice:
        functional, found = self._assigned(self.parts)
        if host is None:
            self._require_none_left(found, self.parts)
        compute = executor_of(functional.ir, {}, _parts(self.parts))
        name = self.parts[0].name
        nodes = _rows(found, "" if host is None else host.name)
        return self._choice(functional, name, compute, nodes, found)

    def _require_none_left(self, found: Assignment, executors: Sequence[Executor]) -> None:
        if found.left:
            names = [executor.name for executor in executors]
            if self.preference.strict and len(self.preference.executors) > 1:
                raise left_over(found, names, "Leave out strict=True: others run the rest.")
            raise left_over(found, names)


def _in_short(error: TorchIRError) -> str:
    """What an executor refuses, with the first of its reasons."""
    left = [found for found in error.diagnostics if found.code == "not-taken"]
    return f"{error.message}; first {not_taken(left[0])}" if left else error.message


def _parts(executors: Sequence[Executor]) -> list[DelegateBackend]:
    return [executor.parts for executor in executors if executor.parts is not None]


def _rows(found: Assignment, host: str = "") -> tuple[NodeReport, ...]:
    """What takes each node; what nobody takes is left to the host."""
    return tuple(
        [
            row(node, found.takers.get(node.name, host), found.reasons.get(node.name, {}))
            for node in found.nodes
        ]
    )


def _require_primitives(ir: IR) -> None:
    """Refuse a program in which operators stay that torch has no reference for."""
    left = [node for node in ir.nodes if node.op_type.partition(".")[0] != "prims"]
    if left:
        reasons = {node.name: ["torch has no reference for it"] for node in left}
        remedy = "Leave out strict=True: torch's kernels run these as they are."
        raise refused_nodes(left, ir.nodes, ["prims"], reasons, remedy)


def _require_no_draws(functional: Functional) -> None:
    """Refuse gradients where random numbers would have to be drawn again."""
    if (node := functional.draws) is not None:
        raise ExecutionError(
            f"%{node.name}: {node.op_type} draws random numbers, which the gradients that the "
            "executor 'reference' computes would not know",
            remedy="Use the executor 'aten', or call the function under torch.no_grad().",
        )


# -- torch's kernels ------------------------------------------------------------------------------


def _with_generators(program: Program) -> tuple[Program, tuple[torch.Generator, ...]]:
    """The program with generators that are its own in place of those it was traced with."""
    if not program.generators:
        return program, ()
    names: dict[str, str] = {}
    made: list[torch.Generator] = []
    for name, generator in program.generators.items():
        made.append(torch.Generator(generator.device))
        names[name] = f"{program.ir.model_name} {next(_NUMBERS)}"
        register_generator(names[name], made[-1])
    nodes = [
        node.replace(attrs={**node.attrs, "generator": names[str(node.attrs["generator"])]})
        if node.attrs.get("generator") is not None
        else node
        for node in program.ir.nodes
    ]
    return dataclasses.replace(program, ir=program.ir.replace(nodes=nodes)), tuple(made)


_NUMBERS = count(1)


def run_aten(program: Program, closed: Closed, tensors: Tensors) -> tuple[Run, IR]:
    """Call the operators as the function did, in its order, writes and views included."""
    _require_numbers(program)
    ir, live = with_inputs(program.ir, [m.target for m in program.ir.mutations])
    ir = ir.replace(signature=_numbers(program, ir))
    others = [closed[key] for key in live]
    payload = {key: tensor for key, tensor in closed.items() if key not in live}
    device = next((tensor.device for tensor in (*tensors, *closed.values())), None)
    # autograd has for each operator what it had when the function itself was called
    grad: bool | tuple[str, ...] = () if program.needs_grad else False
    run = compile_graph(ir, payload, device=device, grad=grad).run
    if others:
        return (lambda tensors: run([*tensors, *others], {})), ir
    return (lambda tensors: run(tensors, {})), ir


def _require_numbers(program: Program) -> None:
    """Refuse numbers that are read in a region (of autocast, or without gradients) and leave it.

    A region hands out tensors alone.
    """
    ir = program.ir
    if not ir.symbols or not ir.functions:
        return
    made = result_symbols(ir.nodes) | ir.given_symbols
    used = {symbol for node in ir.nodes for symbol in node.symbols}
    used |= {s for leaf in program.leaves if isinstance(leaf, SymExpr) for s in leaf.symbols}
    if used - made:
        raise ExecutionError(
            "the function reads a number from a tensor in a region of autocast or without "
            "gradients, and uses it outside of the region",
            remedy="Read it outside of the region, or keep it in a tensor.",
        )


def _numbers(program: Program, ir: IR) -> Signature | None:
    """A signature with the numbers that are returned; None where there are none."""
    numbers = [leaf for leaf in program.leaves if isinstance(leaf, SymExpr)]
    return flat_signature(ir, numbers) if numbers else None


def with_settled_sizes(ir: IR) -> IR:
    """Return a program that refuses data which gives other sizes than torch settled.

    The gradient of the gradient of ``x[x > 0]`` is traced with a cotangent, whose size torch
    records where data decides, for no new symbol. Such types are not derived from the program; a
    run must show them. The program itself is returned where torch settled none.
    """
    nodes: list[OpNode] = []
    names = Names.of(ir)
    known = {*ir.given_symbols}
    for node in ir.nodes:
        nodes.append(node)
        if "dynamic-shape" in tagged_traits(node.op_type):
            for meta in node.outputs:
                if known.issuperset(symbols_in([meta])):
                    attrs = {"size": meta.shape, "stride": None, "dtype": None}
                    name = names.beside(node.name, "settled")
                    op_type = "aten._assert_tensor_metadata.default"
                    nodes.append(OpNode(name, op_type, (meta,), (), attrs, {"a": 0}))
        known |= result_symbols([node])
    return ir if len(nodes) == len(ir.nodes) else ir.replace(nodes=nodes)
