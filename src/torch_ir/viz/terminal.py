"""A program to walk in a terminal, with Textual: branches are made when they are opened."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import chain, islice
from typing import Any, NamedTuple

from torch_ir.errors import counted, printable
from torch_ir.ir import IR
from torch_ir.ir.node import module_of
from torch_ir.ir.queries import graphs
from torch_ir.ir.text.printer import NameScope, located_node_text, scope_of
from torch_ir.lazy import optional_module
from torch_ir.viz.fold import count_operators, short_operator
from torch_ir.viz.hierarchy import Member, ModuleGroup, hierarchy

MOST_LINKS = 12


class Branch(NamedTuple):
    """What a row of the tree stands for: a group or the position of a node, in a graph."""

    path: str
    member: Member


class ProgramTree:
    """The tree of a program: modules and functions, nodes, and what is known of each."""

    def __init__(self, ir: IR):
        self.bodies = dict(graphs(ir))
        self._roots: dict[str, ModuleGroup] = {}
        self._scopes: dict[str, NameScope] = {}

    def root(self, path: str) -> ModuleGroup:
        """Return the modules of the program or of a function, grouped when first asked for."""
        if path not in self._roots:
            self._roots[path] = hierarchy(self.bodies[path])
        return self._roots[path]

    def roots(self) -> Iterator[Branch]:
        """Yield the members of the program itself, then a branch for each function."""
        for member in self.root("").members:
            yield Branch("", member)
        for path in islice(self.bodies, 1, None):
            yield Branch(path, self.root(path))

    def inside(self, branch: Branch) -> list[Branch]:
        """Return the members of a group; none of a node."""
        found = branch.member.members if isinstance(branch.member, ModuleGroup) else ()
        return [Branch(branch.path, member) for member in found]

    def label(self, branch: Branch) -> str:
        """Return the row of a branch."""
        path, member = branch
        if isinstance(member, ModuleGroup):
            ends = (self._end(branch, 0), self._end(branch, -1)) if member.kind == "part" else ()
            name = " … ".join(ends) or member.label or f"&{path[:-1]}"
            times = f" x {member.times():,}" if member.kind == "repeat" else ""
            return printable(f"{name}{times}  {member.module_type.rpartition('.')[2]}").rstrip()
        node = self.bodies[path].nodes[member]
        return printable(f"{short_operator(node.op_type)}  %{node.name}")

    def _end(self, branch: Branch, at: int) -> str:
        """Return the name of the first or the last member of a part."""
        path, member = branch
        while isinstance(member, ModuleGroup) and member.kind == "part":
            member = member.members[at]
        if isinstance(member, ModuleGroup):
            return member.label.split(" … ")[at]
        return f"%{self.bodies[path].nodes[member].name}"

    def details(self, branch: Branch) -> str:
        """Return all that is known of a node, or how much there is in a group."""
        path, member = branch
        if isinstance(member, ModuleGroup):
            return self._group_details(branch, member)
        graph = self.bodies[path]
        node = graph.nodes[member]
        if path not in self._scopes:
            self._scopes[path] = scope_of(graph)
        lines = [located_node_text(node, self._scopes[path].reference), ""]
        for meta in node.inputs:
            maker = graph.producers.get(meta.name)
            lines.append(f"takes %{meta.name}" + (f" of {maker.op_type}" if maker else ""))
        users = [u for meta in node.outputs for u in graph.users.get(meta.name, ())]
        lines += [f"used by %{user.name}: {user.op_type}" for user in users[:MOST_LINKS]]
        lines += [f"and {len(users) - MOST_LINKS} more"] if len(users) > MOST_LINKS else []
        lines += [f"calls &{path}{name}" for name in node.functions]
        return "\n".join(map(printable, lines))

    def _group_details(self, branch: Branch, group: ModuleGroup) -> str:
        nodes = self.bodies[branch.path].nodes
        operators = count_operators([nodes[at] for at in group.nodes()])
        lines = [self.label(branch), "", counted(group.count, "node")]
        lines += [f"module {printable(group.path)}"] if group.path else []
        lines += ["", *(f"{count:>6,}  {printable(name)}" for name, count in operators)]
        return "\n".join(lines)

    def way(self, path: str, position: int) -> list[Branch]:
        """Return the branches from the top of the tree to a node."""
        found = [Branch(path, self.root(path))] if path else []
        group = self.root(path)
        while True:
            inner = next(
                (
                    member
                    for member in group.members
                    if member == position
                    or (isinstance(member, ModuleGroup) and position in set(member.nodes()))
                ),
                position,
            )
            found.append(Branch(path, inner))
            if not isinstance(inner, ModuleGroup):
                return found
            group = inner

    def find(self, words: str, after: Branch | None = None) -> Branch | None:
        """Return the next node, in program order and around, that has all words in its line."""
        wanted = words.lower().split()
        start = 0
        if after is not None and isinstance(after.member, int):
            start = next(at for at, (place, _) in enumerate(self._lines) if place == after) + 1
        found = (
            place
            for place, line in chain(self._lines[start:], self._lines[:start])
            if all(word in line for word in wanted)
        )
        return next(found, None)

    @cached_property
    def _lines(self) -> list[tuple[Branch, str]]:
        """Every node and the text in which words are looked for."""
        return [
            (
                Branch(path, at),
                f"{path}{node.name} {node.op_type} {module_of(node)}".lower(),
            )
            for path, body in self.bodies.items()
            for at, node in enumerate(body.nodes)
        ]


def browser(ir: IR) -> Any:
    """Return the Textual app that walks a program; its ``run`` takes the terminal.

    Raises:
        OptionalDependencyError: Textual is not installed.
    """
    return optional_module("torch_ir.viz.browsing", "torch-ir browse", "browse").Browser(ir)
