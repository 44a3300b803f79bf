"""A program on several machines, from files: as a chain of stages, and sharded over ranks.

    python examples/several_processes.py prepare out/parts 2
    torchrun --nproc-per-node 2 examples/several_processes.py run out/parts

Each process reads its own program and its own weights alone. `--backend nccl` is for GPUs.
"""

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

import torch_ir

PLAN = {"*.up": "column", "*.down": "row"}


class Block(nn.Module):
    """A norm and an MLP beside what it takes."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the block makes of x."""
        return x + self.down(self.up(self.norm(x)).relu())


def prepare(folder: Path, count: int) -> None:
    """Write the program, its weights, an input, and the program of each rank."""
    torch.manual_seed(0)
    model, x = nn.Sequential(*[Block(16) for _ in range(2 * count)]).eval(), torch.randn(4, 16)
    ir = torch_ir.extract_ir(model, (x[:1],), regions="auto")
    folder.mkdir(parents=True, exist_ok=True)
    torch_ir.save_ir(ir, folder / "model.tir")
    save_file({**model.state_dict(), "x": x}, folder / "model.safetensors")
    whole = torch_ir.extract_ir(model, (x,), regions="auto")
    for rank, program in enumerate(torch_ir.shard(whole, PLAN, ranks=count)):
        torch_ir.save_ir(program, folder / f"rank{rank}.tir")


def run(folder: Path, backend: str) -> dict[str, float]:
    """Run both ways in this process; return how far each is from the whole program."""
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device(f"cuda:{rank}" if backend == "nccl" else "cpu")
    dist.init_process_group(backend)
    path = folder / "model.safetensors"
    weights = torch_ir.load_weights(path)
    x = weights["x"].to(device)
    ir = torch_ir.load_ir(folder / "model.tir")
    expected = torch.cat(
        [torch_ir.compile(ir, path, placement=str(device))(row) for row in x.split(1)]
    )

    stages = torch_ir.to_pipeline_stages(ir, count, path, devices=[str(device)] * count)
    mine = stages[rank]  # the others are not compiled, and their weights not read
    stage = PipelineStage(mine, rank, count, device, mine.input_args, mine.output_args)
    made = ScheduleGPipe(stage, len(x)).step(*([x] if rank == 0 else []))
    found = {"stages": float((made - expected).abs().max())} if rank == count - 1 else {}

    program = torch_ir.load_ir(folder / f"rank{rank}.tir")
    shards = torch_ir.shard_weights(program, path, rank)
    group = dist.group.WORLD
    sharded = torch_ir.compile(program, shards, groups={"tp": group}, placement=str(device))
    found["shards"] = float((sharded(x) - expected).abs().max())
    dist.destroy_process_group()
    return found


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=["prepare", "run"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("count", type=int, nargs="?", default=2)
    parser.add_argument("--backend", default="gloo")
    given = parser.parse_args()
    if given.step == "prepare":
        prepare(given.folder, given.count)
    else:
        line = json.dumps(run(given.folder, given.backend)) + "\n"
        os.write(1, line.encode())  # a line of each process, whole


if __name__ == "__main__":
    main()
