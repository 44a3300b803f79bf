"""What has a meaning: view copies, recurrent and quantizing operators, gradients of layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch._decomp import decomposition_table

from semantics.coverage import of_samples, reason
from torch_ir.ops.rules import operator_rule
from torch_ir.ops.schema import lookup
from torch_ir.semantics import has_denotation
from torch_samples import op_db

ATEN, DECOMPOSED = torch.ops.aten, torch.ops.quantized_decomposed

OF_OTHER_LAYOUTS = (
    "sparse",
    "nested",
    "indices_copy",
    "values_copy",
    "_dual_",
    "_primal_",
    "test",
)
"""View copies of tensors that are not dense, of forward-mode autograd, and of torch's tests."""


def test_every_view_copy_has_a_denotation():
    names = [name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names()]
    bases = [(name.partition(".")[0], name.partition(".")[2] or "default") for name in names]
    copies = [
        f"aten.{base}.{overload}"
        for base, overload in bases
        if base.endswith("_copy") and overload != "out" and not overload.endswith("_out")
        if hasattr(ATEN, base) and hasattr(ATEN, base.removesuffix("_copy"))
        if not any(word in base for word in OF_OTHER_LAYOUTS)
        if "dimname" not in overload  # of named tensors, until torch 2.12
    ]
    assert len(copies) > 25
    assert [name for name in copies if not has_denotation(name)] == []


def _calls() -> list[tuple[Any, tuple[Any, ...]]]:
    torch.manual_seed(0)
    x, sequence, state = torch.randn(3, 4), torch.randn(2, 3, 4), torch.zeros(1, 3, 5)
    layers = torch.nn.LSTM(4, 5), torch.nn.GRU(4, 5), torch.nn.RNN(4, 5)
    lstm, gru, rnn = ([t.detach() for t in layer._flat_weights] for layer in layers)
    how = True, 1, 0.0, False, False, False
    one, zero, enabled = torch.tensor([0.1]), torch.tensor([0]), torch.tensor([1])
    channels = torch.ones(3), torch.zeros(3, dtype=torch.int32), 0, 0, 255
    affine = 0.1, 0, 0, 255
    rows = DECOMPOSED.choose_qparams_per_token, DECOMPOSED.choose_qparams_per_token_asymmetric
    learned = ATEN._fake_quantize_learnable_per_channel_affine.default
    tensors = ATEN._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default
    return [
        (ATEN.atan2.out, (x, x)),
        (ATEN.view_as_real_copy.default, (torch.complex(x, x),)),
        (ATEN.multinomial.default, (x.abs(), 2)),
        (ATEN.lstm.input, (sequence, [state, state], lstm, *how)),
        (ATEN.gru.input, (sequence, state, gru, *how)),
        (ATEN.rnn_tanh.input, (sequence, state, rnn, *how)),
        (ATEN.rnn_relu.input, (sequence, state, rnn, *how)),
        (ATEN.lstm_cell.default, (x, [state[0], state[0]], *lstm)),
        (ATEN.gru_cell.default, (x, state[0], *gru)),
        (ATEN.rnn_tanh_cell.default, (x, state[0], *rnn)),
        (ATEN.rnn_relu_cell.default, (x, state[0], *rnn)),
        (ATEN._choose_qparams_per_tensor.default, (x,)),
        (DECOMPOSED.choose_qparams.tensor, (x, -128, 127, 1e-5, torch.int8)),
        (DECOMPOSED.choose_qparams_symmetric.tensor, (x, -128, 127, 1e-5, torch.int8)),
        *[(packet.default, (x, torch.int8)) for packet in rows],
        (DECOMPOSED.fake_quant_per_channel.default, (x, *channels)),
        (ATEN.fake_quantize_per_tensor_affine.default, (x, *affine)),
        (ATEN.fake_quantize_per_tensor_affine_cachemask.default, (x, *affine)),
        (ATEN.fake_quantize_per_tensor_affine.tensor_qparams, (x, one, zero, 0, 255)),
        (tensors, (x, one, zero, enabled, 0, 255)),
        (ATEN.fake_quantize_per_channel_affine.default, (x, *channels)),
        (ATEN.fake_quantize_per_channel_affine_cachemask.default, (x, *channels)),
        (ATEN.fake_quantize_per_tensor_affine_cachemask_backward.default, (x, x > 0)),
        (ATEN.fake_quantize_per_channel_affine_cachemask_backward.default, (x, x > 0)),
        (ATEN._fake_quantize_learnable_per_tensor_affine.default, (x, one, one, 0, 255)),
        (learned, (x, torch.ones(3), torch.zeros(3), 0, 0, 255)),
    ]


@pytest.mark.parametrize(
    ("overload", "args"),
    _calls(),
    ids=lambda value: "" if isinstance(value, tuple) else str(value),
)
def test_what_programs_of_layers_leave_has_a_meaning(overload, args):
    kwargs = {"out": torch.empty(3, 4)} if overload is ATEN.atan2.out else {}
    results = overload(*args, **kwargs)
    assert reason(overload, args, kwargs, results) == ""


UNDENOTED = {
    "of a layout that is not dense": """
_sparse_mm_reduce_impl.default _sparse_mm_reduce_impl_backward.default _to_dense.default
_to_sparse.default sparse_mask.default sparse_sampled_addmm.default
""",
    "gives a tensor of the caller another shape": """
squeeze_.dim transpose_.default unsqueeze_.default
""",
}
"""What no program can be judged by, and why; the list only shrinks."""


@pytest.mark.recorded
def test_what_calls_and_gradients_leave_has_a_meaning():
    entries = [entry for entry in op_db if not entry.name.startswith("jiterator")]
    found = of_samples(entries, 1, backward=True).found
    known = [f"aten.{name}" for names in UNDENOTED.values() for name in names.split()]
    assert sorted(found) == sorted(known)


KERNELS = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
LISTS = "_foreach_"
"""The first letters of operators on lists, which are those of their elements."""

NOT_DENOTED = {
    "of a layout that is not dense": """
_coalesced.default _convert_indices_from_coo_to_csr.default
_convert_indices_from_csr_to_coo.default _indices_copy.default
_nested_get_values_copy.default _nested_tensor_from_mask_left_aligned.default
_sparse_addmm.default _sparse_broadcast_to_copy.default
_sparse_compressed_tensor_with_dims.default _sparse_sum.dim _spdiags.default
_to_sparse.default _to_sparse.sparse_dim _to_sparse_bsc.default _to_sparse_bsr.default
_to_sparse_csc.default _to_sparse_csr.default _validate_compressed_sparse_indices.default
_values_copy.default ccol_indices.default ccol_indices_copy.default col_indices.default
col_indices_copy.default copy_sparse_to_sparse.default crow_indices.default
crow_indices_copy.default dense_dim.default indices.default indices_copy.default
is_coalesced.default resize_as_sparse.default row_indices.default row_indices_copy.default
sparse_compressed_tensor.comp_plain_value sparse_compressed_tensor.comp_plain_value_size
sparse_coo_tensor.size sparse_dim.default sparse_resize.default
sparse_resize_and_clear.default to_mkldnn.default values.default values_copy.default
""",
    "of tensors of codes with their scale, which no program has": """
_empty_affine_quantized.default _empty_per_channel_affine_quantized.default
_make_per_channel_quantized_tensor.default _make_per_tensor_quantized_tensor.default
quantize_per_channel.default quantize_per_tensor.default
quantize_per_tensor.tensor_qparams quantize_per_tensor.tensors
quantize_per_tensor_dynamic.default
""",
    "of memory, not of elements": """
_has_same_storage_numel.default _resize_output.default is_pinned.default is_set_to.default
set.default slice_inverse.default
""",
    "packs weights as each processor has them": """
_convert_weight_to_int4pack_for_cpu.default _weight_int4pack_mm_for_cpu.default
mkldnn_rnn_layer.default
""",
    "layers at once that eager takes and torch.export does not": """
_native_multi_head_attention.default _transformer_encoder_layer_fwd.default
""",
    "steps of optimizers and of scaled losses, which no layer has": """
_amp_foreach_non_finite_check_and_unscale.default _amp_update_scale.default
_fused_adagrad.default _fused_adagrad.tensor_lr _fused_adam.default _fused_adam.tensor_lr
_fused_adamw.default _fused_adamw.tensor_lr _fused_sgd.default _fused_sgd.tensor_lr
""",
    "of forward-mode autograd": """
_fw_primal.default _fw_primal_copy.default _make_dual.default _make_dual_copy.default
""",
    "run by processors from torch 2.14 on: draws by key, and products of 8-bit floats": """
_philox_key_fold_in.default _philox_key_fold_in.Tensor _philox_key_split.default
_philox_normal.default _philox_uniform.default _scaled_grouped_mm_v2.default
""",
    "refused by every kernel here, or of torch's own tests": """
_foobar.default
_scaled_dot_product_fused_attention_overrideable.default
_scaled_dot_product_fused_attention_overrideable_backward.default
convolution_backward_overrideable.default convolution_overrideable.default
""",
}
"""What a processor runs and nothing denotes or decomposes, and why; the list only shrinks."""


def _kernels_without_meaning() -> list[str]:
    found: list[str] = []
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        op_type = f"{namespace}.{base}.{overload or 'default'}"
        schema = lookup(op_type) if namespace in ("aten", "quantized_decomposed") else None
        if schema is None or has_denotation(op_type) or base.startswith(LISTS):
            continue
        if any(argument.is_written for argument in schema.arguments):
            continue  # it is made functional before it is denoted
        keys = [*KERNELS, "CompositeImplicitAutograd"]
        kept = [torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys]
        packet = getattr(getattr(torch.ops, namespace), base)
        is_made_of_others = (
            kept[-1] or getattr(packet, overload or "default") in decomposition_table
        )
        if any(kept) and not is_made_of_others and operator_rule(op_type).allowed:
            found.append(op_type)
    return found


def test_every_kernel_that_programs_may_call_has_a_meaning():
    known = {f"aten.{name}" for names in NOT_DENOTED.values() for name in names.split()}
    assert sorted(set(_kernels_without_meaning()) - known) == []
    assert [name for name in sorted(known) if has_denotation(name)] == []
