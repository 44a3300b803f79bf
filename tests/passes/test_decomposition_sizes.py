"""Sizes of decomposed programs: every size that the program takes is taken after it, too."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.export import Dim

from functions import Call
from older_torch import since_2_13
from torch_ir import IRExecutor, decompose, extract_ir, parse, to_edge
from torch_ir.debug.fuzzing.random_programs import random_program
from torch_ir.errors import Raised, attempt

CALLS = {
    "isin": lambda x: torch.isin(x, x[0]),
    "windows": lambda x: x.unfold(0, 2, 1),
    "windows of what is computed": lambda x: (x * 2).unfold(1, 2, 1).mean(-1),
    "nanmean": lambda x: torch.where(x > 0, x, float("nan")).nanmean(1),
    "nanquantile": lambda x: torch.nanquantile(x, 0.5, dim=1),
    "flatten": lambda x: x.T.reshape(-1).softmax(0),
    "norms": lambda x: nn.functional.normalize(nn.functional.layer_norm(x.unsqueeze(-1), (1,))),
    "differences": lambda x: torch.diff(x.cumsum(1), dim=0).std(1),
    "rows": lambda x: x[1:].addmm(x[1:], x.T @ x),
}


BEFORE_2_13 = since_2_13("cannot trace nanquantile of sizes that vary")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=BEFORE_2_13 if n == "nanquantile" else ()) for n in CALLS]
)
def test_sizes_that_a_program_takes_are_taken_after_it(name):
    model = Call(CALLS[name])
    ir = extract_ir(model, (torch.randn(4, 5),), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},))
    for done in (decompose(ir), to_edge(ir).ir()):
        for sizes in itertools.product((2, 3, 9), (2, 3, 9)):
            symbols = dict(zip(("s0", "s1"), sizes, strict=True))
            if not all(guard.evaluate(symbols) for guard in ir.guards):
                continue
            x = torch.randn(sizes)
            torch.testing.assert_close(IRExecutor(done, {})(x), model(x), equal_nan=True)


KERNELS = {
    "kron": (
        "  input %i: f32[3, 2]\n  %y: f32[3*s0, 4] = aten.kron.default(%x, %i)",
        "f32[s0, 2]",
        lambda x: (x, torch.arange(6.0).view(3, 2)),
    ),
    "take_along_dim": (
        "  input %i: i64[1, 3]\n  %y: f32[s0, 3] = aten.take_along_dim.default(%x, %i, dim=1)",
        "f32[s0, 2]",
        lambda x: (x, torch.tensor([[1, -2, 5]])),  # of which torch takes the remainders
    ),
    "take": (
        "  input %i: i64[]\n  %y: f32[] = aten.take.default(%x, %i)",
        "f32[s0, 2]",
        lambda x: (x, torch.tensor(-2)),
    ),
    "native_channel_shuffle": (
        "  %y: f32[s0, 4, s1] = aten.native_channel_shuffle.default(%x, groups=2)",
        "f32[s0, 4, s1]",
        lambda x: (x,),
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_that_torch_traces_for_one_size(name):
    call, kind, given = KERNELS[name]
    symbols = "".join([f"  symbol {s}: 2..\n" for s in ("s0", "s1") if s in kind])
    ir = parse(f'ir "P" {{\n{symbols}  input %x: {kind}\n{call}\n  return %y\n}}')
    done = decompose(ir)
    assert done.guards == ()
    for size in (2, 5, 7):
        x = torch.randn([{"s0": size, "s1": 3}.get(d) or int(d) for d in kind[4:-1].split(", ")])
        arguments = given(x)
        (made,), (wanted,) = IRExecutor(done, {})(*arguments), IRExecutor(ir, {})(*arguments)
        assert torch.equal(made, wanted)


def test_guards_of_random_programs_hold_for_every_size():
    looked_at = 0
    for seed in range(300):
        ir = random_program(seed, nodes=3, control_flow=False).ir
        done = attempt(decompose, ir)
        if not ir.symbols or isinstance(done, Raised):
            continue
        looked_at += 1
        for guard in done.guards:
            assert all(guard.evaluate({"s0": size}) for size in range(2, 65)), (seed, guard)
    assert looked_at > 20
