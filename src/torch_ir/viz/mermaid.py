"""Diagrams in Mermaid's text form, which GitHub, JupyterLab and mermaid.live draw."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torch_ir.arguments import public
from torch_ir.errors import InvalidIRError, counted, printable
from torch_ir.ir import IR, Constant, TensorMeta
from torch_ir.ir.queries import graphs
from torch_ir.ir.tensor import type_text
from torch_ir.viz.fold import Box, count_operators, fold, short_operator

OPERATORS_IN_A_BOX = 3
STYLE = (
    "classDef weight fill:#fff8e1,stroke:#c9a227,color:#333",
    "classDef folded fill:#e8eefc,stroke:#4a6fd4,color:#222",
)


@public
def ir_to_mermaid(ir: IR, max_nodes: int = 30, include_weights: bool = True) -> str:
    r"""Draw a flowchart of the graph.

    A graph of more than ``max_nodes`` nodes is folded by module, as far open as fits: a box then
    stands for the calls of one module (or, where the model has no modules to fold by, for
    neighbors), says how many nodes it has, and a note says how many were folded. Functions are
    subgraphs, which those who call them point to, while there are boxes left for them; a note says
    how many are not drawn.

    Args:
        ir: The graph.
        max_nodes: The most boxes to draw for nodes.
        include_weights: Also draw the weights and constants that a node takes.

    Raises:
        InvalidIRError: ``max_nodes`` is less than 1.

    Example:
        >>> x = TensorMeta("x", (2,), "float32")
        >>> y = TensorMeta("y", (2,), "float32", "y")
        >>> from torch_ir.ir import OpNode
        >>> print(ir_to_mermaid(IR([OpNode("y", "aten.relu.default", [x], [y])], [x], [y], [])))
        flowchart TD
            i0[/"x<br/>f32[2]"/]
            n0["relu<br/>f32[2]"]
            o0[\"output<br/>f32[2]"\]
            i0 -->|"f32[2]"| n0
            n0 --> o0
            classDef weight fill:#fff8e1,stroke:#c9a227,color:#333
            classDef folded fill:#e8eefc,stroke:#4a6fd4,color:#222
    """
    if max_nodes < 1:
        raise InvalidIRError(f"max_nodes must be at least 1, got {max_nodes}")
    chart = _Flowchart(ir, tuple(fold(ir.nodes, max_nodes)), include_weights)
    functions = _functions(chart, max_nodes - len(chart.folded))
    return "\n    ".join(["flowchart TD", *chart.lines(), *functions, *STYLE])


def _functions(program: _Flowchart, room: int) -> Iterator[str]:
    """Draw the bodies of functions while there is room, and say how many are left out."""
    charts = {"": program}
    bodies = [(path, body) for path, body in graphs(program.ir) if path and body.nodes]
    left = 0
    for number, (path, body) in enumerate(bodies):
        share = room // (len(bodies) - number)
        outer, _, name = path[:-1].rpartition("/")
        caller = charts.get(f"{outer}/" if outer else "")
        if share < 1 or caller is None:
            left += 1
            continue
        folded = tuple(fold(body.nodes, share))
        room -= len(folded)
        chart = _Flowchart(body, folded, program.include_weights, f"f{number}_")
        charts[path] = chart
        title = f"{path[:-1]}: {counted(len(body.nodes), 'node')}"
        yield f'subgraph {chart.prefix}body["{escape(title)}"]'
        yield from (f"    {line}" for line in chart.lines())
        yield "end"
        for box in caller.calling(name):
            yield f"{box} -.-> {chart.prefix}body"
    if left:
        unseen = f"{counted(left, 'function')} not drawn. A larger max_nodes shows more."
        yield f'unseen["{escape(unseen)}"]:::folded'


@public
def generate_op_distribution_pie(ir: IR, top_n: int = 10) -> str:
    """Draw a pie chart of how often each operator is called.

    Args:
        ir: The graph.
        top_n: How many operators get a slice of their own; the others share one.

    Raises:
        InvalidIRError: ``top_n`` is less than 1.

    Example:
        >>> x = TensorMeta("x", (2,), "float32")
        >>> y = TensorMeta("y", (2,), "float32", "y")
        >>> from torch_ir.ir import OpNode
        >>> ir = IR([OpNode("y", "aten.relu.default", [x], [y])], [x], [y], [])
        >>> print(generate_op_distribution_pie(ir))
        pie showData
            title Operator Distribution
            "relu" : 1
    """
    if top_n < 1:
        raise InvalidIRError(f"top_n must be at least 1, got {top_n}")
    counts = count_operators(ir.nodes)
    slices = [(short_operator(op_type), count) for op_type, count in counts[:top_n]]
    if counts[top_n:]:
        slices.append(("Others", sum(count for _, count in counts[top_n:])))
    lines = [f'"{escape(name)}" : {count}' for name, count in slices]
    return "\n    ".join(["pie showData", "title Operator Distribution", *lines])


def escape(text: str) -> str:
    """Escape text for a quoted Mermaid label; special characters become character codes.

    Example:
        >>> escape('a "quoted" <name>')
        'a #34;quoted#34; #60;name#62;'
    """
    coded = re.sub(
        r"[^\w .,:()\[\]=+/|%-]",
        lambda match: f"#{ord(match[0])};",
        printable(text),
        flags=re.ASCII,
    )
    # Mermaid breaks the line at a backslash and an n, even coded: nothing visible goes between
    return coded.replace("#92;", "#92;#8203;")


@dataclass
class _Flowchart:
    """The parts of one flowchart; ids are numbers, so that no name can break the text."""

    ir: IR
    folded: tuple[Box, ...]
    include_weights: bool
    prefix: str = ""
    box_of_value: dict[str, str] = field(default_factory=dict[str, str])
    drawn: dict[str, Box] = field(init=False)

    def __post_init__(self) -> None:
        self.drawn = {f"{self.prefix}n{index}": box for index, box in enumerate(self.folded)}
        for index, meta in enumerate(self.ir.graph_inputs):
            self.box_of_value[meta.name] = f"{self.prefix}i{index}"
        if self.include_weights:
            for index, name in enumerate(self._drawn_weights()):
                self.box_of_value[name] = f"{self.prefix}w{index}"
        for name, box in self.drawn.items():
            made = [meta.name for node in box.nodes for meta in node.outputs]
            self.box_of_value.update(dict.fromkeys(made, name))

    def _drawn_weights(self) -> Mapping[str, TensorMeta | Constant]:
        """The weights and constants that single nodes take, by their names in the graph."""
        external = self.ir.external_values()
        return {
            meta.name: external[meta.name][1]
            for box in self.folded
            if len(box.nodes) == 1
            for meta in box.nodes[0].inputs
            if meta.name in external
        }

    def boxes(self) -> Iterator[str]:
        for index, meta in enumerate(self.ir.graph_inputs):
            yield f'{self.prefix}i{index}[/"{_label(meta.name, type_text(meta))}"/]'
        if self.include_weights:
            external = self.ir.external_values()
            for name, value in self._drawn_weights().items():
                key = external[name][0]
                yield f'{self.box_of_value[name]}[("{_label(key, type_text(value))}")]:::weight'
        for name, box in self.drawn.items():
            label, style = self._box_label(box)
            yield f'{name}["{label}"]{style}'
        for index, meta in enumerate(self.ir.graph_outputs):
            yield f'{self.prefix}o{index}[\\"{_label("output", type_text(meta))}"\\]'
        if len(self.folded) < len(self.ir.nodes):
            yield f'{self.prefix}note["{escape(self._note())}"]:::folded'

    def _box_label(self, box: Box) -> tuple[str, str]:
        if len(box.nodes) == 1:
            node = box.nodes[0]
            types = [type_text(output) for output in node.outputs[:OPERATORS_IN_A_BOX]]
            more = ["..."] if len(node.outputs) > OPERATORS_IN_A_BOX else []
            return _label(short_operator(node.op_type), *types, *more), ""
        lines = [f"{counted(len(box.nodes), 'node')}: {_operators(box)}"]
        if box.module:
            lines.insert(0, box.module + self._module_type(box))
        if self.include_weights and (weights := self._weights_of(box)):
            lines.append(counted(weights, "weight"))
        return _label(*lines), ":::folded"

    @staticmethod
    def _module_type(box: Box) -> str:
        for node in box.nodes:
            if node.location and node.location.module == box.module and node.location.module_type:
                return f" ({node.location.module_type.rpartition('.')[2]})"
        return ""

    def _weights_of(self, box: Box) -> int:
        external = self.ir.external_values()
        return len(
            {
                external[meta.name][0]
                for node in box.nodes
                for meta in node.inputs
                if meta.name in external
            }
        )

    def _note(self) -> str:
        folded = [box for box in self.folded if len(box.nodes) > 1]
        count = sum(len(box.nodes) for box in folded)
        boxes = counted(len(folded), "box")
        by_module = " by module" if any(box.module for box in folded) else ""
        return (
            f"{count} of {len(self.ir.nodes)} nodes are folded{by_module} into {boxes}. "
            "A larger max_nodes shows more."
        )

    def arrows(self) -> Iterator[str]:
        carried: dict[tuple[str, str], dict[str, TensorMeta]] = {}
        for name, box in self.drawn.items():
            for node in box.nodes:
                for meta in node.inputs:
                    self._carry(carried, meta, name)
        for (source, target), metas in carried.items():
            first, *others = metas.values()
            label = f"{len(metas)} values" if others else type_text(first)
            arrow = "-.->" if self._is_weight(source) else "-->"
            yield f'{source} {arrow}|"{escape(label)}"| {target}'
        for index, meta in enumerate(self.ir.graph_outputs):
            if meta.name in self.box_of_value:
                yield f"{self.box_of_value[meta.name]} --> {self.prefix}o{index}"

    def _carry(
        self,
        carried: dict[tuple[str, str], dict[str, TensorMeta]],
        meta: TensorMeta,
        target: str,
    ) -> None:
        source = self.box_of_value.get(meta.name)
        inside_folded_box = source == target or (
            source is not None and self._is_weight(source) and len(self.drawn[target].nodes) > 1
        )
        if source is not None and not inside_folded_box:
            carried.setdefault((source, target), {})[meta.name] = meta

    def _is_weight(self, box: str) -> bool:
        return box.removeprefix(self.prefix).startswith("w")

    def lines(self) -> list[str]:
        """Return the boxes and the arrows between them."""
        return [*self.boxes(), *self.arrows()]

    def calling(self, function: str) -> Iterator[str]:
        """Yield the boxes whose nodes call a function."""
        for name, box in self.drawn.items():
            if any(function in node.functions for node in box.nodes):
                yield name


def _operators(box: Box) -> str:
    counts = count_operators(box.nodes)
    named = [
        short_operator(op_type) + (f" x{count}" if count > 1 else "")
        for op_type, count in counts[:OPERATORS_IN_A_BOX]
    ]
    return ", ".join([*named, *(["..."] if len(counts) > OPERATORS_IN_A_BOX else [])])


def _label(*lines: str) -> str:
    return "<br/>".join(escape(line) for line in lines)
