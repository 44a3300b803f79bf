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
from torch_ir.torch_api import SYMBOLIC_TYPES


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
        _type_parameters(runtime, model, program)
        _keep_order(runtime, model)
        return model


def _is_quantized(program: ExportedProgram) -> bool:
    """Whether a program has quantized numbers, and can be converted by way of ONNX."""
    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        return False
    targets = [str(node.target) for node in program.graph.nodes]
    return any(target.startswith("quantized_decomposed.") for target in targets)


def _type_parameters(runtime: Any, model: Any, program: ExportedProgram) -> None:
    """Say the sizes of the parameters, which the frontend leaves open, and which are numbers.

    A kernel of unknown sizes is chosen at each call, which takes longer than a small layer.
    """
    given = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    for parameter in model.get_parameters():
        value, sizes = given[parameter.get_friendly_name()], []
        if isinstance(value, torch.Tensor):
            sizes = [-1 if isinstance(size, SYMBOLIC_TYPES) else size for size in value.shape]
        elif parameter.partial_shape.rank.is_dynamic:
            is_whole = isinstance(value, torch.SymInt)
            parameter.set_element_type(getattr(runtime.Type, "i64" if is_whole else "f32"))
        parameter.set_partial_shape(runtime.PartialShape(sizes))
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
