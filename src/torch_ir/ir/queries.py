"""Questions about a whole graph, answered from its fields; :class:`IR` keeps the answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch_ir.errors import InputError, did_you_mean, printable
from torch_ir.frozen import FrozenDict
from torch_ir.ir.constants import needed_constants
from torch_ir.ir.node import OpNode
from torch_ir.ir.symbols import SymExpr
from torch_ir.ir.tensor import Constant, TensorMeta
from torch_ir.ir.tree import Signature, TensorLeaf, Tree, ValueLeaf, leaves
from torch_ir.ir.values import DType, attribute_symbols
from torch_ir.ops.effects import Effects
from torch_ir.ops.effects import effects as effects_of

if TYPE_CHECKING:
    from torch_ir.ir.graph import IR, Mutation


def users(ir: IR) -> Mapping[str, tuple[OpNode, ...]]:
    """Return the nodes that take each value, by the value's name."""
    found: dict[str, dict[str, OpNode]] = {}
    for node in ir.nodes:
        for meta in node.inputs:
            found.setdefault(meta.name, {})[node.name] = node
    return FrozenDict({name: tuple(nodes.values()) for name, nodes in found.items()})


def external_values(ir: IR) -> Mapping[str, tuple[str, TensorMeta | Constant]]:
    """Return the key and the meaning of each name by which nodes may use an external value."""
    known: dict[str, TensorMeta | Constant] = {
        **ir.constants,
        **{meta.name: meta for meta in ir.weights},
    }
    mapped = set(ir.weight_name_mapping.values())
    values = {key: (key, value) for key, value in known.items() if key not in mapped}
    for name, key in ir.weight_name_mapping.items():
        if key in known:
            values[name] = (key, known[key])
    return values


def external_keys(ir: IR) -> Mapping[str, str]:
    """Return the key of each name by which nodes may use a weight or constant."""
    values = ir.external_values()
    return ir.view(
        external_keys, lambda: FrozenDict({name: key for name, (key, _) in values.items()})
    )


def constant_of(ir: IR, name: str) -> Constant | None:
    """Return the constant that a value is, if its numbers are known."""
    _, value = ir.external_values().get(name, ("", None))
    return value if isinstance(value, Constant) and value.data is not None else None


def names_by_key(keys: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names that stand for each key, in order.

    Example:
        >>> names_by_key({"a": "fc.weight", "b": "fc.bias", "c": "fc.weight"})
        {'fc.weight': ['a', 'c'], 'fc.bias': ['b']}
    """
    names: dict[str, list[str]] = {}
    for name, key in keys.items():
        names.setdefault(key, []).append(name)
    return names


def externals_of(ir: IR, names: Collection[str]) -> dict[str, Any]:
    """Return the fields of a graph that hold the weights and constants which some values are."""
    keys = {key for name, key in external_keys(ir).items() if name in names}
    constants = needed_constants(ir.constants, keys)
    keys |= constants.keys()
    return {
        "weights": tuple([meta for meta in ir.weights if meta.name in keys]),
        "constants": constants,
        "weight_name_mapping": {n: k for n, k in ir.weight_name_mapping.items() if n in names},
        "weight_aliases": {a: key for a, key in ir.weight_aliases.items() if key in keys},
    }


def tables_for(ir: IR, nodes: Sequence[OpNode], metas: Iterable[TensorMeta]) -> dict[str, Any]:
    """Return the fields of a graph that hold what some nodes and values refer to by name.

    That is symbols with guards on them, functions, and schemas.
    """
    symbols = symbols_in(metas).union(*[node.symbols for node in nodes])
    called = {name for node in nodes for name in node.functions}
    operators = {node.op_type for node in nodes}
    return {
        "symbols": {name: bounds for name, bounds in ir.symbols.items() if name in symbols},
        "guards": tuple([guard for guard in ir.guards if symbols.issuperset(guard.symbols)]),
        "functions": {name: body for name, body in ir.functions.items() if name in called},
        "operators": {name: text for name, text in ir.operators.items() if name in operators},
    }


def given_values(ir: IR) -> Mapping[str, TensorMeta]:
    """Return the types of the values that no node makes, by name: inputs, external ones."""
    return ir.view(given_values, lambda: FrozenDict(_given_values(ir)))


def _given_values(ir: IR) -> dict[str, TensorMeta]:
    external = {
        name: TensorMeta(name, value.shape, value.dtype)
        for name, (_, value) in ir.external_values().items()
    }
    return external | {meta.name: meta for meta in ir.graph_inputs}


def every_value(ir: IR) -> Mapping[str, TensorMeta]:
    """Return the types of all values by name, as where they are defined."""
    made = ((meta.name, meta) for node in ir.nodes for meta in node.outputs)
    return ir.view(every_value, lambda: FrozenDict({**given_values(ir), **dict(made)}))


def value_names(ir: IR) -> frozenset[str]:
    """Return the names of all values: graph inputs, external values and results of nodes."""
    made = [meta.name for node in ir.nodes for meta in node.outputs]
    return frozenset((*ir.input_names, *ir.external_values(), *made))


def symbols_in(metas: Iterable[TensorMeta]) -> frozenset[str]:
    """Return the symbols in the shapes of some values."""
    return _symbols([dim for meta in metas for dim in meta.shape])


def result_symbols(nodes: Iterable[OpNode]) -> frozenset[str]:
    """Return the symbols that nodes bind, and those in the shapes of their results."""
    found = [(node.binds, symbols_in(node.outputs)) for node in nodes]
    return frozenset[str]().union(*[symbols for pair in found for symbols in pair])


def positions(ir: IR) -> Mapping[str, int]:
    """Return the place of each node in the order of the graph, by the node's name."""
    order = ((node.name, place) for place, node in enumerate(ir.nodes))
    return ir.view(positions, lambda: FrozenDict(order))


def shown_symbols(metas: Iterable[TensorMeta]) -> frozenset[str]:
    """Return the symbols that are, alone, a dimension of some values."""
    dims = [dim for meta in metas for dim in meta.shape if isinstance(dim, SymExpr)]
    return frozenset([dim.text for dim in dims if dim.is_symbol])


def given_symbols(ir: IR) -> frozenset[str]:
    """Return the symbols to which the arguments of a call give their values."""
    return symbols_in(ir.graph_inputs) | _tree_symbols(signature_of(ir).inputs)


def told_symbols(ir: IR) -> frozenset[str]:
    """Return the symbols that the sizes of tensor arguments tell; of ``s0*s1`` neither is told."""
    dims = [dim for meta in ir.graph_inputs for dim in meta.shape if isinstance(dim, SymExpr)]
    return frozenset([name for dim in dims if len(dim.symbols) == 1 for name in dim.symbols])


def takes_free_number(ir: IR, node: OpNode) -> bool:
    """Return whether a node of a graph takes a number that no size of an argument tells.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   symbol s0: 1..
        ...   symbol s1: 0..
        ...   signature ((%x, `s1`), {}) -> %y
        ...   input %x: f32[s0]
        ...   %y: f32[] = aten.select.int(%x, dim=0, index=`s1`)
        ...   return %y
        ... }''')
        >>> takes_free_number(ir, ir.nodes[0])
        True
    """
    used = [symbol for value in node.attrs.values() for symbol in attribute_symbols(value)]
    return bool(used) and not symbols_in((*ir.graph_inputs, *node.inputs)).issuperset(used)


def require_symbols(ir: IR, names: Iterable[str]) -> None:
    """Raise unless a program has all of some symbols, to which values are given.

    Raises:
        InputError: It lacks one of them.
    """
    made = symbols_in(meta for node in ir.nodes for meta in node.outputs)
    known = [*dict.fromkeys([*ir.symbols, *sorted(given_symbols(ir) | made)])]
    for name in names:
        if name not in known:
            listed = f"The symbols are {', '.join(known)}." if known else "The program has none."
            remedy = did_you_mean(name, known) or listed
            raise InputError(f"there is no symbol {name!r}", remedy=remedy)


def returned_symbols(ir: IR) -> frozenset[str]:
    """Return the symbols in the results that are numbers."""
    return _tree_symbols(signature_of(ir).outputs)


def signature_of(ir: IR) -> Signature:
    """Return how values make up arguments and results; the tensors in order if nothing says it."""
    return ir.signature or Signature.of(ir.input_names, ir.output_names)


def _tree_symbols(tree: Tree) -> frozenset[str]:
    return _symbols(leaf.value for leaf in leaves(tree) if isinstance(leaf, ValueLeaf))


def _symbols(values: Iterable[object]) -> frozenset[str]:
    expressions = (item for item in values if isinstance(item, SymExpr))
    return frozenset([symbol for item in expressions for symbol in item.symbols])


def op_types(ir: IR) -> tuple[str, ...]:
    """Return the exact overloads that a program and its functions call, each once, in order."""
    return ir.view(op_types, lambda: tuple({node.op_type: None for _, _, node in ir.walk()}))


def walk(ir: IR, path: str = "") -> Iterator[tuple[str, IR, OpNode]]:
    """Yield the path, the graph and the node of every node, functions after their graph."""
    for inner, graph in graphs(ir, path):
        for node in graph.nodes:
            yield inner, graph, node


def graphs(ir: IR, path: str = "") -> Iterator[tuple[str, IR]]:
    """Yield the path and the graph of the program and of each function, functions after it."""
    yield path, ir
    for name, body in ir.functions.items():
        yield from graphs(body, f"{path}{name}/")


def has_complex(ir: IR) -> bool:
    """Return whether a value of the program or of a function of it is complex."""
    for _, graph in graphs(ir):
        values = [*graph.graph_inputs, *(value for _, value in graph.external_values().values())]
        values += [meta for node in graph.nodes for meta in node.outputs]
        if any(value.dtype.startswith("complex") for value in values):
            return True
    return False


def makes_sparse(ir: IR) -> bool:
    """Return whether the program or a function of it may make sparse tensors."""
    return any("sparse" in name for name in op_types(ir))


def result_names(ir: IR) -> tuple[str, ...]:
    """Return the name of each flattened result, empty for one that is no tensor."""
    found = leaves(signature_of(ir).outputs)
    return tuple([leaf.name if isinstance(leaf, TensorLeaf) else "" for leaf in found])


CUSTOM_GRADIENTS = "custom_gradients"
"""Key in the metadata of a program: the autograd functions whose own gradients were not traced."""


LAYOUTS = "layouts"
"""Key in the metadata of a program: the layout of each weight that is not dense, by its key."""


INPUT_LAYOUTS = "input_layouts"
"""Key in the metadata of a program: the layout of each input that is not dense, by its name."""


def layout_of(ir: IR, key: str) -> str:
    """Return the layout that a weight had when the program was extracted."""
    return _layout(ir.metadata.get(LAYOUTS), key)


def input_layout_of(ir: IR, name: str) -> str:
    """Return the layout that a graph input had when the program was extracted."""
    return _layout(ir.metadata.get(INPUT_LAYOUTS), name)


def _layout(layouts: object, name: str) -> str:
    return str(layouts.get(name, "strided")) if isinstance(layouts, FrozenDict) else "strided"


def listed_gradients(ir: IR) -> tuple[str, ...]:
    """Return the names of the autograd functions whose gradients one graph lacks."""
    names = ir.metadata.get(CUSTOM_GRADIENTS, ())
    return tuple(map(str, names if isinstance(names, tuple) else (names,)))


def custom_gradients(ir: IR) -> tuple[str, ...]:
    """Return the names of the autograd functions whose gradients were not traced."""
    found = [printable(name) for _, graph in graphs(ir) for name in listed_gradients(graph)]
    return tuple(dict.fromkeys(found))


def kept_values(ir: IR) -> frozenset[str]:
    """Return the names of the values that live on when the program ends: results and writes."""
    return ir.view(
        kept_values, lambda: frozenset((*ir.output_names, *(m.value.name for m in ir.mutations)))
    )


def written_values(ir: IR) -> frozenset[str]:
    """Return the names of what is given and written: in place, or when the program ends."""
    return ir.aliases.written.union(mutation.target for mutation in ir.mutations)


def shown_writes(ir: IR) -> tuple[Mutation, ...]:
    """Return what the program writes as it ends, if its results show any of that.

    A result that has, or may have, the storage of an input or buffer is seen after the write.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   mutate %x = %y
        ...   input %x: f32[2]
        ...   %y: f32[2] = aten.neg.default(%x)
        ...   return %x
        ... }''')
        >>> [write.target for write in shown_writes(ir)]
        ['x']
    """
    writes = tuple([m for m in ir.mutations if m.value.name != m.target])
    if not writes:
        return ()
    targets = frozenset[str]().union(*[ir.aliases.roots(m.target) for m in writes])
    is_shown = any(not targets.isdisjoint(ir.aliases.roots(name)) for name in ir.output_names)
    return writes if is_shown else ()


def last_uses(nodes: Sequence[OpNode], keep: Iterable[str]) -> dict[str, int]:
    """Return the position of the last node that makes or reads each value.

    Args:
        nodes: The nodes.
        keep: The values that something behind the last node reads: their position is there.
    """
    last = {m.name: i for i, n in enumerate(nodes) for m in (*n.outputs, *n.inputs)}
    return last | dict.fromkeys(keep, len(nodes))


def storage_ends(last: Mapping[str, int], roots: Mapping[str, Set[str]]) -> dict[str, int]:
    """Return the last use of each storage: that of the last value which may have it.

    Args:
        last: The last use of each value.
        roots: The storages that each value may have.
    """
    ends: dict[str, int] = {}
    for name, position in last.items():
        for root in roots[name]:
            ends[root] = max(position, ends.get(root, 0))
    return ends


def dead_after(nodes: Sequence[OpNode], keep: Iterable[str]) -> dict[str, list[str]]:
    """Return the values that no node needs after each node, by its name; but those to keep."""
    dead: dict[str, list[str]] = {}
    for name, position in last_uses(nodes, keep).items():
        if position < len(nodes):
            dead.setdefault(nodes[position].name, []).append(name)
    return dead


def nodes_behind(
    ir: IR, values: Iterable[str], known: Collection[str] = frozenset()
) -> list[OpNode]:
    """Return the nodes that values need, in order; what is known needs none where it is read."""
    found: set[str] = set()
    wanted = [*values]
    while wanted:
        node = ir.producers.get(wanted.pop())
        if node is not None and node.name not in found:
            found.add(node.name)
            wanted += [meta.name for meta in node.inputs if meta.name not in known]
    return [ir.nodes[place] for place in sorted(positions(ir)[name] for name in found)]


def live_out(ir: IR, nodes: Sequence[OpNode], *, unread: bool = False) -> list[TensorMeta]:
    """Return what some nodes make that others read, or that lives on when the program ends.

    Args:
        ir: The program.
        nodes: Some of its nodes.
        unread: Whether to return what nothing reads as well.
    """
    own = {node.name for node in nodes}
    kept = kept_values(ir)

    def is_live(name: str) -> bool:
        users = ir.users.get(name, ())
        return (
            name in kept or any(user.name not in own for user in users) or (unread and not users)
        )

    return [meta for node in nodes for meta in node.outputs if is_live(meta.name)]


def symbol_makers(ir: IR) -> Mapping[str, str]:
    """Return the node that decides the value of each symbol that the arguments do not give."""
    return ir.view(symbol_makers, lambda: _find_symbol_makers(ir))


def _find_symbol_makers(ir: IR) -> Mapping[str, str]:
    makers: dict[str, str] = {}
    if not ir.symbols:
        return makers
    given = ir.given_symbols
    for node in ir.nodes:
        dims = [dim for meta in node.outputs for dim in meta.shape]
        shown = [dim.text for dim in dims if isinstance(dim, SymExpr) and dim.is_symbol]
        for symbol in (*node.binds, *shown):
            if symbol not in given:
                makers.setdefault(symbol, node.name)
    return makers


def symbol_binders(ir: IR) -> Iterator[str]:
    """Yield the names of the nodes that give symbols their values."""
    known = set(given_symbols(ir)) if ir.symbols else set[str]()
    for node in ir.nodes:
        made = _symbols(dim for meta in node.outputs for dim in meta.shape if type(dim) is not int)
        if node.binds or not made <= known:
            known |= made | node.binds.keys()
            yield node.name


def effects(ir: IR, node: OpNode) -> Effects:
    """Return what a node does beside giving its results; of a call of functions, what they do."""
    if node.op_type.startswith("higher_order."):
        return _effects_of_functions(ir, node)
    found = effects_of(ir.schema_of(node.op_type), node.attrs)
    if not found.writes or node.slots.keys() >= {*found.writes}:
        return found
    return replace(found, writes=tuple([name for name in found.writes if name in node.slots]))


def _effects_of_functions(ir: IR, node: OpNode) -> Effects:
    bodies = [ir.functions[name] for name in node.functions if name in ir.functions]
    inner = [body.effects(called) for body in bodies for called in body.nodes]
    writes = any(body.aliases.written for body in bodies)  # which arguments, no schema says
    return Effects(
        draws=any(found.draws for found in inner),
        checks=any(found.checks for found in inner),
        is_known=not writes and all(found.is_known for found in inner),
    )


def has_default_dtype(ir: IR) -> bool:
    """Return whether torch's default dtype may decide what a node of a program gives.

    It does for numbers, where no operand and no argument has a floating-point type.

    Example:
        >>> from torch_ir import parse
        >>> [has_default_dtype(parse(f'''ir {{
        ...   input %x: {kind}[2]
        ...   %y: f32[2] = aten.mul.Tensor(%x, 0.5)
        ...   return %y
        ... }}''')) for kind in ("i64", "f32")]
        [True, False]
    """
    return any(
        node.op_type.startswith(("aten.", "prims."))
        and not isinstance(node.attrs.get("dtype"), DType)
        and any(_is_inexact(meta) for meta in node.outputs)
        and not any(_is_inexact(meta) for meta in node.inputs)
        for _, _, node in walk(ir)
    )


def _is_inexact(meta: TensorMeta) -> bool:
    return meta.dtype.startswith(("float", "bfloat", "complex"))
