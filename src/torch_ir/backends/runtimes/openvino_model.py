"""Programs as models of OpenVINO, by its own frontend, or by way of ONNX."""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import Any

import torch
from torch.export import ExportedProgram

from torch_ir.backends.runtimes.onnx_model import onnx_bytes
from torch_ir.backends.runtimes.rewrites import plain_attention, plain_truths
from torch_ir.quiet import quietly


def openvino_model(runtime: Any, program: ExportedProgram) -> Any:
    """Convert a program to a model that its CPU plugin takes.

    Args:
        runtime: The package.
        program: The program, functional.
    """
    with quietly():
        if _is_quantized(program):  # which its own frontend takes for floats
            return runtime.Core().read_model(io.BytesIO(onnx_bytes(program)))
        model = runtime.convert_model(plain_truths(plain_attention(program, is_grouped=False)))
        _type_numbers(runtime, model, program)
        _keep_order(runtime, model)
        return model


def _is_quantized(program: ExportedProgram) -> bool:
    """Whether a program has quantized numbers, and can be converted by way of ONNX."""
    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        return False
    targets = [str(node.target) for node in program.graph.nodes]
    return any(target.startswith("quantized_decomposed.") for target in targets)


def _type_numbers(runtime: Any, model: Any, program: ExportedProgram) -> None:
    """Say what the parameters are that are numbers: the frontend knows of tensors alone."""
    given = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    numbers = [p for p in model.get_parameters() if p.partial_shape.rank.is_dynamic]
    for parameter in numbers:
        is_whole = isinstance(given[parameter.get_friendly_name()], torch.SymInt)
        parameter.set_element_type(getattr(runtime.Type, "i64" if is_whole else "f32"))
        parameter.set_partial_shape(runtime.PartialShape([]))
    if numbers:
        model.validate_nodes_and_infer_types()


def _keep_order(runtime: Any, model: Any) -> None:
    """Let the largest elements, and what is sorted by them, have equal ones in their order.

    Kernels may choose among equal elements; what another choice gives cannot be compared.
    """
    for node in model.get_ops():
        if node.get_type_name() == "TopK":
            ways = node.get_attributes()
            order = "value" if ways["sort"] == "none" else ways["sort"]
            stable = runtime.opset11.topk(
                *(node.input_value(index) for index in range(2)),
                *(ways["axis"], ways["mode"], order, ways["index_element_type"]),
                stable=True,
            )
            for index in range(2):
                node.output(index).replace(stable.output(index))
