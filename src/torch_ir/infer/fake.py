"""Fake tensors of a program: shapes, strides and storages without data, over its own symbols."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch._guards import Source
from torch.fx.experimental.symbolic_shapes import DimDynamic

from torch_ir.arguments import public
from torch_ir.errors import ExecutionError, InvalidIRError, PassError, Raised, attempt
from torch_ir.frontend.meta import fake_tensor_mode
from torch_ir.frontend.symbols.scalars import expression
from torch_ir.frozen import FrozenDict
from torch_ir.infer.binder import bind
from torch_ir.infer.engine import call_at, draws_by_name, flatten, quiet, refused, sharing
from torch_ir.infer.hints import samplings
from torch_ir.infer.preconditions.table import PRECONDITIONS, find_shape_fault
from torch_ir.infer.resolve import operator_of
from torch_ir.infer.symbolic import symbolic
from torch_ir.infer.types import (
    Outcome,
    TensorType,
    contiguous,
    external_types,
    name_of,
    recorded,
)
from torch_ir.ir import IR, OpNode, SymbolRange, SymExpr, TensorMeta
from torch_ir.ir.expressions import renamed
from torch_ir.ir.symbols import Dim, as_dim
from torch_ir.ir.values import attribute_symbols
from torch_ir.ops.variants import IN_PLACE_VIEWS
from torch_ir.torch_api import (
    FakeTensorMode,
    ShapeEnv,
    assume,
    enable_python_dispatcher,
    symbolic_config,
    without_mkldnn,
)


@dataclass(frozen=True)
class _Symbol(Source):
    """Where a size comes from, as torch wants to know it: a symbol of the program."""

    symbol: str

    @property
    def _name_template(self) -> str:
        return self.symbol


class Fakes:
    """Fake tensors for the values of a program; its symbols are torch's symbolic sizes.

    Args:
        ir: The program: its symbols, and the conditions that hold for them.
    """

    def __init__(self, ir: IR):
        self.env = ShapeEnv()
        self.mode = fake_tensor_mode(self.env, allow_non_fake_inputs=True)
        self.ir = ir
        self.symbols: dict[str, Any] = {}
        self._ours: dict[str, str] = {}
        self._outcomes: dict[object, Outcome] = {}
        self._known_dims: dict[object, Dim] = {}
        with self.mode:
            self._declare(ir)
        self._known_guards = len(self.env.guards)

    def settle(self) -> None:
        """Forget the sizes that torch made up for results that depend on data."""
        self.env.pending_fresh_unbacked_symbols.clear()

    def _declare(self, ir: IR) -> None:
        given = ir.given_symbols
        found = samplings(ir)
        unused = {name: SymbolRange(None, None) for node in ir.nodes for name in node.binds}
        for name, bounds in {**unused, **ir.symbols}.items():
            backed = name in given and (bounds.upper is None or bounds.upper >= 2)
            if backed and found and type(found[0][name]) is int:
                hint = int(found[0][name])
                source = _Symbol(name)
                # as torch.export traces: sizes are told apart, and none is taken to be 0 or 1
                symbol = self.env.create_symbol(max(hint, 2), source, DimDynamic.DYNAMIC)
                value: Any = self.env.create_symintnode(symbol, hint=max(hint, 2), source=source)
            elif name.startswith("z"):
                value = self.env.create_unbacked_symfloat()
            else:
                value = self.env.create_unbacked_symint()
            self.symbols[name] = value
            self._ours[str(value.node.expr)] = name
            if bounds.lower is not None:
                assume(value >= bounds.lower)
            if bounds.upper is not None:
                assume(value <= bounds.upper)
        for guard in ir.guards:
            assume(symbolic(guard, self.symbols))

    def tracing(self) -> AbstractContextManager[None]:
        """Enter the state in which operators are called on fake tensors."""
        return _tracing(self.mode)

    # -- values -----------------------------------------------------------------------------------

    def tensor(self, kind: TensorType) -> torch.Tensor:
        """Return a fresh fake tensor of that type."""
        shape = [symbolic(dim, self.symbols) for dim in kind.shape]
        strides = [symbolic(dim, self.symbols) for dim in kind.strides]
        return torch.empty_strided(shape, strides, dtype=getattr(torch, kind.dtype))

    def type_of(self, meta: TensorMeta, tensor: torch.Tensor) -> tuple[TensorType, bool]:
        """Return the type of a result that is recorded as ``meta``, and whether it is known whole.

        A size that data decides is taken to be what is recorded; where data decides how elements
        lie, they are taken to lie in row-major order.
        """
        if tensor.layout != torch.strided:
            return contiguous(meta), False
        shape, strides = self._dims(tensor.shape), self._dims(tensor.stride())
        is_whole = None not in shape and None not in strides
        if len(shape) == len(meta.shape):
            shape = [
                old if dim is None else dim for dim, old in zip(shape, meta.shape, strict=True)
            ]
        dtype = name_of(tensor.dtype)
        known = tuple([dim for dim in shape if dim is not None])
        if None in strides or len(known) < len(shape):
            return contiguous(meta.replace(shape=known, dtype=dtype)), False
        return TensorType(known, dtype, tuple(cast(list[Dim], strides))), is_whole

    def _dims(self, sizes: Sequence[int | torch.SymInt]) -> list[Dim | None]:
        found: list[Dim | None] = []
        for size in sizes:
            try:
                found.append(self.dim(size))
            except (PassError, InvalidIRError):
                found.append(None)
        return found

    def dim(self, value: int | torch.SymInt) -> Dim:
        """Convert a size to a dimension over the program's own symbols.

        Raises:
            PassError: It has a symbol that the program does not have.
        """
        if isinstance(value, int):
            return value
        key = value.node.expr
        if key not in self._known_dims:
            self._known_dims[key] = as_dim(self.expression(value))
        return self._known_dims[key]

    def expression(self, value: Any) -> SymExpr:
        """Convert a symbolic number to an expression over the program's own symbols.

        Raises:
            PassError: It has a symbol that the program does not have.
        """
        return self.own(expression(value))

    def own(self, value: SymExpr, made: Mapping[str, str] | None = None) -> SymExpr:
        """Rename torch's symbols in an expression to the program's.

        Args:
            value: The expression.
            made: Names for symbols that are not the program's.

        Raises:
            PassError: It has a symbol without a name.
        """
        names = {**self._ours, **(made or {})}
        unknown = [name for name in value.symbols if name not in names]
        if unknown:
            raise PassError(f"the size {value} has the symbol {unknown[0]}, which has no name")
        return SymExpr(renamed(value.text, lambda name: names.get(name, name)))

    def knows(self, symbol: str) -> bool:
        """Return whether a symbol of torch's is one of the program's."""
        return symbol in self._ours

    def new_guards(self) -> list[SymExpr]:
        """Return the guards on sizes that torch added since the last call of this method."""
        from torch_ir.frontend.symbols.scalars import expression_text

        texts = [expression_text(guard.expr) for guard in self.env.guards[self._known_guards :]]
        self._known_guards = len(self.env.guards)
        return [self.own(SymExpr(text)) for text in texts]

    # -- calls ------------------------------------------------------------------------------------

    def call(
        self,
        node: OpNode,
        tensors: Sequence[Any],
        symbols: Mapping[str, Any] | None = None,
        function: Callable[..., Any] | None = None,
    ) -> Any:
        """Return the result of a node on the given tensors, one for each of its inputs.

        Args:
            node: The node.
            tensors: The tensors.
            symbols: Values of the symbols, if not those of this object.
            function: What to call in place of the operator, with the same arguments.

        Raises:
            ExecutionError: Its kernel would read or write where it must not, for some sizes.
        """
        if node.op_type in IN_PLACE_VIEWS:  # squeeze_ of sizes that vary ends the process
            node = node.replace(op_type=IN_PLACE_VIEWS[node.op_type])
        args, kwargs = bind(node, tensors, self.symbols if symbols is None else symbols)
        _require_shapes(node.op_type, args, kwargs)
        target = cast(Any, function or operator_of(node))
        return target(*args, **kwargs)

    def outcome(self, node: OpNode, types: Sequence[TensorType] | None = None) -> Outcome:
        """Return the outcome of a node of the program.

        Args:
            node: The node.
            types: The type of each of its inputs; as recorded, in row-major order, if None.
        """
        given = _given(node, types)
        if _is_static(node, given):
            return call_at(node, given, {})
        if draws_by_name(node):
            return Outcome(kind="data-dependent")
        results = tuple([(meta.shape, meta.dtype) for meta in node.outputs])
        key = (node.op_type, node.attrs, node.operands, given, results)
        if key not in self._outcomes:
            self._outcomes[key] = self._outcome(node, given)
        return self._outcomes[key]

    def _outcome(self, node: OpNode, types: Sequence[TensorType]) -> Outcome:
        with quiet(), self.tracing():
            tensors = [self.tensor(kind) for kind in types]
            made = attempt(lambda: list(flatten(self.call(node, tensors))))
            if isinstance(made, Raised):
                return refused(node.op_type, made)
            metas = {meta.producer_output_idx: meta for meta in node.outputs}
            found: list[TensorType | None] = []
            is_known = True
            for index, item in enumerate(made):
                kind = None
                if isinstance(item, torch.Tensor):
                    kind, is_whole = self.type_of(metas.get(index, _UNRECORDED), item)
                    is_known = is_known and is_whole
                found.append(kind)
            shares = tuple([sharing(item, tensors) for item in made])
            return Outcome(tuple(found), shares, "ok" if is_known else "data-dependent")


@contextmanager
def _tracing(mode: FakeTensorMode) -> Generator[None]:
    """The state in which operators are called on fake tensors.

    Where torch has a general way, it goes that way, and does not ask the hint of a size which
    other way it may go: that would be a guard that the program does not have.
    """
    no_hints = symbolic_config.patch(backed_size_oblivious=True)
    with mode, enable_python_dispatcher(), torch.no_grad(), without_mkldnn(), no_hints:
        yield


def _require_shapes(op_type: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    if op_type in PRECONDITIONS:
        sized = _sized(args), _sized(kwargs)
        fault = find_shape_fault(op_type, *sized) if _UNSIZED not in sized else None
        if fault is not None:
            raise ExecutionError(fault)


def _sized(value: Any) -> Any:
    """Arguments with the sizes for which they are traced, in place of symbols and tensors.

    No guard is added. ``_UNSIZED`` where a size is data's.
    """
    match value:
        case torch.Tensor():
            shape = _sized([*value.shape])
            return _UNSIZED if shape is _UNSIZED else TensorType(shape, name_of(value.dtype), ())
        case list() | tuple():
            items = [_sized(item) for item in cast(Sequence[Any], value)]
            return _UNSIZED if _UNSIZED in items else items
        case dict():
            items = {key: _sized(item) for key, item in cast(dict[str, Any], value).items()}
            return _UNSIZED if _UNSIZED in items.values() else items
        case torch.SymInt():
            return _UNSIZED if value.node.hint is None else value.node.hint
        case _:
            return value


_UNSIZED = object()
_UNRECORDED = TensorMeta("", (), "float32")


@public
def call_on(ir: IR, node: OpNode, inputs: Sequence[TensorType] | None = None) -> Outcome:
    """Return what a node gives: the types of its results, and whose storage they have.

    Args:
        ir: The program, whose symbols sizes may have.
        node: The node.
        inputs: The type of each of its inputs; as recorded, in row-major order, if None.

    Example:
        >>> from torch_ir.ir import SymbolRange
        >>> x = TensorMeta("x", ("s0", 3), "float32")
        >>> y = TensorMeta("y", (3, "s0"), "float32", "y")
        >>> node = OpNode("y", "aten.t.default", [x], [y])
        >>> outcome = call_on(IR([node], [x], [y], [], symbols={"s0": SymbolRange(2, None)}), node)
        >>> outcome.results[0].strides, outcome.shares, outcome.kind
        ((1, 3), (frozenset({0}),), 'ok')
    """
    given = _given(node, inputs)
    if _is_static(node, given):
        return call_at(node, given, {})
    return ir.view("fakes", lambda: Fakes(ir)).outcome(node, given)


def _given(node: OpNode, types: Sequence[TensorType] | None) -> tuple[TensorType, ...]:
    return tuple([contiguous(meta) for meta in node.inputs] if types is None else types)


def _is_static(node: OpNode, types: Sequence[TensorType]) -> bool:
    """Whether a call has no symbols: it is then the same in every program."""
    return (
        all(kind.is_static for kind in types)
        and all(meta.is_static for meta in node.outputs)
        and not any(map(attribute_symbols, node.attrs.values()))
    )


def value_types(ir: IR, given: Mapping[str, TensorType] = {}) -> Mapping[str, TensorType]:
    """Return the type of each value; one that torch cannot tell is absent, and so is what follows.

    Graph inputs and weights are taken to be contiguous, if not ``given`` by the names that nodes
    use; constants have their own strides. Without ``given``, they are kept with the graph.
    """
    key = value_types, torch.get_default_dtype()
    return _value_types(ir, given) if given else ir.view(key, lambda: _value_types(ir, {}))


def _value_types(ir: IR, given: Mapping[str, TensorType]) -> Mapping[str, TensorType]:
    found = {meta.name: contiguous(meta) for meta in ir.graph_inputs} | external_types(ir)
    found.update(given)
    for node in ir.nodes:
        if all(meta.name in found for meta in node.inputs):
            outcome = call_on(ir, node, [found[meta.name] for meta in node.inputs])
            for meta in node.outputs:
                made = outcome.result(meta)
                if made is not None:
                    found[meta.name] = recorded(meta, made)
    return FrozenDict(found)
