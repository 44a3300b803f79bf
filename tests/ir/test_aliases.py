"""What a program writes: through views, in scopes, by batch norm and by custom operators."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import IR, IRExecutor, OpNode, TensorMeta, random_program
from torch_ir.ir.values import FunctionRef


def module(forward, **buffers):
    """A module with the given buffers whose ``forward`` is the given function."""

    class Made(nn.Module):
        def __init__(self):
            super().__init__()
            for name, value in buffers.items():
                self.register_buffer(name, value)

        def forward(self, *args):
            return forward(self, *args)

    return Made()


def relu_first_row(self, x):
    return x.view(2, 6)[0].relu_().sum()


def transposed(self, x):
    x.t().add_(1)
    return x * 2


def through_a_split(self, x):
    _, right = x.split(2, dim=1)
    right.zero_()
    return x.sum()


def a_copy(self, x):
    x.clone().add_(1)
    return x.contiguous().sum()


def buffer_slice(self, x):
    self.state[:2].copy_(x[0, :2])
    return x + self.state.sum()


def in_a_scope(self, x):
    with torch.no_grad():
        self.state.add_(1)
    return x + self.state


def expanded_view(self, x):
    self.state[0:1].expand(1).mul_(2)
    return x.squeeze().unsqueeze(0).permute(2, 1, 0).reshape(-1)


def one_of_several(self, x):
    _, flat = torch.atleast_1d(self.state, x)
    flat.mul_(2)
    return x + self.state[0]


def two_targets(self, x):
    self.state.add_(1)
    x.mul_(self.state)
    return x


@pytest.mark.parametrize(
    ("forward", "written"),
    [
        (relu_first_row, {"x"}),
        (transposed, {"x"}),
        (through_a_split, {"x"}),
        (a_copy, set()),
        (buffer_slice, {"b_state"}),
        (in_a_scope, {"b_state"}),
        (expanded_view, {"b_state"}),
        (one_of_several, {"x"}),
        (two_targets, {"x", "b_state"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_a_program_writes_is_what_torch_writes(forward, written):
    model = module(forward, state=torch.ones(4))
    ir = torch_ir.extract_ir(model.eval(), (torch.ones(3, 4),))
    names = {"x" if name.startswith("args") else name for name in ir.aliases.written}
    assert names == written
    assert {mutation.target for mutation in ir.mutations} == ir.aliases.written

    x, before = torch.randn(3, 4), model.state.clone()
    given = x.clone()
    model(given)
    assert ("x" in written) is not torch.equal(given, x)
    assert ("b_state" in written) is not torch.equal(model.state, before)


@pytest.mark.parametrize(
    ("norm", "training", "written"),
    [
        (nn.BatchNorm1d(4), True, {"b_running_mean", "b_running_var", "b_num_batches_tracked"}),
        (nn.BatchNorm1d(4), False, set()),
        (nn.BatchNorm1d(4, track_running_stats=False), True, set()),
        (
            nn.InstanceNorm1d(4, track_running_stats=True),
            True,
            {"b_running_mean", "b_running_var"},
        ),
    ],
)
def test_batch_norm_writes_its_statistics_in_training(norm, training, written):
    shape = (3, 4) if isinstance(norm, nn.BatchNorm1d) else (2, 4, 5)
    ir = _extract_quietly(norm.train(training), (torch.ones(shape),))
    assert ir.aliases.written == written


def _extract_quietly(model, inputs):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch_ir.extract_ir(model, inputs)


def test_a_custom_operator_writes_what_its_schema_says():
    x = TensorMeta("x", (2,), "float32")
    y = TensorMeta("y", (2,), "float32", "y")
    z = TensorMeta("z", (2,), "float32", "z")
    push = OpNode("y", "mylib.push.default", [x, x], [y], {}, {"self": 0, "other": 1})
    relu = OpNode("z", "aten.relu_.default", [y], [z])
    schema = "mylib::push(Tensor(a!) self, Tensor other) -> Tensor(a!)"
    unknown = IR([push, relu], [x], [z], [])
    assert unknown.aliases.written == {"x"}  # nobody recorded what it does: y may be x
    fresh = "mylib::push(Tensor self, Tensor other) -> Tensor"
    assert unknown.replace(operators={"mylib.push.default": fresh}).aliases.written == set()
    assert unknown.replace(operators={"mylib.push.default": schema}).aliases.written == {"x"}


def test_a_value_that_was_made_may_be_written():
    x = TensorMeta("x", (2,), "float32")
    y = TensorMeta("y", (2,), "float32", "y")
    z = TensorMeta("z", (2,), "float32", "z")
    nodes = [
        OpNode("y", "aten.exp.default", [x], [y]),
        OpNode("z", "aten.relu_.default", [y], [z]),
    ]
    assert IR(nodes, [x], [z], []).aliases.written == set()
    aliased = [nodes[0].replace(op_type="aten.alias.default"), nodes[1]]
    assert IR(aliased, [x], [z], []).aliases.written == {"x"}


SHARING = [
    *("view", "t", "slice.Tensor", "select.int", "split.Tensor", "permute", "reshape", "alias"),
    *("exp", "neg", "clone", "contiguous"),
]


def test_results_of_a_function_that_share_memory_are_told_to():
    operators = [f"aten.{name}" + ".default" * ("." not in name) for name in SHARING]
    shared = 0
    for seed in range(16):
        program = random_program(seed, nodes=8, operators=operators, dynamic=False, writes=False)
        if program.weights:
            continue
        made = [meta for node in program.ir.nodes for meta in node.outputs]
        body = program.ir.replace(graph_outputs=made, signature=None)
        pred = TensorMeta("p", (), "bool")
        given = [m.replace(name=f"x{i}") for i, m in enumerate(body.graph_inputs)]
        results = [TensorMeta(f"y{i}", m.shape, m.dtype, "c", i) for i, m in enumerate(made)]
        branches = {"true_fn": FunctionRef("f"), "false_fn": FunctionRef("f")}
        slots = {"pred": 0, "operands": tuple(range(1, len(given) + 1))}
        call = OpNode("c", "higher_order.cond", [pred, *given], results, branches, slots)
        ir = IR([call], [pred, *given], results, [], functions={"f": body})
        tensors = IRExecutor(ir, {})(torch.tensor(True), *program.inputs)
        named = {meta.name: t for meta, t in zip(given, program.inputs, strict=True)}
        named |= {meta.name: t for meta, t in zip(results, tensors, strict=True)}
        storages = {n: t.untyped_storage().data_ptr() for n, t in named.items() if t.numel()}
        for first, second in combinations(storages, 2):
            if second.startswith("y") and storages[first] == storages[second]:
                shared += 1
                assert ir.aliases.may_share(first, second), (seed, first, second)
    assert shared > 100
