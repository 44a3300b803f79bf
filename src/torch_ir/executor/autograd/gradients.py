"""Gradients of a compiled graph: pulled back from its outputs, or pushed forward to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.autograd.forward_ad as forward_ad

from torch_ir.errors import (
    ExecutionError,
    InputError,
    counted,
    did_you_mean,
    first_line,
    raised_as,
)
from torch_ir.executor.autograd.derivatives import forward_level
from torch_ir.executor.autograd.differentiable import is_differentiable, require_gradients
from torch_ir.executor.codegen.module import Compiled, CompiledModule, compile_source
from torch_ir.executor.codegen.source import write_source
from torch_ir.executor.inputs import require_values
from torch_ir.executor.plan import Plan
from torch_ir.ir import IR, TensorMeta
from torch_ir.ir.queries import external_keys, names_by_key
from torch_ir.ir.tensor import type_text
from torch_ir.ir.values import dtype_name
from torch_ir.torch_api import is_alike, is_inexact
from torch_ir.torch_modes import derivatives_under_way, outside_of_traces

Tensors: TypeAlias = tuple[torch.Tensor, ...]
Tangents: TypeAlias = tuple[torch.Tensor | None, ...]
Run: TypeAlias = Callable[[Compiled, Sequence[torch.Tensor]], Tensors]
"""Checks the inputs of a call and runs a module on them, with the gradient modes of the caller."""


@dataclass(frozen=True, slots=True)
class Gradients:
    """What a pullback gives.

    Attributes:
        inputs: For each of ``ir.graph_inputs`` its gradient; None for one that can have none.
        weights: The gradient of each weight that was asked for, by key.
    """

    inputs: Tangents
    weights: dict[str, torch.Tensor]

    def __repr__(self) -> str:
        inputs = [tensor if tensor is None else type_text(tensor) for tensor in self.inputs]
        weights = {key: type_text(tensor) for key, tensor in self.weights.items()}
        return f"Gradients(inputs={inputs}, weights={weights})"


class Pullback:
    """Gives gradients for cotangents of the outputs; it may be called many times.

    It keeps the intermediate values of the run that it belongs to.
    """

    def __init__(
        self, ir: IR, outputs: Tensors, inputs: Sequence[torch.Tensor], weights: dict[str, Any]
    ):
        self._ir = ir
        self._outputs = outputs
        self._inputs = inputs
        self._weights: dict[str, torch.Tensor] = weights

    def __repr__(self) -> str:
        return f"Pullback({self._ir!r}, weights={[*self._weights]})"

    def __call__(self, cotangents: Sequence[torch.Tensor | None]) -> Tangents:
        """The gradient of each input; None for one that can have none, as integers.

        Args:
            cotangents: One for each output, of its type; None stands for zeros.

        Raises:
            InputError: A cotangent does not fit its output.
            ExecutionError: The formula of a gradient fails; its error is the cause.
        """
        return self._pull(cotangents, {}).inputs

    def gradients(self, cotangents: Sequence[torch.Tensor | None]) -> Gradients:
        """Return the gradients of inputs and weights; arguments and errors are those of a call."""
        return self._pull(cotangents, self._weights)

    def _pull(
        self, cotangents: Sequence[torch.Tensor | None], weights: Mapping[str, torch.Tensor]
    ) -> Gradients:
        _require_fitting("cotangent", "output", self._ir.graph_outputs, self._outputs, cotangents)
        pairs = zip(self._outputs, cotangents, strict=True)
        ends = [(out, cotangent) for out, cotangent in pairs if cotangent is not None]
        ends = [(out, cotangent) for out, cotangent in ends if out.requires_grad]
        of_inputs = [tensor for tensor in self._inputs if tensor.requires_grad]
        starts = [*of_inputs, *weights.values()]
        found = iter(_gradients([e for e, _ in ends], starts, [c for _, c in ends]))
        inputs = tuple([next(found) if t.requires_grad else None for t in self._inputs])
        return Gradients(inputs, {key: next(found) for key in weights})


def _gradients(
    ends: list[torch.Tensor], starts: list[torch.Tensor], cotangents: list[torch.Tensor]
) -> list[torch.Tensor]:
    """Gradients; zeros for what no output depends on."""
    if not ends or not starts:
        return [torch.zeros_like(start) for start in starts]
    found: tuple[Any, ...]
    failed = raised_as(lambda error: ExecutionError(f"the gradient cannot be taken: {error}"))
    with failed, torch.inference_mode(False):
        found = torch.autograd.grad(ends, starts, cotangents, retain_graph=True, allow_unused=True)
    pairs = zip(found, starts, strict=True)
    return [torch.zeros_like(start) if grad is None else grad for grad, start in pairs]


class Differentiator:
    """Takes gradients of a graph; each compiled program has one.

    Args:
        plan: The graph's plan.
        payload: The tensor behind each external name.
        device: Where it runs.
    """

    def __init__(self, plan: Plan, payload: Mapping[str, torch.Tensor], device: torch.device):
        self._plan = plan
        self._ir = plan.ir
        self._payload = payload
        self._device = device
        self._source: CompiledModule | None = None
        self._proven: set[tuple[frozenset[str], bool]] = set()

    def vjp(
        self, run: Run, inputs: Sequence[torch.Tensor], weights: Iterable[str]
    ) -> tuple[Tensors, Pullback]:
        """Run the graph as :meth:`torch_ir.executor.graph.ExecGraph.vjp` does."""
        require_values(self._ir, inputs)
        names = self._names_of([weights] if isinstance(weights, str) else weights)
        wanted = frozenset(name for group in names.values() for name in group)
        self._prove(wanted, forward=False)
        with torch.inference_mode(False), torch.enable_grad():
            leaves = {key: _leaf(self._payload[group[0]]) for key, group in names.items()}
            chosen = {name: leaves[key] for key, group in names.items() for name in group}
            given = self._prepared(inputs, _leaf)
            outputs = run(self._module(chosen), given)
        plain = tuple([output.detach() for output in outputs])
        return plain, Pullback(self._ir, outputs, given, leaves)

    def jvp(
        self, run: Run, inputs: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor | None]
    ) -> tuple[Tensors, Tangents]:
        """Run the graph as :meth:`torch_ir.executor.graph.ExecGraph.jvp` does."""
        require_values(self._ir, inputs)
        _require_fitting("tangent", "input", self._ir.graph_inputs, inputs, tangents)
        self._prove(frozenset(), forward=True)
        with torch.inference_mode(False), torch.no_grad(), forward_level():
            given = self._prepared(inputs, _plain)
            for position, (meta, tangent) in enumerate(
                zip(self._ir.graph_inputs, tangents, strict=True)
            ):
                if tangent is not None:
                    given[position] = _dual(meta, given[position], _plain(tangent))
            outputs = run(self.recorded(), given)
            parts = [forward_ad.unpack_dual(output) for output in outputs]
            plain = tuple([part.primal.detach() for part in parts])
            return plain, tuple([_tangent(part.primal, part.tangent) for part in parts])

    def recorded(self) -> Compiled:
        """Return the code that gradients and transforms go through, with the program's weights."""
        return self._module({})

    def require_derivatives(self) -> None:
        """Refuse a graph without the derivatives by its inputs that are taken in this thread.

        Raises:
            CompileError: As :meth:`torch_ir.executor.graph.ExecGraph.vjp` and ``jvp``.
        """
        for forward, is_taken in enumerate(derivatives_under_way()):
            if is_taken:
                with outside_of_traces():
                    self._prove(frozenset(), forward=bool(forward))

    def _prepared(
        self, inputs: Sequence[torch.Tensor], prepare: Callable[[torch.Tensor], torch.Tensor]
    ) -> list[torch.Tensor]:
        """The inputs, cut from what they were computed by; what is no tensor is refused later."""
        return [prepare(x) if isinstance(x, torch.Tensor) else x for x in inputs]  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped

    def _names_of(self, weights: Iterable[str]) -> dict[str, list[str]]:
        """The external names behind each key."""
        keys = names_by_key(external_keys(self._ir))
        written = {mutation.target for mutation in self._ir.mutations}
        found: dict[str, list[str]] = {}
        for wanted in weights:
            names = keys.get(wanted) or keys.get(self._ir.weight_aliases.get(wanted, ""))
            if names is None:
                raise InputError(
                    f"the program has no weight {wanted!r}", remedy=did_you_mean(wanted, keys)
                )
            if not is_inexact(self._payload[names[0]]):
                dtype = dtype_name(self._payload[names[0]].dtype, strict=False)
                raise InputError(f"the weight {wanted!r} can have no gradient: it is {dtype}")
            if written & set(names):
                raise InputError(
                    f"the weight {wanted!r} can have no gradient: the program writes to it"
                )
            found[wanted] = names
        return found

    def _prove(self, weights: frozenset[str], *, forward: bool) -> None:
        """Refuse what has no gradient, once for what is asked for."""
        if (weights, forward) in self._proven:
            return
        wanted = weights.union(self._ir.input_names)
        require_gradients(self._plan, self._payload, wanted, forward=forward)
        self._proven.add((weights, forward))

    def _module(self, chosen: Mapping[str, torch.Tensor]) -> Compiled:
        """The graph's code, in which no value takes another's place, bound to some other weights.

        Other weights are cut from what they were computed by; state is the graph's own.
        """
        if self._source is None:
            written = write_source(self._plan, self._device, recorded=True, reuse=False)
            self._source = compile_source(written, self._ir.model_name)
        plain = {
            name: tensor.detach() if tensor.requires_grad else tensor
            for name, tensor in self._payload.items()
        }
        return self._source.bind({**plain, **chosen})


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a tensor, whatever they were computed by."""
    return tensor.clone() if tensor.is_inference() else tensor.detach()


def _leaf(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a tensor as something to take a gradient of, where it can have one."""
    plain = _plain(tensor)
    return plain.requires_grad_() if is_inexact(tensor) else plain


def _tangent(output: torch.Tensor, tangent: torch.Tensor | None) -> torch.Tensor | None:
    """The tangent of an output: zeros where it depends on no input; None for integers."""
    if tangent is not None:
        return tangent.detach()
    return torch.zeros_like(output) if is_inexact(output) else None


def _dual(meta: TensorMeta, tensor: torch.Tensor, tangent: torch.Tensor) -> torch.Tensor:
    def refused(error: Exception) -> InputError:
        return InputError(f"the input {meta} can have no tangent: {first_line(error)}")

    with raised_as(refused):  # sparse tensors have none, and some dtypes
        return forward_ad.make_dual(tensor, tangent)


def _require_fitting(
    what: str,
    of: str,
    metas: Sequence[TensorMeta],
    tensors: Sequence[torch.Tensor],
    given: Sequence[torch.Tensor | None],
) -> None:
    """Refuse tangents that are not of the types of the tensors that they belong to.

    Raises:
        InputError: The first that does not fit; the message names it.
    """
    if isinstance(given, torch.Tensor) or len(given) != len(metas):
        got = "a tensor" if isinstance(given, torch.Tensor) else str(len(given))
        raise InputError(f"expected {counted(len(metas), what)}, one for each {of}, got {got}")
    for position, (meta, item) in enumerate(zip(metas, given, strict=True)):
        where = f"the {what} of {of} {position} ({meta})"
        if item is None:
            continue
        if not isinstance(item, torch.Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
            raise InputError(f"{where} must be a tensor or None, got {type(item).__name__}")
        if not is_differentiable(meta):
            raise InputError(f"{where} must be None: the {of} can have no gradient")
        tensor = tensors[position] if position < len(tensors) else None
        if isinstance(tensor, torch.Tensor) and not is_alike(tensor, item):
            raise InputError(
                f"{where} does not fit it: expected {_type(tensor)}, got {_type(item)}"
            )


def _type(tensor: torch.Tensor) -> str:
    return f"{type_text(tensor)} on {tensor.device}"
