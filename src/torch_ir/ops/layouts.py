"""Operators that read memory by strides, and those whose results have none."""

from __future__ import annotations

READING_MEMORY = frozenset(
    f"aten.{name}.default"
    for name in (
        *("as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter"),
        *("_reshape_alias", "_reshape_alias_copy", "resize", "resize_"),
    )
)
"""Operators that mean what lies where, and not only a value, unless that is all of its storage."""

KEEPING_STRIDES = frozenset(
    f"aten.{name}.default" for name in ("diagonal_scatter", "select_scatter", "slice_scatter")
)
"""Operators that write to a copy with their operand's strides: what lies at one place in it, as
windows of ``unfold`` do, is written together."""

BY_LAYOUT = {"aten._linalg_det.default": (1, 2), "aten._linalg_slogdet.default": (2, 3)}
"""Results that depend on strides: of a matrix in row-major order, the transpose is factored."""

_KINDS = ("bsc", "bsr", "csc", "csr")

MAKES_SPARSE = frozenset(
    f"aten.{name}"
    for name in (
        *("_sparse_coo_tensor_unsafe.default", "_sparse_coo_tensor_with_dims.default"),
        *("_sparse_coo_tensor_with_dims_and_tensors.default", "sparse_coo_tensor.indices"),
        *("sparse_coo_tensor.indices_size", "sparse_coo_tensor.size"),
        *("_sparse_compressed_tensor_unsafe.default", "to_sparse.default"),
        *("_sparse_compressed_tensor_with_dims.default", "to_sparse.sparse_dim"),
        *("sparse_compressed_tensor.comp_plain_value", "_to_sparse.default"),
        *("sparse_compressed_tensor.comp_plain_value_size", "_to_sparse.sparse_dim"),
        *(f"sparse_{kind}_tensor.ccol_row_value" for kind in ("bsc", "csc")),
        *(f"sparse_{kind}_tensor.ccol_row_value_size" for kind in ("bsc", "csc")),
        *(f"sparse_{kind}_tensor.crow_col_value" for kind in ("bsr", "csr")),
        *(f"sparse_{kind}_tensor.crow_col_value_size" for kind in ("bsr", "csr")),
        *(f"_sparse_{kind}_tensor_unsafe.default" for kind in _KINDS),
        *(f"to_sparse_{kind}.default" for kind in _KINDS),
        *(f"_to_sparse_{kind}.default" for kind in _KINDS),
        *("embedding_sparse_backward.default", "_embedding_bag_sparse_backward.default"),
        *("sparse_mask.default", "_sparse_sum.dim", "_sparse_sparse_matmul.default"),
        *("to_mkldnn.default", "_gather_sparse_backward.default"),
    )
)
"""Operators whose result is no strided tensor, or may be none."""

MADE_OF_PARTS = frozenset(
    name for name in MAKES_SPARSE if "_tensor" in name and "with_dims.default" not in name
)
"""Operators that make a sparse tensor of the elements that it stores."""

COUNTS_STORED = frozenset(
    f"aten.{name}.default"
    for name in (
        *("_nnz", "values", "_values", "indices", "_indices", "col_indices", "row_indices"),
    )
)
"""Operators that tell how many elements a sparse tensor stores, if only by a size."""

GIVES_DENSE = frozenset(
    f"aten.{name}"
    for name in (
        *("_to_dense.default", "to_dense.default", "values.default", "_values.default"),
        *("indices.default", "_indices.default", "crow_indices.default", "col_indices.default"),
        *("ccol_indices.default", "row_indices.default", "sum.default", "any.default"),
        *("norm.Scalar", "norm.ScalarOpt_dtype", "_sparse_sum.default"),
    )
)
"""Operators whose result is strided whatever the layout of their operands."""

DENSE_WITH_DENSE = frozenset(
    f"aten.{name}"
    for name in (
        *("mm.default", "bmm.default", "mv.default", "matmul.default", "linear.default"),
        *("addmm.default", "addmv.default", "_sparse_mm.default", "_sparse_addmm.default"),
        *("add.Tensor", "sub.Tensor"),
    )
)
"""Operators whose result is strided where some operand is."""
