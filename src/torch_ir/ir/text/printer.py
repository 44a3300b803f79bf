"""An IR as text; :mod:`torch_ir.ir.text.parser` reads it back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from torch_ir.errors import InvalidIRError, counted, printable
from torch_ir.ir.graph import IR
from torch_ir.ir.node import OpNode, module_of, needs
from torch_ir.ir.queries import kept_values, last_uses, names_by_key
from torch_ir.ir.tensor import TensorMeta
from torch_ir.ir.text.calls import spell_call
from torch_ir.ir.text.constants import spell_constant
from torch_ir.ir.text.lexer import quote, sigil, spell_int, word
from torch_ir.ir.text.locations import spell_location
from torch_ir.ir.text.scope import NameScope, spell_producer
from torch_ir.ir.text.trees import spell_tree
from torch_ir.ir.text.value_text import spell_type, spell_value

_NUMBER = re.compile(r"0|[1-9]\d{0,8}", re.ASCII)


def ir_text(ir: IR, *, fold: int | None = None, origins: bool = False) -> str:
    """Print an IR as text that :func:`torch_ir.ir.text.parse` reads back as an equal IR.

    Args:
        ir: Any IR, also an ill-formed one: what a reference claims beyond its name is written
            where it is not what the definition says.
        fold: Fold each run of nodes of one module into a line, at this depth of the module path (1
            is the model's own children). Folded text is for reading only; it cannot be parsed.
        origins: Put a comment above each node that is made of others: ``# made of %a, %b``.

    Raises:
        InvalidIRError: ``fold`` is less than 1.

    Example:
        >>> x = TensorMeta("x", (2,), "float32")
        >>> y = TensorMeta("y", (2,), "float32", "y")
        >>> relu = OpNode("y", "aten.relu.default", [x], [y])
        >>> print(ir_text(IR([relu], [x], [y], [], model_name="Relu")))
        ir "Relu" {
          input %x: f32[2]
          %y: f32[2] = aten.relu.default(%x)
          return %y
        }
    """
    head = f"ir {quote(ir.model_name)} {{" if ir.model_name else "ir {"
    return "\n".join([head, *_body(ir, fold, "  ", origins), "}"])


def node_text(node: OpNode) -> str:
    """Print one node alone, without its location; tensors by name.

    Example:
        >>> x = TensorMeta("x", (2,), "float32")
        >>> y = TensorMeta("y", (2,), "float32", "y")
        >>> print(node_text(OpNode("y", "aten.relu.default", [x], [y])))
        %y: f32[2] = aten.relu.default(%x)
    """
    return _node(node, lambda meta: sigil("%", meta.name))


def scope_of(ir: IR) -> NameScope:
    """Return the definitions that names mean in an IR."""
    results = chain.from_iterable(node.outputs for node in ir.nodes)
    constants = {key: ir.constants[key] for key in sorted(ir.constants)}
    return NameScope(
        chain(ir.graph_inputs, results), ir.weights, constants, ir.weight_name_mapping
    )


def located_node_text(node: OpNode, refer: Callable[[TensorMeta], str]) -> str:
    """Print the line of a node with its location."""
    text = _node(node, refer)
    return text if node.location is None else f"{text}  # {spell_location(node.location)}"


def _body(ir: IR, fold: int | None, indent: str, origins: bool = False) -> Iterator[str]:
    scope = scope_of(ir)
    for line in _header(ir, scope):
        yield indent + line
    for name in sorted(ir.functions):
        function = ir.functions[name]
        title = f" {quote(function.model_name)}" if function.model_name else ""
        yield f"{indent}func {sigil('&', name)}{title} {{"
        yield from _body(function, fold, indent + "  ", origins)
        yield indent + "}"
    for meta in ir.graph_inputs:
        yield f"{indent}input {_definition(meta)}"
    if fold is None:
        for node in ir.nodes:
            if origins and node.origins:
                made_of = ", ".join([sigil("%", name) for name in node.origins])
                yield f"{indent}# made of {made_of}"
            yield indent + located_node_text(node, scope.reference)
    else:
        for item in runs(ir, fold):
            text = str(item) if isinstance(item, Run) else located_node_text(item, scope.reference)
            yield indent + text
    yield f"{indent}return {', '.join(map(scope.reference, ir.graph_outputs))}".rstrip()


def _header(ir: IR, scope: NameScope) -> Iterator[str]:
    if ir.pytorch_version:
        yield f"torch {quote(ir.pytorch_version)}"
    if ir.dialect != "export":
        yield f"dialect {quote(ir.dialect)}"
    for name in sorted(ir.symbols):
        limits = ir.symbols[name]
        lower = "" if limits.lower is None else spell_int(limits.lower)
        upper = "" if limits.upper is None else spell_int(limits.upper)
        yield f"symbol {word(name)}: {lower}..{upper}"
    for guard in ir.guards:
        yield f"guard {spell_value(guard)}"
    for op_type in sorted(ir.operators):
        yield f"operator {quote(ir.operators[op_type])}"
    yield from _weights(ir)
    for alias in sorted(ir.weight_aliases):
        yield f"alias {sigil('@', alias)} = {sigil('@', ir.weight_aliases[alias])}"
    for key in sorted(ir.metadata):
        yield f"metadata {quote(key)} = {spell_value(ir.metadata[key])}"
    for mutation in ir.mutations:
        yield f"mutate {scope.name(mutation.target)} = {scope.reference(mutation.value)}"
    if ir.signature is not None:
        inputs, outputs = ir.signature.inputs, ir.signature.outputs
        yield f"signature {spell_tree(inputs)} -> {spell_tree(outputs)}"


def _weights(ir: IR) -> Iterator[str]:
    uses = names_by_key(dict(sorted(ir.weight_name_mapping.items())))
    for meta in ir.weights:
        yield f"weight {_definition(meta, '@')}{_names(uses.pop(meta.name, ()))}"
    for key in sorted(ir.constants):
        constant = ir.constants[key]
        names = _names(uses.pop(key, ()))
        declared = f"{sigil('@', key)}: {spell_type(constant.dtype, constant.shape)}{names}"
        yield f"constant {declared} = {spell_constant(constant)}"
    for key, names in uses.items():
        for name in names:
            yield f"name {sigil('%', name)} = {sigil('@', key)}"


def _names(names: Sequence[str]) -> str:
    return f" as {', '.join([sigil('%', name) for name in names])}" if names else ""


def _definition(meta: TensorMeta, mark: str = "%", node: str | None = None, index: int = 0) -> str:
    text = f"{sigil(mark, meta.name)}: {spell_type(meta.dtype, meta.shape)}"
    if meta.producer_node == node and meta.producer_output_idx == index:
        return text
    return text + spell_producer(meta, node, index)


def _node(node: OpNode, refer: Callable[[TensorMeta], str]) -> str:
    outputs = node.outputs
    label = "" if derived_name(outputs) == node.name else f"{word(node.name)}: "
    call = spell_call(node, refer)
    if node.binds:
        symbols = [_bound(symbol, index) for symbol, index in sorted(node.binds.items())]
        call = f"{call} -> {', '.join(symbols)}"
    if not outputs:
        return f"{label}{call}"
    results = [
        _definition(meta, "%", node.name, result_index(node.name, meta.name, position))
        for position, meta in enumerate(outputs)
    ]
    return f"{', '.join(results)} = {label}{call}"


def _bound(symbol: str, index: int) -> str:
    """A symbol that takes its value from a result; the first goes without saying."""
    return word(symbol) if index == 0 else f"{word(symbol)}#{spell_int(index)}"


def derived_name(outputs: Sequence[TensorMeta]) -> str | None:
    """Derive a node's name from its results: ``y``, or ``split`` of ``%split.0, %split.1``."""
    if len(outputs) < 2:
        return outputs[0].name if outputs else None
    prefix = outputs[0].name.rpartition(".")[0]
    for meta in outputs:
        stem, _, number = meta.name.rpartition(".")
        if stem != prefix or not _NUMBER.fullmatch(number):
            return None
    return prefix


def result_index(node: str, result: str, position: int) -> int:
    """Return the index that a result's name implies: ``1`` of ``%split.1``, else its position."""
    stem, dot, number = result.rpartition(".")
    return int(number) if dot and stem == node and _NUMBER.fullmatch(number) else position


# -- repeated lines -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive nodes of one module.

    Attributes:
        module: Path of the module, cut at the depth that was asked for.
        module_type: Its class without the package, or empty if no node names it.
        count: How many nodes.
        inputs: What they take from other nodes and from the graph's inputs.
        outputs: What other nodes and the graph take from them.
    """

    module: str
    module_type: str
    count: int
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]

    def __str__(self) -> str:
        kind = f" ({self.module_type})" if self.module_type else ""
        nodes = counted(self.count, "node")
        flow = " -> ".join(", ".join(map(str, metas)) for metas in (self.inputs, self.outputs))
        return printable(f"# {self.module}{kind}: {nodes}, {flow}".rstrip())


def runs(ir: IR, depth: int) -> Iterator[Run | OpNode]:
    """Yield the nodes, each run of one module at that depth folded; nodes of the root stay.

    Raises:
        InvalidIRError: The depth is less than 1.
    """
    if depth < 1:
        raise InvalidIRError(
            f"the depth of folding is at least 1, got {depth}",
            remedy="Depth 1 folds the model's own children.",
        )
    types = {
        node.location.module: node.location.module_type.rpartition(".")[2]
        for node in reversed(ir.nodes)
        if node.location is not None
    }
    last_use = last_uses(ir.nodes, kept_values(ir))
    start = 0
    for module, group in groupby(ir.nodes, lambda node: _module(node, depth)):
        nodes = list(group)
        if not module:
            yield from nodes
        else:
            kind = types.get(module, "")
            yield _run(ir, module, kind, nodes, start + len(nodes), last_use)
        start += len(nodes)


def _module(node: OpNode, depth: int) -> str:
    path = module_of(node)
    return ".".join(path.split(".")[:depth])


def _run(
    ir: IR, module: str, kind: str, nodes: list[OpNode], stop: int, last_use: dict[str, int]
) -> Run:
    external = ir.external_values()
    made = {meta.name: meta for node in nodes for meta in node.outputs}
    taken = tuple([meta for name, meta in needs(nodes).items() if name not in external])
    left = tuple([meta for name, meta in made.items() if last_use[name] >= stop])
    return Run(module, kind, len(nodes), taken, left)
