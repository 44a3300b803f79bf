"""A compiled graph: what it runs, and everything that can be asked of a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import torch

from torch_ir.errors import ExecutionError, InvalidIRError, TorchIRError, counted, did_you_mean
from torch_ir.executor.autograd.gradients import Differentiator, Pullback, Tangents
from torch_ir.executor.codegen.module import Compiled, CompiledModule, compile_source
from torch_ir.executor.codegen.run_time import NoTensorError
from torch_ir.executor.codegen.source import write_source
from torch_ir.executor.inputs import check_inputs
from torch_ir.executor.listeners import Listener, ListenerError, StopError, Table, guarded
from torch_ir.executor.plan import Plan
from torch_ir.infer.bindings import Symbols
from torch_ir.ir import IR, OpNode
from torch_ir.ir.diagnostics import error_at
from torch_ir.torch_api import BelowAutograd, BelowViewTracking

Results: TypeAlias = tuple[tuple[torch.Tensor, ...], Symbols]
"""The tensors that a run returns, and the symbols from which its other results are computed."""


@dataclass(frozen=True, slots=True)
class RunStats:
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

    def __str__(self) -> str:
        return (
            f"{counted(self.nodes, 'node')}: {self.bindings} by Python bindings, "
            f"{self.in_place} in place; {counted(self.functions, 'function')}, "
            f"{counted(self.lines, 'line')}"
        )


class ExecGraph:
    """A graph compiled with its weights; :func:`compile_graph` makes one.

    It may be run from several threads. If it holds state (buffers that the program writes), they
    take turns, as the program's meaning depends on their order.

    Attributes:
        ir: The graph.
        source: The Python that runs. It imports as a module, and then needs what ``bind`` takes.
        device: Where it runs.
        grad: Whether a run records gradients.
        run_stats: What a run does.
    """

    def __init__(
        self,
        plan: Plan,
        module: CompiledModule,
        payload: Mapping[str, torch.Tensor],
        device: torch.device,
        *,
        grad: bool,
    ):
        self.ir: IR = plan.ir
        self.device = device
        self.grad = grad
        self._plan = plan
        self._given = payload
        self._state = _first_state(plan.ir, payload)
        self._payload = {**payload, **self._state}
        self._module = module.bind(self._payload)
        self._accepts = self._module.accepts
        self._run = self._module.run
        self._below = _level(plan, self._payload)
        self._observed: dict[bool, Compiled] = {}
        self._differentiator = Differentiator(plan, self._payload, device)
        self._turn = threading.RLock() if self._state else None
        self._is_torn = False
        self._count = len(plan.ir.graph_inputs)
        self._outputs = len(plan.ir.graph_outputs)

    def __repr__(self) -> str:
        return f"ExecGraph({self.ir!r}, device='{self.device}')"

    @cached_property
    def source(self) -> str:
        """The Python that runs."""
        return self._module.source.text

    @property
    def run_stats(self) -> RunStats:
        """What a run does."""
        steps = self._plan.steps
        return RunStats(
            nodes=len(steps),
            bindings=sum((step.in_place or step.binding) is not None for step in steps),
            in_place=sum(step.in_place is not None for step in steps),
            functions=sum(1 for _ in _all_functions(self._plan)),
            lines=len(self._module.source.lines) - 1,
        )

    @property
    def payload(self) -> dict[str, torch.Tensor]:
        """The weights, constants and buffers that it runs with, by the names that nodes use."""
        return dict(self._payload)

    # -- state ------------------------------------------------------------------------------------

    @property
    def holds_state(self) -> bool:
        """Whether a run changes buffers that the next one reads."""
        return bool(self._state)

    @property
    def buffers(self) -> dict[str, torch.Tensor]:
        """Copies of the buffers that the program writes, by key, as they are now."""
        external = self.ir.external_values()
        with self._in_turn():
            return {external[name][0]: tensor.clone() for name, tensor in self._state.items()}

    def reset(self) -> None:
        """Give the buffers that the program writes their first values again."""
        with self._in_turn():
            with torch.no_grad():
                for name, tensor in self._state.items():
                    tensor.copy_(self._given[name])
            self._is_torn = False

    @contextmanager
    def _in_turn(self) -> Generator[None]:
        if self._turn is None:
            yield
        else:
            with self._turn:
                yield

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
        values = self._accepts(*inputs) if len(inputs) == self._count and not given else None
        if values is None:
            symbols = check_inputs(self.ir, inputs, self.device, given)
            values = tuple([symbols[name] for name in self._module.symbols])
        if listener is None:
            results = self._execute(self._run, (*inputs, *values))
        else:
            module = self._listening(reuse=reuse)
            will = guarded(self.ir.nodes, listener.will_run)
            did = guarded(self.ir.nodes, listener.did_run)
            results = self._execute(module.run, (*inputs, *values, will, did), module)
        if len(results) == self._outputs:
            return results, dict(zip(self._module.symbols, values, strict=True))
        known = dict(zip(self._module.symbols, values, strict=True))
        made = zip(self._module.returned_symbols, results[self._outputs :], strict=True)
        return results[: self._outputs], {**known, **dict(made)}

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
        table = Table(None, stop_at, copy=self._plan.writes_inside or bool(self._plan.writes))
        named = {m.name: t.clone() for m, t in zip(self.ir.graph_inputs, inputs, strict=False)}
        self._fill(table, inputs)
        return {**named, **table.values}

    def values(
        self, inputs: Sequence[torch.Tensor], names: Iterable[str]
    ) -> dict[str, torch.Tensor]:
        """Run the graph; return some of the nodes' values by name, in program order.

        Nothing runs after the last of them; memory is that of a run, and of what was asked for.

        Raises:
            InvalidIRError: No node makes a value of that name.
        """
        wanted = frozenset(names)
        for name in sorted(wanted - self.ir.producers.keys()):
            hint = did_you_mean(name, self.ir.producers)
            raise InvalidIRError(f"no node makes a value {name!r}", remedy=hint)
        makers = [n.name for n in self.ir.nodes if any(o.name in wanted for o in n.outputs)]
        if not makers:
            return {}
        table = Table(wanted, makers[-1], copy=self._plan.writes_inside)
        self._fill(table, inputs)
        return table.values

    # -- gradients --------------------------------------------------------------------------------

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
                program writes to an input. Nothing has run then.
            InputError: An input does not fit, or a weight can have no gradient.
            ExecutionError: As :meth:`eval`.

        Example:
            >>> from torch_ir import TensorMeta, compile_graph
            >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
            >>> ir = IR([OpNode("y", "aten.relu.default", [x], [y])], [x], [y], [])
            >>> graph = compile_graph(ir)
            >>> outputs, pullback = graph.vjp((torch.tensor([-1.0, 2.0]),))
            >>> pullback((torch.tensor([1.0, 10.0]),))
            (tensor([ 0., 10.]),)
        """
        return self._differentiator.vjp(self._record, inputs, weights)

    def jvp(
        self, inputs: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[tuple[torch.Tensor, ...], Tangents]:
        """Run the graph; return its outputs, and the tangent of each for tangents of the inputs.

        Args:
            inputs: One tensor for each of ``ir.graph_inputs``.
            tangents: One of the same type for each of them; None stands for zeros.

        Returns:
            The outputs, and for each its tangent: None for one that can have none, as integers.

        Raises:
            CompileError: As :meth:`vjp`; fewer operators have a formula for this.
            InputError: An input or tangent does not fit.
            ExecutionError: As :meth:`eval`.
        """
        return self._differentiator.jvp(self._record, inputs, tangents)

    def _record(
        self, module: Compiled, inputs: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        """Run a module of this graph above autograd."""
        symbols = check_inputs(self.ir, inputs, self.device, {})
        values = [symbols[name] for name in module.symbols]
        with self._in_turn(), torch.autocast(self.device.type, enabled=False):
            self._require_whole_state()
            return self._call_recording(module.run, (*inputs, *values), module)[: self._outputs]

    def _call_recording(
        self, run: Callable[..., Any], args: tuple[Any, ...], module: Compiled
    ) -> tuple[Any, ...]:
        try:
            return run(*args)
        except Exception as error:  # noqa: BLE001  # kernels raise anything; it is the cause
            raise self._explained(error, module) from _cause(error)
        finally:
            for tensor in self._state.values():  # gradients are those of one call
                if tensor.requires_grad:
                    tensor.detach_()

    def _fill(self, table: Table, inputs: Sequence[torch.Tensor]) -> None:
        try:
            self.run(inputs, {}, table, reuse=False)
        except ListenerError as error:
            if not isinstance(error.__cause__, StopError):
                raise

    def _listening(self, *, reuse: bool) -> Compiled:
        """The same program, telling of every node."""
        if reuse not in self._observed:
            written = write_source(self._plan, self.device, observed=True, reuse=reuse)
            module = compile_source(written, self.ir.model_name)
            self._observed[reuse] = module.bind(self._payload)
        return self._observed[reuse]

    def _execute(
        self, run: Callable[..., Any], args: tuple[Any, ...], module: Compiled | None = None
    ) -> tuple[Any, ...]:
        if torch.is_autocast_enabled(self.device.type):
            with torch.autocast(self.device.type, enabled=False):  # the IR says every type itself
                return self._execute(run, args, module)
        if self._turn is not None:
            with self._turn:
                self._require_whole_state()
                return self._call(run, args, module or self._module)
        return self._call(run, args, module or self._module)

    def _call(
        self, run: Callable[..., Any], args: tuple[Any, ...], module: Compiled
    ) -> tuple[Any, ...]:
        if self.grad:
            return self._call_recording(run, args, module)
        before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)  # pyright: ignore[reportPrivateUsage]  # torch.no_grad costs more than a node
        below = self._below
        if below is BelowAutograd and any(map(_is_sparse, args)):
            below = BelowViewTracking
        try:
            with below():
                return run(*args)
        except Exception as error:  # noqa: BLE001  # kernels raise anything; it is the cause
            raise self._explained(error, module) from _cause(error)
        finally:
            torch._C._set_grad_enabled(before)  # pyright: ignore[reportPrivateUsage]  # as above

    # -- errors -----------------------------------------------------------------------------------

    def _require_whole_state(self) -> None:
        if self._is_torn:
            raise ExecutionError(
                "the buffers are half written: the last call failed between two writes",
                remedy="Call reset() to start again with their first values.",
            )

    def _explained(self, error: Exception, module: Compiled) -> Exception:
        """What a node raised, with the node."""
        nodes = list(module.nodes_of(error.__traceback__))
        if self._state and nodes and self._plan.first_state_write is not None:
            position = next((i for i, n in enumerate(self.ir.nodes) if n is nodes[0]), 0)
            self._is_torn = position >= self._plan.first_state_write
        if isinstance(error, ListenerError):
            cause = error.__cause__
            return error if cause is None or isinstance(cause, StopError) else cause  # pyright: ignore[reportReturnType]  # what listeners raise is an Exception
        if not nodes or (isinstance(error, TorchIRError) and error.node):
            return error
        return _at_node(nodes[-1], error)


def _cause(error: Exception) -> BaseException | None:
    if isinstance(error, TorchIRError | ListenerError):
        return error.__cause__
    return error


def _at_node(node: OpNode, error: Exception) -> ExecutionError:
    """An error that shows the node and where it came from."""
    remedy = None
    message = f"{node.op_type} failed: {error}"
    if isinstance(error, TorchIRError):
        message, remedy = error.message, error.remedy
        if isinstance(error, NoTensorError):
            message = f"{node.op_type} {message}"
    return error_at(node, message, remedy=remedy)


def _first_state(ir: IR, payload: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A copy of each buffer that is or may be written; a tied one has one, under all its names."""
    external, aliases = ir.external_values(), ir.aliases
    keys = {external[m.target][0] for m in ir.mutations if m.target in external}
    keys |= {key for name, (key, _) in external.items() if aliases.is_written(name)}
    copies = {
        # a program may show parts of a constant that it writes, by their places in row-major order
        key: payload[name]
        .detach()
        .clone(
            memory_format=torch.contiguous_format if key in ir.constants else torch.preserve_format
        )
        for name, (key, _) in external.items()
        if key in keys
    }
    return {name: copies[key] for name, (key, _) in external.items() if key in keys}


def _all_functions(plan: Plan) -> Iterator[Plan]:
    for inner in plan.functions.values():
        yield inner
        yield from _all_functions(inner)


def _makes_sparse(ir: IR) -> bool:
    """Whether a program may make sparse tensors, whose kernels resize views of their values.

    Where views know what they are views of, the tensor does not see that: its values stay empty.
    """
    return any("sparse" in node.op_type for node in ir.nodes) or any(
        map(_makes_sparse, ir.functions.values())
    )


def _level(plan: Plan, payload: Mapping[str, torch.Tensor]) -> Callable[[], Any]:
    """The context in which a run calls kernels: below autograd, which costs less.

    Conjugation is a mark on complex tensors that some kernels take into account. Composite
    operators have to come apart before torch sees to the mark, and do so at autograd's level.
    """
    ir = plan.ir
    if ir.view("has_complex", lambda: _has_complex(ir)):
        return nullcontext
    makes_sparse = ir.view("makes_sparse", lambda: _makes_sparse(ir))
    is_sparse = makes_sparse or any(map(_is_sparse, payload.values()))
    return BelowViewTracking if plan.is_private or is_sparse else BelowAutograd


def _has_complex(ir: IR) -> bool:
    values = [*ir.graph_inputs, *(value for _, value in ir.external_values().values())]
    values += [meta for node in ir.nodes for meta in node.outputs]
    return any(value.dtype.startswith("complex") for value in values) or any(
        _has_complex(function) for function in ir.functions.values()
    )


def _is_sparse(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is not torch.strided
