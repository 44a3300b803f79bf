"""Write pages that show what there is to look at: programs, reports, plots.

Usage: ``python examples/gallery.py [FOLDER]``

Everything is made here, from small models without weights of others; the pages open offline.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

import torch_ir
from torch_ir.viz import Plot


class Block(nn.Module):
    """Attention and an MLP, as in every transformer."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        """Add attention, then the MLP."""
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v))
        return x + self.mlp(x)


class Layers(nn.Module):
    """Equal blocks one after the other."""

    def __init__(self, count: int = 12, width: int = 32):
        super().__init__()
        self.embed = nn.Embedding(100, width)
        self.layers = nn.ModuleList([Block(width) for _ in range(count)])
        self.head = nn.Linear(width, 100)

    def forward(self, tokens):
        """Return logits."""
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Flow(nn.Module):
    """A branch and a loop."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        """Choose, then repeat."""
        y = torch.cond(x.sum() > 0, lambda t: self.fc(t).relu(), lambda t: -t, (x,))
        step, y = torch.while_loop(
            lambda step, y: step < 3, lambda step, y: (step + 1, y.sin()), (torch.tensor(0), y)
        )
        return y + step


def gallery(folder: Path) -> list[Path]:
    """Write all pages, and return their files."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model, tokens = Layers().eval(), torch.arange(16)[None]
    layers = torch_ir.extract_ir(model, (tokens,), model_name="Layers")
    flow = torch_ir.extract_ir(Flow().eval(), (torch.ones(2, 8),), model_name="Branch and loop")
    core = torch_ir.decompose(torch_ir.functionalize(layers))
    plan = torch_ir.plan_memory(layers)
    graph = torch_ir.compile_graph(layers, model.state_dict())
    profile = torch_ir.profile(graph, (tokens,), repeat=3)
    checked = torch_ir.validate(layers, model.state_dict(), (tokens,))
    shown = {
        "layers": torch_ir.view(layers, overlays=[profile, plan, checked]),
        "flow": torch_ir.view(flow),
        "lowered": torch_ir.view(layers, against=core),
        "memory": torch_ir.plot(plan),
        "roofline": torch_ir.plot(profile, "roofline"),
        "treemap": torch_ir.plot(profile, "treemap"),
        "errors": torch_ir.plot(checked),
    }
    files: list[Path] = []
    for name, page in shown.items():
        files.append(folder / f"{name}.html")
        (page.page() if isinstance(page, Plot) else page).save(files[-1])
    return files


if __name__ == "__main__":
    for file in gallery(Path(sys.argv[1] if len(sys.argv) > 1 else "out/gallery")):
        print(file)
