"""What a recurrent layer gives is found at the cost of two steps, however many it takes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest
import torch

import torch_ir
from torch_ir.infer.engine import evaluate
from torch_ir.infer.types import CallSignature, TensorType, contiguous

LAYERS = {
    "lstm": torch.nn.LSTM,
    "gru": torch.nn.GRU,
    "rnn_tanh": torch.nn.RNN,
    "rnn_relu": lambda *sizes, **options: torch.nn.RNN(*sizes, nonlinearity="relu", **options),
}


def calls_of_meta_kernels(run: Callable[[], object]) -> int:
    """How often torch's Python implementations are entered."""
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and "_prims" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def outcome(layer: torch.nn.Module, x: torch.Tensor) -> list[TensorType | None]:
    (node,) = [n for n in torch_ir.extract_ir(layer, (x,)).nodes if ".input" in n.op_type]
    types = tuple(contiguous(meta) for meta in node.inputs)
    return list(evaluate(CallSignature.of(node, types, {})).results)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_results_have_the_types_that_eager_gives(name: str, batch_first: bool) -> None:
    options = {"bidirectional": batch_first, "bias": not batch_first}
    layer = LAYERS[name](4, 3, num_layers=2, batch_first=batch_first, **options).eval()
    for steps in (1, 4):
        x = torch.rand((5, steps, 4) if batch_first else (steps, 5, 4))
        made, states = layer(x)
        expected = [made, *(states if isinstance(states, tuple) else (states,))]
        found = outcome(layer, x)
        types = [TensorType.of(tensor) for tensor in expected]
        if steps == 1:  # strides of a size of 1 say nothing
            found, types = ([without_strides(kind) for kind in kinds] for kinds in (found, types))
        assert found == types


def without_strides(kind: TensorType | None) -> TensorType | None:
    return None if kind is None else kind._replace(strides=())


def test_compiling_costs_the_same_for_every_length() -> None:
    layer, calls = torch.nn.GRU(4, 3).eval(), []
    for steps in (4, 9):
        ir = torch_ir.extract_ir(layer, (torch.rand(steps, 6, 4),))
        compiling = partial(torch_ir.compile_graph, ir, layer.state_dict())
        calls.append(calls_of_meta_kernels(compiling))
    assert calls[1] <= calls[0]
