"""The readers in JavaScript and C++: right on models, and one line on damaged files."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import torch_ir
from torch_ir.ir.edit import with_defaults

EXAMPLES = Path(__file__).parents[2] / "examples"
READERS = EXAMPLES / "readers"


@pytest.fixture(scope="module")
def cpp(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    binary = tmp_path_factory.mktemp("reader") / "reader"
    source = READERS / "reader.cpp"
    subprocess.run(["g++", "-std=c++17", "-O1", "-o", str(binary), str(source)], check=True)
    return [str(binary)]


@pytest.fixture(params=["mjs", "cpp"])
def reader(request):
    if request.param == "cpp":
        return request.getfixturevalue("cpp")
    if shutil.which("node") is None:
        pytest.skip("there is no node")
    return ["node", str(READERS / "reader.mjs")]


@pytest.mark.parametrize("name", ["reader.mjs", "reader.cpp"])
def test_a_reader_is_one_file_of_500_lines(name):
    source = (READERS / name).read_text()
    assert len(source.splitlines()) <= 500
    assert max(map(len, source.splitlines())) <= 100
    assert {path.name for path in READERS.iterdir()} == {"reader.mjs", "reader.cpp", "json.hpp"}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.second = nn.Conv2d(8, 8, (1, 3), groups=4, dilation=(1, 2), bias=False)
        self.norm, self.last = nn.BatchNorm2d(8), nn.Linear(8, 5)
        self.table = torch.arange(20.0).reshape(4, 5)
        self.register_buffer("grid", torch.full((5, 20), 0.5)[:, 2:7], persistent=False)

    def forward(self, x, y):
        x = torch.max_pool2d(self.norm(self.first(x)).relu(), 3, 2, 1, ceil_mode=True)
        x = self.second(x).sigmoid() * 2 - x[:, :, :, 2:-2]
        rows = self.last(x.mean((2, 3))).softmax(-1)
        rows = rows + self.grid[:1]
        joined = torch.cat([rows, y.t()[:, 1:], self.table[::2] * rows.mean((0, 1))], 1)
        return joined.tanh(), (y @ joined.permute(1, 0)[:2] + y.mean((0, 1))).reshape(-1, 2, 1)


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 4, 3, padding=1)

    def forward(self, x):
        return torch.sub(self.conv(x), x.mean((0, 1, 2)), alpha=0.5).view(x.shape[0], -1)


class Numbers(nn.Module):
    """Values that are no float32: indices, flags, and what comes of them."""

    def forward(self, x, at):
        near = x[at] >= 0.1
        rows = torch.where(near, x[at] * 0.1, torch.full((), -torch.inf))
        return at * 3 - 1, near, rows.softmax(0), rows.clamp(min=-1), x[at, at - 1].any(0)


def encoder():
    """The demo's model, small."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        from minilm import (  # pyright: ignore[reportMissingImports]  # found on the path just set
            SentenceEncoder,
        )
        from transformers import BertConfig
    finally:
        sys.path.remove(str(EXAMPLES))
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    return SentenceEncoder(BertConfig(vocab_size=50, num_hidden_layers=2, **sizes))


def sentences():
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
    return torch.randint(0, 50, (2, 5)), torch.zeros(2, 5, dtype=torch.int64), mask


MODELS = {
    "net": (Net, lambda: (torch.randn(2, 3, 17, 15), torch.randn(3, 2))),
    "line": (Line, lambda: (torch.randn(3, 2, 6),)),
    "numbers": (Numbers, lambda: (torch.randn(4, 3), torch.tensor([2, 0, -1]))),
    "encoder": (encoder, sentences),
}


def written(name, folder):
    torch.manual_seed(1)
    make, inputs = MODELS[name]
    model, args = make().eval(), inputs()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean)
            nn.init.uniform_(module.running_var)
    ir = torch_ir.decompose(torch_ir.extract_ir(model, args))
    torch_ir.serde.save(ir, folder / "p.tir", weights=model.state_dict())
    named = zip([meta.name for meta in ir.graph_inputs], args, strict=True)
    save_file({key: tensor.contiguous() for key, tensor in named}, folder / "in.safetensors")
    expected = torch_ir.IRExecutor(ir, model.state_dict()).execute(args)
    return dict(zip([meta.name for meta in ir.graph_outputs], expected, strict=True))


def run(reader, folder, program="p.tir", given="in.safetensors"):
    files = [folder / program, folder / given, folder / "out.safetensors"]
    command = [*reader, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


without_demo = pytest.mark.skipif(
    find_spec("transformers") is None or find_spec("tokenizers") is None, reason="needs the demo"
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[without_demo] * (name == "encoder")) for name in MODELS]
)
def test_a_reader_gives_what_torch_gives(reader, name, tmp_path):
    expected = written(name, tmp_path)
    done = run(reader, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    got = load_file(tmp_path / "out.safetensors")
    assert got.keys() == expected.keys()
    for key, tensor in got.items():
        close = {"rtol": 1e-5, "atol": 1e-5, "equal_nan": True}
        torch.testing.assert_close(tensor, expected[key].detach(), **close)


def test_a_program_with_its_defaults_gives_the_same(reader, tmp_path):
    written("net", tmp_path)
    assert run(reader, tmp_path).returncode == 0
    before = (tmp_path / "out.safetensors").read_bytes()
    ir = torch_ir.load_ir(tmp_path / "p.tir")
    weights = torch_ir.load_weights(tmp_path / "p.tir")
    torch_ir.serde.save(with_defaults(ir), tmp_path / "p.tir", weights=dict(weights))
    assert run(reader, tmp_path).returncode == 0
    assert (tmp_path / "out.safetensors").read_bytes() == before


def test_another_operator_is_named(reader, tmp_path):
    ir = torch_ir.parse("""ir {
      dialect "core_aten"
      input %x: f32[2]
      %y: f32[2] = aten.erf.default(%x)
      return %y
    }""")
    ir.save(tmp_path / "p.tir")
    save_file({"x": torch.ones(2)}, tmp_path / "in.safetensors")
    done = run(reader, tmp_path)
    assert done.returncode == 1
    assert done.stderr == "error: node y: there is no operator aten.erf.default here\n"


def test_damaged_files_end_in_one_line(reader, tmp_path):
    written("line", tmp_path)
    for name in ("p.tir", "in.safetensors"):
        whole = (tmp_path / name).read_bytes()
        damaged = [whole[:n] for n in (0, 1, 20, len(whole) // 2, len(whole) - 1)]
        for at in range(3, len(whole) if name == "p.tir" else 120, 211 if name == "p.tir" else 9):
            damaged.append(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        for data in damaged:
            (tmp_path / "bad").write_bytes(data)
            names = ("bad", "in.safetensors") if name == "p.tir" else ("p.tir", "bad")
            done = run(reader, tmp_path, *names)
            if done.returncode == 0:  # a byte that nothing reads, such as the padding of the zip
                continue
            assert done.returncode == 1, (name, data[:8], done)
            assert done.stderr.startswith("error: ")
            assert done.stderr.count("\n") == 1
    assert run(reader, tmp_path, "nothing").stderr.startswith("error: ")
