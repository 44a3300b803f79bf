"""Bounds of chains of nodes: each node's own, carried through the nodes after it.

A kernel may do at once what several nodes mean, or round after each of them. What a node is off by
itself (:func:`torch_ir.semantics.tolerance.bound`) reaches a result as far as the nodes between
let it: by the slope of what works element by element, by Σ |weights| in what is linear, by the
greatest in what picks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from ml_dtypes import finfo

from torch_ir.errors import InvalidIRError
from torch_ir.ir.expressions import Number
from torch_ir.ir.graph import IR
from torch_ir.ir.node import OpNode
from torch_ir.ir.queries import dead_after
from torch_ir.ops.layouts import BY_LAYOUT
from torch_ir.semantics.arguments import arguments_of
from torch_ir.semantics.bounds import control_flow, elementwise, resampling, rows, sums
from torch_ir.semantics.bounds.call import BoundedCall, Rule, moduli, with_arrays
from torch_ir.semantics.bounds.moves import apart, ends_of, meant_at, moved_by
from torch_ir.semantics.bounds.table import RULES
from torch_ir.semantics.denote import Evaluation, given_to, results_of
from torch_ir.semantics.draws import Draws
from torch_ir.semantics.dtypes import Array, is_inexact, real_of, widened
from torch_ir.semantics.numbers import flat
from torch_ir.semantics.registry import denotation
from torch_ir.semantics.tolerance import bound

FORMS = 2
"""A kernel's form of a chain may round as often again as the nodes do."""
TRIES = 6
"""Directions in which the operands of what is neither linear nor element by element are moved."""

_LINEAR: frozenset[Rule] = frozenset(
    (
        *(sums.reduction, sums.product, sums.convolution, sums.pooling, sums.running_sum),
        *(sums.scattered, sums.folded, sums.counted, resampling.interpolated),
    )
)
_JOINT: frozenset[Rule] = frozenset(
    rule for rule in RULES.values() if rule.__module__.endswith(("rows", "normalization"))
) - {rows.softmax, rows.log_softmax, rows.log_sum, rows.running_log_sum}


def bounded(
    ir: IR,
    values: Mapping[str, Any],
    symbols: Mapping[str, Number],
    errors: Mapping[str, Array] | None = None,
    keep: Collection[str] | None = None,
    steps: np.dtype[Any] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compute every value of a program by name, and how far a kernel's may be off.

    Args:
        ir: The program; every operator has a denotation and a tolerance.
        values: The inputs by name.
        symbols: The symbols that are known.
        errors: How far the inputs may be off; 0 where absent.
        keep: The values to return. Others are freed after their last use, and not computed where
            they lead to none of these. None for all.
        steps: A 16-bit type to which a kernel may round what a node makes in a wider one.

    Raises:
        TorchIRError: A denotation refuses its arguments, or no tolerance is stated.
    """
    if keep is not None:
        ir = _leading_to(ir, keep)
    evaluation = Evaluation(ir, {}, dict(values), symbols=dict(symbols))
    made: dict[str, Any] = evaluation.given()
    if keep is not None:
        read = {*keep, *(meta.name for node in ir.nodes for meta in node.inputs)}
        made = {name: value for name, value in made.items() if name in read}
    off: dict[str, Any] = {name: np.zeros(np.shape(value)) for name, value in made.items()}
    off |= {name: error for name, error in (errors or {}).items() if name in made}
    dead = {} if keep is None else dead_after(ir.nodes, keep)
    for node, results in evaluation.run(keep=keep is None):
        found = node_bounds(
            ir, node, results, made.__getitem__, off.__getitem__, evaluation.symbols, steps
        )
        for meta in node.outputs:
            index = meta.producer_output_idx
            made[meta.name], off[meta.name] = results[index], found[index]
        for name in dead.get(node.name, ()):
            del made[name], off[name]
    return made, off


def _leading_to(ir: IR, names: Collection[str]) -> IR:
    """The program with those nodes that some values, or the symbols of others, are made by."""
    needed, nodes = {*names}, list[OpNode]()
    for node in reversed(ir.nodes):
        if node.binds or not needed.isdisjoint(meta.name for meta in node.outputs):
            nodes.append(node)
            needed |= {meta.name for meta in node.inputs}
    return ir if len(nodes) == len(ir.nodes) else ir.replace(nodes=nodes[::-1])


def _in_steps(result: Any, error: Array | None, steps: np.dtype[Any]) -> Array | None:
    """An error with one rounding to a narrow type; open where a number overflows in that."""
    if error is None or not is_inexact(result.dtype) or result.dtype.itemsize <= steps.itemsize:
        return error
    info, sizes = finfo(steps), moduli(result)
    once = (float(info.eps) * sizes + float(info.smallest_subnormal)) / 2 / FORMS
    finite = np.isfinite(sizes)
    whole = np.where(finite & (sizes >= float(info.max)), np.inf, error + once)
    return np.where(finite, whole, error)


def node_bounds(
    ir: IR,
    node: OpNode,
    results: Sequence[Any],
    value_of: Callable[[str], Any],
    error_of: Callable[[str], Array],
    symbols: Mapping[str, Number],
    steps: np.dtype[Any] | None = None,
) -> list[Array | None]:
    """Return how far each result of a node may be off; None for one that is a number.

    Args:
        ir: The program.
        node: The node.
        results: What it means, flattened.
        value_of: The values of its inputs, by name.
        error_of: How far these may be off.
        symbols: The symbols that are known.
        steps: A 16-bit type to which a kernel may round what the node makes in a wider one.
    """
    bodies: dict[str, _Body] = {}

    def body(name: str) -> _Body:
        return bodies.setdefault(name, _Body(ir.functions[name], ir.functions, symbols))

    arguments = arguments_of(node, value_of, symbols, body)
    given = arguments_of(node, error_of, symbols, body)
    if denotation(node.op_type).draws:
        arguments["draws"] = Draws(0, node.name)
    if bodies:
        found = _called(node.op_type, arguments, given)
    else:
        found = _of_node(node.op_type, arguments, given, results)
    arrays = iter(found)
    errors = [np.asarray(next(arrays)) if isinstance(r, np.ndarray) else None for r in results]
    if steps is not None and RULES.get(node.op_type) is not elementwise.exact:
        errors = [_in_steps(*pair, steps) for pair in zip(results, errors, strict=True)]
    if any(meta.producer_node for meta in node.inputs):
        for index in BY_LAYOUT.get(node.op_type, ()):
            errors[index] = np.full(results[index].shape, np.inf)
    return errors


def _of_node(
    op_type: str, arguments: dict[str, Any], given: dict[str, Any], results: Sequence[Any]
) -> list[Array]:
    """The node's own bounds and those of its operands, carried through it."""
    own = bound(op_type, arguments, results)
    if own is None:
        raise InvalidIRError(f"no tolerance is stated for {op_type}")
    arrays = [result for result in results if isinstance(result, np.ndarray)]
    moved = [name for name, value in given.items() if _is_off(value)]
    if not moved or not arrays:
        return own
    with np.errstate(all="ignore"):
        call = BoundedCall(op_type, arguments, arrays)
        through = carried(call, {name: given[name] for name in moved})
    return [first + second for first, second in zip(own, through, strict=True)]


def _is_off(value: Any) -> bool:
    return any(isinstance(item, np.ndarray) and bool(item.any()) for item in flat(value))


def carried(call: BoundedCall, errors: Mapping[str, Any]) -> list[Array]:
    """Return how far results move where arguments, each by itself, are off by ``errors``."""
    rule = RULES.get(call.op_type)
    if rule in _LINEAR:
        moved = _summed(call, (_weighed(call, name, error) for name, error in errors.items()))
        return _infinite_kept(call, errors, moved)
    if rule in (rows.softmax, rows.log_softmax):
        return [_through_softmax(call, errors["self"], relative=rule is rows.softmax)]
    if rule is rows.transform:
        axes = tuple(call["dim"])
        reach = np.sum(errors["self"], axis=axes, keepdims=True)
        return [np.broadcast_to(reach * 2, call.results[0].shape)]
    if rule in _JOINT:
        return _tried(call, errors)
    if call.op_type in _REINTERPRETED:
        return [_of_bits(call, errors["self"])]
    return _summed(call, (_shifted(call, {name: error}) for name, error in errors.items()))


_REINTERPRETED = frozenset({"aten.view.dtype", "aten.view_copy.dtype"})


def _of_bits(call: BoundedCall, error: Array) -> Array:
    """Nothing is known of what is read from the bytes of a number that is off."""
    (result,) = call.results
    touched = np.repeat(np.reshape(error != 0, -1), call["self"].itemsize)
    read = touched.reshape(-1, result.itemsize).any(axis=1)
    return np.where(read.reshape(result.shape), np.inf, 0.0)


def _summed(call: BoundedCall, parts: Iterable[Sequence[Array]]) -> list[Array]:
    """Return the sums over operands; of them, one after another, few are there at a time."""
    whole: Sequence[Array] = []
    for part in parts:
        whole = [a + b for a, b in zip(whole, part, strict=True)] if whole else part
    return [np.reshape(a, result.shape) for a, result in zip(whole, call.results, strict=True)]


def _infinite_kept(
    call: BoundedCall, errors: Mapping[str, Any], moved: list[Array]
) -> list[Array]:
    """Infinite weights carry no error where the result is the same at both ends of the range."""
    lost = [~np.isfinite(r) & np.isinf(e) for r, e in zip(call.results, moved, strict=True)]
    if not any(places.any() for places in lost):
        return moved
    ends = _summed(call, (_shifted(call, {name: error}) for name, error in errors.items()))
    return [np.where(*both) for both in zip(lost, ends, moved, strict=True)]


def _weighed(call: BoundedCall, name: str, error: Any) -> list[Array]:
    """Σ |weights| · error: the operator at the moduli of its arguments, with errors for one."""
    others = {
        key: np.zeros(call[key].shape)
        if key in _ADDED.get(call.op_type, ()) and key != name and call[key] is not None
        else with_arrays(_moduli, call[key])
        for key in call.arguments
    }
    return [moduli(part) for part in call.meant(**{**others, name: error})]


_ADDED = {
    **{
        f"aten.{n}.default": ("self",)
        for n in ("addmm", "addmv", "baddbmm", "addbmm", "addr", "index_add", "scatter_add")
    },
    **{
        f"aten.{n}": ("bias",)
        for n in (
            "convolution.default",
            "linear.default",
            "conv1d.default",
            "conv2d.default",
            "conv3d.default",
        )
    },
}
"""What is a term by itself, and no factor of the others."""


def _moduli(values: Array) -> Array:
    return np.abs(widened(values)) if is_inexact(values.dtype) else values


def _through_softmax(call: BoundedCall, error: Array, *, relative: bool) -> Array:
    """``p · (error + Σ p · error)``; of the logarithm, without the factor."""
    (result,) = call.results
    error = np.where(np.isneginf(widened(call["self"])), 0, error)  # masked: it stays out
    weights = moduli(result) if relative else np.exp(widened(result))
    shared = np.sum(weights * error, axis=call["dim"] if result.ndim else None, keepdims=True)
    moved = error + shared
    return weights * moved if relative else np.where(np.isfinite(moved), moved, np.inf)


def _shifted(call: BoundedCall, errors: Mapping[str, Any]) -> list[Array]:
    """How far results move where the arguments move to either end of their range."""
    if RULES.get(call.op_type) is elementwise.codes:  # of float32 alone
        middle, ends = list(call.results), (_codes(call, errors, sign) for sign in (-1, 1))
    else:
        signs = ends_of(call[name] for name in errors)
        moved = ({n: moved_by(call[n], e, sign) for n, e in errors.items()} for sign in signs)
        if _narrows(call, errors):  # both ends are rounded, as the kernel's number is
            function = denotation(call.op_type).function
            middle = list(call.results)
            ends = (flat(function(**{**call.arguments, **arguments})) for arguments in moved)
        else:
            middle, ends = call.meant(), (_meant(call, arguments) for arguments in moved)
    farthest: list[Array] = []
    for end in ends:
        off = [apart(there, here) for there, here in zip(end, middle, strict=True)]
        farthest = list(map(np.maximum, farthest, off)) if farthest else off
    return farthest


def _narrows(call: BoundedCall, errors: Mapping[str, Any]) -> bool:
    """Return whether a call only converts what may be off, to a type with fewer digits."""
    if RULES.get(call.op_type) is not elementwise.exact or len(errors) != 1:
        return False
    (moved,) = [call[name] for name in errors]
    (result, *more) = call.results
    if more or not isinstance(moved, np.ndarray):
        return False
    if not (is_inexact(moved.dtype) and is_inexact(result.dtype)):
        return False
    return finfo(real_of(result.dtype)).nmant < finfo(real_of(moved.dtype)).nmant


def _meant(call: BoundedCall, moved: Mapping[str, Any]) -> list[Array]:
    """What a call means at moved arguments; nothing is known where it refuses them."""
    made = meant_at(lambda given: call.meant(**given), call.arguments, moved)
    return [np.full(part.shape, np.inf) for part in call.results] if made is None else made


def _codes(call: BoundedCall, errors: Mapping[str, Any], sign: int) -> list[Array]:
    """The codes of numbers that are off by as much as they may be."""
    moved = {n: moved_by(call[n], e, sign).astype(call[n].dtype) for n, e in errors.items()}
    return flat(denotation(call.op_type).function(**{**call.arguments, **moved}))


def _tried(call: BoundedCall, errors: Mapping[str, Any]) -> list[Array]:
    """The greatest move in some directions, each element's at random; twice that."""
    middle, draws = call.meant(), np.random.default_rng(0)
    ends = ends_of(call[name] for name in errors)
    total: list[Any] = [0.0] * len(middle)
    for _ in range(TRIES):
        moved = {
            name: moved_by(call[name], error, draws.choice(ends, np.shape(error)))
            for name, error in errors.items()
        }
        found = _meant(call, moved)
        total = [
            np.maximum(most, apart(part, here))
            for most, part, here in zip(total, found, middle, strict=True)
        ]
    return [2 * most for most in total]


# -- functions ------------------------------------------------------------------------------------

_CALLING: dict[str, Callable[..., Any]] = {
    op_type: denotation(op_type).function
    for op_type, rule in RULES.items()
    if rule is control_flow.called
}
"""What says in which order functions are called, and how their results are put together."""


class _Body:
    """A function of the program, which knows the errors of the calls that were made of it."""

    def __init__(self, ir: IR, functions: Mapping[str, IR], outside: Mapping[str, Number]):
        self._ir = ir.replace(functions={**functions, **ir.functions})
        self._outside = outside
        self._calls: dict[str, tuple[dict[str, Any], dict[str, Number], list[Any]]] = {}

    def __call__(self, values: Sequence[Any], step: str = "") -> list[Any]:
        """Return the results for given values, and remember these."""
        named, symbols = given_to(self._ir, values, self._outside)
        evaluation = Evaluation(self._ir, {}, named, symbols=symbols)
        made: dict[str, Any] = evaluation.given()
        for node, results in evaluation.run():
            made |= {meta.name: results[meta.producer_output_idx] for meta in node.outputs}
        given = results_of(self._ir, made, evaluation.symbols)
        self._calls[step] = named, symbols, given
        return given

    def again(self, values: Sequence[Any], step: str = "") -> list[Any]:
        """Return the results of that call: a condition is taken as it was."""
        return self._calls[step][2]

    def errors(self, values: Sequence[Any], step: str = "") -> list[Any]:
        """Return the errors of the results of that call for the errors of its arguments."""
        named, symbols, _ = self._calls[step]
        arrays = [value for value in values if isinstance(value, np.ndarray)]
        off = dict(zip(named, arrays, strict=True))
        _, found = bounded(self._ir, named, symbols, off)
        return results_of(self._ir, found, symbols)


def _called(op_type: str, arguments: dict[str, Any], given: dict[str, Any]) -> list[Array]:
    """The errors of what functions gave: carried, stacked and chosen as the results are."""
    function = _CALLING[op_type]
    function(**arguments)
    replayed = {
        name: value.errors if isinstance(value, _Body) else given[name]
        for name, value in arguments.items()
    }
    if "pred" in arguments:
        replayed["pred"] = arguments["pred"]
    if "cond_fn" in arguments:
        replayed["cond_fn"] = arguments["cond_fn"].again
    return [part for part in flat(function(**replayed)) if isinstance(part, np.ndarray)]
