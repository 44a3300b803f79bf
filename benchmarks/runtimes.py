"""The backend ``auto`` against each runtime alone, called by hand as its documentation says.

Usage: ``python benchmarks/runtimes.py [--rounds N] [--seconds N] [--backends NAME ...]
[MODEL ...]``

All contenders of a model take turns in one process and one thread; what counts is the ratio to
eager, and that of ``auto`` to the fastest runtime alone. Prints rows of the table in
``docs/runtimes.md``.
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec

import torch
from executor_models import MODELS, First, Model
from executor_models import build as build_first

import torch_ir
from executor import Contender, Ratios, interleaved
from torch_ir.backends.runtimes.onnx_model import onnx_bytes, quietly

Inputs = tuple[torch.Tensor, ...]


def onnxruntime_alone(model: torch.nn.Module, inputs: Inputs) -> Contender:
    """A session on the exporter's model; NumPy views go in and come out."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    content = onnx_bytes(torch.export.export(model, inputs))
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    feed = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
    return lambda: torch.from_numpy(session.run(None, feed)[0])


def openvino_alone(model: torch.nn.Module, inputs: Inputs) -> Contender:
    """A request of the CPU plugin that shares memory both ways."""
    import openvino

    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    converted = openvino.convert_model(torch.export.export(model, inputs))
    settings["PERFORMANCE_HINT"] = "LATENCY"
    compiled = openvino.Core().compile_model(converted, "CPU", settings)
    request, feed = compiled.create_infer_request(), [tensor.numpy() for tensor in inputs]

    def run() -> torch.Tensor:
        return torch.from_numpy(request.infer(feed, share_inputs=True, share_outputs=True)[0])

    return run


def executorch_alone(model: torch.nn.Module, inputs: Inputs) -> Contender:
    """A method of a program that XNNPACK takes what it can of."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool
    from executorch.runtime import Runtime

    # its pool is the process's, and has a thread for each core whatever torch was told
    _unsafe_reset_threadpool(torch.get_num_threads())

    exported = torch.export.export(model, inputs)
    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    content = bytes(edge.to_executorch().buffer)
    program = Runtime.get().load_program(content)
    method = program.load_method("forward")

    def run(kept: object = (content, program)) -> torch.Tensor:
        del kept  # a method does not hold what it is of
        return method.execute(inputs)[0]

    return run


def inductor_alone(model: torch.nn.Module, inputs: Inputs) -> Contender:
    """torch.compile, with weights packed as its pages on inference advise."""
    compiled = torch.compile(model, options={"freezing": True})
    return lambda: compiled(*inputs)


ALONE = {
    "onnxruntime": ("onnxruntime", onnxruntime_alone),
    "openvino": ("openvino", openvino_alone),
    "executorch": ("executorch", executorch_alone),
    "inductor": ("torch", inductor_alone),
}
"""The package of each runtime, and the runtime by hand."""


def mobilenet() -> Model:
    from transformers import MobileNetV2Config, MobileNetV2Model

    return First(MobileNetV2Model(MobileNetV2Config()), ("pixel_values",)), (
        torch.randn(1, 3, 224, 224),
    )


def vision_transformer() -> Model:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768
    )
    return First(ViTModel(config), ("pixel_values",)), (torch.randn(1, 3, 224, 224),)


MORE: dict[str, Callable[[], Model]] = {
    "MobileNetV2": mobilenet,
    "vision transformer": vision_transformer,
}
"""Models on which runtimes differ, beside those of the executors."""


def build(name: str) -> Model:
    """A model in evaluation mode, and inputs for it."""
    if name in MODELS:
        return build_first(name)
    torch.manual_seed(0)
    model, inputs = MORE[name]()
    return model.eval().requires_grad_(False), inputs


def measure(name: str, backends: list[str], rounds: int, seconds: float) -> Ratios:
    """The ratio of each contender to eager, after a look at what each gives."""
    model, inputs = build(name)
    ir, weights = torch_ir.extract_ir(model, inputs), model.state_dict()
    runs: dict[str, Contender] = {"eager": lambda: model(*inputs)}
    for runtime, (package, alone) in ALONE.items():
        if find_spec(package) is None:
            continue
        try:
            with quietly():
                runs[f"{runtime} alone"] = alone(copy.deepcopy(model), inputs)
                runs[f"{runtime} alone"]()
        except Exception as error:  # noqa: BLE001  # what a runtime refuses has no figure
            runs.pop(f"{runtime} alone", None)
            print(f"{name}: {runtime} alone: {type(error).__name__}: {str(error)[:100]!r}")
    for backend in backends:
        made = torch_ir.compile(ir, weights, backend=backend, seconds=seconds)
        if backend == "auto":
            print(made.report())
        runs[backend] = _call(made, inputs)
    expected = copy.deepcopy(model)(*inputs)
    for runner, run in runs.items():
        got = run()
        off = float((got - expected).abs().max() / expected.abs().max())
        if off > 1e-3:
            print(f"{name}: {runner} is off by {off:.2g} of the largest number")
    return interleaved(runs, rounds)


def _call(made: Callable[..., object], inputs: Inputs) -> Contender:
    return lambda: made(*inputs)


def row(name: str, ratios: Ratios, backends: list[str]) -> str:
    """A row of the table."""
    alone = [ratios.get(f"{runtime} alone", math.nan) for runtime in ALONE]
    cells = [f"{ratio:.3f}" for ratio in (*alone, *[ratios[name] for name in backends])]
    return f"| {name} | {' | '.join(cells)} | {_against_best(ratios):.2f} |"


def _against_best(ratios: Ratios) -> float:
    best = min(ratio for name, ratio in ratios.items() if name.endswith(" alone"))
    return ratios.get("auto", math.nan) / best


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", default=[*MODELS, *MORE], metavar="MODEL")
    parser.add_argument("--backends", nargs="+", default=["aten", "auto"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=120.0)
    given = parser.parse_args()
    if unknown := set(given.models) - {*MODELS, *MORE}:
        parser.error(f"no models {sorted(unknown)}; there are {[*MODELS, *MORE]}")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found: dict[str, Ratios] = {}
    with torch.inference_mode():
        for name in given.models:
            found[name] = measure(name, given.backends, given.rounds, given.seconds)
            print(row(name, found[name], given.backends), flush=True)
    names = [*[f"{runtime} alone" for runtime in ALONE], *given.backends]
    print(f"\n| model | {' | '.join(names)} | auto / best alone |")
    print("|---" * (len(names) + 2) + "|")
    for name, ratios in found.items():
        print(row(name, ratios, given.backends))
    means = {n: _mean([ratios.get(n, math.nan) for ratios in found.values()]) for n in names}
    print(f"| geometric mean | {' | '.join(f'{means[name]:.3f}' for name in names)} | |")
    return 0


def _mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


if __name__ == "__main__":
    sys.exit(main())
