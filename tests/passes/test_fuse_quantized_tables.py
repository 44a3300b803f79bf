"""Rows of quantized tables, and codes of 4 and 2 bits in bytes: the conformance case B9."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from passes.equal import assert_same
from passes.quantized import LEVELS, Calls, codes, every_level, fused, names, qd
from torch_ir import IRExecutor, compile_graph, extract_ir
from torch_ir.dialects.backend.binding import bindings
from torch_ir.dialects.backend.packing import pack, unpack
from torch_ir.errors import ExecutionError
from torch_ir.infer.resolve import resolve_operator
from torch_ir.ir import IR
from torch_ir.passes import fold_constants

INDICES = torch.tensor([[3, 0], [1, 3]])
SCALES = torch.tensor([0.5, 0.25, 0.1, 3.0])


def rows_of(source, *, padding=-1):
    """A model that takes rows of what the function makes of its buffers."""

    def model(indices, **buffers):
        return functional.embedding(indices, source(**buffers), max(padding, -1))

    return model


def by_row(dtype, offsets):
    low, high = (0, 255) if dtype == torch.uint8 else (-128, 127)

    def source(w, s, z=None):
        return qd.dequantize_per_channel(w, s, z, 0, low, high, dtype)

    zero_points = {} if offsets is None else {"z": torch.tensor([0, 3, -2, 100], dtype=offsets)}
    return source, {"w": codes(4, 6, dtype=dtype), "s": SCALES, **zero_points}


@pytest.mark.parametrize("padding", [-1, 3])
@pytest.mark.parametrize("offsets", [None, torch.int64, torch.int32, torch.float32])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_b9_rows_of_a_table_with_a_scale_for_each_are_embedding_byte(dtype, offsets, padding):
    source, buffers = by_row(dtype, offsets)
    model = rows_of(source, padding=padding)
    for level, _, after in every_level(model, (INDICES,), **buffers):
        assert names(after) == [*made_first(level, offsets), "embedding_byte"], level


def made_first(level, offsets):
    """The operator that makes zero points of the scales' type."""
    if offsets is None:
        return ["full"]
    cast = "_to_dim_order_copy" if level == "edge" else "_to_copy"
    return [] if offsets.is_floating_point else [cast]


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("offsets", [torch.int64, torch.int32, torch.int16, torch.int8])
def test_zero_points_have_the_type_that_kernels_of_the_target_ask_for(offsets, bits):
    """ExecuTorch's own operators refuse zero points of another type than the scales."""
    if bits == 8:
        source, buffers = by_row(torch.int8, offsets)
        if offsets == torch.int8:
            pytest.skip("dequantizing wraps around, and such tables are left")
    else:
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

        def source(w, s, z):
            if offsets == torch.int8:
                affine = torch.ops.torchao.dequantize_affine
                return affine(w, [1, 4], s, z, torch.int8, low, high, torch.float32)
            grouped = qd.dequantize_per_channel_group
            return grouped(w, s, z, low, high, torch.int8, 4, torch.float32)

        weight = torch.arange(low, low + 2**bits, dtype=torch.int8).repeat(2 ** (6 - bits))
        scales = torch.linspace(0.1, 2.0, 16).view(4, 4)
        zero_points = torch.arange(16).view(4, 4).remainder(high + 1).to(offsets)
        buffers = {"w": weight.view(4, 16), "s": scales, "z": zero_points}
    for level, _, after in every_level(rows_of(source), (INDICES,), **buffers):
        call = after.nodes[-1]
        assert call.tensor("weight_zero_points").dtype == "float32", level


@pytest.mark.parametrize("offsets", [None, torch.int32, torch.float32])
def test_b9_rows_of_a_table_with_a_scale_for_each_group_are_too(offsets):
    def source(w, s, z=None):
        return qd.dequantize_per_channel_group(w, s, z, -128, 127, torch.int8, 3, torch.float32)

    scales = torch.linspace(0.1, 2.0, 8).view(4, 2)
    zero_points = {} if offsets is None else {"z": torch.arange(8).view(4, 2).to(offsets)}
    buffers = {"w": codes(4, 6, dtype=torch.int8), "s": scales, **zero_points}
    for level, _, after in every_level(rows_of(source), (INDICES,), **buffers):
        assert names(after) == [*made_first(level, offsets), "embedding_byte"], level


AFFINE = {
    "rows": (16, (-128, 127), "embedding_byte"),
    "groups": (4, (-128, 127), "embedding_byte"),
    "4 bits": (8, (-8, 7), "embedding_4bit"),
    "4 bits by row": (16, (-8, 7), "embedding_4bit"),
    "2 bits": (4, (-2, 1), "embedding_2bit"),
    "3 bits": (8, (-4, 3), "embedding_byte"),
}


@pytest.mark.parametrize("offsets", [None, torch.int8])
@pytest.mark.parametrize("name", AFFINE)
def test_b9_tables_of_torchao_are_packed_where_their_codes_are_few(name, offsets):
    size, (low, high), expected = AFFINE[name]

    def source(w, s, z=None):
        return torch.ops.torchao.dequantize_affine(
            w, [1, size], s, z, torch.int8, low, high, torch.float32
        )

    generator = torch.Generator().manual_seed(0)
    weight = torch.randint(low, high + 1, (4, 16), dtype=torch.int8, generator=generator)
    scales = torch.rand(4, 16 // size, generator=generator)
    zero_points = {} if offsets is None else {"z": torch.full(scales.shape, low // 2).to(offsets)}
    buffers = {"w": weight, "s": scales, **zero_points}
    for level, _, after in every_level(rows_of(source), (INDICES,), **buffers):
        assert names(after)[-1] == expected, level
        assert len(after.nodes) <= 2 + (offsets is not None)


def with_constants(ir: IR, buffers) -> IR:
    """The program with its buffers as constants."""
    keys = {meta.name for meta in ir.weights}
    kept = {key: tensor for key, tensor in buffers.items() if key in keys}
    return ir.replace(weights=(), constants={**ir.constants, **kept})


def four_bits(weight, scales):
    def source(w, s):
        return torch.ops.torchao.dequantize_affine(w, [1, 4], s, None, torch.int8, -8, 7)

    return extract_ir(Calls(rows_of(source), w=weight, s=scales), (INDICES,))


def test_a_table_that_is_constant_is_packed_ahead():
    buffers = {"w": torch.arange(-8, 8, dtype=torch.int8).view(4, 4), "s": torch.ones(4, 1)}
    before = with_constants(four_bits(*buffers.values()), buffers)
    after = fold_constants(fused(before))
    assert names(after) == ["embedding_4bit"]
    assert sorted((c.dtype, c.shape) for c in after.constants.values()) == [
        ("float32", (4, 1)),
        ("uint8", (4, 2)),
    ]
    assert_same(before, after, {}, (INDICES,))


def test_a_code_that_does_not_fit_is_an_error_and_no_other_number():
    buffers = {"w": torch.full((4, 4), 8, dtype=torch.int8), "s": torch.ones(4, 1)}
    run = IRExecutor(fused(four_bits(*buffers.values())), buffers)
    with pytest.raises(ExecutionError) as caught:
        run(INDICES)
    assert "codes from 8 to 8 do not fit 4 bits, which hold -8 to 7" in str(caught.value)


def test_other_tables_are_left():
    def by_column(w, s, z):
        return qd.dequantize_per_channel(w, s, z, 1, -128, 127, torch.int8)

    def wide(w, s, z):
        made = qd.dequantize_per_channel(w, s, z, 0, -128, 127, torch.int8)
        return made + 1

    def wrapping(w, s, z):
        return qd.dequantize_per_channel(w, s, z, 0, -128, 127, torch.int8)

    weight = codes(4, 4, dtype=torch.int8)
    for source, zero_points in (
        (by_column, torch.zeros(4, dtype=torch.int64)),
        (wide, torch.zeros(4, dtype=torch.int64)),
        (wrapping, torch.full((4,), 100, dtype=torch.int8)),  # int8 - int8 wraps around
        (wrapping, torch.full((4,), 0.1, dtype=torch.float64)),
    ):
        buffers = {"w": weight, "s": SCALES, "z": zero_points}
        for _, before, after in every_level(rows_of(source), (INDICES,), **buffers):
            assert after is before


def test_a_table_that_something_else_uses_stays_beside_its_rows():
    source, buffers = by_row(torch.uint8, torch.int64)

    def model(indices, x, **kept):
        table = source(**kept)
        return functional.linear(functional.embedding(indices, table), table) + x

    for level, _, after in every_level(model, (INDICES, torch.ones(4)), LEVELS, **buffers):
        first = ["dequantize_per_channel", *made_first(level, torch.int64), "embedding_byte"]
        assert names(after)[:3] == first


# -- packing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [4, 2])
def test_b9_every_code_in_every_place_is_packed_and_unpacked(bits):
    least, count = -(2 ** (bits - 1)), 8 // bits
    values = torch.arange(least, -least, dtype=torch.int8)
    every = torch.cartesian_prod(*[values] * count)
    packed = pack(every, bits)
    assert packed.dtype == torch.uint8
    assert packed.shape == (2**8, 1)
    assert packed.unique().numel() == 2**8
    assert torch.equal(unpack(packed, bits), every)
    assert torch.equal(
        resolve_operator(f"quantized_decomposed.pack_{bits}bit.default")(every), packed
    )


def test_b9_the_layout_is_that_of_the_reference():
    assert pack(torch.tensor([[-8, 7], [1, -1]]), 4).tolist() == [[0x0F], [0x97]]
    assert pack(torch.tensor([[-2, -1, 0, 1]]), 2).tolist() == [[0b11100100]]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    bits=st.sampled_from([4, 2]),
    rows=st.integers(0, 4),
    columns=st.integers(0, 5),
    seed=st.integers(0, 9),
)
def test_b9_tables_of_any_shape_are_packed_and_unpacked(bits, rows, columns, seed):
    least, generator = -(2 ** (bits - 1)), torch.Generator().manual_seed(seed)
    shape = (rows, columns * 8 // bits)
    table = torch.randint(least, -least, shape, dtype=torch.int8, generator=generator)
    assert torch.equal(unpack(pack(table, bits), bits), table)


def test_b9_what_does_not_fill_bytes_or_fit_is_an_error():
    with pytest.raises(ExecutionError) as caught:
        pack(torch.zeros(2, 3), 4)
    assert str(caught.value) == (
        "3 columns of codes of 4 bits do not fill whole bytes\nPad them to a multiple of 2."
    )
    with pytest.raises(ExecutionError) as caught:
        pack(torch.tensor([[0, 2, 0, -2]]), 2)
    assert str(caught.value) == "codes from -2 to 2 do not fit 2 bits, which hold -2 to 1"
    parameter = torch.nn.Parameter(torch.tensor([[9, 9]]), requires_grad=False)
    with pytest.raises(ExecutionError):
        pack(parameter, 4)


@pytest.mark.parametrize("bits", [4, 2])
def test_b9_as_many_scales_as_rows_are_asked_for(bits):
    embedding = bindings()[f"quantized_decomposed.embedding_{bits}bit.default"].pattern
    packed = torch.zeros(2, 2, dtype=torch.uint8)
    with pytest.raises(ExecutionError) as caught:
        embedding(packed, torch.ones(3), None, -8, 7, torch.tensor([0]))
    assert str(caught.value) == (
        f"embedding_{bits}bit has 2 rows, scales of shape [3]\n"
        "Give one scale and zero point for each row, or for each group of a row."
    )
    with pytest.raises(ExecutionError, match=r"columns, which 3 groups do not divide"):
        embedding(packed, torch.ones(2, 3), None, -8, 7, torch.tensor([0]))


def test_b9_a_program_with_a_packed_table_runs_compiled():
    weight, scales = torch.arange(-8, 8, dtype=torch.int8).view(4, 4), torch.ones(4, 1)
    after = fused(four_bits(weight, scales))
    graph = compile_graph(after, {"w": weight, "s": scales})
    assert torch.equal(graph.eval((INDICES,))[0], weight.float()[INDICES])
