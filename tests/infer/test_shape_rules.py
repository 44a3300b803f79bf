"""Kernels that read as far as one tensor goes in another are called with what fits."""

import pytest
import torch

from infer.trusting_calls import eager, in_child, refusals
from torch_ir.errors import ExecutionError
from torch_ir.infer.preconditions.table import require_arguments

ROWS = torch.arange(6.0).reshape(2, 3)
STATES = {
    "observer_on": torch.ones(1, dtype=torch.int64),
    "fake_quant_on": torch.ones(1, dtype=torch.int64),
    "running_min": torch.tensor([0.0]),
    "running_max": torch.tensor([4.0]),
    "scale": torch.tensor([0.1]),
    "zero_point": torch.tensor([0], dtype=torch.int32),
}
OBSERVED = {
    "self": ROWS,
    **STATES,
    "averaging_const": 0.1,
    "quant_min": 0,
    "quant_max": 255,
    "ch_axis": 0,
}
BY_ROW = {**OBSERVED, "per_row_fake_quant": True} | {
    name: torch.cat([STATES[name]] * 2)
    for name in ("running_min", "running_max", "scale", "zero_point")
}
NORM = {"input": ROWS, "weight": None, "bias": None, "momentum": 0.1, "eps": 1e-5}
STATISTICS = {"running_mean": torch.zeros(3), "running_var": torch.ones(3)}
SOFTMAX = {"grad_output": ROWS, "output": ROWS, "dim": 1, "input_dtype": torch.float32}
EMBEDDED = {"grad": torch.ones(2, 3), "indices": torch.tensor([0, 3]), "num_weights": 4}
EMBEDDED |= {"padding_idx": -1, "scale_grad_by_freq": True, "sparse": False}
GATHERED = {"grad": ROWS, "self": ROWS, "dim": 1, "index": torch.tensor([[0, 1, 2]] * 2)}
HEADS = torch.ones(1, 2, 3, 4)
ATTENDED = {"query": HEADS, "key": HEADS, "value": HEADS, "enable_gqa": True}
PICKED = {"mask": torch.tensor([True, False]), "indices": [torch.tensor([0, 1])], "fill": 0.5}
WRITTEN = {
    "_softmax": {"self": ROWS, "dim": 1, "half_to_float": False},
    "_log_softmax": {"self": ROWS, "dim": 1, "half_to_float": False},
    "tril": {"self": ROWS},
    "triu": {"self": ROWS},
}
DISTANCES = {"grad": torch.ones(1, 3, 2), "x1": torch.ones(3, 4), "x2": torch.zeros(1, 2, 4)}
DISTANCES |= {"p": 2.0, "cdist": torch.full((1, 3, 2), 2.0)}
FACTORED = {"LD": torch.eye(3).repeat(2, 1, 1), "B": torch.ones(2, 3, 1), "hermitian": False}
FACTORED |= {"pivots": torch.tensor([[1, 2, 3]] * 2, dtype=torch.int32)}
ALONE = {"LD": FACTORED["LD"][0], "pivots": FACTORED["pivots"][0]}
PACKED = {"self": torch.ones(2, 16, dtype=torch.bfloat16)}
PACKED |= {"mat2": torch.ones(3, 16, dtype=torch.int8)}
PACKED |= {"scales": torch.ones(3, dtype=torch.bfloat16)}
CALLS = {
    "aten.linalg_ldl_solve.default": (
        {**FACTORED, **ALONE},  # one matrix alone is repeated
        [
            {**FACTORED, "B": torch.ones(5, 1, 3, 1)},
            {**FACTORED, **{name: value[None] for name, value in ALONE.items()}},
        ],
    ),
    "aten._weight_int8pack_mm.default": (
        PACKED,
        [{**PACKED, "self": PACKED["self"][:, :n], "mat2": PACKED["mat2"][:, :n]} for n in (1, 8)],
    ),
    "aten._cdist_backward.default": (
        DISTANCES,
        [
            {**DISTANCES, "x1": torch.ones(5, 3, 4)},  # more batches than the gradient has
            {**DISTANCES, "x1": torch.ones(5, 3, 4), "cdist": torch.ones(5, 3, 2)},
            {**DISTANCES, "grad": torch.ones(3, 2), "cdist": torch.ones(3, 2)},
        ],
    ),
    **{
        f"aten.{name}.out": (
            {**call, "out": torch.empty(2, 3)},
            [
                {**call, "out": torch.empty(2, 3, dtype=torch.int64)},
                {**call, "out": torch.empty(3, dtype=torch.float64)},
            ],
        )
        for name, call in WRITTEN.items()
    },
    **{
        f"aten.{name}.default": (
            ATTENDED,
            [{**ATTENDED, "key": HEADS[:, :0], "value": HEADS[:, :0]}],
        )
        for name in ("_scaled_dot_product_attention_math", "scaled_dot_product_attention")
    },
    "aten._unsafe_masked_index.default": (
        {**PICKED, "self": torch.ones(2)},
        [{**PICKED, "self": torch.ones(0)}, {**PICKED, "self": torch.tensor(1.0)}],
    ),
    "prims.fft_r2c.default": (
        {"self": ROWS, "dim": [1], "onesided": True},
        [{"self": ROWS, "dim": [-1], "onesided": True}],
    ),
    "aten._batch_norm_no_update.default": (
        {**NORM, **STATISTICS},
        [NORM | dict.fromkeys(STATISTICS), {**NORM, **STATISTICS, "weight": torch.ones(2)}],
    ),
    "aten._fused_moving_avg_obs_fq_helper_functional.default": (
        OBSERVED,
        [
            {**OBSERVED, "scale": torch.ones(1, dtype=torch.int64)},
            {**OBSERVED, "observer_on": torch.ones(0)},
            {**BY_ROW, "ch_axis": 2},
            {**BY_ROW, "scale": STATES["scale"]},
        ],
    ),
    "aten._softmax_backward_data.default": (
        SOFTMAX,
        [{**SOFTMAX, "grad_output": ROWS[:, :0]}, {**SOFTMAX, "output": ROWS.bfloat16()}],
    ),
    "aten._log_softmax_backward_data.default": (
        SOFTMAX,
        [{**SOFTMAX, "grad_output": ROWS[:, :0]}, {**SOFTMAX, "output": ROWS[0]}],
    ),
    "aten._pdist_forward.default": ({"self": ROWS}, [{"self": ROWS[None]}, {"self": ROWS[0]}]),
    "aten.embedding_backward.default": (
        EMBEDDED,
        [{**EMBEDDED, "num_weights": 3}, {**EMBEDDED, "grad": torch.ones(1, 3)}],
    ),
    "aten.gather_backward.default": (
        {**GATHERED, "sparse_grad": False},
        [{**GATHERED, "sparse_grad": True, "index": GATHERED["index"] + 1}],
    ),
    "aten.gelu_backward.default": (
        {"grad_output": torch.ones(()).expand(2, 3), "self": ROWS},
        [{"grad_output": torch.ones(()).expand(2, 3), "self": ROWS[0]}],
    ),
    "aten.range.step": (
        {"start": 0, "end": 5, "step": 2.5, "dtype": torch.int64},
        [{"start": 0, "end": 5, "step": s, "dtype": torch.int64} for s in (0.5, -0.5, 1e-19)],
    ),
}


@pytest.mark.parametrize("op_type", CALLS)
def test_what_fits_runs_and_what_does_not_is_refused(op_type):
    right, wrong = CALLS[op_type]
    made = eager(op_type, right)
    expected = [made] if isinstance(made, torch.Tensor) else [*made]
    assert refusals(op_type, right, expected)[1] == "ran"
    for end in in_child(lambda: [refusals(op_type, call, expected)[1] for call in wrong]):
        assert end.startswith("refused: ")


def test_no_range_ends_the_process():
    for step in (0.5, 1e-19):
        call = {"start": 0, "end": 5, "step": step, "dtype": torch.int64}
        end = in_child(lambda: refusals("aten.arange.start_step", call)[1])  # noqa: B023
        assert end.startswith("refused: ") or end == "ran"  # torch 2.14 repeats the start
    call = {"start": 0, "end": 2, "step": 0.5, "dtype": torch.int32}
    expected = [torch.tensor([0, 0, 0, 0], dtype=torch.int32)]
    assert refusals("aten.arange.start_step", call, expected)[1] == "ran"


def test_matrices_to_be_packed_have_elements():
    for op_type, name in (
        ("aten._saturate_weight_to_fp16.default", "weight"),
        ("aten.fbgemm_pack_gemm_matrix_fp16.default", "input"),
    ):
        end = in_child(lambda: refusals(op_type, {name: torch.ones(2, 0)})[1])  # noqa: B023
        assert f"{name} is [2, 0], and has to have elements" in end


def test_an_output_repeats_no_element():
    repeated = torch.empty(1, 3).expand(2, 3)
    calls = {f"aten.{name}.out": {**call, "out": repeated} for name, call in WRITTEN.items()}
    calls["aten.resize_as_.default"] = {"self": repeated, "the_template": ROWS}
    for op_type, call in calls.items():
        with pytest.raises(ExecutionError, match=r"has strides \[0, 1\], and has to"):
            require_arguments(op_type, (), call)
