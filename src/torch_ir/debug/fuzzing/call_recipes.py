"""Recipes of valid calls: shapes that fit each other, and attributes.

A recipe gives each operand a pattern of sizes, such as ``a,b`` and ``b,c`` for a product of
matrices: equal letters are equal sizes, ``*S`` is any number of dimensions, a number is itself.
Behind a colon stands what the operand has to be: ``i<b`` indices below the size ``b``, ``b``
booleans, ``n`` integers, ``p`` positive numbers (``P`` of float32), ``s`` ascending ones, ``l<k``
lengths that add up to ``k``, ``o<k`` where such parts begin, ``c`` a new tensor; or a dtype. An
operator without a recipe takes operands that broadcast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from torch_ir.ir import Device, DType
from torch_ir.ops.schema import Schema


@dataclass(frozen=True, slots=True)
class OperandPattern:
    """What an operand has to be.

    Attributes:
        sizes: A letter, a number or ``*S`` for each dimension.
        kind: ``""`` for the dtype of the first operand, or a letter (see the module).
        limit: The size that indices stay below.
        broadcasts: Whether it may be smaller where it broadcasts.
    """

    sizes: tuple[str, ...]
    kind: str = ""
    limit: str = ""
    broadcasts: bool = False


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make calls of an operator.

    Attributes:
        operands: The pattern of each operand that is a tensor, by argument; optional ones too.
        attrs: Values to choose from, by argument; a letter in them is its size.
    """

    operands: Mapping[str, OperandPattern]
    attrs: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])


def _recipe(operands: str, **attrs: Sequence[Any]) -> Recipe:
    found: dict[str, OperandPattern] = {}
    for part in operands.split():
        name, _, rest = part.partition("=")
        sizes, _, kind = rest.partition(":")
        letter, _, limit = kind.partition("<")
        found[name] = OperandPattern(tuple([s for s in sizes.split(",") if s]), letter, limit)
    return Recipe(found, attrs)


_ONE, _TWO = [(1,), (2,)], [(1, 1), (2, 1), (2, 2)]
_ZERO2 = [(0, 0), (1, 1)]
_CONV: dict[str, Any] = {"groups": [1]}
_NORM: dict[str, Any] = {"eps": [1e-5, 1e-3], "momentum": [0.1], "cudnn_enabled": [False]}
_POOL: dict[str, Any] = {"ceil_mode": [False, True], "count_include_pad": [True, False]}
_SDPA = "query=n,g,a,e key=n,g,k,e value=n,g,k,e attn_mask=a,k"
_QUANT: dict[str, Any] = {
    "quant_min": [-128],
    "quant_max": [127],
    "dtype": [DType("int8")],
    "scale": [0.05, 0.2],
    "zero_point": [0, 3],
    "axis": [0],
}
_CODES = {name: _QUANT[name] for name in ("quant_min", "quant_max")}
_CHANNELS = {**_CODES, "axis": [0]}
_GRID: dict[str, Any] = {"interpolation_mode": [0, 1, 2], "padding_mode": [0, 1, 2]}
_DEQUANT: dict[str, Any] = {**_QUANT, "out_dtype": [None], "output_dtype": ["float32"]}
_STRIDED: dict[str, Any] = {
    "size": [("b", "a")],
    "stride": [(1, "b")],
    "storage_offset": [None],
}
_SCALE: dict[str, Any] = {"normalization": [0, 1, 2]}
_BATCH = "input=n,c,*S weight=c bias=c running_mean=c running_var=c:p"
_BAG = "weight=v,e indices=k:i<v offsets=b:o<k"
_BAGS: dict[str, Any] = {"mode": [0, 0, 1, 2], "sparse": [False], "include_last_offset": [False]}


_SEGMENTS: dict[str, Any] = {
    "reduce": ["sum", "mean", "max", "min", "prod"],
    "axis": [0],
    "initial": [None, 1.0],
}


def _sized(text: str, rank: int) -> str:
    """A recipe of images for one, two or three dimensions: ``X`` becomes ``h,w,…``."""
    return text.replace("X", ",".join("hwl"[:rank])).replace("K", ",".join("222"[:rank]))


def _images(rank: int) -> dict[str, Recipe]:
    """The recipes of convolutions, pools and resizes."""
    ones, zeros = (1,) * rank, (0,) * rank
    twos = (2,) * rank
    conv = {**_CONV, "stride": [ones, twos], "dilation": [ones], "padding": [zeros, ones]}
    moved = {**conv, "output_padding": [zeros]}
    window = {**_POOL, "kernel_size": [twos], "stride": [ones, twos], "padding": [zeros]}
    image = _sized("self=n,c,X", rank)
    filters = _sized("input=n,c,X weight=o,c,K bias=o", rank)
    return {
        f"conv{rank}d": _recipe(filters, **conv),
        f"conv{rank}d.padding": _recipe(filters, **{**conv, "padding": ["valid", "same"]}),
        f"conv_transpose{rank}d": _recipe(
            _sized("input=n,c,X weight=c,o,K bias=o", rank), **moved
        ),
        f"avg_pool{rank}d": _recipe(image, **window, divisor_override=[None, 3]),
        f"max_pool{rank}d": _recipe(image, **window, dilation=[ones]),
        f"max_pool{rank}d_with_indices": _recipe(image, **window, dilation=[ones]),
        f"adaptive_avg_pool{rank}d": _recipe(image, output_size=[ones, twos, (3,) * rank]),
        f"_adaptive_avg_pool{rank}d": _recipe(image, output_size=[ones, twos, (3,) * rank]),
        f"adaptive_max_pool{rank}d": _recipe(image, output_size=[ones, twos, (3,) * rank]),
        f"reflection_pad{rank}d": _recipe(image, padding=[(1, 2) * rank, (0, 1) * rank]),
        f"replication_pad{rank}d": _recipe(image, padding=[(1, 2) * rank, (0, 1) * rank]),
        **_backward(rank),
        **{
            f"{name}{rank}d{overload}": _recipe(
                image.replace("self", "input") if overload == ".vec" else image,
                output_size=[(8,) * rank, (3,) * rank],
                scale_factors=[None],
                align_corners=[False, True],
            )
            for name in (
                *("upsample_nearest", "_upsample_nearest_exact", "upsample_bicubic"),
                ("upsample_linear", "upsample_bilinear", "upsample_trilinear")[rank - 1],
            )
            for overload in ("", ".vec")
        },
    }


def _backward(rank: int) -> dict[str, Recipe]:
    """The recipes of their gradients, of images of four places to a side."""
    ones, zeros, twos = ((size,) * rank for size in (1, 0, 2))
    half, whole, wide = (",".join([size] * rank) for size in "247")
    window = {**_POOL, "kernel_size": [twos], "stride": [twos], "padding": [zeros]}
    operands = f"grad_output=n,c,{half} self=n,c,{whole}"
    chosen = f"{operands} indices=n,c,{half}:i<4"
    padded = _recipe(f"grad_output=n,c,{wide} self=n,c,{whole}", padding=[(1, 2) * rank])
    resized = _recipe(
        f"grad_output=n,c,{wide}",
        output_size=[(7,) * rank],
        input_size=[("n", "c", *(4,) * rank)],
        align_corners=[False, True],
        **{key: [None] for key in ("scales", "scales_d", "scales_h", "scales_w")},
    )
    kinds = ("nearest", "bicubic", ("linear", "bilinear", "trilinear")[rank - 1])
    return {
        f"avg_pool{rank}d_backward": _recipe(operands, **window, divisor_override=[None, 3]),
        f"max_pool{rank}d_with_indices_backward": _recipe(chosen, **window, dilation=[ones]),
        f"adaptive_max_pool{rank}d_backward": _recipe(chosen),
        f"_adaptive_avg_pool{rank}d_backward": _recipe(operands),
        f"reflection_pad{rank}d_backward": padded,
        f"replication_pad{rank}d_backward": padded,
        **{f"upsample_{kind}{rank}d_backward": resized for kind in kinds},
        f"_upsample_nearest_exact{rank}d_backward": resized,
        **{
            f"_upsample_{kind}2d_aa_backward": resized for kind in (*kinds, "lanczos") if rank == 2
        },
        **_unpooled(rank),
    }


def _unpooled(rank: int) -> dict[str, Recipe]:
    """The recipes of pools at random places, and of what takes the indices of a maximum."""
    zeros, twos = (0,) * rank, (2,) * rank
    small, large = (",".join([size] * rank) for size in "25")
    images = f"self=n,c,{large}"
    chosen = f"indices=n,c,{small}:i<16"
    window: dict[str, Any] = {"kernel_size": [twos], "output_size": [twos]}
    return {
        f"max_unpool{rank}d": _recipe(
            f"self=n,c,{small} {chosen}",
            output_size=[(4,) * rank],
            stride=[twos],
            padding=[zeros],
        ),
        f"fractional_max_pool{rank}d": _recipe(f"{images} random_samples=n,c,{rank}", **window),
        f"fractional_max_pool{rank}d_backward": _recipe(
            f"grad_output=n,c,{small} {images} {chosen}", **window
        ),
    }


def _losses() -> dict[str, Recipe]:
    """The recipes of losses that take classes, which are indices."""
    asked: dict[str, Any] = {"reduction": [0, 1, 2], "ignore_index": [-100, 1]}
    margin: dict[str, Any] = {"p": [1, 2], "margin": [1.0, 0.5], "reduction": [1, 2]}
    rows = _recipe("self=n,c target=n:i<c weight=c", **asked)
    images = _recipe("self=n,c,h,w target=n,h,w:i<c weight=c", **asked)
    labels = "grad_output= self=n,c target=n,c:i<c is_target=n,c"
    return {
        **dict.fromkeys(("nll_loss", "nll_loss_forward", "nll_loss_nd"), rows),
        **dict.fromkeys(("nll_loss2d", "nll_loss2d_forward"), images),
        "multi_margin_loss_backward": _recipe(
            "grad_output= self=n,c target=n:i<c weight=c", **margin
        ),
        "multilabel_margin_loss_backward": _recipe(labels, reduction=[1, 2]),
    }


def _older_convolutions() -> dict[str, Recipe]:
    """The recipes of convolutions by the names of single kernels."""
    found = {"conv_tbc": _recipe("self=a,n,c weight=2,c,o bias=o", pad=[0, 1])}
    for rank in (2, 3):
        ones, zeros, twos = ((size,) * rank for size in (1, 0, 2))
        asked: dict[str, Any] = {
            "kernel_size": [twos],
            "stride": [ones, twos],
            "padding": [zeros, ones],
            "dilation": [ones, twos],
        }
        filters = _sized("self=n,c,X weight=o,c,K bias=o", rank)
        forward = "_slow_conv2d_forward" if rank == 2 else "slow_conv3d_forward"
        found |= {
            forward: _recipe(filters, **asked),
            f"slow_conv_dilated{rank}d": _recipe(filters, **asked),
            f"slow_conv_transpose{rank}d": _recipe(
                _sized("self=n,c,X weight=c,o,K bias=o", rank), **asked, output_padding=[zeros]
            ),
        }
    return found


_RECIPES: dict[str, Recipe] = {
    **_losses(),
    **_older_convolutions(),
    **_images(1),
    **_images(2),
    **_images(3),
    "convolution": _recipe(
        "input=n,c,h,w weight=o,c,3,3 bias=o",
        stride=_TWO,
        padding=_ZERO2,
        dilation=[(1, 1)],
        transposed=[False],
        output_padding=[(0, 0)],
        groups=[1],
    ),
    "convolution_backward": _recipe(
        "grad_output=n,o,h,w input=n,c,h,w weight=o,c,3,3",
        bias_sizes=[("o",)],
        stride=[(1, 1)],
        padding=[(1, 1)],
        dilation=[(1, 1)],
        transposed=[False],
        output_padding=[(0, 0)],
        groups=[1],
        output_mask=[(True, True, True)],
    ),
    "mm": _recipe("self=a,b mat2=b,c"),
    "_int_mm": _recipe("self=a,b:int8 mat2=b,c:int8"),
    "_grouped_mm": _recipe("self=a,8,8:bfloat16 mat2=a,8,8:bfloat16", out_dtype=[None]),
    "_weight_int8pack_mm": _recipe("self=a,b mat2=c,b:int8 scales=c:p"),
    "bmm": _recipe("self=n,a,b mat2=n,b,c"),
    "mv": _recipe("self=a,b vec=b"),
    "dot": _recipe("self=a tensor=a"),
    "vdot": _recipe("self=a other=a"),
    "inner": _recipe("self=a,b other=c,b"),
    "outer": _recipe("self=a vec2=b"),
    "ger": _recipe("self=a vec2=b"),
    "matmul": _recipe("self=*S,a,b other=b,c"),
    "addmm": _recipe("self=a,c mat1=a,b mat2=b,c"),
    "addmv": _recipe("self=a mat=a,b vec=b"),
    "addr": _recipe("self=a,b vec1=a vec2=b"),
    "addbmm": _recipe("self=a,c batch1=n,a,b batch2=n,b,c"),
    "baddbmm": _recipe("self=n,a,c batch1=n,a,b batch2=n,b,c"),
    "_trilinear": _recipe(
        "i1=n,a i2=o,a,b i3=n,b",
        expand1=[(1, 3)],
        expand2=[(0,)],
        expand3=[(1, 2)],
        sumdim=[(2, 3)],
    ),
    "linear": _recipe("input=*S,a weight=o,a bias=o"),
    "cdist": _recipe("x1=a,e x2=b,e", p=[1.0, 2.0], compute_mode=[None]),
    "_cdist_forward": _recipe("x1=a,e x2=b,e", p=[1.0, 2.0], compute_mode=[None]),
    "pdist": _recipe("self=a,e"),
    "_pdist_forward": _recipe("self=a,e"),
    "scaled_dot_product_attention": _recipe(_SDPA, dropout_p=[0.0], enable_gqa=[False]),
    "_scaled_dot_product_attention_math": _recipe(_SDPA, dropout_p=[0.0], enable_gqa=[False]),
    "_scaled_dot_product_flash_attention_for_cpu": _recipe(_SDPA, dropout_p=[0.0]),
    "layer_norm": _recipe("input=*S,e weight=e bias=e", normalized_shape=[("e",)], eps=[1e-5]),
    "native_layer_norm": _recipe(
        "input=*S,e weight=e bias=e", normalized_shape=[("e",)], eps=[1e-5, 1e-2]
    ),
    "rms_norm": _recipe("input=*S,e weight=e", normalized_shape=[("e",)], eps=[1e-5]),
    "_fused_rms_norm": _recipe("input=*S,e weight=e", normalized_shape=[("e",)], eps=[1e-5]),
    "native_layer_norm_backward": _recipe(
        "grad_out=a,e input=a,e mean=a,1 rstd=a,1:p weight=e bias=e",
        normalized_shape=[("e",)],
        output_mask=[(True, True, True)],
    ),
    "group_norm": _recipe("input=n,4,*S weight=4 bias=4", num_groups=[1, 2, 4], eps=[1e-5]),
    "native_group_norm": _recipe(
        "input=n,4,a weight=4 bias=4", N=["n"], C=[4], HxW=["a"], group=[1, 2, 4], eps=[1e-5]
    ),
    "native_group_norm_backward": _recipe(
        "grad_out=n,4,a input=n,4,a mean=n,2 rstd=n,2:p weight=4",
        N=["n"],
        C=[4],
        HxW=["a"],
        group=[2],
        output_mask=[(True, True, True)],
    ),
    "batch_norm": _recipe(_BATCH, **_NORM, training=[False]),
    "native_batch_norm": _recipe("input=n,c,*S weight=c bias=c", **_NORM, training=[True]),
    "_batch_norm_with_update_functional": _recipe(_BATCH, **_NORM),
    "_native_batch_norm_legit": _recipe(_BATCH, **_NORM, training=[False]),
    "_native_batch_norm_legit_functional": _recipe(_BATCH, **_NORM, training=[True, False]),
    "_native_batch_norm_legit_no_training": _recipe(_BATCH, **_NORM),
    "_native_batch_norm_legit.no_stats": _recipe(
        "input=n,c,*S weight=c bias=c", **_NORM, training=[True]
    ),
    "instance_norm": _recipe(
        "input=n,c,h,w weight=c bias=c", **_NORM, use_input_stats=[True], running_mean=[None]
    ),
    "embedding": _recipe("weight=v,e indices=*S:i<v"),
    "embedding_dense_backward": _recipe(
        "grad_output=k,e indices=k:i<v",
        num_weights=["v"],
        padding_idx=[-1],
        scale_grad_by_freq=[False],
    ),
    **dict.fromkeys(
        ("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"),
        _recipe(f"{_BAG} per_sample_weights=k", **_BAGS, padding_idx=[-1, 0]),
    ),
    "embedding_bag.padding_idx": _recipe(
        f"{_BAG} per_sample_weights=k", **_BAGS, padding_idx=[None, 0]
    ),
    "segment_reduce": _recipe("data=n,*S lengths=b:l<n", **_SEGMENTS),
    "_segment_reduce_backward": _recipe(
        "grad=b,*S output=b,*S data=n,*S lengths=b:l<n", **_SEGMENTS
    ),
    "gather": _recipe("self=*S,e index=*S,e:i<e", dim=[-1]),
    "take_along_dim": _recipe("self=*S,e indices=*S,e:i<e", dim=[-1]),
    "scatter": _recipe("self=*S,e index=*S,1:i<e src=*S,e", dim=[-1], reduce=["add", "multiply"]),
    "scatter_add": _recipe("self=*S,e index=*S,e:i<e src=*S,e", dim=[-1]),
    "scatter_reduce": _recipe(
        "self=*S,e index=*S,e:i<e src=*S,e",
        dim=[-1],
        reduce=["sum", "prod", "mean", "amax", "amin"],
    ),
    "index_select": _recipe("self=e,*S index=k:i<e", dim=[0]),
    "index_add": _recipe("self=e,*S index=k:i<e source=k,*S", dim=[0]),
    "index_copy": _recipe("self=e,*S index=1:i<e source=1,*S", dim=[0]),
    "index_reduce": _recipe(
        "self=e,*S index=k:i<e source=k,*S", dim=[0], reduce=["prod", "mean", "amax", "amin"]
    ),
    "index_fill.int_Scalar": _recipe("self=e,*S index=k:i<e", dim=[0]),
    "index_fill.int_Tensor": _recipe("self=e,*S index=k:i<e value=", dim=[0]),
    "index": _recipe("self=e,*S indices=k:i<e"),
    "_unsafe_index": _recipe("self=e,*S indices=k:i<e"),
    "index_put": _recipe("self=e,*S indices=1:i<e values=1,*S"),
    "_unsafe_index_put": _recipe("self=e,*S indices=1:i<e values=1,*S"),
    "take": _recipe("self=e index=*S:i<e"),
    "put": _recipe("self=e index=1:i<e source=1"),
    "masked_fill.Scalar": _recipe("self=*S mask=*S:b"),
    "masked_fill.Tensor": _recipe("self=*S mask=*S:b value="),
    "masked_scatter": _recipe("self=*S mask=*S:b source=*S"),
    "where.self": _recipe("condition=*S:b self=*S other=*S"),
    "where.ScalarOther": _recipe("condition=*S:b self=*S"),
    "where.ScalarSelf": _recipe("condition=*S:b other=*S"),
    "where.Scalar": _recipe("condition=*S:b"),
    "fill.Tensor": _recipe("self=*S value="),
    "searchsorted.Tensor": _recipe("sorted_sequence=a:s self=*S"),
    "searchsorted.Scalar": _recipe("sorted_sequence=a:s"),
    "bucketize.Tensor": _recipe("self=*S boundaries=a:s"),
    "bucketize.Scalar": _recipe("boundaries=a:s"),
    "histogram.bins_tensor": _recipe("self=*S bins=a:s weight=*S"),
    "_histogramdd_from_bin_tensors": _recipe("self=n,1 bins=a:s weight=n"),
    "_histogramdd_bin_edges": _recipe("self=n,2 weight=n", bins=[(1, 3), (2, 2)]),
    "one_hot": _recipe("self=*S:i<5", num_classes=[5, 6]),
    "prelu": _recipe("self=n,c,*S weight=c"),
    "_prelu_kernel": _recipe("self=n,c weight=c"),
    "glu": _recipe("self=*S,4", dim=[-1]),
    "glu_jvp": _recipe("glu=*S,2 x=*S,4 dx=*S,4", dim=[-1]),
    "glu_backward_jvp": _recipe(
        "grad_x=*S,4 grad_glu=*S,2 x=*S,4 dgrad_glu=*S,2 dx=*S,4", dim=[-1]
    ),
    "_masked_softmax": _recipe("self=a,b mask=a,b:b", dim=[0, 1], mask_type=[2]),
    "_masked_softmax_backward": _recipe("grad_output=a,b output=a,b mask=a,b:b", dim=[0, 1]),
    "to.device": _recipe("self=*S", device=[Device("cpu")]),
    "embedding_renorm": _recipe(
        "self=v,e indices=k:i<v", max_norm=[0.5, 2.0], norm_type=[1.0, 2.0]
    ),
    "grid_sampler_2d": _recipe("input=n,c,h,w grid=n,a,b,2", **_GRID),
    "grid_sampler": _recipe("input=n,c,h,w grid=n,a,b,2", **_GRID),
    "grid_sampler_3d": _recipe(
        "input=n,c,h,w,l grid=n,a,b,k,3", **{**_GRID, "interpolation_mode": [0, 1]}
    ),
    "affine_grid_generator": _recipe("theta=n,2,3", size=[("n", 1, 3, 4)]),
    "pixel_shuffle": _recipe("self=n,4,h,w", upscale_factor=[2]),
    "pixel_unshuffle": _recipe("self=n,c,4,4", downscale_factor=[2]),
    "channel_shuffle": _recipe("self=n,4,h,w", groups=[2]),
    "native_channel_shuffle": _recipe("self=n,4,h,w", groups=[2]),
    "_padded_dense_to_jagged_forward": _recipe("dense=1,m,e offsets=2:o<m", total_L=[None]),
    "_jagged_to_padded_dense_forward": _recipe(
        "values=k,e offsets=2:o<k", max_lengths=[(1,), (3,)], padding_value=[0.0, 0.5]
    ),
    "im2col": _recipe(
        "self=n,c,h,w", kernel_size=[(2, 2)], dilation=[(1, 1)], padding=_ZERO2, stride=_TWO
    ),
    "col2im": _recipe(
        "self=n,4,4",
        output_size=[(3, 3)],
        kernel_size=[(2, 2)],
        dilation=[(1, 1)],
        padding=[(0, 0)],
        stride=[(1, 1)],
    ),
    **{
        f"_upsample_{kind}2d_aa{overload}": _recipe(
            f"{operand}=n,c,h,w",
            output_size=[(8, 8), (3, 3)],
            scales_h=[None],  # one that the sizes belie reads elements that there are not
            scales_w=[None],
            scale_factors=[None],
        )
        for kind in ("bilinear", "bicubic", "lanczos")
        for operand, overload in (("self", ""), ("input", ".vec"))
    },
    "_pad_circular": _recipe("self=n,c,h", pad=[(1, 1), (0, 2)]),
    "pad": _recipe(
        "self=n,c,h", pad=[(1, 1), (0, 2)], mode=["constant", "reflect", "replicate", "circular"]
    ),
    "diagonal_scatter": _recipe("self=a,a src=a"),
    "select_scatter": _recipe("self=e,*S src=*S", dim=[0], index=[0]),
    "slice_scatter": _recipe("self=e,*S src=e,*S", dim=[0], start=[0], end=["e"], step=[1]),
    "_fft_r2c": _recipe("self=a,e", dim=[(1,), (0, 1)], **_SCALE, onesided=[True, False]),
    "_fft_c2c": _recipe("self=a,e", dim=[(1,), (0, 1)], **_SCALE, forward=[True, False]),
    "_fft_c2r": _recipe("self=a,3", dim=[(1,), (0, 1)], **_SCALE, last_dim_size=[4, 5]),
    "meshgrid": _recipe("tensors=a"),
    "column_stack": _recipe("tensors=a,b"),
    "block_diag": _recipe("tensors=a,b"),
    "trace": _recipe("self=a,b"),
    "t": _recipe("self=a,b"),
    "t_copy": _recipe("self=a,b"),
    "_reshape_alias": _recipe("self=a,b:c", size=[("b", "a")], stride=[("a", 1)]),
    "topk": _recipe("self=a,b", k=[1, "b"], dim=[-1], sorted=[True]),
    "complex": _recipe("real=*S:float32 imag=*S:float32"),
    "as_strided": _recipe("self=a,b:c", **_STRIDED),
    "as_strided_copy": _recipe("self=a,b:c", **_STRIDED),
    "as_strided_scatter": _recipe("self=a,b:c src=b,a:c", **_STRIDED),
    "_pdist_backward": _recipe("grad=3 self=3,e pdist=3:p", p=[1.0, 2.0, 3.0]),
    "grid_sampler_2d_backward": _recipe(
        "grad_output=n,c,a,b input=n,c,h,w grid=n,a,b,2", **_GRID, output_mask=[(True, True)]
    ),
    "grid_sampler_3d_backward": _recipe(
        "grad_output=n,c,a,b,k input=n,c,h,w,l grid=n,a,b,k,3",
        **{**_GRID, "interpolation_mode": [0, 1]},
        output_mask=[(True, True)],
    ),
    "fake_quantize_per_tensor_affine_cachemask_backward": _recipe("grad=*S mask=*S:b"),
    "fake_quantize_per_channel_affine_cachemask_backward": _recipe("grad=*S mask=*S:b"),
    "special_zeta": _recipe("self=*S:p other=*S:p"),
    "_fake_quantize_learnable_per_tensor_affine": _recipe(
        "self=*S scale=1:P zero_point=1:P", **_CODES
    ),
    "_fake_quantize_learnable_per_channel_affine": _recipe(
        "self=a,*S:float32 scale=a:P zero_point=a:P", **_CHANNELS
    ),
    "fake_quantize_per_channel_affine": _recipe(
        "self=a,*S scale=a:P zero_point=a:int32", **_CHANNELS
    ),
    "fake_quantize_per_channel_affine_cachemask": _recipe(
        "self=a,*S scale=a:P zero_point=a:int32", **_CHANNELS
    ),
    "fake_quant_per_channel": _recipe(
        "input=a,*S:float32 scales=a:P zero_points=a:int32", **_CHANNELS
    ),
    "fake_quantize_per_tensor_affine.tensor_qparams": _recipe(
        "self=*S scale=1:P zero_point=1:n", **_CODES
    ),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": _recipe(
        "self=*S scale=1:P zero_point=1:n fake_quant_enabled=1:n", **_CODES
    ),
    "quantize_per_tensor.default": _recipe("input=*S:float32", **_QUANT),
    "quantize_per_tensor": _recipe("input=*S:float32 scale=1:p zero_point=1:n", **_QUANT),
    "quantize_per_channel": _recipe("input=a,*S:float32 scales=a:p zero_points=a:n", **_QUANT),
    "quantize_per_token": _recipe("input=a,*S:float32 scales=a,1:p zero_points=a,1:n", **_QUANT),
    "dequantize_per_tensor.default": _recipe("input=*S:int8", **_DEQUANT),
    "dequantize_per_tensor": _recipe("input=*S:int8 scale=1:P zero_point=1:n", **_DEQUANT),
    "dequantize_per_channel": _recipe("input=a,*S:int8 scales=a:P zero_points=a:n", **_DEQUANT),
    "dequantize_per_token": _recipe("input=a,b:int8 scales=a,1:P zero_points=a,1:n", **_DEQUANT),
    "dequantize_per_channel_group": _recipe(
        "input=a,4:int8 scales=a,2:P zero_points=a,2:n", **_DEQUANT, group_size=[2]
    ),
}
_ALIASES = {
    "true_divide": "div",
    "concat": "cat",
    "_convolution": "convolution",
    "max_pool1d_with_indices": "max_pool1d",
    "_reshape_alias_copy": "_reshape_alias",
}


def written_recipe(op_type: str) -> Recipe | None:
    """Return the recipe that the table has for an operator."""
    _, base, overload = op_type.split(".", 2)
    names = (f"{base}.{overload}", base, _ALIASES.get(base, ""))
    return next((_RECIPES[name] for name in names if name in _RECIPES), None)


@cache
def recipe_of(schema: Schema) -> Recipe:
    """Return the recipe of an operator: that of the table, or operands that broadcast."""
    if (known := written_recipe(schema.op_type)) is not None:
        return known
    tensors = [a.name for a in schema.arguments if a.takes_tensor or a.takes_tensor_list]
    patterns = {
        name: OperandPattern(("*S",), broadcasts=index > 0) for index, name in enumerate(tensors)
    }
    return Recipe(patterns)
