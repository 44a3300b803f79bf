"""The module tree of a graph: calls of modules, equal layers once, and long lists in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, TypeAlias

from torch_ir.ir import IR, OpNode
from torch_ir.steps import uncollected
from torch_ir.viz.fold import module_path

DEEPEST_LEVEL = 16
"""Modules below this level are shown together, so that no input can exhaust the stack."""
LONGEST_LIST = 160
"""A group of more members is divided into parts, so that each can be laid out at once."""


@dataclass(eq=False, slots=True)
class ModuleGroup:
    """Nodes that belong together.

    Attributes:
        kind: ``"module"`` for the calls of one module, ``"repeat"`` for equal modules in a row,
            ``"part"`` for some of too many members.
        path: Path of the module; of a repeat, that of the module around it.
        label: What a reader sees: the path below the group around it, or ``0 … 79``.
        module_type: Qualified class name of the module; empty if unknown.
        members: Groups, and the positions of nodes in program order.
        count: How many nodes there are inside, all levels together.
    """

    kind: Literal["module", "repeat", "part"]
    path: str
    label: str
    module_type: str = ""
    members: list[Member] = field(default_factory=list["Member"])
    count: int = 0

    def groups(self) -> list[ModuleGroup]:
        """Return the groups that are members."""
        return [member for member in self.members if isinstance(member, ModuleGroup)]

    def times(self) -> int:
        """Return how many groups a repeat has, those in parts counted too."""
        return sum(inner.times() if inner.kind == "part" else 1 for inner in self.groups())

    def nodes(self) -> Iterator[int]:
        """Yield the positions of all nodes inside."""
        for member in self.members:
            if isinstance(member, ModuleGroup):
                yield from member.nodes()
            else:
                yield member


Member: TypeAlias = ModuleGroup | int


@uncollected()
def hierarchy(ir: IR) -> ModuleGroup:
    """ModuleGroup the nodes of one graph by calls of modules; functions are graphs of their own.

    Nodes of one module that stand together are one call of it. Two calls become one where nothing
    between them needs the first and is needed by the second, so groups never depend on each other
    in a circle. Neighbors with equal calls of operators, numbered as layers are, become a repeat.

    Example:
        >>> from torch_ir.ir import Location, TensorMeta
        >>> x = TensorMeta("x", (2,), "float32")
        >>> def relu(name, taken, module):
        ...     made = TensorMeta(name, (2,), "float32", name)
        ...     return OpNode(name, "aten.relu.default", [taken], [made],
        ...                   location=Location(module=module))
        >>> a = relu("a", x, "layers.0")
        >>> b = relu("b", a.outputs[0], "layers.1")
        >>> [group.label for group in hierarchy(IR([a, b], [x], b.outputs, [])).groups()]
        ['layers 0 … 1']
    """
    builder = _HierarchyBuilder(ir)
    root = builder.calls(list(range(len(ir.nodes))), 0, "")
    _shape(root, builder)
    return root


Run: TypeAlias = tuple[str, list[int]]
"""The module's own name, empty for the module above, and the positions of its nodes."""


class _HierarchyBuilder:
    """The graph, and what is asked again and again of it."""

    def __init__(self, ir: IR):
        self.nodes: Sequence[OpNode] = ir.nodes
        self.paths = [module_path(node)[:DEEPEST_LEVEL] for node in ir.nodes]
        self.made = {meta.name: at for at, node in enumerate(ir.nodes) for meta in node.outputs}
        self.types: dict[str, str] = {}
        for node in ir.nodes:
            if node.location is not None and node.location.module_type:
                self.types.setdefault(node.location.module, node.location.module_type)

    def calls(self, nodes: list[int], level: int, path: str) -> ModuleGroup:
        """Return the group of these nodes, with the calls below this level in it."""
        group = ModuleGroup("module", path, path, self.types.get(path, ""), count=len(nodes))
        runs: list[Run] = []
        for part, run in groupby(nodes, lambda at: self.paths[at][level : level + 1]):
            if part:
                runs.append((part[0], list(run)))
            else:
                runs += [("", [at]) for at in run]
        for part, run in self._joined(runs):
            if part:
                below = f"{path}.{part}" if path else part
                inner = self.calls(run, level + 1, below)
                inner.label = part
                group.members.append(inner)
            else:
                group.members += run
        return group

    def _joined(self, runs: list[Run]) -> list[Run]:
        """Join runs of one module where no other run between them has to come between them."""
        names = [part for part, _ in runs if part]
        if len(names) == len(set(names)):
            return runs
        joined: list[Run] = []
        last: dict[str, int] = {}
        for part, run in runs:
            at = last.get(part, -1) if part else -1
            split = None if at < 0 else self._split(joined, at, run)
            if split is None:
                joined.append((part, run))
            else:
                before, after = split
                joined[at:] = [*before, (part, joined[at][1] + run), *after]
            for place in range(max(at, 0) if split else len(joined) - 1, len(joined)):
                last[joined[place][0]] = place
        return joined

    def _split(
        self, runs: list[Run], at: int, run: list[int]
    ) -> tuple[list[Run], list[Run]] | None:
        """What comes before and after the run at this place if ``run`` joins it; None if none."""
        if len(runs) - at > LONGEST_LIST:
            return None  # too far apart to look at all between them
        tainted, before, after = set(runs[at][1]), list[Run](), list[Run]()
        for between in runs[at + 1 :]:
            if self._makers(between[1]) & tainted:
                tainted.update(between[1])
                after.append(between)
            else:
                before.append(between)
        tainted -= set(runs[at][1])
        return None if self._makers(run) & tainted else (before, after)

    def _makers(self, nodes: list[int]) -> set[int]:
        """Return the nodes whose results these nodes take."""
        names = [meta.name for node in nodes for meta in self.nodes[node].inputs]
        return {self.made[name] for name in names if name in self.made}

    def digest(self, group: ModuleGroup) -> int:
        """Return equal numbers for groups whose nodes make equal calls of each other."""
        inside = {node: place for place, node in enumerate(group.nodes())}
        facts: list[object] = []
        for number, place in inside.items():
            node = self.nodes[number]
            made = [inside.get(self.made.get(meta.name, -1), -1) for meta in node.inputs]
            facts.append(
                (
                    node.op_type,
                    repr(node.attrs),
                    tuple([place - at if at >= 0 else 0 for at in made]),
                    tuple([(meta.dtype, meta.shape) for meta in (*node.inputs, *node.outputs)]),
                    self.paths[number][group.path.count(".") + 1 :],
                )
            )
        return hash(tuple(facts))


def _shape(group: ModuleGroup, builder: _HierarchyBuilder) -> None:
    """Make repeats and parts, and put what is alone in a module in its place."""
    for inner in group.groups():
        _shape(inner, builder)
    group.members = list(_with_repeats(group, builder))
    for long in (*group.groups(), group):
        _divide(long)
    for at, inner in enumerate(group.members):
        if isinstance(inner, ModuleGroup) and inner.kind == "module" and len(inner.members) == 1:
            only = group.members[at] = inner.members[0]
            if isinstance(only, ModuleGroup):
                joint = "." if only.kind == "module" else " "
                only.label = f"{inner.label}{joint}{only.label}"


def _with_repeats(group: ModuleGroup, builder: _HierarchyBuilder) -> Iterator[Member]:
    def key(member: Member) -> object:
        if isinstance(member, ModuleGroup) and member.path.rpartition(".")[2].isdecimal():
            return (member.module_type, builder.digest(member))
        return None

    keys = [key(member) for member in group.members]
    for same, run in groupby(zip(group.members, keys, strict=True), lambda pair: pair[1]):
        members = [member for member, _ in run]
        if same is None or len(members) == 1:
            yield from members
            continue
        layers = [member for member in members if isinstance(member, ModuleGroup)]
        label = f"{layers[0].label} … {layers[-1].label}"
        count = sum(layer.count for layer in layers)
        yield ModuleGroup("repeat", group.path, label, layers[0].module_type, members, count)


def _divide(group: ModuleGroup) -> None:
    """Put the members of a long list in parts, and those in parts again."""
    while len(group.members) > LONGEST_LIST:
        size = min(LONGEST_LIST, max(2, int(len(group.members) ** 0.5)) * 4)
        group.members = [
            _part(group, group.members[start : start + size])
            for start in range(0, len(group.members), size)
        ]


def _part(group: ModuleGroup, members: list[Member]) -> ModuleGroup:
    count = sum(member.count if isinstance(member, ModuleGroup) else 1 for member in members)
    return ModuleGroup("part", group.path, "", "", members, count)
