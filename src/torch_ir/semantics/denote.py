"""The denotation of a program: the value of every node, by the denotations of its operators.

No torch is needed, and none is imported: an IR in core ATen, its weights and inputs as NumPy
arrays give its results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from torch_ir.arguments import public
from torch_ir.errors import ExecutionError, InvalidIRError, TorchIRError, counted
from torch_ir.frozen import EMPTY
from torch_ir.ir.diagnostics import error_at
from torch_ir.ir.expressions import Number
from torch_ir.ir.graph import IR
from torch_ir.ir.node import OpNode
from torch_ir.ir.queries import dead_after, kept_values, shown_writes, signature_of, told_symbols
from torch_ir.ir.symbols import SymExpr, value_at
from torch_ir.ir.tensor import TensorMeta, type_text
from torch_ir.ir.tree import TensorLeaf, ValueLeaf, leaves
from torch_ir.ops.extensions import OWN_NAMESPACES, meaning_hint
from torch_ir.ops.schema import lookup
from torch_ir.semantics.arguments import Value, arguments_of
from torch_ir.semantics.draws import Draws
from torch_ir.semantics.dtypes import Array, numpy_dtype
from torch_ir.semantics.numbers import flat, of_no_elements
from torch_ir.semantics.program_call import (
    external_arrays,
    require_ranges,
    symbols_of,
    tensors_of,
)
from torch_ir.semantics.registry import Denotation, denotation, has_denotation


@public
def denote(
    ir: IR,
    payload: Mapping[str, Any],
    inputs: Sequence[Any] | Mapping[str, Any],
    *,
    seed: int = 0,
    symbols: Mapping[str, Number] | None = None,
) -> tuple[Array, ...]:
    """Compute the results of a program: one array for each of ``ir.graph_outputs``.

    Values are freed after their last use. Arguments and errors are those of :func:`denote_all`.

    Example:
        >>> from torch_ir.ir import TensorMeta
        >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> ir = IR([OpNode("y", "aten.neg.default", [x], [y])], [x], [y], [])
        >>> denote(ir, {}, [np.array([1, -2], "float32")])
        (array([-1.,  2.], dtype=float32),)
    """
    evaluation = Evaluation(ir, payload, inputs, seed=seed, symbols=symbols)
    for _ in evaluation.run(keep=False):
        pass
    return tuple([result.copy() for result in evaluation.results()])


@public
def denote_all(
    ir: IR,
    payload: Mapping[str, Any],
    inputs: Sequence[Any] | Mapping[str, Any],
    *,
    seed: int = 0,
    symbols: Mapping[str, Number] | None = None,
) -> dict[str, Value]:
    """Compute the value of every node, by the name of each value that it makes, in program order.

    Neither the inputs nor the weights are written: the value that the program leaves in a buffer
    or an input is that of ``mutation.value.name`` for each of ``ir.mutations``.

    Args:
        ir: The program; its operators have denotations, as those of core ATen do.
        payload: NumPy arrays or torch tensors by ``state_dict`` key; what is in it under the key
            of a constant stands in its place.
        inputs: An array or tensor for each of ``ir.graph_inputs``: in their order, or by name.
        seed: The seed of random numbers (:class:`~torch_ir.semantics.draws.Draws`).
        symbols: The value of each symbol that is a number among the program's arguments.

    Returns:
        Arrays by name. A result that is a number stands under its node's name; of several such
        results each under the node's name, a dot and its position.

    Raises:
        InputError: An input does not fit what the program was extracted for.
        WeightLoadError: A weight is missing or has another shape or type.
        ExecutionError: A node's operator has no denotation, its arguments are refused, or what it
            gives has another shape or type than is declared; the message shows the node.
    """
    evaluation = Evaluation(ir, payload, inputs, seed=seed, symbols=symbols)
    made: dict[str, Value] = {}
    for node, results in evaluation.run():
        for meta in node.outputs:
            made[meta.name] = results[meta.producer_output_idx]
        numbers = {i: r for i, r in enumerate(results) if not isinstance(r, np.ndarray)}
        for index, number in numbers.items():
            made[node.name if len(results) == 1 else f"{node.name}.{index}"] = number
    return made


def require_denotations(ir: IR) -> None:
    """Refuse a program with operators that have no denotation.

    Raises:
        ExecutionError: There are some; the message shows the first such node and names them all.
    """
    lacking = [node for _, _, node in ir.walk() if not has_denotation(node.op_type)]
    if lacking:
        names = list(dict.fromkeys(node.op_type for node in lacking))
        also = f" Neither have {', '.join(names[1:])}." if len(names) > 1 else ""
        writes = any(
            argument.is_written
            for name in names
            if (schema := lookup(name)) is not None
            for argument in schema.arguments
        )
        first = "Make the program functional and decompose it to core ATen first."
        raise error_at(
            lacking[0],
            f"{names[0]} has no denotation.{also}",
            remedy=first if writes else meaning_hint(names[0]),
        )


class Evaluation:
    """A program with its weights and the inputs of one call, ready to be evaluated node by node.

    Args: as those of :func:`denote_all`.

    Attributes:
        ir: The program.
        symbols: The value of each symbol that is known so far.
    """

    @public
    def __init__(
        self,
        ir: IR,
        payload: Mapping[str, Any],
        inputs: Sequence[Any] | Mapping[str, Any],
        *,
        seed: int = 0,
        symbols: Mapping[str, Number] | None = None,
    ):
        require_denotations(ir)
        tensors = tensors_of(ir, inputs)
        self.ir = ir
        self.symbols = symbols_of(ir, tensors, symbols or {})
        self._graph = _Graph(ir, seed, "", ir.functions)
        self._values: dict[str, Value] = {**external_arrays(ir, payload), **tensors}

    def __repr__(self) -> str:
        return f"Evaluation({self.ir!r})"

    def value(self, name: str) -> Value:
        """Return the value of a name that is defined and not freed.

        Raises:
            ExecutionError: There is none.
        """
        if name not in self._values:
            raise ExecutionError(f"%{name} has no value")
        return self._values[name]

    def given(self) -> dict[str, Value]:
        """Return the values of graph inputs, weights and constants by name."""
        return {
            name: self.value(name) for name in (*self.ir.input_names, *self.ir.external_values())
        }

    def tensor(self, name: str) -> Array:
        """Return the same value as :meth:`value`, which must be an array."""
        return cast(Array, self.value(name))

    def results(self) -> list[Array]:
        """Return the results, when all nodes are evaluated.

        One that is an input or buffer is what the program leaves there.

        Raises:
            InvalidIRError: One is another view of what is written as the program ends.
        """
        left = {write.target: write.value for write in shown_writes(self.ir)}
        targets = frozenset[str]().union(*map(self.ir.aliases.roots, left))
        for name in self.ir.output_names:
            if name not in left and not targets.isdisjoint(self.ir.aliases.roots(name)):
                raise InvalidIRError(
                    f"the result %{name} shows what the program writes as it ends",
                    remedy="Make the program functional first: torch_ir.functionalize(ir).",
                )
        return [self.tensor(left.get(meta.name, meta).name) for meta in self.ir.graph_outputs]

    def evaluate(self, node: OpNode, values: Mapping[str, Value]) -> list[Value]:
        """Compute the results of one node, flattened, for given values of its inputs.

        Raises:
            ExecutionError: Its arguments are refused, or its results are not those declared.
        """
        return self._graph.evaluate(node, values, self.symbols)

    def run(self, *, keep: bool = True) -> Iterator[tuple[OpNode, list[Value]]]:
        """Evaluate the nodes in program order; yield each with its flattened results.

        Args:
            keep: Whether a value stays after its last use.
        """
        yield from self._graph.run(self._values, self.symbols, keep=keep)


class _Graph:
    """A graph or a function of it, evaluated over values by name."""

    def __init__(self, ir: IR, seed: int, scope: str, functions: Mapping[str, IR]):
        self._ir = ir
        self._seed = seed
        self._scope = scope
        self._functions = {**functions, **ir.functions}

    def run(
        self, values: dict[str, Value], symbols: dict[str, Number], *, keep: bool
    ) -> Iterator[tuple[OpNode, list[Value]]]:
        """Evaluate every node; its outputs are added to the values and its symbols to those."""
        dead = {} if keep else dead_after(self._ir.nodes, kept_values(self._ir).union(values))
        for node in self._ir.nodes:
            results = self.evaluate(node, values, symbols)
            for meta in node.outputs:
                values[meta.name] = results[meta.producer_output_idx]
            yield node, results
            for name in dead.get(node.name, ()):
                values.pop(name, None)

    def evaluate(
        self, node: OpNode, values: Mapping[str, Value], symbols: dict[str, Number]
    ) -> list[Value]:
        """The flattened results of a node, as declared; binds the symbols that they give."""

        def value_of(name: str) -> Value:
            if name not in values:
                raise InvalidIRError(f"%{name} is used before it is defined")
            return values[name]

        try:
            found = denotation(node.op_type)
            arguments = arguments_of(
                node, value_of, symbols, lambda name: self._function(name, node.name, symbols)
            )
            if found.draws:
                arguments["draws"] = Draws(self._seed, self._scope + node.name)
            results = self._results(found, node, arguments, symbols)
            self._require_number(node, results)
            self._bind(node, results, symbols)
            for meta in node.outputs:
                if meta.producer_output_idx not in INFERRED_WRONGLY.get(node.op_type, ()):
                    _require_declared(meta, results, symbols)
        except ExecutionError:
            raise  # a node in a body, which the message shows
        except TorchIRError as error:
            raise error_at(node, error.message, remedy=error.remedy) from error
        except Exception as error:  # NumPy raises anything for arguments that do not fit
            raise error_at(node, f"{node.op_type} failed: {error}") from error
        return results

    def _results(
        self, found: Denotation, node: OpNode, arguments: Any, symbols: Mapping[str, Number]
    ) -> list[Value]:
        """What a call gives, flattened; of operands without elements, whatever their type."""
        try:
            return flat(found.function(**arguments))
        except Exception:  # NumPy raises anything for a type that it does not compute in
            if (empty := empty_results(node, symbols)) is not None:
                return [*empty]
            if (typed := of_no_elements(arguments)) is None:
                raise
            results = flat(found.function(**typed))
        for meta in node.outputs:  # what no elements add up to
            made = cast(Array, results[meta.producer_output_idx])
            results[meta.producer_output_idx] = made.astype(numpy_dtype(meta.dtype))
        return results

    def _require_number(self, node: OpNode, results: list[Value]) -> None:
        """Refuse more results than the operator has, which a meaning of others may give."""
        is_own = node.op_type.partition(".")[0] in OWN_NAMESPACES
        schema = None if is_own else self._ir.schema_of(node.op_type)
        if schema is None or any(result.type.endswith("]") for result in schema.returns):
            return  # of a list, a call has as many as it has
        if len(results) > max(1, len(schema.returns)):
            gives = f"it gives {counted(len(results), 'result')}"
            raise InvalidIRError(f"{gives}, and the operator has {len(schema.returns)}")

    def _bind(self, node: OpNode, results: list[Value], symbols: dict[str, Number]) -> None:
        """Give the symbols that the results determine their value, once in each evaluation."""
        bound: dict[str, Number] = {}
        for symbol, index in node.binds.items():
            number = results[index]
            bound[symbol] = int(number) if isinstance(number, bool) else cast(Number, number)
        for meta in node.outputs:
            result = results[meta.producer_output_idx]
            for dim, size in zip(meta.shape, np.shape(result), strict=False):
                if isinstance(dim, SymExpr) and dim.is_symbol and dim.text not in symbols:
                    bound.setdefault(dim.text, size)
        require_ranges(self._ir, bound)
        symbols.update(bound)

    def _function(self, name: str, node: str, symbols: Mapping[str, Number]) -> Any:
        if name not in self._functions:
            raise InvalidIRError(f"the program has no function {name!r}")
        function = self._functions[name]

        def body(values: Sequence[Value], step: str = "") -> list[Value]:
            scope = f"{self._scope}{node}/{step}/" if step else f"{self._scope}{node}/"
            graph = _Graph(function, self._seed, scope, self._functions)
            return graph.call(values, symbols)

        return body

    def call(self, arguments: Sequence[Value], outside: Mapping[str, Number]) -> list[Value]:
        """The results of a function, flattened in its own structure's order.

        Symbols that no argument alone tells, as of the size ``s0*s1``, are those outside.
        """
        named, symbols = given_to(self._ir, arguments, outside)
        values: dict[str, Value] = {**external_arrays(self._ir, {}), **named}
        for _ in self.run(values, symbols, keep=False):
            pass
        return results_of(self._ir, values, symbols)


def given_to(
    ir: IR, arguments: Sequence[Value], outside: Mapping[str, Number] = EMPTY
) -> tuple[dict[str, Array], dict[str, Number]]:
    """Return the tensors and symbols of a function, by name, for the arguments of a call."""
    tensors = [value for value in arguments if isinstance(value, np.ndarray)]
    told = told_symbols(ir)
    given = {name: outside[name] for name in ir.symbols if name in outside and name not in told}
    for leaf, value in zip(leaves(signature_of(ir).inputs), arguments, strict=False):
        if isinstance(leaf, ValueLeaf) and isinstance(leaf.value, SymExpr):
            given[leaf.value.text] = cast(Number, value)
    named = tensors_of(ir, tensors)
    return named, symbols_of(ir, named, given)


def results_of(ir: IR, values: Mapping[str, Any], symbols: Mapping[str, Number]) -> list[Any]:
    """Return what a function gives, flattened, for values by name."""
    return [
        values[leaf.name] if isinstance(leaf, TensorLeaf) else value_at(leaf.value, symbols)
        for leaf in leaves(signature_of(ir).outputs)
    ]


def empty_results(node: OpNode, symbols: Mapping[str, Number]) -> list[Array] | None:
    """Return what a call gives whose results are all declared empty; None if some may not be."""
    schema = lookup(node.op_type)
    if schema is None or node.binds or not node.outputs:
        return None
    if any(not result.type.startswith("Tensor") for result in schema.returns):
        return None  # numbers
    empty: dict[int, Array] = {}
    for meta in node.outputs:
        if not all(isinstance(dim, int) or symbols.keys() >= {*dim.symbols} for dim in meta.shape):
            return None
        shape = tuple([int(value_at(dim, symbols).real) for dim in meta.shape])
        empty[meta.producer_output_idx] = np.zeros(shape, numpy_dtype(meta.dtype))
    if any(array.size for array in empty.values()):
        return None
    return [empty.get(index, np.zeros(0)) for index in range(max(empty) + 1)]


INFERRED_WRONGLY = {
    f"aten.{name}": places
    for names, places in (
        ("_embedding_bag.default _embedding_bag_forward_only.default", (1, 2, 3)),
        ("embedding_bag.default embedding_bag.padding_idx", (1, 2, 3)),
        ("_native_batch_norm_legit.default _native_batch_norm_legit.no_stats", (1, 2)),
        ("_native_batch_norm_legit_no_training.default native_batch_norm.default", (1, 2)),
        ("_native_batch_norm_legit_functional.default", (1, 2, 3, 4)),
        ("_batch_norm_with_update_functional.default", (1, 2, 4, 5)),
        ("native_layer_norm.default native_group_norm.default", (1, 2)),
    )
    for name in names.split()
}
"""Places of results of which torch infers another type than it gives: of those for a gradient of
bags, where the last offset is an end, and in bfloat16; of norms in half types, whose statistics
have the type of the parameters, and running ones their own."""


def _require_declared(
    meta: TensorMeta, results: list[Value], symbols: Mapping[str, Number]
) -> None:
    """Refuse a result whose shape or type is not the declared one."""
    index = meta.producer_output_idx
    result = results[index] if index < len(results) else None
    if not isinstance(result, np.ndarray):
        raise InvalidIRError(f"it gives no tensor as result {index}")
    shape = tuple([value_at(dim, symbols) for dim in meta.shape])
    if result.shape != shape or result.dtype != numpy_dtype(meta.dtype):
        declared = type_text(meta)
        if shape != meta.shape:
            declared += f" with shape {list(shape)}"
        raise InvalidIRError(
            f"%{meta.name} is declared {declared}, and means {result.dtype} of shape "
            f"{list(result.shape)}"
        )
