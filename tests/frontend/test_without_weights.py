"""Models that are built without the values of their parameters."""

from __future__ import annotations

import json
import threading

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils import parametrizations

import torch_ir
from torch_ir import without_weights
from torch_ir.errors import ExportError
from whole_way import same


class Special(nn.Parameter):
    """A parameter of a class of its own."""


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 4, bias=False)
        self.head.weight = self.fc.weight
        self.scale = Special(torch.ones(4), requires_grad=False)
        self.register_buffer("table", torch.arange(4.0), persistent=False)
        self.plain = torch.tensor([1.0, 2.0, 3.0, 4.0])
        self.several = nn.ParameterList([torch.ones(4)])

    def forward(self, x):
        x = self.norm(self.fc(x)) * self.scale + self.table + self.plain
        return self.head(x) + self.several[0]


def test_a_program_runs_with_the_checkpoint_alone(tmp_path):
    torch.manual_seed(0)
    real, x = Net().eval(), torch.randn(2, 4)
    with without_weights():
        model = Net().eval()
    assert all(parameter.is_meta for parameter in model.parameters())
    assert model.head.weight is model.fc.weight
    assert type(model.scale) is Special
    assert not model.scale.requires_grad
    assert same(model.table, torch.arange(4.0))
    ir = torch_ir.extract_ir(model, (x,))
    shared = {k: v.clone() for k, v in real.state_dict().items()}
    save_file(shared, tmp_path / "model.safetensors")
    weights = torch_ir.load_weights(tmp_path / "model.safetensors", ir=ir)
    assert same(torch_ir.IRExecutor(ir, weights)(x), real(x))


def test_parametrized_and_lazy_modules():
    with without_weights():
        layer = parametrizations.weight_norm(nn.Linear(4, 4))
        lazy = nn.LazyLinear(3)
    assert {p.device.type for p in layer.parameters()} == {"meta"}
    assert nn.parameter.is_lazy(lazy.weight)
    assert not nn.Linear(2, 2).weight.is_meta


def test_other_threads_build_with_weights():
    made: list[nn.Module] = []
    with without_weights():
        thread = threading.Thread(target=lambda: made.append(nn.Linear(2, 2)))
        thread.start()
        thread.join()
    assert not made[0].weight.is_meta


CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "vocab_size": 11,
    "dtype": "bfloat16",
}


def test_a_configuration_file(tmp_path):
    transformers = pytest.importorskip("transformers")
    from torch_ir.frontend.models.transformers import transformers_model

    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    ids = torch.tensor([[1, 2, 3, 4]])
    ir = torch_ir.extract_ir(transformers_model(path), (ids,), regions="auto", verify_regions=True)
    assert {fate.get("function") for fate in ir.metadata["regions"].values()} == {"layers"}
    assert str(ir.graph_outputs[0].dtype) == "bfloat16"
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**CONFIG)
    real = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
    folder = tmp_path / "checkpoint"
    real.save_pretrained(folder, max_shard_size="5KB")
    weights = torch_ir.load_weights(folder, ir=ir)
    with torch.no_grad():
        expected = real(input_ids=ids, use_cache=False).logits
    assert same(torch_ir.IRExecutor(ir, weights)(ids), expected)


OTHERS = {
    "llama": {},
    "windows": {
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "sliding_window": 3,
    },
    "latent": {
        "model_type": "deepseek_v3",
        "architectures": ["DeepseekV3ForCausalLM"],
        "moe_intermediate_size": 8,
        "num_key_value_heads": 4,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "q_lora_rank": 12,
        "kv_lora_rank": 8,
        "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 4,
        "v_head_dim": 6,
        "n_group": 1,
        "topk_group": 1,
    },
}


@pytest.mark.parametrize("name", OTHERS)
def test_one_token_a_call_with_caches_as_operands(tmp_path, name):
    transformers = pytest.importorskip("transformers")
    from torch_ir.frontend.models.transformers import transformers_model

    settings = {**CONFIG, "num_hidden_layers": 4, "num_attention_heads": 4, "dtype": "float32"}
    settings |= {"num_key_value_heads": 2, **OTHERS[name]}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    model = transformers_model(tmp_path, decode=32)
    args = (torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    ir = torch_ir.extract_ir(model, args, regions="auto", verify_regions=True)
    assert sum("function" in fate for fate in ir.metadata["regions"].values()) >= 3
    assert ir.check() == ()
    assert ir.constants["cache.3.keys"].is_filled
    assert len([m for m in ir.mutations if m.target.startswith("b_cache")]) == 9
    ir.save(tmp_path / "decode.tir")
    assert torch_ir.load_ir(tmp_path / "decode.tir") == ir
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(**settings)
    real = transformers.AutoModelForCausalLM.from_config(config).eval()
    step = torch_ir.IRExecutor(ir, real.state_dict())
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9]])
    with torch.no_grad():
        wanted = real(tokens, use_cache=False).logits
    for index in range(tokens.shape[1]):
        logits = step(tokens[:, index : index + 1], torch.tensor([index]))
        torch.testing.assert_close(logits[:, 0], wanted[:, index])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["MambaForCausalLM"], "model_type": "mamba"}, "layer 0 keeps a Linear"),
        ({"architectures": ["LlamaModel"]}, "LlamaModel does not predict the next token"),
    ],
)
def test_what_has_no_static_cache(tmp_path, change, message):
    pytest.importorskip("transformers")
    from torch_ir.frontend.models.transformers import transformers_model

    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **change}))
    with pytest.raises(ExportError) as caught:
        transformers_model(tmp_path, decode=4)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "lama"}, "has no models of type 'lama'"),
        ({"architectures": ["Nothing"]}, "transformers has no model 'Nothing'"),
        ({"dtype": "int8"}, "'int8' is not a floating-point element type"),
        ({"model_type": 3}, "is no configuration of a model: it has no model_type"),
    ],
)
def test_what_is_no_configuration(tmp_path, change, message):
    pytest.importorskip("transformers")
    from torch_ir.frontend.models.transformers import transformers_model

    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, **change}))
    with pytest.raises(ExportError) as caught:
        transformers_model(tmp_path)
    assert message in caught.value.message


def test_a_parameter_for_which_there_is_no_room_is_made_all_the_same():
    with torch_ir.without_weights():
        layer = nn.Linear(1 << 24, 1 << 23)  # 512 TiB, which no address space has
    assert layer.weight.is_meta
    assert layer.weight.shape == (1 << 23, 1 << 24)
    with torch_ir.without_weights(), pytest.raises(RuntimeError, match="allocate"):
        torch.zeros(1 << 24, 1 << 23)
