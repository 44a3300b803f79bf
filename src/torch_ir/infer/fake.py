"""The nodes of a program on torch's fake tensors: shapes, strides and storages without data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch._guards import Source
from torch.fx.experimental.symbolic_shapes import DimDynamic

from torch_ir.errors import InvalidIRError, PassError, first_line
from torch_ir.frontend.symbols.scalars import expression
from torch_ir.infer.hints import samplings
from torch_ir.infer.resolve import resolve_operator, to_torch
from torch_ir.infer.symbolic import symbolic
from torch_ir.ir import IR, Constant, OpNode, SymExpr, TensorMeta
from torch_ir.ir.expressions import Number, renamed
from torch_ir.ir.symbols import Dim, as_dim
from torch_ir.ir.values import dtype_name
from torch_ir.torch_api import (
    FakeTensorMode,
    HigherOrderOperator,
    ShapeEnv,
    assume,
    enable_python_dispatcher,
    operator_schema,
    parameters_of,
    pytree,
)

RUN_DEVICE = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Layout:
    """The type of a tensor and how it lies in memory.

    Attributes:
        dtype: Name of the element type.
        shape: Dimensions.
        strides: Elements from one position to the next, for each dimension.
    """

    dtype: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]


@dataclass(frozen=True)
class _Symbol(Source):
    """Where a size comes from, as torch wants to know it: a symbol of the program."""

    symbol: str

    @property
    def _name_template(self) -> str:
        return self.symbol


def contiguous(meta: TensorMeta) -> Layout:
    """Return the layout of a tensor whose elements lie in row-major order.

    Example:
        >>> contiguous(TensorMeta("x", (2, "s0", 3), "float32")).strides
        (SymExpr('3*s0'), 3, 1)
    """
    strides: list[Dim] = []
    size: Dim = 1
    for dim in reversed(meta.shape):
        strides.append(size)
        size = (
            size * dim if isinstance(size, int) and isinstance(dim, int) else _product(size, dim)
        )
    return Layout(meta.dtype, meta.shape, tuple(reversed(strides)))


def external_layouts(ir: IR) -> dict[str, Layout]:
    """Return the layout of each constant, and of each weight, which is taken to be contiguous.

    Args:
        ir: The program.

    Returns:
        A layout for each name under which nodes use a weight or constant.

    Example:
        >>> table = Constant.from_list([[1, 2], [3, 4]], "int64")
        >>> column = table.view_of("table", (2,), strides=(2,))
        >>> layouts = external_layouts(IR([], [], [], [], constants={"t": table, "c": column}))
        >>> layouts["t"].strides, layouts["c"].strides
        ((2, 1), (2,))
    """
    return {
        name: Layout(value.dtype, value.shape, value.strides)
        if isinstance(value, Constant)
        else contiguous(value)
        for name, (_, value) in ir.external_values().items()
    }


def _product(left: Dim, right: Dim) -> Dim:
    return as_dim(f"({left}) * ({right})")


class Fakes:
    """Fake tensors for the values of a program; its symbols are torch's symbolic sizes.

    Args:
        ir: The program: its symbols, and the conditions that hold for them.
    """

    def __init__(self, ir: IR):
        self.env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        self.symbols: dict[str, Any] = {}
        self._ours: dict[str, str] = {}
        with self.mode:
            self._declare(ir)
        self._known_guards = len(self.env.guards)

    def settle(self) -> None:
        """Forget the sizes that torch made up for results that depend on data."""
        self.env.pending_fresh_unbacked_symbols.clear()

    def _declare(self, ir: IR) -> None:
        given = ir.given_symbols
        found = samplings(ir)
        for name, bounds in ir.symbols.items():
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

    @contextmanager
    def tracing(self) -> Generator[None]:
        """Enter the state in which operators are called on fake tensors."""
        with self.mode, enable_python_dispatcher(), torch.no_grad():
            yield

    # -- values -----------------------------------------------------------------------------------

    def tensor(self, layout: Layout) -> torch.Tensor:
        """Make a fresh fake tensor of that layout."""
        shape = [symbolic(dim, self.symbols) for dim in layout.shape]
        strides = [symbolic(dim, self.symbols) for dim in layout.strides]
        return torch.empty_strided(shape, strides, dtype=getattr(torch, layout.dtype))

    def layout(self, meta: TensorMeta, tensor: torch.Tensor) -> Layout:
        """Return the layout of a result recorded as ``meta``; what data decides is contiguous."""
        try:
            strides = [self.dim(stride) for stride in tensor.stride()]
        except (PassError, InvalidIRError):
            return contiguous(meta)
        if len(strides) != len(meta.shape):
            return contiguous(meta)
        return Layout(meta.dtype, meta.shape, tuple(strides))

    def dim(self, value: int | torch.SymInt) -> Dim:
        """Convert a size to a dimension over the program's own symbols.

        Raises:
            PassError: It has a symbol that the program does not have.
        """
        return as_dim(value) if isinstance(value, int) else as_dim(self.expression(value))

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
        symbols: Mapping[str, Number] | None = None,
        function: Callable[..., Any] | None = None,
    ) -> Any:
        """Call a node's operator on the given tensors, one for each of its inputs.

        Args:
            node: The node.
            tensors: The tensors.
            symbols: Values of the symbols, if not those of this object.
            function: What to call in place of the operator, with the same arguments.
        """
        args, kwargs = arguments(node, tensors, self.symbols if symbols is None else symbols)
        target = cast(Any, function or resolve_operator(node.op_type))
        return target(*args, **kwargs)


def arguments(
    node: OpNode, tensors: Sequence[Any], symbols: Mapping[str, Number]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and keyword arguments of a node's operator.

    Raises:
        ExecutionError: torch has no such operator.
        PassError: The node's inputs have no arguments.
    """
    if node.operands is None:
        raise PassError(f"the inputs of node {node.name!r} do not fit {node.op_type}")
    operator = resolve_operator(node.op_type)
    if isinstance(operator, HigherOrderOperator):
        keyword_only = {
            parameter.name: parameter.kind is inspect.Parameter.KEYWORD_ONLY
            for parameter in parameters_of(operator)
        }
    else:
        keyword_only = {a.name: a.keyword_only for a in operator_schema(operator).arguments}
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    skipped = False
    for name, is_keyword in keyword_only.items():
        if name not in node.operands and name not in node.attrs:
            skipped = True
            continue
        value = _argument(node, name, tensors, symbols)
        if is_keyword or skipped:
            kwargs[name] = value
        else:
            args.append(value)
    return args, kwargs


def _argument(
    node: OpNode, name: str, tensors: Sequence[Any], symbols: Mapping[str, Number]
) -> Any:
    slots = node.slots.get(name)
    if isinstance(slots, int):
        return tensors[slots]
    constant = symbolic(to_torch(node.attrs.get(name), RUN_DEVICE, _no_function), symbols)
    if slots is None:
        return constant
    rest = constant or [None] * len(slots)
    return [
        value if slot is None else tensors[slot] for slot, value in zip(slots, rest, strict=True)
    ]


def _no_function(name: str) -> Callable[..., Any]:
    raise PassError(f"the function {name!r} is not called on fake tensors")


def result_dtypes(fakes: Fakes, node: OpNode) -> tuple[str, ...]:
    """Return the dtypes of a node's results.

    Raises:
        PassError: torch refuses the call.
    """
    with fakes.tracing():
        tensors = [fakes.tensor(contiguous(meta)) for meta in node.inputs]
        try:
            results = pytree.tree_leaves(fakes.call(node, tensors))
        except Exception as error:  # torch refuses calls with any error
            raise PassError(f"torch refuses {node.op_type} here: {first_line(error)}") from error
    return tuple([dtype_name(result.dtype, strict=False) for result in results])
