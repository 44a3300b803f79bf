"""Programs that dequantize, work and quantize, written out as quantizers write them."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from importlib.util import find_spec

import torch
import torch.ao.quantization.fx._decomposed  # registers quantize and dequantize
from torch import nn

from passes.equal import assert_same
from torch_ir import IR, decompose, extract_ir, functionalize, to_edge
from torch_ir.dialects import verify
from torch_ir.passes import FuseQuantized, run_passes

qd = torch.ops.quantized_decomposed

if find_spec("torchao") is not None:
    import_module("torchao.quantization.quant_primitives")  # defines it, and fails if others have
elif not hasattr(torch.ops.torchao, "dequantize_affine"):  # pytest may import this file twice
    LIBRARY = torch.library.Library("torchao", "FRAGMENT")
    LIBRARY.define(
        "dequantize_affine(Tensor input, SymInt[] block_size, Tensor scale, Tensor? zero_point, "
        "ScalarType input_dtype, Scalar? quant_min=None, Scalar? quant_max=None, "
        "ScalarType output_dtype=6) -> Tensor"
    )

    @torch.library.impl(LIBRARY, "dequantize_affine", "CompositeExplicitAutograd")
    def dequantize_affine(
        codes, block, scale, offset, dtype, low=None, high=None, out=torch.float32
    ):
        """As torchao does it, for blocks of a row."""
        grouped = codes.view(codes.shape[0], -1, block[1]).to(out, copy=True)
        if offset is not None:
            grouped = grouped - offset.view(codes.shape[0], -1, 1).to(out)
        return (grouped * scale.view(codes.shape[0], -1, 1)).view(codes.shape).to(out)


RANGES = {torch.uint8: (0, 255), torch.int8: (-128, 127)}
LEVELS = {
    "export": lambda ir: ir,
    "aten": functionalize,
    "core_aten": decompose,
    "edge": lambda ir: to_edge(ir).ir(),
}


def dq(codes, scale=0.1, zero_point=3, low=None, high=None):
    bounds = RANGES[codes.dtype]
    low, high = bounds[0] if low is None else low, bounds[1] if high is None else high
    return qd.dequantize_per_tensor(codes, scale, zero_point, low, high, codes.dtype)


def q(numbers, scale=0.1, zero_point=3, dtype=torch.uint8, low=None, high=None):
    bounds = RANGES[dtype]
    low, high = bounds[0] if low is None else low, bounds[1] if high is None else high
    return qd.quantize_per_tensor(numbers, scale, zero_point, low, high, dtype)


class Calls(nn.Module):
    def __init__(self, function, **buffers):
        super().__init__()
        self.function = function
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, *args):
        return self.function(*args, **dict(self.named_buffers()))


def codes(*shape, dtype=torch.uint8, seed=0):
    low, high = RANGES[dtype]
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high + 1, shape, dtype=dtype, generator=generator)


def fused(ir: IR) -> IR:
    """The program after the pass; it keeps every rule that the program before it kept."""
    result = run_passes(ir, [FuseQuantized()])
    assert result.modified == (result.ir is not ir)
    assert result.ir.check() == ()
    dialect = "backend" if ir.dialect == "edge" else ir.dialect
    assert broken_rules(result.ir, dialect) <= broken_rules(ir, dialect)
    return result.ir


def broken_rules(ir: IR, dialect: str) -> set[tuple[str, str]]:
    """What is wrong with a program; nothing in Edge, views in what export gives."""
    return {(violation.code, violation.op_type) for violation in verify(ir, dialect)}


def every_level(function, args, levels=("export", "edge"), **buffers):
    """The program of a function before and after the pass at some levels, run and compared."""
    model = Calls(function, **buffers)
    made = extract_ir(model, args)
    for level in levels:
        before = LEVELS[level](made)
        after = fused(before)
        assert_same(before, after, model.state_dict(), args)
        yield level, before, after


def names(ir: IR) -> list[str]:
    """The operators of a program, without libraries and default overloads."""
    found = [node.op_type.partition(".")[2].removesuffix(".default") for node in ir.nodes]
    return [name for name in found if name != "_assert_tensor_metadata"]


def count(ir: IR) -> Counter[str]:
    return Counter(names(ir))
