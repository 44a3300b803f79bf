"""Whole runs compared: each side alone, within the errors that add up along the way."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch_ir.backends.delegating import DelegatingExecutor
from torch_ir.debug.comparing.isolation import Feed, Found, region_faults
from torch_ir.debug.comparing.judgment import PartFault
from torch_ir.debug.comparing.sources import (
    AnySource,
    BackendSource,
    Externals,
    GraphSource,
    ReferenceSource,
    TorchSource,
    part_of,
)
from torch_ir.debug.eager import same_random_numbers
from torch_ir.debug.reference.tolerance_check import Error
from torch_ir.errors import Raised, TorchIRError, attempt, error_text
from torch_ir.executor import IRExecutor
from torch_ir.executor.autograd.differentiable import is_differentiable
from torch_ir.executor.listeners import Table
from torch_ir.ir import IR, TensorMeta
from torch_ir.ir.builder import Names, with_inputs
from torch_ir.ir.queries import nodes_behind
from torch_ir.torch_memory import copied

Tensors = Mapping[str, torch.Tensor]
MAX_BYTES, MAX_NODES = 64 << 20, 400
"""A larger program is compared in isolation alone, as the report says: bounds of a whole run take
memory and time."""


def accumulated(feed: Feed, judged: AnySource, externals: Externals) -> tuple[list[Found], str]:
    """Return the first value of a whole run that is off by more than all errors before it allow.

    Args:
        feed: The program and what it is fed.
        judged: What is judged.
        externals: The weights and constants.

    Returns:
        One finding or none, and why the run was not compared; empty if it was.
    """
    program = feed.program
    size = sum(meta.nbytes or 0 for node in program.nodes for meta in node.outputs)
    if not program.nodes:
        return [], ""
    if len(program.nodes) > MAX_NODES:
        return [], f"a run of more than {MAX_NODES} nodes is not compared as a whole"
    if size > MAX_BYTES:
        return (
            [],
            f"a run with values of more than {MAX_BYTES >> 20} MiB is not compared as a whole",
        )
    made = attempt(_whole_run, program, feed, judged, externals)
    if isinstance(made, Raised):
        last = program.nodes[-1]
        told = Error(part=float("inf"), reason=error_text(made.error))
        value = last.outputs[0].name if last.outputs else ""
        return [Found(tuple(program.nodes), PartFault(value, "error", told))], ""
    shown = [m for n in program.nodes for m in n.outputs if m.name in made and feed.has(m.name)]
    if not shown:
        return [], "nothing shows its values"
    feed.covered |= {node.name for node in nodes_behind(program, [meta.name for meta in shown])}
    feed.program = chosen = _with_choices(program, made, feed.values)
    body = part_of(chosen, chosen.nodes, shown)
    try:
        given = feed.other.call(body, feed.values, feed.symbols)
    except TorchIRError as error:
        return [], f"{feed.other.name} cannot run it: {error.message}"
    known = dict(zip(body.output_names, given, strict=True))
    results = [made[meta.name] for meta in shown]
    faults = region_faults(feed, chosen.nodes, shown, feed.values, known, results)
    if isinstance(faults, str) or not faults:
        return [], faults if isinstance(faults, str) else ""
    order = {meta.name: i for i, meta in enumerate(shown)}
    first = min(faults, key=lambda fault: order[fault.value])
    return [Found((program.producers[first.value],), first)], ""


def _with_choices(program: IR, made: Tensors, values: dict[str, torch.Tensor]) -> IR:
    """The program with what a run chose by rounded numbers as inputs, whose values are noted.

    An index or a condition is a choice: what is made of another one may be anything. The choice
    itself is still compared.
    """
    names, chosen = Names.of(program), dict[str, TensorMeta]()
    for node in program.nodes:
        if any(is_differentiable(meta) for meta in node.inputs):
            for meta in node.outputs:
                if meta.name in made and not is_differentiable(meta):
                    chosen[meta.name] = TensorMeta(names.fresh(meta.name), meta.shape, meta.dtype)
    values |= {chosen[name].name: made[name] for name in chosen}
    nodes = [with_inputs(node, chosen) for node in program.nodes]
    return program.replace(nodes=nodes, graph_inputs=[*program.graph_inputs, *chosen.values()])


def _whole_run(
    program: IR, feed: Feed, judged: AnySource, externals: Externals
) -> dict[str, torch.Tensor]:
    """The values that a run of the whole program shows."""
    weights, constants = externals.weights, externals.constants
    if isinstance(judged, BackendSource):
        graph = DelegatingExecutor(program, weights, judged.backend, constants).graph
    elif isinstance(judged, GraphSource):
        graph = judged.graph or IRExecutor(program, weights, constants).graph
    elif isinstance(judged, TorchSource | ReferenceSource):
        body = part_of(program, program.nodes, [m for n in program.nodes for m in n.outputs])
        made = judged.call(body, feed.values, feed.symbols)
        return dict(zip(body.output_names, made, strict=True))
    else:
        return {}
    table = Table(None, None, torch.clone)
    names = graph.ir.input_names
    inputs = dict(zip(names, copied([feed.values[name] for name in names]), strict=True))
    with same_random_numbers():
        graph.run(list(inputs.values()), {}, table, reuse=False)
    if isinstance(judged, BackendSource):
        written = {mutation.target for mutation in program.mutations}
        left = {name: tensor for name, tensor in inputs.items() if name not in written}
        judged.require_unwritten(feed.values, left)
    graph.reset()
    return table.values
