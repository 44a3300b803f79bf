"""Programs on two kinds of devices; run by ``test_placement.py`` in a process of its own.

Prints one JSON object: what each check found.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

import torch_ir
from executor.far_device import register, to_far
from torch_ir.errors import TorchIRError
from torch_ir.passes import fold_constants


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x):
        self.steps.add_(1)
        places = torch.arange(8, device=x.device) * x
        places.relu_()
        return x + self.down(self.up(places).relu()) + self.steps


class Cache(nn.Module):
    """One memory that is written twice, shown by a view, and read on two sides."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("kept", torch.zeros(3, 4))
        self.register_buffer("at", torch.zeros(1, dtype=torch.long))

    def forward(self, x):
        self.kept.index_copy_(0, self.at, self.a(x))
        shown, total = self.kept[:2], self.kept.sum()
        self.at.add_(1)
        made = self.b(self.kept)
        self.kept.mul_(2)
        return made, shown, total, self.kept.sum()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(10, 8), nn.Linear(8, 10, bias=False)
        self.head.weight = self.table.weight

    def forward(self, i):
        return self.head(self.table(i))


class Branch(nn.Module):
    """A branch that makes a tensor of its own."""

    def forward(self, x):
        return torch.cond(
            x.sum() > 0, lambda y: y + torch.arange(4, device=y.device), lambda y: -y, (x,)
        )


def equal(ir, weights, inputs, placement):
    """Whether two runs give the bits of two on the CPU."""
    plain = torch_ir.compile(ir, weights)
    run = torch_ir.compile(ir, weights, placement=placement)
    pairs = [(plain(*inputs), run(*inputs)) for _ in range(2)]
    values = [zip(*[v if isinstance(v, tuple) else (v,) for v in p], strict=True) for p in pairs]
    return all(torch.equal(a, b.cpu()) for pair in values for a, b in pair), run


def refusal(call):
    try:
        call()
    except TorchIRError as error:
        return str(error)
    return "nothing was refused"


def blocks(found):
    model, x = nn.Sequential(*[Block() for _ in range(4)]).eval(), torch.randn(2, 8)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    two = {"0": "far", "1": "cpu", "2": "far", "3": "cpu"}
    inner = {"": "cpu", "1.up": "far", "3.down.weight": "far"}
    for regions in (None, "auto"):
        model.load_state_dict(weights)
        ir = torch_ir.extract_ir(model, (x,), regions=regions)
        for name, placement in (("two", two), ("far", "far"), ("inner", inner)):
            same, run = equal(ir, weights, (x,), placement)
            nodes = run.graph.ir.nodes
            copies = sum(node.op_type == "aten._to_copy.default" for node in nodes)
            found[f"blocks {regions} {name}"] = [same, len(nodes), copies]
    body = next(iter(ir.functions))
    same, run = equal(ir, weights, (x,), {"": "cpu", body: "far"})
    found["by function"] = [same, sorted({str(t.device) for t in run.graph.payload.values()})]


def state(found):
    model, x = Cache(), torch.randn(1, 4)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    ir = torch_ir.extract_ir(model, (x,))
    here = {"a": "far", "b": "cpu", "kept": "cpu", "at": "far"}
    there = {"a": "cpu", "b": "far", "kept": "far", "at": "cpu"}
    found["state"] = [equal(ir, weights, (x,), placement)[0] for placement in (here, there)]
    run = torch_ir.IRExecutor(ir, weights)
    run(to_far(x))
    found["weights follow inputs"] = str(run.graph.device)
    found["input elsewhere"] = refusal(lambda: torch_ir.compile(ir, weights)(to_far(x)))


def weights(found):
    model, i = Tied(), torch.tensor([[1, 2]])
    ir = torch_ir.extract_ir(model, (i,))
    same, run = equal(ir, model.state_dict(), (i,), {"table": "far", "head": "cpu"})
    devices = sorted(str(tensor.device) for tensor in run.graph.payload.values())
    found["tied"] = [same, devices, len(run.graph.ir.nodes)]
    layers, x = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)]), torch.randn(2, 8)
    path = Path(tempfile.mkdtemp()) / "model.safetensors"
    save_file(layers.state_dict(), path)
    stream = torch_ir.compile(
        torch_ir.extract_ir(layers, (x,)), path, memory="2KB", placement={"": "far"}
    )
    found["stream"] = [torch.equal(stream(x).cpu(), layers(x)), str(stream(x).device)]


def others(found):
    x = torch.ones(4)
    ir = torch_ir.extract_ir(Branch(), (x,))
    first = ir.nodes[0].location.module if ir.nodes[0].location else ""
    found["branch"] = [equal(ir, {}, (x,), {"": "far", "no": "far"} if first else "far")[0]]
    written = torch_ir.parse("""ir {
      input %x: f32[2]
      mutate %x = %y
      %y: f32[2] = aten.add_.Tensor(%x, 1)
      %z: f32[2] = aten.neg.default(%y)
      return %z
    }""")
    run, given = torch_ir.compile(written, placement="far"), to_far(torch.ones(2))
    found["written input"] = [run.execute((given,))[0].cpu().tolist(), given.cpu().tolist()]
    found["written elsewhere"] = refusal(lambda: run.execute((torch.ones(2),)))
    known = torch_ir.parse("""ir {
      input %x: f32[2]
      %a: f32[2] = aten.full.default([2], 2.0)
      %b: f32[2] = aten.neg.default(%a)
      %y: f32[2] = aten.add.Tensor(%x, %b)
      return %y
    }""")
    found["folded"] = len(fold_constants(known, device="far").nodes)


if __name__ == "__main__":
    kernels = register()
    torch.manual_seed(0)
    results: dict[str, object] = {}
    for check in (blocks, state, weights, others):
        check(results)
    sys.stdout.write(json.dumps(results))
