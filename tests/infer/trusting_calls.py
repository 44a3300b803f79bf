"""Programs of one call, and calls in a child that may die."""

from __future__ import annotations

import itertools
import json
import os
import resource
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torch_ir import IR, OpNode, TensorMeta, compile_graph
from torch_ir.errors import CompileError, ExecutionError
from torch_ir.ir import DType
from torch_ir.ops.schema import lookup
from torch_ir.torch_api import overload


def eager(op_type: str, arguments: Mapping[str, Any]) -> Any:
    """What torch gives for a call where no gradients are recorded, as in a run."""
    schema = lookup(op_type)
    assert schema is not None
    names = [argument.name for argument in schema.arguments if not argument.keyword_only]
    leading = [*itertools.takewhile(arguments.__contains__, names)]  # which torch 2.15 renamed
    rest = {name: value for name, value in arguments.items() if name not in leading}
    with torch.no_grad():  # recurrent kernels are others where they are
        return overload(*op_type.split(".", 2))(*[arguments[name] for name in leading], **rest)


def program_of(
    op_type: str, arguments: Mapping[str, Any], results: Sequence[torch.Tensor | None] = ()
):
    """A program whose one node makes a call, and the tensors that it takes."""
    tensors: list[torch.Tensor] = []
    operands: dict[str, Any] = {}
    attrs: dict[str, Any] = {}

    def taken(tensor: torch.Tensor) -> int:
        tensors.append(tensor)
        return len(tensors) - 1

    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            operands[name] = taken(value)
        elif isinstance(value, list) and any(isinstance(item, torch.Tensor) for item in value):
            operands[name] = tuple([taken(item) for item in value])
        else:
            attrs[name] = DType(str(value)[6:]) if isinstance(value, torch.dtype) else value
    inputs = [TensorMeta(f"x{i}", tuple(t.shape), str(t.dtype)[6:]) for i, t in enumerate(tensors)]
    outputs = [
        TensorMeta(f"y.{i}", tuple(t.shape), str(t.dtype)[6:], "y", i)
        for i, t in enumerate(results)
        if t is not None
    ]
    node = OpNode("y", op_type, inputs, outputs, attrs, operands)
    return IR([node], inputs, outputs, [], dialect="aten"), tensors


def in_child(function: Callable[[], list[Any]]) -> list[Any]:
    """What a function returns that runs in a child; fails if the child dies."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with os.fdopen(writer, "w") as out:
            json.dump(function(), out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as given:
        text = given.read()
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"the child died of signal {os.WTERMSIG(status)}"
    return json.loads(text)


def refusals(
    op_type: str, arguments: Mapping[str, Any], results: Sequence[torch.Tensor] | None = None
) -> tuple[str, str]:
    """How a wrong call ends: when it is compiled with its types, and when it is run without."""
    schema = lookup(op_type)
    assert schema is not None
    made = results or [torch.empty(()) for result in schema.returns if result.type == "Tensor"]
    ir, tensors = program_of(op_type, arguments, made)
    return _end(ir, tensors, check_types=True), _end(ir, tensors, check_types=False)


def _end(ir: IR, tensors: Sequence[torch.Tensor], *, check_types: bool) -> str:
    try:
        compile_graph(ir, check_types=check_types).eval([t.clone() for t in tensors])
    except CompileError as error:
        return error.findings[0].code
    except ExecutionError as error:
        return f"refused: {error.message}" if error.node == "y" else str(error)
    return "ran"
