"""A program as the compact document that the viewer reads: columns of numbers, texts once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from torch_ir.errors import counted, printable
from torch_ir.ir import IR, Constant, OpNode, TensorMeta
from torch_ir.ir.tensor import type_text
from torch_ir.ir.text.constants import spell_constant
from torch_ir.ir.text.value_text import spell_value
from torch_ir.viz.hierarchy import ModuleGroup, hierarchy

LONGEST_TEXT = 2000
"""Characters of an attribute or a source line that are kept."""

Json: TypeAlias = dict[str, Any]


def level_order(ir: IR) -> list[tuple[str, IR]]:
    """Return the path and graph of the program and of all functions, as a document has them."""
    queue = [("", ir)]
    for path, graph in queue:
        queue += [(f"{path}{name}/", body) for name, body in graph.functions.items()]
    return queue


class Interned:
    """Values by number, each once."""

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}

    def __call__(self, value: Hashable) -> int:
        """Return the number of a value, which is new if the value is."""
        return self.numbers.setdefault(value, len(self.numbers))

    def values(self) -> list[Any]:
        """Return the values in order of their numbers."""
        return list(self.numbers)


class ViewDocument:
    """What the viewer reads: the tables that all programs share, and the programs.

    Example:
        >>> document = ViewDocument()
        >>> document.add(IR([], [TensorMeta("x", (2,), "float32")], [], [], model_name="Empty"))
        >>> sorted(document.to_dict())
        ['attributes', 'locations', 'patterns', 'programs', 'texts']
    """

    def __init__(self) -> None:
        self._texts = Interned()
        self._patterns = Interned()
        self._attributes = Interned()
        self._locations = Interned()
        self._programs: list[Json] = []

    def add(self, ir: IR) -> None:
        """Add a program."""
        self._programs.append(
            {"name": printable(ir.model_name), "facts": _facts(ir), "graphs": list(self._all(ir))}
        )

    def to_dict(self) -> Json:
        """Return the document as plain data."""
        return {
            "texts": self._texts.values(),
            "patterns": self._patterns.values(),
            "attributes": self._attributes.values(),
            "locations": self._locations.values(),
            "programs": self._programs,
        }

    def _all(self, ir: IR) -> Iterator[Json]:
        """The graph and every function, each with the numbers of the functions that it has."""
        numbers = 1
        for path, graph in level_order(ir):
            functions = {name: numbers + at for at, name in enumerate(graph.functions)}
            numbers += len(functions)
            yield self._graph(path, graph, functions)

    def _text(self, text: str) -> int:
        short = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} …"
        return self._texts(printable(short))

    def _graph(self, path: str, ir: IR, functions: Mapping[str, int]) -> Json:
        values = _NumberedValues(self, ir)
        root = hierarchy(ir)
        group_of, groups = self._groups(root, len(ir.nodes))
        nodes: dict[str, list[int]] = {name: [] for name in _COLUMNS}
        calls: list[list[Any]] = []
        for at, node in enumerate(ir.nodes):
            for name, value in zip(_COLUMNS, self._node(node, values), strict=True):
                nodes[name].append(value)
            called = [
                [printable(name), functions[name]] for name in node.functions if name in functions
            ]
            if called:
                calls.append([at, called])
        return {
            "path": printable(path),
            "values": {"name": values.names, "type": values.types},
            "keys": values.keys,
            "inputs": [values.of(meta) for meta in ir.graph_inputs],
            "outputs": [values.of(meta) for meta in ir.graph_outputs],
            "writes": [
                [values.named(each.target), values.of(each.value)] for each in ir.mutations
            ],
            "nodes": {**nodes, "group": group_of, "uses": values.uses},
            "calls": calls,
            "groups": groups,
        }

    def _node(self, node: OpNode, values: _NumberedValues) -> Iterable[int]:
        taken = [values.of(meta) for meta in node.inputs]
        made = [values.made(meta) for meta in node.outputs]
        values.uses += taken
        pattern = node.slots or {"": tuple(range(len(taken)))}
        attributes = [
            (printable(name), self._text(spell_value(node.attrs[name]))) for name in node.attrs
        ]
        return (
            self._text(node.name),
            self._text(node.op_type),
            len(taken),
            made[0] if made else -1,
            len(made),
            self._patterns(tuple((printable(name), slots) for name, slots in pattern.items())),
            self._attributes(tuple(attributes)),
            self._location(node),
        )

    def _location(self, node: OpNode) -> int:
        place = node.location
        if place is None:
            return -1
        texts = map(self._text, (place.file, place.code, place.module, place.module_type))
        return self._locations((place.line, *texts))

    def _groups(self, root: ModuleGroup, count: int) -> tuple[list[int], Json]:
        """The group of every node, and the groups in pre-order as columns."""
        group_of = [0] * count
        columns: dict[str, list[Any]] = {
            name: [] for name in ("parent", "kind", "path", "label", "type", "count")
        }
        stack: list[tuple[ModuleGroup, int]] = [(root, -1)]
        while stack:
            group, parent = stack.pop()
            number = len(columns["parent"])
            row = (
                parent,
                _KINDS.index(group.kind),
                self._text(group.path),
                self._text(group.label),
                self._text(group.module_type),
                group.count,
            )
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
            for member in group.members:
                if isinstance(member, int):
                    group_of[member] = number
            stack += [(inner, number) for inner in reversed(group.groups())]
        return group_of, columns


_COLUMNS = ("name", "op", "takes", "first", "makes", "pattern", "attributes", "location")
_KINDS = ("module", "repeat", "part")


class _NumberedValues:
    """The values of one graph by number, each with its name and type."""

    def __init__(self, document: ViewDocument, ir: IR):
        self.names: list[int] = []
        self.types: list[int] = []
        self.uses: list[int] = []
        self.keys: list[list[Any]] = []
        self._numbers: dict[str, int] = {}
        self._text = document._text  # pyright: ignore[reportPrivateUsage]  # of this module
        for meta in ir.graph_inputs:
            self.made(meta)
        for name, (key, value) in ir.external_values().items():
            number = self._add(name, type_text(value))
            held = spell_constant(value) if isinstance(value, Constant) else ""
            self.keys.append([number, self._text(key), self._text(held) if held else -1])

    def _add(self, name: str, kind: str) -> int:
        number = self._numbers[name] = len(self.names)
        self.names.append(self._text(name))
        self.types.append(self._text(kind))
        return number

    def made(self, meta: TensorMeta) -> int:
        """Define a value and return its number."""
        return self._add(meta.name, type_text(meta))

    def of(self, meta: TensorMeta) -> int:
        """Return the number of a value; one that nothing defines is added."""
        found = self._numbers.get(meta.name)
        return self.made(meta) if found is None else found

    def named(self, name: str) -> int:
        """Return the number of the value of this name; -1 if there is none."""
        return self._numbers.get(name, -1)


def _facts(ir: IR) -> list[list[str]]:
    """What is known of the program as a whole, in lines of a name and a text."""
    named: list[tuple[str, str]] = [
        ("dialect", ir.dialect),
        ("torch", ir.pytorch_version),
        ("nodes", _sum(ir)),
        ("weights", counted(len(ir.weights), "weight")),
        *((f"symbol {name}", str(span)) for name, span in ir.symbols.items()),
        *(("guard", str(guard)) for guard in ir.guards[:50]),
        *((f"metadata {name}", spell_value(value)) for name, value in ir.metadata.items()),
    ]
    return [[printable(name), printable(text[:LONGEST_TEXT])] for name, text in named if text]


def _sum(ir: IR) -> str:
    bodies = [body for path, body in level_order(ir) if path]
    count = sum(len(body.nodes) for body in bodies)
    more = f", {count} more in {counted(len(bodies), 'function')}" if bodies else ""
    return f"{counted(len(ir.nodes), 'node')}{more}"
