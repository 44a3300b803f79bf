"""How to call each operator of the Edge set on small tensors, so that only dtypes decide.

What a recipe does not say follows from the schema: tensors are ones of shape (2, 3), ``dim`` is 0,
optional arguments are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

REAL = (
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16"),
    *("float16", "bfloat16", "float32", "float64"),
)
COMPLEX = ("complex64", "complex128")
NUMBERS = {"bool": True, "int64": 1, "float64": 1.0}
"""A Python number of each kind, under the dtype that stands for the kind."""


@dataclass(frozen=True)
class T:
    """A tensor argument: its shape, and the number that fills it."""

    shape: tuple[int, ...]
    fill: int = 1


def t(*shape: int, fill: int = 1) -> T:
    return T(shape, fill)


# Operators that move elements and compute nothing take complex ones too, and so do those that lead
# from complex to real numbers and back. All others take real numbers only.
MOVING = frozenset(
    f"aten.{name}"
    for name in (
        *("alias_copy.default", "clone.default", "detach_copy.default", "expand_copy.default"),
        *("permute_copy.default", "select_copy.int", "slice_copy.Tensor", "split_copy.Tensor"),
        *("split_with_sizes_copy.default", "squeeze_copy.default", "squeeze_copy.dim"),
        *("squeeze_copy.dims", "t_copy.default", "transpose_copy.int", "unbind_copy.int"),
        *("unsqueeze_copy.default", "view_copy.default", "unfold_copy.default"),
        *("view_as_real_copy.default", "view_as_complex_copy.default"),
        *(
            "abs.default",
            "angle.default",
            "_fft_c2r.default",
            "_fft_r2c.default",
            "_fft_c2c.default",
            "cat.default",
        ),
    )
)

COMMON = tuple(
    f"aten.{name}"
    for name in (
        *("arange.default", "arange.start", "bucketize.Tensor", "celu.default"),
        *("argsort.default", "bitwise_left_shift.Tensor", "bitwise_right_shift.Tensor"),
        *("clamp_max.default", "clamp_min.default", "cummax.default", "cumprod.default"),
        *("copysign.Tensor", "empty_like.default", "erfc.default", "erfinv.default"),
        *("exp2.default", "eye.default", "fill.Tensor", "floor_divide.default", "fmax.default"),
        *("fmin.default", "frac.default", "full_like.default", "gcd.default", "glu.default"),
        *("hardsigmoid.default", "hardswish.default", "heaviside.default", "hypot.default"),
        *("index_add.default", "index_copy.default", "index_fill.int_Scalar", "lerp.Tensor"),
        *("lerp.Scalar", "lgamma.default", "lift_fresh_copy.default", "linear.default"),
        *("log_sigmoid_forward.default", "logaddexp.default", "logit.default"),
        *("logcumsumexp.default", "masked_fill.Scalar", "masked_fill.Tensor", "max.default"),
        *("min.default", "median.default", "mish.default", "addcdiv.default", "addcmul.default"),
        *("multinomial.default", "nan_to_num.default", "new_empty.default", "new_zeros.default"),
        *("new_full.default", "new_ones.default", "nextafter.default", "ones.default"),
        *("ones_like.default", "pixel_shuffle.default", "pixel_unshuffle.default"),
        *("rand_like.default", "randint.low", "randn_like.default", "roll.default"),
        *("rsub.Scalar", "rsub.Tensor", "signbit.default", "silu.default", "softplus.default"),
        *("square.default", "stack.default", "std.correction", "sum.default", "tile.default"),
        *("threshold.default", "trace.default", "tril.default", "triu.default"),
        *("unbind_copy.int", "var_mean.correction", "xlogy.Tensor", "zeros.default"),
        *("zeros_like.default", "baddbmm.default", "diag_embed.default", "cross.default"),
        *("isfinite.default", "ldexp.Tensor", "searchsorted.Tensor", "sgn.default"),
        *("sinc.default", "_softmax_backward_data.default", "_log_softmax_backward_data.default"),
        *("threshold_backward.default", "gelu_backward.default", "sigmoid_backward.default"),
        *("tanh_backward.default", "replication_pad1d.default", "where.ScalarOther"),
        *("upsample_nearest1d.vec", "upsample_bicubic2d.vec", "channel_shuffle.default"),
        *(
            "native_batch_norm.default",
            "all.default",
            "all.dim",
            "all.dims",
            "_cdist_forward.default",
        ),
        *("_upsample_bilinear2d_aa.default", "_fft_c2c.default", "cumsum.default"),
        *("bernoulli.p", "bincount.default", "_unsafe_index.Tensor", "asinh.default"),
        *("trapezoid.x", "digamma.default", "logsumexp.default", "mv.default", "dot.default"),
        *("_scaled_dot_product_flash_attention_for_cpu.default", "scatter_reduce.two"),
        *(
            "max_pool2d.default",
            "std_mean.correction",
            "deg2rad.default",
            "rad2deg.default",
            "angle.default",
        ),
    )
)

_POOL = {"kernel_size": [2, 2], "stride": [1, 1], "padding": [0, 0]}
_CONV = {
    "stride": [1, 1],
    "padding": [0, 0],
    "dilation": [1, 1],
    "transposed": False,
    "output_padding": [0, 0],
    "groups": 1,
}
_NO_SCALES = {"scale_factors": None}
_NORM = {"training": True, "momentum": 0.5, "eps": 1e-5}
_CHANNELS = {name: t(3) for name in ("weight", "bias", "running_mean", "running_var")}
_ATTENTION = {name: t(1, 1, 2, 4) for name in ("query", "key", "value")}

RECIPES: dict[str, list[dict[str, Any]]] = {
    "_adaptive_avg_pool2d.default": [{"self": t(1, 2, 4, 4), "output_size": [2, 2]}],
    "_adaptive_avg_pool2d_backward.default": [
        {"grad_output": t(1, 2, 2, 2), "self": t(1, 2, 4, 4)}
    ],
    "_adaptive_avg_pool3d.default": [{"self": t(1, 2, 4, 4, 4), "output_size": [2, 2, 2]}],
    "_cdist_forward.default": [{"p": 2.0, "compute_mode": None}],
    "_embedding_bag.default": [
        {
            "weight": t(4, 3),
            "indices": t(2),
            "offsets": t(1, fill=0),
            "per_sample_weights": t(2),
        }
    ],
    "_fft_c2r.default": [{"dim": [1], "normalization": 0, "last_dim_size": 4}],
    "_fft_r2c.default": [{"dim": [1], "normalization": 0, "onesided": True}],
    "_fft_c2c.default": [{"dim": [1], "normalization": 0, "forward": True}],
    "_log_softmax.default": [{"half_to_float": False}],
    "_softmax.default": [{"half_to_float": False}],
    "_native_batch_norm_legit_no_training.default": [{"momentum": 0.5, "eps": 1e-5, **_CHANNELS}],
    "_native_batch_norm_legit.no_stats": [{**_NORM, **_CHANNELS}],
    "native_batch_norm.default": [{**_NORM, **_CHANNELS}],
    "_scaled_dot_product_flash_attention_for_cpu.default": [{**_ATTENTION, "attn_mask": t(2, 2)}],
    "_upsample_bilinear2d_aa.default": [
        {"self": t(1, 1, 2, 2), "output_size": [4, 4], "align_corners": False}
    ],
    "adaptive_avg_pool1d.default": [{"self": t(1, 2, 4), "output_size": [2]}],
    "addmm.default": [{"self": t(2, 2), "mat1": t(2, 3), "mat2": t(3, 2)}],
    "arange.start_step": [{}],
    "as_strided_copy.default": [{"size": [2], "stride": [1]}],
    "avg_pool1d.default": [{"self": t(1, 2, 4), "kernel_size": [2]}],
    "avg_pool2d.default": [{"self": t(1, 2, 4, 4), **_POOL}],
    "avg_pool2d_backward.default": [
        {
            "grad_output": t(1, 2, 3, 3),
            "self": t(1, 2, 4, 4),
            **_POOL,
            "ceil_mode": False,
            "count_include_pad": True,
            "divisor_override": None,
        }
    ],
    "avg_pool3d.default": [{"self": t(1, 2, 4, 4, 4), "kernel_size": [2, 2, 2]}],
    "baddbmm.default": [{"self": t(1, 2, 2), "batch1": t(1, 2, 3), "batch2": t(1, 3, 2)}],
    "bernoulli.p": [{"p": 0.5}],
    "bincount.default": [{"self": t(3), "weights": t(3)}],
    "bmm.default": [{"self": t(1, 2, 3), "mat2": t(1, 3, 2)}],
    "bucketize.Tensor": [{"boundaries": t(3)}],
    "cat.default": [{"tensors": t(2, 3)}],
    "channel_shuffle.default": [{"self": t(1, 4, 2, 2), "groups": 2}],
    "col2im.default": [
        {
            "self": t(1, 4, 9),
            "output_size": [4, 4],
            "kernel_size": [2, 2],
            "dilation": [1, 1],
            "padding": [0, 0],
            "stride": [1, 1],
        }
    ],
    "constant_pad_nd.default": [{"pad": [1, 1]}],
    "convolution.default": [
        {"input": t(1, 2, 4, 4), "weight": t(2, 2, 2, 2), "bias": t(2), **_CONV}
    ],
    "convolution_backward.default": [
        {
            "grad_output": t(1, 2, 3, 3),
            "input": t(1, 2, 4, 4),
            "weight": t(2, 2, 2, 2),
            "bias_sizes": [2],
            **_CONV,
            "output_mask": [True, *rest],
        }
        for rest in ([True, True], [False, False])
    ],
    "div.Scalar_mode": [{"rounding_mode": mode} for mode in (None, "floor", "trunc")],
    "div.Tensor_mode": [{"rounding_mode": mode} for mode in (None, "floor", "trunc")],
    "dot.default": [{"self": t(3), "tensor": t(3)}],
    "embedding.default": [{"weight": t(4, 3), "indices": t(2)}],
    "embedding_dense_backward.default": [
        {
            "grad_output": t(2, 3),
            "indices": t(2),
            "num_weights": 4,
            "padding_idx": -1,
            "scale_grad_by_freq": False,
        }
    ],
    "empty_strided.default": [{"size": [2, 3], "stride": [3, 1]}],
    "eye.default": [{"n": 3}],
    "fill.Tensor": [{"value": t()}],
    "glu.default": [{"self": t(2, 4)}],
    "grid_sampler_2d.default": [
        {
            "input": t(1, 2, 4, 4),
            "grid": t(1, 2, 2, 2),
            "interpolation_mode": 0,
            "padding_mode": 0,
            "align_corners": False,
        }
    ],
    "index.Tensor": [{"indices": t(2)}],
    "_unsafe_index.Tensor": [{"indices": t(2)}],
    "index_add.default": [{"index": t(2)}, {"index": t(2)}],
    "index_copy.default": [{"index": t(2), "source": t(2, 3)}],
    "index_fill.int_Scalar": [{"index": t(2)}],
    "index_put.default": [
        {"indices": t(2), "values": t(2, 3), "accumulate": add} for add in (False, True)
    ],
    "index_select.default": [{"index": t(2)}],
    "linear.default": [{"input": t(2, 3), "weight": t(4, 3), "bias": t(4)}],
    "logsumexp.default": [{"dim": [0]}],
    "masked_fill.Tensor": [{"value": t()}],
    "max_pool2d.default": [{"self": t(1, 2, 4, 4), **_POOL}],
    "max_pool2d_with_indices.default": [{"self": t(1, 2, 4, 4), **_POOL}],
    "max_pool2d_with_indices_backward.default": [
        {
            "grad_output": t(1, 2, 3, 3),
            "self": t(1, 2, 4, 4),
            **_POOL,
            "dilation": [1, 1],
            "ceil_mode": False,
            "indices": t(1, 2, 3, 3),
        }
    ],
    "max_pool3d_with_indices.default": [{"self": t(1, 2, 4, 4, 4), "kernel_size": [2, 2, 2]}],
    "mm.default": [{"self": t(2, 3), "mat2": t(3, 2)}],
    "multinomial.default": [{"num_samples": 1}],
    "mv.default": [{"self": t(2, 3), "vec": t(3)}],
    "native_dropout.default": [{"p": 0.5, "train": mode} for mode in (True, False)],
    "native_group_norm.default": [
        {
            "input": t(2, 4, 3),
            "weight": t(4),
            "bias": t(4),
            "N": 2,
            "C": 4,
            "HxW": 3,
            "group": 2,
            "eps": 1e-5,
        }
    ],
    "native_group_norm_backward.default": [
        {
            "grad_out": t(2, 4, 3),
            "input": t(2, 4, 3),
            "mean": t(2, 2),
            "rstd": t(2, 2),
            "weight": t(4),
            "N": 2,
            "C": 4,
            "HxW": 3,
            "group": 2,
            "output_mask": [True, *rest],
        }
        for rest in ([True, True], [False, False])
    ],
    "native_layer_norm.default": [
        {"normalized_shape": [3], "weight": t(3), "bias": t(3), "eps": 1e-5}
    ],
    "native_layer_norm_backward.default": [
        {
            "normalized_shape": [3],
            "mean": t(2, 1),
            "rstd": t(2, 1),
            "weight": t(3),
            "bias": t(3),
            "output_mask": [True, *rest],
        }
        for rest in ([True, True], [False, False])
    ],
    "new_empty.default": [{"size": [2]}],
    "new_full.default": [{"size": [2]}],
    "new_ones.default": [{"size": [2]}],
    "new_zeros.default": [{"size": [2]}],
    "permute_copy.default": [{"dims": [1, 0]}],
    "pixel_shuffle.default": [{"self": t(1, 4, 2, 2), "upscale_factor": 2}],
    "pixel_unshuffle.default": [{"self": t(1, 1, 4, 4), "downscale_factor": 2}],
    "randint.low": [{"low": 0, "high": 2}],
    "randperm.default": [{"n": 3}],
    "reflection_pad1d.default": [{"self": t(1, 2, 4), "padding": [1, 1]}],
    "reflection_pad2d.default": [{"self": t(1, 2, 4, 4), "padding": [1] * 4}],
    "reflection_pad3d.default": [{"self": t(1, 2, 4, 4, 4), "padding": [1] * 6}],
    "repeat.default": [{"repeats": [2, 1]}],
    "replication_pad1d.default": [{"self": t(1, 2, 4), "padding": [1, 1]}],
    "replication_pad2d.default": [{"self": t(1, 2, 4, 4), "padding": [1] * 4}],
    "replication_pad3d.default": [{"self": t(1, 2, 4, 4, 4), "padding": [1] * 6}],
    "roll.default": [{"shifts": [1]}],
    "scatter_reduce.two": [
        {"reduce": reduce} for reduce in ("sum", "prod", "mean", "amax", "amin")
    ],
    "searchsorted.Tensor": [{"sorted_sequence": t(3), "sorter": t(3)}],
    "select_copy.int": [{"index": 0}],
    "select_scatter.default": [{"src": t(3), "index": 0}],
    "slice_scatter.default": [{"src": t(2, 3)}],
    "split_copy.Tensor": [{"split_size": 1}],
    "split_with_sizes_copy.default": [{"split_sizes": [1, 1]}],
    "squeeze_copy.dims": [{"dim": [0]}],
    "stack.default": [{"tensors": t(2, 3)}],
    "tile.default": [{"dims": [2, 1]}],
    "topk.default": [{"k": 1}],
    "transpose_copy.int": [{"dim0": 0, "dim1": 1}],
    "unfold_copy.default": [{"dimension": 0, "size": 1, "step": 1}],
    "upsample_bicubic2d.vec": [
        {"input": t(1, 1, 2, 2), "output_size": [4, 4], "align_corners": False, **_NO_SCALES}
    ],
    "upsample_bilinear2d.vec": [
        {"input": t(1, 1, 2, 2), "output_size": [4, 4], "align_corners": False, **_NO_SCALES}
    ],
    "upsample_nearest1d.vec": [{"input": t(1, 1, 2), "output_size": [4], **_NO_SCALES}],
    "upsample_nearest2d.vec": [{"input": t(1, 1, 2, 2), "output_size": [4, 4], **_NO_SCALES}],
    "view_as_complex_copy.default": [{"self": t(3, 2)}],
    "view_copy.default": [{"size": [3, 2]}],
    "cross.default": [{"dim": 1}],
    "cummax.default": [{"dim": 0}],
    "gelu.default": [{"approximate": kind} for kind in ("none", "tanh")],
    "gelu_backward.default": [{"approximate": kind} for kind in ("none", "tanh")],
    "repeat_interleave.Tensor": [{"repeats": t(2)}],
    "diagonal_copy.default": [{}],
    "expand_copy.default": [{"size": [2, 3]}],
}
"""The calls of an operator, by its name without the namespace; an empty list leaves it out."""
