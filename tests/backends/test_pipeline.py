"""Stages and shares of a program in processes of their own."""

from __future__ import annotations

import os
import socket

import torch
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch import nn

from torch_ir import compile, extract_ir, parse, shard, shard_weights, to_pipeline_stages
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


def test_values_whose_elements_share_memory_pass_between_stages():
    ir = parse("""ir {
      input %x: f32[4]
      %rows: f32[2, 4] = aten.expand.default(self=%x, size=[2, 4])
      %pairs: f32[3, 2] = aten.as_strided.default(self=%x, size=[3, 2], stride=[1, 1])
      %a: f32[2, 4] = aten.relu.default(self=%rows)
      %b: f32[3, 2] = aten.relu.default(self=%pairs)
      return %a, %b
    }""")
    x = torch.tensor([1.0, -2.0, 3.0, 4.0])
    first, second = to_pipeline_stages(ir, [2], {})
    a, b = second(*first(x))
    assert same(a, x.expand(2, 4).relu())
    assert same(b, x.unfold(0, 2, 1).relu())


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


PLAN = {"layers.*.up": "column", "layers.*.down": "row"}


def pipeline(rank, ranks, group, path):
    """Run the stage of a rank, with its weights from the file; whether the last has the bits."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    net, ir, x = build()
    mine = to_pipeline_stages(ir, ranks, path)[rank]
    assert {meta.name for meta in mine.ir.weights} < net.state_dict().keys()
    device = torch.device("cpu")
    stage = PipelineStage(
        mine, rank, ranks, device, mine.input_args, mine.output_args, group=group
    )
    schedule = ScheduleGPipe(stage, 4)
    result = schedule.step(x) if rank == 0 else schedule.step()
    if rank < ranks - 1:
        return True
    expected = torch.cat([net(part) for part in x.chunk(4)])
    return bool(same(result.contiguous(), expected.contiguous()))


def shared(rank, ranks, group, path):
    """Run the program of a rank on its shards of the file; how far it is from the whole."""
    net, ir, x = build()
    mine = shard(ir, PLAN, ranks=ranks)[rank]
    run = compile(mine, shard_weights(mine, path, rank), groups={"tp": group})
    return float((run(x[:2]) - net(x[:2])).abs().max())


def worker(rank: int, port: int, path: str, out: str) -> None:
    """Be one of four processes, and of two groups of two."""
    from torch import distributed

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    distributed.init_process_group("gloo", rank=rank, world_size=4)
    pairs = [distributed.new_group([0, 1]), distributed.new_group([2, 3])]
    found = {}
    for ranks, group in ((4, distributed.group.WORLD), (2, pairs[rank // 2])):
        found[ranks] = [run(rank % ranks, ranks, group, path) for run in (pipeline, shared)]
    torch.save(found, f"{out}/{rank}.pt")
    distributed.destroy_process_group()
    os._exit(0)  # at the usual end, threads of gloo may still run, and C++ aborts the process


def test_two_and_four_processes_compute_what_one_does(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = str(tmp_path / "model.safetensors")
    save_file(build()[0].state_dict(), path)
    mp.spawn(worker, (port, path, str(tmp_path)), nprocs=4)
    for rank in range(4):
        for ranks, (is_same, off) in torch.load(tmp_path / f"{rank}.pt").items():
            assert is_same, (rank, ranks)
            assert off <= 1e-6, (rank, ranks)  # sums of the ranks are taken in another order
