"""The denotation as a backend: what operators mean, on NumPy arrays, slowly."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import torch

from torch_ir.backends.backend_registry import Options
from torch_ir.backends.delegate import sizes_of
from torch_ir.backends.protocol import SUPPORTED, DelegateBackend, Delegated, Support
from torch_ir.errors import ExecutionError, InputError
from torch_ir.executor.inputs import (
    flatten_arguments,
    require_apart,
    require_unwatched,
    results_of,
)
from torch_ir.executor.uncopied import Uncopied
from torch_ir.infer.storage import places, stride_readers
from torch_ir.ir import IR, Constant, OpNode
from torch_ir.ir.queries import shown_writes, written_values
from torch_ir.ops.layouts import KEEPING_STRIDES
from torch_ir.passes.decomposition import decompose
from torch_ir.passes.functionalization.strided import from_wholes
from torch_ir.semantics import has_denotation
from torch_ir.semantics.denote import Evaluation, denote, require_denotations
from torch_ir.semantics.dtypes import Array
from torch_ir.torch_memory import is_whole
from torch_ir.torch_modes import untraced
from torch_ir.weights import check_weights


class ReferenceExecutor(Uncopied):
    """Runs an IR by the meaning of its operators, without torch's kernels.

    An operator outside core ATen means what it decomposes to. Takes and gives torch tensors on the
    CPU. Buffers that the program writes are kept from call
    to call, inputs that it writes are written, and random numbers are those of seed 0.

    Args:
        ir: The program.
        weights: Tensors by ``state_dict`` key; never changed.

    Raises:
        ExecutionError: An operator has no denotation, and is not made of others.
        PassError: The program writes in a way that cannot be followed.
        WeightLoadError: The weights are not those that it needs.

    Attributes:
        ir: The program that is evaluated.
    """

    def __init__(self, ir: IR, weights: Mapping[str, torch.Tensor]):
        self._payload: dict[str, Any] = dict(check_weights(ir, weights, strict=False))
        is_denoted = all(has_denotation(node.op_type) for node in ir.nodes)
        self.ir, _ = from_wholes(ir if is_denoted and not shown_writes(ir) else decompose(ir))
        require_denotations(self.ir)
        self._read_by_strides = _read_by_strides(self.ir, self._payload)
        self._turn = threading.Lock()

    def __repr__(self) -> str:
        return f"ReferenceExecutor({self.ir!r})"

    @property
    def buffers(self) -> dict[str, torch.Tensor]:
        """Copies of the buffers that the program writes, by key, as they are now."""
        external = self.ir.external_values()
        keys = [external[m.target][0] for m in self.ir.mutations if m.target in external]
        return {key: self._payload[key].clone() for key in keys if key in self._payload}

    @untraced
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run with the model's own arguments; the result has the model's own structure.

        Raises:
            InputError: The arguments do not fit.
            ExecutionError: A node cannot be evaluated, and the message names it; or the call is
                transformed or traced.
        """
        require_unwatched("the backend 'reference', which computes in NumPy,")
        inputs, given = flatten_arguments(self.ir, args, kwargs)
        names, written = self.ir.input_names, written_values(self.ir)
        require_apart(names, inputs, [i for i, name in enumerate(names) if name in written])
        for name, tensor in zip(names, inputs, strict=True):
            if name in self._read_by_strides and not is_whole(tensor):
                raise InputError(
                    f"input %{name} is a view, and the program reads its memory by strides",
                    remedy=f"Give it a copy in memory of its own: {name}.contiguous().clone().",
                )
        with self._turn:
            program = Evaluation(self.ir, self._payload, inputs, symbols=given)
            for _ in program.run(keep=False):
                pass
            outputs = tuple(map(_tensor, program.results()))
            self._write(program, inputs)
        return results_of(self.ir, outputs, program.symbols)

    def _write(self, program: Evaluation, inputs: tuple[torch.Tensor, ...]) -> None:
        """Keep what the program leaves in buffers and inputs."""
        external = self.ir.external_values()
        given = dict(zip(self.ir.input_names, inputs, strict=True))
        for mutation in self.ir.mutations:
            value = _tensor(program.tensor(mutation.value.name))
            if mutation.target in external:
                self._payload[external[mutation.target][0]] = value
            elif mutation.target in given:
                with torch.no_grad():
                    given[mutation.target].copy_(value)


def _read_by_strides(ir: IR, weights: Mapping[str, torch.Tensor]) -> frozenset[str]:
    """The values that are given whose memory nodes read by strides.

    Raises:
        ExecutionError: A node reads memory that is no value in row-major order, which arrays
            of the denotation do not share.
    """
    if not (readers := stride_readers(ir)):
        return frozenset()
    known, read = places(ir), set[str]()
    held = {name: weights.get(key) for name, (key, _) in ir.external_values().items()}
    turned = {
        name for name, tensor in held.items() if not (tensor is None or tensor.is_contiguous())
    }
    for node in readers:
        place = known.get(node.inputs[0].name)
        is_ordered = place is not None and place.is_row_major and place.whole.name not in turned
        if node.op_type in KEEPING_STRIDES or place is None or not is_ordered:
            raise ExecutionError(
                f"{node.op_type} reads memory by strides, and the denotation has values alone",
                node=node.name,
                remedy="Give it what lies in row-major order (x.contiguous()), or use the "
                "backend 'aten'.",
            )
        read.add(place.whole.name)
    return frozenset(read)


def compile_reference(
    ir: IR, weights: Mapping[str, torch.Tensor] | None, options: Options
) -> ReferenceExecutor:
    """Return an executor that runs the program by its denotation.

    Raises:
        ExecutionError: Gradients are asked for, which the denotation has none of, or as
            :class:`ReferenceExecutor`.
    """
    if options.grad:
        raise ExecutionError(
            "the backend 'reference' has no gradients", remedy="Use the backend 'aten'."
        )
    return ReferenceExecutor(ir, weights or {})


class ReferenceParts(DelegateBackend):
    """The denotation for those nodes of a program that have one."""

    name = "reference"

    def supports(self, node: OpNode, ir: IR) -> Support:
        """Return whether the operator has a denotation."""
        if not has_denotation(node.op_type):
            return Support.refused("it has no denotation")
        if node in stride_readers(ir):
            return Support.refused("it reads memory by strides, and the denotation has values")
        return SUPPORTED

    def compile(self, ir: IR, payload: Mapping[str, torch.Tensor]) -> Delegated:
        """Return a function that evaluates the subgraph on each call."""
        given = [name for name in ir.input_names if name not in payload]
        sizes = [str(size) for size in sizes_of(ir)]

        def run(*values: Any) -> list[torch.Tensor]:
            named = {**payload, **dict(zip(given, values, strict=False))}
            inputs = [named[meta.name] for meta in ir.graph_inputs]
            symbols = dict(zip(sizes, values[len(given) :], strict=True))
            return list(map(_tensor, denote(ir, {}, inputs, symbols=symbols)))

        return run


def _tensor(array: Array) -> torch.Tensor:
    return Constant.from_numpy(array).torch()
