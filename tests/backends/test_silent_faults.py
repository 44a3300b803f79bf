"""Runtimes are wrong at numbers that no common argument has; delegates are right."""

import math

import pytest
import torch

import torch_ir
from torch_ir import parse
from torch_ir.backends import SUPPORTED, NativeBackend

pytestmark = pytest.mark.filterwarnings("ignore")


class Faulty(NativeBackend):
    """A runtime that computes all by one function."""

    name = "faulty"
    version = "1"

    def __init__(self, function):
        self.function = function

    def supports(self, node, ir):
        return SUPPORTED

    def build(self, program, options):
        return lambda *given: [self.function(*given)]


NAN = math.nan
OF_CODES = "quantized_decomposed"
TRUTHS = (
    "b8[] = aten.any.default(%x)",
    "b8[] = aten.all.default(%x)",
    "b8[] = aten.any.dim(%x, dim=0)",
    "b8[3] = aten.to.dtype(%x, dtype=torch.bool)",
    "b8[3] = aten.logical_not.default(%x)",
    "b8[3] = aten.logical_and.default(%x, %y)",
    "b8[3] = aten.logical_xor.default(%x, %y)",
    "b8[3] = aten.gt.Tensor(%x, %y)",
    "b8[3] = aten.ge.Scalar(%x, other=0.5)",
)


@pytest.mark.parametrize("call", TRUTHS)
def test_no_number_is_true_and_not_greater_than_another_on_openvino(call):
    pytest.importorskip("openvino", reason="openvino is not installed")
    ir = parse(f"ir {{\n  input %x: f32[3]\n  input %y: f32[3]\n  %a: {call}\n  return %a\n}}")
    run = torch_ir.compile(ir, {}, backend="openvino")
    assert [verdict.used for verdict in run.verdicts] == [True]
    y = torch.tensor([1.0, 0.0, NAN])
    for x in (torch.tensor([NAN, 0.0, 2.0]), torch.tensor([NAN, 0.0, 0.0]), torch.full((3,), NAN)):
        torch.testing.assert_close(run(x, y), torch_ir.compile(ir, {})(x, y))


@pytest.mark.parametrize("zero_point", [-3, 127, 300, 1 << 24])
def test_zero_points_that_are_no_codes_are_as_in_torch(zero_point):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    codes = "quant_min=-128, quant_max=127, dtype=torch.int8"
    ir = parse(f"""ir {{
      input %x: i8[4]
      input %s: f32[1]
      input %z: i64[1]
      input %y: f32[4]
      %a: f32[4] = {OF_CODES}.dequantize_per_tensor.tensor(%x, %s, %z, {codes})
      %b: i8[4] = {OF_CODES}.quantize_per_tensor.tensor(%y, %s, %z, {codes})
      return %a, %b
    }}""")
    run = torch_ir.compile(ir, {}, backend="onnxruntime")
    given = (
        torch.tensor([-128, -1, 5, 127]).to(torch.int8),
        torch.tensor([0.5]),
        torch.tensor([zero_point]),
        torch.tensor([-200.0, 0.0, 3.0, 1e6]),
    )
    torch.testing.assert_close(run(*given), torch_ir.compile(ir, {})(*given))


@pytest.mark.parametrize(
    ("given", "made", "call", "fault"),
    [
        ("i64[1]", "f32[1]", "mul.Scalar(%x, other=0.5)", lambda x: x.clamp(-99, 99) * 0.5),
        ("i8[99]", "i64[]", "prod.default(%x)", lambda x: x.prod(dtype=torch.int8).long()),
    ],
)
def test_faults_at_a_far_number_and_at_products_without_zeros_are_found(given, made, call, fault):
    ir = parse(f"ir {{\n  input %x: {given}\n  %a: {made} = aten.{call}\n  return %a\n}}")
    run = torch_ir.compile(ir, {}, backend=Faulty(fault))
    assert [verdict.used for verdict in run.verdicts] == [False]


def test_factors_of_a_matrix_are_those_of_its_order_in_memory():
    ir = parse("""ir {
      input %x: f32[2, 3, 3]
      %d.0: f32[2], %d.1: f32[2, 3, 3], %d.2: i32[2, 3] = aten._linalg_det.default(%x)
      %y: f32[2] = aten.neg.default(%d.0)
      return %y, %d.1, %d.2
    }""")
    run = torch_ir.compile(ir, {}, backend="inductor")
    x = torch.tensor([[[1.0, 5.0, 2.0], [4.0, 1.0, 3.0], [9.0, 2.0, 2.0]]]).repeat(2, 1, 1)
    for given in (x, x.transpose(1, 2)):
        torch.testing.assert_close(run(given), torch_ir.compile(ir, {})(given))
    assert [verdict.nodes for verdict in run.verdicts if verdict.used] == [("y",)]
