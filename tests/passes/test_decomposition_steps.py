"""Equal steps and powers of integers: kernels cut off, torch's decompositions round."""

from __future__ import annotations

import pytest
import torch

import torch_ir

CALLS = [
    *(
        "linspace.default(start=-1.5, end=3.0, steps=3",
        "linspace.default(start=-4.3, end=24.9, steps=5",
    ),
    *("linspace.default(start=0, end=20, steps=8", "linspace.default(start=9, end=-5, steps=5"),
    *("linspace.default(start=2.7, end=9, steps=1", "linspace.default(start=2.7, end=9, steps=0"),
    *("logspace.default(start=-0.9, end=1.1, steps=1", "logspace.default(start=0, end=6, steps=4"),
]


@pytest.mark.parametrize("dtype", ["int32 i32", "int64 i64", "int8 i8", "float32 f32"])
@pytest.mark.parametrize("call", CALLS)
def test_steps_are_those_of_the_kernel(call, dtype):
    name, short = dtype.split()
    base = ", base=2.0" if "logspace" in call else ""
    steps = call.rpartition("=")[2]
    ir = torch_ir.parse(f"""ir {{
      %y: {short}[{steps}] = aten.{call}{base}, dtype=torch.{name})
      return %y
    }}""")
    (wanted,) = torch_ir.execute_ir(ir, (), weights={})
    (made,) = torch_ir.execute_ir(torch_ir.decompose(ir), (), weights={})
    torch.testing.assert_close(made, wanted)
