"""Profiles of a run: time, bytes and arithmetic operations of every node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from time import perf_counter_ns

import torch

from torch_ir.arguments import public
from torch_ir.debug.eager import same_random_numbers
from torch_ir.debug.report import NodeProfile, Profile
from torch_ir.errors import InvalidIRError
from torch_ir.executor import ExecGraph, compile_graph
from torch_ir.executor.inputs import require_values
from torch_ir.executor.listeners import Listener
from torch_ir.ir import IR, OpNode
from torch_ir.ir.functions import written_out
from torch_ir.ir.node import module_of, source_place
from torch_ir.ir.tensor import type_text
from torch_ir.ops.flops import LOOK_UPS, flops
from torch_ir.steps import steps
from torch_ir.torch_memory import fresh, storage_key


@public
def profile(graph: ExecGraph, inputs: Sequence[torch.Tensor], *, repeat: int = 20) -> Profile:
    """Measure each node of a compiled graph.

    One run finds what moves and what is computed. Then runs that nobody watches and runs with a
    watch on every node take turns. All runs start from the same inputs, buffers and random
    numbers; a graph that holds state is reset, before each run and at the end.

    Bytes are those of every operand once and of every result once. A view moves none, and a
    look-up reads what it takes of its table. For operations, see :mod:`torch_ir.ops.flops`.
    What runs inside a branch or a loop counts for the node that has it. Calls are written out: the
    nodes of a function are measured at each call, as ``layers_1.relu``.

    Args:
        graph: The graph; :func:`compile_graph` makes it.
        inputs: One tensor for each of its inputs.
        repeat: How many runs to take the medians of.

    Raises:
        InvalidIRError: ``repeat`` is less than one.
        ExecutionError: The program cannot be run.

    Example:
        >>> from torch_ir import compile_graph, parse
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   %y: f32[2] = aten.relu.default(%x)
        ...   return %y
        ... }''')
        >>> report = profile(compile_graph(ir), (torch.ones(2),), repeat=3)
        >>> report.nodes[0].bytes_read, report.nodes[0].bytes_written, report.nodes[0].flops
        (8, 8, 2)
    """
    if repeat < 1:
        raise InvalidIRError(f"a profile takes one run or more, got repeat={repeat}")
    require_values(graph.ir, inputs)
    graph = _flat(graph)
    facts = _Facts(graph.ir)
    _timed(graph, inputs, facts, reuse=False)
    watches = [_Stopwatch(graph.device) for _ in range(repeat)]
    plain: list[int] = []
    watched: list[int] = []
    _timed(graph, inputs, None)
    _timed(graph, inputs, _Stopwatch(graph.device))  # the first of each kind warms up
    for watch in steps(watches):
        plain.append(_timed(graph, inputs, None))
        watched.append(_timed(graph, inputs, watch))
    graph.reset()
    times = [median(runs) / 1e9 for runs in zip(*(w.times for w in watches), strict=True)]
    return Profile(
        model_name=graph.ir.model_name,
        nodes=tuple(replace(n, seconds=s) for n, s in zip(facts.found, times, strict=True)),
        repeat=repeat,
        threads=torch.get_num_threads(),
        device=str(graph.device),
        plain_seconds=median(plain) / 1e9,
        watched_seconds=median(watched) / 1e9,
    )


def _flat(graph: ExecGraph) -> ExecGraph:
    """The same graph with calls written out."""
    ir = written_out(graph.ir)
    if ir is graph.ir:
        return graph
    graph.reset()
    keys = ir.external_values()
    payload = {keys[name][0]: value for name, value in graph.payload.items() if name in keys}
    return compile_graph(ir, payload, device=graph.device, grad=graph.grad)


def _timed(
    graph: ExecGraph,
    inputs: Sequence[torch.Tensor],
    listener: Listener | None,
    *,
    reuse: bool = True,
) -> int:
    """The nanoseconds of one run."""
    graph.reset()
    given = fresh(tuple(inputs))
    wait = _waits_for(graph.device)
    with same_random_numbers():
        wait()
        start = perf_counter_ns()
        graph.run(given, {}, listener, reuse=reuse)
        wait()
        return perf_counter_ns() - start


def _waits_for(device: torch.device) -> Callable[[], object]:
    """What returns when a device has nothing left to do."""
    if device.type == "cpu":
        return _nothing
    return lambda: torch.accelerator.synchronize(device)


def _nothing() -> None:
    """The CPU is done when the call returns."""


class _Stopwatch:
    """Listener that takes the time of every node, in nanoseconds."""

    def __init__(self, device: torch.device):
        self.times: list[int] = []
        self._wait = _waits_for(device)
        self._start = 0

    def will_run(self, node: OpNode, inputs: Sequence[torch.Tensor]) -> None:
        """Start the watch."""
        self._wait()
        self._start = perf_counter_ns()

    def did_run(self, node: OpNode, outputs: Sequence[torch.Tensor]) -> None:
        """Stop the watch."""
        self._wait()
        self.times.append(perf_counter_ns() - self._start)


class _Facts:
    """Listener that finds what every node works with; its time is yet to come."""

    def __init__(self, ir: IR):
        self.found: list[NodeProfile] = []
        self._ir = ir
        self._inputs: list[torch.Tensor] = []

    def will_run(self, node: OpNode, inputs: Sequence[torch.Tensor]) -> None:
        """Keep the inputs until the outputs are there."""
        self._inputs = list(inputs)

    def did_run(self, node: OpNode, outputs: Sequence[torch.Tensor]) -> None:
        """Note types, bytes and operations."""
        inputs, self._inputs = self._inputs, []
        given, made = [[tuple(t.shape) for t in tensors] for tensors in (inputs, outputs)]
        read, written = _bytes_moved(self._ir, node, inputs, outputs)
        count = flops(node.op_type, node.arguments(given), made)
        self.found.append(
            NodeProfile(
                node=node.name,
                operator=node.op_type,
                module=module_of(node),
                location=source_place(node),
                inputs=tuple(map(type_text, inputs)),
                outputs=tuple(map(type_text, outputs)),
                seconds=0.0,
                bytes_read=read,
                bytes_written=written,
                flops=count,
                sources=tuple(
                    dict.fromkeys(m.producer_node for m in node.inputs if m.producer_node)
                ),
            )
        )


def _bytes_moved(
    ir: IR, node: OpNode, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> tuple[int, int]:
    """Bytes read and written; a result that shares the storage of an input is a view of it."""
    given = {storage_key(tensor) for tensor in inputs}
    is_written = bool(ir.effects(node).writes)
    made = [tensor for tensor in outputs if is_written or storage_key(tensor) not in given]
    if outputs and not made:
        return 0, 0
    written = sum(map(_size, made))
    sizes = list(map(_size, inputs))
    if node.op_type.rpartition(".")[0] in LOOK_UPS:
        sizes[0] = min(sizes[0], written)
    return sum(sizes), written


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
