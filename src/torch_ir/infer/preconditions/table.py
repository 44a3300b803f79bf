"""Operators whose kernels trust their caller, and what has to hold before they are called.

Such a kernel reads or writes as far as an index or a size says, without a look at where its
tensors end. :data:`PRECONDITIONS` has a rule for each of them, overload by overload. Rules about
shapes are asked when a graph is compiled, and again with the tensors of each call, as sizes may
depend on its inputs; rules about values are asked in the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import torch

from torch_ir.errors import ExecutionError, InvalidIRError
from torch_ir.infer.preconditions import indices, lists, shapes
from torch_ir.infer.preconditions.faults import (
    Arguments,
    Faults,
    not_dense,
    not_matrices,
    repeated,
    strided_rows,
)
from torch_ir.infer.preconditions.recurrent import one_layer, packed_sequences, recurrent
from torch_ir.ir.values import layout_name
from torch_ir.ops.flops import GATES
from torch_ir.ops.schema import lookup
from torch_ir.ops.spec import DENSE_OPERANDS
from torch_ir.torch_api import FakeTensor
from torch_ir.torch_versions import torch_is


@dataclass(frozen=True, slots=True)
class Precondition:
    """What has to hold before an operator is called, besides that its tensors are dense.

    Attributes:
        op_type: The exact overload.
        shapes: Yields what does not fit in the shapes, numbers and list lengths of a call.
        values: Yields what does not fit in the values of its tensors; asked after ``shapes``.
        layouts: Yields the tensors whose strides the kernel does not look at; asked before.
    """

    op_type: str
    shapes: Callable[[Arguments], Faults] | None = None
    values: Callable[[Arguments], Faults] | None = None
    layouts: Callable[[Arguments], Faults] | None = None


def find_shape_fault(op_type: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the shapes of a call; None if nothing is, or no rule is known.

    Args:
        op_type: The overload.
        args: Its positional arguments; a tensor may be anything that has its ``shape``.
        kwargs: Its keyword arguments.

    Example:
        >>> lstm = torch.nn.LSTM(8, 6)
        >>> x, states = torch.ones(5, 2, 8), [torch.ones(1, 3, 6), torch.ones(1, 3, 6)]
        >>> rest = (lstm._flat_weights, True, 1, 0.0, False, False, False)
        >>> find_shape_fault("aten.lstm.input", (x, states, *rest), {})
        'hx[0] is [1, 3, 6], and has to be [1, 2, 6]'
    """
    rule = PRECONDITIONS.get(op_type)
    if rule is None or rule.shapes is None:
        return None
    return next(rule.shapes(_named(op_type, args, kwargs)), None)


def require_arguments(op_type: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a call whose kernel would read or write where it must not.

    Args:
        op_type: The overload; nothing is asked of one without a rule.
        args: Its positional arguments, with tensors that have data.
        kwargs: Its keyword arguments.

    Raises:
        ExecutionError: It would; the message names the argument, the value and what is allowed.
    """
    rule = PRECONDITIONS.get(op_type)
    if rule is None:
        return
    named = _named(op_type, args, kwargs)
    fault, remedy = next(_other_layouts(named), None), None
    if fault is None and rule.shapes is not None:
        fault = next(rule.shapes(named), None)
    is_traced = any(map(_has_no_data, named.values()))
    if fault is None and rule.layouts is not None and not is_traced:
        fault = next(rule.layouts(named), None)
        remedy = _COPY if fault else None
    if fault is None and rule.values is not None and not is_traced:
        fault = next(rule.values(named), None)
    if fault is not None:
        raise ExecutionError(f"{op_type} cannot take these arguments: {fault}", remedy=remedy)


def asks_for_values(op_type: str) -> bool:
    """Return whether the values of tensors decide if an operator's kernel may be called.

    Example:
        >>> asks_for_values("aten.max_pool2d_with_indices_backward.default")
        True
    """
    rule = PRECONDITIONS.get(op_type)
    return rule is not None and rule.values is not None


_COPY = "Copy it in the model, by .contiguous(), or run what torch_ir.decompose(ir) makes."


def _other_layouts(named: Arguments) -> Faults:
    """Yield the tensors that are not dense: these kernels take the memory of all for that."""
    for name, value in named.items():
        items: Any = value if isinstance(value, list | tuple) else [value]
        for item in items:
            if isinstance(item, torch.Tensor) and (item.is_nested or item.layout != torch.strided):
                kind = "nested" if item.is_nested else layout_name(item.layout)
                yield f"{name} is a {kind} tensor, and has to be dense"


def _has_no_data(value: Any) -> bool:
    """Whether somebody traces the run: there is nothing to read then."""
    return isinstance(value, FakeTensor) or (isinstance(value, torch.Tensor) and value.is_meta)


def _named(op_type: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {**dict(zip(_names(op_type), args, strict=False)), **kwargs}


@cache
def _names(op_type: str) -> tuple[str, ...]:
    schema = lookup(op_type)
    if schema is None:
        raise InvalidIRError(f"a rule is for {op_type!r}, which is not in the table of operators")
    return tuple([argument.name for argument in schema.arguments])


# -- the table ------------------------------------------------------------------------------------

Rule = Callable[[Arguments], Faults]

_POOLED = {
    "max_pool2d_with_indices_backward": 2,
    "max_pool3d_with_indices_backward": 3,
    "adaptive_max_pool2d_backward": 2,
    "adaptive_max_pool3d_backward": 3,
}

_RESAMPLED = (
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
    *(
        f"{kind}{rank}d"
        for kind in ("upsample_nearest", "_upsample_nearest_exact")
        for rank in (1, 2, 3)
    ),
)
_RULES: Mapping[str, tuple[Rule | None, Rule | None]] = {
    "mkldnn_rnn_layer: default out": (one_layer, None),
    "_ctc_loss: default Tensor Tensor_out out": (indices.sequences, indices.alignments),
    "_ctc_loss_backward: default Tensor out": (indices.sequences, indices.alignments),
    "_embedding_bag: default out": (indices.looked_up, indices.looked_up_rows),
    "_embedding_bag_forward_only: default out": (indices.looked_up, indices.looked_up_rows),
    "embedding_bag: default padding_idx": (indices.looked_up, indices.looked_up_rows),
    "_embedding_bag_backward: default": (indices.bags, indices.bagged),
    "_embedding_bag_dense_backward: default out": (indices.bags, indices.bagged),
    "_embedding_bag_per_sample_weights_backward: default out": (indices.bags, indices.bagged),
    "_embedding_bag_sparse_backward: default": (indices.bags, indices.bagged),
    "_gather_sparse_backward: default": (indices.scattered, indices.scattered_to),
    "gather_backward: default": (indices.gathered, indices.gathered_from),
    "smooth_l1_loss_backward: default grad_input": (None, shapes.smoothed),
    "range: default step": (shapes.stepped, None),
    **({"arange: start_step start_out": (shapes.counted, None)} if not torch_is("2.13") else {}),
    "gelu_backward: default grad_input": (shapes.alike("self", "grad_output"), None),
    **{
        row: (
            shapes.alike("output", "grad_output"),
            shapes.of_one_type,
        )
        for row in ("_softmax_backward_data: default", "_log_softmax_backward_data: default")
    },
    "_pdist_forward: default out": (shapes.points, None),
    "_saturate_weight_to_fp16: default": (shapes.filled_matrix("weight"), None),
    "fbgemm_linear_quantize_weight: default": (shapes.filled_matrix("input"), None),
    "fbgemm_pack_gemm_matrix_fp16: default": (shapes.filled_matrix("input"), None),
    "_fused_moving_avg_obs_fq_helper: default": (shapes.observed, shapes.observed_types),
    "_fused_moving_avg_obs_fq_helper_functional: default": (
        shapes.observed,
        shapes.observed_types,
    ),
    "fused_moving_avg_obs_fake_quant: default": (shapes.observed, shapes.observed_types),
    "_batch_norm_no_update: default out": (shapes.batch_norm_as_is, None),
    "embedding_backward: default": (shapes.embedding_gradient_of, shapes.embedded),
    "segment_reduce: default out": (indices.segments, indices.segmented),
    "_segment_reduce_backward: default out": (indices.segments, indices.segmented),
    "_convert_indices_from_csr_to_coo: default out": (indices.compressed, indices.compressed_rows),
    "_convert_indices_from_coo_to_csr: default out": (None, indices.row_numbers),
    "_sobol_engine_initialize_state_: default": (indices.sobol, None),
    "_sobol_engine_draw: default": (indices.sobol, None),
    "_sobol_engine_ff_: default": (indices.sobol, None),
    "_sobol_engine_scramble_: default": (indices.sobol, None),
    **dict.fromkeys(
        (
            f"_fused_{name}: default out tensor_lr tensor_lr_out"
            for name in ("adagrad", "adam", "adamw", "sgd")
        ),
        (lists.optimized, lists.dense),
    ),
    **dict.fromkeys(
        (f"_fused_{name}_: default tensor_lr" for name in ("adagrad", "adam", "adamw", "sgd")),
        (lists.optimized, lists.dense),
    ),
    **{f"{name}: input": (recurrent(gates), None) for name, gates in GATES.items()},
    **{f"{name}: data": (recurrent(gates), packed_sequences) for name, gates in GATES.items()},
    "_foreach_copy: default out": (lists.copied, None),
    "copy: default out": (None, None),
    "resize_as: default out": (None, None),
    "trapz: x dx": (None, None),
    "resize_as_: default": (None, None),
    "native_batch_norm: default out": (shapes.batch_norm, None),
    "_native_batch_norm_legit: default no_stats out no_stats_out": (shapes.batch_norm, None),
    "_native_batch_norm_legit_functional: default": (shapes.batch_norm, None),
    "_batch_norm_with_update: default out": (shapes.batch_norm, None),
    "_batch_norm_with_update_functional: default": (shapes.batch_norm, None),
    "native_batch_norm_backward: default out": (shapes.batch_norm, None),
    "batch_norm_backward: default": (shapes.batch_norm, None),
    "native_layer_norm_backward: default out": (shapes.layer_norm_gradient, None),
    "_adaptive_avg_pool2d_backward: default out": (shapes.spread(2), None),
    "_adaptive_avg_pool3d_backward: default out": (shapes.spread(3), None),
    "adaptive_avg_pool3d_backward: grad_input": (shapes.spread(3), None),
    "avg_pool2d_backward: default grad_input": (shapes.spread(2), None),
    "avg_pool3d_backward: default grad_input": (shapes.spread(3), None),
    **{
        f"{kind}_pad{rank}d_backward: default": (
            shapes.spread(rank, padded=True),
            None,
        )
        for kind in ("reflection", "replication")
        for rank in (1, 2, 3)
    },
    **{
        f"fractional_max_pool{rank}d_backward: default grad_input": (
            shapes.fractional(rank),
            indices.pooled(rank)[1],
        )
        for rank in (2, 3)
    },
    **{
        f"{name}{way}": (rule, None)
        for names, rule in (
            (_RESAMPLED, shapes.resampled),
            (("_upsample_bilinear2d_aa",), shapes.antialiased(1)),
            (("_upsample_bicubic2d_aa",), shapes.antialiased(2)),
            (("_upsample_lanczos2d_aa",), shapes.antialiased(3)),
        )
        for name in names
        for way in (": default out", "_backward: default grad_input")
    },
    "_linalg_eigvals: default": (None, indices.not_finite("self")),
    "linalg_eigvals: default out": (None, indices.not_finite("self")),
    "grid_sampler: default": (None, indices.sampled_places_with_gradient),
    "grid_sampler_2d: default": (None, indices.sampled_places_with_gradient),
    "grid_sampler_2d_backward: default out": (shapes.grid_gradient, indices.sampled_places),
    "grid_sampler_3d_backward: default out": (shapes.grid_gradient, None),
    "embedding_dense_backward: default out": (shapes.embedding_gradient, shapes.embedded),
    "_fft_c2c: default out": (shapes.transformed, None),
    "_fft_c2r: default out": (shapes.transformed, None),
    "_fft_r2c: default out": (shapes.transformed, None),
    **{f"prims.fft_{way}: default": (shapes.transformed, None) for way in ("c2c", "c2r", "r2c")},
    "_scaled_dot_product_attention_math: default": (shapes.grouped_heads, None),
    "scaled_dot_product_attention: default": (shapes.grouped_heads, None),
    "_chunk_cat: default": (lists.in_chunks, None),
    "_masked_softmax: default": (shapes.with_elements("self"), None),
    "_unsafe_masked_index: default": (shapes.masked_index, None),
    **{
        f"{name}: out": (None, shapes.written)
        for name in ("_softmax", "_log_softmax", "tril", "triu")
    },
    "_scaled_dot_product_flash_attention_for_cpu: default": (shapes.attended, None),
    "_weight_int8pack_mm: default": (shapes.packed_codes, None),
    "_weight_norm: default": (shapes.weight_norm, None),
    "_weight_norm_interface: default out": (shapes.weight_norm, None),
    "_cdist_backward: default out": (shapes.distances, None),
    "_pdist_backward: default out": (shapes.distances, None),
    "lu_unpack: default out": (shapes.pivots, shapes.permuted),
    "linalg_ldl_solve: default out": (shapes.factored, shapes.paired),
    "_cholesky_solve_helper: default out": (shapes.cholesky, None),
    "unfold_backward: default out": (shapes.unfolded, None),
    "_reshape_alias: default": (None, shapes.aliased),
    "_reshape_alias_copy: default out": (None, shapes.aliased),
    "_pad_packed_sequence: default": (None, packed_sequences),
    **{
        f"{name}: {overloads}": (None, shapes.quotients)
        for name, overloads in {
            "div": "Tensor_mode Scalar_mode out_mode Scalar_mode_out",
            "div_": "Tensor_mode Scalar_mode",
            "divide": "Tensor_mode Scalar_mode out_mode",
            "divide_": "Tensor_mode Scalar_mode",
            "prims.div": "default",
        }.items()
    },
    "lcm: default out": (None, shapes.common_multiples),
    "lcm_: default": (None, shapes.common_multiples),
    **{f"{name}: default grad_input": indices.pooled(rank) for name, rank in _POOLED.items()},
}
"""The rules about shapes and about values of overloads, of ``aten`` where none is named."""


def _overloads(row: str) -> list[str]:
    name, _, overloads = row.partition(": ")
    packet = name if "." in name else f"aten.{name}"
    return [f"{packet}.{overload}" for overload in overloads.split()]


_LAYOUTS: Mapping[str, Rule] = {
    **{
        row: not_dense(*DENSE_OPERANDS[_overloads(row)[0]])
        for row in (
            "_embedding_bag: default out",
            "_embedding_bag_forward_only: default out",
            "adaptive_max_pool3d_backward: default",
            "fractional_max_pool2d_backward: default grad_input",
            "fractional_max_pool3d_backward: default grad_input",
            "native_layer_norm_backward: default out",
            "_masked_softmax: default out",
            "_weight_int8pack_mm: default",
        )
    },
    # the kernels take these in channels last too, and strided where nothing is repeated
    "native_group_norm: default out": not_dense("weight", "bias"),
    "native_group_norm_backward: default out": shapes.group_norm_layouts,
    "_scaled_dot_product_flash_attention_for_cpu: default": strided_rows("query", "key", "value"),
    "_weight_norm_interface: default out": repeated("v", "g"),
    "adaptive_avg_pool3d_backward: grad_input": repeated("grad_input"),
    "log_sigmoid_forward: output": repeated("output", "buffer"),
    **{
        f"{kind}_pad{rank}d: out": repeated("out")
        for kind, rank in product(("reflection", "replication"), (1, 2, 3))
    },
    "adaptive_max_pool3d_backward: grad_input": not_dense("indices", "grad_input"),
    "max_pool3d_with_indices_backward: grad_input": not_dense("indices", "grad_input"),
    "linalg_lu: out": not_matrices("P", "L", "U"),
    "_softmax: out": repeated("out"),
    "_log_softmax: out": repeated("out"),
    "tril: out": not_dense("self", "out"),
    "triu: out": not_dense("self", "out"),
    "_convert_indices_from_coo_to_csr: default out": not_dense("self"),
    "choose_qparams_optimized: default": not_dense("input"),
    "resize_as_: default": repeated("self"),
    "median: dim dim_values": repeated("self"),
    "nanmedian: dim dim_values": repeated("self"),
    # what is written gets no copy in lowered programs
    "rrelu_with_noise: default": not_dense("noise"),
    "rrelu_with_noise_: default": not_dense("noise"),
}
"""The rules about strides: these kernels take memory for dense that may not be."""


def _table() -> Mapping[str, Precondition]:
    layouts = {op_type: rule for row, rule in _LAYOUTS.items() for op_type in _overloads(row)}
    found = {op_type: Precondition(op_type, layouts=rule) for op_type, rule in layouts.items()}
    for row, (by_shapes, by_values) in _RULES.items():
        for op_type in _overloads(row):
            rule = layouts.get(op_type)
            found[op_type] = Precondition(op_type, by_shapes, by_values, rule)
    return found


PRECONDITIONS = _table()
"""The rule of each operator whose kernel trusts its caller."""
