"""Text generation with the caches of transformers: prefill, then ten steps of one token each.

With a static cache the attention ``sdpa`` of transformers goes another way while torch traces: it
repeats the keys of grouped queries, where otherwise it packs the queries of a single token, and
keeps a mask that it otherwise leaves out. The exported module itself then differs from the model
in the last bit; the attention ``eager`` is the same in both.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.export import Dim
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
from transformers.integrations.executorch import (
    TorchExportableModuleWithStaticCache,
    register_dynamic_cache_export_support,
)

import torch_ir
from torch_ir import IRExecutor
from whole_way import kept, same

PROMPT = torch.tensor([[3, 14, 15, 9, 26]])
STEPS = 10
LENGTH = 16


def llama(attention):
    """A Llama with two groups of two queries each; the same weights each time."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        attn_implementation=attention,
    )
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    model.generation_config.cache_implementation = "static"
    return model


# -- a cache that the program keeps -----------------------------------------------------------


def static(attention):
    """The model with its cache, as transformers exports it."""
    return TorchExportableModuleWithStaticCache(
        llama(attention), batch_size=1, max_cache_len=LENGTH, device=torch.device("cpu")
    )


def generated(prefill, decode):
    """The logits of the prompt and of each step; the most likely token comes next."""
    with torch.no_grad():
        logits = [prefill(input_ids=PROMPT, cache_position=torch.arange(PROMPT.shape[1]))]
        for position in range(PROMPT.shape[1], PROMPT.shape[1] + STEPS):
            token = logits[-1][:, -1:].argmax(-1)
            logits.append(decode(input_ids=token, cache_position=torch.tensor([position])))
    return logits


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_static_cache_is_kept_from_call_to_call(attention):
    exported = [
        torch.export.export(
            static(attention),
            (),
            {"input_ids": tokens, "cache_position": torch.arange(tokens.shape[1])},
        )
        for tokens in (PROMPT, PROMPT[:, :1])
    ]
    programs = [kept(torch_ir.extract_ir(program)) for program in exported]
    modules = [program.module() for program in exported]
    weights = static(attention).state_dict()
    executor = IRExecutor(programs[0], weights)

    def decode(**arguments):
        nonlocal executor
        if executor.ir is programs[0]:  # the other program takes over what this one has kept
            executor = IRExecutor(programs[1], weights, constants=executor.buffers)
        return executor(**arguments)

    def decode_module(**arguments):
        if arguments["cache_position"] == PROMPT.shape[1]:
            for name, buffer in modules[0].named_buffers():
                modules[1].get_buffer(name).copy_(buffer)
        return modules[1](**arguments)

    ours = generated(executor, decode)
    assert same(ours, generated(modules[0], decode_module))
    if attention == "eager":
        model = static(attention)
        assert same(ours, generated(model, model))


# -- a cache that is handed over --------------------------------------------------------------


class Step(nn.Module):
    """One call of the model: the logits, and the cache with what this call adds."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, cache):
        out = self.model(tokens, past_key_values=cache, use_cache=True)
        return out.logits, out.past_key_values


def continued(prefill, decode, empty):
    """The logits and the caches of the prompt and of each step."""
    with torch.no_grad():
        results = [prefill(PROMPT, copy.deepcopy(empty))]
        for _ in range(STEPS):
            logits, cache = results[-1]
            results.append(decode(logits[:, -1:].argmax(-1), copy.deepcopy(cache)))
    return results


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_dynamic_cache_is_given_and_comes_back_longer(attention):
    register_dynamic_cache_export_support()
    model = Step(llama(attention))
    empty = DynamicCache(config=model.model.config)
    with torch.no_grad():
        logits, cache = model(PROMPT, copy.deepcopy(empty))
    token = logits[:, -1:].argmax(-1)
    lengths = ({}, [[{2: Dim.DYNAMIC}] * 2] * 2)
    exported = [
        torch.export.export(model, (PROMPT, copy.deepcopy(empty))),
        torch.export.export(model, (token, cache), dynamic_shapes=lengths),
    ]
    programs = [kept(torch_ir.extract_ir(program)) for program in exported]
    ours = continued(*[IRExecutor(ir, model.state_dict()) for ir in programs], empty)
    assert same(ours, continued(*[program.module() for program in exported], empty))
    assert same(ours, continued(model, model, empty))
    assert [cache.get_seq_length() for _, cache in ours] == list(range(5, 5 + STEPS + 1))


class Counters(nn.Module):
    """Two buffers of equal first values that go different ways."""

    def __init__(self):
        super().__init__()
        self.register_buffer("up", torch.zeros(3), persistent=False)
        self.register_buffer("down", torch.zeros(3), persistent=False)

    def forward(self, x):
        self.up += x
        self.down -= x
        return self.up * 2, self.down * 3


def test_state_that_begins_equal_is_not_shared(tmp_path):
    torch_ir.extract_ir(Counters(), (torch.ones(3),)).save(tmp_path / "counters.tir")
    executor, model = IRExecutor(torch_ir.load_ir(tmp_path / "counters.tir"), {}), Counters()
    for _ in range(3):
        assert same(executor(torch.ones(3)), model(torch.ones(3)))
