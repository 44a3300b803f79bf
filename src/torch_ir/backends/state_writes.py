"""Large buffers of which a program writes a part: torch writes it in place.

In a functional program such a write gives a whole new buffer. A delegate that gives it copies all
of a cache of keys to write the row of one token; here it gives the row, and torch writes that. A
runtime that can write in the memory of an argument does so itself where nothing else reads it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Mapping, Sequence, Set

from torch_ir.ir import IR, Mutation, OpNode, TensorMeta
from torch_ir.ir.builder import Names, renamed, with_inputs

_PARTS: Mapping[str, tuple[str, str]] = {
    "aten.index_copy.default": ("source", "aten.index_copy_.default"),
    "aten.index_put.default": ("values", "aten.index_put_.default"),
    "aten.scatter.src": ("src", "aten.scatter_.src"),
    "aten.select_scatter.default": ("src", "aten.select.int"),
    "aten.slice_scatter.default": ("src", "aten.slice.Tensor"),
}
"""Operators that write a part of a tensor: the argument that holds the part, and the operator that
writes it in place, or that gives the view of it."""

_LEAST_BYTES, _SMALL = 1 << 16, 4
"""A call of torch costs more than to copy less; parts are at most one in so many elements."""


def with_writes_apart(ir: IR, whole: Set[str] = frozenset()) -> IR:
    """Return a functional program in which what reads a buffer after a write has its own copy.

    The write itself is then torch's: see :func:`is_state_write`.

    Args:
        ir: The program.
        whole: The nodes that stay as they are, by name.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   weight @k: f32[256, 64]
        ...   mutate @k = %w
        ...   input %x: f32[1, 64]
        ...   input %i: i64[1]
        ...   %w: f32[256, 64] = aten.index_copy.default(@k, 0, %i, %x)
        ...   %y: f32[256] = aten.sum.dim_IntList(%w, [1])
        ...   return %y
        ... }''')
        >>> [node.name for node in with_writes_apart(ir).nodes]
        ['w_read', 'w', 'y']
        >>> [is_state_write(node, with_writes_apart(ir)) for node in with_writes_apart(ir).nodes]
        [False, True, False]
    """
    shared = {node.name for node in _writes(ir) if node.outputs[0].name in ir.users} - whole
    if not shared:
        return ir
    names, nodes, read = Names.of(ir), list[OpNode](), dict[str, TensorMeta]()
    for node in ir.nodes:
        if node.name in shared:
            copy = renamed(node, names.fresh(f"{node.name}_read"))
            read[node.outputs[0].name] = copy.outputs[0]
            nodes.append(copy)
        nodes.append(with_inputs(node, read))
    return ir.replace(nodes=nodes)


def is_state_write(node: OpNode, ir: IR) -> bool:
    """Return whether a node writes a part of a large buffer, and nothing else reads the result."""
    found = ir.view("state writes", lambda: frozenset([write.name for write in _writes(ir)]))
    return node.name in found and node.outputs[0].name not in ir.users


def is_state_update(node: OpNode, ir: IR) -> bool:
    """Return whether a node writes a part of a large buffer that nothing else reads before.

    Whoever runs it may write in the buffer's own memory, and twice as well as once.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   weight @k: f32[256, 64]
        ...   mutate @k = %w
        ...   input %x: f32[1, 64]
        ...   input %i: i64[1]
        ...   %w: f32[256, 64] = aten.index_copy.default(@k, 0, %i, %x)
        ...   %y: f32[256] = aten.sum.dim_IntList(%w, [1])
        ...   return %y
        ... }''')
        >>> [is_state_update(node, ir) for node in ir.nodes]
        [True, False]
    """
    return node.name in ir.view("state updates", lambda: _updates(ir))


def updated(ir: IR, nodes: Sequence[OpNode], op_types: Container[str]) -> dict[str, str]:
    """Return the new values of buffers that some nodes may give in the memory of the old.

    Args:
        ir: The program, functional.
        nodes: Those of its nodes that one delegate runs.
        op_types: The operators that its runtime can run so.

    Returns:
        The name of the old value by that of the new.
    """
    return {
        node.outputs[0].name: node.inputs[_own(node)].name
        for node in nodes
        if node.op_type in op_types and is_state_update(node, ir)
    }


def in_place(ir: IR, delegates: Container[str]) -> IR:
    """Return the program with those writes in place, at its end, where no value shows the buffer.

    Args:
        ir: A functional program.
        delegates: The nodes whose results have memory of their own, whatever they call.
    """
    alone = _alone(ir, delegates)
    chosen = {
        node.name: node
        for node in _writes(ir)
        if is_state_write(node, ir) and node.inputs[_own(node)].name in alone
    }
    if not chosen:
        return ir
    names = Names.of(ir)
    last = [step for node in chosen.values() for step in _steps(node, names)]
    made = {node.outputs[0].name: node.inputs[_own(node)] for node in chosen.values()}
    return ir.replace(
        nodes=[*[node for node in ir.nodes if node.name not in chosen], *last],
        mutations=[Mutation(m.target, made.get(m.value.name, m.value)) for m in ir.mutations],
    )


def _writes(ir: IR) -> Sequence[OpNode]:
    """The nodes that give a large buffer its last value by a write of a small part."""
    external, found = ir.external_values(), list[OpNode]()
    results = set(ir.output_names)
    kept = {mutation.value.name for mutation in ir.mutations}  # read after all nodes
    for mutation in ir.mutations:
        node = ir.producers.get(mutation.value.name)
        if node is None or node.op_type not in _PARTS or mutation.target not in external:
            continue
        own, part = node.tensor("self"), node.tensor(_PARTS[node.op_type][0])
        if own is None or part is None or own.name != mutation.target or own.name in kept:
            continue
        if results.isdisjoint((own.name, mutation.value.name)) and _is_small(part, own):
            found.append(node)
    return found


def _updates(ir: IR) -> frozenset[str]:
    found = [node for node in _writes(ir) if len(ir.users[node.inputs[_own(node)].name]) == 1]
    if not found:
        return frozenset()
    alone = _alone(ir, ())
    return frozenset(
        [
            node.name
            for node in found
            if node.inputs[_own(node)].name in alone and not node.attrs.get("accumulate")
        ]
    )


def _is_small(part: TensorMeta, whole: TensorMeta) -> bool:
    if (whole.nbytes or 0) < _LEAST_BYTES or part.dtype != whole.dtype:
        return False
    # one that varies may be anything: then it costs less to give it than to give the whole
    sizes = [dim if isinstance(dim, int) else 1 for dim in part.shape]
    return math.prod(sizes) * _SMALL <= math.prod([d for d in whole.shape if isinstance(d, int)])


def _alone(ir: IR, delegates: Container[str]) -> frozenset[str]:
    """The weights whose memory no other value may have."""
    given = [meta for node in ir.nodes if node.name in delegates for meta in node.outputs]
    nodes = [node for node in ir.nodes if node.name not in delegates]
    rest = ir.replace(nodes=nodes, graph_inputs=[*ir.graph_inputs, *given])
    external = rest.external_values()
    values = [*rest.input_names, *external, *[m.name for n in nodes for m in n.outputs]]
    holders = Counter(root for name in values for root in rest.aliases.roots(name))
    keys = Counter(key for key, _ in external.values())
    return frozenset(
        name for name, (key, _) in external.items() if holders[name] == 1 and keys[key] == 1
    )


def _own(node: OpNode) -> int:
    place = node.slots["self"]
    assert isinstance(place, int)  # noqa: S101  # each of these operators writes one tensor
    return place


def _steps(node: OpNode, names: Names) -> list[OpNode]:
    """The calls that write in place what a functional call gives."""
    argument, op_type = _PARTS[node.op_type]
    if op_type.split(".")[1].endswith("_"):
        return [node.replace(op_type=op_type)]
    own, part = node.inputs[_own(node)], node.tensor(argument)
    assert part is not None  # noqa: S101  # who chose the node has looked
    name = names.beside(node.name, "part")
    view = TensorMeta(name, part.shape, own.dtype, name)
    return [
        OpNode(name, op_type, [own], [view], node.attrs, {"self": 0}, node.location),
        OpNode(
            node.name,
            "aten.copy_.default",
            [view, part],
            [view.replace(name=node.outputs[0].name, producer_node=node.name)],
            {},
            {"self": 0, "src": 1},
            node.location,
        ),
    ]
