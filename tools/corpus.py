"""One deduplicated corpus of calls, of models that the project itself can build.

Small models of transformers' architectures from shrunk configurations and the nets of the tests
are extracted; every distinct call of them becomes a case, with vectors and tests that run alone.
What does not export is named and left out.

Usage: ``python tools/corpus.py [-o out/corpus] [--only SUBSTRING] [--no-vectors]``
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import torch
from tests.small_models import CASES
from torch import nn

from torch_ir import IR, cases, extract_ir
from torch_ir.errors import TorchIRError, first_line

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "max_position_embeddings": 64,
}
DECODERS = (
    *("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Phi", "Phi3", "StableLm", "Olmo2", "Cohere"),
    *("GPTNeoX", "Granite", "Starcoder2", "Glm", "Nemotron"),
)
ENCODERS = ("Bert", "Roberta", "Electra", "MPNet", "RoFormer", "Ernie", "Nystromformer")
IMAGES = ("ViT", "DeiT", "Dinov2", "Beit")


class Called(nn.Module):
    """A model of transformers that takes one tensor and gives tensors."""

    def __init__(self, model: nn.Module, name: str):
        super().__init__()
        self.model, self.name = model, name

    def forward(self, x: torch.Tensor) -> Any:
        """Run it, without a cache."""
        return self.model(**{self.name: x}, return_dict=False)[0]


def of_transformers(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """Build a small model of an architecture, and its inputs."""
    import transformers

    config = getattr(transformers, f"{name}Config")(**SIZES, pad_token_id=0)
    for key, value in (("use_cache", False), ("image_size", 32), ("patch_size", 8)):
        if hasattr(config, key):
            setattr(config, key, value)
    model = getattr(transformers, f"{name}Model")(config)
    if name in IMAGES:
        return Called(model, "pixel_values"), (torch.randn(1, 3, 32, 32),)
    return Called(model, "input_ids"), (torch.randint(1, 96, (1, 12)),)


def models() -> Iterator[tuple[str, Callable[[], IR]]]:
    """Yield the name of every model, and what extracts it."""
    for name, case in CASES.items():
        yield f"nets/{name}", lambda case=case: _extracted(case)
    for name in (*DECODERS, *ENCODERS, *IMAGES):
        yield f"transformers/{name}", lambda name=name: _plain(*of_transformers(name))


def _extracted(case: Any) -> IR:
    args, kwargs = case.inputs()
    return extract_ir(case.model(), args, kwargs=kwargs)


def _plain(model: nn.Module, inputs: tuple[Any, ...]) -> IR:
    return extract_ir(model.eval(), inputs)


def main() -> None:
    """Extract the models, and write the cases of all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", default="out/corpus")
    parser.add_argument("--only", default="")
    parser.add_argument("--no-vectors", action="store_true")
    options = parser.parse_args()
    programs: dict[str, IR] = {}
    for name, extract in models():
        if options.only not in name:
            continue
        try:
            torch.manual_seed(0)
            programs[name] = extract()
        except (TorchIRError, ImportError, AttributeError) as error:
            print(f"left out: {name}: {first_line(error)}", flush=True)
    found = cases(programs)
    found.save(options.output, seed=0, vectors=not options.no_vectors)
    nodes = sum(case.count for case in found)
    operators = {case.operator for case in found}
    print(
        f"{len(programs)} programs, {nodes} nodes: {len(found)} cases of {len(operators)} "
        f"overloads in {options.output}"
    )


if __name__ == "__main__":
    main()
