"""The order of nodes: one in which less memory is needed at one time."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from torch_ir.ir import IR
from torch_ir.ir.queries import kept_values


def scheduled(ir: IR, storages: Iterable[tuple[int, Iterable[str]]]) -> IR:
    """Return the program with its nodes in an order that frees memory early.

    Of the nodes that may come next, the one that takes least more than it frees comes first (list
    scheduling), the earlier one of equals. Nodes with effects keep their order, and none is
    moved before a node that binds a symbol.

    Args:
        ir: A functional program.
        storages: The bytes and the values of each storage that the nodes make.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[4]
        ...   %a: f32[4, 4] = aten.expand_copy.default(%x, size=[4, 4])
        ...   %b: f32[4, 4] = aten.expand_copy.default(%x, size=[4, 4])
        ...   %c: f32[4] = aten.sum.dim_IntList(%a, dim=[0])
        ...   %d: f32[4] = aten.sum.dim_IntList(%b, dim=[0])
        ...   return %c, %d
        ... }''')
        >>> made = [(4 * 4 ** len(n.outputs[0].shape), [n.name]) for n in ir.nodes]
        >>> [node.name for node in scheduled(ir, made).nodes]
        ['a', 'c', 'b', 'd']
    """
    sizes, home, users = _storages(ir, storages)
    waits, followers = _order(ir)
    made: set[int] = set()

    def need(index: int) -> int:
        node = ir.nodes[index]
        new = {home[v.name] for v in node.outputs if v.name in home} - made
        used = {home[v.name] for v in node.inputs if v.name in home} | new
        return sum(sizes[s] for s in new) - sum(sizes[s] for s in used if users[s] <= {index})

    ready = [(need(index), index) for index, count in enumerate(waits) if not count]
    heapq.heapify(ready)
    done = [False] * len(ir.nodes)
    order: list[int] = []
    while ready:
        cost, index = heapq.heappop(ready)
        if done[index]:
            continue
        if cost != (now := need(index)):  # another node has used the last but one of a storage
            heapq.heappush(ready, (now, index))
            continue
        done[index] = True
        order.append(index)
        node = ir.nodes[index]
        for storage in {home[v.name] for v in (*node.inputs, *node.outputs) if v.name in home}:
            users[storage].discard(index)
            made.add(storage)
            for last in users[storage] if len(users[storage]) == 1 else ():
                if last < len(waits) and not waits[last]:
                    heapq.heappush(ready, (need(last), last))
        for other in followers[index]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(ready, (need(other), other))
    return ir.replace(nodes=[ir.nodes[index] for index in order])


def _storages(
    ir: IR, storages: Iterable[tuple[int, Iterable[str]]]
) -> tuple[list[int], Mapping[str, int], list[set[int]]]:
    """Return the size of each storage, the storage of each value, and the users of each."""
    sizes: list[int] = []
    home: dict[str, int] = {}
    for size, values in storages:
        home.update(dict.fromkeys(values, len(sizes)))
        sizes.append(size)
    users: list[set[int]] = [set() for _ in sizes]
    for index, node in enumerate(ir.nodes):
        for value in node.inputs:
            if value.name in home:
                users[home[value.name]].add(index)
    for name in kept_values(ir):
        if name in home:
            users[home[name]].add(len(ir.nodes))  # the caller
    return sizes, home, users


def _order(ir: IR) -> tuple[list[int], list[list[int]]]:
    """Return how many nodes each node waits for, and which wait for it."""
    makers: dict[str, int] = {}
    waits = [0] * len(ir.nodes)
    followers: list[list[int]] = [[] for _ in ir.nodes]
    effect = binder = None
    for index, node in enumerate(ir.nodes):
        before = {makers[value.name] for value in node.inputs if value.name in makers}
        if not ir.effects(node).is_pure:
            before |= set() if effect is None else {effect}
            effect = index
        before |= set() if binder is None else {binder}
        if node.binds:
            binder = index
        for earlier in before:
            followers[earlier].append(index)
        waits[index] = len(before)
        makers.update({value.name: index for value in node.outputs})
    return waits, followers
