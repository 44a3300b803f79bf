"""Arguments in other spellings; numbers for names, which torch looks up unchecked, are refused."""

import pytest
import torch

import torch_ir
from torch_ir.errors import CompileError
from torch_ir.executor import execute_ir
from torch_ir.ops.schema import known_operators, lookup
from torch_ir.passes import decompose

PROGRAM = """ir {{
  input %x: f32[2, 4]
  %y: f32[2, 4] = aten.{}
  return %y
}}"""
CALLS = {
    "softmax.int(%x, dim=-1, dtype=-1)": "'dtype' of aten.softmax.int: -1 is no DType",
    "to.dtype(%x, dtype=99)": "'dtype' of aten.to.dtype: 99 is no DType",
    "clone.default(%x, memory_format=77)": (
        "'memory_format' of aten.clone.default: 77 is no MemoryFormat"
    ),
    "empty_like.default(%x, layout=-5)": "'layout' of aten.empty_like.default: -5 is no Layout",
    "empty_like.default(%x, layout=torch.float32)": (
        "'layout' of aten.empty_like.default: DType(name='float32') is no Layout"
    ),
    "empty_like.default(%x, device=-1)": "'device' of aten.empty_like.default: -1 is no Device",
}
OTHER_SPELLINGS = (
    'to.dtype(%x, dtype="float32")',
    'softmax.int(%x, dim=-1, dtype="torch.float32")',
    'clone.default(%x, memory_format="contiguous_format")',
    'zeros.default(size=[2, 4], dtype="float32", layout="strided", device="cpu")',
    "roll.default(%x, shifts=1, dims=1)",
    "reflection_pad1d.default(%x, padding=0)",
    "native_dropout_backward.default(%x, %m, scale=2)",
)


@pytest.mark.parametrize("call", CALLS)
def test_a_number_is_refused(call):
    ir = torch_ir.parse(PROGRAM.format(call))
    for run in (lambda: execute_ir(ir, (torch.ones(2, 4),), {}), lambda: torch_ir.compile(ir, {})):
        with pytest.raises(CompileError) as caught:
            run()
        assert caught.value.message == f"node 'y': argument {CALLS[call]}. Give a name of torch's."


@pytest.mark.parametrize("call", OTHER_SPELLINGS)
def test_every_reader_takes_other_spellings(call):
    ir = torch_ir.parse(
        PROGRAM.format(call).replace("%y:", "%m: bool[2, 4] = aten.lt.Scalar(%x, 1)\n  %y:")
    )
    given = (torch.arange(8.0).reshape(2, 4),)
    report = torch_ir.validate(ir, {}, given)
    assert report.is_valid
    assert report.compared == {"denotation": 2, "eager": 2}
    lowered = torch_ir.compile(decompose(ir), {})
    assert torch.equal(lowered(*given)[0], torch_ir.compile(ir, {})(*given)[0])


def test_no_operator_takes_a_list_of_names():
    found = {
        argument.type.removesuffix("?")
        for name in known_operators()
        if (schema := lookup(name)) is not None
        for argument in schema.arguments
        if any(kind in argument.type for kind in ("ScalarType", "Layout", "MemoryFormat"))
    }
    assert found == {"ScalarType", "Layout", "MemoryFormat"}
