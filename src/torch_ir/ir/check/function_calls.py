"""Calls of functions: what each is handed and gives, against its signature.

The symbols of a function stand for what the operands of the call have in their places: a function
of ``f32[s0]`` may be called with ``f32[4]`` and with ``f32[2*s1]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple, TypeAlias

from torch_ir.errors import InvalidIRError
from torch_ir.frozen import identical
from torch_ir.ir.aliases import bodies_called
from torch_ir.ir.diagnostics import Diagnostic
from torch_ir.ir.expressions import kind_of, renamed, solve_linear
from torch_ir.ir.graph import IR
from torch_ir.ir.node import OpNode
from torch_ir.ir.queries import result_symbols, signature_of
from torch_ir.ir.symbols import Dim, SymExpr, as_dim
from torch_ir.ir.tensor import TensorMeta, type_text
from torch_ir.ir.tree import Tree, ValueLeaf, leaves
from torch_ir.ir.values import Attribute, FunctionRef, attribute_leaves, attribute_symbols
from torch_ir.ops.bodies import BODY_CALLS, BodyCall, Gives

Item: TypeAlias = TensorMeta | Attribute
"""One thing that a function takes or gives: a tensor by its type, or a number or another value."""

_Bound: TypeAlias = dict[str, Attribute]
"""What each symbol of a function stands for."""

_FLOATING = ("float16", "bfloat16", "float32", "float64")
_UNKNOWN = TensorMeta("", (), "float32")


class _CalledFunction(NamedTuple):
    """One function of a call.

    Attributes:
        node: The call.
        caller: The graph that it is in.
        name: The function's name.
        body: The function.
        how: How the operator calls it.
    """

    node: OpNode
    caller: IR
    name: str
    body: IR
    how: BodyCall


def check_calls(ir: IR, node: OpNode) -> Iterator[Diagnostic]:
    """Find where the operands and results of a call are not those of the functions it calls.

    Or where these write what the operator does not let them. Functions that do not exist are left
    out.
    """
    known = BODY_CALLS.get(node.op_type, {})
    if not known and node.functions:
        message = f"nothing says what {node.op_type} hands to functions, and what it gives"
        yield _bad(message, "no function", ", ".join(f"&{name}" for name in node.functions))
    for argument, how in known.items():
        held = attribute_leaves(node.attrs.get(argument))
        names = [item.name for item in held if isinstance(item, FunctionRef)]
        if len(names) != 1:
            message = f"argument {argument!r} of {node.op_type} is not one function"
            yield _bad(message, "1 function", str(len(names)))
        for name in names[:1]:
            if name in ir.functions:
                yield from _check(_CalledFunction(node, ir, name, ir.functions[name], how))
    for listed, how in {how.writes_listed_in: how for how in known.values()}.items():
        count = sum(len(_listed(node, argument)) for argument in how.takes)
        said = str(node.attrs.get(listed) or "")
        if said and not {*said.split(",")} <= {*map(str, range(count))}:
            yield _bad(f"{listed} lists no positions", f"numbers below {count}", repr(said))
    yield from _writes(ir, node)


def _writes(ir: IR, node: OpNode) -> Iterator[Diagnostic]:
    """Find where functions write what the operator does not let them, or does not say they do."""
    for one in bodies_called(ir, node) or ():
        listed = one.how.writes_listed_in
        said = str(node.attrs.get(listed) or "").split(",")
        for value, (argument, _) in one.written.items():
            if argument not in one.how.writes:
                allowed = " and ".join(one.how.writes)
                expected = f"writes to {allowed} alone" if allowed else "no writes"
                yield _bad_write(one.name, value, expected, f"one to {argument}")
            elif listed and (position := str(_position(one.body, value))) not in said:
                expected = f"position {position} in {listed}"
                yield _bad_write(one.name, value, expected, repr(",".join(said)))


def _position(body: IR, value: str) -> int:
    """The position of an input of a function among its tensors and numbers."""
    taken = leaves(signature_of(body).inputs)
    return next(i for i, leaf in enumerate(taken) if getattr(leaf, "name", None) == value)


def _bad_write(name: str, value: str, expected: str, found: str = "") -> Diagnostic:
    return Diagnostic(
        "bad-call",
        f"&{name} writes %{value}, which the call does not let it",
        expected=expected,
        found=found,
        remedy="Let the function return the new value, and aten.copy_.default write it after the "
        "call.",
    )


def call_symbols(node: OpNode, body: IR) -> Mapping[str, Attribute]:
    """Return what the symbols of a function stand for where a node calls it.

    Those that the function's inputs give stand for what the operands have in their places, those
    that it finds out for the symbols that the call records. Others are left out.

    Args:
        node: A call that fits; the operator calls one function.
        body: That function.
    """
    (how,) = BODY_CALLS[node.op_type].values()
    given = _handed(_CalledFunction(node, body, "", body, how))
    taken, made = _interface(body)
    if isinstance(given, Diagnostic) or taken is None or made is None or len(given) != len(taken):
        return {}
    bound = _bind(taken, given)
    results = {meta.producer_output_idx: meta for meta in node.outputs}
    results |= {index: SymExpr(symbol) for symbol, index in node.binds.items()}
    for index, item in results.items():
        for found, recorded in _dims(made[index], item):
            if found.is_symbol:
                bound.setdefault(found.text, recorded)
    return bound


def _check(call: _CalledFunction) -> Iterator[Diagnostic]:
    given = _handed(call)
    if isinstance(given, Diagnostic):
        yield given
        return
    body = call.body
    taken, made = _interface(body)
    if taken is None or made is None:
        return  # the signature itself is wrong
    if len(given) != len(taken):
        yield _bad(f"&{call.name} takes another number of arguments", len(taken), len(given))
        return
    bound = _bind(taken, given)
    faults = list(_operands(call, taken, given, bound))
    yield from faults
    if not faults:
        bound, found = _with_found(body, bound)
        yield from _results(call, [put_into(item, bound) for item in made], _Fresh(call, found))


def _bad(message: str, expected: object, found: object) -> Diagnostic:
    return Diagnostic("bad-call", message, expected=str(expected), found=str(found))


# -- what a function takes ------------------------------------------------------------------------


def _handed(call: _CalledFunction) -> list[Item] | Diagnostic:
    """What the operator hands to a function."""
    node, how = call.node, call.how
    items: list[Item] = []
    if how.scalar_of:
        whole = node.argument(how.scalar_of)
        items.append((whole if isinstance(whole, TensorMeta) else _UNKNOWN).replace(shape=()))
    items += [_UNKNOWN.replace(dtype="int32")] * how.indices
    for argument in how.takes:
        part = _listed(node, argument)
        items += [_row(item) for item in part] if argument == how.rows else part
    if how.rows:
        lengths = {_length(item) for item in _listed(node, how.rows)}
        if len(lengths) != 1 or None in lengths:
            said = ", ".join(map(_described, _listed(node, how.rows)))
            return _bad(f"argument {how.rows!r} has no one length", "equal first dimensions", said)
    return items


def _listed(node: OpNode, argument: str) -> list[Item]:
    value = node.argument(argument, ())
    return [*value] if isinstance(value, tuple) else [value]


def _length(item: Item) -> Dim | None:
    return item.shape[0] if isinstance(item, TensorMeta) and item.shape else None


def _row(item: Item) -> Item:
    return item.replace(shape=item.shape[1:]) if isinstance(item, TensorMeta) else item


def _interface(body: IR) -> tuple[list[Item] | None, list[Item] | None]:
    """The inputs and the results of a function in order; None if the signature names others."""
    signature = signature_of(body)
    taken = _items(signature.inputs, body.graph_inputs)
    return taken, _items(signature.outputs, body.graph_outputs)


def _items(tree: Tree, metas: Sequence[TensorMeta]) -> list[Item] | None:
    known = {meta.name: meta for meta in metas}
    items: list[Item] = []
    for leaf in leaves(tree):
        if isinstance(leaf, ValueLeaf):
            items.append(leaf.value)
        elif leaf.name not in known:
            return None
        else:
            items.append(known[leaf.name])
    return items


def _operands(
    call: _CalledFunction, taken: Sequence[Item], given: Sequence[Item], bound: _Bound
) -> Iterator[Diagnostic]:
    for position, (wanted, item) in enumerate(zip(taken, given, strict=True)):
        expected = put_into(wanted, bound)
        if not _is_same(expected, item):
            message = f"argument {position} of &{call.name} is given something else"
            yield _bad(message, _described(expected), _described(item))
    for symbol, value in bound.items():
        allowed = call.body.symbols.get(symbol)
        if allowed is not None and isinstance(value, int) and value not in allowed:
            yield _bad(
                f"the symbol {symbol} of &{call.name} is given another value", allowed, value
            )


def _is_same(wanted: Item, item: Item) -> bool:
    if isinstance(wanted, TensorMeta) and isinstance(item, TensorMeta):
        return wanted.dtype == item.dtype and wanted.shape == item.shape
    return identical(wanted, item)


def _described(item: Item) -> str:
    return type_text(item) if isinstance(item, TensorMeta) else repr(item)


# -- symbols --------------------------------------------------------------------------------------


def _bind(taken: Sequence[Item], given: Sequence[Item]) -> _Bound:
    """What the operands put in the place of the function's symbols."""
    bound: _Bound = {}
    pairs = [
        pair for wanted, item in zip(taken, given, strict=True) for pair in _dims(wanted, item)
    ]
    for wanted, value in pairs:
        if wanted.is_symbol and _kind(value) is kind_of(wanted.text):
            bound.setdefault(wanted.text, value)
    for wanted, value in pairs:
        if len(wanted.symbols) == 1 and wanted.symbols[0] not in bound:
            solved = _solved(wanted, value)
            if solved is not None:
                bound[wanted.symbols[0]] = solved
    return bound


def _dims(wanted: Item, item: Item) -> Iterator[tuple[SymExpr, Attribute]]:
    if isinstance(wanted, SymExpr) and not isinstance(item, TensorMeta):
        yield wanted, item
    if isinstance(wanted, TensorMeta) and isinstance(item, TensorMeta):
        for dim, size in zip(wanted.shape, item.shape, strict=False):
            if isinstance(dim, SymExpr):
                yield dim, size


def _kind(value: Item) -> type[object]:
    return kind_of(value.text) if isinstance(value, SymExpr) else type(value)


def _solved(wanted: SymExpr, value: Attribute) -> Attribute:
    """What the one symbol of an expression stands for, where the expression is linear in it."""
    if isinstance(value, int):
        solved = solve_linear(wanted.text, value)
        return None if solved is None else solved[1]
    (symbol,) = wanted.symbols
    try:
        start = wanted.evaluate({symbol: 0})
        step = wanted.evaluate({symbol: 1}) - start
        return as_dim(SymExpr(f"(({value}) - ({start})) // ({step})"))
    except InvalidIRError:  # it is not linear, or has no value there
        return None


def put_into(item: Item, bound: Mapping[str, Attribute]) -> Item:
    """Return a type or a value with what its symbols stand for."""
    if isinstance(item, TensorMeta):
        if item.is_static:
            return item
        return item.replace(shape=tuple([_put_dim(dim, bound) for dim in item.shape]))
    return _put_expression(item, bound) if isinstance(item, SymExpr) else item


def _put_dim(dim: Dim, bound: Mapping[str, Attribute]) -> Dim:
    put = _put_expression(dim, bound) if isinstance(dim, SymExpr) else dim
    return put if isinstance(put, int | SymExpr) else dim


def _put_expression(value: SymExpr, bound: Mapping[str, Attribute]) -> Attribute:
    known = {name: bound[name] for name in value.symbols if name in bound}
    if not known:
        return value
    if value.is_symbol:
        return known[value.text]
    try:
        texts = {name: f"({given})" for name, given in known.items()}
        put = SymExpr(renamed(value.text, lambda name: texts.get(name, name)))
        return put if put.symbols else put.evaluate({})
    except InvalidIRError:  # too large, or without a value there
        return value


# -- what a function gives ------------------------------------------------------------------------


def _results(call: _CalledFunction, made: list[Item], fresh: _Fresh) -> Iterator[Diagnostic]:
    how = call.how
    if how.gives in (Gives.TRUTH, Gives.NUMBER):
        test = _is_truth if how.gives is Gives.TRUTH else _is_number
        if len(made) != 1 or not test(made[0]):
            said = ", ".join(map(_described, made)) or "nothing"
            yield _bad(f"&{call.name} does not give one {how.gives.value}", how.gives.value, said)
        return
    carried = _listed(call.node, how.carried) if how.carried else []
    if how.carried and how.carried == how.rows:
        carried = [_row(item) for item in carried]
    is_exact = how.gives is Gives.CARRIED or how.carried == how.rows != ""
    if len(made) < len(carried) or (is_exact and len(made) != len(carried)):
        yield _bad(f"&{call.name} gives another number of results", len(carried), len(made))
        return
    for position, (wanted, item) in enumerate(zip(carried, made, strict=False)):
        if not fresh.is_as(item, wanted, weak=False):
            message = f"result {position} of &{call.name} is not what the next call is given"
            yield _bad(message, _described(wanted), _described(item))
    if how.gives is Gives.CARRIED:
        made = carried
    elif how.rows:
        length = _length(_listed(call.node, how.rows)[0])
        first = 0 if how.carried == how.rows else len(carried)
        made = [*made[:first], *(_stacked(item, length) for item in made[first:])]
    yield from _recorded(call, made, fresh)


def _is_truth(item: Item) -> bool:
    if isinstance(item, TensorMeta):
        return item.dtype == "bool" and all(dim == 1 for dim in item.shape)
    return _kind(item) is bool


def _is_number(item: Item) -> bool:
    return isinstance(item, TensorMeta) and item.dtype in _FLOATING and not item.shape


def _stacked(item: Item, length: Dim | None) -> Item:
    if not isinstance(item, TensorMeta) or length is None:
        return item
    return item.replace(shape=(length, *item.shape))


def _recorded(call: _CalledFunction, made: Sequence[Item], fresh: _Fresh) -> Iterator[Diagnostic]:
    """The results that the call records, against those that the function gives."""
    node, weak = call.node, call.how.gives in (Gives.BRANCH, Gives.CARRIED)
    outputs = {meta.producer_output_idx: meta for meta in node.outputs}
    tensors = [index for index, item in enumerate(made) if isinstance(item, TensorMeta)]
    if sorted(outputs) != tensors:
        message = f"&{call.name} gives other results than the node has"
        yield _bad(message, f"tensors as results {tensors}", f"{sorted(outputs)}")
        return
    for index in tensors:
        if not fresh.is_as(made[index], outputs[index], weak=weak):
            message = f"%{outputs[index].name} is not result {index} of &{call.name}"
            yield _bad(message, _described(made[index]), _described(outputs[index]))
    for symbol, index in node.binds.items():
        if index >= len(made) or _kind(made[index]) not in (int, float, bool):
            message = f"result {index} of &{call.name}, to which {symbol} is bound, is no number"
            said = _described(made[index]) if index < len(made) else "no result"
            yield _bad(message, "a number", said)


class _Fresh:
    """Compares what a function gives with what is recorded: sizes that it finds out are new ones.

    Args:
        call: The call.
        found: The symbols to which the function itself gives values.
    """

    def __init__(self, call: _CalledFunction, found: frozenset[str]):
        self._call = call
        self._found = found
        self._own: _Bound = {}

    def is_as(self, made: Item, recorded: Item, *, weak: bool) -> bool:
        """Return whether something that the function gives is what is recorded.

        Args:
            made: What it gives, with what the operands put in the place of its symbols.
            recorded: What is recorded.
            weak: Whether a new symbol may stand for any size.
        """
        if not isinstance(made, TensorMeta) or not isinstance(recorded, TensorMeta):
            return _kind(made) is _kind(recorded) or _is_same(made, recorded)
        if made.dtype != recorded.dtype or len(made.shape) != len(recorded.shape):
            return False
        pairs = zip(made.shape, recorded.shape, strict=True)
        return all(self._is_dim(dim, wanted, weak=weak) for dim, wanted in pairs)

    def _is_dim(self, made: Dim, recorded: Dim, *, weak: bool) -> bool:
        is_found = isinstance(made, SymExpr) and not self._found.isdisjoint(made.symbols)
        if made == recorded and not is_found:
            return True
        is_new = (
            isinstance(recorded, SymExpr)
            and recorded.is_symbol
            and recorded.text not in self._known
        )
        if not isinstance(made, SymExpr) or not is_found:
            return weak and is_new
        if made.is_symbol and is_new:
            return self._own.setdefault(made.text, recorded) == recorded
        return is_new or _put_dim(made, self._own) == recorded

    @cached_property
    def _known(self) -> frozenset[str]:
        """The symbols of the caller that have values before the call."""
        before = takewhile(lambda node: node is not self._call.node, self._call.caller.nodes)
        return self._call.caller.given_symbols | result_symbols(before)


def _with_found(body: IR, bound: _Bound) -> tuple[_Bound, frozenset[str]]:
    """The bindings with the symbols that the function's nodes bind, and the names of those.

    They are renamed where a symbol of the caller has their name.
    """
    own = result_symbols(body.nodes) - body.given_symbols - bound.keys()
    taken = {symbol for value in bound.values() for symbol in attribute_symbols(value)}
    names = {name: f"{name}_of_function" if name in taken else name for name in own}
    return {**bound, **{k: SymExpr(v) for k, v in names.items()}}, frozenset(names.values())
