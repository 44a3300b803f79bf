"""Stages of a program in processes of their own."""

from __future__ import annotations

import os
import socket

import torch
import torch.multiprocessing as mp
from torch import nn

from torch_ir import extract_ir, to_pipeline_stages
from whole_way import same


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x, bias):
        return (x + self.down(self.up(x).relu()) + bias).t().contiguous().t()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(4)])

    def forward(self, x):
        bias = x.mean(0, keepdim=True)
        for layer in self.layers:
            x = layer(x, bias)
        return x


def build():
    """The model, a program for a microbatch, and arguments of four."""
    torch.manual_seed(0)
    net = Net().eval().requires_grad_(False)
    return net, extract_ir(net, (torch.randn(2, 4),), regions="auto"), torch.randn(8, 4)


def test_stages_in_one_process():
    net, ir, x = build()
    for count in (1, 2, 4):
        stages = to_pipeline_stages(ir, count, net.state_dict())
        assert len(stages) == count
        value = (x[:2],)
        for stage in stages:
            assert [t.shape for t in stage.input_args] == [t.shape for t in value]
            given, value = value, stage(*value)
            value = value if isinstance(value, tuple) else (value,)
            assert all(made.is_contiguous() for made in value)
            assert not {id(t) for t in given} & {id(t) for t in value}
        assert same(value[0], net(x[:2]).contiguous())


def worker(rank: int, count: int, port: int, out: str) -> None:
    """Run one stage."""
    from torch import distributed
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    distributed.init_process_group("gloo", rank=rank, world_size=count)
    net, ir, x = build()
    stages = to_pipeline_stages(ir, count, net.state_dict())
    mine = stages[rank]
    stage = PipelineStage(
        mine, rank, count, torch.device("cpu"), mine.input_args, mine.output_args
    )
    schedule = ScheduleGPipe(stage, 4)
    result = schedule.step(x) if rank == 0 else schedule.step()
    if rank == count - 1:
        expected = torch.cat([net(part) for part in x.chunk(4)])
        torch.save(bool(same(result.contiguous(), expected.contiguous())), out)
    distributed.destroy_process_group()


def test_two_processes_give_the_bits_of_one(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out = str(tmp_path / "same.pt")
    mp.spawn(worker, (2, port, out), nprocs=2)
    assert torch.load(out) is True
