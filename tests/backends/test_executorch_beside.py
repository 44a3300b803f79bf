"""ExecuTorch and quantized programs in one process, in both orders of import."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

SCRIPT = """
import sys

import torch

from torch_ir import IRExecutor, validate
from torch_ir.dialects.backend.schemas import BACKEND_SCHEMAS
from torch_ir.infer.resolve import resolve_operator
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ops.schema import parse_schema

NAMES = ("add", "mul", "relu", "linear", "conv", "add_relu", "embedding_byte")


def executorch():
    import executorch.exir.passes._quant_patterns_and_replacements


def meta(name, tensor):
    return TensorMeta(name, tuple(tensor.shape), str(tensor.dtype)[6:])


def program(name):
    from torch_ir.dialects.backend.quantized import example

    op_type, given = f"quantized_decomposed.{name}.default", example(f"{name}.default")
    made = resolve_operator(op_type)(*given)
    named = dict(zip([a.name for a in parse_schema(BACKEND_SCHEMAS[op_type]).arguments], given))
    tensors = {key: value for key, value in named.items() if isinstance(value, torch.Tensor)}
    attrs = {key: value for key, value in named.items() if key not in tensors}
    metas = [meta(*item) for item in tensors.items()]
    y = meta("y", made).replace(producer_node="y")
    node = OpNode("y", op_type, metas, [y], attrs, {key: i for i, key in enumerate(tensors)})
    schemas = {op_type: BACKEND_SCHEMAS[op_type]}
    ir = IR([node], metas, [y], [], operators=schemas, dialect="backend")
    return ir, tuple(tensors.values())


if sys.argv[1] == "first":
    executorch()
made = [(IRExecutor(ir, {}), ir, given) for ir, given in map(program, NAMES)]
before = [run.execute(given)[0] for run, _, given in made]
if sys.argv[1] == "second":
    executorch()
for (run, ir, given), expected in zip(made, before):
    assert torch.equal(expected, run.execute(given)[0])
    assert torch.equal(expected, IRExecutor(ir, {}).execute(given)[0])
    report = validate(ir, {}, given)
    assert report.verdict != "disagree", str(report)
print("fine")
"""


@pytest.mark.skipif(find_spec("executorch") is None, reason="executorch is not installed")
@pytest.mark.parametrize("order", ["first", "second"])
def test_quantized_operators_run_in_either_order(order):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, order],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("fine\n"), done.stderr[-3000:]


EDGE = """
import sys

import torch

import torch_ir


class Volume(torch.nn.Module):
    def forward(self, x):
        return x.to(memory_format=torch.channels_last_3d) * 2


if sys.argv[1] == "first":
    import executorch.exir
x = torch.randn(2, 3, 2, 4, 4)
edge = torch_ir.to_edge(torch_ir.extract_ir(Volume(), (x,)))
made = torch_ir.IRExecutor(edge.ir(), {})(x)
import executorch.exir
again = torch_ir.IRExecutor(edge.ir(), {})(x)
for y in (made, again):
    assert torch.equal(y, x * 2)
    assert y.is_contiguous(memory_format=torch.channels_last_3d)
print("fine")
"""


@pytest.mark.skipif(find_spec("executorch") is None, reason="executorch is not installed")
@pytest.mark.parametrize("order", ["first", "second"])
def test_orders_of_dimensions_that_executorch_does_not_have(order):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", EDGE, order],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("fine\n"), done.stderr[-3000:]
