"""What has a meaning: view copies, recurrent and quantizing operators, gradients of layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed

from semantics.coverage import of_samples, reason
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
