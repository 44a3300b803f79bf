"""The executor of an IR with weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from threading import RLock
from typing import Any

import torch

from torch_ir.arguments import public
from torch_ir.errors import ExecutionError, MissingWeightsError
from torch_ir.executor.check.compile import compile_graph
from torch_ir.executor.graph import ExecGraph
from torch_ir.executor.groups import bound_to_groups
from torch_ir.executor.inputs import (
    Results,
    flatten_arguments,
    results_reader,
    several,
    takes_tensors_alone,
)
from torch_ir.executor.listeners import Listener
from torch_ir.executor.placement import Placement, device_of_weights
from torch_ir.executor.program import LastCall
from torch_ir.executor.uncopied import Uncopied
from torch_ir.infer.bindings import Symbols
from torch_ir.ir import IR
from torch_ir.ir.queries import external_keys
from torch_ir.ops.rules import allowances
from torch_ir.ops.spec import DENSE_OPERANDS
from torch_ir.passes.view_copies import with_reshapes, with_views
from torch_ir.torch_modes import untraced
from torch_ir.weights import check_weights, load_weights
from torch_ir.weights.presence import require_weights
from torch_ir.weights.tensor_registry import TensorRegistry

_MORE_TO_DO = object()


def _more_to_do(*args: Any, **kwargs: Any) -> object:
    """Take the call of arguments that a plain call does not take."""
    return _MORE_TO_DO


_LOAD_FIRST = "Call load_weights(path) or load_weights_from_state_dict(state_dict) first."


@public
class IRExecutor(Uncopied):
    """Runs an IR, bitwise as eager PyTorch runs the model.

    The weights that it is given are never changed: it keeps the buffers that the program writes,
    as the last call left them (:attr:`buffers`), until :meth:`reset`. A call that fails before the
    first write changes no state; after one that fails between two writes, the next asks for a
    reset.

    The graph is compiled at the first call (:func:`compile_graph`). Threads with state take turns.

    Args:
        ir: The program.
        weights: Tensors by ``state_dict`` key; may hold more than the program needs.
        constants: Values that are in no state dict, by key. They take the place of
            ``ir.constants``, and supply what a model on meta could not tell.
        grad: Let torch's autograd differentiate results by inputs and parameters.
        allow: Operators to allow although the rules refuse them (:func:`allow_operators`).
        groups: The process groups, by the names that the program's collectives have.
        check_types: Derive the recorded types anew, as :func:`compile_graph` does.
        placement: Where what runs (:func:`compile_graph`), if weights do not follow the inputs.

    Raises:
        WeightLoadError: The weights are not those that the program needs; all are listed.

    Example:
        >>> from torch_ir.frontend import extract_ir
        >>> model, x = torch.nn.Linear(3, 2), torch.ones(1, 3)
        >>> executor = IRExecutor(extract_ir(model, (x,)), model.state_dict())
        >>> torch.equal(executor(x), model(x))
        True
    """

    def __init__(
        self,
        ir: IR,
        weights: Mapping[str, torch.Tensor] | None = None,
        constants: Mapping[str, torch.Tensor] | None = None,
        *,
        grad: bool = False,
        allow: Iterable[str] = (),
        groups: Mapping[str, Any] | None = None,
        check_types: bool = True,
        placement: Placement | None = None,
    ):
        if not isinstance(ir, IR):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
            raise ExecutionError(f"an executor runs an IR, got {type(ir).__name__}")
        self.ir, allow = bound_to_groups(ir, groups, allow)
        self.constants, self.grad = constants, grad
        asked = {"check_types": check_types, "grad": grad, "placement": placement}
        # what is allowed here, not where it first runs
        self._options: dict[str, Any] = {"allow": allowances() | {*allow}, **asked}
        self._weights: Mapping[str, torch.Tensor] | None = None
        self._payload: dict[str, torch.Tensor] = {}
        self._graph, self._compiling = None, RLock()  # two graphs would have two states
        self._plainly: Callable[..., Any] | None = None
        self._plain_arguments = len(ir.graph_inputs) if takes_tensors_alone(ir) else -1
        self._results = results_reader(ir)
        self._last = LastCall()
        if weights is not None:
            self.load_weights_from_state_dict(weights)

    def __repr__(self) -> str:
        return f"IRExecutor({self.ir!r}, grad={self.grad})"

    @property
    def weights(self) -> Mapping[str, torch.Tensor] | None:
        """The weights as they were given, or None."""
        return self._weights

    @property
    def graph(self) -> ExecGraph:
        """The compiled graph.

        Raises:
            MissingWeightsError, CompileError: It lacks weights, or cannot be compiled.
        """
        return self._graph or self.graph_for()

    @property
    def registry(self) -> TensorRegistry:
        """After a call, its inputs, the weights, and its outputs by name."""
        payload = {} if self._last.values is None else self.graph.payload
        return _registry(self.ir, payload, self._last)

    @property
    def buffers(self) -> dict[str, torch.Tensor]:
        """Copies of the buffers that the program writes, by key, as they are now."""
        return self.graph.buffers

    def reset(self) -> None:
        """Give the buffers that the program writes their first values again."""
        self.graph.reset()

    def load_weights(self, path: str | PathLike[str], *, trust: bool = False) -> None:
        """Take the weights of a file; see :func:`torch_ir.load_weights`.

        Raises:
            WeightLoadError: It cannot be read or does not fit; those given before stay in force.
        """
        self.load_weights_from_state_dict(load_weights(path, trust=trust))

    def load_weights_from_state_dict(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Take the weights of a state dict; it may hold more than the program needs.

        Raises:
            WeightLoadError: They do not fit; the weights given before stay in force.
        """
        payload = check_weights(self.ir, state_dict, strict=False, constants=self.constants)
        with self._compiling:
            self._payload = _as_read(self.ir, payload, self.grad)
            self._weights = state_dict
            self._graph = self._plainly = None

    def execute(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Run on plain tensors.

        Args:
            inputs: One tensor for each of ``ir.graph_inputs``, in order.

        Raises:
            InputError: An input does not fit; the message names it.
            MissingWeightsError: No weights were loaded; a program without weights takes ``{}``.
            ExecutionError: A node cannot be run; the message names it.
        """
        if self._weights is None and not self.constants:
            raise MissingWeightsError("Weights not loaded", remedy=_LOAD_FIRST)
        return self._run(several(inputs), {})[0]

    @untraced
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run with the model's own arguments; the result has the model's own structure.

        Raises:
            InputError: The arguments do not have the structure that the program was extracted
                with, or one does not fit.
            MissingWeightsError: The program has weights and none were given.
            ExecutionError: A node cannot be run; the message names it.
        """
        if (plainly := self._plainly) is not None:
            made = plainly(*args, **kwargs)
            if made is not _MORE_TO_DO:
                return made
        return self._called(*args, **kwargs)

    @property
    def direct_call(self) -> Callable[..., Any]:
        """What calls of this executor do with the weights that it has: who keeps it saves steps.

        Raises:
            MissingWeightsError, CompileError: It lacks weights, or cannot be compiled.
        """
        parts = self.ir, self.graph, self._results, self._last
        return _plain_call(*parts, self._called) or self._called

    @public
    def call_observed(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], listener: Listener
    ) -> tuple[torch.Tensor, ...]:
        """Run a call with a listener that sees every node; return plain tensors."""
        return self._run(*flatten_arguments(self.ir, args, kwargs), listener)[0]

    def external_tensors(self) -> list[torch.Tensor]:
        """Return the weights and constants that the program runs with."""
        return list(self.graph.payload.values())

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        given: Symbols = {}
        if kwargs or len(args) != self._plain_arguments:
            args, given = flatten_arguments(self.ir, args, kwargs)
        return self._results(*self._run(args, given))

    def _run(
        self, inputs: tuple[Any, ...], given: Symbols, listener: Listener | None = None
    ) -> tuple[tuple[torch.Tensor, ...], Symbols]:
        graph = self._graph
        if graph is None or not (self._payload or _is_on(graph.device, inputs)):
            graph = self.graph_for(*inputs)
        outputs, symbols = graph.run(inputs, given, listener)
        kept = tuple([t.detach() for t in outputs]) if self.grad else outputs
        self._last.values = inputs, kept
        return outputs, symbols

    def graph_for(self, *inputs: Any) -> ExecGraph:
        """Return the compiled graph of a run: where such inputs lie, if nothing says a place."""
        named = dict(zip(self.ir.input_names, inputs, strict=False))
        with self._compiling:
            self._prepare()
            is_open = self._options["placement"] is None
            device = _device(self._payload, named) if is_open else None
            if self._graph is None or device not in (None, self._graph.device):
                runs = _as_it_runs(self.ir)
                self._graph = compile_graph(runs, self._payload, device=device, **self._options)
                parts = self.ir, self._graph, self._results, self._last
                self._plainly = _plain_call(*parts, _more_to_do)
            return self._graph

    def _prepare(self) -> None:
        if self._weights is None:
            require_weights(self.ir, self.constants or None, _LOAD_FIRST)
            self.load_weights_from_state_dict({})


def _plain_call(
    ir: IR, graph: ExecGraph, results: Results, last: LastCall, otherwise: Callable[..., Any]
) -> Callable[..., Any] | None:
    return graph.plain_call(results, last, otherwise) if takes_tensors_alone(ir) else None


def _registry(ir: IR, payload: Mapping[str, torch.Tensor], last: LastCall) -> TensorRegistry:
    registry = TensorRegistry()
    if last.values is None:
        return registry
    inputs, outputs = last.values
    named = dict(zip(ir.input_names, inputs, strict=True))
    made = zip(ir.output_names, outputs, strict=True)
    for name, tensor in {**payload, **named, **dict(made)}.items():
        registry.register(name, tensor)
    return registry


def _as_read(ir: IR, payload: Mapping[str, torch.Tensor], grad: bool) -> dict[str, torch.Tensor]:
    """The weights, dense where a kernel reads their memory as if they were."""
    read = {
        meta.name
        for node in ir.nodes
        for name in DENSE_OPERANDS.get(node.op_type, ())
        for meta in node.tensors(name)
    }
    dense = {key for name, key in external_keys(ir).items() if name in read}
    taken = {key: tensor if grad else tensor.detach() for key, tensor in payload.items()}
    return {key: t.contiguous() if key in dense else t for key, t in taken.items()}


def _is_on(device: torch.device, inputs: tuple[Any, ...]) -> bool:
    """Whether the first tensor of a call is there; a program without tensors runs anywhere."""
    for item in inputs:
        if isinstance(item, torch.Tensor):
            return item.device == device
    return True


def execute_ir(
    ir: IR,
    inputs: Sequence[torch.Tensor],
    weights: Mapping[str, torch.Tensor] | None = None,
    weights_path: str | PathLike[str] | None = None,
    constants: Mapping[str, torch.Tensor] | None = None,
    *,
    allow: Iterable[str] = (),
) -> tuple[torch.Tensor, ...]:
    """Run an IR once on plain tensors.

    Args:
        ir: The program.
        inputs: One tensor for each of ``ir.graph_inputs``, in order.
        weights: Tensors by ``state_dict`` key; never changed.
        weights_path: A weight file, instead of ``weights``.
        constants: Values that are in no state dict; see :class:`IRExecutor`.
        allow: Operators to allow although the rules refuse them; see
            :func:`torch_ir.allow_operators`.

    Returns:
        One tensor for each of ``ir.graph_outputs``, in order.

    Raises:
        MissingWeightsError: Neither ``weights`` nor ``weights_path`` is given; also a
            ``ValueError``.
        WeightLoadError: The weights are not those that the program needs.
        ExecutionError: An input does not fit, or a node cannot be run.
    """
    if weights is None and weights_path is None:
        raise MissingWeightsError(
            "Either weights or weights_path must be provided",
            remedy="Pass weights={} for a program without weights.",
        )
    executor = IRExecutor(ir, weights, constants, allow=allow)
    if weights_path is not None:
        executor.load_weights(weights_path)
    return executor.execute(inputs)


def _device(weights: Mapping[str, object], inputs: Mapping[str, object]) -> torch.device:
    """Where a program runs: weights on the CPU follow the inputs."""
    found = device_of_weights(weights)
    if found is None or found.type == "cpu":
        found = device_of_weights(inputs, "inputs") or found
    return found or torch.device("cpu")


def _as_it_runs(ir: IR) -> IR:
    """The program with the views that torch runs where its dialect leaves them open."""
    if ir.dialect in ("edge", "backend"):
        return with_views(ir)
    return with_reshapes(ir) if ir.dialect in ("core_aten", "prims") else ir
