"""Whether elements of strided tensors lie apart, counted one by one."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from torch_ir.infer.storage import elements_are_apart
from torch_ir.ir import SymExpr

DIMS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([0, 1, 2, 3, 4, 6, 8, 12, 24])), max_size=4
)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(DIMS)
def test_numbers_say_exactly_what_counting_says(dims):
    sizes, strides = [size for size, _ in dims], [stride for _, stride in dims]
    places = [
        sum(i * stride for i, stride in zip(index, strides, strict=True))
        for index in itertools.product(*map(range, sizes))
    ]
    assert elements_are_apart(sizes, strides) == (len({*places}) == len(places))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.permutations(range(4)))
def test_symbols_in_any_order_of_dimensions(order):
    sizes = [SymExpr(f"s{i}") for i in range(4)]
    strides = [1, SymExpr("s0"), SymExpr("s0*s1"), SymExpr("s0*s1*s2")]
    assert elements_are_apart([sizes[i] for i in order], [strides[i] for i in order])
    assert not elements_are_apart([sizes[i] for i in order], [strides[i] for i in order[::-1]])


def test_shapes_of_strangers_cost_nothing():
    """Each of these would take hours or gigabytes to count, or to look at in every order."""
    symbols = [SymExpr(f"s{i}") for i in range(40)]
    assert not elements_are_apart([10**6] * 8, [1] * 8)
    assert not elements_are_apart([2] * 40, [2**i - (i == 39) for i in range(40)])
    assert not elements_are_apart(symbols, symbols)
