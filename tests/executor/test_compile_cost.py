"""The work of a compilation grows with the program, not with its square: counted, not timed."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
import torch

from counting import calls_made
from torch_ir import IR, OpNode, TensorMeta, compile_graph
from torch_ir.errors import CompileError
from torch_ir.executor.codegen import function
from torch_ir.executor.codegen.source import write_source


def chain(length):
    """A chain in which every second node takes a weight of its own."""
    value = x = TensorMeta("x", (2,), "float32")
    nodes, weights = [], []
    for index in range(length):
        made = TensorMeta(f"y{index}", (2,), "float32", f"y{index}")
        if index % 2:
            weights.append(TensorMeta(f"w{index}", (2,), "float32"))
            nodes.append(OpNode(made.name, "aten.mul.Tensor", [value, weights[-1]], [made]))
        else:
            nodes.append(OpNode(made.name, "aten.relu.default", [value], [made]))
        value = made
    ir = IR(nodes, [x], [value], weights)
    return ir, {meta.name: torch.ones(2) for meta in weights}


class Counted(tuple):
    """A tuple that counts how often its items are looked at."""

    __slots__ = ()
    looks = 0

    def __iter__(self):
        for item in super().__iter__():
            type(self).looks += 1
            yield item


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch):
    monkeypatch.setattr(function, "NODES_PER_FUNCTION", 100)


def test_compilation_calls_functions_in_proportion_to_the_nodes():
    compile_graph(*chain(20))
    counts = [calls_made(lambda n=n: compile_graph(*chain(n))) for n in (300, 600, 1200)]
    first, second = counts[1] - counts[0], counts[2] - counts[1]
    assert second < 2.1 * first, counts


def test_weights_are_looked_at_in_proportion_to_their_number():
    looks = []
    for length in (300, 600, 1200):
        plan = compile_graph(*chain(length))._program.plan
        Counted.looks = 0
        write_source(replace(plan, external=Counted(plan.external)), torch.device("cpu"))
        looks.append(Counted.looks)
    assert looks[1] == 2 * looks[0]
    assert looks[2] == 2 * looks[1]


def test_a_compile_waits_for_no_collection_and_leaves_collecting_on():
    ir, weights = chain(1200)
    seen = []
    gc.callbacks.append(lambda phase, info: seen.append(phase))
    try:
        compile_graph(ir, weights)
        during = len(seen)
        with pytest.raises(CompileError):
            compile_graph(ir, {})
    finally:
        gc.callbacks.pop()
    assert gc.isenabled()
    assert during <= 4  # before and after the compile itself
