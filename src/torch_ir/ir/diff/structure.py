"""The difference of two IRs by structure: what is computed from what, whatever its name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from torch_ir.errors import counted, printable_lines
from torch_ir.frozen import identical
from torch_ir.ir.diff.alignment import Keys, align
from torch_ir.ir.diff.stat import KINDS, DiffStat, stat_of
from torch_ir.ir.graph import IR
from torch_ir.ir.node import OpNode, module_of
from torch_ir.ir.queries import external_keys
from torch_ir.ir.tensor import Constant, TensorMeta
from torch_ir.ir.text.constants import spell_constant
from torch_ir.ir.text.lexer import quote, sigil, word
from torch_ir.ir.text.printer import located_node_text, scope_of
from torch_ir.ir.text.trees import spell_tree
from torch_ir.ir.text.value_text import spell_type, spell_value
from torch_ir.ir.tree import map_names
from torch_ir.ir.values import FunctionRef
from torch_ir.ops.schema import Slots
from torch_ir.tables import Shown

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Change(Shown):
    """One difference.

    Attributes:
        what: ``"node"``, ``"input"``, ``"output"``, ``"weight"``, ``"constant"``, ``"alias"``,
            ``"symbol"``, ``"mutation"``, ``"signature"``, ``"dialect"`` or ``"function"``.
        name: Which one: the node's name, the key, the position.
        before: Its text in the first IR; None if it was added.
        after: Its text in the second IR; None if it was removed.
        details: What exactly changed in it: ``stride [1, 1] -> [2, 2]``. Empty if it was replaced
            as a whole.
        function: The function that it is in, ``"body/inner"``; empty for the program itself.
        operators: Of a node, what it calls, before and after.
    """

    what: str
    name: str
    before: str | None
    after: str | None
    details: tuple[str, ...] = ()
    function: str = ""
    operators: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """``"added"``, ``"removed"``, ``"changed"`` (with details) or ``"replaced"``."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed" if self.details else "replaced"

    def __str__(self) -> str:
        if self.details:
            lines = [f"~ {self.after}", *(f"    {detail}" for detail in self.details)]
        else:
            sides = (("-", self.before), ("+", self.after))
            lines = [f"{sign} {side}" for sign, side in sides if side is not None]
        return printable_lines("\n".join(lines))

    def to_dict(self) -> dict[str, Any]:
        """Convert the change to plain data, for JSON."""
        return {
            "kind": self.kind,
            "what": self.what,
            "name": self.name,
            "function": self.function,
            "before": self.before,
            "after": self.after,
            "details": list(self.details),
        }


@dataclass(frozen=True, slots=True)
class Diff(Shown):
    """Every difference between two IRs; false if there is none. ``print`` shows the report."""

    changes: tuple[Change, ...] = ()

    def __repr__(self) -> str:
        return f"Diff({counted(len(self.changes), 'change')})"

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __str__(self) -> str:
        if not self.changes:
            return "no difference"
        counts = Counter(change.kind for change in self.changes)
        lines = [", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])]
        function = ""
        for change in self.changes:
            if change.function != function:
                function = change.function
                lines.append(f"in {sigil('&', function)}:")
            lines.append(str(change))
        return "\n".join(lines)

    def stat(self) -> DiffStat:
        """Count the changes by kind, by operator and by function.

        Example:
            >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
            >>> def ir(name):
            ...     return IR([OpNode("y", f"aten.{name}.default", [x], [y])], [x], [y], [])
            >>> dict(diff(ir("exp"), ir("log")).stat().by_operator)
            {'aten.exp.default': 1, 'aten.log.default': 1}
        """
        return stat_of(self.changes)

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain data, for JSON."""
        return {
            "equal": not self.changes,
            "changes": [change.to_dict() for change in self.changes],
        }


def diff(a: IR, b: IR) -> Diff:
    """Compare two IRs by structure.

    Values are matched by how they are made: a graph input by its position, a weight or constant by
    its key, a result by its node, and nodes in program order, so that renaming every value changes
    nothing. A function under another name is the same if nothing else differs. Order of nodes
    counts. Not compared: locations, metadata, the model's name and torch's version, and what a
    reference claims about its producer.

    Returns:
        The differences: false if there are none.

    Example:
        >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> def ir(alpha):
        ...     add = OpNode("y", "aten.add.Tensor", [x, x], [y], {"alpha": alpha})
        ...     return IR([add], [x], [y], [])
        >>> print(diff(ir(1), ir(2)))
        1 changed
        ~ %y: f32[2] = aten.add.Tensor(%x, %x, alpha=2)
            alpha 1 -> 2
        >>> bool(diff(ir(1), ir(1)))
        False
    """
    return Diff(tuple(_changes(a, b)))


def node_pairs(a: IR, b: IR) -> dict[int, tuple[int, bool]]:
    """Match the nodes of two graphs, as :func:`diff` does; functions are graphs of their own.

    Returns:
        For the position of a node of ``a`` that has one in ``b``: its position there, and whether
        the two are the same call.
    """
    pairing = _paired(a, b)
    return {old: (new, not any(_pair(pairing, old, new))) for old, new in pairing.match.items()}


def _paired(a: IR, b: IR) -> _Pairing:
    pairing = _Pairing(_Side(a), _Side(b), len(a.nodes))
    same = _common_start(pairing)
    if not same == len(a.nodes) == len(b.nodes):
        pairing.match = dict(align(_levels(a.nodes, b.nodes), same))
    return pairing


def _changes(a: IR, b: IR) -> Iterator[Change]:
    pairing = _paired(a, b)
    before, after = pairing.before, pairing.after
    nodes = [*_nodes(pairing)]
    yield from _declarations(a, b, pairing)
    yield from _positions("input", before, after, a.graph_inputs, b.graph_inputs, _same_type)
    yield from nodes
    yield from _positions(
        "output", before, after, a.graph_outputs, b.graph_outputs, pairing.is_same
    )
    yield from _mutations(pairing)
    yield from _signatures(pairing)
    for name in sorted(a.functions.keys() & b.functions.keys()):
        for change in _changes(a.functions[name], b.functions[name]):
            path = f"{name}/{change.function}" if change.function else name
            yield replace(change, function=path)


# -- values ---------------------------------------------------------------------------------------

Identity: TypeAlias = tuple[str, Any, int]
"""How a value is made: by which node and as which result, as which input, under which key."""


class _Side:
    """One of the two IRs, with what each name in it is."""

    def __init__(self, ir: IR):
        self.ir = ir
        self.scope = scope_of(ir)
        self.identities: dict[str, Identity] = {}
        for position, meta in enumerate(ir.graph_inputs):
            self.identities.setdefault(meta.name, ("input", position, 0))
        for number, node in enumerate(ir.nodes):
            for position, meta in enumerate(node.outputs):
                self.identities.setdefault(meta.name, ("node", number, position))
        for name, key in external_keys(ir).items():
            self.identities.setdefault(name, ("key", key, 0))

    def identity(self, name: str) -> Identity:
        """How the value of that name is made; a name without definition is only itself."""
        return self.identities.get(name) or ("undefined", name, 0)

    def claim(self, meta: TensorMeta) -> tuple[Any, ...] | None:
        """The type that a reference claims where it is not that of the definition."""
        definition = self.scope.find("%", meta.name)
        if definition is not None and _same_type(definition, meta):
            return None
        return meta.dtype, meta.shape

    def node_text(self, number: int) -> str:
        return located_node_text(self.ir.nodes[number], self.scope.reference)


class _Pairing:
    """Both sides, and which node of the second each node of the first corresponds to."""

    def __init__(self, before: _Side, after: _Side, count: int):
        self.before = before
        self.after = after
        self.match: dict[int, int] = {number: number for number in range(count)}
        self._functions: dict[tuple[str, str], bool] = {}

    def is_same_function(self, old: str, new: str) -> bool:
        """Whether two functions have one name, or differ in nothing but their names."""
        if old == new:
            return True
        a, b = self.before.ir.functions.get(old), self.after.ir.functions.get(new)
        if (old, new) not in self._functions:
            same = a is not None and b is not None and next(_changes(a, b), None) is None
            self._functions[old, new] = same
        return self._functions[old, new]

    def renamed_functions(self) -> frozenset[str]:
        """The functions that nodes call under two names, by both."""
        pairs = [pair for pair, is_same in self._functions.items() if is_same]
        return frozenset([name for pair in pairs for name in pair])

    def is_same_value(self, old: object, new: object) -> bool:
        """Whether two attributes are the same; a function may have another name."""
        if isinstance(old, FunctionRef) and isinstance(new, FunctionRef):
            return self.is_same_function(old.name, new.name)
        return identical(old, new)

    def across(self, name: str) -> Identity:
        """The identity on the second side that a name of the first has."""
        kind, number, position = self.before.identity(name)
        if kind == "node":
            return (kind, self.match.get(number), position)
        return (kind, number, position)

    def is_same(self, old: TensorMeta, new: TensorMeta) -> bool:
        """Whether two references are to the same value, and say the same of it."""
        return self.across(old.name) == self.after.identity(new.name) and self.before.claim(
            old
        ) == self.after.claim(new)


def _same_type(old: TensorMeta, new: TensorMeta) -> bool:
    return old.dtype == new.dtype and old.shape == new.shape


# -- nodes ----------------------------------------------------------------------------------------


def _common_start(pairing: _Pairing) -> int:
    """How many nodes are the same, one by one, before the first that is not."""
    pairs = zip(pairing.before.ir.nodes, pairing.after.ir.nodes, strict=False)
    return next(
        (
            number
            for number, (old, new) in enumerate(pairs)
            if old.op_type != new.op_type or any(_node_details(pairing, old, new))
        ),
        min(len(pairing.before.ir.nodes), len(pairing.after.ir.nodes)),
    )


def _levels(a: Sequence[OpNode], b: Sequence[OpNode]) -> list[tuple[Keys, Keys]]:
    """The notions under which nodes correspond: all that is said of them, then less and less."""

    def types(node: OpNode) -> tuple[Any, ...]:
        return tuple([(meta.dtype, meta.shape) for meta in node.outputs])

    def call(node: OpNode) -> tuple[Any, ...]:
        attrs = ",".join(f"{name}={spell_value(node.attrs[name])}" for name in sorted(node.attrs))
        return (node.op_type, attrs, types(node))

    notions: list[Callable[[OpNode], Any]] = [
        lambda node: (*call(node), module_of(node)),
        call,
        lambda node: (node.op_type, module_of(node)),
        lambda node: node.op_type,
        types,
    ]
    return [(_hashes(a, notion), _hashes(b, notion)) for notion in notions]


def _hashes(nodes: Sequence[OpNode], notion: Callable[[OpNode], Any]) -> list[int]:
    return [hash(notion(node)) for node in nodes]


def _nodes(pairing: _Pairing) -> Iterator[Change]:
    before, after = pairing.before, pairing.after
    ends = [*pairing.match.items(), (len(before.ir.nodes), len(after.ir.nodes))]
    next_old = next_new = 0
    for old, new in ends:
        for number in range(next_old, old):
            node, text = before.ir.nodes[number], before.node_text(number)
            yield Change("node", node.name, text, None, operators=(node.op_type,))
        for number in range(next_new, new):
            node, text = after.ir.nodes[number], after.node_text(number)
            yield Change("node", node.name, None, text, operators=(node.op_type,))
        next_old, next_new = old + 1, new + 1
        if old < len(before.ir.nodes):
            yield from _pair(pairing, old, new)


def _pair(pairing: _Pairing, old: int, new: int) -> Iterator[Change]:
    a, b = pairing.before.ir.nodes[old], pairing.after.ir.nodes[new]
    details = () if a.op_type != b.op_type else tuple(_node_details(pairing, a, b))
    if details or a.op_type != b.op_type:
        texts = pairing.before.node_text(old), pairing.after.node_text(new)
        operators = tuple(dict.fromkeys((a.op_type, b.op_type)))
        yield Change("node", b.name, *texts, details, operators=operators)


def _node_details(pairing: _Pairing, old: OpNode, new: OpNode) -> Iterator[str]:
    """What differs between two calls of one operator."""
    if old is not new and old.attrs != new.attrs:
        for name in sorted(old.attrs.keys() | new.attrs.keys()):
            if not pairing.is_same_value(old.attrs.get(name, ...), new.attrs.get(name, ...)):
                values = [
                    spell_value(node.attrs[name]) if name in node.attrs else "unset"
                    for node in (old, new)
                ]
                yield f"{word(name)} {values[0]} -> {values[1]}"
    a, b = _tensors(old), _tensors(new)
    for name in [*a, *(name for name in b if name not in a)]:
        if not _same_argument(pairing, a.get(name, ...), b.get(name, ...)):
            texts = (
                _argument_text(pairing.before, a.get(name, ...)),
                _argument_text(pairing.after, b.get(name, ...)),
            )
            yield f"{word(name)} {texts[0]} -> {texts[1]}"
    yield from _result_details(old, new)


def _result_details(old: OpNode, new: OpNode) -> Iterator[str]:
    if old.binds != new.binds:
        yield f"binds {_binds_text(old)} -> {_binds_text(new)}"
    if len(old.outputs) != len(new.outputs):
        yield f"{len(old.outputs)} results -> {len(new.outputs)}"
        return
    for a, b in zip(old.outputs, new.outputs, strict=True):
        if not _same_type(a, b):
            yield f"{sigil('%', b.name)} {_type(a)} -> {_type(b)}"
        if a.producer_output_idx != b.producer_output_idx:
            yield f"{sigil('%', b.name)} #{a.producer_output_idx} -> #{b.producer_output_idx}"


def _binds_text(node: OpNode) -> str:
    binds = [f"{word(symbol)}#{index}" for symbol, index in sorted(node.binds.items())]
    return ", ".join(binds) or "nothing"


Argument: TypeAlias = Any
"""Tensors of an argument: a TensorMeta, None, a slot without input, a tuple; ``...`` if unset."""


def _tensors(node: OpNode) -> dict[str, Argument]:
    """What each argument of a call takes; what no argument takes stands under ``inputs``."""
    if node.operands is None:
        return {"inputs": node.inputs}
    taken: set[int] = set()

    def tensor(slot: int | None) -> Argument:
        if slot is None or not 0 <= slot < len(node.inputs):
            return slot
        taken.add(slot)
        return node.inputs[slot]

    def argument(slots: Slots) -> Argument:
        return tuple(map(tensor, slots)) if isinstance(slots, tuple) else tensor(slots)

    tensors = {name: argument(slots) for name, slots in node.operands.items()}
    if len(taken) < len(node.inputs):
        rest = [meta for index, meta in enumerate(node.inputs) if index not in taken]
        tensors["unused inputs"] = tuple(rest)
    return tensors


def _same_argument(pairing: _Pairing, old: Argument, new: Argument) -> bool:
    if isinstance(old, TensorMeta) and isinstance(new, TensorMeta):
        return pairing.is_same(old, new)
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) == len(new) and all(  # pyright: ignore[reportUnknownVariableType]  # Any inside
            _same_argument(pairing, a, b) for a, b in zip(old, new, strict=True)
        )
    return type(old) is type(new) and old == new


def _argument_text(side: _Side, value: Argument) -> str:
    if isinstance(value, TensorMeta):
        return side.scope.reference(value)
    if isinstance(value, tuple):
        items: tuple[Argument, ...] = value  # pyright: ignore[reportUnknownVariableType]  # Any inside
        return f"[{', '.join(_argument_text(side, item) for item in items)}]"
    return "unset" if value is ... else "None" if value is None else f"#{value}"


def _type(meta: TensorMeta) -> str:
    return spell_type(meta.dtype, meta.shape)


# -- everything else ------------------------------------------------------------------------------


def _declarations(a: IR, b: IR, pairing: _Pairing) -> Iterator[Change]:
    """Dialect, symbols, weights, constants, aliases and functions that are on one side only."""

    def weights(ir: IR) -> dict[str, tuple[str, ...]]:
        types: dict[str, tuple[str, ...]] = {}
        for meta in ir.weights:
            types[meta.name] = (*types.get(meta.name, ()), _type(meta))
        return types

    yield from _entries("dialect", "", {"": a.dialect}, {"": b.dialect}, quote, "{1}")
    yield from _entries("symbol", "", a.symbols, b.symbols, str, "{0}: {1}")
    yield from _entries("weight", "@", weights(a), weights(b), ", ".join, "{0}: {1}")
    yield from _entries("constant", "@", a.constants, b.constants, _constant_text, "{0}: {1}")
    key = partial(sigil, "@")
    yield from _entries("alias", "@", a.weight_aliases, b.weight_aliases, key, "{0} = {1}")
    guards = {g.text: g for g in a.guards}, {g.text: g for g in b.guards}
    yield from _entries("guard", "", *guards, spell_value, "{1}")
    yield from _entries("operator", "", a.operators, b.operators, quote, "{1}")
    known = pairing.renamed_functions()
    only = [
        dict.fromkeys([*(x.functions.keys() - y.functions.keys() - known)], 0)
        for x, y in ((a, b), (b, a))
    ]
    yield from _entries("function", "&", only[0], only[1], lambda _: "", "{0}")


def _entries(
    what: str,
    mark: str,
    a: Mapping[str, T],
    b: Mapping[str, T],
    spell: Callable[[T], str],
    form: str,
) -> Iterator[Change]:
    """What differs between two mappings."""
    for name in sorted(a.keys() | b.keys()):
        if name in a and name in b and a[name] == b[name]:
            continue
        label = sigil(mark, name) if mark else word(name)
        keyword = "func" if what == "function" else what
        old, new = [
            f"{keyword} {form.format(label, spell(side[name]))}" if name in side else None
            for side in (a, b)
        ]
        yield Change(what, name, old, new)


def _constant_text(constant: Constant) -> str:
    return f"{spell_type(constant.dtype, constant.shape)} = {spell_constant(constant)}"


def _positions(
    what: str,
    before: _Side,
    after: _Side,
    a: Sequence[TensorMeta],
    b: Sequence[TensorMeta],
    same: Callable[[TensorMeta, TensorMeta], bool],
) -> Iterator[Change]:
    """What differs between two lists whose elements correspond by position."""

    def text(side: _Side, metas: Sequence[TensorMeta], position: int) -> str | None:
        if position >= len(metas):
            return None
        name = side.scope.name(metas[position].name)
        return f"{what} {position}: {name}: {_type(metas[position])}"

    for position in range(max(len(a), len(b))):
        if position < min(len(a), len(b)) and same(a[position], b[position]):
            continue
        yield Change(what, str(position), text(before, a, position), text(after, b, position))


def _mutations(pairing: _Pairing) -> Iterator[Change]:
    def text(side: _Side, target: str, value: TensorMeta) -> str:
        return f"mutate {side.scope.name(target)} = {side.scope.reference(value)}"

    left = list(pairing.after.ir.mutations)
    for old in pairing.before.ir.mutations:
        target = pairing.across(old.target)
        found = next(
            (
                new
                for new in left
                if pairing.after.identity(new.target) == target
                and pairing.is_same(old.value, new.value)
            ),
            None,
        )
        if found is None:
            yield Change("mutation", old.target, text(pairing.before, old.target, old.value), None)
        else:
            left.remove(found)
    for new in left:
        yield Change("mutation", new.target, None, text(pairing.after, new.target, new.value))


def _signatures(pairing: _Pairing) -> Iterator[Change]:
    a, b = pairing.before.ir.signature, pairing.after.ir.signature
    for part in ("inputs", "outputs"):
        old, new = (None if side is None else getattr(side, part) for side in (a, b))
        if old is None and new is None:
            continue
        if old is not None and new is not None:
            old_names = map_names(old, lambda name: repr(pairing.across(name)))
            if old_names == map_names(new, lambda name: repr(pairing.after.identity(name))):
                continue
        texts = [
            None if tree is None else f"signature {part}: {spell_tree(tree)}"
            for tree in (old, new)
        ]
        yield Change("signature", part, texts[0], texts[1])
