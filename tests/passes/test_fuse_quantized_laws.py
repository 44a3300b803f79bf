"""Laws of the fusion of quantized operators: bits, retracing, saving, names, linear work."""

from __future__ import annotations

import sys

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from passes.equal import assert_same
from passes.quantized import LEVELS, Calls, codes, count, dq, fused, names, q
from torch_ir import IRExecutor, decompose, extract_ir, to_edge
from torch_ir.dialects import verify
from torch_ir.ir import IR, DType, OpNode, TensorMeta
from torch_ir.passes import common_subexpressions, fuse_quantized, pass_named
from torch_ir.passes.quantized.codes import DEQUANTIZE, QUANTIZE
from torch_ir.serde import dumps, loads

BYTES = [torch.uint8, torch.int8]


def test_retracing_gives_the_unfused_program_back():
    def layers(x, w, v):
        y = q(torch.relu(functional.linear(dq(x), dq(w, 0.05))), 0.3)
        z = q(dq(y, 0.3) + dq(v), 0.2)
        return q(dq(z, 0.2) * dq(v), 0.2)

    args = (codes(2, 4), codes(3, 4, seed=1), codes(3, seed=2))
    before = decompose(extract_ir(Calls(layers), args))
    after = fused(before)
    assert names(after) == ["linear_relu", "add", "mul"]
    again = common_subexpressions(decompose(after))
    assert count(again) == count(common_subexpressions(before))
    assert_same(before, again, {}, args)
    assert fused(again).nodes[-1].op_type == after.nodes[-1].op_type


def test_a_fused_program_is_a_legal_backend_program_that_can_be_saved():
    def layer(x, w):
        return q(torch.cat([dq(x), functional.linear(dq(x), dq(w, 0.05))], 1), 0.3)

    edge = to_edge(extract_ir(Calls(layer), (codes(2, 4), codes(3, 4, seed=1))))
    program = edge.transform([pass_named("fuse-quantized")])
    assert program is edge  # the sum of all is quantized, not each
    fine = to_edge(
        extract_ir(
            Calls(lambda x, w: q(functional.linear(dq(x), dq(w)), 0.3)), (codes(2, 4), codes(3, 4))
        )
    ).transform([pass_named("fuse-quantized")])
    assert verify(fine.ir(), "backend") == verify(fine.ir(), "edge") == ()
    assert loads(dumps(fine.ir())) == fine.ir()
    assert names(fine.ir()) == ["linear"]


def test_the_new_node_has_the_name_of_the_codes_and_the_line_of_the_operator():
    def add(a, b):
        x, y = dq(a), dq(b)
        z = x + y
        return q(z, 0.3)

    ir = extract_ir(Calls(add), (codes(4), codes(4)))
    (node,) = fused(ir).nodes
    (addition,) = [n for n in ir.nodes if n.op_type == "aten.add.Tensor"]
    assert node.name == ir.graph_outputs[0].name
    assert node.location == addition.location


def test_a_program_without_quantized_values_is_the_same_object():
    ir = extract_ir(Calls(lambda x: torch.relu(x) + 1), (torch.randn(3),))
    assert fused(ir) is ir


def test_codes_that_are_given_away_lie_as_quantizing_laid_them_out():
    """Products round by how their factors lie, and these are factors too."""

    def turned(x, w):
        y = q(functional.linear(dq(x), dq(w, 0.05)).relu().t(), 0.3)
        z = q(dq(x).t().contiguous(), 0.3)
        a = q(dq(x).t())
        return y, z, a, dq(y, 0.3) @ dq(z, 0.3).t(), dq(a).t() @ dq(a)

    args = (codes(37, 53), codes(41, 53, seed=1))
    before = to_edge(extract_ir(Calls(turned), args)).ir()
    after = fused(before)
    assert count(after)["_clone_dim_order"] > count(before)["_clone_dim_order"]
    assert_same(before, after, {}, args)
    for one, other in zip(IRExecutor(before)(*args), IRExecutor(after)(*args), strict=True):
        assert one.stride() == other.stride()


STEPS = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "relu": lambda x, y: torch.relu(x),
    "add-relu": lambda x, y: torch.relu(x + y),
    "number": lambda x, y: x + 0.25,
    "same": lambda x, y: x.permute(1, 0),
    "slice": lambda x, y: torch.cat([x[1:], x[:1]]),
    "float": lambda x, y: x.sin(),
    "view": lambda x, y: x.reshape(9).view(3, 3),
    "linear": functional.linear,
}


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 5), st.booleans(), st.booleans()),
        min_size=1,
        max_size=6,
    ),
    dtype=st.sampled_from(BYTES),
    level=st.sampled_from(["export", "core_aten", "edge"]),
)
def test_chains_of_everything_keep_their_bits(steps, dtype, level):
    def chain(a, b):
        values = [(a, 0.1), (b, 0.07)]
        kept = []
        for name, other, same, keep in steps:
            first, second = values[-1], values[other % len(values)]
            numbers = STEPS[name](dq(*first), dq(*second))
            scale = first[1] if same else 0.13
            values.append((q(numbers, scale, dtype=dtype), scale))
            kept += [numbers] if keep else []
        return values[-1][0], *kept

    args = (codes(3, 3, dtype=dtype), codes(3, 3, dtype=dtype, seed=1))
    before = LEVELS[level](extract_ir(Calls(chain), args))
    after = fused(before)
    assert_same(before, after, {}, args)
    assert loads(dumps(after)) == after
    assert fused(after) is after


def deep(steps: int) -> IR:
    """A program that dequantizes, turns a matrix again and again, adds and quantizes."""
    attrs = {"scale": 0.1, "zero_point": 3, "quant_min": 0, "quant_max": 255}
    attrs["dtype"] = DType("uint8")
    given = meta = TensorMeta("x", (2, 2), "uint8")
    nodes: list[OpNode] = []

    def call(op_type, inputs, dtype, attrs):
        made = TensorMeta(f"n{len(nodes)}", (2, 2), dtype, f"n{len(nodes)}")
        nodes.append(OpNode(made.name, op_type, inputs, [made], attrs))
        return made

    for _ in range(steps):
        numbers = call(DEQUANTIZE, [meta], "float32", attrs)
        for _ in range(20):
            numbers = call("aten.permute.default", [numbers], "float32", {"dims": [1, 0]})
        numbers = call("aten.add.Tensor", [numbers, numbers], "float32", {})
        meta = call(QUANTIZE, [numbers], "uint8", attrs)
    return IR(nodes, [given], [meta], [])


def test_the_work_grows_as_the_program_does():
    def calls_of(ir):
        made = 0

        def count_call(frame, event, argument):
            nonlocal made
            made += event == "call"

        sys.setprofile(count_call)
        try:
            fuse_quantized(ir)
        finally:
            sys.setprofile(None)
        return made

    fuse_quantized(deep(1))  # what is looked up once
    assert calls_of(deep(80)) < 2.1 * calls_of(deep(40))


def test_a_long_chain_of_moves_is_followed_to_its_end():
    ir = deep(1)
    source, move = ir.nodes[0], ir.nodes[1]
    nodes, meta = [source], source.outputs[0]
    for number in range(5_000):
        made = meta.replace(name=f"m{number}", producer_node=f"m{number}")
        nodes.append(move.replace(name=made.name, inputs=[meta], outputs=[made]))
        meta = made
    nodes.append(ir.nodes[-1].replace(inputs=[meta]))
    after = fuse_quantized(ir.replace(nodes=nodes))
    assert len(after.nodes) == 5_001  # a copy behind them: the result is no view of the input
    assert count(after) == {"permute": 5_000, "clone": 1}
