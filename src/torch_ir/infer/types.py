"""Types of tensors, calls by the types of their inputs, and outcomes of calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import torch

from torch_ir.arguments import public
from torch_ir.ir import IR, Constant, OpNode, SymExpr, TensorMeta
from torch_ir.ir.expressions import Number
from torch_ir.ir.symbols import Dim, as_dim
from torch_ir.ir.values import attribute_symbols, dtype_name, row_major

Region: TypeAlias = tuple[str, str, bool]
"""An autocast region: its device type, its dtype (empty for the default), whether it is on."""

Kind: TypeAlias = Literal["ok", "refused", "data-dependent", "no-fake-kernel"]


@cache
def name_of(dtype: torch.dtype) -> str:
    """Return the name of an element type."""
    return dtype_name(dtype, strict=False)


class TensorType(NamedTuple):
    """The type of a tensor and the order of its elements in memory.

    Attributes:
        shape: Dimensions.
        dtype: Name of the element type.
        strides: Elements from one position to the next, for each dimension; empty for a tensor
            that has none, as a sparse one.
    """

    shape: tuple[Dim, ...]
    dtype: str
    strides: tuple[Dim, ...]

    @classmethod
    @public
    def of(cls, tensor: torch.Tensor) -> TensorType:
        """Return the type of a tensor of known sizes."""
        strides = tensor.stride() if tensor.layout == torch.strided else ()
        return cls(tuple(tensor.shape), name_of(tensor.dtype), strides)

    def empty(self, device: str) -> torch.Tensor:
        """Return a tensor of this type, which has no symbols, on a device."""
        return torch.empty_strided(
            self.shape,  # pyright: ignore[reportArgumentType]  # symbols have values here
            self.strides,  # pyright: ignore[reportArgumentType]  # as above
            dtype=getattr(torch, self.dtype),
            device=device,
        )

    @property
    def is_static(self) -> bool:
        """Whether no size and no stride has a symbol."""
        return not any(isinstance(dim, SymExpr) for dim in (*self.shape, *self.strides))

    @property
    def is_row_major(self) -> bool:
        """Whether a copy would lie in row-major order, or may for all that symbols tell."""
        pairs = zip(self.strides, self.shape, strict=True)
        strides = [stride for stride, size in pairs if size != 1]
        known = [stride for stride in strides if not isinstance(stride, SymExpr)]
        return len(known) < len(strides) or known == sorted(known, reverse=True)


def contiguous(meta: TensorMeta) -> TensorType:
    """Return the type of a tensor whose elements lie in row-major order.

    Example:
        >>> contiguous(TensorMeta("x", (2, "s0", 3), "float32")).strides
        (SymExpr('3*s0'), 3, 1)
    """
    strides: list[Dim] = []
    size: Dim = 1
    for dim in reversed(meta.shape):
        strides.append(size)
        size = size * dim if isinstance(size, int) and isinstance(dim, int) else _times(size, dim)
    return TensorType(meta.shape, meta.dtype, tuple(reversed(strides)))


def recorded(meta: TensorMeta, made: TensorType | None) -> TensorType:
    """Return the recorded type of a result, with the strides that were inferred for it.

    Args:
        meta: The result as it is recorded.
        made: What was inferred; None, or one of another rank, stands for row-major order.
    """
    if made is None or len(made.strides) != len(meta.shape):
        return contiguous(meta)
    return TensorType(meta.shape, meta.dtype, made.strides)


def external_types(ir: IR) -> dict[str, TensorType]:
    """Return the type of each constant, and of each weight, which is taken to be contiguous.

    Args:
        ir: The program.

    Returns:
        A type for each name under which nodes use a weight or constant.

    Example:
        >>> table = Constant.from_list([[1, 2], [3, 4]], "int64")
        >>> column = table.view_of("table", (2,), strides=(2,))
        >>> types = external_types(IR([], [], [], [], constants={"t": table, "c": column}))
        >>> types["t"].strides, types["c"].strides
        ((2, 1), (2,))
    """
    return {
        name: TensorType(value.shape, value.dtype, value.strides)
        if isinstance(value, Constant)
        else contiguous(value)
        for name, (_, value) in ir.external_values().items()
    }


def _times(left: Dim, right: Dim) -> Dim:
    return as_dim(f"({left}) * ({right})")


class Callee(Protocol):
    """An operator with its arguments, the tensors among them by position: a node is one."""

    @property
    def op_type(self) -> str:
        """The operator."""
        ...

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The arguments that are no tensors."""
        ...

    @property
    def operands(self) -> Mapping[str, int | tuple[int | None, ...] | None] | None:
        """The positions of the tensors of each argument."""
        ...


class CallSignature(NamedTuple):
    """A call with its tensors replaced by their types.

    Attributes:
        op_type: The operator.
        attrs: The arguments that are no tensors.
        operands: The positions, among the types, of the tensors of each argument.
        types: The type of each tensor.
        symbols: The values of the symbols that attributes have.
        regions: The autocast regions around the call.
    """

    op_type: str
    attrs: Mapping[str, Any]
    operands: Mapping[str, int | tuple[int | None, ...] | None] | None
    types: tuple[TensorType, ...]
    symbols: tuple[tuple[str, Number], ...] = ()
    regions: tuple[Region, ...] = ()

    @classmethod
    def of(
        cls,
        node: OpNode,
        types: tuple[TensorType, ...],
        symbols: Mapping[str, Number],
        regions: tuple[Region, ...] = (),
    ) -> CallSignature:
        """Return the signature of a node.

        Args:
            node: The node.
            types: The type of each of its inputs, without symbols.
            symbols: Values of symbols; those that attributes have are kept.
            regions: The autocast regions around it.
        """
        values: tuple[tuple[str, Number], ...] = ()
        if symbols:
            used = sorted({s for v in node.attrs.values() for s in attribute_symbols(v)})
            values = tuple([(name, symbols[name]) for name in used if name in symbols])
        return cls(node.op_type, node.attrs, node.operands, types, values, regions)

    def in_row_major_order(self) -> CallSignature:
        """Return the same call of tensors whose elements lie in row-major order."""
        types = [t._replace(strides=row_major(t.shape)) for t in self.types]  # type: ignore[arg-type]  # without symbols
        return self._replace(types=tuple(types))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call gives, or why it is not known.

    Attributes:
        results: The type of each result, flattened; None for what is no tensor, and where no type
            is known.
        shares: For each result the positions, among the node's inputs, of the tensors whose
            storage it has.
        kind: ``ok``; ``refused``: torch does not take the call; ``data-dependent``: data decides
            a size, or the call cannot be made without data; ``no-fake-kernel``: nobody told torch
            what a custom operator gives.
        refusal: Why torch refuses the call; never empty for one that is refused.
        remedy: What to do about that, if something is known.
    """

    results: tuple[TensorType | None, ...] = ()
    shares: tuple[frozenset[int], ...] = ()
    kind: Kind = "ok"
    refusal: str = ""
    remedy: str = ""

    def result(self, meta: TensorMeta) -> TensorType | None:
        """Return the type of a result of the node, or None."""
        index = meta.producer_output_idx
        return self.results[index] if index < len(self.results) else None
