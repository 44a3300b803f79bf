"""What runs a traced program: torch's kernels, its primitives, the denotation, any backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from torch_ir.backends import Options, known_backends
from torch_ir.backends.registry import find_backend
from torch_ir.errors import ExecutionError, InputError, PassError, TraceError, did_you_mean
from torch_ir.executor import compile_graph
from torch_ir.executor.symbols import Symbols
from torch_ir.ir import IR, Container, Signature, SymExpr, TensorLeaf, TensorMeta, ValueLeaf
from torch_ir.ir.tree import leaves
from torch_ir.passes.decomposition import decomposed
from torch_ir.passes.functionalization import without_writes
from torch_ir.torch_api import storage_of
from torch_ir.traced.capture import Leaf
from torch_ir.traced.prims import to_prims
from torch_ir.traced.program import Program

Run: TypeAlias = Callable[[Sequence[torch.Tensor]], tuple[Sequence[Any], Symbols]]
"""Runs a program on the tensors of a call: its outputs, and the symbols that it found."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What runs a program.

    Attributes:
        run: Runs it.
        executor: The name of the executor.
        refused: Why each executor that was preferred does not run it.
    """

    run: Run
    executor: str
    refused: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "; ".join([f"runs on {self.executor}", *self.refused])


MakeRunner: TypeAlias = Callable[
    [Program, Mapping[str, torch.Tensor], Sequence[torch.Tensor]], Choice
]
"""Makes what runs a program, for its closed-over tensors and the tensors of a first call."""

DIALECTS = ("prims", "core_aten", "aten", "export")


def known_executors() -> tuple[str, ...]:
    """The names of everything that runs a program, the preferred first."""
    return tuple(dict.fromkeys(["aten", "reference", "prims", *known_backends()]))


def executors_of(chosen: Any) -> tuple[str, ...]:
    """The names of the executors that were asked for, in order of preference.

    Raises:
        InputError: There is none of a name; the message lists those that there are.
    """
    names = (
        ("aten",) if chosen is None else (chosen,) if isinstance(chosen, str) else tuple(chosen)
    )
    known = known_executors()
    for name in names:
        if name not in known:
            hint = did_you_mean(str(name), known)
            raise InputError(
                f"there is no executor {name!r:.60}",
                remedy=f"There are {', '.join(known)}.{' ' if hint else ''}{hint}",
            )
    if not names:
        raise InputError("no executor is given", remedy=f"There are {', '.join(known)}.")
    return names


def require_parameters(executors: Sequence[str], parameters: Any) -> None:
    """Refuse parameters that no executor takes.

    Raises:
        InputError: There are some.
    """
    if parameters:
        raise InputError(
            f"the executor {executors[0]!r} takes no parameters, got "
            f"{', '.join(map(str, parameters))}"
        )


def in_dialect(ir: IR, dialect: str) -> IR:
    """A traced program in the operators of a dialect.

    Raises:
        PassError: It has operators that cannot be decomposed.
    """
    if dialect == "export":
        return ir
    functional = without_writes(ir)
    if dialect == "aten":
        return functional
    core = decomposed(functional)
    return core if dialect == "core_aten" else to_prims(core)


def require_dialect(name: Any) -> None:
    """Refuse a name that no dialect of traced programs has.

    Raises:
        InputError: There is none.
    """
    if name not in DIALECTS:
        raise InputError(
            f"there is no dialect {name!r:.60} of traced programs",
            remedy=did_you_mean(str(name), DIALECTS) or f"There are {', '.join(DIALECTS)}.",
        )


def runner(executors: Sequence[str], dialect: str) -> MakeRunner:
    """What makes the first executor that takes a program run it.

    Args:
        executors: Their names, which are known.
        dialect: The dialect that other packages' backends are given.
    """

    def make(
        program: Program, closed: Mapping[str, torch.Tensor], tensors: Sequence[torch.Tensor]
    ) -> Choice:
        refused: list[str] = []
        for name in executors:
            try:
                return Choice(_runner(name, dialect, program, closed, tensors), name, (*refused,))
            except (ExecutionError, PassError, TraceError) as error:
                if name == executors[-1]:
                    raise
                refused.append(f"{name} does not: {error.message}")
        raise InputError("no executor is given")

    return make


def _runner(
    name: str,
    dialect: str,
    program: Program,
    closed: Mapping[str, torch.Tensor],
    tensors: Sequence[torch.Tensor],
) -> Run:
    if name == "aten":
        return run_aten(program, closed, tensors)
    wanted = {"reference": "core_aten", "prims": "prims"}.get(name, dialect)
    return _run_functional(name, wanted, program, closed)


# -- torch's kernels ------------------------------------------------------------------------------


def run_aten(
    program: Program, closed: Mapping[str, torch.Tensor], tensors: Sequence[torch.Tensor]
) -> Run:
    """Calls the operators as the function did, in its order, writes and views included."""
    ir, live = with_inputs(program.ir, [m.target for m in program.ir.mutations])
    others = [closed[key] for key in live]
    payload = {key: tensor for key, tensor in closed.items() if key not in live}
    device = next((tensor.device for tensor in (*tensors, *closed.values())), None)
    # autograd has for each operator what it had when the function itself was called
    grad: bool | tuple[str, ...] = () if program.needs_grad else False
    run = compile_graph(ir, payload, device=device, grad=grad).run
    if others:
        return lambda tensors: run([*tensors, *others], {})
    return lambda tensors: run(tensors, {})


def with_inputs(ir: IR, names: Iterable[str]) -> tuple[IR, tuple[str, ...]]:
    """The program in which some weights are inputs, after the others, and the keys of these.

    Its signature is flat: the inputs alone, and the leaves of the results.
    """
    wanted = set(names)
    used = {name: key for name, key in ir.weight_name_mapping.items() if name in wanted}
    metas = {meta.name: meta for meta in ir.weights}
    more = [TensorMeta(n, metas[k].shape, metas[k].dtype) for n, k in used.items()]
    inputs = (*ir.graph_inputs, *more)
    keys = tuple(used.values())
    changed = ir.replace(
        graph_inputs=inputs,
        weights=[meta for meta in ir.weights if meta.name not in keys],
        weight_name_mapping={n: k for n, k in ir.weight_name_mapping.items() if n not in used},
    )
    return changed.replace(signature=_flat_signature(changed)), keys


def _flat_signature(ir: IR) -> Signature | None:
    """None, but where numbers are returned: they are found by the signature."""
    numbers = [
        leaf
        for leaf in (leaves(ir.signature.outputs) if ir.signature is not None else ())
        if isinstance(leaf, ValueLeaf) and isinstance(leaf.value, SymExpr)
    ]
    if not numbers:
        return None
    given = tuple([TensorLeaf(meta.name) for meta in ir.graph_inputs])
    made = tuple([TensorLeaf(meta.name) for meta in ir.graph_outputs])
    return Signature(
        Container("tuple", (Container("tuple", given), Container("dict"))),
        Container("tuple", (*made, *numbers)),
    )


# -- functional programs --------------------------------------------------------------------------


def _run_functional(
    executor: str,
    dialect: str,
    program: Program,
    closed: Mapping[str, torch.Tensor],
) -> Run:
    """Computes everything first, and then writes what the function wrote."""
    if any(not isinstance(leaf, Leaf) and leaf is not None for leaf in program.leaves):
        raise ExecutionError(
            f"the executor {executor!r} returns tensors alone, and the function returns a number "
            "that it reads from one",
            remedy="Use the executor 'aten'.",
        )
    ir, keys = with_inputs(in_dialect(program.ir, dialect), program.ir.weight_name_mapping)
    others = [closed[key] for key in keys]
    targets = [mutation.target for mutation in ir.mutations]
    positions = [[m.name for m in ir.graph_inputs].index(name) for name in targets]
    same = [
        [m.name for m in ir.graph_inputs].index(meta.name)
        if meta.producer_node is None and meta.name not in ir.external_values()
        else None
        for meta in ir.graph_outputs
    ]
    count = len(ir.graph_outputs)
    pure = ir.replace(
        graph_outputs=(*ir.graph_outputs, *(m.value for m in ir.mutations)), mutations=()
    )
    make = find_backend("aten" if executor == "prims" else executor)
    call = make(pure, {}, Options(grad=program.needs_grad))

    def run(tensors: Sequence[torch.Tensor]) -> tuple[Sequence[Any], Symbols]:
        inputs = [*tensors, *others]
        if positions:
            _require_apart(executor, inputs, positions)
        made = call(*inputs)
        for position, value in zip(positions, made[count:], strict=True):
            with torch.set_grad_enabled(value.requires_grad):
                inputs[position].copy_(value)
        pairs = zip(same, made, strict=False)
        return [value if i is None else inputs[i] for i, value in pairs], {}

    return run


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
