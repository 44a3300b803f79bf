"""Kernels that believe indices and lists are called with those that fit, or not at all."""

from __future__ import annotations

import pytest
import torch

from infer.trusting_calls import eager, in_child, program_of, refusals
from torch_ir import compile_graph
from torch_ir.errors import CompileError, ExecutionError
from torch_ir.infer.preconditions.table import PRECONDITIONS, find_shape_fault, require_arguments
from torch_ir.ir import SymbolRange, TensorMeta
from torch_ir.ops.schema import lookup

WILD = (10**12, -(10**12), -1)


def pooling():
    for rank, shape in ((2, (2, 3, 6, 6)), (3, (2, 3, 4, 4, 4))):
        x = torch.randn(shape)
        pool = [2] * rank
        _, found = eager(
            f"aten.max_pool{rank}d_with_indices.default", {"self": x, "kernel_size": pool}
        )
        known = {
            "kernel_size": pool,
            "stride": pool,
            "padding": [0] * rank,
            "dilation": [1] * rank,
        }
        call = {"grad_output": torch.randn(found.shape), "self": x, **known, "ceil_mode": False}
        yield f"aten.max_pool{rank}d_with_indices_backward.default", {**call, "indices": found}
        _, found = eager(
            f"aten.adaptive_max_pool{rank}d.default", {"self": x, "output_size": pool}
        )
        call = {"grad_output": torch.randn(found.shape), "self": x, "indices": found}
        yield f"aten.adaptive_max_pool{rank}d_backward.default", call


def alignments():
    probabilities = torch.randn(7, 2, 5).log_softmax(2)
    for targets in (torch.tensor([[1, 2, 3], [4, 1, -9]]), torch.tensor([1, 2, 3, 4, 1])):
        call = {"log_probs": probabilities, "targets": targets}
        lists = {"input_lengths": [7, 6], "target_lengths": [3, 2]}
        yield "aten._ctc_loss.default", {**call, **lists}
        loss, alpha = eager("aten._ctc_loss.default", {**call, **lists})
        made = {"grad": torch.ones(2), **call, **lists, "neg_log_likelihood": loss}
        yield "aten._ctc_loss_backward.default", {**made, "log_alpha": alpha, "blank": 0}
        tensors = {name: torch.tensor(value) for name, value in lists.items()}
        yield "aten._ctc_loss.Tensor", {**call, **tensors}
        made = {"grad": torch.ones(2), **call, **tensors, "neg_log_likelihood": loss}
        yield "aten._ctc_loss_backward.Tensor", {**made, "log_alpha": alpha, "blank": 0}


def embeddings():
    weight, indices, offsets = (
        torch.randn(9, 4),
        torch.tensor([1, 8, 0, 3, 3]),
        torch.tensor([0, 2]),
    )
    for mode in (0, 1, 2):
        forward = {"weight": weight, "indices": indices, "offsets": offsets, "mode": mode}
        _, offset2bag, sizes, largest = eager("aten._embedding_bag.default", forward)
        numbers = {"num_weights": 9, "scale_grad_by_freq": False, "mode": mode}
        known = {"grad": torch.randn(2, 4), "indices": indices, "offset2bag": offset2bag}
        call = {**known, "bag_size": sizes, "maximum_indices": largest, **numbers}
        bag = {"offset2bag": torch.tensor([0, 0, 1, 1, 1]), "per_sample_weights": None}
        yield "aten._embedding_bag_dense_backward.default", {**call, **bag}
        rest = {"offsets": offsets, "sparse": False, "per_sample_weights": None}
        yield "aten._embedding_bag_backward.default", {**call, **rest}
    call = {**known, "weight": weight, "offsets": offsets, "mode": 0}
    yield "aten._embedding_bag_per_sample_weights_backward.default", call


def segments():
    data = torch.randn(6, 2)
    for limits in ({"lengths": torch.tensor([2, 0, 4])}, {"offsets": torch.tensor([0, 2, 2, 6])}):
        call = {"data": data, "reduce": "sum", **limits, "axis": 0}
        yield "aten.segment_reduce.default", call
        made = eager("aten.segment_reduce.default", call)
        yield "aten._segment_reduce_backward.default", {"grad": made, "output": made, **call}


def sparse():
    rows, columns = torch.tensor([0, 2, 2, 3]), torch.tensor([0, 1, 4])
    call = {"crow_indices": rows, "col_indices": columns}
    yield "aten._convert_indices_from_csr_to_coo.default", call
    yield (
        "aten._convert_indices_from_coo_to_csr.default",
        {"self": torch.tensor([0, 0, 2]), "size": 3},
    )


CALLS = [
    pytest.param(op_type, call, id=f"{op_type}-{position}")
    for calls in (pooling, alignments, embeddings, segments, sparse)
    for position, (op_type, call) in enumerate(calls())
]


@pytest.mark.parametrize(("op_type", "call"), CALLS)
def test_right_calls_give_the_bits_of_eager(op_type, call):
    made = eager(op_type, call)
    expected = [made] if isinstance(made, torch.Tensor) else [*made]
    ir, tensors = program_of(op_type, call, expected)
    found = compile_graph(ir).eval(tensors)
    if "_ctc_loss." in op_type:  # what it keeps for its gradient is not filled everywhere
        found, expected = found[:1], expected[:1]
    assert all(map(torch.equal, found, expected))


def wild(call):
    """The call with integers far out: in all of a tensor, in its first and in its last element."""
    for name, value in call.items():
        if isinstance(value, torch.Tensor) and value.dtype == torch.int64 and value.numel():
            for number in WILD:
                yield name, {**call, name: torch.full_like(value, number)}
                for position in (0, -1):
                    changed = value.clone()
                    changed.view(-1)[position] = number
                    yield name, {**call, name: changed}
        elif name.endswith("_lengths"):
            for number in WILD:
                yield name, {**call, name: [*value[:-1], number]}


UNREAD = {"col_indices", "bag_size", "maximum_indices", "offsets", "offset2bag"}
"""What some calls do not read, or look at themselves: they may run, and must not die."""


@pytest.mark.parametrize(("op_type", "call"), CALLS)
def test_indices_far_out_are_refused(op_type, call):
    made = eager(op_type, call)
    expected = [made] if isinstance(made, torch.Tensor) else [*made]

    def ends():
        padded = call.get("targets") is not None and call["targets"].dim() == 2
        return [
            [name, *refusals(op_type, wrong, expected)]
            for name, wrong in wild(call)
            # the last target is padding, which nobody reads
            if not (padded and name == "targets" and wrong["targets"][0, 0] == 1)
        ]

    found = in_child(ends)
    assert found or "input_lengths" in call
    for name, compiled, run in found:
        assert name in UNREAD or run.startswith("refused: "), (name, run)
        assert name in UNREAD or compiled == "refused-arguments" or compiled == run


def steps():
    """A fused step of each optimizer, in place and not."""
    numbers = {"lr": 0.1, "weight_decay": 0.0, "maximize": False}
    adam = {**numbers, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "amsgrad": True}
    known = {
        "adagrad": (("state_sums", "state_steps"), {**numbers, "lr_decay": 0.0, "eps": 1e-8}),
        "adam": (("exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps"), adam),
        "adamw": (("exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps"), adam),
        "sgd": (
            ("momentum_buffer_list",),
            {
                **numbers,
                "momentum": 0.9,
                "dampening": 0.0,
                "nesterov": False,
                "is_first_step": False,
            },
        ),
    }
    for name, (lists, rest) in known.items():
        call = {list_: [torch.rand(3, 2), torch.rand(4)] for list_ in ("self", "grads", *lists)}
        if "state_steps" in call:
            call["state_steps"] = [torch.tensor(1.0), torch.tensor(1.0)]
        for suffix in ("", "_"):
            yield f"aten._fused_{name}{suffix}.default", {**call, **rest}


STEPS = [pytest.param(op_type, call, id=op_type) for op_type, call in steps()]


@pytest.mark.parametrize(("op_type", "call"), STEPS)
def test_lists_that_do_not_fit_are_refused(op_type, call):
    assert find_shape_fault(op_type, (), call) is None
    eager(
        op_type,
        {name: [t.clone() for t in v] if isinstance(v, list) else v for name, v in call.items()},
    )
    wrong = []
    for name, value in call.items():
        if isinstance(value, list):
            wrong += [{**call, name: value[:1]}, {**call, name: [*value, value[0]]}]
            wrong += [{**call, name: [value[0], torch.zeros(1 if value[1].dim() else 2)]}]
    for end in in_child(lambda: [refusals(op_type, w) for w in wrong]):
        assert end[0] == "refused-arguments"
        assert end[1].startswith("refused: ")


def test_tensors_that_share_memory_within_are_no_parameters():
    op_type, call = next(steps())
    shared = [torch.rand(1).expand(3, 2), torch.rand(4)]
    with pytest.raises(ExecutionError, match=r"self\[0\] does not lie in memory"):
        require_arguments(op_type, (), {**call, "self": shared})


SOBOL = {
    "aten._sobol_engine_initialize_state_.default": {"self": (3, 30), "dimension": 3},
    "aten._sobol_engine_scramble_.default": {"self": (3, 30), "ltm": (3, 30, 30), "dimension": 3},
    "aten._sobol_engine_draw.default": {
        "quasi": (3,),
        "n": 4,
        "sobolstate": (3, 30),
        "dimension": 3,
        "num_generated": 0,
        "dtype": torch.float32,
    },
    "aten._sobol_engine_ff_.default": {
        "self": (3,),
        "n": 4,
        "sobolstate": (3, 30),
        "dimension": 3,
        "num_generated": 0,
    },
}


@pytest.mark.parametrize("op_type", SOBOL)
def test_states_of_sobol_sequences_have_their_dimension(op_type):
    call = {
        name: torch.zeros(value, dtype=torch.int64) if isinstance(value, tuple) else value
        for name, value in SOBOL[op_type].items()
    }
    eager(op_type, call)

    def ends():
        numbers = [name for name in ("dimension", "n", "num_generated") if name in call]
        wrong = [{**call, name: number} for name in numbers for number in (10**12, -(10**12), -1)]
        wrong += [{**call, "dimension": number} for number in (2, 4, 21_202)]
        return [refusals(op_type, w)[1] for w in wrong]

    for end in in_child(ends):
        assert end.startswith("refused: ")


def test_checks_are_not_turned_off():
    call = {"data": torch.randn(6), "reduce": "sum", "lengths": torch.tensor([2, 4])}
    ir, _ = program_of("aten.segment_reduce.default", {**call, "unsafe": True}, [torch.empty(2)])
    with pytest.raises(CompileError) as caught:
        compile_graph(ir)
    assert caught.value.findings[0].code in ("refused-arguments", "forbidden-operator")


def test_sizes_that_only_a_call_knows_are_looked_at_in_the_call():
    x, indices = torch.randn(1, 1, 4, 4), torch.tensor([[[[15]]]])
    call = {"grad_output": torch.ones(1, 1, 1, 1), "self": x, "indices": indices}
    ir, tensors = program_of("aten.adaptive_max_pool2d_backward.default", call, [x])
    wide = TensorMeta("x1", (1, 1, "s0", 4), "float32")
    result = TensorMeta("y.0", (1, 1, "s0", 4), "float32", "y", 0)
    inputs = [wide if meta.name == "x1" else meta for meta in ir.graph_inputs]
    node = ir.nodes[0].replace(inputs=inputs, outputs=[result])
    changed = {"nodes": [node], "graph_inputs": inputs, "graph_outputs": [result]}
    graph = compile_graph(ir.replace(**changed, symbols={"s0": SymbolRange(1, 9)}))
    assert graph.eval(tensors)[0].sum() == 1
    tensors[1] = torch.randn(1, 1, 3, 4)
    with pytest.raises(
        ExecutionError, match="indices holds 15, which is outside of 0 to 11"
    ) as caught:
        graph.eval(tensors)
    assert caught.value.node == "y"


def test_only_operators_of_the_table_have_a_line_more():
    ir, _ = program_of("aten.relu.default", {"self": torch.ones(2)}, [torch.ones(2)])
    assert "require_arguments" not in compile_graph(ir).source


def test_rules_name_arguments_of_their_operators():
    assert all(lookup(op_type) is not None for op_type in PRECONDITIONS)
    bare = {
        op
        for op, rule in PRECONDITIONS.items()
        if rule.shapes is rule.values is rule.layouts is None
    }
    # of which only whether they are dense is asked
    assert {op.split(".")[1] for op in bare} == {"copy", "resize_as", "trapz"}


def test_gradients_of_gathered_elements_stay_inside():
    op_type = "aten._gather_sparse_backward.default"
    right = {
        "self": torch.zeros(2, 4),
        "dim": 1,
        "index": torch.tensor([[0, 3, 1], [2, 2, 0]]),
        "grad": torch.ones(2, 3),
    }
    assert eager(op_type, right).to_dense().sum() == 6
    assert refusals(op_type, right, [torch.zeros(2, 4)])[1] == "ran"
    wrong = [
        {**right, "index": right["index"] + 2},
        {**right, "index": -right["index"]},
        {**right, "index": right["index"][:1]},
        {**right, "dim": 2},
        {**right, "dim": 0},
        {**right, "grad": torch.ones(0, 3), "index": torch.zeros(0, 3, dtype=torch.int64)},
        {**right, "grad": torch.ones(()), "index": torch.tensor(7)},
    ]
    for end in in_child(lambda: [refusals(op_type, call)[1] for call in wrong]):
        assert end.startswith("refused: ")
