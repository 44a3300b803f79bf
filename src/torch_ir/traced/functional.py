"""Programs that compute everything first, and write what the function wrote at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from torch_ir.errors import ExecutionError, TraceError
from torch_ir.infer.bindings import Symbols
from torch_ir.infer.fake import value_types
from torch_ir.infer.types import TensorType, contiguous, name_of
from torch_ir.ir import IR, OpNode, Signature, SymExpr, TensorMeta, ValueLeaf
from torch_ir.ir.diagnostics import at
from torch_ir.ir.queries import given_values, graphs
from torch_ir.torch_api import storage_of
from torch_ir.traced.dialects import in_dialect
from torch_ir.traced.program import Program

Run: TypeAlias = Callable[[Sequence[torch.Tensor]], tuple[Sequence[Any], Symbols]]
"""Runs a program on the tensors of a call: its outputs, and the symbols that it found."""

Compute: TypeAlias = Callable[..., Sequence[Any]]
"""Takes the inputs of a functional program, and gives its outputs and then its numbers."""


@dataclass(frozen=True, slots=True)
class Functional:
    """A program that only computes.

    Attributes:
        ir: It takes the tensors of a call, then those that the function closes over, and gives
            those results that it computes, then what is written, then numbers.
        closed: The key of each closed-over tensor, in the order in which it takes them.
        results: For each result the position of its value: among what the program gives if it is
            not negative, else ``-1 - position`` among what it takes.
        written: The position of each input that is written.
        symbols: The symbols whose values it gives.
        requires_grad: Whether each tensor that it gives can have a gradient.
        chosen: The positions, among the function's own results, of those that it computes.
    """

    ir: IR
    closed: tuple[str, ...]
    results: tuple[int, ...]
    written: tuple[int, ...]
    symbols: tuple[str, ...]
    requires_grad: tuple[bool, ...]
    chosen: tuple[int, ...]

    @property
    def draws(self) -> OpNode | None:
        """The first node that draws random numbers, if any does."""
        drawing = (
            node
            for _, graph, node in self.ir.walk()
            if not node.functions and graph.effects(node).draws
        )
        return next(drawing, None)


def functional_of(program: Program, dialect: str) -> Functional:
    """Convert a program to a functional one, in the operators of a dialect.

    Raises:
        PassError: It cannot be said in the dialect.
        ExecutionError: Its meaning depends on how tensors lie in memory, or it draws from a
            generator of its own.
    """
    if program.generators:
        raise ExecutionError(
            "the function draws from a generator of its own, as torch's kernels alone can",
            remedy="Use the executor 'aten'.",
        )
    lowered = in_dialect(program.ir, "aten" if dialect == "export" else dialect)
    _require_no_strides(program.ir, lowered)
    names = program.ir.weight_name_mapping  # also of those that lowering leaves unused
    lowered = lowered.replace(weights=program.ir.weights, weight_name_mapping=names)
    ir, closed = with_inputs(lowered, names)
    taken = ir.input_names
    outputs, results = _outputs(program.ir, ir, taken)
    grad = dict(zip(results, program.requires_grad, strict=True))
    symbols = _symbols(program)
    numbers = [SymExpr(symbol) for symbol in symbols]
    pure = ir.replace(
        graph_outputs=[*outputs, *[mutation.value for mutation in ir.mutations]], mutations=()
    )
    return Functional(
        pure.replace(signature=flat_signature(pure, numbers)) if numbers else pure,
        closed,
        results,
        tuple([taken.index(mutation.target) for mutation in ir.mutations]),
        symbols,
        (
            *[grad[position] for position in range(len(outputs))],
            *[mutation.target in program.written_grad for mutation in ir.mutations],
        ),
        tuple([results.index(position) for position in range(len(outputs))]),
    )


def _outputs(
    exported: IR, ir: IR, taken: Sequence[str]
) -> tuple[tuple[TensorMeta, ...], tuple[int, ...]]:
    """The results that are computed, each once, and the position of each result.

    Which results are inputs, or one another, is as the function has it; in another dialect more
    of them may be.
    """
    outputs: dict[str, TensorMeta] = {}
    results: list[int] = []
    for before, meta in zip(exported.graph_outputs, ir.graph_outputs, strict=True):
        if before.producer_node is None and before.name in taken:
            results.append(-1 - taken.index(before.name))
            continue
        outputs.setdefault(before.name, meta)
        results.append(list(outputs).index(before.name))
    return tuple(outputs.values()), tuple(results)


def with_inputs(ir: IR, names: Mapping[str, str] | Sequence[str]) -> tuple[IR, tuple[str, ...]]:
    """Turn some weights of a program into inputs, after the others; return their keys too."""
    used = {name: key for name, key in ir.weight_name_mapping.items() if name in names}
    more = [given_values(ir)[name] for name in used]
    keys = tuple(used.values())
    changed = ir.replace(
        graph_inputs=(*ir.graph_inputs, *more),
        weights=[meta for meta in ir.weights if meta.name not in keys],
        weight_name_mapping={n: k for n, k in ir.weight_name_mapping.items() if n not in used},
        signature=None,
    )
    return changed, keys


def _symbols(program: Program) -> tuple[str, ...]:
    """The symbols of the numbers that the function returns."""
    found = [leaf.symbols for leaf in program.leaves if isinstance(leaf, SymExpr)]
    return tuple(dict.fromkeys([symbol for symbols in found for symbol in symbols]))


def flat_signature(ir: IR, numbers: Sequence[SymExpr]) -> Signature:
    """Return the signature of a program's tensors alone, and then numbers."""
    return Signature.of(ir.input_names, (*ir.output_names, *map(ValueLeaf, numbers)))


def _require_no_strides(exported: IR, ir: IR) -> None:
    """Refuse a program that reads memory where its tensors may lie in another way here.

    What operators are made of may read memory of tensors that are known to lie in order.
    """
    all_graphs = [(graph, g is exported) for g in (exported, ir) for _, graph in graphs(g)]
    for graph, is_own in all_graphs:
        found = [node for node in graph.nodes if node.op_type in _STRIDED]
        lies = value_types(graph) if found and not is_own else {}
        for node in found:
            taken = node.inputs[0]
            if is_own or lies.get(taken.name) != contiguous(taken):
                raise ExecutionError(
                    f"%{node.name}: {node.op_type} reads memory by strides, and here tensors may "
                    f"lie in another way{at(node.location, ' ({})')}",
                    remedy="Use the executor 'aten'.",
                )


def require_draws_in_order(
    ir: IR, tensors: Sequence[torch.Tensor], closed: Mapping[str, torch.Tensor]
) -> None:
    """Refuse a program in which random numbers are drawn in the order of turned inputs.

    Args:
        ir: The program as the function calls operators.
        tensors: The tensors of a call.
        closed: Those that the function closes over, by key.

    Raises:
        ExecutionError: In a functional program, for which inputs lie in order, others are drawn.
    """
    drawing = [node for node in ir.nodes if node.inputs and ir.effects(node).draws]
    external = {name: closed[key] for name, key in ir.weight_name_mapping.items() if key in closed}
    named = dict(zip(ir.input_names, tensors, strict=False)) | external
    metas = {meta.name: meta for meta in ir.graph_inputs} | {
        name: TensorMeta(name, tuple(tensor.shape), name_of(tensor.dtype))
        for name, tensor in external.items()
    }
    turned = {
        name: TensorType(metas[name].shape, metas[name].dtype, tensor.stride())
        for name, tensor in named.items()
        if name in metas and tensor.layout is torch.strided and not tensor.is_contiguous()
    }
    if not drawing or not turned:
        return
    lies, in_order = value_types(ir, turned), value_types(ir)
    for node in drawing:
        pairs = [(lies.get(meta.name), in_order.get(meta.name)) for meta in node.inputs]
        if any(a != b and not (a and b and a.is_row_major and b.is_row_major) for a, b in pairs):
            raise ExecutionError(
                f"%{node.name}: {node.op_type} draws random numbers in the order of memory, and "
                f"here tensors may lie in another way{at(node.location, ' ({})')}",
                remedy="Use the executor 'aten', or give contiguous tensors.",
            )


_STRIDED = ("aten.as_strided.default", "prims.as_strided.default")


def run_functional(
    name: str, functional: Functional, closed: Mapping[str, torch.Tensor], compute: Compute
) -> Run:
    """Return a runner of a functional program that does the function's write-backs.

    Args:
        name: The executor, for messages.
        functional: The program.
        closed: The closed-over tensors by key.
        compute: Computes it.
    """
    others = [closed[key] for key in functional.closed]
    written, symbols = functional.written, functional.symbols
    count = len(functional.ir.graph_outputs)
    first = count - len(written)

    def run(tensors: Sequence[torch.Tensor]) -> tuple[Sequence[Any], Symbols]:
        inputs = [*tensors, *others]
        if written:
            _require_apart(name, inputs, written)
        made = compute(*inputs)
        for position, value in zip(written, made[first:count], strict=True):
            target = inputs[position]  # torch lets no gradients pass into a leaf
            is_plain = target.is_leaf and target.requires_grad
            with torch.set_grad_enabled(value.requires_grad and not is_plain):
                target.copy_(value)
        numbers = dict(zip(symbols, made[count:], strict=True))
        return [made[i] if i >= 0 else inputs[-1 - i] for i in functional.results], numbers

    return run


def _in_order(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor whose elements stand in memory in row-major order, as they are."""
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor.contiguous()


def with_own_results(functional: Functional, compute: Compute) -> Compute:
    """Wrap ``compute``: inputs lie in order, and results are detached tensors of their own."""
    shared = _shared(functional.ir)

    def call(*inputs: torch.Tensor) -> Sequence[Any]:
        made = [*compute(*map(_in_order, inputs))]
        for position in shared:
            made[position] = made[position].detach().clone()
        return made

    return call


def _shared(ir: IR) -> tuple[int, ...]:
    """The positions of outputs that are inputs, constants or other outputs too."""
    names = ir.output_names
    return tuple(
        [
            position
            for position, meta in enumerate(ir.graph_outputs)
            if meta.producer_node is None or meta.name in names[:position]
        ]
    )


def _require_apart(executor: str, inputs: Sequence[torch.Tensor], written: Sequence[int]) -> None:
    """Refuse a call in which the program writes to memory that another input shows."""
    storages = [storage_of(tensor) for tensor in inputs]
    for position in written:
        if storages.count(storages[position]) > 1:
            raise TraceError(
                f"inputs share memory, and the function writes to it: the executor {executor!r} "
                "computes results first",
                remedy="Use the executor 'aten', or give copies.",
            )
