"""The rule that bounds each overload, its docstring being the reason.

Every denotation of this package is named here, by its exact overload, and nothing else is; those
of polynomials are named with their recurrences.
"""

from __future__ import annotations

from torch_ir.semantics.bounds import (
    control_flow,
    elementwise,
    losses,
    normalization,
    products,
    resampling,
    rows,
    segments,
    special,
    sums,
)
from torch_ir.semantics.bounds.algebra import factorizations, linear_equations
from torch_ir.semantics.bounds.call import Rule
from torch_ir.semantics.bounds.training import attention, learned_codes, samples
from torch_ir.semantics.operators.polynomials import POLYNOMIALS

_ATEN: dict[Rule, str] = {
    elementwise.exact: """
        _aminmax.default _aminmax.dim _functional_assert_async.msg
        _functional_assert_scalar.default _functional_sym_constrain_range.default
        _functional_sym_constrain_range_for_size.default
        _jagged_to_padded_dense_forward.default _lazy_clone.default _make_dep_token.default
        _padded_dense_to_jagged_forward.default _sample_dirichlet.default
        _standard_gamma.default dequantize.self randint_like.Tensor
        randint_like.Tensor_generator randint_like.generator randint_like.low_generator_dtype
        unique_dim_consecutive.default
        _int_mm.default _is_all_true.default _is_any_true.default binomial.default
        _pack_padded_sequence.default hash_tensor.default poisson.default
        rand_like.generator randn_like.generator random.default random.from random.to
        _conj_copy.default _efficientzerotensor.default _neg_view.default
        _neg_view_copy.default _reshape_alias_copy.default allclose.default cauchy.default
        exponential.default frexp.Tensor geometric.default
        log_normal.default masked_scatter_backward.default multinomial.default
        nextafter.default normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor
        normal.float_float tril_indices.default
        triu_indices.default view_as_complex_copy.default view_as_real_copy.default
        __and__.Scalar __and__.Tensor __lshift__.Scalar __lshift__.Tensor __or__.Scalar
        __or__.Tensor __rshift__.Scalar __rshift__.Tensor __xor__.Scalar __xor__.Tensor
        _assert_async.default _assert_async.msg _assert_scalar.default
        _assert_tensor_metadata.default lu_unpack.default
        _linalg_check_errors.default _conj.default _conj_physical.default
        _local_scalar_dense.default _pad_circular.default _reshape_alias.default
        _reshape_copy.default _to_copy.default _unique.default _unique2.default
        _unsafe_index.Tensor
        _unsafe_view.default _upsample_nearest_exact1d.vec _upsample_nearest_exact2d.vec
        _upsample_nearest_exact3d.vec adaptive_max_pool1d.default
        adaptive_max_pool2d.default adaptive_max_pool3d.default alias.default
        alias_copy.default all.default all.dim all.dims amax.default amin.default
        aminmax.default any.default any.dim any.dims argmax.default argmin.default
        argsort.default argsort.stable
        argwhere.default as_strided.default as_strided_copy.default
        as_strided_scatter.default bernoulli.Tensor bernoulli.default bernoulli.p
        bitwise_and.Scalar bitwise_and.Scalar_Tensor bitwise_and.Tensor
        bitwise_left_shift.Scalar_Tensor bitwise_left_shift.Tensor
        bitwise_left_shift.Tensor_Scalar bitwise_not.default
        bitwise_or.Scalar bitwise_or.Scalar_Tensor bitwise_or.Tensor
        bitwise_right_shift.Scalar_Tensor bitwise_right_shift.Tensor
        bitwise_right_shift.Tensor_Scalar bitwise_xor.Scalar
        bitwise_xor.Scalar_Tensor bitwise_xor.Tensor block_diag.default
        broadcast_tensors.default broadcast_to.default
        cat.default ceil.default channel_shuffle.default chunk.default clamp.Tensor
        clamp.default clamp_max.Tensor clamp_max.default clamp_min.Tensor clamp_min.default
        clip.default clone.default column_stack.default complex.default concat.default
        concatenate.default conj.default conj_physical.default constant_pad_nd.default
        contiguous.default copy.default copysign.Scalar copysign.Tensor
        count_nonzero.default count_nonzero.dim_IntList cummax.default cummin.default
        detach.default detach_.default detach_copy.default diag_embed.default
        diagonal.default diagonal_copy.default diagonal_scatter.default dropout.default
        dstack.default embedding.default empty.memory_format empty_like.default
        empty_permuted.default empty_strided.default eq.Scalar eq.Tensor equal.default
        expand.default expand_as.default expand_copy.default eye.default eye.m fix.default
        flatten.using_ints flip.default fliplr.default flipud.default floor.default
        fmax.default fmin.default frac.default fractional_max_pool2d.default
        fractional_max_pool3d.default gather.default
        ge.Scalar ge.Tensor gt.Scalar gt.Tensor hardshrink.default
        hardtanh.default heaviside.default hstack.default im2col.default imag.default
        index.Tensor index_copy.default index_fill.int_Scalar index_fill.int_Tensor
        index_select.default isfinite.default isinf.default isnan.default
        isneginf.default isposinf.default item.default kthvalue.default le.Scalar le.Tensor
        lift.default lift_fresh.default lift_fresh_copy.default logical_and.default
        logical_not.default logical_or.default logical_xor.default lt.Scalar lt.Tensor
        masked_fill.Scalar masked_fill.Tensor masked_scatter.default masked_select.default
        max.default max.dim max.other max_pool1d.default max_pool1d_with_indices.default
        max_pool2d.default max_pool2d_with_indices.default max_pool3d.default
        max_pool3d_with_indices.default max_unpool2d.default max_unpool3d.default
        maximum.default median.default median.dim
        meshgrid.default meshgrid.indexing min.default min.dim min.other minimum.default
        moveaxis.int moveaxis.intlist movedim.int movedim.intlist msort.default
        nan_to_num.default nanmedian.default nanmedian.dim narrow.default
        narrow_copy.default native_channel_shuffle.default native_dropout.default ne.Scalar
        ne.Tensor neg.default negative.default new_empty.default new_empty_strided.default
        new_ones.default new_zeros.default nonzero.default nonzero_static.default
        normal_functional.default numel.default one_hot.default ones.default
        ones_like.default pad.default permute.default permute_copy.default
        pixel_shuffle.default pixel_unshuffle.default positive.default rand.default
        rand.generator rand_like.default randint.default randint.generator randint.low
        randint.low_generator randint_like.default randint_like.low_dtype randn.default
        randn.generator randn_like.default randperm.default randperm.generator ravel.default
        real.default reflection_pad1d.default reflection_pad2d.default
        reflection_pad3d.default relu.default relu6.default repeat.default
        repeat_interleave.Tensor repeat_interleave.self_Tensor repeat_interleave.self_int
        replication_pad1d.default replication_pad2d.default replication_pad3d.default
        reshape.default reshape_as.default resize.default resize_.default
        resolve_conj.default resolve_neg.default roll.default rot90.default
        round.default scatter.src scatter.value
        select.int select_copy.int select_scatter.default sign.default signbit.default
        slice.Tensor slice_copy.Tensor slice_scatter.default sort.default sort.stable
        split.Tensor split.sizes split_copy.Tensor split_with_sizes.default
        split_with_sizes_copy.default squeeze.default squeeze.dim squeeze.dims
        squeeze_copy.default squeeze_copy.dim squeeze_copy.dims stack.default
        swapaxes.default swapdims.default sym_constrain_range.default
        sym_constrain_range_for_size.default sym_is_contiguous.default sym_numel.default
        sym_size.int sym_storage_offset.default sym_stride.int t.default t_copy.default
        take.default take_along_dim.default tensor_split.indices tensor_split.sections
        threshold.default tile.default to.device to.dtype to.dtype_layout to.other
        topk.default transpose.int transpose_copy.int tril.default triu.default
        trunc.default type_as.default unbind.int unbind_copy.int unflatten.int
        unfold.default unfold_copy.default uniform.default unique_consecutive.default
        unique_dim.default unsafe_chunk.default unsafe_split.Tensor
        unsafe_split_with_sizes.default unsqueeze.default unsqueeze_copy.default
        upsample_nearest1d.default upsample_nearest1d.vec upsample_nearest2d.default
        upsample_nearest2d.vec upsample_nearest3d.vec view.default view.dtype
        view_as.default view_as_complex.default view_as_real.default view_copy.default
        view_copy.dtype vstack.default where.Scalar where.ScalarOther where.ScalarSelf
        where.self zeros.default zeros_like.default
    """,
    elementwise.ranged: "arange.default arange.start arange.start_step range.default range.step",
    elementwise.close: "isclose.default",
    elementwise.rounded: """
        rrelu_with_noise_backward.default
        fake_quantize_per_channel_affine_cachemask_backward.default
        fake_quantize_per_tensor_affine_cachemask_backward.default
        _prelu_kernel.default abs.default absolute.default deg2rad.default
        leaky_relu.default mul.Scalar mul.Tensor prelu.default
        rad2deg.default rrelu.default rsqrt.default
        rrelu_with_noise_functional.default softshrink.default
        sqrt.default square.default
    """,
    elementwise.divided: """
        div.Scalar div.Tensor divide.Scalar divide.Tensor reciprocal.default sgn.default
        true_divide.Tensor
    """,
    elementwise.least_integers: "gcd.default lcm.default",
    elementwise.quotient: """
        div.Scalar_mode div.Tensor_mode floor_divide.Scalar floor_divide.default
    """,
    elementwise.scaled_exponential: "celu.default elu.default",
    elementwise.filled: """
        fill.Scalar fill.Tensor full.default full_like.default new_full.default
        scalar_tensor.default
    """,
    elementwise.function: """
        erfinv.default special_spherical_bessel_j0.default
        acos.default acosh.default angle.default arccos.default arccosh.default
        arcsin.default arcsinh.default arctan.default arctan2.default arctanh.default
        asin.default asinh.default atan.default atan2.default atanh.default
        cos.default erfc.default exp.default
        expm1.default hardsigmoid.default
        hypot.default log.default log10.default log1p.default log2.default
        log_sigmoid.default polar.default selu.default
        sin.default
        special_erfc.default
        special_expm1.default special_log1p.default tan.default tanh.default
        xlogy.Scalar_Other xlogy.Scalar_Self xlogy.Tensor
    """,
    elementwise.hyperbolic: "cosh.default sinh.default",
    elementwise.hardswish: "hardswish.default",
    elementwise.remains: """
        fmod.Scalar fmod.Tensor remainder.Scalar remainder.Scalar_Tensor remainder.Tensor
    """,
    elementwise.searched: """
        bucketize.Scalar bucketize.Tensor searchsorted.Scalar searchsorted.Tensor
    """,
    rows.mode: "mode.default",
    elementwise.mish: "mish.default",
    elementwise.power: """
        exp2.default ldexp.Tensor pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor
        special_exp2.default
    """,
    elementwise.sigmoid: "glu.default sigmoid.default silu.default special_expit.default",
    elementwise.erf: "erf.default special_erf.default",
    elementwise.sum_of_two: "add.Scalar add.Tensor rsub.Scalar rsub.Tensor sub.Scalar sub.Tensor",
    elementwise.rectified_sum: "_add_relu.Scalar _add_relu.Tensor",
    elementwise.gate_moves: "glu_backward_jvp.default glu_jvp.default",
    elementwise.added: "addcdiv.default addcmul.default",
    elementwise.crossed: "cross.default linalg_cross.default",
    elementwise.lerp: "lerp.Scalar lerp.Tensor",
    elementwise.gelu: "gelu.default",
    elementwise.round_decimals: "round.decimals",
    elementwise.softplus: "softplus.default",
    elementwise.logit: "logit.default special_logit.default",
    elementwise.sinc: "sinc.default special_sinc.default",
    elementwise.log_gamma: "lgamma.default special_gammaln.default",
    elementwise.log_of_two: "logaddexp.default",
    special.airy: "special_airy_ai.default",
    special.waves: """
        special_bessel_j0.default special_bessel_j1.default
        special_bessel_y0.default special_bessel_y1.default
    """,
    special.grown: """
        i0.default special_i0e.default special_i1.default special_i1e.default
        special_modified_bessel_i0.default special_modified_bessel_i1.default
        special_modified_bessel_k0.default special_modified_bessel_k1.default
        special_scaled_modified_bessel_k0.default special_scaled_modified_bessel_k1.default
    """,
    special.digamma: "digamma.default",
    special.quantile: "special_ndtri.default",
    special.erfcx: "special_erfcx.default",
    special.log_ndtr: "special_log_ndtr.default",
    special.zetas: "polygamma.default special_zeta.default",
    special.incomplete_gamma: "igamma.default igammac.default",
    samples.gamma_gradient: "_standard_gamma_grad.default",
    samples.beta_gradient: "_dirichlet_grad.default",
    special.window: """
        bartlett_window.default bartlett_window.periodic blackman_window.default
        blackman_window.periodic hamming_window.default hamming_window.periodic
        hamming_window.periodic_alpha hamming_window.periodic_alpha_beta
    """,
    special.kaiser: "kaiser_window.beta kaiser_window.default kaiser_window.periodic",
    special.frequencies: "fft_fftfreq.default fft_rfftfreq.default",
    sums.scaled_product: "_scaled_mm.default _scaled_mm_v2.default _weight_int8pack_mm.default",
    sums.time_first: "conv_tbc.default",
    elementwise.linspace: "linspace.default",
    elementwise.codes: """
        _choose_qparams_per_tensor.default
        _fake_quantize_learnable_per_tensor_affine.default
        _fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default
        fake_quantize_per_tensor_affine.default
        fake_quantize_per_tensor_affine.tensor_qparams
        fake_quantize_per_tensor_affine_cachemask.default
    """,
    elementwise.code_numbers: """
        _fake_quantize_learnable_per_channel_affine.default
        fake_quantize_per_channel_affine.default
        fake_quantize_per_channel_affine_cachemask.default
    """,
    sums.trilinear: "_trilinear.default",
    segments.bags: """
        _embedding_bag.default _embedding_bag_forward_only.default embedding_bag.default
        embedding_bag.padding_idx
    """,
    sums.reduction: """
        mean.default mean.dim nanmean.default nansum.default sum.default sum.dim_IntList
        trace.default
    """,
    sums.product: """
        _grouped_mm.default addbmm.default addmm.default addmv.default addr.default
        baddbmm.default bmm.default
        dot.default ger.default inner.default linear.default matmul.default mm.default
        mv.default outer.default vdot.default
    """,
    sums.convolution: """
        _convolution.default _convolution.deprecated conv1d.default conv1d.padding
        conv2d.default conv2d.padding conv3d.default conv3d.padding conv_transpose1d.default
        conv_transpose2d.input conv_transpose3d.input convolution.default
        convolution_backward.default
    """,
    sums.slow_convolution: """
        _slow_conv2d_forward.default mkldnn_convolution.default slow_conv3d_forward.default
        slow_conv_dilated2d.default slow_conv_dilated3d.default
        slow_conv_transpose2d.default slow_conv_transpose3d.default
    """,
    learned_codes.gradients: """
        _fake_quantize_learnable_per_channel_affine_backward.default
        _fake_quantize_learnable_per_tensor_affine_backward.default
    """,
    learned_codes.moving_average: "_fused_moving_avg_obs_fq_helper_functional.default",
    elementwise.sixths: "hardsigmoid_backward.default",
    elementwise.shrink_gradient: """
        hardshrink_backward.default hardtanh_backward.default softshrink_backward.default
    """,
    sums.pooling: """
        _adaptive_avg_pool2d.default _adaptive_avg_pool2d_backward.default
        _adaptive_avg_pool3d.default _adaptive_avg_pool3d_backward.default
        adaptive_avg_pool1d.default adaptive_avg_pool2d.default
        adaptive_avg_pool3d.default avg_pool1d.default avg_pool2d.default
        avg_pool2d_backward.default avg_pool3d.default avg_pool3d_backward.default
    """,
    sums.running_sum: "cumsum.default",
    products.running_product: "cumprod.default prod.default prod.dim_int",
    sums.scattered: """
        _index_put_impl.default
        _unsafe_index_put.default embedding_dense_backward.default index_add.default
        index_put.default adaptive_max_pool2d_backward.default
        adaptive_max_pool3d_backward.default fractional_max_pool2d_backward.default
        fractional_max_pool3d_backward.default reflection_pad1d_backward.default
        reflection_pad2d_backward.default reflection_pad3d_backward.default
        replication_pad1d_backward.default replication_pad2d_backward.default
        replication_pad3d_backward.default max_pool2d_with_indices_backward.default
        max_pool3d_with_indices_backward.default put.default scatter_add.default
    """,
    sums.scatter_joined: """
        index_reduce.default scatter.reduce scatter.value_reduce scatter_reduce.two
    """,
    sums.histogram: "histc.default",
    losses.alignment: "_ctc_loss.Tensor _ctc_loss.default",
    losses.alignment_backward: "_ctc_loss_backward.Tensor _ctc_loss_backward.default",
    losses.entropy_slope: "binary_cross_entropy_backward.default",
    losses.by_class: """
        nll_loss.default nll_loss2d.default nll_loss2d_forward.default nll_loss_forward.default
        nll_loss_nd.default
    """,
    losses.margins: "multi_margin_loss_backward.default",
    losses.label_counts: "multilabel_margin_loss_backward.default",
    segments.bag_gradient: "_embedding_bag_backward.default _embedding_bag_dense_backward.default",
    segments.bag_weights: "_embedding_bag_per_sample_weights_backward.default",
    segments.reduced: "segment_reduce.default",
    segments.backward: "_segment_reduce_backward.default",
    segments.edges: "_histogramdd_bin_edges.default",
    segments.histograms: "_histogramdd_from_bin_cts.default _histogramdd_from_bin_tensors.default",
    segments.histogram: "histogram.bin_ct histogram.bins_tensor",
    segments.shortened: "embedding_renorm.default",
    sums.counted: "bincount.default",
    sums.folded: "col2im.default",
    rows.softmax: "_safe_softmax.default _softmax.default softmax.int special_softmax.default",
    rows.masked_softmax: "_masked_softmax.default",
    rows.masked_softmax_backward: "_masked_softmax_backward.default",
    rows.log_softmax: "_log_softmax.default log_softmax.int special_log_softmax.default",
    rows.softmax_backward: "_softmax_backward_data.default",
    rows.log_softmax_backward: "_log_softmax_backward_data.default",
    rows.log_sum: "logsumexp.default special_logsumexp.default",
    rows.running_log_sum: "_logcumsumexp.default logcumsumexp.default",
    linear_equations.solution: "_linalg_solve_ex.default linalg_inv_ex.default",
    linear_equations.determinant: "_linalg_det.default _linalg_slogdet.default",
    linear_equations.factors: "linalg_lu.default linalg_lu_factor_ex.default",
    linear_equations.by_factors: "linalg_lu_solve.default",
    linear_equations.triangular: "linalg_solve_triangular.default triangular_solve.default",
    linear_equations.cholesky: "cholesky.default linalg_cholesky_ex.default",
    factorizations.singular_values: "_linalg_svd.default",
    factorizations.hermitian_values: "_linalg_eigh.default",
    factorizations.free: """
        linalg_qr.default linalg_eig.default linalg_eigvals.default _linalg_eigvals.default
        geqrf.default linalg_ldl_factor_ex.default linalg_lstsq.default
    """,
    factorizations.reflected: "linalg_householder_product.default ormqr.default",
    factorizations.by_symmetric_factors: "linalg_ldl_solve.default",
    factorizations.pseudoinverse: "linalg_pinv.atol_rtol_tensor",
    linear_equations.exponential: "linalg_matrix_exp.default",
    linear_equations.by_cholesky: """
        _cholesky_solve_helper.default cholesky_inverse.default cholesky_solve.default
    """,
    rows.variance: """
        std.correction std.default std.dim std_mean.correction std_mean.default std_mean.dim
        var.correction var.default var.dim var_mean.correction var_mean.default var_mean.dim
    """,
    rows.apart: "dist.default",
    rows.power_sum: "linalg__powsum.default",
    rows.norm: """
        linalg_vector_norm.default norm.Scalar norm.ScalarOpt_dim
        norm.ScalarOpt_dim_dtype norm.ScalarOpt_dtype
    """,
    rows.distance: "_cdist_forward.default _pdist_forward.default cdist.default pdist.default",
    rows.distance_backward: "_cdist_backward.default _pdist_backward.default",
    rows.transform: "_fft_c2c.default _fft_c2r.default _fft_r2c.default",
    rows.attention: """
        _scaled_dot_product_attention_math.default
        _scaled_dot_product_flash_attention_for_cpu.default
        scaled_dot_product_attention.default
    """,
    attention.attention_backward: "_scaled_dot_product_flash_attention_for_cpu_backward.default",
    normalization.weight_norm_backward: "_weight_norm_interface_backward.default",
    normalization.layer_norm: "layer_norm.default native_layer_norm.default",
    normalization.group_norm: "group_norm.default native_group_norm.default",
    normalization.batch_norm: """
        _native_batch_norm_legit.default _native_batch_norm_legit.no_stats
        _batch_norm_no_update.default _native_batch_norm_legit_functional.default
        _native_batch_norm_legit_no_training.default batch_norm.default
        _batch_norm_with_update_functional.default native_batch_norm.default
    """,
    normalization.instance_norm: "instance_norm.default",
    normalization.rms_norm: "_fused_rms_norm.default rms_norm.default",
    normalization.layer_norm_backward: "native_layer_norm_backward.default",
    normalization.group_norm_backward: "native_group_norm_backward.default",
    normalization.batch_norm_backward: """
        batch_norm_backward.default native_batch_norm_backward.default
    """,
    resampling.interpolated: """
        upsample_bicubic2d.default upsample_bicubic2d.vec upsample_bilinear2d.default
        upsample_bilinear2d.vec upsample_linear1d.default upsample_linear1d.vec
        upsample_trilinear3d.default upsample_trilinear3d.vec
    """,
    resampling.separable: """
        _upsample_bicubic2d_aa.default _upsample_bicubic2d_aa.vec
        _upsample_bicubic2d_aa_backward.default _upsample_bilinear2d_aa.default
        _upsample_bilinear2d_aa.vec _upsample_bilinear2d_aa_backward.default
        _upsample_lanczos2d_aa.default _upsample_lanczos2d_aa.vec
        _upsample_lanczos2d_aa_backward.default
        _upsample_nearest_exact1d_backward.default
        _upsample_nearest_exact2d_backward.default
        _upsample_nearest_exact3d_backward.default upsample_bicubic2d_backward.default
        upsample_bilinear2d_backward.default upsample_linear1d_backward.default
        upsample_nearest1d_backward.default upsample_nearest2d_backward.default
        upsample_nearest3d_backward.default upsample_trilinear3d_backward.default
    """,
    resampling.sampled_backward: """
        _grid_sampler_2d_cpu_fallback_backward.default grid_sampler_2d_backward.default
        grid_sampler_3d_backward.default
    """,
    resampling.sampled: """
        _grid_sampler_2d_cpu_fallback.default grid_sampler.default grid_sampler_2d.default
        grid_sampler_3d.default
    """,
    resampling.affine_grid: "affine_grid_generator.default",
}
"""Overloads of ``aten``."""

_OTHERS: dict[Rule, str] = {
    elementwise.exact: """
        dim_order_ops._clone_dim_order.default dim_order_ops._empty_dim_order.default
        dim_order_ops._to_dim_order_copy.default
        prims.convert_element_type.default
        quantized_decomposed.convert_element_type.no_fuse
        quantized_decomposed.dequantize_per_channel.default
        quantized_decomposed.dequantize_per_channel_group.default
        quantized_decomposed.dequantize_per_tensor.default
        quantized_decomposed.dequantize_per_tensor.tensor
        quantized_decomposed.dequantize_per_tensor.tensor2
        quantized_decomposed.dequantize_per_token.default
    """,
    elementwise.codes: """
        quantized_decomposed._choose_qparams_per_token_asymmetric_impl.default
        quantized_decomposed.choose_qparams.tensor
        quantized_decomposed.choose_qparams_per_token.default
        quantized_decomposed.choose_qparams_per_token_asymmetric.default
        quantized_decomposed.choose_qparams_symmetric.tensor
        quantized_decomposed.fake_quant_per_channel.default
        quantized_decomposed.quantize_per_channel.default
        quantized_decomposed.quantize_per_channel_group.default
        quantized_decomposed.quantize_per_tensor.default
        quantized_decomposed.quantize_per_tensor.tensor
        quantized_decomposed.quantize_per_tensor.tensor2
        quantized_decomposed.quantize_per_token.default
    """,
    control_flow.called: """
        higher_order.associative_scan higher_order.autograd_function
        higher_order.cond higher_order.invoke_subgraph
        higher_order.map_impl higher_order.scan higher_order.strict_mode
        higher_order.tag_activation_checkpoint higher_order.while_loop
        higher_order.wrap_with_autocast higher_order.wrap_with_set_grad_enabled
    """,
    control_flow.converted: "higher_order.out_dtype",
}

RULES: dict[str, Rule] = {
    **{f"aten.{name}": rule for rule, names in _ATEN.items() for name in names.split()},
    **{name: rule for rule, names in _OTHERS.items() for name in names.split()},
    **{name: special.polynomial for names in POLYNOMIALS.values() for name in names},
}
"""The rule of each overload."""
