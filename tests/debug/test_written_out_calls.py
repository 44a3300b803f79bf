"""Operators that have no meaning of their own are judged by what they are written as."""

import math

import pytest
import torch

import torch_ir
from infer.trusting_calls import eager, program_of
from torch_ir.executor import register_executor, unregister_executor

HALF = (torch.float16, torch.bfloat16)


def programs(dtype):
    kind = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}[dtype]

    def program(call, *shapes, result):
        inputs = "\n".join(f"input %x{i}: {kind}{list(s)}" for i, s in enumerate(shapes))
        return torch_ir.parse(f"ir {{\n{inputs}\n%y: {kind}{list(result)} = {call}\nreturn %y\n}}")

    yield program("aten.sigmoid_backward.default(%x0, %x1)", [90], [90], result=[90])
    yield program("aten.logit_backward.default(%x0, %x1, 0.2)", [90], [90], result=[90])
    yield program("aten.mse_loss.default(%x0, %x1, 1)", [90], [90], result=[])
    yield program("aten.mse_loss.default(%x0, %x1, 0)", [90], [90], result=[90])
    yield program("aten.smooth_l1_loss.default(%x0, %x1)", [90], [90], result=[])
    yield program("aten.binary_cross_entropy.default(%x0, %x1)", [90], [90], result=[])
    yield program("aten.glu_backward.default(%x0, %x1, 0)", [90], [180], result=[180])
    yield program("aten.mvlgamma.default(%x0, 3)", [90], result=[90])


def arguments(ir, dtype, draws):
    sizes = [meta.shape for meta in ir.graph_inputs]
    return tuple([torch.rand(*size, generator=draws).to(dtype) for size in sizes])


@pytest.mark.parametrize("dtype", HALF)
def test_kernels_that_round_each_step_to_a_half_type_agree(dtype):
    draws = torch.Generator().manual_seed(0)
    for ir in programs(dtype):
        for _ in range(3):
            given = arguments(ir, dtype, draws)
            if "mvlgamma" in ir.nodes[0].op_type:
                given = (given[0] * 5 + 2,)
            report = torch_ir.validate(ir, {}, given, against=["denotation"])
            assert report.verdict == "agree", report


@pytest.mark.parametrize("dtype", HALF)
def test_and_faults_of_some_units_are_found(dtype):
    draws = torch.Generator().manual_seed(0)
    factor = 1 + 24 * torch.finfo(dtype).eps
    for ir in programs(dtype):
        (node,) = ir.nodes
        packet = getattr(torch.ops.aten, node.op_type.split(".")[1])

        def off(inputs, attributes, packet=packet):
            return [packet(*inputs, *attributes.values()) * factor]

        given = tuple(
            [t * 5 + 2 if "mvl" in node.op_type else t for t in arguments(ir, dtype, draws)]
        )
        register_executor(node.op_type)(off)
        try:
            report = torch_ir.validate(ir, {}, given, against=["denotation"])
        finally:
            unregister_executor(node.op_type)
        assert report.verdict == "disagree", node.op_type


GRADIENT = """ir {
  input %g: f32[20]
  input %x: f32[20]
  input %y: f32[20]
  %z: f32[20] = aten.smooth_l1_loss_backward.default(%g, %x, %y, 0, 1.0)
  return %z
}"""


def test_beside_infinities_other_steps_are_not_compared():
    ir = torch_ir.parse(GRADIENT)
    given = [torch.linspace(0.1, 1, 20), torch.linspace(-1, 1, 20), torch.linspace(3, -3, 20)]
    report = torch_ir.validate(ir, {}, tuple(given), against=["denotation"])
    assert report.verdict == "agree"
    given[2][7] = math.nan  # torch's decomposition gives 0 there, and its kernel NaN
    report = torch_ir.validate(ir, {}, tuple(given), against=["denotation"])
    assert report.verdict == "not compared"
    assert "other steps" in report.not_compared["z"]


def test_and_faults_beside_them_are_found():
    ir = torch_ir.parse(GRADIENT)
    given = [torch.linspace(0.1, 1, 20), torch.linspace(-1, 1, 20), torch.linspace(3, -3, 20)]
    given[2][7] = math.nan
    op_type = ir.nodes[0].op_type
    register_executor(op_type)(
        lambda inputs, attributes: [torch.ops.aten.smooth_l1_loss_backward(*inputs, 0, 1.0) + 0.25]
    )
    try:
        report = torch_ir.validate(ir, {}, tuple(given), against=["denotation"])
    finally:
        unregister_executor(op_type)
    assert report.verdict == "disagree"


def test_the_gradient_of_a_batch_norm_by_given_statistics_is_judged():
    call = "aten.native_batch_norm_backward.default(%g, %x, %var, %mean, %var, %empty, %empty,"
    ir = torch_ir.parse(f"""ir {{
      input %g: f32[4, 3]
      input %x: f32[4, 3]
      input %mean: f32[3]
      input %var: f32[3]
      input %empty: f32[0]
      %a: f32[4, 3], %b: f32[3], %c: f32[3] = node: {call} False, 1e-05, [True, True, True])
      return %a, %b, %c
    }}""")
    draws = torch.Generator().manual_seed(0)
    g, x, mean, var = (torch.rand(*s, generator=draws) for s in ([4, 3], [4, 3], [3], [3]))
    report = torch_ir.validate(ir, {}, (g, x, mean, var, torch.ones(0)))
    assert report.verdict == "agree", report
    assert torch_ir.decompose(ir).dialect == "core_aten"


@pytest.mark.parametrize("training", [True, False])
def test_statistics_that_a_node_of_any_program_writes_are_compared(training):
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    given = {"input": x, "weight": x[0], "bias": x[1], "running_mean": x[2].clone()}
    given["running_var"] = x[3].abs()
    arguments = {**given, "training": training, "momentum": 0.1, "eps": 0.1}
    op_type = "aten.native_batch_norm.default"
    copies = {name: torch.clone(value) for name, value in given.items()}
    ir, tensors = program_of(op_type, arguments, eager(op_type, {**arguments, **copies}))
    report = torch_ir.validate(ir, {}, tuple(tensors), against=["denotation"])
    assert report.verdict == "agree", str(report)
