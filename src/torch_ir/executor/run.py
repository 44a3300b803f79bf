"""Running an IR with weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any

import torch

from torch_ir.errors import ExecutionError, InputError, MissingWeightsError, counted
from torch_ir.executor.inputs import check_inputs, flatten_arguments, structured
from torch_ir.executor.program import Observer, Program
from torch_ir.executor.registry import TensorRegistry
from torch_ir.executor.symbols import Symbols
from torch_ir.ir import IR
from torch_ir.torch_api import constant_tensor
from torch_ir.weights import check_weights, load_weights


class IRExecutor:
    """Runs an IR, bitwise as eager PyTorch runs the model.

    The weights that it is given are never changed: buffers that the program writes are kept by the
    executor, as they are after the last call (:attr:`buffers`), and start again with
    :meth:`reset`. A call that fails changes no state.

    Args:
        ir: The program.
        weights: Tensors by ``state_dict`` key; may hold more than the program needs.
        constants: Values that are in no state dict, by key: they take the place of
            ``ir.constants`` and supply what a model on the meta device could not tell
            (non-persistent buffers, plain tensor attributes).

    Raises:
        WeightLoadError: The weights are not those that the program needs; all faults in one
            message.

    Attributes:
        registry: After a call, its inputs, the weights, and its outputs by name.

    Example:
        >>> from torch_ir.frontend import extract_ir
        >>> model = torch.nn.Linear(3, 2)
        >>> executor = IRExecutor(extract_ir(model, (torch.ones(1, 3),)), model.state_dict())
        >>> torch.equal(executor(torch.ones(1, 3)), model(torch.ones(1, 3)))
        True
    """

    def __init__(
        self,
        ir: IR,
        weights: Mapping[str, torch.Tensor] | None = None,
        constants: Mapping[str, torch.Tensor] | None = None,
    ):
        if not isinstance(ir, IR):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
            raise ExecutionError(f"an executor runs an IR, got {type(ir).__name__}")
        self.ir = ir
        self.constants = constants
        self.registry = TensorRegistry()
        self._weights: Mapping[str, torch.Tensor] | None = None
        self._values: dict[str, torch.Tensor] = {}
        self._state: dict[str, torch.Tensor] = {}
        self._program: tuple[torch.device, Program] | None = None
        if weights is not None:
            self.load_weights_from_state_dict(weights)

    @property
    def weights(self) -> Mapping[str, torch.Tensor] | None:
        """The weights as they were given, or None."""
        return self._weights

    @property
    def buffers(self) -> dict[str, torch.Tensor]:
        """The buffers that the program writes, by ``state_dict`` key, after the last call."""
        self._prepare()
        return dict(self._state)

    def reset(self) -> None:
        """Give the buffers that the program writes their first values again."""
        self._prepare()
        self._state = self._first_state()

    def load_weights(self, path: str | PathLike[str], *, trust: bool = False) -> None:
        """Take the weights of a file; see :func:`torch_ir.load_weights`.

        Raises:
            WeightLoadError: The file cannot be read or does not fit; the weights given before stay
                in force.
        """
        self.load_weights_from_state_dict(load_weights(path, trust=trust))

    def load_weights_from_state_dict(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Take the weights of a state dict; it may hold more than the program needs.

        Raises:
            WeightLoadError: They do not fit; the weights given before stay in force.
        """
        tensors = check_weights(self.ir, state_dict, strict=False, constants=self.constants)
        values = self._external(tensors)
        self._weights = state_dict
        self._values = values
        self._state = self._first_state()

    def execute(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Run on plain tensors.

        Args:
            inputs: One tensor for each of ``ir.graph_inputs``, in order.

        Returns:
            One tensor for each of ``ir.graph_outputs``, in order.

        Raises:
            InputError: An input does not fit; the message names it.
            MissingWeightsError: The program has weights and none were given.
            ExecutionError: A node cannot be run; the message names it.
        """
        if isinstance(inputs, torch.Tensor) or not isinstance(inputs, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
            raise InputError(
                f"inputs are a tuple of tensors, got {type(inputs).__name__}",
                remedy="Write (x,) for one input.",
            )
        values, _ = self._run(tuple(inputs), {})
        return tuple([values[meta.name] for meta in self.ir.graph_outputs])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run with the model's own arguments; the result has the model's own structure.

        Raises:
            InputError: The arguments do not have the structure that the program was extracted
                with, or one does not fit.
            MissingWeightsError: The program has weights and none were given.
            ExecutionError: A node cannot be run; the message names it.
        """
        values, symbols = self._run(*flatten_arguments(self.ir, args, kwargs))
        if self.ir.signature is None:
            return tuple([values[meta.name] for meta in self.ir.graph_outputs])
        return structured(self.ir.signature.outputs, values, symbols)

    def call_observed(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], observer: Observer
    ) -> tuple[torch.Tensor, ...]:
        """As a call, with an observer that sees every node as it runs; returns plain tensors."""
        values, _ = self._run(*flatten_arguments(self.ir, args, kwargs), observer)
        return tuple([values[meta.name] for meta in self.ir.graph_outputs])

    def external_tensors(self) -> list[torch.Tensor]:
        """The weights and constants that the program runs with."""
        self._prepare()
        return [*self._values.values(), *self._state.values()]

    # -- running ----------------------------------------------------------------------------------

    def _run(
        self, inputs: tuple[Any, ...], given: Symbols, observer: Observer | None = None
    ) -> tuple[dict[str, torch.Tensor], Symbols]:
        self._prepare()
        symbols = check_inputs(self.ir, inputs, _device(self._values.values()), given)
        program = self._bound(_device((*self._values.values(), *inputs)) or torch.device("cpu"))
        named = dict(zip([meta.name for meta in self.ir.graph_inputs], inputs, strict=True))
        state = {key: tensor.clone() for key, tensor in self._state.items()}
        given_values = {**self._values, **self._named_state(state), **named}
        with torch.no_grad():
            made = program.run(given_values, symbols, observer)
            self._write_back(made, given_values)
        self._state = state
        values = {**given_values, **made}
        self._remember(values)
        return values, symbols

    def _first_state(self) -> dict[str, torch.Tensor]:
        """A copy of each buffer that the program writes, by key: a tied one has one state."""
        external = self.ir.external_values()
        written = [m.target for m in self.ir.mutations if m.target in external]
        return {external[name][0]: self._values[name].clone() for name in written}

    def _named_state(self, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The state under each name that nodes use for it."""
        if not state:
            return {}
        external = self.ir.external_values()
        return {name: state[key] for name, (key, _) in external.items() if key in state}

    def _write_back(
        self, made: Mapping[str, torch.Tensor], targets: Mapping[str, torch.Tensor]
    ) -> None:
        """Write what a functionalised program computes for a buffer or input, at the end.

        Everything is read before anything is written: one buffer may take another's old value.
        """
        moved = [m for m in self.ir.mutations if m.value.name != m.target]
        values = [made[m.value.name] for m in moved]
        if len(moved) > 1:
            values = [value.clone() for value in values]
        for mutation, value in zip(moved, values, strict=True):
            targets[mutation.target].copy_(value)

    def _remember(self, values: Mapping[str, torch.Tensor]) -> None:
        self.registry.clear()
        for name, tensor in values.items():
            self.registry.register(name, tensor)

    def _prepare(self) -> None:
        if self._weights is not None:
            return
        if self.ir.weights and not self.constants:
            raise MissingWeightsError(
                f"the program has {counted(len(self.ir.weights), 'weight')} and none were given",
                remedy="Call load_weights(path) or load_weights_from_state_dict(state_dict) "
                "first.",
            )
        self.load_weights_from_state_dict({})

    def _bound(self, device: torch.device) -> Program:
        if self._program is None:
            _require_well_formed(self.ir)
        if self._program is None or self._program[0] != device:
            self._program = (device, Program(self.ir, device))
        return self._program[1]

    def _external(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The value of each external name: what was given, or the IR's own constant."""
        device = _device(tensors.values())
        values: dict[str, torch.Tensor] = {}
        for name, (key, _) in self.ir.external_values().items():
            if key in tensors:
                values[name] = tensors[key].detach()
            else:
                values[name] = constant_tensor(self.ir.constants[key]).to(device or "cpu")
        return values


def execute_ir(
    ir: IR,
    inputs: Sequence[torch.Tensor],
    weights: Mapping[str, torch.Tensor] | None = None,
    weights_path: str | PathLike[str] | None = None,
    constants: Mapping[str, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, ...]:
    """Run an IR once on plain tensors.

    Args:
        ir: The program.
        inputs: One tensor for each of ``ir.graph_inputs``, in order.
        weights: Tensors by ``state_dict`` key; never changed.
        weights_path: A weight file, instead of ``weights``.
        constants: Values that are in no state dict; see :class:`IRExecutor`.

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
            "either weights or weights_path must be given",
            remedy="Pass weights={} for a program without weights.",
        )
    executor = IRExecutor(ir, weights, constants)
    if weights_path is not None:
        executor.load_weights(weights_path)
    return executor.execute(inputs)


def _require_well_formed(ir: IR) -> None:
    findings = ir.check()
    if findings:
        more = [f"and {len(findings) - 10} more"] if len(findings) > 10 else []
        raise ExecutionError(
            f"the program is not well-formed: {counted(len(findings), 'fault')}",
            picture="\n".join([*map(str, findings[:10]), *more]),
        )


def _device(tensors: Any) -> torch.device | None:
    """The device that the tensors share, or None without tensors.

    Where they differ, it is that of the first one that is not on the CPU.
    """
    devices = {tensor.device: None for tensor in tensors if isinstance(tensor, torch.Tensor)}
    others = [device for device in devices if device.type not in ("cpu", "meta")]
    return next(iter(others or devices), None)
