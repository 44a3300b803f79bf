"""The partition of a program: subgraphs of the nodes that a backend takes, in linear time.

Every node has a level: the number of times that some path to it changes between what is supported
and what is not. Along an edge, levels do not fall, and they rise where support changes. So a path
that leaves a level never returns to it: the supported nodes of one level are a convex subgraph,
and the subgraphs can run one after the other. Between any two of these levels lies a path through
a node that is not supported, so that no two of the subgraphs could be one: their number is the
least there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch_ir.backends.backend_registry import as_backend
from torch_ir.backends.protocol import Supporting, support_of
from torch_ir.errors import counted
from torch_ir.infer.bindings import DataSizes
from torch_ir.ir import IR, OpNode
from torch_ir.ir.functions import written_out
from torch_ir.ir.queries import kept_values, symbol_makers
from torch_ir.passes.requirements import require_functional


@dataclass(frozen=True, slots=True)
class Partition:
    """What of a program runs where.

    Attributes:
        ir: The program.
        backend: The name of the backend.
        subgraphs: The nodes of each subgraph that the backend takes, in program order; the
            subgraphs in an order in which they can run.
        order: All nodes in an order in which those of a subgraph stand side by side.
        reasons: Why each of the other nodes is left to torch, by the node's name.

    Example:
        >>> from torch_ir import parse
        >>> from torch_ir.backends import SUPPORTED, Support
        >>> class Relu:
        ...     name = "relu"
        ...     def supports(self, node, ir):
        ...         is_relu = node.op_type == "aten.relu.default"
        ...         return SUPPORTED if is_relu else Support.refused("it is no relu")
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   %a: f32[2] = aten.relu.default(%x)
        ...   %b: f32[2] = aten.neg.default(%a)
        ...   %c: f32[2] = aten.relu.default(%b)
        ...   return %c
        ... }''')
        >>> partition = Partitioner(Relu())(ir)
        >>> [[node.name for node in nodes] for nodes in partition.subgraphs]
        [['a'], ['c']]
        >>> partition.reasons
        {'b': 'it is no relu'}
    """

    ir: IR
    backend: str
    subgraphs: tuple[tuple[OpNode, ...], ...]
    order: tuple[OpNode, ...]
    reasons: Mapping[str, str]

    def __repr__(self) -> str:
        taken = sum(len(nodes) for nodes in self.subgraphs)
        return (
            f"Partition(backend={self.backend!r}, subgraphs={len(self.subgraphs)}, "
            f"nodes={taken}/{len(self.order)})"
        )


@dataclass(frozen=True, slots=True)
class Partitioner:
    """Finds the subgraphs that a backend takes: convex, and as few as there can be.

    Beside what the backend refuses, these stay outside: branches and loops, what draws random
    numbers, what checks, and what decides the value of a symbol. What only weights decide goes
    where it is used.

    Attributes:
        backend: The backend; any object with a ``name`` and ``supports(node, ir)``. A name or a
            class is made one.
        min_nodes: A subgraph with fewer nodes is left to torch.

    Raises:
        ExecutionError: There is no such backend.
    """

    backend: Supporting
    min_nodes: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.backend, str | type):
            object.__setattr__(self, "backend", as_backend(self.backend))

    def __call__(self, ir: IR) -> Partition:
        """Partition a program; calls are written out, unless one is of a delegate.

        Raises:
            PassError: A node writes to what it takes: its place among the others matters then.
        """
        if not any("backend" in body.metadata for body in ir.functions.values()):
            ir = written_out(ir)
        require_functional(ir, "partitioning")
        reasons = {node.name: reason for node in ir.nodes if (reason := self._reason(ir, node))}
        supported = [node.name not in reasons for node in ir.nodes]
        before = _dependencies(ir)
        levels = _levels(before, supported)
        _move_to_use(ir, before, supported, levels)
        by_level: dict[int, list[OpNode]] = {}
        for node, level, own in zip(ir.nodes, levels, supported, strict=True):
            if own:
                by_level.setdefault(level, []).append(node)
        for nodes in by_level.values():
            if len(nodes) < self.min_nodes:
                few = f"its subgraph has {counted(len(nodes), 'node')}"
                reasons.update((n.name, f"{few}, fewer than {self.min_nodes}") for n in nodes)
        kept = [tuple(by_level[level]) for level in sorted(by_level)]
        order = (
            sorted(range(len(ir.nodes)), key=levels.__getitem__) if kept else range(len(levels))
        )
        return Partition(
            ir,
            self.backend.name,
            tuple([nodes for nodes in kept if len(nodes) >= self.min_nodes]),
            tuple([ir.nodes[position] for position in order]),
            {node.name: reasons[node.name] for node in ir.nodes if node.name in reasons},
        )

    def _reason(self, ir: IR, node: OpNode) -> str:
        """Why a node stays outside, or the empty string."""
        if node.op_type.startswith("higher_order.") or node.functions:
            return "it calls a function of the program"
        if node.binds or not node.outputs:
            return "it gives no tensor" if not node.binds else "it reads a number from a tensor"
        sizes, makers = ir.view("data_sizes", lambda: DataSizes(ir)), symbol_makers(ir)
        if any(makers.get(s) == node.name or sizes.is_counted(node, s) for s in node.symbols):
            return "data decides the size of its result"
        effects = ir.effects(node)
        if effects.draws:
            return "it draws random numbers"
        if effects.checks:
            return "it checks something"
        if ir.schema_of(node.op_type) is None:
            return "nobody recorded the schema of the operator"
        return support_of(self.backend, node, ir).reason


# -- order ----------------------------------------------------------------------------------------


def _dependencies(ir: IR) -> list[list[int]]:
    """The positions of the nodes that each node comes after."""
    makers: dict[str, int] = {}
    sized = symbol_makers(ir)
    places: dict[str, int] = {}
    before: list[list[int]] = []
    last_effect: int | None = None
    for position, node in enumerate(ir.nodes):
        after = [makers[meta.name] for meta in node.inputs if meta.name in makers]
        if ir.symbols:
            makers_of_sizes = [sized.get(symbol) for symbol in node.symbols]
            after += [places[name] for name in makers_of_sizes if name in places]
        places[node.name] = position
        if _is_ordered(ir, node):
            after += [] if last_effect is None else [last_effect]
            last_effect = position
        makers.update((meta.name, position) for meta in node.outputs)
        before.append(after)
    return before


def _is_ordered(ir: IR, node: OpNode) -> bool:
    """Whether a node keeps its place among others of the kind: it draws numbers, or checks."""
    effects = ir.effects(node)
    return not node.outputs or effects.draws or effects.checks


def _levels(before: Sequence[Sequence[int]], supported: Sequence[bool]) -> list[int]:
    """The level of each node: even if it is supported, odd if not."""
    levels: list[int] = []
    for own, after in zip(supported, before, strict=True):
        level = 0 if own else -1
        for position in after:
            level = max(level, levels[position] + (supported[position] != own))
        levels.append(level)
    return levels


def _move_to_use(
    ir: IR, before: Sequence[Sequence[int]], supported: Sequence[bool], levels: list[int]
) -> None:
    """Raise the levels of nodes that depend on weights alone to those of their uses, in place.

    Otherwise the first subgraph would prepare the weights of all others.
    """
    given = set(ir.input_names)
    is_free: list[bool] = []
    for node, after in zip(ir.nodes, before, strict=True):
        takes_input = any(meta.name in given for meta in node.inputs)
        is_free.append(not takes_input and all(is_free[position] for position in after))
    kept = kept_values(ir)
    latest: list[int | None] = [None] * len(levels)
    for position in range(len(levels) - 1, -1, -1):
        own, latest_use = supported[position], latest[position]
        is_kept = any(meta.name in kept for meta in ir.nodes[position].outputs)
        if own and is_free[position] and not is_kept and latest_use is not None:
            levels[position] = latest_use
        for taken in before[position]:
            use = levels[position] - (supported[taken] != own)
            known = latest[taken]
            latest[taken] = use if known is None else min(known, use)
