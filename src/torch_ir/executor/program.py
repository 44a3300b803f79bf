"""A graph as a list of bound calls over slots.

It is checked once, then run in order; each value is freed after its last use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

import torch

from torch_ir.errors import ExecutionError, InvalidIRError, TorchIRError, counted
from torch_ir.executor.bind import Binder, BoundCall, Environment
from torch_ir.executor.operators import evaluate
from torch_ir.executor.symbols import Binding, Bindings, Symbols, bind_inputs
from torch_ir.ir import IR, OpNode, SymExpr, TensorLeaf, ValueLeaf
from torch_ir.ir.tree import leaves, unflatten


class Observer(Protocol):
    """Sees every node as it runs."""

    def will_run(self, node: OpNode) -> None:
        """Called before a node runs."""
        ...

    def did_run(self, node: OpNode, outputs: Sequence[torch.Tensor]) -> None:
        """Called with the tensors that a node made, in the order of ``node.outputs``."""
        ...


Decide: TypeAlias = Callable[
    [OpNode, Callable[[], Sequence[torch.Tensor]]], Sequence[torch.Tensor]
]
"""Gives the outputs of a node, by running it or otherwise."""


@dataclass(frozen=True, slots=True)
class Step:
    """One node, ready to run.

    Attributes:
        node: The node.
        call: Its bound call.
        results: For each output, its slot and its position among the operator's flattened results.
        dead: Slots that nothing reads after this step.
        bindings: Symbols that take their value from the results.
    """

    node: OpNode
    call: BoundCall
    results: tuple[tuple[int, int], ...]
    dead: tuple[int, ...]
    bindings: tuple[Binding, ...]


class Program:
    """A graph that is bound to torch's operators and a device; values come in and out by name.

    Args:
        ir: The graph.
        run_device: What ``Device("run")`` stands for.

    Raises:
        ExecutionError: A node cannot be bound; the message shows the node.
    """

    def __init__(self, ir: IR, run_device: torch.device):
        self.ir = ir
        self._slots: dict[str, int] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        self._run_device = run_device
        for name in (*(meta.name for meta in ir.graph_inputs), *ir.external_values()):
            self._slots[name] = len(self._slots)
        self._given = len(self._slots)
        binder = Binder(self._slots, run_device, self._function)
        calls = [self._bind(binder, node) for node in ir.nodes]
        self._steps = tuple(self._schedule(calls))
        self._kept = [meta.name for meta in ir.graph_outputs]
        for meta in (*ir.graph_outputs, *(m.value for m in ir.mutations)):
            if meta.name not in self._slots:
                raise ExecutionError(f"%{meta.name} is an output of the graph, and never defined")

    def _function(self, name: str) -> Callable[..., Any]:
        if name not in self._functions:
            if name not in self.ir.functions:
                raise ExecutionError(f"the graph has no function {name!r}")
            self._functions[name] = Body(self.ir.functions[name], self._run_device)
        return self._functions[name]

    def _bind(self, binder: Binder, node: OpNode) -> tuple[OpNode, BoundCall]:
        try:
            call = binder.bind(node)
        except ExecutionError as error:
            raise at_node(node, error.message, error.remedy) from None
        for output in node.outputs:
            if output.name in self._slots:
                raise at_node(node, f"%{output.name} is defined twice")
            self._slots[output.name] = len(self._slots)
        return node, call

    def _schedule(self, calls: list[tuple[OpNode, BoundCall]]) -> Iterator[Step]:
        """Steps with, after each, the slots whose last use it is."""
        keep = {m.name for m in (*self.ir.graph_outputs, *(m.value for m in self.ir.mutations))}
        last_use: dict[str, int] = {}
        for position, (node, _) in enumerate(calls):
            for meta in (*node.outputs, *node.inputs):
                last_use[meta.name] = position
        dead: dict[int, list[int]] = {}
        for name, position in last_use.items():
            slot = self._slots[name]
            if name not in keep and slot >= self._given:
                dead.setdefault(position, []).append(slot)
        bindings = Bindings(self.ir)
        for position, (node, call) in enumerate(calls):
            results = tuple([(self._slots[o.name], o.producer_output_idx) for o in node.outputs])
            yield Step(node, call, results, tuple(dead.get(position, ())), bindings.of(node))

    def run(
        self,
        values: Mapping[str, torch.Tensor],
        symbols: Symbols,
        observer: Observer | None = None,
    ) -> dict[str, torch.Tensor]:
        """The values of outputs and mutations, by name.

        Args:
            values: Each graph input and external value, by name.
            symbols: The value of each symbol that the call gives; those that results give are
                added.
            observer: Sees every node as it runs.

        Raises:
            ExecutionError: A kernel fails; its error is the cause and the message shows the node.
        """
        environment: Environment = [None] * len(self._slots)
        for name, tensor in values.items():
            environment[self._slots[name]] = tensor
        for step in self._steps:
            if observer is not None:
                observer.will_run(step.node)
            self._step(step, environment, symbols)
            if observer is not None:
                observer.did_run(step.node, _outputs(step, environment))
            for slot in step.dead:
                environment[slot] = None
        names = (*self._kept, *(m.value.name for m in self.ir.mutations))
        return {name: environment[self._slots[name]] for name in names}

    def run_each(
        self, values: Mapping[str, torch.Tensor], symbols: Symbols, decide: Decide
    ) -> None:
        """Run every node through ``decide``, which gives the outputs that the later nodes see.

        Args:
            values: Each graph input and external value, by name.
            symbols: The value of each symbol.
            decide: Takes a node and a function that runs it.
        """
        environment: Environment = [None] * len(self._slots)
        for name, tensor in values.items():
            environment[self._slots[name]] = tensor
        for step in self._steps:

            def run(step: Step = step) -> Sequence[torch.Tensor]:
                self._step(step, environment, symbols)
                return _outputs(step, environment)

            outputs = decide(step.node, run)
            for (slot, _), tensor in zip(step.results, outputs, strict=True):
                environment[slot] = tensor
            for slot in step.dead:
                environment[slot] = None

    def _step(self, step: Step, environment: Environment, symbols: Symbols) -> None:
        try:
            made = step.call(environment, symbols)
        except InvalidIRError as error:  # an expression without a value
            raise at_node(step.node, error.message, error.remedy) from None
        except TorchIRError:
            raise
        except Exception as error:  # kernels raise anything; the cause is kept
            raise at_node(step.node, f"{step.node.op_type} failed: {error}") from error
        flat = [made] if isinstance(made, torch.Tensor) else list(_flatten(made))
        for slot, index in step.results:
            if index >= len(flat) or not isinstance(flat[index], torch.Tensor):
                raise at_node(step.node, f"{step.node.op_type} made no tensor as result {index}")
            environment[slot] = flat[index]
        for binding in step.bindings:
            value = symbols[binding.symbol] = binding.read(flat)
            allowed = self.ir.symbols.get(binding.symbol)
            if allowed is not None and value not in allowed:
                where = f"the value of {binding.symbol} is {value}"
                raise at_node(step.node, f"{where}, which is outside its range {allowed}")


def _outputs(step: Step, environment: Environment) -> list[torch.Tensor]:
    return [environment[slot] for slot, _ in step.results]


class Body:
    """A function of the program as a Python callable, for a higher-order operator to call."""

    def __init__(self, ir: IR, run_device: torch.device):
        self._ir = ir
        self._program = Program(ir, run_device)

    def __call__(self, *args: Any) -> Any:
        """The function's results, in its own structure."""
        names = [meta.name for meta in self._ir.graph_inputs]
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if len(tensors) != len(names):
            raise ExecutionError(
                f"the function takes {counted(len(names), 'tensor')}, got {len(tensors)}"
            )
        symbols = bind_inputs(self._ir.graph_inputs, tensors)
        signature = self._ir.signature
        if signature is not None:
            for leaf, arg in zip(leaves(signature.inputs), args, strict=False):
                if isinstance(leaf, ValueLeaf) and isinstance(leaf.value, SymExpr):
                    symbols.setdefault(leaf.value.text, arg)
        values = self._program.run(dict(zip(names, tensors, strict=True)), symbols)
        if signature is None:
            return tuple([values[meta.name] for meta in self._ir.graph_outputs])

        def result(item: TensorLeaf | ValueLeaf) -> Any:
            return (
                values[item.name]
                if isinstance(item, TensorLeaf)
                else evaluate(item.value, symbols)
            )

        return unflatten(signature.outputs, result)


def at_node(node: OpNode, message: str, remedy: str | None = None) -> ExecutionError:
    """An error that shows the node and where it came from."""
    picture = str(node) if node.location is None else f"{node}\nat {node.location}"
    return ExecutionError(f"node {node.name!r}: {message}", picture=picture, remedy=remedy)


def _flatten(made: object) -> Iterator[object]:
    if isinstance(made, list | tuple):
        for item in cast(list[object], made):
            yield from _flatten(item)
    else:
        yield made
