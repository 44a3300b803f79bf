"""The fingerprint of a program: a hash that names and the order of nodes do not change.

Each part is a list, written as JSON without spaces, and hashed with SHA-256; what it refers to
stands in it as that hash, in hexadecimal. ``docs/format.md`` has the lists, so that another
language can compute the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch_ir.arguments import public
from torch_ir.ir.aliases import written_tensors
from torch_ir.ir.expressions.language import renamed
from torch_ir.ir.functions import CALLS, inline_scopes
from torch_ir.ir.graph import IR
from torch_ir.ir.node import OpNode
from torch_ir.ir.symbols import SymExpr
from torch_ir.ir.tensor import Constant, TensorMeta
from torch_ir.ir.text.value_text import spell_value
from torch_ir.ir.tree import Container, TensorLeaf, Tree
from torch_ir.ir.values import (
    Attribute,
    DType,
    FunctionRef,
    default_attribute,
    is_plain,
    map_attribute,
)
from torch_ir.ops.effects import TYPE_CHECKS
from torch_ir.ops.schema import Schema

VERSION = 1

Part: TypeAlias = "list[Any]"

SIZES = frozenset(
    {"size", "sizes", "shape", "normalized_shape", "split_size", "split_sizes", "output_size"}
)
"""Arguments that are shapes, which a fingerprint without shapes leaves out."""


@public
def fingerprint(ir: IR, *, shapes: bool = True, dtypes: bool = True, keys: bool = True) -> str:
    """Return a hash that is equal for programs that differ in names and order alone.

    A value counts by how it is made: a graph input by its position, a weight by its key, a
    constant by its content, a result by its node, and a node by its exact overload, what stands
    for each argument (with defaults filled in), and its branches and loops; a call of a function
    is what the function does. What writes, draws random numbers, prints or may refuse its data is
    chained in program order, and what reads such memory comes after the write. The program is its
    inputs, outputs, mutations, signature, guards and symbols, and each node as often as it occurs.
    Names, locations, origins, metadata and torch's version count nowhere.

    Args:
        ir: The program.
        shapes: Whether sizes count; without them only the number of dimensions does.
        dtypes: Whether dtypes count.
        keys: Whether the keys of weights count; without them a weight is its type, which finds
            equal layers.

    Returns:
        64 hexadecimal digits, the same in every process.

    Example:
        >>> from torch_ir import parse
        >>> def program(name, operator):
        ...     return parse(f'''ir {{
        ...       input %x: f32[2]
        ...       %{name}: f32[2] = aten.{operator}.default(%x)
        ...       return %{name}
        ...     }}''')
        >>> fingerprint(program("a", "exp")) == fingerprint(program("b", "exp"))
        True
        >>> fingerprint(program("a", "exp")) == fingerprint(program("a", "log"))
        False
    """
    return _Hasher(inline_scopes(ir, CALLS), _Options(shapes, dtypes, keys)).program()


def function_fingerprints(ir: IR, **options: bool) -> dict[str, str]:
    """Return the fingerprint of each function of a program, by its name.

    Args:
        ir: The program.
        options: As those of :func:`fingerprint`.
    """
    return {name: fingerprint(body, **options) for name, body in ir.functions.items()}


@dataclass(frozen=True, slots=True)
class _Options:
    shapes: bool
    dtypes: bool
    keys: bool


def _hashed(part: Part) -> str:
    return hashlib.sha256(json.dumps(part, separators=(",", ":")).encode()).hexdigest()


class _Hasher:
    """Hashes one graph, node after node."""

    def __init__(self, ir: IR, options: _Options):
        self.ir = ir
        self.options = options
        self.symbols: dict[str, str] = {}
        self.values: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self.chain = ""
        self.last_write: dict[str, str] = {}
        self.writes = any(not ir.effects(node).is_pure for node in ir.nodes)

    def program(self) -> str:
        """The hash of the whole."""
        ir = self.ir
        self._name_symbols()
        inputs = [self._type(meta) for meta in ir.graph_inputs]
        for index, meta in enumerate(ir.graph_inputs):
            self.values[meta.name] = _hashed(["input", index])
        for name, (key, value) in ir.external_values().items():
            self.values.setdefault(name, _hashed(self._external(key, value)))
        nodes = sorted([self._node(node) for node in ir.nodes])
        mutations = [[self._value(m.target), self._result(m.value.name)] for m in ir.mutations]
        signature = ir.signature
        trees = [] if signature is None else [signature.inputs, signature.outputs]
        guards = sorted({self._attribute(guard) for guard in ir.guards})
        ranges = sorted(
            [[self._symbol(n), r.lower, r.upper] for n, r in ir.symbols.items()], key=str
        )
        return _hashed(
            [
                *("torch-ir fingerprint", VERSION, inputs),
                [self._result(meta.name) for meta in ir.graph_outputs],
                *(sorted(mutations), [self._tree(tree) for tree in trees], guards),
                *(ranges if self.options.shapes else [], nodes),
            ]
        )

    # -- symbols ----------------------------------------------------------------------------------

    def _name_symbols(self) -> None:
        """Number the symbols of the inputs: first those that are a dimension by themselves."""
        dims = [dim for meta in self.ir.graph_inputs for dim in meta.shape]
        found = [dim for dim in dims if isinstance(dim, SymExpr)]
        for dim in sorted(found, key=lambda dim: not dim.is_symbol):
            for symbol in dim.symbols:
                self.symbols.setdefault(symbol, f"i{len(self.symbols)}")

    def _symbol(self, name: str) -> str:
        return self.symbols.setdefault(name, f"o{len(self.symbols)}")

    def _expression(self, value: SymExpr) -> str:
        known = {
            name: f"{'z' * name.startswith('z')}{self._symbol(name)}" for name in value.symbols
        }
        return str(SymExpr(renamed(value.text, lambda word: known.get(word, word))))

    # -- values -----------------------------------------------------------------------------------

    def _type(self, meta: TensorMeta | Constant) -> Part:
        sizes = [dim if type(dim) is int else self._attribute(dim) for dim in meta.shape]
        dtype = meta.dtype if self.options.dtypes else ""
        return [dtype, sizes if self.options.shapes else len(meta.shape)]

    def _external(self, key: str, value: TensorMeta | Constant) -> Part:
        if isinstance(value, Constant):
            view = value.view
            place = [] if view is None else [list(view.strides), view.offset]
            return ["constant", value.dtype, list(value.shape), value.digest(), place]
        return ["weight", key if self.options.keys else "", self._type(value)]

    def _value(self, name: str) -> str:
        return self.values.get(name) or _hashed(["undefined", name])

    def _result(self, name: str) -> list[str]:
        """A value when the program ends: with the last write to its memory."""
        return [self._value(name), *self._written(name)]

    def _written(self, name: str) -> list[str]:
        if not self.last_write:
            return []
        roots = self.ir.aliases.roots(name) & self.last_write.keys()
        return sorted({self.last_write[root] for root in roots})

    def _attribute(self, value: Attribute) -> str:
        if type(value) is not FunctionRef and is_plain(value):
            return spell_value(value)
        return spell_value(map_attribute(value, self._leaf))

    def _leaf(self, value: Attribute) -> Attribute:
        if isinstance(value, SymExpr):
            return f"`{self._expression(value)}`"
        if isinstance(value, FunctionRef):
            return f"&{self._function(value.name)}"
        return "" if isinstance(value, DType) and not self.options.dtypes else value

    def _function(self, name: str) -> str:
        if name not in self.functions:
            body = self.ir.functions.get(name)
            made = name if body is None else _Hasher(body, self.options).program()
            self.functions[name] = made
        return self.functions[name]

    def _tree(self, tree: Tree) -> Part:
        if isinstance(tree, Container):
            keys = [self._attribute(key) for key in tree.keys]
            context = str(tree.context)
            return [tree.type, keys, context, [self._tree(child) for child in tree.children]]
        if isinstance(tree, TensorLeaf):
            return ["tensor", self._value(tree.name)]
        return ["value", self._attribute(tree.value)]

    # -- nodes ------------------------------------------------------------------------------------

    def _node(self, node: OpNode) -> str:
        """Hash a node, and note what its results are."""
        schema = self.ir.schema_of(node.op_type)
        is_free = self.ir.effects(node).is_pure or node.op_type in TYPE_CHECKS
        order = [] if is_free else ["after", self.chain]
        if self.writes and self._reads_data(node):
            order += sorted({at for meta in node.inputs for at in self._written(meta.name)})
        base = _hashed(["node", node.op_type, self._arguments(node, schema), order])
        self._name_made_symbols(node, base)
        types = [[meta.producer_output_idx, self._type(meta)] for meta in node.outputs]
        binds = sorted([[self._symbol(symbol), index] for symbol, index in node.binds.items()])
        made = _hashed(["results", base, types, binds])
        for meta in node.outputs:
            self.values[meta.name] = _hashed(["result", made, meta.producer_output_idx])
        if not is_free:
            self.chain = made
            self._note_writes(node, made)
        return made

    def _reads_data(self, node: OpNode) -> bool:
        """Whether a node is more than a view of its input."""
        roots = self.ir.aliases.roots
        return not node.outputs or any(meta.name in roots(meta.name) for meta in node.outputs)

    def _note_writes(self, node: OpNode, made: str) -> None:
        written = written_tensors(self.ir, node)
        for meta in node.inputs if written is None else written:
            for root in self.ir.aliases.roots(meta.name):
                self.last_write[root] = made

    def _name_made_symbols(self, node: OpNode, base: str) -> None:
        new = [dim for meta in node.outputs for dim in meta.shape if isinstance(dim, SymExpr)]
        names = [name for dim in new for name in dim.symbols]
        names += sorted(node.binds, key=lambda symbol: node.binds[symbol])
        for name in dict.fromkeys(names):
            if name not in self.symbols:
                made = sum(token.startswith(f"n{base[:16]}") for token in self.symbols.values())
                self.symbols[name] = f"n{base[:16]}_{made}"

    def _arguments(self, node: OpNode, schema: Schema | None) -> Part:
        given: Mapping[str, Any] = {**dict.fromkeys(node.slots), **dict.fromkeys(node.attrs)}
        names: Sequence[str] = sorted(given)
        defaults: dict[str, Any] = {}
        if schema is not None:
            declared = [a for a in schema.arguments if a.default is not None]
            defaults = {a.name: default_attribute(a) for a in declared}
            names = [a.name for a in schema.arguments if a.name in given or a.name in defaults]
            names = [*names, *sorted(given.keys() - {a.name for a in schema.arguments})]
        if node.op_type.startswith("higher_order."):
            names = [name for name in names if name != "identifier"]
        if not self.options.shapes:
            names = [name for name in names if name not in SIZES]
        return [[name, *self._argument(node, name, defaults)] for name in names]

    def _argument(self, node: OpNode, name: str, defaults: Mapping[str, Any]) -> Part:
        slots = node.slots.get(name)
        values = node.attrs.get(name, None if slots is not None else defaults.get(name))
        text = self._attribute(values)
        if slots is None:
            return [text]
        listed = slots if isinstance(slots, tuple) else (slots,)
        tensors = [None if i is None else self._value(node.inputs[i].name) for i in listed]
        return [text, tensors if isinstance(slots, tuple) else tensors[0]]
