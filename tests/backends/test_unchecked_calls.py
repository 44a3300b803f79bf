"""Calls at which runtimes look less than torch does: they ended the process, or gave numbers."""

from importlib.util import find_spec

import pytest
import torch

import torch_ir
from torch_ir import parse
from torch_ir.errors import ExecutionError

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=("onnxruntime", "openvino", "executorch"))
def runtime(request):
    if find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return request.param


@pytest.mark.parametrize(
    "call",
    [
        "aten.expand_as.default(%a, %a)",
        "aten.broadcast_to.default(%a, size=[])",
        "aten.fill.Tensor(%a, %a)",
    ],
)
def test_a_number_beside_what_repeats_it(runtime, call):
    ir = parse(f"""ir {{
      input %x: f32[3]
      %a: f32[] = aten.sum.default(%x)
      %b: f32[] = {call}
      return %a, %b
    }}""")
    run = torch_ir.compile(ir, {}, backend=runtime)
    assert [float(made) for made in run(torch.ones(3))] == [3.0, 3.0]


@pytest.mark.parametrize("operator", ["narrow", "narrow_copy"])
def test_an_axis_that_counts_from_the_end(runtime, operator):
    ir = parse(f"""ir {{
      input %x: f32[2, 5, 3]
      %a: f32[2, 2, 3] = aten.{operator}.default(%x, dim=-2, start=-3, length=2)
      %b: f32[2, 2, 3] = aten.relu.default(%a)
      return %b
    }}""")
    x = torch.randn(2, 5, 3)
    run = torch_ir.compile(ir, {}, backend=runtime)
    assert torch.equal(run(x)[0], x[:, 2:4].relu())


@pytest.mark.parametrize("operator", ["floor_divide.default", "remainder.Tensor", "fmod.Tensor"])
@pytest.mark.parametrize("dtype", ["i8", "i64"])
def test_integers_divided_by_zero(runtime, operator, dtype):
    ir = parse(f"""ir {{
      input %x: {dtype}[3]
      input %y: {dtype}[3]
      %a: {dtype}[3] = aten.{operator}(%x, %y)
      return %a
    }}""")
    kind = torch.int8 if dtype == "i8" else torch.int64
    x, y = torch.tensor([7, -7, 5], dtype=kind), torch.tensor([2, 3, -2], dtype=kind)
    run = torch_ir.compile(ir, {}, backend=runtime)
    for divisor in (y, y + 10, -y):
        assert torch.equal(run(x, divisor)[0], torch_ir.compile(ir, {})(x, divisor)[0])
    with pytest.raises(ExecutionError, match="ZeroDivisionError"):
        run(x, y * 0)


CALLS = {
    "embedding": "aten.embedding.default(%x, %i)",
    "index_copy": "aten.index_copy.default(%x, dim=0, index=%i, source=%v)",
    "index_add": "aten.index_add.default(%x, dim=0, index=%i, source=%v)",
    "index_put": "aten.index_put.default(%x, [%i], %v)",
    "scatter_add": "aten.scatter_add.default(%x, dim=0, index=%i, src=%v)",
}


@pytest.mark.parametrize("operator", CALLS)
@pytest.mark.parametrize("place", [7, -7])
def test_places_that_there_are_not(runtime, operator, place):
    shape = [3, 4] if operator == "scatter_add" else [3]
    rows = 3 if operator == "embedding" else 5
    ir = parse(f"""ir {{
      input %x: f32[5, 4]
      input %i: i64{shape}
      input %v: f32[3, 4]
      %a: f32[{rows}, 4] = {CALLS[operator]}
      return %a
    }}""")
    run = torch_ir.compile(ir, {}, backend=runtime)
    x, v, i = torch.randn(5, 4), torch.randn(3, 4), torch.tensor([0, 4, 2])
    i = i.view(3, 1).expand(3, 4).clone() if operator == "scatter_add" else i
    torch.testing.assert_close(run(x, i, v), torch_ir.compile(ir, {})(x, i, v))
    i[1] = place
    with pytest.raises(ExecutionError, match=r"out of (bounds|range)"):
        run(x, i, v)


def test_inductor_is_not_given_kernels_that_trust_their_caller():
    ir = parse("""ir {
      input %g: f32[1, 1, 2, 2]
      input %x: f32[1, 1, 4, 4]
      input %i: i64[1, 1, 2, 2]
      input %t: f32[5]
      input %j: i64[3]
      %a: f32[1, 1, 4, 4] = aten.adaptive_max_pool2d_backward.default(%g, %x, %i)
      %b: f32[3] = aten._unsafe_index.Tensor(%t, [%j])
      return %a, %b
    }""")
    run = torch_ir.compile(ir, {}, backend="inductor")
    assert run.assignment.reasons["a"] == {
        "inductor": "its kernel trusts its caller, and inductor does not look"
    }
    given = torch.randn(1, 1, 2, 2), torch.randn(1, 1, 4, 4), torch.zeros(1, 1, 2, 2).long()
    table, places = torch.randn(5), torch.tensor([0, 4, 2])
    torch.testing.assert_close(run(*given, table, places)[1], table[places])
    for wrong in ((*given[:2], given[2] + 2**40, table, places), (*given, table, places + 2**40)):
        with pytest.raises(ExecutionError, match=r"out of bounds|outside|index"):
            run(*wrong)


LOOKING = {
    "gather": "aten.gather.default(%x, 0, %i)",
    "index_select": "aten.index_select.default(%x, 0, %i)",
    "index": "aten.index.Tensor(%x, [%i])",
    "scatter": "aten.scatter.value(%x, 0, %i, 2.0)",
    "scatter_add": "aten.scatter_add.default(%x, 0, %i, %x)",
}


@pytest.mark.parametrize("place", [-1, -5, 4, 10**12])
@pytest.mark.parametrize("call", LOOKING.values(), ids=LOOKING)
def test_a_place_that_torch_refuses_is_refused_in_later_calls(runtime, call, place):
    ir = parse(f"""ir {{
      input %x: f32[4]
      input %i: i64[2, 2]
      %j: i64[4] = aten.view.default(%i, [4])
      %y: f32[4] = {call.replace("%i", "%j")}
      %z: f32[4] = aten.relu.default(%y)
      return %z
    }}""")
    run = torch_ir.compile(ir, {}, backend=runtime)
    x, right = torch.arange(1.0, 5.0), torch.tensor([[0, 1], [2, 3]])
    for shift in range(4):
        run(x, (right + shift) % 4)
    wrong = right.clone()
    wrong[1, 0] = place
    if "aten.index.Tensor" in call and place == -1:  # which counts from the end
        assert torch.equal(*run(x, wrong), *torch_ir.compile(ir, {})(x, wrong))
        return
    with pytest.raises(ExecutionError, match=r"out of (bounds|range)"):
        run(x, wrong)
    assert torch.equal(*run(x, right), *torch_ir.compile(ir, {})(x, right)), "and taken again"
