"""Calls that released runtimes get wrong, each beside eager; needs torch and the runtime alone.

``python examples/runtime_divergences.py openvino`` prints what the runtime gives, what torch
gives, and why that is right. The exit status is how many of the calls still differ.
"""

from __future__ import annotations

import contextlib
import io
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.ao.quantization.fx._decomposed  # registers quantize and dequantize
from torch import Tensor, nn, tensor

aten, decomposed = torch.ops.aten, torch.ops.quantized_decomposed
NAN, INT8 = math.nan, torch.int8


class Call(NamedTuple):
    """A call that a runtime gets wrong: its name, the function, arguments, and why."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Tensor, ...]
    why: str


def ints(*values: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """A tensor of integers."""
    return tensor(values, dtype=dtype)


LOST = "a NaN among the operands makes the result NaN"
BETWEEN = "2**24 + 1 is an int32, but no float32"
SATURATED = "integers wrap around in torch, modulo 2**bits"
NARROW = "64-bit integers are taken as 32-bit ones"
DEFAULT = "correction=None means 1: the sum is divided by n - 1"
SIGMOID = "-log(1 + exp(200)) is -200 within 1e-80"
QUOTIENT = "0.1 as float32 is 0.1000000015, and 1 / 0.1000000015 < 10"
CALLS: dict[str, list[Call]] = {
    "openvino": [
        Call("relu", torch.relu, (tensor([NAN, -1.0, 2.0]),), LOST),
        Call("maximum", torch.maximum, (tensor([NAN, 1.0]), tensor([0.0, NAN])), LOST),
        Call("minimum", torch.minimum, (tensor([NAN, 1.0]), tensor([0.0, NAN])), LOST),
        Call("clamp", lambda x: torch.clamp(x, -1.0, 1.0), (tensor([NAN, 0.5]),), LOST),
        Call("amax", lambda x: torch.amax(x, 0), (tensor([NAN, 1.0, 2.0]),), LOST),
        Call("argmax", torch.argmax, (tensor([1.0, NAN, 2.0]),), "NaN is the greatest"),
        Call(
            "div.Tensor_mode",
            lambda x, y: torch.div(x, y, rounding_mode="floor"),
            (ints(-5, 5, -7), ints(3, -3, 2)),
            "-5 / 3 = -1.67, whose floor is -2",
        ),
        Call("add int8", torch.add, (ints(100, dtype=INT8), ints(100, dtype=INT8)), SATURATED),
        Call("mul int8", torch.mul, (ints(100, dtype=INT8), ints(3, dtype=INT8)), SATURATED),
        Call("add int64", lambda x: x + 1, (ints(2**53),), NARROW),
        Call("sum int64", torch.sum, (ints(2**53, 1),), NARROW),
        Call("pow int64", lambda x: torch.pow(x, 3), (ints(2**18 + 1),), NARROW),
        Call(
            "amax int32",
            lambda x: torch.amax(x, 0),
            (ints(2**24 + 1, 2**24, dtype=torch.int32),),
            BETWEEN,
        ),
        Call(
            "eq int32",
            torch.eq,
            (ints(2**24 + 1, dtype=torch.int32), ints(2**24, dtype=torch.int32)),
            BETWEEN,
        ),
        Call(
            "clamp int32",
            lambda x: torch.clamp(x, 0, 2**24 + 1),
            (ints(2**24 + 3, dtype=torch.int32),),
            BETWEEN,
        ),
        Call(
            "std.correction", lambda x: aten.std.correction(x, [0]), (tensor([1.0, 3]),), DEFAULT
        ),
        Call(
            "var_mean.correction",
            lambda x: aten.var_mean.correction(x, [0]),
            (tensor([1.0, 3.0]),),
            DEFAULT,
        ),
        Call("std", torch.std, (tensor([1.0, 3.0]),), DEFAULT),
        Call("clamp.Tensor", torch.clamp, (tensor([0.0]), tensor([NAN]), tensor([1.0])), LOST),
        Call("hardtanh", nn.functional.hardtanh, (tensor([NAN, -4.0]),), LOST),
        Call("any", torch.any, (tensor([NAN, 0.0]),), "NaN is not 0"),
        Call("bool", lambda x: x.bool(), (tensor([NAN, 0.0]),), "NaN is not 0"),
        Call(
            "topk",
            lambda x: torch.topk(x, 3)[0],
            (tensor([3.0, NAN, 2.0]),),
            "NaN is the greatest",
        ),
        Call(
            "attention, a row hidden",
            lambda q, mask: nn.functional.scaled_dot_product_attention(q, q, q, mask),
            (torch.ones(1, 1, 2, 2), tensor([[True, True], [False, False]])),
            "a row whose keys are all hidden is zero",
        ),
        Call(
            "embedding_bag, padding_idx",
            lambda table, i, begins: nn.functional.embedding_bag(
                i, table, begins, mode="sum", padding_idx=0
            ),
            (tensor([[10.0], [20.0]]), ints(0, 1), ints(0)),
            "rows of padding_idx are left out of the sum",
        ),
        Call("gcd", torch.gcd, (ints(12, -18), ints(18, 12)), "gcd is never negative"),
        Call(
            "kthvalue, keepdim",
            lambda x: torch.kthvalue(x, 2, 0, True)[0],
            (tensor([3.0, 1.0, 2.0]),),
            "keepdim=True keeps the dimension",
        ),
        Call("floor_divide", torch.floor_divide, (tensor([1.0]), tensor([0.1])), QUOTIENT),
        Call(
            "atan2",
            torch.atan2,
            (tensor([-0.0]), tensor([-1.0])),
            "below the cut the angle is -pi, and -0 is below",
        ),
        Call(
            "logaddexp",
            torch.logaddexp,
            (tensor([-math.inf]), tensor([-math.inf])),
            "log(0 + 0) is -inf",
        ),
        Call("log_sigmoid", nn.functional.logsigmoid, (tensor([-200.0, 1.0]),), SIGMOID),
        Call(
            "erfinv",
            torch.erfinv,
            (tensor([-0.999999]),),
            "erfinv in float64, of that float32, is -3.4571",
        ),
        Call(
            "clamp of integers",
            lambda x: torch.clamp(x, 0.5, 2.5),
            (ints(0, 2, 5),),
            "integers and floats give floats",
        ),
        Call(
            "cdist, p=1",
            lambda x, y: torch.cdist(x, y, 1.0),
            (tensor([[0.0, 3.0]]), tensor([[4.0, 0.0]])),
            "abs(0 - 4) + abs(3 - 0) = 7",
        ),
        Call(
            "avg_pool1d, ceil_mode",
            lambda x: nn.functional.avg_pool1d(x, 3, 2, 1, ceil_mode=True),
            (torch.ones(1, 1, 6),),
            "the last window has one element and one zero of the padding",
        ),
        Call(
            "addmm, beta=0",
            lambda x, y: torch.addmm(x, y, y, beta=0),
            (tensor([[NAN]]), tensor([[2.0]])),
            "with beta=0 the first operand is not read",
        ),
        Call("logical_not", torch.logical_not, (tensor([NAN, 0.0]),), "NaN is not 0"),
        Call("mean of nothing", torch.mean, (torch.zeros(0),), "0 / 0 is NaN"),
        Call(
            "half and back",
            lambda x: x.half().float(),
            (tensor([1e5, 1.0004]),),
            "the greatest float16 is 65504, and the next one to 1.0004 is 1",
        ),
        Call(
            "cumsum of bools",
            lambda x: torch.cumsum(x, 0),
            (tensor([True, True, False]),),
            "sums of bools and of small integers are int64",
        ),
        Call(
            "prod int32",
            torch.prod,
            (ints(65536, 65536, dtype=torch.int32),),
            "products of small integers are int64",
        ),
        Call(
            "dequantize_per_tensor",
            lambda x: decomposed.dequantize_per_tensor(x, 0.5, 3, -128, 127, INT8),
            (ints(1, 5, dtype=INT8),),
            "(1 - 3) * 0.5 = -1, in float32",
        ),
        Call(
            "quantize_per_tensor",
            lambda x: decomposed.quantize_per_tensor(x, 0.5, 3, -128, 127, INT8),
            (tensor([1.0, 5.0]),),
            "1 / 0.5 + 3 = 5, as an int8 code",
        ),
    ],
    "onnxruntime": [
        Call("amin", lambda x: torch.amin(x, 0), (tensor([1.0, NAN, 2.0]),), LOST),
        Call(
            "divide bool",
            lambda x: aten.divide.Scalar(x, 2),
            (tensor([True, False]),),
            "1 / 2 = 0.5",
        ),
        Call(
            "rad2deg float64",
            torch.rad2deg,
            (tensor([1.0], dtype=torch.float64),),
            "180 / pi = 57.29577951308232, in float64 to 16 digits",
        ),
        Call(
            "native_layer_norm float64",
            lambda x: aten.native_layer_norm(x, [3], None, None, 1e-5),
            (tensor([[1.0, 2.0, 4.0]], dtype=torch.float64),),
            "mean and rstd have the type of the input",
        ),
        Call(
            "atan2",
            torch.atan2,
            (tensor([0.0, 1.0]), tensor([-1.0, -1.0])),
            "the angle of the negative axis is pi",
        ),
        Call("log_sigmoid", nn.functional.logsigmoid, (tensor([-200.0, 1.0]),), SIGMOID),
        Call("floor_divide", torch.floor_divide, (tensor([1.0]), tensor([0.1])), QUOTIENT),
        Call("xlogy", torch.xlogy, (tensor([0.0]), tensor([NAN])), LOST),
    ],
    "executorch": [
        Call(
            "native_layer_norm float64",
            lambda x: aten.native_layer_norm(x, [3], None, None, 1e-5)[0],
            (tensor([[1.0, 2.0, 4.0]], dtype=torch.float64),),
            "float64 has 16 digits; these are of float32",
        ),
    ],
    "torch": [
        Call(
            "native_group_norm_backward",
            lambda grad: aten.native_group_norm_backward(
                *(grad, grad, torch.zeros(1, 1), torch.ones(1, 1), torch.ones(2)),
                *(1, 2, 2, 1, [True] * 3),
            )[2],
            (tensor([[[1.0, 10.0], [2.0, 20.0]]]).transpose(1, 2),),
            "the sum over each channel of [[1, 2], [10, 20]] is [3, 30]",
        ),
    ],
}


class Model(nn.Module):
    """One call as a module."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *arguments: Tensor) -> Any:
        """Call the function."""
        return self.function(*arguments)


def on_openvino(model: nn.Module, arguments: tuple[Tensor, ...]) -> Sequence[Tensor]:
    """Run a model on OpenVINO, in float32 where it is given so."""
    import openvino

    converted = openvino.convert_model(torch.export.export(model, arguments))
    compiled = openvino.compile_model(converted, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    made = compiled([argument.numpy() for argument in arguments])
    return [torch.from_numpy(made[i].copy()) for i in range(len(compiled.outputs))]


def on_onnxruntime(model: nn.Module, arguments: tuple[Tensor, ...]) -> Sequence[Tensor]:
    """Run a model on ONNX Runtime, by torch's exporter."""
    import onnxruntime

    with contextlib.redirect_stdout(io.StringIO()):
        program = torch.onnx.export(torch.export.export(model, arguments), dynamo=True)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    names = [given.name for given in session.get_inputs()]
    given = dict(zip(names, [argument.numpy() for argument in arguments], strict=True))
    return [torch.from_numpy(array) for array in session.run(None, given)]


def on_executorch(model: nn.Module, arguments: tuple[Tensor, ...]) -> Sequence[Tensor]:
    """Run a model on ExecuTorch's portable kernels."""
    from executorch.exir import EdgeCompileConfig, to_edge
    from executorch.runtime import Runtime

    config = EdgeCompileConfig(_check_ir_validity=False)
    program = to_edge(torch.export.export(model, arguments), compile_config=config)
    method = Runtime.get().load_program(program.to_executorch().buffer).load_method("forward")
    return list(method.execute(list(arguments)))


RUNTIMES = {
    "openvino": on_openvino,
    "onnxruntime": on_onnxruntime,
    "executorch": on_executorch,
}


def results(made: Any) -> list[Tensor]:
    """The results of a call, as a list."""
    return list(made) if isinstance(made, tuple | list) else [made]


def same(first: Tensor, second: Tensor) -> bool:
    """Whether two results agree: to the bit for integers, else in most of their digits."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if not first.is_floating_point():
        return torch.equal(first, second)
    near = {torch.float64: 1e-12, torch.float32: 1e-4}.get(first.dtype, 2e-2)
    return torch.allclose(first.double(), second.double(), near, 0.0, equal_nan=True)


def main(runtime: str) -> int:
    """Print every call that the runtime gets wrong, and return how many there are."""
    wrong = 0
    for call in CALLS[runtime]:
        plain = [argument.contiguous() for argument in call.arguments]
        expected = results(call.function(*plain))
        if runtime == "torch":  # its kernels differ from themselves on another layout
            made: Sequence[Tensor] = results(call.function(*call.arguments))
        else:
            made = RUNTIMES[runtime](Model(call.function).eval(), call.arguments)
        pairs = list(zip(made, expected, strict=True))
        off = next((pair for pair in pairs if not same(*pair)), None)
        wrong += off is not None
        shown = "as torch" if off is None else f"{off[0].tolist()} for {off[1].tolist()}"
        types = "" if off is None or off[0].dtype == off[1].dtype else f", {off[0].dtype}"
        print(f"{call.name}: {shown}{types} ({call.why})")
    return wrong


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    raise SystemExit(main(sys.argv[1]))
