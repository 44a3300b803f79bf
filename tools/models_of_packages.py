"""Take models of other packages through every step, as somebody would who has them.

Usage: ``python tools/models_of_packages.py [PACKAGE ...]``: extract, save, load, check, verify,
decompose, lower to Edge, partition, run. Weights are random. A model that ``torch.export``
refuses is counted apart. Exit status 1 if a step fails.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import torch_ir
from torch_ir.backends import SUPPORTED, Support
from torch_ir.errors import ExportError

Made = tuple[torch.nn.Module, tuple[Any, ...]]
MODELS = Path(__file__).with_name("models.txt")


class Products(torch_ir.DelegateBackend):
    """A backend for what most models have: it shows that parts are cut and put together."""

    name = "products"

    def supports(self, node: Any, ir: Any) -> Support:
        """Take convolutions, products and element-wise operators."""
        taken = ("aten.convolution.", "aten.addmm.", "aten.mm.", "aten.relu.", "aten.add.Tensor")
        return SUPPORTED if node.op_type.startswith(taken) else Support.refused("no kernel")

    def compile(self, ir: Any, payload: Any) -> Callable[..., Any]:
        """Run a part on torch."""
        run, names = torch_ir.IRExecutor(ir, {}), ir.input_names

        def call(*given: torch.Tensor) -> Any:
            rest = iter(given)
            values = [payload[name] if name in payload else next(rest) for name in names]
            return run(*values, *rest)

        return call


def image(size: int = 64, channels: int = 3) -> tuple[torch.Tensor]:
    """A picture."""
    return (torch.rand(1, channels, size, size),)


def torchvision(name: str, size: str = "64") -> Made:
    """A classifier, or what segments."""
    models = importlib.import_module("torchvision.models")
    return models.get_model(name, weights=None, **_BACKBONE.get(name, {})), image(int(size))


_BACKBONE: dict[str, Any] = {"deeplabv3_resnet50": {"weights_backbone": None}}


def timm(name: str, size: str = "64") -> Made:
    """A classifier by its name, for small images where it takes them."""
    package = importlib.import_module("timm")
    try:
        return package.create_model(name, img_size=int(size)), image(int(size))
    except TypeError:
        return package.create_model(name), image(int(size))


def torchaudio(name: str) -> Made:
    """A model of sound."""
    models = importlib.import_module("torchaudio.models")
    return {
        "wav2vec2": lambda: (models.wav2vec2_base(), (torch.rand(1, 3200),)),
        "hubert": lambda: (models.hubert_base(), (torch.rand(1, 3200),)),
        "conformer": lambda: (
            models.Conformer(40, 4, 64, 2, 31),
            (torch.rand(1, 20, 40), torch.tensor([20])),
        ),
        "conv_tasnet": lambda: (models.ConvTasNet(), (torch.rand(1, 1, 800),)),
        "deepspeech": lambda: (models.DeepSpeech(40, 64), (torch.rand(1, 1, 30, 40),)),
        "wavernn": lambda: (
            models.WaveRNN([5, 5, 8], 16, 200, n_res_block=2, n_rnn=32, n_fc=32, n_freq=20),
            (torch.rand(1, 1, 1200), torch.rand(1, 1, 20, 10)),
        ),
    }[name]()


def segmentation_models_pytorch(name: str) -> Made:
    """What segments, on ResNet-18."""
    package = importlib.import_module("segmentation_models_pytorch")
    return getattr(package, name)("resnet18", encoder_weights=None, classes=2), image()


def diffusers(name: str) -> Made:
    """A small part of a diffusion pipeline."""
    package = importlib.import_module("diffusers")
    small = {"block_out_channels": (32, 64), "layers_per_block": 1}
    if name == "AutoencoderKL":
        blocks = {"down_block_types": ("DownEncoderBlock2D",) * 2}
        blocks["up_block_types"] = ("UpDecoderBlock2D",) * 2
        return package.AutoencoderKL(**small, **blocks), image(32)
    if name == "UNet2DModel":
        blocks = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D")}
        blocks["up_block_types"] = ("AttnUpBlock2D", "UpBlock2D")
        return package.UNet2DModel(**small, **blocks), (*image(32), torch.tensor(3))
    options = {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4}
    options |= {"num_layers": 2, "sample_size": 16, "patch_size": 2, "num_embeds_ada_norm": 10}
    options |= {"norm_type": "ada_norm_zero"}
    given = (*image(16, 4), torch.tensor([1]), torch.tensor([2]))
    return package.DiTTransformer2DModel(**options), given


def open_clip(name: str) -> Made:
    """A model of pictures and texts."""
    package = importlib.import_module("open_clip")
    model = package.create_model(name, pretrained=None)
    size = model.visual.image_size
    side = size[0] if isinstance(size, tuple) else size
    return model, (*image(side), torch.randint(1, 100, (1, model.context_length)))


def kornia(name: str) -> Made:
    """A descriptor of patches, or a detector."""
    feature = importlib.import_module("kornia.feature")
    return getattr(feature, name)(pretrained=False), image(32, 1)


def torch_geometric(name: str) -> Made:
    """A network on a graph of six nodes."""
    models = importlib.import_module("torch_geometric.nn").models
    edges = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
    return getattr(models, name)(8, 16, 2, 4), (torch.rand(6, 8), edges)


PACKAGES: dict[str, tuple[Callable[..., Made], str]] = {
    "torchvision": (
        torchvision,
        "resnet18 resnet50 resnext50_32x4d wide_resnet50_2 vgg11 alexnet:224 squeezenet1_1 "
        "densenet121 mobilenet_v2 mobilenet_v3_small mnasnet0_5 shufflenet_v2_x0_5 "
        "efficientnet_b0 regnet_y_400mf convnext_tiny vit_b_32:224 swin_t maxvit_t:224 "
        "googlenet deeplabv3_resnet50",
    ),
    "timm": (
        timm,
        "resnet10t mobilenetv4_conv_small efficientnet_lite0 ghostnet_100 convnext_atto "
        "edgenext_xx_small fastvit_t8 mobilevit_xxs regnetx_002 repvgg_a0 rexnet_100 "
        "vit_tiny_patch16_224 deit_tiny_patch16_224 mixer_s32_224:224 poolformer_s12 "
        "coatnet_nano_rw_224:224",
    ),
    "torchaudio": (torchaudio, "wav2vec2 hubert conformer conv_tasnet deepspeech wavernn"),
    "segmentation_models_pytorch": (
        segmentation_models_pytorch,
        "Unet FPN PSPNet DeepLabV3Plus Linknet MAnet",
    ),
    "diffusers": (diffusers, "AutoencoderKL UNet2DModel DiTTransformer2DModel"),
    "open_clip": (open_clip, "RN50 ViT-B-32"),
    "kornia": (kornia, "HardNet HyNet TFeat"),
    "torch_geometric": (torch_geometric, "GCN GIN GraphSAGE GAT"),
}


def steps(model: torch.nn.Module, args: tuple[Any, ...], folder: Path) -> Iterator[str]:
    """Take a model through every step; yield the name of each before it is taken.

    Raises:
        AssertionError: A step gives something else than it should.
    """
    yield "extract"
    ir = torch_ir.extract_ir(model, args)
    weights, constants = model.state_dict(), torch_ir.constants_of(model)
    yield "save"
    ir.save(folder / "m.tir", weights=weights)
    yield "load"
    assert torch_ir.IR.load(folder / "m.tir") == ir
    assert torch_ir.parse(str(ir)) == ir
    yield "check"
    assert ir.check() == (), ir.check()
    yield "verify"
    report = torch_ir.verify(ir, model, args)
    assert report.max_diff == 0, report
    core, edge = torch_ir.decompose(ir), None
    expected = run(ir, weights, constants, args)
    for name in ("decompose", "to_edge"):
        yield name
        made = core if name == "decompose" else (edge := torch_ir.to_edge(ir).ir())
        assert made.check() == (), made.check()
        yield f"run after {name}"
        close(run(made, weights, constants, args), expected)
    assert edge is not None
    yield "partition"
    lowered = torch_ir.to_backend(core, torch_ir.Partitioner(Products(), min_nodes=1))
    assert lowered.check() == (), lowered.check()
    compiled = torch_ir.compile(core, {**weights, **constants}, backend=Products())
    yield "run parts"
    close(compiled(*args), expected)


def run(ir: Any, weights: Any, constants: Any, args: tuple[Any, ...]) -> Any:
    """What a program gives."""
    return torch_ir.IRExecutor(ir, weights, constants=constants)(*args)


def close(found: Any, expected: Any) -> None:
    """Require what rounding in another order may give."""
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4, equal_nan=True)


def try_model(package: str, text: str) -> str:
    """Return what came of a model: ``passed``, ``refused: …`` or ``failed at …``."""
    torch.manual_seed(0)
    name, *options = text.split(":")
    step = "build"
    try:
        model, args = PACKAGES[package][0](name, *options)
        model.eval().requires_grad_(False)
        step = "eager"
        with torch.no_grad():
            model(*args)
        with tempfile.TemporaryDirectory() as folder:
            for step in steps(model, args, Path(folder)):  # noqa: B007  # the last one is told
                pass
    except ExportError as error:
        return f"refused: {str(error).splitlines()[0]:.120}"
    except Exception as error:  # noqa: BLE001  # any failure is what is looked for
        return f"failed at {step}: {type(error).__name__}: {error!s:.400}"
    return "passed"


def prepare() -> None:
    """Let packages be imported whose binaries were built for another torch, or for GPUs.

    No model here calls what is in the binaries. torchaudio is told that it has none, and the
    operators that the rest of torchvision insists on are declared.
    """
    try:
        importlib.import_module("torchaudio")
    except (ImportError, OSError):
        forget("torchaudio")
        extension = ModuleType("torchaudio._extension")
        extension.__dict__.update(_IS_TORCHAUDIO_EXT_AVAILABLE=False, _IS_ALIGN_AVAILABLE=False)
        extension.__dict__.update(fail_if_no_align=lambda function: function)
        sys.modules[extension.__name__] = extension
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        forget("torchvision")
        schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", schema)


def forget(package: str) -> None:
    """Let a package whose import failed be imported anew."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


def main(packages: list[str]) -> int:
    """Print a line for each model, and how many passed."""
    prepare()
    results: list[str] = []
    for package in packages or PACKAGES:
        for text in PACKAGES[package][1].split():
            start = time.perf_counter()
            results.append(try_model(package, text))
            seconds = time.perf_counter() - start
            print(f"{package:28} {text:26} {seconds:5.0f} s  {results[-1]}", flush=True)
    counts = [sum(r.startswith(kind) for r in results) for kind in ("passed", "refused", "failed")]
    print(f"{len(results)} models: {counts[0]} passed, {counts[1]} refused, {counts[2]} failed")
    return 1 if counts[2] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
