"""Kernels that trust their caller are called with what fits, or not at all."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torch_ir
from infer.trusting_calls import eager, in_child, program_of, refusals
from torch_ir import compile_graph
from torch_ir.errors import ExecutionError, PassError
from torch_ir.infer.fake import call_on
from torch_ir.infer.preconditions.table import PRECONDITIONS, find_shape_fault
from torch_ir.infer.resolve import resolve_operator

HAS_LANCZOS = hasattr(torch.ops.aten, "_upsample_lanczos2d_aa")  # since torch 2.13
RECURRENT = {
    "lstm": lambda **known: nn.LSTM(8, 6, **known),
    "gru": lambda **known: nn.GRU(8, 6, **known),
    "rnn_tanh": lambda **known: nn.RNN(8, 6, **known),
    "rnn_relu": lambda **known: nn.RNN(8, 6, nonlinearity="relu", **known),
}
NETWORKS = [
    {},
    {"batch_first": True},
    {"num_layers": 2, "bidirectional": True},
    {"bias": False},
    {"proj_size": 3},
    {"proj_size": 3, "bidirectional": True, "num_layers": 2, "bias": False},
]


def recurrent_calls(name):
    """Right calls of a recurrent operator, of both overloads."""
    for known in NETWORKS:
        if name != "lstm" and "proj_size" in known:
            continue
        torch.manual_seed(0)
        network = RECURRENT[name](**known)
        states = network.num_layers * (1 + network.bidirectional)
        hx = [torch.randn(states, 2, network.proj_size or 6), torch.randn(states, 2, 6)]
        shared = {
            "hx": hx if name == "lstm" else hx[1],
            "params": [p.detach() for p in network._flat_weights],
            "has_biases": network.bias,
            "num_layers": network.num_layers,
            "dropout": 0.0,
            "train": False,
            "bidirectional": network.bidirectional,
        }
        given = torch.randn(2, 5, 8) if network.batch_first else torch.randn(5, 2, 8)
        yield f"aten.{name}.input", {"input": given, **shared, "batch_first": network.batch_first}
        sizes = torch.tensor([2, 2, 1, 1])
        yield f"aten.{name}.data", {"data": torch.randn(6, 8), "batch_sizes": sizes, **shared}


def one_layer_calls():
    torch.manual_seed(0)
    for reverse in (False, True):
        yield (
            "aten.mkldnn_rnn_layer.default",
            {
                "input": torch.randn(5, 2, 8),
                **{f"weight{i}": p.detach() for i, p in enumerate(nn.LSTM(8, 6)._flat_weights)},
                **{name: torch.randn(1, 2, 6) for name in ("hx_", "cx_")},
                "reverse": reverse,
                "batch_sizes": (),
                "mode": 2,
                "hidden_size": 6,
                "num_layers": 1,
                "has_biases": True,
                "bidirectional": False,
                "batch_first": False,
                "train": False,
            },
        )


def test_a_layer_of_no_steps_has_no_states():
    (op_type, arguments), *_ = one_layer_calls()
    for end in refusals(op_type, {**arguments, "input": torch.randn(0, 2, 8)}):
        assert "refused" in end


def resized(tensor):
    """Tensors that are wider or narrower than one in one dimension, or have another rank."""
    for axis in range(tensor.dim()):
        for size in {1, tensor.shape[axis] + 3} - {tensor.shape[axis]}:
            shape = [*tensor.shape]
            shape[axis] = size
            yield torch.zeros(shape, dtype=tensor.dtype)
    yield torch.zeros((*tensor.shape, 2), dtype=tensor.dtype)
    yield torch.zeros(tensor.shape[1:], dtype=tensor.dtype)


def wrong_recurrent(arguments):
    """The same call with one thing that does not fit."""
    for name, value in arguments.items():
        if isinstance(value, list):
            for position, item in enumerate(value):
                for other in resized(item):
                    yield {**arguments, name: [*value[:position], other, *value[position + 1 :]]}
            yield {**arguments, name: value[:-1]}
            yield {**arguments, name: [*value, value[-1]]}
        elif isinstance(value, torch.Tensor) and name != "batch_sizes":
            for other in resized(value):
                yield {**arguments, name: other}
    for name in ("bidirectional", "has_biases", "batch_first"):
        if name in arguments:
            yield {**arguments, name: not arguments[name]}
    for count in (0, arguments["num_layers"] + 1, -1, 10**12):
        yield {**arguments, "num_layers": count}


def fits_all_the_same(wrong, arguments):
    """Whether a call has only sequences of another length, which are as good as those before."""
    if "data" in wrong or wrong["input"] is arguments["input"]:
        return False
    given, state = wrong["input"], wrong.get("hx", wrong.get("hx_"))
    state = state[0] if isinstance(state, list) else state
    if given.dim() != 3 or given.shape[2] != 8 or state.dim() != 3:
        return False
    batch_first = wrong.get("batch_first", False)
    return given.shape[0 if batch_first else 1] == state.shape[1]


@pytest.mark.parametrize("name", RECURRENT)
def test_right_calls_of_recurrent_operators_give_the_bits_of_eager(name):
    for op_type, arguments in recurrent_calls(name):
        expected = eager(op_type, arguments)
        ir, tensors = program_of(op_type, arguments, expected)
        for check_types in (True, False):
            made = compile_graph(ir, check_types=check_types).eval(tensors)
            assert all(map(torch.equal, made, expected)), (op_type, arguments)


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_calls_that_do_not_fit_are_refused(name):
    def ends():
        found = []
        calls = list(recurrent_calls(name))
        for op_type, arguments in (*calls[2:6], *calls[-2:]):
            for wrong in wrong_recurrent(arguments):
                if not fits_all_the_same(wrong, arguments):
                    found.append([op_type, find_shape_fault(op_type, (), wrong), wrong])
        return [
            [op_type, *refusals(op_type, wrong)]
            for position, (op_type, fault, wrong) in enumerate(found)
            if fault is None or position % 5 == 0  # compiling takes its time
        ]

    found = in_child(ends)
    assert len(found) > 50
    for op_type, compiled, run in found:
        by_values = "batch_sizes" in run and "dimensions" not in run  # only the call can tell
        assert compiled == (run if by_values else "refused-arguments"), op_type
        assert run.startswith("refused: "), (op_type, run)


@pytest.mark.parametrize(
    "sizes", [[2, 2, 1, 2], [2, 2, 2, 10**12], [3, 2, 1], [6, 0], [-2, 8], []]
)
def test_lengths_of_packed_sequences_are_looked_at(sizes):
    def ends():
        calls = [
            {**arguments, "batch_sizes": torch.tensor(sizes, dtype=torch.int64)}
            for name in RECURRENT
            for op_type, arguments in recurrent_calls(name)
            if "batch_sizes" in arguments
        ]
        return [refusals("aten.lstm.data", c)[1] for c in calls if isinstance(c["hx"], list)]

    assert all("batch_sizes" in end for end in in_child(ends))


def test_layers_of_onednn_that_do_not_fit_are_refused():
    for op_type, arguments in one_layer_calls():
        expected = eager(op_type, arguments)[:3]
        ir, tensors = program_of(op_type, arguments, expected)
        assert all(map(torch.equal, compile_graph(ir).eval(tensors), expected))

        def ends(op_type=op_type, arguments=arguments):
            same = {"has_biases", "batch_first"}  # a layer reads no biases then, or nothing else
            calls = [
                wrong
                for wrong in wrong_recurrent(arguments)
                if not fits_all_the_same(wrong, arguments)
                and all(wrong[name] == arguments[name] for name in same)
            ]
            calls += [{**arguments, "hidden_size": size} for size in (-1, 0, 5, 10**12)]
            calls += [{**arguments, "mode": mode} for mode in (-1, 0, 1, 3, 10**12)]
            return [refusals(op_type, wrong) for wrong in calls]

        for compiled, run in in_child(ends):
            assert compiled == "refused-arguments"
            assert run.startswith("refused: ")


def test_every_rule_is_for_an_operator_of_torch():
    ours = {op_type for op_type in PRECONDITIONS if "lanczos" not in op_type or HAS_LANCZOS}
    assert {str(resolve_operator(op_type)) for op_type in ours} == ours


RECURRENT_PROGRAM = """ir {{
  symbol s0: 2..64
  input %x: f32[5, s0, 8]
  input %h: f32[1, {batch}, 6]
  input %c: f32[1, {batch}, 6]
  input %a: f32[24, 8]
  input %b: f32[24, 6]
  %n.0: f32[5, s0, 6], %n.1: f32[1, s0, 6], %n.2: f32[1, s0, 6] = n: \
aten.lstm.input(%x, [%h, %c], [%a, %b], has_biases=False, num_layers=1, dropout=0.0, \
train=False, bidirectional=False, batch_first=False)
  return %n.0
}}"""


@pytest.mark.parametrize(
    ("batch", "fault"),
    [
        ("s0", ""),
        ("s0 + 1", "hx[0] is [1, 8, 6], and has to be [1, 7, 6]"),
        ("2*s0", "hx[0] is [1, 14, 6], and has to be [1, 7, 6]"),
    ],
)
def test_a_call_over_symbols_is_asked_at_sizes_that_they_may_have(batch, fault):
    ir = torch_ir.parse(RECURRENT_PROGRAM.format(batch=batch))
    outcome = call_on(ir, ir.nodes[0])
    assert (outcome.refusal, bool(outcome.results)) == (fault, not fault)
    if fault:
        with pytest.raises(PassError, match="cannot decompose"):
            torch_ir.decompose(ir)
    else:
        assert torch_ir.decompose(ir).check() == ()


@pytest.mark.parametrize("change", ["to_sparse", "to_sparse_csr", "to_sparse_csc"])
def test_kernels_that_trust_take_dense_tensors(change):
    ir = torch_ir.parse(
        "ir {\n input %x: f32[2, 3]\n input %y: f32[2, 3]\n"
        " %z: f32[2, 3] = aten._foreach_copy.default(self=[%x], src=[%y])\n return %z\n}"
    )
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    assert torch.equal(compile_graph(ir).eval((x, y))[0], y)
    given = getattr(x, change)()
    layout = str(given.layout).removeprefix("torch.")
    with pytest.raises(ExecutionError, match=f"self is a {layout} tensor, and has to be dense"):
        compile_graph(ir).eval((given, given))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
@pytest.mark.parametrize(
    ("indices", "offsets", "fault"),
    [
        ([10**12, 1, 2], [0, 1], "indices holds 1000000000000, which is outside of 0 to 4"),
        ([-1, 1, 2], [0, 1], "indices holds -1, which is outside of 0 to 4"),
        ([0, 1, 2], [0, 10**12], "offsets holds 1000000000000, which is outside of 0 to 3"),
        ([0, 1, 2], [2, 0], "offsets falls, and has to rise or stay"),
    ],
)
def test_bags_of_embeddings(dtype, indices, offsets, fault):
    bag = nn.EmbeddingBag(5, 3, mode="sum").to(dtype)
    right = torch.tensor([4, 0, 2]), torch.tensor([0, 1])
    graph = compile_graph(torch_ir.extract_ir(bag, right), dict(bag.state_dict()))
    assert torch.equal(graph.eval(right)[0], bag(*right))
    with pytest.raises(ExecutionError, match=fault):
        graph.eval((torch.tensor(indices), torch.tensor(offsets)))
