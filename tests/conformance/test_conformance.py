"""What PyTorch tests its operators with, extracted, stored, printed, checked and run, is bitwise
what eager gives.

These operators stand for all kinds of arguments and results; `make conformance` runs them all.
"""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

TOOL = Path(__file__).parents[2] / "tools/conformance_case.py"
SAMPLES = 3

OPERATORS = {
    "numbers": "add addmm pow clamp lerp fill nan_to_num linalg_vector_norm isclose float_power",
    "tensors by keyword, optional tensors": (
        "searchsorted histogram native_layer_norm nn_functional_batch_norm nn_functional_conv2d "
        "nn_functional_cross_entropy nn_functional_embedding_bag take_along_dim"
    ),
    "lists of tensors": (
        "cat stack block_diag einsum meshgrid_list_of_tensors broadcast_tensors __getitem__ "
        "index_put _unsafe_masked_index linalg_multi_dot cartesian_prod"
    ),
    "lists of numbers": "roll permute tile linalg_norm histogramdd nn_functional_pad_reflect",
    "words": (
        "nn_functional_gelu scatter_reduce_mean index_reduce_amax div_floor_rounding "
        "nn_functional_interpolate_bicubic nn_functional_grid_sample linalg_qr"
    ),
    "dtypes, devices, memory formats": (
        "to contiguous sum softmax_with_dtype zeros_like new_full full eye arange "
        "scalar_tensor triu_indices chalf half empty_like empty_strided"
    ),
    "complex numbers": "complex polar view_as_real imag angle stft istft fft_irfft2 linalg_eig",
    "several results": (
        "max_reduction_with_dim sort topk kthvalue aminmax std_mean frexp linalg_svd "
        "linalg_slogdet linalg_lu lu_unpack native_batch_norm"
    ),
    "lists of results": "split split_list_args tensor_split unbind chunk hsplit gradient",
    "results that are no tensors": "item",
    "views": (
        "as_strided diagonal unfold expand view narrow movedim squeeze real T transpose "
        "unflatten select_scatter as_strided_partial_views"
    ),
    "in place": "zero_ resize_ uniform exponential index_add masked_fill nn_functional_relu",
    "random numbers": (
        "nn_functional_dropout nn_functional_alpha_dropout bernoulli multinomial normal "
        "randint_like rand_like nn_functional_rrelu nn_functional_fractional_max_pool2d"
    ),
    "shapes that depend on data": (
        "nonzero masked_select unique unique_consecutive argwhere bincount repeat_interleave "
        "combinations nonzero_static"
    ),
    "other layouts": "to_sparse sparse_sampled_addmm",
    "composed in Python": (
        "nn_functional_multi_head_attention_forward nn_functional_scaled_dot_product_attention "
        "masked_softmax svd_lowrank nn_functional_triplet_margin_with_distance_loss tensordot "
        "nn_functional_multilabel_margin_loss"
    ),
}


@pytest.fixture(scope="module")
def conformance():
    """The tool that ``make conformance`` runs on all operators."""
    spec = importlib.util.spec_from_file_location("conformance_case", TOOL)
    tool = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = tool
    spec.loader.exec_module(tool)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tool
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "operator", [name for names in OPERATORS.values() for name in names.split()]
)
def test_an_operator_runs_as_in_eager(conformance, operator):
    cases = [case for case in conformance.all_cases() if case.operator == operator]
    results = [(case, r) for case in cases for r in conformance.check_case(case, SAMPLES)]
    failures = [
        f"{case}: {result.stage}: {result.reason}"
        for case, result in results
        if result.outcome == conformance.FAIL
    ]
    assert not failures
    outcomes = {result.outcome for _, result in results}
    assert outcomes & {conformance.EQUAL, conformance.FILLED}


def test_results_that_differ_in_one_bit_are_not_equal(conformance):
    zero, nan = torch.tensor([0.0, 1.0]), torch.tensor([float("nan")])
    assert conformance.difference(zero, zero.clone()) == ""
    assert conformance.difference(nan, -nan) == ""
    assert conformance.difference(zero, torch.tensor([-0.0, 1.0])) == "1 of 2 values differ"
    assert conformance.difference((zero,), [zero]).startswith("the structure is ")
    assert conformance.difference(1, True) == "the type is bool, expected int"
    found = conformance.difference(zero, zero.double())
    assert found == "the dtype is torch.float64, expected torch.float32"
