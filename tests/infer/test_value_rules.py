"""Kernels that end their process by what floating-point tensors hold are not called with it."""

from __future__ import annotations

import pytest
import torch

import torch_ir
from infer.trusting_calls import in_child, program_of
from torch_ir import IRExecutor, validate
from torch_ir.errors import ExecutionError
from torch_ir.infer.preconditions.table import require_arguments

NAN, INF = float("nan"), float("inf")
FAR = (NAN, INF, -INF, 3e38)


def sampling(mode: int, padding: int, value: float, *, align: bool = False, width: int = 4):
    grid = torch.zeros(1, 5, 5, 2)
    grid[0, 1, 2, 0] = value
    return {
        "grad_output": torch.ones(1, 1, 5, 5),
        "input": torch.ones(1, 1, 3, width),
        "grid": grid,
        "interpolation_mode": mode,
        "padding_mode": padding,
        "align_corners": align,
        "output_mask": [True, True],
    }


SAMPLED = "aten.grid_sampler_2d_backward.default"


@pytest.mark.parametrize("value", FAR)
@pytest.mark.parametrize("padding", [1, 2])
def test_a_place_that_is_no_number_is_refused_where_a_gradient_is_kept_inside(padding, value):
    call = sampling(0, padding, value)
    ir, given = program_of(SAMPLED, call, (call["input"], call["grid"]))
    run = IRExecutor(ir, {})
    with pytest.raises(ExecutionError, match=r"grid holds .*, which is no place in the plane"):
        run(*given)
    given[2] = torch.zeros(1, 5, 5, 2)
    run(*given)


@pytest.mark.parametrize("value", [*FAR, 1e30])
@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_what_is_let_through_ends_no_process(mode, padding, value):
    calls = [
        sampling(mode, padding, value, align=align, width=width)
        for align in (False, True)
        for width in (1, 4)
    ]

    def kernels() -> list[int]:
        made = 0
        for call in calls:
            try:
                require_arguments(SAMPLED, (), call)
            except ExecutionError:
                continue
            torch.ops.aten.grid_sampler_2d_backward(**call)
            made += 1
        return [made]

    (made,) = in_child(kernels)
    assert made == (0 if mode == 0 and padding and value != 1e30 else 4)


@pytest.mark.parametrize(
    "op_type", ["aten.linalg_eigvals.default", "aten._linalg_eigvals.default"]
)
@pytest.mark.parametrize("value", [NAN, INF])
def test_eigenvalues_of_what_is_not_finite_are_refused(op_type, value):
    matrix = torch.eye(3)
    ir, _ = program_of(op_type, {"self": matrix}, (torch.ones(3, dtype=torch.complex64),))
    run = IRExecutor(ir, {})
    run(matrix)
    with pytest.raises(ExecutionError, match="NaN or an infinity, and has to be finite"):
        run(matrix * value)


def test_a_judge_does_not_call_them_either():
    ir = torch_ir.parse("""ir {
      input %x: f32[3, 3]
      %y: c64[3] = aten.linalg_eigvals.default(%x)
      return %y
    }""")
    with pytest.raises(ExecutionError, match="self holds NaN"):
        validate(ir, {}, (torch.full((3, 3), NAN),), against=("eager",))


@pytest.mark.parametrize("name", ["grid_sampler", "grid_sampler_2d"])
def test_a_gradient_that_torch_calls_itself_is_not_reached(name):
    ir = torch_ir.parse(f"""ir {{
      input %x: f32[1, 1, 3, 4]
      input %g: f32[1, 5, 5, 2]
      %y: f32[1, 1, 5, 5] = aten.{name}.default(%x, %g, 0, 1, False)
      return %y
    }}""")
    plane, grid = torch.ones(1, 1, 3, 4, requires_grad=True), torch.zeros(1, 5, 5, 2)
    run = torch_ir.compile(ir, {}, grad=True)
    (made,) = run(plane, grid)
    made.sum().backward()
    grid[0, 1, 2, 0] = NAN
    with pytest.raises(ExecutionError, match="grid holds nan"):
        run(plane, grid)
    (without,) = torch_ir.compile(ir, {})(plane.detach(), grid)
    assert torch.equal(
        without,
        torch.nn.functional.grid_sample(
            plane.detach(), grid, padding_mode="border", align_corners=False
        ),
    )
