"""Places in tensors that a program computes itself are looked at as torch looks at them."""

from importlib.util import find_spec

import pytest
import torch

import torch_ir
from torch_ir import parse
from torch_ir.backends.backend_registry import find_backend
from torch_ir.errors import CompileError, ExecutionError

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


@pytest.mark.parametrize(
    "chosen",
    [
        "%j: i64[4], %p: i64[4] = sorted: aten.sort.default(%i)",
        "%j: i64[4], %p: i64[4] = best: aten.topk.default(%i, k=4)",
        "%j: i64[4] = aten.max.other(%i, %k)",
        "%h: i16[4] = aten._to_copy.default(%i, dtype=torch.int16)\n"
        "%s: i16[4] = aten.add.Tensor(%h, %h)\n"
        "%j: i64[4] = aten._to_copy.default(%s, dtype=torch.int64)",
    ],
)
def test_what_is_chosen_is_no_place(runtime, chosen):
    ir = parse(f"""ir {{
      input %t: f32[4]
      input %i: i64[4]
      input %k: i64[4]
      {chosen}
      %y: f32[4] = aten.gather.default(%t, dim=0, index=%j)
      %z: f32[4] = aten.relu.default(%y)
      return %z
    }}""")
    run, t, k = torch_ir.compile(ir, {}, backend=runtime), torch.arange(1.0, 5.0), torch.zeros(4)
    for _ in range(2):
        plain = torch_ir.compile(ir, {})
        given = t, torch.tensor([1, 0, 1, 0]), k.long()
        torch.testing.assert_close(run(*given), plain(*given))
        with pytest.raises(ExecutionError, match=r"out of (bounds|range)"):
            run(t, torch.tensor([1, 0, 7, 2]), k.long())


def test_an_unverified_subgraph_that_writes_to_computed_places_is_refused(runtime):
    backend = find_backend(runtime)
    with pytest.raises(CompileError, match="writes to places that it computes"):
        backend.compile(program(CALLS["scatter"]), {})
    assert backend.compile(program(CALLS["scatter"], PROVEN["clipped"]), {}) is not None
