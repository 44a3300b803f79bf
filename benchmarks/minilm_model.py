"""The model of the demo, built on the device in force, and inputs for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch import nn
from transformers import BertConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from minilm import SentenceEncoder, packaged_model


def minilm() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The sentence encoder with random weights, and six sentences of 16 tokens."""
    config = BertConfig.from_dict(json.loads((packaged_model() / "config.json").read_text()))
    model = SentenceEncoder(config).eval().requires_grad_(False)
    ids = torch.ones(6, 16, dtype=torch.int64)
    return model, (ids, torch.zeros_like(ids), torch.ones_like(ids))
