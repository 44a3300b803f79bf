"""One operator as the dialects see it: its schema, its traits, and which dtypes it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from torch_ir.arguments import public
from torch_ir.errors import InvalidIRError, did_you_mean
from torch_ir.ops.schema import Argument, Schema, data_text, known_operators, lookup, parse_schema

if TYPE_CHECKING:
    from torch_ir.ops.dtype_constraints import DTypeTable


DENSE_OPERANDS = {
    "aten.native_group_norm.default": ("input", "weight", "bias"),
    "aten._pdist_forward.default": ("self",),
    "aten._pdist_backward.default": ("self", "pdist"),
    "aten._embedding_bag.default": ("indices", "offsets"),
    "aten._embedding_bag_forward_only.default": ("indices", "offsets"),
    "aten.median.dim": ("self",),
    "aten.nanmedian.dim": ("self",),
    "aten._masked_softmax.default": ("self",),
    "aten._weight_int8pack_mm.default": ("scales",),
    "aten.native_layer_norm_backward.default": ("mean", "rstd"),
    "aten.native_group_norm_backward.default": ("grad_out", "input", "mean", "rstd", "weight"),
    "aten.adaptive_max_pool3d_backward.default": ("indices",),
    "aten.fractional_max_pool2d_backward.default": ("indices",),
    "aten.fractional_max_pool3d_backward.default": ("indices",),
}
"""Operators whose kernels refuse tensors that are not dense, or read them as if they were, with
the arguments that must be."""


@dataclass(frozen=True, slots=True)
class TypedArgument(Argument):
    """An argument or result with the dtypes that it may have.

    Attributes:
        allowed_types: torch's names of the dtypes that some legal call gives it, or, for a
            number, of the dtype that stands for its kind: bool, int64, float64. Empty for what
            has no dtype.
    """

    allowed_types: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TypedSchema(Schema):
    """A schema whose arguments and results know their dtypes."""

    arguments: tuple[TypedArgument, ...]
    returns: tuple[TypedArgument, ...]


@dataclass(frozen=True, slots=True)
class OpSpec:
    """What the dialects know of one exact overload; everything else derives from it.

    Attributes:
        op_type: The overload, such as ``aten.sigmoid.default``.
        schema: Its schema; in a dialect with dtype constraints a :class:`TypedSchema`.
        traits: ``core``, ``pointwise``, ``reduction``, ``view-copy``, ``random``,
            ``dynamic-shape`` and ``reads-data`` as torch tags it; ``irreducible`` if torch has
            no decomposition of it; ``functional``, ``view``, ``writes`` and ``scalar-result``
            as its schema says.
        constraint: Its dtype rows, or None where nothing constrains it.

    Example:
        >>> spec = spec_of("aten.add_.Tensor")
        >>> spec.is_functional, sorted(spec.traits)
        (False, ['pointwise', 'writes'])
    """

    op_type: str
    schema: Schema
    traits: frozenset[str]
    constraint: DTypeTable | None = None

    @property
    def is_functional(self) -> bool:
        """Whether it neither writes nor returns what it is given."""
        return "functional" in self.traits

    @property
    def is_core(self) -> bool:
        """Whether it is in the core ATen set.

        It is if torch tags it so, if it copies a view, or if no core operators can stand for it.
        """
        return bool(self.traits & {"core", "view-copy", "irreducible"})

    def __str__(self) -> str:
        return str(self.schema)


@public
def spec_of(op_type: str, operators: Mapping[str, str] | None = None) -> OpSpec:
    """Return the spec of an operator.

    Args:
        op_type: The exact overload.
        operators: Schemas of operators that libraries registered, as ``IR.operators`` has them.

    Raises:
        InvalidIRError: Nobody recorded its schema; the message names the closest operator.
    """
    text = (operators or {}).get(op_type)
    schema = lookup(op_type) if text is None else parse_schema(text)
    if schema is None:
        known = [*known_operators(), *(operators or {})]
        raise InvalidIRError(
            f"there is no operator {op_type!r}", remedy=did_you_mean(op_type, known) or None
        )
    return _spec(op_type, schema)


@cache
def _spec(op_type: str, schema: Schema) -> OpSpec:
    return OpSpec(op_type, schema, frozenset(_schema_traits(schema)) | tagged_traits(op_type))


def tagged_traits(op_type: str) -> frozenset[str]:
    """Return the traits that torch's tags give an operator."""
    return _traits().get(op_type, frozenset())


@cache
def _traits() -> Mapping[str, frozenset[str]]:
    lines = data_text("traits.txt").splitlines()[1:]
    return {name: frozenset(traits) for name, *traits in map(str.split, lines)}


def _schema_traits(schema: Schema) -> Iterable[str]:
    writes = any(argument.is_written for argument in schema.arguments)
    views = any(result.alias for result in schema.returns)
    if writes:
        yield "writes"
    elif views:
        yield "view"
    else:
        yield "functional"
    if any(not is_tensor_type(result.type) for result in schema.returns):
        yield "scalar-result"


def is_tensor_type(kind: str) -> bool:
    """Return whether a schema's type is made of tensors alone, such as ``Tensor?``."""
    return kind.startswith("Tensor")
