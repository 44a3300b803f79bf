"""The outline of a program as text that fits a screen: modules, equal layers once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from torch_ir.errors import counted, printable
from torch_ir.ir import IR, OpNode
from torch_ir.ir.node import module_of
from torch_ir.ir.queries import graphs
from torch_ir.tables import bytes_text, number_text, shortened, table
from torch_ir.viz.fold import count_operators, short_operator
from torch_ir.viz.hierarchy import ModuleGroup, hierarchy

DEEPEST = 12
NAMED_OPERATORS = 3


@dataclass(frozen=True, slots=True)
class _Row:
    depth: int
    label: str
    kind: str
    nodes: int

    def cells(self, width: int) -> tuple[str, str, str]:
        label = printable("  " * self.depth + self.label)
        return (
            shortened(label, width),
            shortened(printable(self.kind), width // 2),
            f"{self.nodes:,}",
        )


def outline_text(ir: IR, *, depth: int | None = None, lines: int = 24, width: int = 80) -> str:
    """Return the modules of a program, a line for each, with equal layers once.

    Args:
        ir: The program.
        depth: How many levels of modules to open; if not given, as many as ``lines`` allow.
        lines: The most lines, if the depth is not given.
        width: The most columns.

    Example:
        >>> from torch_ir.ir import Location, TensorMeta
        >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> relu = OpNode("y", "aten.relu.default", [x], [y], location=Location(module="act"))
        >>> print(outline_text(IR([relu], [x], [y], [], model_name="Net")))
        Net: 1 node, no weights
        input  %x: f32[2]
        output %y: f32[2]
        <BLANKLINE>
        module    nodes
        act relu      1
    """
    head = _head(ir)
    roots = [("", hierarchy(ir), ir)]
    roots += [(f"&{path[:-1]}", hierarchy(body), body) for path, body in graphs(ir) if path]
    chosen: list[_Row] = []
    for level in range(1, (DEEPEST if depth is None else depth) + 1):
        rows = [row for name, root, graph in roots for row in _rows(name, root, graph, level)]
        if depth is None and chosen and len(head) + 2 + len(rows) > lines:
            break
        if rows == chosen:
            break
        chosen = rows
    title = "module"
    if len(roots) == len(chosen) == 1 < len(ir.nodes) and not roots[0][1].groups():
        title, chosen = "operator", _by_operator(ir, max(1, lines - len(head) - 2))
    half = max(20, (width - 12) * 2 // 3)
    cells = [(title, "type", "nodes"), *(row.cells(half) for row in chosen)]
    if not any(row.kind for row in chosen):
        cells = [(label, nodes) for label, _, nodes in cells]
    body = table(cells, align=("left", "left", "right")[-len(cells[0]) :])
    return "\n".join([*(shortened(line, width) for line in head), "", *body.splitlines()])


def _by_operator(ir: IR, most: int) -> list[_Row]:
    """Rows for the operators of a program that has no modules, the most frequent first."""
    counts = count_operators(ir.nodes)
    named = counts if len(counts) <= most else counts[: most - 1]
    left = len(ir.nodes) - sum(count for _, count in named)
    rows = [_Row(0, short_operator(name), "", count) for name, count in named]
    return rows + ([_Row(0, f"{len(counts) - len(named)} others", "", left)] if left else [])


def _head(ir: IR) -> list[str]:
    static = [meta for meta in ir.weights if meta.is_static]
    size = sum(meta.nbytes or 0 for meta in static)
    elements = sum(math.prod(map(int, map(str, meta.shape))) for meta in static)
    weights = counted(len(ir.weights), "weight") if ir.weights else "no weights"
    sizes = f" of {number_text(elements)} numbers, {bytes_text(size)}" if ir.weights else ""
    lines = [f"{ir.model_name or '(no name)'}: {counted(len(ir.nodes), 'node')}, {weights}{sizes}"]
    for name, metas in (("input  ", ir.graph_inputs), ("output ", ir.graph_outputs)):
        lines += [f"{name}{meta}" for meta in metas[:4]]
        lines += [f"{name}and {len(metas) - 4} more"] if len(metas) > 4 else []
    return [printable(line) for line in lines]


def _rows(name: str, root: ModuleGroup, graph: IR, level: int) -> Iterator[_Row]:
    if name:
        yield _Row(0, name, "function", root.count)
    yield from _inside(root, graph, level, 1 if name else 0)


def _inside(group: ModuleGroup, graph: IR, level: int, depth: int) -> Iterator[_Row]:
    """Rows for the members of a group; loose nodes in a row share one."""
    for is_group, run in groupby(group.members, lambda member: isinstance(member, ModuleGroup)):
        if not is_group:
            nodes = [graph.nodes[member] for member in run if isinstance(member, int)]
            yield _Row(depth, _loose(nodes, group), "", len(nodes))
            continue
        for inner in run:
            assert isinstance(inner, ModuleGroup)  # noqa: S101  # for the type checker: they are one kind
            if inner.kind == "part":
                yield from _inside(inner, graph, level, depth)
                continue
            times = f"  x {inner.times()}" if inner.kind == "repeat" else ""
            kind = inner.module_type.rpartition(".")[2]
            yield _Row(depth, inner.label + times, kind, inner.count)
            if level > 1:
                opened = _first(inner) if inner.kind == "repeat" else inner
                yield from _inside(opened, graph, level - 1, depth + 1)


def _first(group: ModuleGroup) -> ModuleGroup:
    first = group.groups()[0]
    return _first(first) if first.kind == "part" else first


def _loose(nodes: list[OpNode], group: ModuleGroup) -> str:
    names = [short_operator(name) for name, _ in count_operators(nodes)]
    more = ", …" if len(names) > NAMED_OPERATORS else ""
    listed = ", ".join(names[:NAMED_OPERATORS]) + more
    module = module_of(nodes[0]) if len(nodes) == 1 else ""
    own = module[len(group.path) :].lstrip(".") if module.startswith(group.path) else ""
    return f"{own} {listed}" if own else listed
