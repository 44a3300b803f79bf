"""The table of which arguments share storage with the results of an operator.

The alias marks of the schemas say most of it. What they leave out, and where they say more than
always holds, stands in two tables here. ``tests/ops/test_aliases.py`` compares it with torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache, lru_cache
from typing import TypeAlias

from torch_ir.errors import InvalidIRError
from torch_ir.ops.schema import Schema, lookup, parse_schema


class Sharing(Enum):
    """When a result shares the storage of an argument."""

    ALWAYS = "always"
    BY_LAYOUT = "by layout"
    """The strides decide, as for ``reshape`` and ``contiguous``."""
    BY_DTYPE = "by dtype"
    """It is a copy where its dtype or device is another one, as for ``to`` and ``type_as``."""
    BY_VALUE = "by value"
    """Flags, sizes or data decide, as for ``dropout`` and ``sum_to_size``."""


Shared: TypeAlias = Mapping[str, Sharing]
"""The arguments whose storage one result shares."""

RESOLVE = frozenset({"aten.resolve_conj.default", "aten.resolve_neg.default"})
"""Operators that copy a value whose stored elements are its conjugate or its negation."""

_MARKED: Mapping[Sharing, str] = {
    Sharing.BY_LAYOUT: """
        aten.contiguous.default aten.flatten.using_ints aten.ravel.default
        aten.reshape.default aten.reshape_as.default
    """,
    Sharing.BY_DTYPE: """
        aten._add_relu.out aten._add_relu_.Tensor
        aten._autocast_to_full_precision.default aten._autocast_to_reduced_precision.default
        aten.pin_memory.default aten.to.device aten.to.dtype aten.to.dtype_layout aten.to.other
        aten.to.prim_dtype aten.to.prim_device aten.to.prim_other
    """,
    Sharing.BY_VALUE: " ".join(RESOLVE),
}
"""What decides where a schema marks a result that is a copy at times."""

_UNMARKED: Mapping[Sharing, str] = {
    Sharing.ALWAYS: """
        aten._foobar.default/self aten._remove_batch_dim.default/self
        aten._saturate_weight_to_fp16.default/weight
        aten._test_optional_filled_intlist.default/values
        aten._test_parallel_materialize.default/self aten._test_string_default.default/dummy
        aten._unsafe_view.default/self aten.atleast_1d.Sequence/tensors
        aten.atleast_1d.default/self aten.atleast_2d.Sequence/tensors
        aten.atleast_2d.default/self aten.atleast_3d.Sequence/tensors
        aten.atleast_3d.default/self aten.broadcast_tensors.default/tensors
        aten.data.default/self aten.histogramdd.TensorList_bins/bins/1
        aten.lift.default/self aten.meshgrid.default/tensors
        aten.meshgrid.indexing/tensors aten.set_.source_Tensor/source
        aten.set_.source_Tensor_storage_offset/source aten.unsafe_chunk.default/self
        aten.unsafe_split.Tensor/self aten.unsafe_split_with_sizes.default/self
    """,
    Sharing.BY_LAYOUT: """
        aten._reshape_from_tensor.default/self aten.to_dense_backward.default/grad
        aten.to_mkldnn_backward.default/grad
    """,
    Sharing.BY_DTYPE: """
        aten._cast_Byte.default/self aten._cast_Char.default/self aten._cast_Double.default/self
        aten._cast_Float.default/self aten._cast_Half.default/self aten._cast_Int.default/self
        aten._cast_Long.default/self aten._cast_Short.default/self aten._to_cpu.default/tensors
        aten.dequantize.self/self aten.to_dense.default/self aten.type_as.default/self
        prims.device_put.default/a
    """,
    Sharing.BY_VALUE: """
        aten._nested_compute_contiguous_strides_offsets.default/nested_size
        aten._test_optional_floatlist.default/values aten._test_optional_intlist.default/values
        aten.alpha_dropout.default/input aten.cartesian_prod.default/tensors
        aten.channel_shuffle.default/self aten.conj_physical.default/self
        aten.cummaxmin_backward.default/input aten.cumprod_backward.default/grad
        aten.diff.default/self aten.dropout.default/input aten.einsum.default/tensors
        aten.fake_quantize_per_channel_affine_cachemask_backward.default/grad
        aten.fake_quantize_per_tensor_affine_cachemask_backward.default/grad
        aten.feature_alpha_dropout.default/input aten.feature_dropout.default/input
        aten.flatten_dense_tensors.default/tensors aten.native_channel_shuffle.default/self
        aten.native_dropout.default/input aten.set.source_Tensor/source
        aten.sum_to_size.default/self aten.to_sparse.default/self
        aten.unflatten_dense_tensors.default/flat
    """,
}
"""Arguments whose storage a result may share although no schema says so: the first result, or
that of the number behind the argument."""


BY_ITEM = frozenset(
    f"aten.{name}"
    for name in (
        *("_to_cpu.default", "atleast_1d.Sequence", "atleast_2d.Sequence", "atleast_3d.Sequence"),
        *("broadcast_tensors.default", "meshgrid.default", "meshgrid.indexing"),
        "histogramdd.TensorList_bins",
    )
)
"""Operators that give a list for a list, as their last result: each item shares storage with that
of its place alone."""


KEEP_ORDER = frozenset(
    f"aten.{name}"
    for name in (
        *("_unsafe_view.default", "alias.default", "contiguous.default", "detach.default"),
        *("flatten.using_ints", "lift_fresh.default", "ravel.default", "reshape.default"),
        *("reshape_as.default", "squeeze.default", "squeeze.dim", "squeeze.dims"),
        *("to.device", "to.dtype", "to.dtype_layout", "to.other", "unflatten.int"),
        *("unsqueeze.default", "view.default", "view.dtype", "view_as.default"),
    )
)
"""Operators whose result has all elements of the storage that it shares, in the same order."""


ITSELF = frozenset(("prims.device_put.default",)) | frozenset(
    f"aten.{name}"
    for name in (
        *("_autocast_to_full_precision.default", "_autocast_to_reduced_precision.default"),
        *("_cast_Byte.default", "_cast_Char.default", "_cast_Double.default"),
        *("_cast_Float.default", "_cast_Half.default", "_cast_Int.default", "_cast_Long.default"),
        *("_cast_Short.default", "_foobar.default"),
        *("_nested_compute_contiguous_strides_offsets.default",),
        *("_saturate_weight_to_fp16.default", "_test_optional_filled_intlist.default"),
        *("_test_optional_floatlist.default", "_test_optional_intlist.default"),
        *("_test_parallel_materialize.default", "_test_string_default.default"),
        *("_to_cpu.default", "adjoint.default", "alpha_dropout.default", "atleast_1d.Sequence"),
        *("atleast_1d.default", "atleast_2d.Sequence", "atleast_2d.default"),
        *("atleast_3d.Sequence", "atleast_3d.default", "broadcast_tensors.default"),
        *("cartesian_prod.default", "conj.default", "conj_physical.default"),
        *("contiguous.default", "cummaxmin_backward.default", "cumprod_backward.default"),
        *("dequantize.self", "dropout.default", "feature_alpha_dropout.default"),
        "histogramdd.TensorList_bins",
        *("feature_dropout.default", "flatten.using_ints", "lift.default", "lift_fresh.default"),
        *("mH.default", "mT.default", "matrix_H.default", "positive.default", "real.default"),
        *("resolve_conj.default", "resolve_neg.default", "sum_to_size.default", "to.device"),
        *("to.dtype", "to.dtype_layout", "to.other", "to_dense.default"),
        *("to_dense_backward.default", "to_mkldnn_backward.default", "to_sparse.default"),
        *("type_as.default",),
    )
)
"""Operators that may give the very tensor that they take: what changes its shape changes both."""


@cache
def _rows() -> tuple[Mapping[str, Sharing], Mapping[str, Mapping[int, Shared]]]:
    """Return what the two tables say of an operator."""
    marked = {name: kind for kind, names in _MARKED.items() for name in names.split()}
    unmarked: dict[str, dict[int, dict[str, Sharing]]] = {}
    for kind, names in _UNMARKED.items():
        for name in names.split():
            op_type, argument, *position = name.split("/")
            rows = unmarked.setdefault(op_type, {})
            rows.setdefault(int(position[0]) if position else 0, {})[argument] = kind
    for op_type, rows in unmarked.items():
        schema = lookup(op_type)
        if schema is None:
            continue
        marks = dict(_marks(schema))
        for position, row in rows.items():
            if row.keys() & set(marks.get(position, ())) or not row.keys() <= schema.names:
                raise InvalidIRError(
                    f"the aliases of {op_type} repeat its schema or contradict it"
                )
    return marked, unmarked


def sharing(schema: Schema) -> tuple[Shared, ...]:
    """Return, for each declared result, the arguments whose storage it shares.

    An argument that a call does not give is never shared. A list of tensors is one result.

    Example:
        >>> [dict(shared) for shared in sharing(lookup("aten.view.default"))]
        [{'self': <Sharing.ALWAYS: 'always'>}]
        >>> sharing(lookup("aten.dropout.default"))[0]["input"].name
        'BY_VALUE'
    """
    return _sharing(schema.text)


@lru_cache(maxsize=4096)
def _sharing(text: str) -> tuple[Shared, ...]:
    schema = parse_schema(text)
    decided, unmarked = _rows()
    kind = decided.get(schema.op_type, Sharing.ALWAYS)
    results = [dict.fromkeys(names, kind) for _, names in _marks(schema)]
    for position, row in unmarked.get(schema.op_type, {}).items():
        results[position] |= row
    return tuple(results)


def _marks(schema: Schema) -> Iterator[tuple[int, list[str]]]:
    """Yield each result with the arguments of its alias set."""
    for position, result in enumerate(schema.returns):
        names = [a.name for a in schema.arguments if a.alias and a.alias == result.alias]
        yield position, names
