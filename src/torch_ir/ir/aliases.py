"""The alias analysis of a graph: which values may share storage, and which storage is written.

It asks the tables of :mod:`torch_ir.ops` alone. Where they leave open whether a call copies, the
answer is that it may share; :meth:`Aliases.decided` takes a better one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from torch_ir.ir.node import OpNode, distinct_inputs
from torch_ir.ir.queries import kept_values, positions
from torch_ir.ir.tensor import TensorMeta
from torch_ir.ir.values import FunctionRef, attribute_leaves
from torch_ir.ops.aliases import BY_ITEM, Sharing, sharing
from torch_ir.ops.bodies import BODY_CALLS, BodyCall, operands_of_one_call
from torch_ir.ops.effects import effects, is_apart, never_writes
from torch_ir.ops.schema import Schema

if TYPE_CHECKING:
    from torch_ir.ir.graph import IR

Roots: TypeAlias = frozenset[str]
"""The values whose storage a value may have: graph inputs, weights and fresh results."""

_NOTHING: Roots = frozenset()


class Aliases:
    """Which values of a graph may share storage, and which of it is written.

    What a node writes counts wherever it shares storage. A node whose operator nobody knows writes
    nothing that is named here. Only what is asked for is computed.

    Example:
        >>> from torch_ir import parse
        >>> aliases = parse('''
        ... ir "View" {
        ...   input %x: f32[4]
        ...   %v: f32[2, 2] = aten.view.default(%x, [2, 2])
        ...   %y: f32[2, 2] = aten.relu_.default(%v)
        ...   %z: f32[2, 2] = aten.neg.default(%y)
        ...   return %v, %z
        ... }
        ... ''').aliases
        >>> aliases.written, aliases.roots("y"), dict(aliases.shared_results)
        (frozenset({'x'}), frozenset({'x'}), {'v': 'x'})
        >>> aliases.may_share("x", "y"), aliases.may_share("x", "z")
        (True, False)
    """

    def __init__(self, ir: IR, shares: Mapping[str, frozenset[str]] | None = None):
        self._ir = ir
        self._shares = shares or {}
        self._written: list[tuple[int, Sequence[TensorMeta]]] = []
        self._opaque: list[tuple[int, Sequence[TensorMeta]]] = []
        for position, node in enumerate(ir.nodes):
            schema = ir.schema_of(node.op_type)
            if schema is None or not never_writes(schema.text):
                written = written_tensors(ir, node)
                if written is None:
                    self._opaque.append((position, node.inputs))
                elif written:
                    self._written.append((position, written))

    def __repr__(self) -> str:
        return f"Aliases({self._ir!r})"

    @cached_property
    def written(self) -> frozenset[str]:
        """The graph inputs and external values whose storage a node writes."""
        if not self._written:
            return _NOTHING
        return self.written_roots & {*self._ir.input_names, *self._ir.external_values()}

    @cached_property
    def written_roots(self) -> Roots:
        """The values, of nodes too, whose storage a node writes."""
        return frozenset(root for _, roots in self._writes for root in roots)

    @property
    def is_open(self) -> bool:
        """Whether it has a node of which nothing says what it writes."""
        return bool(self._opaque)

    @cached_property
    def _writes(self) -> list[tuple[int, Roots]]:
        return [(position, self._union(metas)) for position, metas in self._written]

    @cached_property
    def _unknown(self) -> list[tuple[int, Roots]]:
        return [(position, self._union(metas)) for position, metas in self._opaque]

    @cached_property
    def _roots(self) -> dict[str, Roots]:
        return self._shared[0]

    @cached_property
    def _shared(self) -> tuple[dict[str, Roots], dict[str, dict[str, TensorMeta]]]:
        """The storages of each value that may have another's, and what nodes give back."""
        all_roots: dict[str, Roots] = {}
        all_sources: dict[str, dict[str, TensorMeta]] = {}
        ir, shares = self._ir, self._shares
        for node in ir.nodes:
            schema = ir.schema_of(node.op_type)
            if schema is not None and not shares and is_apart(schema.text):
                continue
            siblings = _siblings_in_bodies(ir, node)
            is_call = node.op_type.startswith("higher_order.")
            of_call = _sources_in_bodies(ir, node) if is_call else ()  # of every result alike
            for output in node.outputs:
                if output.name in shares:
                    seen = shares[output.name]
                    shared = [meta for meta in distinct_inputs(node) if meta.name in seen]
                    is_sure = True
                elif is_call:
                    shared, is_sure = of_call, False
                else:
                    shared, is_sure = possible_sources(ir, node, output)
                names = [*(meta.name for meta in shared), *siblings.get(output.name, ())]
                if shared:
                    sources = all_sources.setdefault(node.name, {})
                    sources.update({meta.name: meta for meta in shared})
                if names:
                    found = [all_roots.get(name) or frozenset({name}) for name in names]
                    own = _NOTHING if is_sure else frozenset({output.name})
                    all_roots[output.name] = own.union(*found)
        return all_roots, all_sources

    def _union(self, metas: Iterable[TensorMeta]) -> Roots:
        found = [self.roots(meta.name) for meta in metas]
        return found[0] if len(found) == 1 else frozenset[str]().union(*found)

    def roots(self, value: str) -> Roots:
        """Return the values whose storage a value may have; itself, if it may be fresh."""
        found = self._roots.get(value)
        return frozenset({value}) if found is None else found

    def sources(self, node: OpNode) -> tuple[TensorMeta, ...]:
        """Return the inputs of a node whose storage its results may have."""
        return tuple(self._shared[1].get(node.name, {}).values())

    def may_share(self, a: str, b: str) -> bool:
        """Return whether two values may share storage."""
        return not self.roots(a).isdisjoint(self.roots(b))

    def are_apart(self, values: Iterable[str]) -> bool:
        """Return whether no two of the values may share storage; one named twice does."""
        seen: set[str] = set()
        for value in values:
            roots = self.roots(value)
            if not seen.isdisjoint(roots):
                return False
            seen |= roots
        return True

    @cached_property
    def _touched(self) -> Roots:
        return frozenset(root for _, roots in (*self._writes, *self._unknown) for root in roots)

    def is_written(self, value: str) -> bool:
        """Return whether any node may write the value's storage."""
        return bool(self._touched) and not self._touched.isdisjoint(self.roots(value))

    def is_written_after(self, value: str, node: OpNode) -> bool:
        """Return whether a later node may write the value's storage."""
        return self._is_written_after(self.roots(value), positions(self._ir)[node.name])

    def _is_written_after(self, own: Roots, place: int) -> bool:
        later = (*self._writes, *self._unknown)
        return any(position > place and not own.isdisjoint(roots) for position, roots in later)

    @cached_property
    def undecided(self) -> frozenset[str]:
        """The nodes of which it matters, and no table says, whether their results are copies.

        It matters if something writes to that storage after them.
        """
        found: set[str] = set()
        for position, node in enumerate(self._ir.nodes if self._writes else ()):
            for output in node.outputs:
                own = self._roots.get(output.name, _NOTHING)
                is_open = output.name in own and output.name not in self._shares
                if is_open and self._is_written_after(own, position):
                    found.add(node.name)
        return frozenset(found)

    @cached_property
    def shared_results(self) -> Mapping[str, str]:
        """The results that may show an input, a weight or another result, each with its name.

        A result that is an input, as it is, is not among them.
        """
        ir = self._ir
        results = list(dict.fromkeys(ir.output_names))
        seen = {name: name for name in (*ir.input_names, *ir.external_values())}
        seen |= {name: name for name in results if name not in self._roots}
        shown: dict[str, str] = {}
        for name in results:
            roots = self._roots.get(name, _NOTHING)
            found = sorted(root for root in roots if root in seen)
            if found:
                shown[name] = seen[found[0]]
            else:
                seen |= dict.fromkeys(roots, name)
        return shown

    def decided(self, shares: Mapping[str, frozenset[str]]) -> Aliases:
        """Return the same analysis with what is known of single results.

        Args:
            shares: The inputs of its node whose storage a result has, by the result's name.
        """
        return Aliases(self._ir, {**self._shares, **shares}) if shares else self


def possible_sources(
    ir: IR, node: OpNode, output: TensorMeta
) -> tuple[tuple[TensorMeta, ...], bool]:
    """Return the inputs whose storage a result may have, and whether it surely has one's.

    Of a call of functions, :meth:`Aliases.sources` knows them, for all results at once.
    """
    schema = ir.schema_of(node.op_type)
    if schema is None:
        return tuple(node.inputs), False
    found: list[TensorMeta] = []
    is_sure = False
    for source in declared_sources(schema, node, output.producer_output_idx):
        if source.when is Sharing.ALWAYS:
            is_sure = True
        elif source.when is not Sharing.BY_LAYOUT and not _may_show(ir, node, source, output):
            continue
        found.append(source.meta)
    return tuple(found), is_sure


class DeclaredSource(NamedTuple):
    """An input whose storage a result may have, by the table of its operator.

    Attributes:
        argument: The argument that it is, or is an item of.
        when: When it is shared.
        meta: The input.
    """

    argument: str
    when: Sharing
    meta: TensorMeta


def declared_sources(schema: Schema, node: OpNode, index: int) -> list[DeclaredSource]:
    """Return the inputs whose storage a result, by its place, may have, whatever is decided."""
    declared = sharing(schema)
    shared = declared[max(0, min(index, len(declared) - 1))] if declared else {}
    if not shared:
        return []
    is_by_item, first = schema.op_type in BY_ITEM, len(declared) - 1
    return [
        DeclaredSource(argument, when, meta)
        for argument, when in shared.items()
        for place, meta in enumerate(node.tensors(argument))
        if not is_by_item or place == index - first
    ]


def _may_show(ir: IR, node: OpNode, source: DeclaredSource, output: TensorMeta) -> bool:
    """Return whether a result may have the storage of one tensor, by what the node says.

    What a flag makes draw gives new numbers; of a list, at most a tensor alone is given back.
    """
    if source.meta.dtype != output.dtype:
        return False
    if source.when is Sharing.BY_DTYPE:
        return node.attrs.get("copy") is not True
    return (
        len(node.tensors(source.argument)) == 1
        and not effects(ir.schema_of(node.op_type), node.attrs).draws
    )


def _sources_in_bodies(ir: IR, node: OpNode) -> tuple[TensorMeta, ...]:
    """Return the inputs of a call of functions whose storage its results may have."""
    called = bodies_called(ir, node) if operands_of_one_call(node.op_type) else None
    if called:
        body = called[0].body
        roots = frozenset[str]().union(*[body.aliases.roots(name) for name in body.output_names])
        return tuple([meta for name, (_, meta) in called[0].given.items() if name in roots])
    bodies = [ir.functions.get(name) for name in node.functions]
    is_apart = bool(bodies) and all(
        body is not None and _gives_fresh_results(body) for body in bodies
    )
    return () if is_apart else tuple(node.inputs)


def _siblings_in_bodies(ir: IR, node: OpNode) -> dict[str, list[str]]:
    """Return earlier results of a call of functions whose storage each may have, by its name.

    Of those that share one storage it is the first: all others have that of it.
    """
    found: dict[str, list[str]] = {}
    for body in [ir.functions.get(name) for name in node.functions]:
        first: dict[str, str] = {}
        names = None if body is None else body.output_names
        for meta in node.outputs:
            if body is None or names is None:
                roots: Iterable[str] = ("",)  # of a function that is not there, all may share
            elif meta.producer_output_idx < len(names):
                roots = body.aliases.roots(names[meta.producer_output_idx])
            else:
                continue
            owners = {first.setdefault(root, meta.name) for root in roots}
            found.setdefault(meta.name, []).extend(sorted(owners - {meta.name}))
    return found


class CalledBody(NamedTuple):
    """One function that a node calls.

    Attributes:
        argument: The argument that refers to it.
        name: Its name.
        body: The function.
        how: How the operator calls it.
        given: By input of the function, the argument of which it is an item, or a row or an
            element of one, and that item.
    """

    argument: str
    name: str
    body: IR
    how: BodyCall
    given: Mapping[str, tuple[str, TensorMeta]]

    @property
    def written(self) -> Mapping[str, tuple[str, TensorMeta]]:
        """What it writes of what it is given."""
        return {name: self.given[name] for name in self.given if name in self.body.aliases.written}


def bodies_called(ir: IR, node: OpNode) -> tuple[CalledBody, ...] | None:
    """Return the functions that a node calls; None where nothing says how it calls them all."""
    found: list[CalledBody] = []
    known = BODY_CALLS.get(node.op_type)
    for argument, how in (known or {}).items():
        for item in attribute_leaves(node.attrs.get(argument)):
            if isinstance(item, FunctionRef):
                if item.name not in ir.functions:
                    return None
                body = ir.functions[item.name]
                lists = [(name, meta) for name in how.takes for meta in node.tensors(name)]
                if how.scalar_of:
                    lists = [*((how.scalar_of, m) for m in node.tensors(how.scalar_of)), *lists]
                names = [*body.input_names]
                del names[bool(how.scalar_of) : bool(how.scalar_of) + how.indices]
                given = dict(zip(names, lists, strict=False))
                found.append(CalledBody(argument, item.name, body, how, given))
    return None if known is None else tuple(found)


def _gives_fresh_results(body: IR) -> bool:
    given = {*body.input_names, *body.external_values()}
    return all(given.isdisjoint(body.aliases.roots(name)) for name in body.output_names)


def written_tensors(ir: IR, node: OpNode) -> tuple[TensorMeta, ...] | None:
    """Return the inputs that a node writes; None where nothing says which.

    Those of a call of functions are what these write.
    """
    if node.op_type.startswith("higher_order."):
        called = bodies_called(ir, node)
        if called is None or any(one.body.aliases.is_open for one in called):
            return None
        written = [meta for one in called for _, meta in one.written.values()]
        return tuple({meta.name: meta for meta in written}.values())
    effects_of_node = ir.effects(node)
    if not effects_of_node.is_known:
        return None
    return tuple([meta for name in effects_of_node.writes for meta in node.tensors(name)])


class StorageGroups:
    """Groups of values that may share storage, which grow as values are put for one another.

    Example:
        >>> from torch_ir import parse
        >>> groups = StorageGroups(parse('''
        ... ir "View" {
        ...   input %x: f32[4]
        ...   %a: f32[4] = aten.neg.default(%x)
        ...   %b: f32[2, 2] = aten.view.default(%a, [2, 2])
        ...   return %b
        ... }
        ... '''))
        >>> groups.is_seen("a"), groups.is_written("a"), groups.join("a", "x")
        (True, False, False)
    """

    def __init__(self, ir: IR):
        self._groups: dict[str, str] = {}
        aliases = ir.aliases
        for node in ir.nodes:
            for meta in node.outputs:
                for root in aliases.roots(meta.name) - {meta.name}:
                    self._groups[self._find(meta.name)] = self._find(root)
        given = (*ir.input_names, *ir.external_values())
        values = (*given, *(meta.name for node in ir.nodes for meta in node.outputs))
        self._written = {self._find(name) for name in values if aliases.is_written(name)}
        self._seen = {self._find(name) for name in (*given, *kept_values(ir))}

    def _find(self, name: str) -> str:
        groups = self._groups
        while (parent := groups.get(name, name)) != name:
            groups[name] = groups.get(parent, parent)
            name = parent
        return name

    def is_written(self, name: str) -> bool:
        """Return whether something in the program may write the value's storage."""
        return self._find(name) in self._written

    def is_seen(self, name: str) -> bool:
        """Return whether the value may alias a graph input, a weight or a result."""
        return self._find(name) in self._seen

    def join(self, copy: str, source: str) -> bool:
        """Let one value stand for another of equal content, if no write or caller can tell.

        Returns False, and changes nothing, where either is written or both are seen.
        """
        first, second = self._find(copy), self._find(source)
        if first in self._written or second in self._written:
            return False
        if first != second and first in self._seen and second in self._seen:
            return False
        if first in self._seen:
            self._seen.add(second)
        self._groups[first] = second
        return True
