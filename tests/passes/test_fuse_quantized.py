"""Quantized operators in the place of dequantize, operator, quantize: the conformance case B8."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from passes.equal import assert_same
from passes.quantized import (
    LEVELS,
    RANGES,
    Calls,
    codes,
    count,
    dq,
    every_level,
    fused,
    names,
    q,
    qd,
)
from torch_ir import IRExecutor, decompose, extract_ir
from torch_ir.serde import dumps, loads

BYTES = [torch.uint8, torch.int8]
A, B = torch.tensor([0, 3, 100, 255]), torch.tensor([3, 3, 50, 255])


def only(function, args, expected, **buffers):
    """Every level of a function becomes these operators."""
    for level, _, after in every_level(function, args, **buffers):
        assert names(after) == expected, level
    return after


# -- B8: the cases of the reference ---------------------------------------------------------------


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("dtype", BYTES)
def test_b8_a_sum_is_one_quantized_addition(dtype, relu):
    def add(a, b):
        made = dq(a, 0.1) + dq(b, 0.2)
        return q(torch.relu(made) if relu else made, 0.3, dtype=dtype)

    a, b = A.to(torch.uint8).view(dtype), B.to(torch.uint8).view(dtype)
    after = only(add, (a, b), ["add_relu" if relu else "add"])
    if dtype == torch.uint8:
        assert IRExecutor(after)(a, b).tolist() == [3 if relu else 2, 3, 67, 255]


@pytest.mark.parametrize("dtype", BYTES)
def test_b8_every_pair_of_codes_gives_the_code_of_the_unfused_program(dtype):
    low, high = RANGES[dtype]
    every = torch.arange(low, high + 1).to(dtype)

    def add(a, b):
        return q(dq(a, 0.1) + dq(b, 0.2), 0.3, dtype=dtype)

    only(add, (every[:, None], every[None, :]), ["add"])


def test_b8_two_sums_with_other_output_parameters_are_both_kept_right():
    def add(a, b):
        x, y = dq(a), dq(b, 0.2)
        return q(x + y, 0.3), q(x + y, 0.15, 60)

    after = only(add, (codes(7), codes(7, seed=1)), ["add", "add"])
    assert [n.attrs["out_scale"] for n in after.nodes] == [0.3, 0.15]
    assert [n.attrs["out_zero_point"] for n in after.nodes] == [3, 60]


def test_b8_a_tensor_plus_itself_is_fused():
    def add(a):
        x = dq(a)
        return q(x + x, 0.2)

    only(add, (codes(9),), ["add"])


@pytest.mark.parametrize(
    ("number", "first", "dtype"),
    [
        (2, True, torch.uint8),
        (0.6, False, torch.uint8),
        (-1.5, True, torch.int8),
        (float("inf"), False, torch.int8),
    ],
)
def test_b8_a_sum_with_a_number_is_fused_and_runs(number, first, dtype):
    def add(a):
        return q(number + dq(a) if first else dq(a) + number, 0.3, dtype=dtype)

    after = only(add, (codes(9, dtype=dtype),), ["add.scalar"])
    assert after.nodes[0].attrs["b"] == pytest.approx(number, 1e-7)
    assert not after.constants  # of which Edge made one


MOVES = [
    lambda x: x[:, 1:3],
    lambda x: x[1],
    lambda x: x.view(4, 6),
    lambda x: x.permute(2, 0, 1),
    lambda x: x.transpose(0, 2).reshape(4, 6),
    lambda x: x.unsqueeze(0).flatten(1),
    lambda x: x.expand(2, 2, 3, 4),
    lambda x: torch.cat([x, x], 1),
    lambda x: torch.stack([x, x[:, :, :4]]),
    lambda x: x.flip(0).repeat(1, 2, 1),
    lambda x: x[:, :, ::2].permute(1, 0, 2),
    lambda x: x.chunk(2, 2)[1],
    lambda x: functional.max_pool2d(x, 2, 1, 1),
    lambda x: functional.embedding(torch.arange(2), x[0]),
]


@pytest.mark.parametrize("number", range(len(MOVES)))
def test_b8_what_moves_elements_moves_codes_where_the_parameters_are_equal(number):
    move, dtype = MOVES[number], BYTES[number % 2]

    def moved(a):
        return q(move(dq(a)), dtype=dtype)

    given = codes(2, 3, 4, dtype=dtype)
    for level, before, after in every_level(moved, (given,), LEVELS):
        assert "dequantize_per_tensor" not in names(after), level
        assert "quantize_per_tensor" not in names(after), level
        kinds = {m.dtype for n in after.nodes for m in n.outputs} - {"int64"}
        assert kinds == {str(dtype).removeprefix("torch.")}
        made, expected = IRExecutor(after)(given), IRExecutor(before)(given)
        real = [i for i, size in enumerate(made.shape) if size > 1]
        assert [made.stride(i) for i in real] == [expected.stride(i) for i in real]


@pytest.mark.parametrize(
    "move", [lambda x: x[:2], lambda x: x.view(3, 2), lambda x: torch.cat([x, x])]
)
def test_b8_nothing_moves_where_the_parameters_differ(move):
    others = [{"scale": 0.2}, {"zero_point": 4}, {"dtype": torch.int8}, {"low": 1}, {"high": 9}]

    def moved(a):
        return [q(move(dq(a)), **out) for out in others]

    for _, before, after in every_level(moved, (codes(6),)):
        assert after is before


def test_b8_cat_is_fused_only_if_all_parameters_are_equal():
    def cat(a, b, scale):
        return q(torch.cat([dq(a), dq(b, scale)]))

    args = (codes(2, 3), codes(4, 3, seed=1))
    after = only(lambda a, b: cat(a, b, 0.1), args, ["cat"])
    assert after.nodes[0].outputs[0].dtype == "uint8"
    for _, before, after in every_level(lambda a, b: cat(a, b, 0.2), args):
        assert after is before


# -- other operators ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", BYTES)
def test_products_and_positive_parts_are_fused(dtype):
    def both(a, b):
        c = q(dq(a) * dq(b, 0.02, 9), 0.3, dtype=dtype)
        d = q(torch.relu(dq(c, 0.3) * dq(c, 0.3)), 0.5, dtype=dtype)
        return q(functional.relu(dq(d, 0.5)), 0.4, dtype=dtype)

    args = (codes(5, 3, dtype=dtype), codes(3, dtype=dtype, seed=1))
    only(both, args, ["mul", "mul_relu", "relu"])


def channels(rows, zero_points=torch.int64):
    scales = torch.linspace(0.01, 0.1, rows)
    offsets = (torch.arange(rows) % 5).to(zero_points)
    return scales, offsets


@pytest.mark.parametrize(("bias", "relu"), [(False, True), (True, False)])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 6)])
def test_linear_layers_are_fused(shape, per_channel, bias, relu):
    scales, zero_points = channels(5)

    def layer(x, w, sc, zp, b):
        if per_channel:
            weight = qd.dequantize_per_channel(w, sc, zp, 0, -127, 127, torch.int8)
        else:
            weight = dq(w, 0.05, 0, -127, 127)
        made = functional.linear(dq(x), weight, b if bias else None)
        return q(torch.relu(made) if relu else made, 0.3)

    weight = codes(5, 6, dtype=torch.int8)
    name = "linear_relu" if relu else "linear"
    name = f"{name}.per_channel" if per_channel else name
    for level, _, after in every_level(
        layer, (codes(*shape),), w=weight, sc=scales, zp=zero_points, b=torch.randn(5)
    ):
        moves = {"view", "_unsafe_view", "view_copy", "_clone_dim_order"}
        assert [n for n in names(after) if n not in moves] == [name], level


CONVOLUTIONS = {
    "conv1d": (functional.conv1d, (2, 4, 9), (6, 2, 3), {"stride": 2, "padding": 1, "groups": 2}),
    "conv2d": (functional.conv2d, (2, 4, 7, 6), (6, 4, 3, 3), {"padding": (1, 0), "dilation": 2}),
    "conv3d": (functional.conv3d, (1, 2, 4, 4, 4), (6, 2, 2, 2, 2), {}),
    "same": (functional.conv2d, (2, 4, 7, 6), (6, 4, 3, 5), {"padding": "same"}),
    "valid": (functional.conv2d, (2, 4, 7, 6), (6, 4, 3, 5), {"padding": "valid"}),
    "transposed": (
        functional.conv_transpose2d,
        (2, 4, 5, 5),
        (4, 6, 3, 3),
        {"stride": 2, "output_padding": 1},
    ),
}


@pytest.mark.parametrize(("dtype", "per_channel"), [(torch.uint8, True), (torch.int8, False)])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_fused(name, dtype, per_channel):
    function, shape, weights, options = CONVOLUTIONS[name]
    axis = 1 if name == "transposed" else 0
    scales, zero_points = channels(6)

    def layer(x, w, sc, zp, b):
        if per_channel:
            weight = qd.dequantize_per_channel(w, sc, zp, axis, -127, 127, torch.int8)
        else:
            weight = dq(w, 0.05, 0, -127, 127)
        return q(functional.relu(function(dq(x), weight, b, **options)), 0.3, dtype=dtype)

    made = only(
        layer,
        (codes(*shape, dtype=dtype),),
        ["conv_relu.per_channel" if per_channel else "conv_relu"],
        w=codes(*weights, dtype=torch.int8),
        sc=scales,
        zp=zero_points,
        b=torch.randn(6),
    )
    assert made.nodes[0].attrs["transposed"] is (name == "transposed")


def test_a_padding_that_differs_between_sides_is_left():
    def layer(x, w):
        return q(functional.conv1d(dq(x), dq(w), padding="same"), 0.3)

    model = Calls(layer)
    ir = extract_ir(model, (codes(1, 2, 8), codes(3, 2, 4, seed=1)))
    assert fused(ir) is ir


def test_what_stands_behind_an_operator_is_moved_behind_the_quantized_one():
    def layer(x, w):
        made = functional.linear(dq(x), dq(w, 0.05))
        return q(made.view(2, 3, 5).permute(0, 2, 1).relu(), 0.3)

    args = (codes(6, 4), codes(5, 4, seed=1))
    for level, _, after in every_level(layer, args):
        assert names(after)[0] == "linear_relu", level
        assert len(after.nodes) == (4 if level == "edge" else 3)  # what Edge gives away is a copy


def test_a_slice_that_is_viewed_after_quantizing_is_copied_first():
    def moved(a):
        b = q(dq(a)[:, :2])
        return q(dq(b).view(6) + 1.0, 0.2)

    for _, _, after in every_level(moved, (codes(3, 4),)):
        assert names(after)[-1] == "add.scalar"
        assert "clone" in " ".join(names(after))


# -- what must not be fused -----------------------------------------------------------------------


def left(function, args, **buffers):
    """The pass leaves a function's program as it is, at every level."""
    for level, before, after in every_level(function, args, **buffers):
        assert after is before, level


def test_an_intermediate_that_something_else_uses_or_returns_is_left():
    def used(a, b):
        made = dq(a) + dq(b)
        return q(made, 0.3), made.sum()

    def returned(a, b):
        made = dq(a) + dq(b)
        return q(made, 0.3), made

    def before_relu(a, b):
        made = dq(a) + dq(b)
        return q(torch.relu(made), 0.3), made * 2

    args = (codes(4), codes(4, seed=1))
    for function in (used, returned, before_relu):
        left(function, args)


def test_numbers_that_other_nodes_use_or_the_program_returns_stay_beside_the_codes():
    def shared(a, b):
        x, y = dq(a), dq(b, 0.2)
        return q(x + y, 0.3), q(x * y, 0.3), x.exp(), y

    for level, _, after in every_level(shared, (codes(4), codes(4, seed=1))):
        assert count(after) == {"add": 1, "mul": 1, "exp": 1, "dequantize_per_tensor": 2}, level


def test_codes_of_different_types_are_not_put_into_one_call():
    def mixed(a, b):
        return q(dq(a) + dq(b), 0.3)

    def changed(a):
        return q(dq(a) + 1.0, 0.3, dtype=torch.int8)

    left(mixed, (codes(4), codes(4, dtype=torch.int8)))
    left(mixed, (codes(4, dtype=torch.int8), codes(4)))
    left(changed, (codes(4),))
    left(lambda a: q(functional.relu(dq(a)), 0.3, dtype=torch.int8), (codes(4),))


def test_weights_may_have_another_type_than_what_they_are_multiplied_with():
    def layer(x, w):
        return q(functional.linear(dq(x), dq(w, 0.05, 0)), 0.3)

    only(layer, (codes(2, 4), codes(3, 4, dtype=torch.int8)), ["linear"])
    left(layer, (codes(2, 4, dtype=torch.int8), codes(3, 4, dtype=torch.int8)))


def test_other_numbers_and_scaled_sums_are_left():
    i16 = (-32768, 32767, torch.int16)
    left(lambda a, b: q(torch.add(dq(a), dq(b), alpha=2), 0.3), (codes(4), codes(4)))
    left(lambda a, b: q(dq(a) - dq(b), 0.3), (codes(4), codes(4)))
    left(lambda a, x: q(dq(a) + x, 0.3), (codes(4), torch.randn(4)))
    left(
        lambda a: qd.quantize_per_tensor(
            qd.dequantize_per_tensor(a, 0.1, 0, *i16) + 1.0, 0.2, 0, *i16
        ),
        (torch.arange(-4, 4, dtype=torch.int16),),
    )
    left(
        lambda a: q(
            qd.dequantize_per_tensor(a, 0.1, 0, 0, 255, torch.uint8, out_dtype=torch.float16)
            + 1.0,
            0.2,
        ),
        (codes(4),),
    )


def test_a_tensor_with_parameters_that_are_tensors_is_left():
    def given(a, scale, zero_point):
        x = qd.dequantize_per_tensor.tensor(a, scale, zero_point, 0, 255, torch.uint8)
        return q(x + 1.0, 0.3)

    left(given, (codes(4), torch.tensor(0.1), torch.tensor(3)))


def test_a_tensor_with_a_scale_for_each_channel_is_fused_as_weight_only():
    scales, zero_points = channels(4)

    def add(a, sc, zp):
        x = qd.dequantize_per_channel(a, sc, zp, 0, 0, 255, torch.uint8)
        return q(x + x, 0.3)

    left(add, (codes(4, 2),), sc=scales, zp=zero_points)


def test_codes_that_may_be_outside_of_the_range_are_clamped_still():
    def narrow(a):
        return q(dq(a, low=10, high=200).view(6), low=10, high=200)

    left(narrow, (codes(6, 1),))

    def inside(x):
        return q(dq(q(x, low=10, high=200), low=10, high=200).view(6), low=10, high=200)

    x = torch.linspace(-30, 30, 6).view(6, 1)
    for level, _, after in every_level(inside, (x,)):
        assert len(after.nodes) == (3 if level == "edge" else 2)  # Edge gives away a copy


def test_a_scale_with_which_a_code_is_not_given_back_is_left():
    left(lambda a: q(dq(a, 1e38).view(4), 1e38), (codes(2, 2),))
    left(lambda a: q(functional.max_pool2d(dq(a, -0.1), 2), -0.1), (codes(1, 4, 4),))


def test_a_window_that_may_lie_outside_is_left():
    left(lambda a: q(functional.max_pool2d(dq(a), 2, 1, 1, 2)), (codes(1, 1, 1),))


def test_results_stay_tensors_of_their_own():
    def twice(a):
        x = torch.cat([dq(a), dq(a)])
        return q(x), q(x), q(x.view(-1)), q(dq(a)), a

    for _, _, after in every_level(twice, (codes(2, 3),)):
        results = IRExecutor(after)(codes(2, 3))
        places = {tensor.untyped_storage().data_ptr() for tensor in results}
        assert len(places) == 5


def test_what_is_written_is_left():
    def written(a):
        x = dq(a)
        x.add_(1.0)
        return q(torch.relu(x), 0.2)

    def state(a, kept):
        made = q(dq(kept) + dq(a), 0.2)
        kept.copy_(made)
        return made

    for function, buffers in ((written, {}), (state, {"kept": codes(4)})):
        model = Calls(function, **buffers)
        ir = extract_ir(model, (codes(4, seed=1),))
        after = fused(ir)
        assert after is ir
        assert_same(ir, fused(decompose(ir)), model.state_dict(), (codes(4, seed=1),), calls=3)


def test_branches_are_fused_too():
    def branch(a):
        x = dq(a)
        return torch.cond(
            a.sum() > 9, lambda x: q(torch.relu(x) + x, 0.2), lambda x: q(x.clone(), 0.2), (x,)
        )

    def inner(a):
        return torch.cond(
            a.sum() > 9,
            lambda a: q(torch.relu(dq(a)), 0.2),
            lambda a: q(dq(a) + dq(a), 0.2),
            (a,),
        )

    ir = extract_ir(Calls(branch), (codes(4),))
    assert fused(ir) is ir
    ir = decompose(extract_ir(Calls(inner), (codes(4),)))
    after = fused(ir)
    found = sorted(names(body)[0] for body in after.functions.values())
    assert found == ["add", "relu"]
    assert loads(dumps(after)) == after
    for given_codes in (codes(4), torch.zeros(4, dtype=torch.uint8)):
        assert_same(ir, after, {}, (given_codes,))
