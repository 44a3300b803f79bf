"""A compiled graph: what it runs, and everything that can be asked of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

import torch

from torch_ir.arguments import public
from torch_ir.errors import InvalidIRError, counted, did_you_mean
from torch_ir.executor.autograd.gradients import Pullback, Tangents
from torch_ir.executor.inputs import require_values
from torch_ir.executor.listeners import Listener, ListenerError, StopError, Table
from torch_ir.executor.plan import Plan, Step
from torch_ir.executor.program import CompiledProgram
from torch_ir.executor.uncopied import Uncopied
from torch_ir.infer.bindings import Symbols
from torch_ir.ir import IR
from torch_ir.ir.aliases import written_tensors
from torch_ir.ir.queries import external_keys
from torch_ir.tables import Shown
from torch_ir.torch_modes import untraced

Results: TypeAlias = tuple[tuple[torch.Tensor, ...], Symbols]
"""The tensors that a run returns, and the symbols from which its other results are computed."""


@dataclass(frozen=True, slots=True)
class RunStats(Shown):
    """What one run of a graph does.

    Attributes:
        nodes: Operators that are called.
        bindings: How many of them are called through torch's Python bindings.
        in_place: How many give their result the place of a dead value.
        functions: Functions that operators call.
        lines: Lines of generated Python.
    """

    nodes: int
    bindings: int
    in_place: int
    functions: int
    lines: int

    @classmethod
    @public
    def of(cls, plan: Plan, lines: int) -> RunStats:
        """Return what a run of a plan does.

        Args:
            plan: The plan.
            lines: How many lines its generated Python has.
        """
        return cls(
            nodes=len(plan.steps),
            bindings=sum((step.in_place or step.binding) is not None for step in plan.steps),
            in_place=sum(step.in_place is not None for step in plan.steps),
            functions=sum(1 for _ in _all_functions(plan)),
            lines=lines,
        )

    def __str__(self) -> str:
        return (
            f"{counted(self.nodes, 'node')}: {self.bindings} by Python bindings, "
            f"{self.in_place} in place; {counted(self.functions, 'function')}, "
            f"{counted(self.lines, 'line')}"
        )


@public
class ExecGraph(Uncopied, Shown):
    """A graph compiled with its weights; :func:`compile_graph` makes one.

    It may be run from several threads. If it holds state (buffers that the program writes), they
    take turns, as the program's meaning depends on their order.

    Attributes:
        ir: The graph.
        source: The Python that runs. It imports as a module, and then needs what ``bind`` takes.
        device, grad: Where it runs, and whether a run records gradients.
        run_stats: What a run does.
        writing: Finds the inputs to whose memory each node may write, by name; None for any.
        copied: The results that a run copies, as they may show what the program writes.
        plain_call: Makes what runs calls of plain tensors, if it may.
    """

    def __init__(self, program: CompiledProgram):
        self.ir: IR = program.plan.ir
        self.writing, self.copied = partial(_writing, program.plan), program.plan.copied_outputs
        self.device, self.grad = program.device, program.grad
        self._program, self._module, self.plain_call = program, program.module, program.plain_call
        self._count, self._outputs = len(self.ir.graph_inputs), len(self.ir.graph_outputs)

    def __repr__(self) -> str:
        return f"ExecGraph({self.ir!r}, device='{self.device}')"

    @cached_property
    def source(self) -> str:
        """The Python that runs."""
        return self._module.source.text

    @property
    def run_stats(self) -> RunStats:
        """What a run does."""
        return RunStats.of(self._program.plan, len(self._module.source.lines) - 1)

    @property
    def payload(self) -> dict[str, torch.Tensor]:
        """The weights, constants and buffers that it runs with, by the names that nodes use."""
        return dict(self._program.payload)

    # -- state ------------------------------------------------------------------------------------

    @property
    def holds_state(self) -> bool:
        """Whether a run changes buffers that the next one reads."""
        return bool(self._program.state.tensors)

    @property
    def buffers(self) -> dict[str, torch.Tensor]:
        """Copies of the buffers that the program writes, by key, as they are now."""
        copies = self._program.state.copies()
        return {external_keys(self.ir)[name]: tensor for name, tensor in copies.items()}

    def reset(self) -> None:
        """Give the buffers that the program writes their first values again."""
        self._program.state.reset()

    # -- running ----------------------------------------------------------------------------------

    def eval(
        self, inputs: Sequence[torch.Tensor], *, listener: Listener | None = None
    ) -> tuple[torch.Tensor, ...]:
        """Run the graph; return its outputs.

        Args:
            inputs: One tensor for each of ``ir.graph_inputs``, in order.
            listener: Is told of every node.

        Raises:
            InputError: An input does not fit; the message names it.
            ExecutionError: A kernel fails; its error is the cause and the message shows the node.
        """
        return self.run(inputs, {}, listener)[0]

    @untraced
    def run(
        self,
        inputs: Sequence[torch.Tensor],
        given: Symbols,
        listener: Listener | None = None,
        *,
        reuse: bool = True,
    ) -> Results:
        """Run the graph as :meth:`eval` does, with numbers among the arguments.

        Args:
            inputs: The tensors.
            given: The symbols that other arguments of the call give.
            listener: Is told of every node.
            reuse: Let results take the place of dead values; not, where a listener keeps them.
        """
        try:
            fits = len(inputs) == self._count and not given
            values = self._module.accepts(*inputs) if fits else None
        except (RuntimeError, TypeError, ValueError):  # no list, or a nested tensor, without sizes
            values = None
        if values is None:
            inputs, symbols = self._program.checked(inputs, given)
            values = tuple([symbols[name] for name in self._module.symbols])
        args = (*inputs, *values)
        if listener is None:
            results = self._program.execute(args)
        else:
            results = self._program.execute_for(listener, self.ir.nodes, args, reuse=reuse)
        if not values and len(results) == self._outputs:
            return results, {}
        known = dict(zip(self._module.symbols, values, strict=True))
        known.update(zip(self._module.returned_symbols, results[self._outputs :], strict=True))
        return results[: self._outputs], known

    def eval_all(
        self, inputs: Sequence[torch.Tensor], *, stop_at: str | None = None
    ) -> dict[str, torch.Tensor]:
        """Run the graph; return the inputs and every node's values by name, in program order.

        Args:
            inputs: One tensor for each of ``ir.graph_inputs``.
            stop_at: The last node to run. State and inputs that the program writes at its end then
                stay as they are.

        Raises:
            InvalidIRError: There is no such node.
            ExecutionError: As :meth:`eval`.
        """
        if stop_at is not None:
            self.ir.node(stop_at)
        require_values(self.ir, inputs)
        plan = self._program.plan
        table = Table(None, stop_at, torch.clone if plan.writes_inside or plan.writes else None)
        named = {m.name: t.clone() for m, t in zip(self.ir.graph_inputs, inputs, strict=True)}
        return {**named, **_filled(self, table, inputs)}

    @public
    def values(
        self, inputs: Sequence[torch.Tensor], names: Iterable[str], symbols: Symbols | None = None
    ) -> dict[str, torch.Tensor]:
        """Run the graph, as :meth:`run` does; return some values by name, in program order.

        Nothing runs after the last of them; memory is that of a run, and of what was asked for.

        Raises:
            InvalidIRError: No node makes a value of that name.
        """
        wanted = frozenset(names)
        last = _last_maker(self.ir, wanted)
        if last is None:
            return {}
        table = Table(wanted, last, torch.clone if self._program.plan.writes_inside else None)
        return _filled(self, table, inputs, symbols)

    @public
    @untraced
    def vjp(
        self, inputs: Sequence[torch.Tensor], *, weights: Iterable[str] = ()
    ) -> tuple[tuple[torch.Tensor, ...], Pullback]:
        """Run the graph; return its outputs, and a function from their cotangents to gradients.

        They are the gradients of this call: buffers as an earlier call left them are constants.

        Args:
            inputs: One tensor for each of ``ir.graph_inputs``; gradients end there.
            weights: The keys of weights whose gradients are wanted too.

        Raises:
            CompileError: ``no-gradient``: an operator has no formula, ``written-input``: the
                program writes to an input, ``custom-gradient``: it lacks a backward. Nothing ran.
            InputError: An input does not fit, or a weight can have no gradient.
            ExecutionError: As :meth:`eval`.

        Example:
            >>> from torch_ir import IR, OpNode, TensorMeta, compile_graph
            >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
            >>> node = OpNode("y", "aten.relu.default", [x], [y])
            >>> graph = compile_graph(IR([node], [x], [y], []))
            >>> outputs, pullback = graph.vjp((torch.tensor([-1.0, 2.0]),))
            >>> pullback((torch.tensor([1.0, 10.0]),))
            (tensor([ 0., 10.]),)
        """
        return self._program.differentiator.vjp(self._program.record, inputs, weights)

    @public
    @untraced
    def jvp(
        self, inputs: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[tuple[torch.Tensor, ...], Tangents]:
        """Run the graph; return its outputs, and the tangent of each for tangents of the inputs.

        A result that can have none, as integers, has None.

        Args:
            inputs: One tensor for each of ``ir.graph_inputs``.
            tangents: One of the same type for each of them; None stands for zeros.

        Raises:
            CompileError: As :meth:`vjp`; fewer operators have a formula for this.
            InputError: An input or tangent does not fit.
            ExecutionError: As :meth:`eval`.
        """
        return self._program.differentiator.jvp(self._program.record, inputs, tangents)


def _filled(
    graph: ExecGraph,
    table: Table,
    inputs: Sequence[torch.Tensor],
    symbols: Symbols | None = None,
) -> dict[str, torch.Tensor]:
    """The values of a run that goes on until a table has all that it wants."""
    try:
        graph.run(inputs, dict(symbols or {}), table, reuse=False)
    except ListenerError as error:
        if not isinstance(error.__cause__, StopError):
            raise
    return table.values


def _last_maker(ir: IR, wanted: frozenset[str]) -> str | None:
    """Return the last node that makes one of some values; None if none is wanted."""
    for name in sorted(wanted - ir.producers.keys()):
        hint = did_you_mean(name, ir.producers)
        raise InvalidIRError(f"no node makes a value {name!r}", remedy=hint)
    makers = [n.name for n in ir.nodes if any(o.name in wanted for o in n.outputs)]
    return makers[-1] if makers else None


def _writing(plan: Plan) -> dict[str, frozenset[str] | None]:
    """The inputs to whose memory each node may write, by node; None for all of them."""
    found = {step.call.node.name: _may_write(plan.ir, step) for step in plan.steps}
    return {name: values for name, values in found.items() if values is None or values}


def _may_write(ir: IR, step: Step) -> frozenset[str] | None:
    written = written_tensors(ir, step.call.node)
    is_foreign = step.call.is_registered or not step.call.node.op_type.startswith("aten.")
    if is_foreign or written is None:
        return None
    replaced = [step.call.reads[0].name] if step.in_place is not None else []
    return frozenset([*replaced, *[meta.name for meta in written]])


def _all_functions(plan: Plan) -> Iterator[Plan]:
    for inner in plan.functions.values():
        yield inner
        yield from _all_functions(inner)
