"""Rules that hold for their example alone never change what a program computes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from torch_ir import IRExecutor, extract_ir
from torch_ir.errors import PassError
from torch_ir.passes import run_passes
from torch_ir.passes.patterns import Rewrite, RewritePatterns, near_misses

COUNT = torch.arange(6.0).reshape(2, 3)
WHOLE = torch.arange(6).reshape(2, 3)
RANDOM = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
N = {"n": 2}

RULES = {
    "floor": (lambda x, *, n: x // n, lambda x, *, n: torch.div(x, n, rounding_mode="trunc")),
    "remainder": (lambda x, *, n: x % n, lambda x, *, n: torch.fmod(x, n)),
    "conjugate": (lambda x, *, n: torch.conj_physical(x) * n, lambda x, *, n: x * n),
    "mean": (lambda x, *, n: x.sum(0) / n, lambda x, *, n: x.mean(0)),
    "sum": (lambda x, *, n: x.sum(0) * n, lambda x, *, n: (x[0] + x[1]) * n),
    "above": (lambda x, *, n: (x * n).clamp(min=-(2**40)), lambda x, *, n: x * n),
    "wrap": (lambda x, *, n: (x + 100) - n, lambda x, *, n: x + (100 - n)),
    "square": (lambda x, *, n: x * x + n, lambda x, *, n: x.abs() * x.abs() + n),
    "shift": (lambda x, *, n: (x - n) + n, lambda x, *, n: x * 1),
    "twice": (lambda x, *, n: (x * n) * 2, lambda x, *, n: x * (2 * n)),
    "sign": (lambda x, *, n: (x.sign() * x.abs()) + n, lambda x, *, n: x + n),
    "roll": (lambda x, *, n: x.roll(n, 0).roll(n, 0), lambda x, *, n: x.roll(2 * n, 0)),
    "part": (lambda x, *, n: x[:2] * n, lambda x, *, n: x * n),
    "flat": (lambda x, *, n: x.flatten(0).sum() + n, lambda x, *, n: x.sum() + n),
    "order": (lambda x, *, n: torch.sub(x, x, alpha=n), lambda x, *, n: x - n * x),
}


def accepted():
    """Every rule with every example that it is accepted with."""
    found = {}
    for name, (pattern, replacement) in RULES.items():
        for example in (COUNT, WHOLE, RANDOM):
            try:
                rule = Rewrite(pattern, replacement, (example,), attributes=N)
            except PassError:
                continue
            found.setdefault(name, []).append(rule)
    return found


ACCEPTED = accepted()


def numbers(shape, dtype, seed):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 40
    if dtype.is_complex:
        return torch.complex(values, values.flip(-1))
    return values.abs().to(dtype) if dtype == torch.uint8 else values.to(dtype)


def same(first, second):
    bits = [torch.view_as_real(t) if t.is_complex() else t for t in (first, second)]
    return first.dtype == second.dtype and torch.equal(
        *[torch.nan_to_num(t, nan=7.0) if t.is_floating_point() else t for t in bits]
    )


class Place(nn.Module):
    def __init__(self, pattern, n):
        super().__init__()
        self.pattern, self.n = pattern, n

    def forward(self, x):
        return self.pattern(x, n=self.n)


@settings(derandomize=True, max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(ACCEPTED)),
    st.sampled_from(("float32", "float64", "bfloat16", "int32", "int64", "uint8", "complex64")),
    st.sampled_from(((2, 3), (2,), (4, 3), (1, 5), (3, 1, 2), (1200, 900))),
    st.sampled_from((2, 3, -2, 1, 100, 1.5)),
    st.integers(0, 3),
)
def test_a_place_of_other_types_sizes_and_numbers_keeps_its_values(name, dtype, shape, n, seed):
    x = numbers(shape, getattr(torch, dtype), seed)
    place = Place(RULES[name][0], n)
    try:
        expected = place(x)
    except RuntimeError:
        return
    ir = extract_ir(place, (x,))
    try:
        made = run_passes(ir, [RewritePatterns(tuple(ACCEPTED[name]))]).ir
    except PassError:  # the replacement gives another type
        return
    assert same(IRExecutor(made, {})(x), expected), made


def test_a_rule_of_positive_numbers_says_so():
    rule = (lambda x: x.abs(), lambda x: x * 1, (torch.ones(2, 3),))
    with pytest.raises(PassError, match="does not compute what the pattern does"):
        Rewrite(*rule)
    assert Rewrite(*rule, positive=("x",))


def test_a_result_whose_layout_is_read_is_left():
    class Read(nn.Module):
        def forward(self, x):
            return (x * 2).permute(1, 0).contiguous().permute(1, 0).as_strided((2, 2), (1, 2))

    rule = Rewrite(
        lambda x: x.permute(1, 0).contiguous().permute(1, 0), lambda x: x.contiguous(), (RANDOM,)
    )
    ir = extract_ir(Read(), (torch.randn(3, 4),))
    assert not run_passes(ir, [RewritePatterns((rule,))]).modified
    reasons = [miss.reason for miss in near_misses(ir, [rule])]
    assert "'as_strided' reads how a result lies in memory" in reasons
