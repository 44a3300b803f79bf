"""The effects of a call beside its results: it writes, draws random numbers, or checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from torch_ir.ops.aliases import sharing
from torch_ir.ops.collectives import is_collective
from torch_ir.ops.rules import judged
from torch_ir.ops.schema import Schema, data_text, lookup, parse_schema
from torch_ir.ops.spec import tagged_traits


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects of one call.

    Attributes:
        writes: The arguments that it writes.
        draws: Whether it draws random numbers.
        checks: Whether it is called for what it refuses, prints or registers, or for the other
            processes of a group, which wait for it.
        is_known: Whether its schema is known; what is not known may do anything.
    """

    writes: tuple[str, ...] = ()
    draws: bool = False
    checks: bool = False
    is_known: bool = True

    @property
    def is_pure(self) -> bool:
        """Whether nothing is lost with the call if nothing uses its results."""
        return self.is_known and not (self.writes or self.draws or self.checks)


_STATISTICS = ("running_mean", "running_var")
_UNMARKED_WRITES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "aten.set.source_Tensor": (("source",), ""),
    "aten.set.source_Tensor_out": (("source",), ""),
    "aten.set_.source_Tensor": (("source",), ""),
    "aten.set_.source_Tensor_storage_offset": (("source",), ""),
    "aten._copy_from.default": (("dst",), ""),
    "aten._copy_from.out": (("dst",), ""),
    "aten._copy_from_and_resize.default": (("dst",), ""),
    "aten._copy_from_and_resize.out": (("dst",), ""),
    "aten.batch_norm.default": (_STATISTICS, "training"),
    "aten.instance_norm.default": (_STATISTICS, "use_input_stats"),
    "aten.native_batch_norm.default": (_STATISTICS, "training"),
    "aten.native_batch_norm.out": (_STATISTICS, "training"),
    "aten.cudnn_batch_norm.default": (_STATISTICS, "training"),
    "aten.cudnn_batch_norm.out": (_STATISTICS, "training"),
    "aten.miopen_batch_norm.default": (_STATISTICS, "training"),
    "aten.miopen_batch_norm.out": (_STATISTICS, "training"),
    "aten._batch_norm_impl_index.default": (_STATISTICS, "training"),
}
"""Arguments that are written although no schema says so, if the named flag, if any, is true."""

TYPE_CHECKS = frozenset({"aten._assert_tensor_metadata.default"})
"""Operators that only check what the types of a graph say already."""

_CHECKS = TYPE_CHECKS | frozenset(
    {
        "aten._assert_async.default",
        "aten._assert_async.msg",
        "aten._assert_scalar.default",
        "aten._functional_assert_async.msg",
        "aten._functional_assert_scalar.default",
        "aten._functional_sym_constrain_range.default",
        "aten._functional_sym_constrain_range_for_size.default",
        "aten._linalg_check_errors.default",
        "aten._print.default",
        "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
    }
)

_SWITCHES = ("train", "training")
_UNKNOWN = Effects(is_known=False)


def effects(schema: Schema | None, attrs: Mapping[str, object]) -> Effects:
    """Return what a call with these attributes does beside giving its results.

    Args:
        schema: The operator's; None if nobody recorded it.
        attrs: The arguments of the call that are no tensors.

    Example:
        >>> from torch_ir.ops.schema import lookup
        >>> effects(lookup("aten.add_.Tensor"), {}).writes
        ('self',)
        >>> dropout = lookup("aten.dropout.default")
        >>> [effects(dropout, {"p": 0.5, "train": train}).is_pure for train in (True, False)]
        [False, True]
    """
    if schema is None:
        return _UNKNOWN
    return _of_every_call(schema.text) or _of_call(schema, attrs)


@lru_cache(maxsize=4096)
def _of_every_call(text: str) -> Effects | None:
    """The effects of an operator, or None where the attributes of a call decide."""
    schema = parse_schema(text)
    is_random = "random" in tagged_traits(schema.op_type)
    is_decided = not is_random and schema.op_type not in _UNMARKED_WRITES
    return _of_call(schema, {}) if is_decided else None


def never_writes(schema_text: str) -> bool:
    """Return whether no call of an operator writes what its arguments hold.

    Example:
        >>> from torch_ir.ops.schema import lookup
        >>> [never_writes(lookup(f"aten.{name}.default").text) for name in ("relu", "relu_")]
        [True, False]
    """
    known = _of_every_call(schema_text)
    return known is not None and not known.writes


@lru_cache(maxsize=4096)
def is_apart(schema_text: str) -> bool:
    """Return whether no call of an operator writes or gives back what its arguments hold.

    Example:
        >>> from torch_ir.ops.schema import lookup
        >>> names = ("aten.relu.default", "aten.relu_.default", "aten.view.default")
        >>> [is_apart(lookup(name).text) for name in names]
        [True, False, False]
    """
    return never_writes(schema_text) and not any(sharing(parse_schema(schema_text)))


def _of_call(schema: Schema, attrs: Mapping[str, object]) -> Effects:
    op_type = schema.op_type
    is_random = "random" in tagged_traits(op_type)
    writes = [a.name for a in schema.arguments if a.is_written]
    unmarked, flag = _UNMARKED_WRITES.get(op_type, ((), ""))
    writes += unmarked if not flag or attrs.get(flag) is True else ()
    checks = op_type in _CHECKS or is_collective(op_type) or not (schema.returns or writes)
    return Effects(tuple(writes), is_random and _draws(schema, attrs), checks)


def _draws(schema: Schema, attrs: Mapping[str, object]) -> bool:
    """Return whether its flags leave a random operator random."""
    rates = {"dropout_p"}
    if any(a.name == "train" and a.type == "bool" for a in schema.arguments):
        rates |= {"p", "dropout"}
    for argument in schema.arguments:
        name = argument.name
        if name in _SWITCHES and attrs.get(name, argument.default == "True") is False:
            return False
        if name in rates and attrs.get(name, 0.0) == 0.0:
            return False
    return True


def is_foldable(op_type: str, attrs: Mapping[str, object]) -> bool:
    """Return whether a call on known tensors may be computed before the program runs.

    That takes an operator of a list of its own, which programs may call and which does nothing
    beside giving its results: having no inputs and no marks is not enough. What a file or the
    caller says about operators does not count.

    Example:
        >>> is_foldable("aten.full.default", {}), is_foldable("aten.from_file.default", {})
        (True, False)
        >>> is_foldable("aten.empty.memory_format", {})  # whatever lay in memory
        False
    """
    if op_type not in _foldable():
        return False
    schema = lookup(op_type)
    is_pure = schema is None or effects(schema, attrs).is_pure
    return is_pure and judged(op_type, schema).allowed


@cache
def _foldable() -> frozenset[str]:
    return frozenset(data_text("foldable.txt").splitlines()[1:])
