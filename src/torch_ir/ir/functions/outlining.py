"""Repeated layers as one function that is called once for each, and equal functions as one."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from torch_ir.ir.builder import Builder, split_arguments, subgraph, with_attributes
from torch_ir.ir.functions.inlining import CALLS, MODULE, inline_scopes, rerooted
from torch_ir.ir.graph import IR
from torch_ir.ir.node import Location, OpNode, module_of, needs
from torch_ir.ir.queries import live_out, symbol_binders
from torch_ir.ir.symbols import SymExpr
from torch_ir.ir.tensor import TensorMeta
from torch_ir.ir.tree import Signature, ValueLeaf, map_names
from torch_ir.ir.values import Attribute, FunctionRef, map_attribute
from torch_ir.steps import uncollected

CALL = "higher_order.invoke_subgraph"


@uncollected()
def outlined(ir: IR, min_nodes: int = 4, min_calls: int = 2) -> IR:
    """Make layers that repeat calls of one function each; see :func:`torch_ir.passes.outline`."""
    builder = Builder(ir)
    builder.map_functions(lambda body: outlined(body, min_nodes, min_calls))
    layers = _GraphLayers(ir.replace(functions=builder.functions))
    runs: dict[int, tuple[LayerRun, str]] = {}
    for group in layers.groups(min_nodes, min_calls):
        body = outlined(layers.body(group[0]), min_nodes, min_calls)
        name = add_layer(builder, body)
        runs |= {run.start: (run, name) for run in group}
    position = 0
    while position < len(ir.nodes):
        if position in runs:
            run, name = runs[position]
            given = [*run.operands, *run.symbols]
            call = call_layer(builder, name, given, layers.results(run), run.location)
            builder.nodes[-1] = call.derived_from(*run.nodes)
            position += len(run.nodes)
        else:
            builder.keep(ir.nodes[position])
            position += 1
    return builder.finish()


# -- layers ---------------------------------------------------------------------------------------


class LayerRun(NamedTuple):
    """Contiguous nodes of one layer.

    Attributes:
        start: The position of the first.
        nodes: The nodes.
        path: The module path of the layer.
    """

    start: int
    nodes: Sequence[OpNode]
    path: str

    @property
    def operands(self) -> list[TensorMeta]:
        """The values that it takes, by first use."""
        return [*needs(self.nodes).values()]

    @property
    def location(self) -> Location:
        """The layer as the place of a call."""
        places = [node.location for node in self.nodes if node.location]
        kinds = [place.module_type for place in places if place.module == self.path]
        return Location(module=self.path, module_type=kinds[0] if kinds else "")

    @property
    def symbols(self) -> list[SymExpr]:
        """The symbols that it uses and no dimension of an operand is."""
        used = {name for node in self.nodes for name in node.symbols}
        given = {str(dim) for meta in self.operands for dim in meta.shape}
        return [SymExpr(name) for name in sorted(used - given)]


class _GraphLayers:
    """The layers of a graph, and what they have in common."""

    def __init__(self, ir: IR):
        self._ir = ir
        self._binders = frozenset(symbol_binders(ir))

    def groups(self, min_nodes: int, min_calls: int) -> Iterator[list[LayerRun]]:
        """Yield the runs that are alike, from the outermost layers inwards."""
        spans = [range(len(self._ir.nodes))]
        level = 1
        while spans:
            groups: dict[Hashable, list[LayerRun]] = {}
            for run in [run for span in spans for run in self._runs(span, level)]:
                key = self.key(run) if len(run.nodes) >= min_nodes else None
                groups.setdefault(run.start if key is None else key, []).append(run)
            spans = []
            for key, group in groups.items():
                if not isinstance(key, int) and len(group) >= min_calls:
                    yield group
                else:
                    spans += [range(r.start, r.start + len(r.nodes)) for r in group]
            spans = [span for span in spans if len(span) >= min_nodes]
            level += 1

    def _runs(self, span: range, level: int) -> Iterator[LayerRun]:
        """The runs of some nodes; nodes without a path between two of one layer belong to it."""
        nodes = self._ir.nodes
        path, start, end = "", 0, 0
        for position in span:
            location = nodes[position].location
            if location is None or not location.module:
                continue
            found = layer_path(location.module, level)
            if found != path:
                if path:
                    yield LayerRun(start, nodes[start:end], path)
                path, start = found, position
            end = position + 1
        if path:
            yield LayerRun(start, nodes[start:end], path)

    def results(self, run: LayerRun) -> list[TensorMeta]:
        """Return what is read after a run of what it makes."""
        return live_out(self._ir, run.nodes)

    def body(self, run: LayerRun) -> IR:
        """Return a run as a function."""
        return function_of(self._ir, run, self.results(run))

    def key(self, run: LayerRun) -> Hashable | None:
        """Return what two runs of one function have in common; None for one that has to stay."""
        own = {node.name for node in run.nodes}
        if own & self._binders or any(node.operands is None for node in run.nodes):
            return None
        numbers: dict[str, int] = {}
        read = {meta.name for meta in self.results(run)}
        found: list[Hashable] = []
        for node in run.nodes:
            inputs: list[Hashable] = []
            for meta in node.inputs:
                is_first = meta.name not in numbers
                number = numbers.setdefault(meta.name, len(numbers))
                inputs.append((number, meta.dtype, meta.shape) if is_first else number)
            results: list[Hashable] = []
            for meta in node.outputs:
                numbers[meta.name] = len(numbers)
                is_read = meta.name in read
                results.append((meta.producer_output_idx, meta.dtype, meta.shape, is_read))
            attrs = _attributes_key(self._ir, node.attrs, run.path)
            location = node.location and replace(
                node.location, module=rerooted(node.location.module, run.path, "")
            )
            slots = tuple(node.slots.items())
            found.append((node.op_type, attrs, slots, tuple(inputs), tuple(results), location))
        return tuple(found)


def layer_path(module: str, level: int = 1) -> str:
    """Return the beginning of a module path up to its n-th number; empty if it has fewer.

    Example:
        >>> layer_path("model.layers.7.mlp.experts.3.up"), layer_path("stages.0.blocks.1.fc", 2)
        ('model.layers.7', 'stages.0.blocks.1')
    """
    parts = module.split(".")
    numbers = [index for index, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[level - 1] + 1]) if len(numbers) >= level else ""


def function_of(ir: IR, run: LayerRun, results: Sequence[TensorMeta]) -> IR:
    """Return some nodes of a graph as a function that knows its module path.

    It takes what they take, by first use, and then the symbols that no operand gives.
    """
    body = subgraph(ir, run.nodes, results)
    given = (*body.input_names, *map(ValueLeaf, run.symbols))
    signature = Signature.of(given, body.output_names)
    return body.replace(signature=signature, metadata={MODULE: run.path})


def add_layer(builder: Builder, body: IR) -> str:
    """Add the function of a layer to a graph, and return its name: the layer's list."""
    name = builder.add_function(body, _word(str(body.metadata[MODULE])))
    builder.functions[name] = body.replace(model_name=name)
    return name


def _word(path: str) -> str:
    """The last name in a path before its numbers."""
    return next((part for part in reversed(path.split(".")) if not part.isdigit()), "block")


def call_layer(
    builder: Builder,
    function: str,
    given: Sequence[TensorMeta | SymExpr],
    results: Sequence[TensorMeta],
    location: Location,
) -> OpNode:
    """Append the call of a layer's function, whose results stand for other values from here on.

    Args:
        builder: The graph.
        function: The function's name.
        given: The operands.
        results: The values that its results stand for.
        location: Where the layer is, in its ``module``.
    """
    path = location.module
    name = builder.names.fresh(f"{_word(path)}_{path.rpartition('.')[2]}")
    attributes = {"identifier": function, "subgraph": FunctionRef(function)}
    inputs, attrs, operands = split_arguments({"operands": [*given], **attributes})
    outputs = [
        TensorMeta(f"{name}.{index}", meta.shape, meta.dtype, name, index)
        for index, meta in enumerate(results)
    ]
    call = builder.keep(OpNode(name, CALL, inputs, outputs, attrs, operands, location))
    for old, new in zip(results, outputs, strict=True):
        builder.replace(old, new)
    return call


# -- functions ------------------------------------------------------------------------------------


def _attributes_key(ir: IR, attrs: Mapping[str, Attribute], root: str) -> str:
    """The attributes as text, which tells 1 from 1.0 and True; functions by what they do."""
    if not any(isinstance(value, FunctionRef) for value in attrs.values()):
        return repr(sorted(attrs.items()))

    def spelled(value: Attribute) -> Attribute:
        if not isinstance(value, FunctionRef) or value.name not in ir.functions:
            return value
        return repr(function_key(ir.functions[value.name], root))

    plain = {name: map_attribute(value, spelled) for name, value in attrs.items()}
    plain.pop("identifier", None)
    return repr(sorted(plain.items()))


def function_key(body: IR, root: str) -> Hashable:
    """Return what two functions that do the same have in common, whatever names they use.

    Args:
        body: The function.
        root: The module path to which those in the body are relative, if it has none of its own.
    """
    root = str(body.metadata.get(MODULE, root))
    names = [*body.input_names, *(meta.name for node in body.nodes for meta in node.outputs)]
    places = {name: str(index) for index, name in enumerate(names)}

    def placed(name: str) -> str:
        return places.get(name, name)

    nodes = _GraphLayers(body).key(LayerRun(0, body.nodes, root))
    signature = body.signature
    trees = [] if signature is None else [signature.inputs, signature.outputs]
    return (
        repr(body) if nodes is None else nodes,
        tuple([placed(meta.name) for node in body.nodes for meta in node.inputs]),
        tuple([(meta.dtype, meta.shape) for meta in body.graph_inputs]),
        tuple(map(placed, body.output_names)),
        tuple([map_names(tree, placed) for tree in trees]),
        tuple([(placed(m.target), placed(m.value.name)) for m in body.mutations]),
        tuple(sorted([(name, str(limits)) for name, limits in body.symbols.items()])),
        body.dialect,
    )


def written_out(ir: IR) -> IR:
    """Return a program with its calls written out, and nodes named after call and node.

    Reports on single nodes are on this form: ``layers_1.relu`` is the node ``relu`` of the
    function that the node ``layers_1`` calls. Branches that are equal are one function, as in an
    extracted program. The same object if nothing is called.
    """

    def make() -> IR:
        made = inline_scopes(ir, CALLS, named_by_call=True)
        return ir if made is ir else merged_functions(made)

    return ir.view(written_out, make)


def merged_functions(ir: IR) -> IR:
    """Return the program with one function for all that differ in names and module paths only.

    The function that is kept notes the module path that its nodes begin with, which is that of its
    first call. The same object if no two are equal.
    """
    builder = Builder(ir)
    builder.map_functions(merged_functions)
    firsts: dict[Hashable, str] = {}
    kept: dict[str, str] = {}
    places: dict[str, dict[str, str]] = {}
    for node in ir.nodes:
        place = module_of(node)
        for name in dict.fromkeys(node.functions):
            if name in builder.functions:
                root = _root(builder.functions[name], place)
                if name not in kept:
                    kept[name] = firsts.setdefault(
                        function_key(builder.functions[name], root), name
                    )
                places.setdefault(kept[name], {}).setdefault(place, root)
    for name, roots in places.items():
        root = next(iter(roots.values()))
        body = builder.functions[name]
        if root and len(roots) > 1 and MODULE not in body.metadata:
            builder.functions[name] = body.replace(metadata={**body.metadata, MODULE: root})

    def same(value: Attribute) -> Attribute:
        if not isinstance(value, FunctionRef):
            return value
        return FunctionRef(kept.get(value.name, value.name))

    for node in ir.nodes:
        if all(kept.get(name, name) == name for name in node.functions):
            builder.keep(node)
        else:
            builder.keep(with_attributes(node, same))
    return builder.finish()


def _root(body: IR, place: str) -> str:
    """The module path that the nodes of a function begin with: that of a call, up to numbers."""
    count = place.count(".") + 1
    modules = [node.location.module for node in body.nodes if node.location]
    heads = {".".join(module.split(".")[:count]) for module in modules if module}
    found = heads.pop() if len(heads) == 1 else place
    return found if re.sub(r"\d+", "0", found) == re.sub(r"\d+", "0", place) else place
