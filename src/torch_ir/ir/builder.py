"""The builder of changed graphs: new nodes, free names, and values in place of others."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from torch_ir.ir.constants import needed_constants
from torch_ir.ir.graph import IR, Mutation, SymbolRange
from torch_ir.ir.node import Location, OpNode, needs
from torch_ir.ir.queries import external_keys, given_values, kept_values, live_out, tables_for
from torch_ir.ir.symbols import Dim, SymExpr
from torch_ir.ir.tensor import Constant, TensorMeta
from torch_ir.ir.tree import Container, Signature, TensorLeaf, Tree, map_names, tensor_names
from torch_ir.ir.tree import leaves as tree_leaves
from torch_ir.ir.values import Attribute, OperatorRef, attribute_leaves, map_attribute
from torch_ir.ops.schema import Slots


class Names:
    """Gives names that no value or node of a graph has yet.

    Example:
        >>> names = Names({"relu"})
        >>> names.fresh("relu"), names.fresh("relu"), names.fresh("add")
        ('relu_1', 'relu_2', 'add')
    """

    def __init__(self, taken: Iterable[str] = ()):
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    @classmethod
    def of(cls, ir: IR) -> Names:
        """Return the names that a graph leaves free."""
        return cls((*ir.value_names, *(node.name for node in ir.nodes)))

    def release(self, name: str) -> None:
        """Let a name be chosen again, since nothing has it any more."""
        self._taken.discard(name)

    def fresh(self, wanted: str) -> str:
        """Return the wanted name, or the first of ``wanted_1``, ``wanted_2``, … that is free."""
        if wanted not in self._taken:
            self._taken.add(wanted)
            return wanted
        stem = re.sub(r"_\d+$", "", wanted)
        number = self._next.get(stem, 1)
        while (name := f"{stem}_{number}") in self._taken:
            number += 1
        self._next[stem] = number + 1
        self._taken.add(name)
        return name

    def beside(self, name: str, part: str) -> str:
        """Return a free name for a part of what stands for the node of that name."""
        return self.fresh(f"{name}_{part}")


SIZE = "aten.sym_size.int"
ASSERTION = "aten._assert_scalar.default"


def size_read(
    name: str, meta: TensorMeta, axis: int, symbol: str, location: Location | None = None
) -> OpNode:
    """Return a node that binds a symbol to a size of a value."""
    attrs, slots = {"dim": axis}, {"self": 0}
    return OpNode(name, SIZE, [meta], [], attrs, slots, location, binds={symbol: 0})


def assertion(name: str, condition: str, message: str, location: Location | None = None) -> OpNode:
    """Return a node that raises an error with a message where a condition on symbols fails."""
    attrs = {"self": SymExpr(condition), "assert_msg": message}
    return OpNode(name, ASSERTION, [], [], attrs, {}, location)


def with_inputs(node: OpNode, values: Mapping[str, TensorMeta]) -> OpNode:
    """Replace those inputs of a node that are named."""
    if not values or values.keys().isdisjoint([meta.name for meta in node.inputs]):
        return node
    return node.replace(inputs=tuple([values.get(meta.name, meta) for meta in node.inputs]))


def with_attributes(node: OpNode, change: Callable[[Attribute], Attribute]) -> OpNode:
    """Change each leaf of a node's attributes, in the same lists and dicts."""
    attrs = {name: map_attribute(value, change) for name, value in node.attrs.items()}
    return node.replace(attrs=attrs)


def renamed(node: OpNode, name: str) -> OpNode:
    """Rename a node and its outputs; it stays made of what it was made of.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   %a: f32[1], %b: f32[1] = pair: aten.split.Tensor(%x, 1)
        ...   return %b
        ... }''')
        >>> [meta.name for meta in renamed(ir.nodes[0], "c").outputs]
        ['c.0', 'c.1']
    """

    def output(meta: TensorMeta) -> TensorMeta:
        own = f".{meta.producer_output_idx}" if len(node.outputs) > 1 else ""
        suffix = meta.name[len(node.name) :] if meta.name.startswith(node.name) else own
        return meta.replace(name=name + suffix, producer_node=name)

    outputs = tuple([output(meta) for meta in node.outputs])
    return node.replace(name=name, outputs=outputs).derived_from(node)


def with_leaves(tree: Tree, values: Mapping[str, TensorMeta]) -> Tree:
    """Replace those leaves of a tree that are named."""
    return map_names(tree, lambda name: values[name].name if name in values else name)


def split_arguments(
    arguments: Mapping[str, Any],
) -> tuple[tuple[TensorMeta, ...], dict[str, Any], dict[str, Slots]]:
    """Return the inputs, attributes and operands of a node that is given these arguments.

    Example:
        >>> x = TensorMeta("x", (2,), "float32")
        >>> inputs, attrs, operands = split_arguments({"self": x, "other": x, "alpha": 2})
        >>> len(inputs), attrs, operands
        (2, {'alpha': 2}, {'self': 0, 'other': 1})
    """
    inputs: list[TensorMeta] = []
    attrs: dict[str, Any] = {}
    operands: dict[str, Slots] = {}
    for name, value in arguments.items():
        items = cast(Sequence[Any], value if isinstance(value, list | tuple) else (value,))
        if not any(isinstance(item, TensorMeta) for item in items):
            attrs[name] = value
            continue
        slots: list[int | None] = []
        for item in items:
            is_tensor = isinstance(item, TensorMeta)
            slots.append(len(inputs) if is_tensor else None)
            inputs += [item] if is_tensor else []
        operands[name] = tuple(slots) if items is value else slots[0]
        rest = tuple([None if isinstance(item, TensorMeta) else item for item in items])
        if any(item is not None for item in rest):
            attrs[name] = rest
    return tuple(inputs), attrs, operands


class Builder:
    r"""A graph on its way to a changed one: nodes are added in order, values replaced by others.

    Args:
        ir: The graph to start from. It is never changed.
        dialect: The dialect of the result, if it is another.

    Attributes:
        ir: The graph to start from.
        nodes: The nodes so far.
        functions: The functions of the result.
        operators: Schemas of library operators that the result needs besides those of ``ir``.
        symbols: Ranges of symbols that the result has besides those of ``ir``.

    Example:
        >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> ir = IR([OpNode("y", "aten.relu.default", [x], [y])], [x], [y], [])
        >>> builder = Builder(ir)
        >>> for node in ir.nodes:
        ...     kept = builder.keep(node)
        >>> builder.finish() is ir
        True
        >>> results = [((2,), "float32")]
        >>> (z,) = builder.emit("aten.neg.default", {"self": y}, like=kept, results=results)
        >>> builder.replace(y, z)
        >>> print(*builder.finish().nodes, sep="\n")
        %y: f32[2] = aten.relu.default(%x)
        %neg: f32[2] = aten.neg.default(%y)
    """

    def __init__(self, ir: IR, *, dialect: str | None = None):
        self.ir = ir
        self.nodes: list[OpNode] = []
        self.functions = dict(ir.functions)
        self.operators: dict[str, str] = {}
        self.symbols: dict[str, SymbolRange] = {}
        self._dialect = dialect or ir.dialect
        self._values: dict[str, TensorMeta] = {}
        self._constants: dict[str, Constant] = {}
        self._returned: tuple[Sequence[TensorMeta], Signature | None] | None = None
        self._mutations: tuple[Mutation, ...] | None = None

    def __repr__(self) -> str:
        return f"Builder({self.ir!r}, {len(self.nodes)} nodes so far)"

    @cached_property
    def names(self) -> Names:
        """Names that no value and no node has yet."""
        return Names.of(self.ir)

    # -- nodes ------------------------------------------------------------------------------------

    def mapped(self, node: OpNode) -> OpNode:
        """Return a node with what stands for its inputs now."""
        return with_inputs(node, self._values)

    def keep(self, node: OpNode) -> OpNode:
        """Append a node with what stands for its inputs now, and return it."""
        node = self.mapped(node)
        self.nodes.append(node)
        return node

    def emit(
        self,
        op_type: str,
        arguments: Mapping[str, Any],
        *,
        like: OpNode | None = None,
        results: Sequence[tuple[tuple[Dim, ...], str]] | None = None,
        name: str | None = None,
    ) -> tuple[TensorMeta, ...]:
        """Append a call of an operator, and return its results.

        Args:
            op_type: The operator's exact overload.
            arguments: Tensors, lists of them, and attributes, by argument.
            like: The node whose location and origins the call has. Without ``results`` the call
                stands in its place, under its name and with its outputs.
            results: Shape and dtype of each result.
            name: A name that is wanted; if it is taken, a similar one is chosen.
        """
        inputs, attrs, operands = split_arguments(arguments)
        location = None if like is None else like.location
        if results is None and like is not None:
            node = OpNode(like.name, op_type, inputs, like.outputs, attrs, operands, location)
            return tuple(self.keep(node.derived_from(like)).outputs)
        own = self.names.fresh(name or op_type.split(".")[1].strip("_"))
        types = results or ()
        made = [
            TensorMeta(own if len(types) == 1 else f"{own}.{i}", shape, dtype, own, i)
            for i, (shape, dtype) in enumerate(types)
        ]
        node = OpNode(own, op_type, inputs, made, attrs, operands, location)
        self.keep(node if like is None else node.derived_from(like))
        return tuple(made)

    # -- values -----------------------------------------------------------------------------------

    def value(self, meta: TensorMeta) -> TensorMeta:
        """Return what stands for a value now."""
        return self._values.get(meta.name, meta)

    def replace(self, old: TensorMeta, new: TensorMeta) -> None:
        """Let a value stand for another from here on."""
        self._values[old.name] = self.value(new)

    def constant(self, value: Constant, name: str, *, shared: bool = True) -> TensorMeta:
        """Return a constant of the result; equal ones that are added are stored once.

        Args:
            value: The constant.
            name: A name that is wanted; if it is taken, a similar one is chosen.
            shared: Whether it may be one that was added before; if not, it has its own name.
        """
        for known, other in self._constants.items() if shared else ():
            if (other.shape, other.dtype) == (value.shape, value.dtype) and other == value:
                return TensorMeta(known, value.shape, value.dtype)
        ir = self.ir
        keys = {
            *ir.constants,
            *(meta.name for meta in ir.weights),
            *ir.weight_name_mapping.values(),
        }
        while (own := self.names.fresh(name)) in keys:  # nodes may use it under another name
            continue
        self._constants[own] = value
        return TensorMeta(own, value.shape, value.dtype)

    # -- the whole --------------------------------------------------------------------------------

    def map_functions(self, change: Callable[[IR], IR]) -> None:
        """Change every function."""
        self.functions = {name: change(body) for name, body in self.functions.items()}

    def add_function(self, body: IR, name: str) -> str:
        """Add a function, and return its name: the wanted one or a similar one that is free."""
        own = Names(self.functions).fresh(name)
        self.functions[own] = body
        return own

    def returns(
        self,
        outputs: Sequence[TensorMeta],
        signature: Signature | None,
        mutations: Sequence[Mutation] | None = None,
    ) -> None:
        """Give the result other outputs, for a pass that changes what a program returns.

        Args:
            outputs: The graph outputs.
            signature: The structure of arguments and results.
            mutations: What the program writes; None for what it wrote before.
        """
        self._returned = tuple(outputs), signature
        self._mutations = None if mutations is None else tuple(mutations)

    def finish(self) -> IR:
        """Return the changed graph; the one to start from if nothing was changed.

        Constants, functions and schemas of operators go that were used and are no more.
        """
        ir = self.ir
        outputs, signature = self._settled()
        mutations = self._mutations
        if mutations is None:
            mutations = tuple([self._mutation(mutation) for mutation in ir.mutations])
        wanted = {
            "nodes": _old_if_same(ir.nodes, self.nodes),
            "graph_outputs": _old_if_same(ir.graph_outputs, outputs),
            "mutations": _old_if_same(ir.mutations, mutations),
            "signature": signature,
            "functions": _old_if_equal(ir.functions, self.functions),
            "constants": {**ir.constants, **self._constants} if self._constants else ir.constants,
            "operators": {**ir.operators, **self.operators} if self.operators else ir.operators,
            "symbols": {**ir.symbols, **self.symbols} if self.symbols else ir.symbols,
            "dialect": self._dialect,
        }
        changes = {name: new for name, new in wanted.items() if new is not getattr(ir, name)}
        return without_unused(ir, ir.replace(**changes)) if changes else ir

    def _settled(self) -> tuple[Sequence[TensorMeta], Signature | None]:
        if self._returned is not None:
            return self._returned
        signature = self.ir.signature
        if signature is not None and not self._values.keys().isdisjoint(
            tensor_names(signature.outputs)
        ):
            signature = replace(signature, outputs=with_leaves(signature.outputs, self._values))
        return [self.value(meta) for meta in self.ir.graph_outputs], signature

    def _mutation(self, mutation: Mutation) -> Mutation:
        value = self.value(mutation.value)
        return mutation if value is mutation.value else Mutation(mutation.target, value)


def _old_if_same(old: Sequence[Any], new: Sequence[Any]) -> Sequence[Any]:
    is_same = len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))
    return old if is_same else tuple(new)


def _old_if_equal(old: Mapping[str, IR], new: Mapping[str, IR]) -> Mapping[str, IR]:
    is_same = [*old] == [*new] and all(old[name] is body for name, body in new.items())
    return old if is_same else new


# -- what nothing uses any more -------------------------------------------------------------------


def without_unused(before: IR, after: IR) -> IR:
    """Return the graph without what was used before and is no more."""
    changes: dict[str, Any] = {}
    if before.constants and (gone := _unused_constants(before, after)):
        changes["constants"] = {k: v for k, v in after.constants.items() if k not in gone}
        changes["weight_name_mapping"] = {
            name: key for name, key in after.weight_name_mapping.items() if key not in gone
        }
    if after.functions:
        called = {name for node in after.nodes for name in node.functions}
        gone = {name for node in before.nodes for name in node.functions} - called
        gone |= after.functions.keys() - before.functions.keys() - called
        changes["functions"] = {k: v for k, v in after.functions.items() if k not in gone}
    if before.operators and (gone := _operators(before) - _operators(after)):
        changes["operators"] = {k: v for k, v in after.operators.items() if k not in gone}
    changes = {name: new for name, new in changes.items() if len(new) < len(getattr(after, name))}
    return after.replace(**changes) if changes else after


def _unused_constants(before: IR, after: IR) -> set[str]:
    still = _used_keys(after)
    gone = (_used_keys(before) - still) & after.constants.keys()
    views = [after.constants[key].view for key in gone]
    gone |= {view.base for view in views if view is not None} - still
    return gone - needed_constants(after.constants, after.constants.keys() - gone).keys()


def _used_keys(ir: IR) -> set[str]:
    names = {*kept_values(ir), *ir.users, *(mutation.target for mutation in ir.mutations)}
    if ir.signature is not None:
        names.update(tensor_names(ir.signature.outputs), tensor_names(ir.signature.inputs))
    return {ir.weight_name_mapping.get(name, name) for name in names}


def _operators(ir: IR) -> set[str]:
    values = [value for node in ir.nodes for value in node.attrs.values()]
    leaves = [item for value in values for item in attribute_leaves(value)]
    named = {item.name for item in leaves if isinstance(item, OperatorRef)}
    return named.union(node.op_type for node in ir.nodes)


# -- parts and changed copies ---------------------------------------------------------------------


def subgraph(ir: IR, nodes: Sequence[OpNode], outputs: Sequence[TensorMeta] | None = None) -> IR:
    """Return some nodes of a graph as a program: it takes what they take from elsewhere.

    Weights and constants become graph inputs too. There is no signature, and nothing is written.

    Args:
        ir: The graph.
        nodes: Some of its nodes, in order.
        outputs: What the program returns, values that it only takes among it; None for the
            results that are used elsewhere.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   %a: f32[2] = aten.relu.default(%x)
        ...   %b: f32[2] = aten.neg.default(%a)
        ...   %c: f32[2] = aten.exp.default(%b)
        ...   return %c
        ... }''')
        >>> print(subgraph(ir, ir.nodes[1:2]))
        ir {
          input %a: f32[2]
          %b: f32[2] = aten.neg.default(%a)
          return %b
        }
    """
    if outputs is None:
        outputs = live_out(ir, nodes)
    taken = needs(nodes, outputs)
    given = {name: TensorMeta(name, meta.shape, meta.dtype) for name, meta in taken.items()}
    changes: dict[str, Any] = {
        **tables_for(ir, nodes, outputs),
        "nodes": [with_inputs(node, given) for node in nodes],
        "graph_inputs": tuple(given.values()),
        "graph_outputs": outputs,
        "weights": (),
        "weight_name_mapping": {},
        "weight_aliases": {},
        "constants": {},
        "mutations": (),
        "signature": None,
        "guards": (),
        "metadata": {},
    }
    return ir.replace(**changes)


def with_weights_as_inputs(ir: IR, keys: Collection[str] | None = None) -> IR:
    """Return the program with weights that it uses as arguments, the last positional ones.

    Args:
        ir: The program.
        keys: Of which weights and constants, in the order of the arguments; of all weights if
            not given.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   weight @fc.bias: f32[2]
        ...   %a: f32[2] = aten.add.Tensor(%x, @fc.bias)
        ...   return %a
        ... }''')
        >>> with_weights_as_inputs(ir).input_names
        ('x', 'fc.bias')
    """
    values = ir.external_values()
    if keys is None:
        weights = {meta.name for meta in ir.weights}
        keys = dict.fromkeys([key for key, _ in values.values() if key in weights])
    external = {name: item for name, item in values.items() if item[0] in keys}
    kept = [meta.name for node in ir.nodes for meta in node.outputs]
    names = Names((*kept, *ir.input_names, *(values.keys() - external.keys())))
    types = dict(external.values())
    metas = {
        key: TensorMeta(names.fresh(key), types[key].shape, types[key].dtype)
        for key in keys
        if key in types
    }
    named = {name: metas[key] for name, (key, _) in external.items()}
    builder = Builder(ir)
    for name, meta in named.items():
        builder.replace(meta.replace(name=name), meta)
    for node in ir.nodes:
        builder.keep(node)
    made = builder.finish()
    signature = made.signature
    if signature is not None and isinstance(signature.inputs, Container):
        args, kwargs = cast("tuple[Container, Tree]", signature.inputs.children)
        leaves = [TensorLeaf(meta.name) for meta in metas.values()]
        given = Container("tuple", (replace(args, children=(*args.children, *leaves)), kwargs))
        signature = replace(signature, inputs=given)
    bases = {item.view.base for item in made.constants.values() if item.view is not None}
    gone = {*keys} - bases
    return made.replace(
        weights=[meta for meta in ir.weights if meta.name not in keys],
        constants={key: value for key, value in made.constants.items() if key not in gone},
        weight_name_mapping={n: k for n, k in made.weight_name_mapping.items() if k not in keys},
        weight_aliases={a: key for a, key in ir.weight_aliases.items() if key not in keys},
        graph_inputs=(*ir.graph_inputs, *metas.values()),
        signature=signature,
        mutations=[
            replace(m, target=named[m.target].name) if m.target in named else m
            for m in made.mutations
        ],
    )


def with_state_as_arguments(ir: IR) -> IR:
    """Return the program with what it writes as arguments and results, so that it writes nothing.

    Weights and constants that it writes are the last positional arguments, and each new value is
    a result behind the others, in the order of ``IR.mutations``.

    Args:
        ir: A functional program, whose signature is flat.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   weight @n: f32[2]
        ...   mutate @n = %m: f32[2]
        ...   input %x: f32[2]
        ...   %m: f32[2] = aten.add.Tensor(@n, %x)
        ...   %y: f32[2] = aten.neg.default(%x)
        ...   return %y
        ... }''')
        >>> plain = with_state_as_arguments(ir)
        >>> plain.input_names, plain.output_names
        (('x', 'n'), ('y', 'm'))
    """
    external = external_keys(ir)
    state = [external[m.target] for m in ir.mutations if m.target in external]
    made = with_weights_as_inputs(ir, state)
    new = [mutation.value for mutation in made.mutations]
    signature = made.signature
    if signature is not None:
        results = (*tree_leaves(signature.outputs), *(TensorLeaf(meta.name) for meta in new))
        signature = Signature(signature.inputs, Container("tuple", results))
    return made.replace(
        graph_outputs=(*made.graph_outputs, *new), signature=signature, mutations=()
    )


def map_values(ir: IR, change: Callable[[TensorMeta], TensorMeta]) -> IR:
    """Return the graph with each value described anew, under the name that it has.

    Example:
        >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> ir = IR([OpNode("y", "aten.relu.default", [x], [y])], [x], [y], [])
        >>> print(map_values(ir, lambda meta: meta.replace(dtype="float64")).nodes[0])
        %y: f64[2] = aten.relu.default(%x)
    """

    def changed(metas: Sequence[TensorMeta]) -> tuple[TensorMeta, ...]:
        return tuple([change(meta) for meta in metas])

    return ir.replace(
        nodes=[n.replace(inputs=changed(n.inputs), outputs=changed(n.outputs)) for n in ir.nodes],
        graph_inputs=changed(ir.graph_inputs),
        graph_outputs=changed(ir.graph_outputs),
        mutations=[Mutation(m.target, change(m.value)) for m in ir.mutations],
    )


def mutations_in_place(ir: IR, written: Iterable[str] | None = None) -> list[Mutation]:
    """Return what a program has to declare: each input and external value that a node may write.

    Args:
        ir: The program.
        written: Their names, where these are known already.

    Example:
        >>> from torch_ir import parse
        >>> program = parse('''
        ... ir "Negated" {
        ...   input %x: f32[2]
        ...   %y: f32[2] = aten.neg_.default(%x)
        ...   return
        ... }''')
        >>> [mutation.target for mutation in mutations_in_place(program)]
        ['x']
    """
    given = given_values(ir)
    return [
        Mutation(name, given[name])
        for name in sorted(ir.aliases.written if written is None else written)
    ]
