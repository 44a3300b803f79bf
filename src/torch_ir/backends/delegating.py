"""Executors of programs whose subgraphs a backend compiled; torch runs the rest."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch

from torch_ir.backends.assignment import Assignment, assign
from torch_ir.backends.aten import BodyOnTorch
from torch_ir.backends.delegate import body_of, delegates
from torch_ir.backends.native.building import into_arguments
from torch_ir.backends.protocol import (
    DelegateBackend,
    Delegated,
    WithFallback,
    compiled_by,
    tuple_call,
)
from torch_ir.errors import (
    BackendError,
    ExecutionError,
    OptionalDependencyError,
    TorchIRError,
    counted,
    first_line,
    raised_as,
)
from torch_ir.executor import ExecGraph, IRExecutor, register_executor
from torch_ir.executor.state import written_buffers
from torch_ir.executor.uncopied import Uncopied
from torch_ir.infer.bindings import with_checked_sizes
from torch_ir.ir import IR, OpNode, SymExpr, TensorMeta
from torch_ir.ir.diagnostics import at
from torch_ir.ir.tensor import type_text
from torch_ir.passes.functionalization import functional_form
from torch_ir.torch_api import MAX_GUARDS, constant_tensors, plain_guard
from torch_ir.torch_memory import writes_to
from torch_ir.torch_modes import is_watched, untraced
from torch_ir.weights import check_weights
from torch_ir.weights.presence import require_weights
from torch_ir.weights.tensor_registry import DirectKernel, Kernel, unregister_executor

_NUMBERS = count()


@dataclass(frozen=True, slots=True)
class Delegate:
    """A subgraph with its backend.

    Attributes:
        body: The function that the backend compiled.
        backend: The backend.
        held: Those inputs of the body that are the same in every call, by name.
        compiled: What the backend made of it.
        is_pure: Whether it was seen to write to nothing, and to give memory of its own, but for
            what it is to write.
        written: The inputs in whose memory outputs are given, by the name of the output.
    """

    body: IR
    backend: DelegateBackend
    held: Mapping[str, torch.Tensor]
    compiled: Delegated
    is_pure: bool = False
    written: Mapping[str, str] = field(default_factory=dict[str, str])


class DelegatingExecutor(Uncopied):
    """Runs a program with a backend for what it supports, and torch for the rest.

    A program that writes to memory is made functional first. Buffers that the program writes are
    kept from call to call, as :class:`~torch_ir.IRExecutor` does.

    Args:
        ir: The program.
        weights: Tensors by ``state_dict`` key; never changed.
        backend: The backend, or several, the preferred first.
        constants: Values that are in no state dict; see :class:`~torch_ir.IRExecutor`.

    Attributes:
        source: The program, as it was given.
        ir: The program, with the subgraphs of the backends as functions.
        delegates: What the backends run, by the name of the node that calls it.
        assignment: Which backend takes which node, and why the others do not.

    Raises:
        BackendError: A backend fails to compile a subgraph that it takes.
        MissingWeightsError: The program has weights and none were given.
        WeightLoadError: The weights are not those that it needs.
    """

    def __init__(
        self,
        ir: IR,
        weights: Mapping[str, torch.Tensor] | None,
        backend: DelegateBackend | Sequence[DelegateBackend],
        constants: Mapping[str, torch.Tensor] | None = None,
    ):
        require_weights(ir, weights)
        self.source = ir
        program = functional_form(ir)
        backends = (backend,) if isinstance(backend, DelegateBackend) else tuple(backend)
        self._bind(assign(program, backends), weights, backends, constants)

    def _bind(
        self,
        assigned: Assignment,
        weights: Mapping[str, torch.Tensor] | None,
        backends: Sequence[DelegateBackend],
        constants: Mapping[str, torch.Tensor] | None,
    ) -> None:
        """Compile what was assigned to backends, and the rest for torch."""
        self.assignment, self.ir = assigned, assigned.ir
        payload = check_weights(self.ir, weights or {}, strict=False, constants=constants)
        self.weights, self.constants = weights, constants
        self.delegates: dict[str, Delegate] = {}
        kernels: dict[str, Kernel] = {}
        nodes: list[OpNode] = []
        called = {n.name: b for b in backends for n in delegates(self.ir, b.name)}
        for node in self.ir.nodes:
            if (taker := called.get(node.name)) is not None:
                # not the backend's name, which may be a namespace of torch
                name = node.name.replace(".", "_")  # a backend may be called device.py:NAME
                op_type = f"delegate.{name}_{next(_NUMBERS)}.default"
                made = self.delegates[node.name] = self._delegate(node, payload, taker)
                kernels[op_type] = _kernel(taker.name, node, made)
                taken = [meta for meta in node.inputs if meta.name not in made.held]
                slots = {"inputs": tuple(range(len(taken)))}
                sizes = {"sizes": _sizes(node)}
                nodes.append(
                    OpNode(node.name, op_type, taken, node.outputs, sizes, slots, node.location)
                )
            else:
                nodes.append(node)
        functions = {k: f for k, f in self.ir.functions.items() if k not in called}
        host = self.ir.replace(nodes=nodes, functions=functions)
        host = self._hosted(with_checked_sizes(host))
        self._host = IRExecutor(host, weights or {}, constants)
        for op_type, kernel in kernels.items():
            register_executor(op_type)(kernel)
        weakref.finalize(self._host, _forget, tuple(kernels))  # which copies of this one share

    def _hosted(self, host: IR) -> IR:
        """The program with calls of delegates, as torch runs it."""
        return host

    def _delegate(
        self, call: OpNode, payload: Mapping[str, torch.Tensor], backend: DelegateBackend
    ) -> Delegate:
        """The delegate that a node calls, compiled."""
        body = body_of(self.ir, call)
        held = held_tensors(self.ir, body, payload)
        failed = raised_as(lambda error: _not_compiled(backend, body, error), passing=_TOLD)
        with failed:
            return Delegate(body, backend, held, compiled_by(backend, body, held))

    def __repr__(self) -> str:
        return f"DelegatingExecutor({self.ir!r})"

    @untraced
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run with the model's own arguments; the result has the model's own structure.

        Raises:
            InputError: The arguments do not fit.
            ExecutionError: A node or a subgraph cannot be run; the message names it.
        """
        return self._host(*args, **kwargs)

    @property
    def direct_call(self) -> Callable[..., Any]:
        """What a call of this executor calls: who keeps it saves a step."""
        return self._host.direct_call

    @property
    def buffers(self) -> dict[str, torch.Tensor]:
        """Copies of the buffers that the program writes, by key, as they are now."""
        return self._host.buffers

    def reset(self) -> None:
        """Give the buffers that the program writes their first values again."""
        self._host.reset()

    @property
    def graph(self) -> ExecGraph:
        """The compiled graph, in which each delegate is one call of its backend."""
        return self._host.graph


def _forget(op_types: Sequence[str]) -> None:
    for op_type in op_types:
        unregister_executor(op_type)


_TOLD = (OptionalDependencyError, BackendError)
"""Errors of a backend that say all there is to say."""


def _not_compiled(backend: DelegateBackend, body: IR, error: Exception) -> BackendError:
    first = body.nodes[0]
    return BackendError(
        f"the backend {backend.name!r} fails to compile {body.model_name!r}, a delegate of "
        f"{counted(len(body.nodes), 'node')}{at(first.location, ', the first {}')}: "
        f"{type(error).__name__}: {first_line(error)}",
        node=first.name,
    )


def listed(results: Any) -> list[Any]:
    """Return what a compiled subgraph gave as a list; a lone tensor is one result."""
    return list(results) if isinstance(results, list | tuple) else [results]


def _sizes(call: OpNode) -> list[Any]:
    """The symbols that a delegate takes beside tensors."""
    operands: Any = call.attrs.get("operands", ())
    return [item for item in operands if item is not None]


def held_tensors(ir: IR, body: IR, payload: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the inputs of a body that are weights or constants which the program does not write.

    Args:
        ir: The program.
        body: The function.
        payload: The tensors of the program's weights.
    """
    external = ir.external_values()
    written = {*written_buffers(ir).values()}
    taken = [(m.name, *external[m.name]) for m in body.graph_inputs if m.name in external]
    fixed = [(name, key) for name, key, _ in taken if key not in written]
    known = {key for _, key in fixed if key in ir.constants}
    tensors = {**payload, **constant_tensors(ir.constants, known, payload)}
    return {name: tensors[key] for name, key in fixed if key in tensors}


def _kernel(backend: str, call: OpNode, delegate: Delegate) -> DirectKernel:
    on = tuple_call(delegate.compiled)
    guarded = delegate.compiled if isinstance(delegate.compiled, WithFallback) else None
    names = [node.name for node in delegate.body.nodes]
    nodes = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    types = [getattr(torch, meta.dtype) for meta in call.outputs]
    expected = [
        (i, types[i], meta.shape)
        for i, meta in enumerate(call.outputs)
        if meta.name not in delegate.written  # it is the very tensor that was given
    ]
    count = len(call.outputs)
    taken = [meta.name for meta in call.inputs if meta.name not in delegate.held]
    on = on if guarded is not None else _unwriting(backend, taken, on)
    made_in = {
        i: taken.index(delegate.written[meta.name])
        for i, meta in enumerate(call.outputs)
        if meta.name in delegate.written
    }
    watched = _watched(delegate, made_in)

    def run(*given: Any) -> Sequence[torch.Tensor]:
        if is_watched():
            return watched(given)
        try:  # raised_as costs a microsecond a call
            settled = None if guarded is None else guarded.settled
            if guarded is None or settled is None:
                made = on(given)
            else:
                try:
                    made = settled.on(given)
                except Exception as error:  # noqa: BLE001  # whatever a runtime raises
                    made = guarded.recovered(error, given)
        except TorchIRError:
            raise
        except Exception as error:
            raise BackendError(
                f"the backend {backend!r} fails to run {call.name!r}, a delegate of {nodes}: "
                f"{type(error).__name__}: {first_line(error)}",
                node=call.name,
            ) from error
        if made.__class__ is not list:
            made = listed(made)
        if len(made) == count:
            for i, dtype, shape in expected:
                result = made[i]
                is_plain = result.__class__ is torch.Tensor
                if not (is_plain and result.dtype is dtype and result.shape == shape):
                    break
            else:
                return made
        if fault := misfit(call.outputs, made):
            if guarded is None:
                raise ExecutionError(f"the backend {backend!r} gave {fault} for {call.name!r}")
            return guarded.replaced(f"it gives {fault}", given)
        return made

    on_plain = None if guarded is None else _on_plain(guarded, run)
    return DirectKernel(run, delegate.is_pure, made_in, on_plain)


def _unwriting(
    backend: str, names: Sequence[str], on: Callable[[tuple[Any, ...]], Any]
) -> Callable[[tuple[Any, ...]], Any]:
    """What refuses results where a backend has written to an argument, which is the caller's."""

    def run(given: tuple[Any, ...]) -> Any:
        before = writes_to(given)
        made = on(given)
        now = writes_to(given)
        if now != before:
            name = next(n for n, a, b in zip(names, before, now, strict=True) if a != b)
            raise ExecutionError(f"the backend {backend!r} writes to its input %{name}")
        return made

    return run


def _on_plain(
    guarded: WithFallback, run: Callable[..., Sequence[torch.Tensor]]
) -> Callable[[tuple[torch.Tensor, ...]], Sequence[torch.Tensor] | None]:
    """What runs a settled runtime on plain tensors: results as they were before need no look."""
    fits: Callable[..., bool] | None = None
    left = MAX_GUARDS

    def on_plain(given: tuple[torch.Tensor, ...]) -> Sequence[torch.Tensor] | None:
        nonlocal fits, left
        settled = guarded.settled
        if settled is None or not left:
            return None
        if fits is not None:
            try:
                made = settled.on_plain(given)
            except Exception as error:  # noqa: BLE001  # whatever a runtime raises
                return guarded.recovered(error, given)
            try:
                if fits(*made):
                    return made
            except TypeError:  # of another number of results
                fits = None
        left, made = left - 1, run(*given)
        fits = plain_guard(made)
        return made

    return on_plain


def _watched(
    delegate: Delegate, made_in: Mapping[int, int]
) -> Callable[[tuple[Any, ...]], Sequence[torch.Tensor]]:
    """What transforms and traces see of a delegate: torch's operators."""
    compiled, held = delegate.compiled, delegate.held
    has_own = isinstance(compiled, WithFallback)
    on_torch = compiled.on_torch if has_own else BodyOnTorch(delegate.body, held)

    def run(given: tuple[Any, ...]) -> Sequence[torch.Tensor]:
        made = on_torch(given)
        # what takes them counts on memory of their own
        return into_arguments(made_in, given, [result.clone() for result in made])

    return run


def misfit(outputs: Sequence[TensorMeta], made: Sequence[Any]) -> str:
    """Return what is wrong with the number, types or ranks of results; empty if nothing is."""
    if len(made) != len(outputs):
        return f"{counted(len(made), 'result')} in place of {len(outputs)}"
    for meta, result in zip(outputs, made, strict=True):
        if not isinstance(result, torch.Tensor):
            return f"a {type(result).__name__} in place of a tensor"
        if result.dtype is not getattr(torch, meta.dtype) or not _fits(result.shape, meta.shape):
            return f"{type_text(result)} in place of {type_text(meta)}"
    return ""


def _fits(shape: torch.Size, recorded: Sequence[Any]) -> bool:
    if shape == recorded:
        return True
    pairs = zip(shape, recorded, strict=False)
    return len(shape) == len(recorded) and all(
        size == dim or isinstance(dim, SymExpr) for size, dim in pairs
    )
