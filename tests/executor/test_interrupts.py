"""Calls that are interrupted: no half of their writes is ever read, and the thread goes on."""

import pytest
import torch
from torch import nn

import torch_ir
from interrupts import from_another_thread, interrupted_everywhere
from torch_ir.errors import ExecutionError
from whole_way import same


class Several(nn.Module):
    """Writes three buffers, in place, and reads what it wrote."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(4, 3))
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, place):
        self.rows.index_copy_(0, place, x)
        self.total.add_(x.sum(0))
        self.calls.add_(1)
        return self.rows.sum(0) + self.total * self.calls


ARGS = (torch.randn(2, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([1, 3]))


def executors():
    exported = torch.export.export(Several().eval(), ARGS)
    programs = {"in place": exported, "functional": exported.run_decompositions({})}
    return [
        pytest.param(program, grad, id=f"{kind}{', recorded' * grad}")
        for kind, program in programs.items()
        for grad in (False, True)
    ]


@pytest.mark.parametrize(("program", "grad"), executors())
def test_a_call_that_is_interrupted_is_whole_or_asks_for_a_reset(program, grad):
    run = torch_ir.compile(torch_ir.extract_ir(program), Several().state_dict(), grad=grad)
    states = [run.buffers]
    results = [run(*ARGS)]
    states.append(run.buffers)
    results.append(run(*ARGS))
    refused = 0
    for place in interrupted_everywhere(lambda: run(*ARGS), run.reset):
        assert torch.is_grad_enabled(), place
        now, again = from_another_thread(lambda: (run.buffers, _again(run)))
        if isinstance(again, ExecutionError):
            assert again.message == (
                "the buffers are half written: the last call failed between two writes"
            )
            refused += 1
        else:
            written = int(now["calls"])
            assert same(now, states[written]), place
            assert same(again, results[written]), place
    assert refused


def _again(run):
    try:
        return run(*ARGS)
    except ExecutionError as error:
        return error


def test_a_reset_that_is_interrupted_is_asked_for_again():
    run = torch_ir.compile(torch_ir.extract_ir(Several(), ARGS), Several().state_dict())
    states = [run.buffers]
    first = run(*ARGS)
    states.append(run.buffers)

    def written():
        run.reset()
        run(*ARGS)

    for place in interrupted_everywhere(run.reset, written):
        now, again = run.buffers, _again(run)
        if not isinstance(again, ExecutionError):
            assert same(now, states[int(now["calls"])]), place
        run.reset()
        assert same(run(*ARGS), first)
