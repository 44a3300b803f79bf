"""A compiled program with its weights and state: calls it, and explains what it raises."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.amp import is_autocast_available

from torch_ir.arguments import public
from torch_ir.errors import ExecutionError, TorchIRError
from torch_ir.executor.autograd.gradients import Differentiator
from torch_ir.executor.codegen.lines import CodeLine
from torch_ir.executor.codegen.module import Compiled, CompiledModule, compile_source
from torch_ir.executor.codegen.run_time import NoTensorError
from torch_ir.executor.codegen.source import write_source
from torch_ir.executor.inputs import Results, check_inputs, first_result, require_default_dtype
from torch_ir.executor.listeners import Listener, ListenerError, StopError, guarded
from torch_ir.executor.plan import Plan
from torch_ir.executor.state import State
from torch_ir.infer.bindings import Symbols
from torch_ir.ir import IR, OpNode
from torch_ir.ir.diagnostics import error_at
from torch_ir.ir.queries import (
    has_complex,
    makes_sparse,
    op_types,
    written_values,
)
from torch_ir.torch_api import (
    MAX_GUARDS,
    BelowAutograd,
    BelowViewTracking,
    StopsRecomputation,
    has_storage,
    is_sparse,
    overload,
    plain_guard,
    runs_below_autograd,
)
from torch_ir.torch_modes import (
    has_modes_beside_keys,
    is_any_autocast_enabled,
    is_transformed,
    untraced,
)
from torch_ir.weights.tensor_registry import DirectKernel

_set_grad_enabled = torch._C._set_grad_enabled  # pyright: ignore[reportPrivateUsage]  # torch.no_grad costs more than a node


@dataclass(slots=True)
class LastCall:
    """What the last call took and gave.

    Attributes:
        values: Its inputs and outputs; None before the first.
    """

    values: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]] | None = None


class CompiledProgram:
    """Generated code, bound to the tensors that it runs with.

    Args:
        plan: The plan of the program.
        module: Its code.
        payload: The tensors that it is given, by the names that nodes use; never changed.
        device: Where it runs.
        grad: Whether a run records gradients.

    Attributes:
        plan: The plan.
        payload: The tensors that it runs with: those given, and the buffers of the state.
        state: The buffers that it writes.
        module: Its code, bound to the payload.
        device: Where it runs.
        grad: Whether a run records gradients.
        differentiator: Takes its gradients.
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
        self.plan = plan
        self.state = State(plan.ir, payload)
        self.payload: dict[str, torch.Tensor] = {**payload, **self.state.tensors}
        self.module = module.bind(self.payload)
        self.device = device
        places = {tensor.device for tensor in self.payload.values()}
        kinds = {place.type for place in (device, *places, *plan.input_devices.values())}
        self._device_types = {kind for kind in kinds if is_autocast_available(kind)}
        self.grad = grad
        self.differentiator = Differentiator(plan, self.payload, device)
        self._is_direct = _is_direct(plan)
        self._below = None if self._is_direct else _level(plan, self.payload)
        self._observed: dict[tuple[bool, bool], Compiled] = {}
        taken = self.module.symbols, self.module.returned_symbols, grad, self.state.turn
        self._is_plain = not any(taken)

    @public
    def plain_call(
        self, results: Results, last: LastCall, otherwise: Callable[..., Any]
    ) -> Callable[..., Any] | None:
        """Return what calls a program of static sizes, without state; None for other programs.

        A program that is one delegate takes microseconds: each step here is a part.

        Args:
            results: Gives outputs the model's own structure.
            last: Where the inputs and outputs are kept.
            otherwise: Is called in its place where :meth:`execute` has more to see to than tensors
                of the recorded types.
        """
        if not self._is_plain:
            return None
        parts = self._call, self._explained, self._is_direct
        on_plain = _on_plain(self.plan) if self._is_direct else None
        return _plain_calls(self.module, parts, results, last, otherwise, on_plain)

    def execute(self, args: tuple[Any, ...], module: Compiled | None = None) -> tuple[Any, ...]:
        """Run generated code, when it is its turn.

        Args:
            args: What it takes.
            module: The code; None for :attr:`module`.

        Raises:
            ExecutionError: A kernel fails, or the state is half written.
        """
        if is_any_autocast_enabled() and any(map(torch.is_autocast_enabled, self._device_types)):
            with _without_autocast(self._device_types):
                return self.execute(args, module)
        if module is None and not self.grad and not all(map(has_storage, args)):
            module = self.differentiator.recorded()  # in a dense value's place, results are dense
        if self.state.turn is not None:
            self.state.require_outside()
            with self.state.turn:
                self.state.require_whole()
                return self._call(args, module or self.module)
        return self._call(args, module or self.module)

    @public
    def checked(
        self, inputs: Sequence[Any], given: Symbols
    ) -> tuple[Sequence[torch.Tensor], Symbols]:
        """Return the inputs of a call where a placed program reads them, and all symbols.

        One that the program writes is left where it is, since its caller sees it.

        Raises:
            InputError: An input does not fit.
            ExecutionError: torch's default dtype is another, and would be that of results.
        """
        require_default_dtype(self.plan.default_dtype)
        ir, places = self.plan.ir, self.plan.input_devices
        if places and len(inputs) == len(ir.graph_inputs):
            written = written_values(ir)
            named = zip(ir.input_names, inputs, strict=True)
            inputs = [t if n in written else _moved(t, places[n]) for n, t in named]
        return inputs, check_inputs(ir, inputs, self.device, given, places)

    @public
    def execute_for(
        self,
        listener: Listener,
        nodes: Sequence[OpNode],
        args: tuple[Any, ...],
        *,
        reuse: bool,
    ) -> tuple[Any, ...]:
        """Run the program, telling a listener of every node.

        Args:
            listener: Is told.
            nodes: The nodes as it is told of them.
            args: The tensors and symbols that the program takes.
            reuse: Whether results take the place of dead values.

        Raises:
            ExecutionError: As :meth:`execute`.
        """
        is_seen = is_transformed(args)
        reuse = reuse and not is_seen and all(map(has_storage, args))
        kind = self.grad or is_seen, reuse
        if kind not in self._observed:
            compiled = _observed(self.plan, self.device, *kind)
            self._observed[kind] = compiled.bind(self.payload)
        module = self._observed[kind]
        tell = guarded(nodes, listener.will_run), guarded(nodes, listener.did_run)
        return self.execute((*args, *tell), module)

    def record(self, module: Compiled, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Run code of this program above autograd.

        Args:
            module: The code.
            inputs: One tensor for each of ``ir.graph_inputs``.

        Returns:
            One tensor for each of ``ir.graph_outputs``.

        Raises:
            InputError: An input does not fit.
            ExecutionError: As :meth:`execute`.
        """
        inputs, symbols = self.checked(inputs, {})
        values = [symbols[name] for name in module.symbols]
        self.state.require_outside()
        with self.state.in_turn(), _without_autocast(self._device_types):
            self.state.require_whole()
            results = self._call_recording((*inputs, *values), module)
        return results[: len(self.plan.ir.graph_outputs)]

    def _call(self, args: tuple[Any, ...], module: Compiled) -> tuple[Any, ...]:
        if is_transformed(args):
            self.differentiator.require_derivatives()
            if module is self.module and not self.grad:
                module = self.differentiator.recorded()
            return self._call_recording(args, module)
        if self.grad:
            return self._call_recording(args, module)
        before = torch.is_grad_enabled()
        below = self._below
        if below is BelowAutograd and any(map(is_sparse, args)):
            below = BelowViewTracking
        try:
            if before:  # within, as an interrupt may come behind each call
                _set_grad_enabled(False)
            if below is None:
                return module.run(*args)
            with below():
                return module.run(*args)
        except BaseException as error:  # noqa: BLE001  # kernels raise anything; or an interrupt
            raise self._explained(error, module) from _cause(error)
        finally:
            if before:
                _set_grad_enabled(True)

    def _call_recording(self, args: tuple[Any, ...], module: Compiled) -> tuple[Any, ...]:
        try:
            return module.run(*args)
        except StopsRecomputation:  # the checkpoint around it has what it wants
            raise
        except BaseException as error:  # noqa: BLE001  # kernels raise anything; or an interrupt
            raise self._explained(error, module) from _cause(error)
        finally:
            self.state.detach()

    def _explained(self, error: BaseException, module: Compiled) -> BaseException:
        """What a node raised, with the node; the state is torn if that may be between writes."""
        lines = list(module.lines_of(error.__traceback__))
        if self.state.tensors and _are_behind_a_write(self.plan, lines):
            self.state.tear()
        return _shown(error, [line.node for line in lines if line.node is not None])


def _are_behind_a_write(plan: Plan, lines: Sequence[CodeLine]) -> bool:
    """Whether a run that ended on some lines, the outermost first, may have written a buffer."""
    node = next((line.node for line in lines if line.node is not None), None)
    first = plan.first_state_write
    behind = () if first is None else plan.ir.nodes[first:]
    return any(line.writes for line in lines) or any(node is other for other in behind)


def _plain_calls(
    module: Compiled,
    parts: tuple[Callable[..., Any], Callable[..., BaseException], bool],
    results: Results,
    last: LastCall,
    otherwise: Callable[..., Any],
    on_plain: Callable[[tuple[torch.Tensor, ...]], Sequence[torch.Tensor] | None] | None,
) -> Callable[..., Any]:
    accepts, run, is_grad_enabled = module.accepts, module.run, torch.is_grad_enabled
    call, explained, is_direct = parts
    is_single = results is first_result
    fits_again: Callable[..., bool] | None = None
    again, left = (_nothing, 0) if on_plain is None else (on_plain, MAX_GUARDS)

    @untraced
    def plainly(*args: Any, **kwargs: Any) -> Any:
        nonlocal fits_again, left
        if fits_again is not None and not kwargs and not has_modes_beside_keys():
            try:
                for item in args:
                    if item.is_nested:  # at which torch's guard ends the process
                        raise TypeError
                fits = fits_again(*args)
            except (AttributeError, TypeError):  # of an argument that is no such tensor
                fits = False
            if fits and (made := again(args)) is not None:
                last.values = args, made
                return made[0] if is_single else results(tuple(made), {})
        try:
            fits = None if kwargs else accepts(*args)
        except (RuntimeError, TypeError, ValueError):  # a nested tensor, without sizes; a number
            fits = None
        if fits is None or is_any_autocast_enabled():
            return otherwise(*args, **kwargs)
        if is_direct and not is_grad_enabled():
            try:
                outputs = run(*args)
            except Exception as error:  # noqa: BLE001  # kernels raise anything; it is the cause
                raise explained(error, module) from _cause(error)
        else:
            outputs = call(args, module)
        last.values = args, outputs
        if left:
            left, fits_again = left - 1, plain_guard(args)
        return outputs[0] if is_single else results(outputs, {})

    return plainly


def _nothing(_given: tuple[torch.Tensor, ...]) -> None:
    """What a program gives at once that always has more to see to."""


@contextmanager
def _without_autocast(device_types: Iterable[str]) -> Generator[None]:
    """Switch it off, as the IR says every type itself."""
    with ExitStack() as stack:
        for kind in device_types:
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _moved(value: Any, device: torch.device) -> Any:
    is_elsewhere = isinstance(value, torch.Tensor) and value.device != device
    return value.to(device) if is_elsewhere and not value.is_meta else value


def _cause(error: BaseException) -> BaseException | None:
    if isinstance(error, TorchIRError | ListenerError) or not isinstance(error, Exception):
        return error.__cause__
    return error


def _observed(plan: Plan, device: torch.device, recorded: bool, reuse: bool) -> CompiledModule:
    """The code that tells a listener of every node."""
    written = write_source(plan, device, observed=True, recorded=recorded, reuse=reuse)
    return compile_source(written, plan.ir.model_name)


def _shown(error: BaseException, nodes: Sequence[OpNode]) -> BaseException:
    """What a listener raised, an interrupt, or an error with the node at which a run ended."""
    if isinstance(error, ListenerError):
        cause = error.__cause__
        return error if cause is None or isinstance(cause, StopError) else cause
    if (
        not isinstance(error, Exception)
        or not nodes
        or (isinstance(error, TorchIRError) and error.node)
    ):
        return error
    return _at_node(nodes[-1], error)


def _at_node(node: OpNode, error: Exception) -> ExecutionError:
    """An error that shows the node and where it came from."""
    remedy = None
    told = str(error).strip().partition("\n\n")[0]  # behind it torch lists its 50 keys
    message = f"{node.op_type} failed: {told}"
    if isinstance(error, TorchIRError):
        message, remedy = error.message, error.remedy
        if isinstance(error, NoTensorError):
            message = f"{node.op_type} {message}"
    return error_at(node, message, remedy=remedy)


def _on_plain(plan: Plan) -> Callable[[tuple[torch.Tensor, ...]], Any] | None:
    """What runs a program that is one delegate of its inputs, as they are; None for others."""
    node, kernel = plan.steps[0].call.node, plan.steps[0].call.target
    names = [[meta.name for meta in metas] for metas in (node.inputs, node.outputs)]
    is_alone = len(plan.steps) == 1 and not plan.copied_outputs
    if not is_alone or names != [[*plan.ir.input_names], [*plan.ir.output_names]]:
        return None
    return kernel.on_plain if isinstance(kernel, DirectKernel) else None


def _is_direct(plan: Plan) -> bool:
    """Whether delegates run all of a program, which see to the modes of the thread themselves."""
    are_direct = all(isinstance(step.call.target, DirectKernel) for step in plan.steps)
    return are_direct and bool(plan.steps) and not plan.writes


def _level(plan: Plan, payload: Mapping[str, torch.Tensor]) -> Callable[[], Any] | None:
    """The context in which a run calls kernels: below autograd, which costs less; None for none.

    Conjugation is a mark on complex tensors that some kernels take into account. Composite
    operators have to come apart before torch sees to the mark, and do so at autograd's level; an
    operator of a library may have its one kernel there.
    """
    ir = plan.ir
    if ir.view("needs_autograd", lambda: has_complex(ir) or _has_only_autograd(ir)):
        return None
    # kernels resize views of a sparse tensor's values: where views know what they are views of,
    # the tensor does not see that, and its values stay empty
    has_sparse = makes_sparse(ir) or any(map(is_sparse, payload.values()))
    return BelowViewTracking if plan.is_private or has_sparse else BelowAutograd


def _has_only_autograd(ir: IR) -> bool:
    names = [name for name in op_types(ir) if not name.startswith("aten.")]
    operators = [overload(*name.split(".")) for name in names if name.count(".") == 2]
    return any(o is not None and not runs_below_autograd(o) for o in operators)
