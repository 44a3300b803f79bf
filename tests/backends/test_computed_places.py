"""Places in tensors that a program computes itself are looked at as torch looks at them."""

from importlib.util import find_spec

import pytest
import torch

import torch_ir
from torch_ir import parse
from torch_ir.errors import ExecutionError

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=("onnxruntime", "openvino", "inductor"))
def runtime(request):
    if request.param != "inductor" and find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return request.param


CALLS = {
    "gather": "aten.gather.default(%t, dim=0, index=%j)",
    "index_select": "aten.index_select.default(%t, dim=0, index=%j)",
    "scatter": "aten.scatter.value(%t, dim=0, index=%j, value=2.0)",
    "index_copy": "aten.index_copy.default(%t, dim=0, index=%j, source=%x)",
    "index_add": "aten.index_add.default(%t, dim=0, index=%j, source=%x)",
    "index": "aten.index.Tensor(%t, [%j])",
}


def program(call, shift="aten.sub.Tensor(%k, %i)", size=4):
    symbol = "" if size == 4 else f"symbol {size}: 2..64\n"
    return parse(f"""ir {{
      {symbol}input %t: f32[{size}]
      input %x: f32[{size}]
      input %i: i64[{size}]
      input %k: i64[{size}]
      %j: i64[{size}] = {shift}
      %y: f32[{size}] = {call}
      %z: f32[{size}] = aten.relu.default(%y)
      return %z
    }}""")


def taken(run):
    return {name for verdict in run.verdicts if verdict.used for name in verdict.nodes}


@pytest.mark.parametrize("size", [4, "s0"])
@pytest.mark.parametrize("name", CALLS)
def test_a_computed_place_that_torch_refuses(runtime, name, size):
    ir = program(CALLS[name], size=size)
    run = torch_ir.compile(ir, {}, backend=runtime)
    assert "z" in taken(run), "torch runs what computes places alone"
    assert "j" not in taken(run)
    t, x, counted = torch.arange(1.0, 5.0), torch.ones(4), torch.arange(4)
    given = t, x, counted - torch.tensor([3, 0, 2, 1]), counted
    for _ in range(2):
        torch.testing.assert_close(run(*given), torch_ir.compile(ir, {})(*given))
        for place in (-5 if name == "index" else -1, 4, 10**12):
            with pytest.raises(ExecutionError, match=r"out of (bounds|range)"):
                run(t, x, counted - torch.tensor([3, 0, 2, place]), counted)


PROVEN = {
    "clipped": "aten.clamp.default(%i, min=0, max=3)",
    "counted": "aten.arange.start(0, 4, dtype=torch.int64)",
    "the rest": "aten.remainder.Scalar(%i, other=4)",
}


@pytest.mark.parametrize("kind", PROVEN)
def test_a_place_that_is_sure_to_be_one_is_not_cut_out(kind):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    ir = program(CALLS["gather"], PROVEN[kind])
    run = torch_ir.compile(ir, {}, backend="onnxruntime")
    assert {"j", "y", "z"} <= taken(run)
    t, k = torch.randn(4), torch.arange(4)
    for i in (k, k - 9, k * 70_000):
        torch.testing.assert_close(run(t, t, i, k), torch_ir.compile(ir, {})(t, t, i, k))
