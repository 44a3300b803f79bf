"""A program as a chain of stages, each of which takes what the one before gives."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

from torch_ir.errors import PassError, counted
from torch_ir.infer.bindings import with_checked_sizes
from torch_ir.ir import IR, Mutation, OpNode, Signature
from torch_ir.ir.analysis.costs import known_bytes
from torch_ir.ir.functions import layer_path
from torch_ir.ir.node import module_of
from torch_ir.ir.queries import every_value, last_uses
from torch_ir.passes.cutting.parts import CutPart, program_of


def cut_stages(
    ir: IR, stages: int | Sequence[int], cost: Callable[[OpNode], float] | None = None
) -> tuple[IR, ...]:
    """Cut a program into a chain of stages; see :func:`torch_ir.cut`.

    Raises:
        PassError: A cut is impossible: two nodes write or see one memory, a later stage needs a
            size that no value shows, or there are not as many places.
    """
    blocked = blocked_cuts(ir)
    if isinstance(stages, int):
        starts = _balanced(ir, stages, cost or _bytes_of(ir), blocked)
    else:
        starts = [*stages]
        ends = [0, *starts, len(ir.nodes)]
        if any(first >= second for first, second in pairwise(ends)):
            raise PassError(
                f"stages of {counted(len(ir.nodes), 'node')} cannot begin at {starts}",
                remedy="Give positions of nodes from 1, in increasing order.",
            )
        for start in starts:
            if start in blocked:
                first, second = blocked[start]
                raise PassError(
                    f"nodes {first!r} and {second!r} use memory that the program writes, and "
                    f"stand on two sides of a cut at node {start}",
                    remedy="Cut elsewhere, or apply torch_ir.functionalize first.",
                )
    return _chain(ir, [0, *starts, len(ir.nodes)])


def blocked_cuts(ir: IR) -> dict[int, tuple[str, str]]:
    """Return the positions where no cut may be, each with two nodes that must stay together."""
    written = ir.aliases.written_roots.union(mutation.target for mutation in ir.mutations)
    touched: dict[str, list[int]] = {}
    for position, node in enumerate(ir.nodes) if written else ():
        for root in {r for m in (*node.inputs, *node.outputs) for r in ir.aliases.roots(m.name)}:
            if root in written:
                touched.setdefault(root, []).append(position)
    makers = {meta.name: i for i, node in enumerate(ir.nodes) for meta in node.outputs}
    for mutation in ir.mutations:
        if mutation.value.name in makers:
            touched.setdefault(mutation.target, []).append(makers[mutation.value.name])
    blocked: dict[int, tuple[str, str]] = {}
    for positions in touched.values():
        for first, second in pairwise(sorted(positions)):
            for start in range(first + 1, second + 1):
                blocked.setdefault(start, (ir.nodes[first].name, ir.nodes[second].name))
    return blocked


def _bytes_of(ir: IR) -> Callable[[OpNode], float]:
    """The bytes of a node's results, and of the weights that it is the first to use."""
    first: dict[str, str] = {}
    external = ir.external_values()
    for node in ir.nodes:
        for meta in node.inputs:
            if meta.name in external:
                first.setdefault(meta.name, node.name)

    def cost(node: OpNode) -> float:
        weights = {m.name: m for m in node.inputs if first.get(m.name) == node.name}
        return float(sum(map(known_bytes, (*node.outputs, *weights.values()))))

    return cost


def _balanced(
    ir: IR, count: int, cost: Callable[[OpNode], float], blocked: dict[int, tuple[str, str]]
) -> list[int]:
    """Where stages begin so that each costs about as much; between layers where that is close."""
    free = [start for start in range(1, len(ir.nodes)) if start not in blocked]
    if count < 1 or count - 1 > len(free):
        raise PassError(
            f"the program cannot be cut into {count} stages: {counted(len(free) + 1, 'stage')} "
            "at most"
        )
    before = [0.0, *accumulate(float(cost(node)) for node in ir.nodes)]
    part = before[-1] / count
    layers = [start for start in free if is_border(ir, start)]
    starts: list[int] = []
    for number in range(1, count):
        wanted = before[-1] * number / count
        last = starts[-1] if starts else 0
        left = count - 1 - number  # so many cuts have to follow
        possible = free[bisect_left(free, last + 1) : len(free) - left]
        close = [
            s for s in layers if last < s <= possible[-1] and abs(before[s] - wanted) < part / 2
        ]
        starts.append(min(close or possible, key=lambda s: (abs(before[s] - wanted), s)))
    return starts


def is_border(ir: IR, start: int) -> bool:
    """Return whether a layer ends or a function is called between a node and the one before."""
    nodes = ir.nodes[start - 1], ir.nodes[start]
    paths = [*map(module_of, nodes)]
    is_call = any(node.functions for node in nodes)
    return is_call or layer_path(paths[0]) != layer_path(paths[1])


def _chain(ir: IR, ends: Sequence[int]) -> tuple[IR, ...]:
    metas = every_value(ir)
    last_use = last_uses(ir.nodes, ir.output_names)
    own = set(ir.external_values())
    taken = [*ir.input_names]
    stages: list[IR] = []
    for number, (start, end) in enumerate(pairwise(ends)):
        nodes = tuple(ir.nodes[start:end])
        is_last = end == len(ir.nodes)
        held = [*taken, *(meta.name for node in nodes for meta in node.outputs)]
        given = [name for name in held if last_use.get(name, -1) >= end and name not in own]
        returned = ir.output_names if is_last else tuple(given)
        part = CutPart(nodes, tuple(taken), tuple([metas[name] for name in returned]))
        program = with_checked_sizes(program_of(ir, part))
        stages.append(_stage(ir, program, number, is_last=is_last))
        taken = given
    return tuple(stages)


def _stage(ir: IR, stage: IR, number: int, *, is_last: bool) -> IR:
    """The stage with its own inputs in full, its mutations, and the trees of the program."""
    if stage.signature is not None and number > 0:
        raise PassError(
            f"stage {number} needs a size that none of the values it is given shows",
            remedy="Cut elsewhere.",
        )
    made = {meta.name for node in stage.nodes for meta in node.outputs}
    touched = {meta.name for node in stage.nodes for meta in node.inputs}
    mutations: list[Mutation] = []
    for mutation in ir.mutations:
        is_own = mutation.value.name in (
            touched if mutation.value.name == mutation.target else made
        )
        is_nowhere = (
            mutation.value.name not in ir.producers and mutation.value.name not in ir.users
        )
        if is_own or (is_nowhere and number == 0):
            mutations.append(mutation)
    plain = Signature.of(stage.input_names, stage.output_names)
    signature = None
    if ir.signature is not None and (number == 0 or is_last):
        signature = Signature(
            ir.signature.inputs if number == 0 else plain.inputs,
            ir.signature.outputs if is_last else plain.outputs,
        )
    changes: dict[str, object] = {"mutations": mutations, "signature": signature}
    if number == 0:
        changes["graph_inputs"] = ir.graph_inputs
    external = ir.external_values()
    present = stage.external_values()
    missing = [m.target for m in mutations if m.target in external and m.target not in present]
    keys = {external[name][0]: name for name in missing}
    if keys:
        changes["weights"] = [*stage.weights, *(w for w in ir.weights if w.name in keys)]
        changes["weight_name_mapping"] = {
            **stage.weight_name_mapping,
            **{n: k for n, k in ir.weight_name_mapping.items() if n in missing},
        }
        changes["constants"] = {
            **stage.constants,
            **{k: v for k, v in ir.constants.items() if k in keys},
        }
    return stage.replace(**changes)
