"""Integers of every size: tried before a runtime is used, and calls that it declines."""

import itertools

import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import torch_ir
from torch_ir import extract_ir
from torch_ir.backends import SUPPORTED, NativeBackend
from torch_ir.backends.native.building import DeclinedError


class Runtime(NativeBackend):
    """Torch, with a fault in each delegate of one operator alone."""

    name, version = "faulty", "1"

    def __init__(self, operator, fault):
        self.operator, self.fault = operator, fault

    def supports(self, node, ir):
        return SUPPORTED

    def build(self, program, options):
        run = program.module()
        targets = {str(node.target) for node in program.graph.nodes}
        return self.fault(run) if self.operator in targets else run


class Difference(nn.Module):
    def forward(self, x):
        return x - 3, x.float().sin()


@pytest.mark.parametrize(
    ("dtype", "wider"), [(torch.int32, torch.float32), (torch.int64, torch.float64)], ids=str
)
def test_integers_that_floats_do_not_hold_are_tried(dtype, wider):
    def fault(run):
        return lambda *given: [run(*given)[0].to(wider).to(dtype), *run(*given)[1:]]

    ir = extract_ir(Difference(), (torch.arange(40).to(dtype),))
    run = torch_ir.compile(ir, {}, backend=Runtime("aten.sub.Tensor", fault))
    assert "sub" in {verdict.delegate for verdict in run.verdicts if not verdict.used}
    x = torch.arange(40).to(dtype) + torch.iinfo(dtype).max // 3
    assert torch.equal(run(x)[0], x - 3)


class Next(nn.Module):
    def forward(self, x):
        return x + 1


def test_torch_runs_the_calls_that_a_runtime_declines_and_no_other():
    calls = []

    def fault(run):
        def call(x):
            calls.append(x)
            if x.max() > 9:
                raise DeclinedError("too large")
            return run(x)

        return call

    ir = extract_ir(Next(), (torch.arange(4),))
    run = torch_ir.compile(ir, {}, backend=Runtime("aten.add.Tensor", fault))
    for x in (torch.arange(4), torch.arange(20, 24), torch.arange(4)):
        calls.clear()
        assert torch.equal(run(x), x + 1)
        assert len(calls) == 1
    assert run.assignment.left == ()


class Full(TorchDispatchMode):
    """Ends where a value is empty, as ExecuTorch ends the process."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        tensors = [item for item in tree_leaves((args, made)) if isinstance(item, torch.Tensor)]
        assert all(tensor.numel() for tensor in tensors)
        return made


class Ending(NativeBackend):
    """A runtime that has no kernels for empty tensors, and says so where nobody hears it."""

    name, version = "ending", "1"

    def __init__(self):
        self.ends = 0

    def supports(self, node, ir):
        return SUPPORTED

    def build(self, program, options):
        run = program.module()

        def call(*given):
            try:
                with Full():
                    return run(*given)
            except AssertionError:
                self.ends += 1
                raise

        return call


def selected(x, _):
    found = x[x > 0.5]
    return found.mean(), (found * 2).tanh()


EMPTY = {
    "a mean": (lambda x, y: (x.mean(), x.sum(0)), Dim("n", min=0, max=8)),
    "two sizes": (lambda x, y: (torch.cat([x, y]).tanh(), y.mean()), Dim("n", min=0, max=8)),
    "of data": (selected, Dim("n", min=0, max=8)),
}


@pytest.mark.parametrize("case", EMPTY)
def test_no_runtime_is_given_what_is_empty(case):
    function, size = EMPTY[case]

    class Model(nn.Module):
        def forward(self, x, y):
            return function(x, y)

    shapes = {"x": {0: size}, "y": {0: Dim("m", min=0, max=8)}}
    ir = extract_ir(Model(), (torch.ones(4, 3), torch.ones(5, 3)), dynamic_shapes=shapes)
    runtime = Ending()
    run = torch_ir.compile(ir, {}, backend=runtime)
    generator = torch.Generator().manual_seed(0)
    for rows, others in itertools.product((4, 1, 0, 8, 2), (3, 0)):
        if rows >= size.min:
            x = torch.randn(rows, 3, generator=generator)
            y = torch.randn(others, 3, generator=generator)
            torch.testing.assert_close(run(x, y), Model()(x, y), equal_nan=True)
    assert all(verdict.used for verdict in run.verdicts)
    assert run.assignment.takers
    assert not runtime.ends


def test_no_runtime_makes_what_is_empty():
    ir = torch_ir.parse("""ir {
      symbol s0: 1..8
      input %x: f32[s0, 3]
      %a: f32[s0 - 1, 3] = aten.slice.Tensor(%x, dim=0, start=1)
      %b: f32[3] = aten.mean.dim(%a, dim=[0])
      return %b
    }""")
    runtime = Ending()
    run = torch_ir.compile(ir, {}, backend=runtime)
    for rows in (4, 1, 2, 8, 1):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(run(x)[0], x[1:].mean(0), equal_nan=True)
    assert run.assignment.left == ()
    assert not runtime.ends
