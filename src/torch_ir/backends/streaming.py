"""The runner of programs whose weights do not fit in memory: read by layer, dropped after use."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from torch_ir.errors import CompileError, ExecutionError
from torch_ir.executor import ExecGraph, compile_graph
from torch_ir.executor.codegen.run_time import in_copied_storage
from torch_ir.executor.inputs import (
    check_inputs,
    flatten_arguments,
    require_unwatched,
    results_of,
)
from torch_ir.executor.state import State
from torch_ir.executor.uncopied import Uncopied
from torch_ir.ir import IR, Mutation, OpNode
from torch_ir.ir.functions import LayerRun, function_key, function_of, layer_path
from torch_ir.ir.queries import (
    dead_after,
    external_keys,
    kept_values,
    last_uses,
    live_out,
    storage_ends,
)
from torch_ir.passes.cutting import blocked_cuts, is_border
from torch_ir.passes.inline import inline_functions
from torch_ir.passes.memory_plan.offsets import Piece, most_at_once
from torch_ir.torch_api import constant_tensors, storage_of
from torch_ir.torch_modes import untraced
from torch_ir.weights.stream import WeightStream

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_CPU = torch.device("cpu")
PIECES = 2
"""Steps whose weights are in memory at once: one that runs, and the next."""


def memory_bytes(memory: int | str) -> int:
    """Return a number of bytes; the units are powers of 1024.

    Raises:
        ExecutionError: It is no such number.

    Example:
        >>> memory_bytes("2GB"), memory_bytes("1.5 MiB"), memory_bytes(4096)
        (2147483648, 1572864, 4096)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]?)(?:i?B)?", str(memory).strip(), re.IGNORECASE)
    if found is None or isinstance(memory, bool):
        raise ExecutionError(
            f"{memory!r:.40} is no amount of memory", remedy='Write bytes, or text like "2GB".'
        )
    return int(float(found[1]) * UNITS[found[2].upper()])


@dataclass(frozen=True, slots=True)
class StreamStep:
    """Some nodes that run with their weights in memory.

    Attributes:
        body: Their program, which takes values and weights alike; one object for all that are
            equal but for names.
        path: The module path of the layer.
        takes: The names of the values that it takes, in order.
        gives: Likewise those that it gives.
        keys: The keys of the weights among what it takes, by name.
        dead: Values that nothing needs after it.
        last: The name of the last node.
    """

    body: IR
    path: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    keys: Mapping[str, str]
    dead: tuple[str, ...]
    last: str

    @property
    def weights(self) -> list[str]:
        """The keys of the weights that it reads, each once."""
        return [*dict.fromkeys(self.keys.values())]


class StreamingRunner(Uncopied):
    """A program that runs with a part of its weights in memory at any time.

    It is run layer by layer; while one runs, a thread reads the weights of the next. Equal layers
    are compiled once. Constants and the state of the program stay in memory; calls of a program
    that has some take turns, and where one fails between two writes the next asks for a reset.

    Args:
        ir: The program.
        weights: Its weights in safetensors files.
        memory: Bytes that weights, constants and values may take together.
        progress: Is called after each step with the bytes that are read, and those of all.
        device: Where it runs; weights are read into memory that it can copy from.

    Attributes:
        ir: The program.
        steps: The parts that it is run in.
        needed: Bytes of the constants, and of values at the step where they are most.
        peak: The most bytes of weights that were in memory at once.

    Raises:
        CompileError: It cannot be compiled, or the memory does not suffice.
    """

    def __init__(
        self,
        ir: IR,
        weights: WeightStream,
        memory: int,
        progress: Callable[[int, int], object] | None = None,
        device: torch.device = _CPU,
    ):
        self.ir = ir
        self.peak = 0
        self._flat = inline_functions(ir)
        self._stream = weights
        self._progress = progress
        self._device = device
        self._keys = external_keys(self._flat)
        constants = [key for key in self._keys.values() if key in self._flat.constants]
        made = constant_tensors(self._flat.constants, constants, device=device)
        self._state = State(self._flat, _FirstValues(self._keys, made, weights, device))
        fixed = {name: made[key] for name, key in self._keys.items() if key in made}
        self._kept = {**fixed, **self._state.tensors}
        distinct = {id(tensor): tensor for tensor in self._kept.values()}.values()
        self.needed = sum(t.nbytes for t in distinct) + _values_bytes(self._flat)
        self._budget = memory - self.needed
        self.steps = tuple(_steps(self._flat, self._keys, weights, self._kept, self._budget))
        self._require_room(memory)
        self._graphs: dict[int, ExecGraph] = {}
        for step in self.steps:
            if id(step.body) not in self._graphs:
                self._graphs[id(step.body)] = compile_graph(step.body, device=device)

    def __repr__(self) -> str:
        return f"StreamingRunner({self.ir.model_name!r}, {len(self.steps)} steps)"

    def _require_room(self, memory: int) -> None:
        largest = max(self.steps, key=lambda step: self._stream.room(step.weights))
        room = self._stream.room(largest.weights)
        if room > self._budget:
            raise CompileError(
                f"the program needs {self.needed + room:,} bytes of memory, of which {room:,} are "
                f"the weights of node {largest.last!r}; it may take {memory:,}",
                remedy=f"Give it memory={self.needed + room}, or twice the weights to read ahead.",
            )

    def reset(self) -> None:
        """Set the state of the program back to what it was at first."""
        self._state.reset()

    @untraced
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run with the model's own arguments; the result has the model's own structure.

        Raises:
            InputError: The arguments do not fit.
            WeightLoadError: A weight cannot be read.
            ExecutionError: A node cannot be run, and the message names it; or the call is
                transformed or traced.
        """
        require_unwatched("a program that streams its weights")
        inputs, given = flatten_arguments(self.ir, args, kwargs)
        if self._device != _CPU:
            inputs = tuple([tensor.to(self._device) for tensor in inputs])
        symbols = check_inputs(self.ir, inputs, self._device, given)
        self._state.require_outside()
        with self._state.in_turn():
            self._state.require_whole()
            outputs = self._run(dict(zip(self.ir.input_names, inputs, strict=True)))
        return results_of(self.ir, outputs, symbols)

    def _run(self, values: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The outputs for the inputs by name; the state is torn where it fails behind a write."""
        values |= self._kept
        has_written = False
        try:
            with ThreadPoolExecutor(1, "torch-ir weights") as reader, torch.no_grad():
                for step, tensors in self._with_weights(reader):
                    has_written |= bool(step.body.mutations)
                    values |= self._results(step, tensors, values)
                    del tensors
                    for name in step.dead:
                        values.pop(name, None)
                values |= self._unread(values)
                written = [m for m in self._flat.mutations if m.target != m.value.name]
                new = [values[mutation.value.name].clone() for mutation in written]
                has_written |= bool(written)
                for mutation, value in zip(written, new, strict=True):
                    values[mutation.target].copy_(value)
        except BaseException:  # an interrupt too
            if has_written:
                self._state.tear()
            raise
        return self._owned([values[name] for name in self._flat.output_names])

    def _results(
        self,
        step: StreamStep,
        tensors: Mapping[str, torch.Tensor],
        values: Mapping[str, torch.Tensor],
    ) -> dict[str, torch.Tensor]:
        own = {name: tensors[key] for name, key in step.keys.items()}
        given = [own[name] if name in own else values[name] for name in step.takes]
        results = self._graphs[id(step.body)].eval(given)
        kept = _kept(results, tensors) if self._device == _CPU else results
        return dict(zip(step.gives, kept, strict=True))

    def _unread(self, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The weights that no step reads and that are results, or new values of the state."""
        wanted = {*self._flat.output_names, *(m.value.name for m in self._flat.mutations)}
        names = sorted(wanted - values.keys())
        keys = [*dict.fromkeys([self._keys[name] for name in names])]
        _, read = self._read(keys, None, self._stream.room(keys))
        return {name: read[self._keys[name]] for name in names}

    def _owned(self, results: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The results, copied where they show the state, which the next call changes."""
        state = {storage_of(tensor) for tensor in self._state.tensors.values()}
        shown = [i for i, result in enumerate(results) if state and storage_of(result) in state]
        copies = in_copied_storage([results[i] for i in shown])
        owned = dict(zip(shown, copies, strict=True))
        return tuple([owned.get(i, result) for i, result in enumerate(results)])

    def _with_weights(
        self, reader: ThreadPoolExecutor
    ) -> Iterator[tuple[StreamStep, dict[str, torch.Tensor]]]:
        """Yield each step with its weights; those of the next are read meanwhile if they fit."""
        rooms = [self._stream.room(step.weights) for step in self.steps]
        total, done = sum(rooms), 0
        spare: torch.Tensor | None = None
        future: Future[tuple[torch.Tensor, dict[str, torch.Tensor]]] | None = None

        def start(number: int) -> Future[tuple[torch.Tensor, dict[str, torch.Tensor]]]:
            nonlocal spare
            fits = spare is not None and len(spare) >= rooms[number]
            buffer, spare = spare if fits else None, None
            return reader.submit(self._read, self.steps[number].weights, buffer, rooms[number])

        for number, step in enumerate(self.steps):
            buffer, tensors = (future or start(number)).result()
            future = None
            ahead = 0
            if number + 1 < len(rooms):
                fits = spare is not None and len(spare) >= rooms[number + 1]
                ahead = len(spare) if fits and spare is not None else rooms[number + 1]
                ahead = ahead if len(buffer) + ahead <= self._budget else 0
            if ahead or (number + 1 < len(rooms) and not rooms[number + 1]):
                future = start(number + 1)
            else:
                spare = None
            self.peak = max(self.peak, len(buffer) + ahead)
            yield step, tensors
            del tensors
            spare = buffer
            done += rooms[number]
            if self._progress is not None:
                self._progress(done, total)

    def _read(
        self, keys: Sequence[str], buffer: torch.Tensor | None, room: int
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        if buffer is None:
            pinned = self._device.type == "cuda"
            buffer = torch.empty(room, dtype=torch.uint8, pin_memory=pinned)
        read = self._stream.read(keys, buffer)
        if self._device == _CPU:
            return buffer, read
        return buffer, {key: tensor.to(self._device) for key, tensor in read.items()}


def _kept(
    results: Sequence[torch.Tensor], weights: Mapping[str, torch.Tensor]
) -> list[torch.Tensor]:
    """The results of a step, copied where they lie in the memory of its weights."""
    buffers = {storage_of(tensor) for tensor in weights.values()}
    return [tensor.clone() if storage_of(tensor) in buffers else tensor for tensor in results]


class _FirstValues(Mapping[str, torch.Tensor]):
    """The tensors of a program by the names that nodes use: constants, and weights read anew."""

    def __init__(
        self,
        keys: Mapping[str, str],
        constants: Mapping[str, torch.Tensor],
        weights: WeightStream,
        device: torch.device,
    ):
        self._keys, self._constants = keys, constants
        self._weights, self._device = weights, device

    def __getitem__(self, name: str) -> torch.Tensor:
        key = self._keys[name]
        if key in self._constants:
            return self._constants[key]
        buffer = torch.empty(self._weights.room([key]), dtype=torch.uint8)
        return self._weights.read([key], buffer)[key].to(self._device)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _values_bytes(ir: IR) -> int:
    """The bytes of the values that live at once, where they are most; without symbolic sizes."""
    sizes = {meta.name: meta.nbytes or 0 for node in ir.nodes for meta in node.outputs}
    sizes |= {meta.name: meta.nbytes or 0 for meta in ir.graph_inputs}
    births = {meta.name: step for step, node in enumerate(ir.nodes) for meta in node.outputs}
    last = last_uses(ir.nodes, ir.output_names)
    deaths = storage_ends(last, {name: ir.aliases.roots(name) for name in last})
    return most_at_once(
        Piece(name, size, births.get(name, 0), deaths.get(name, 0))
        for name, size in sizes.items()
        if name in ir.aliases.roots(name)
    )


def _runs(ir: IR, rooms: Mapping[str, int], budget: int) -> Iterator[tuple[int, Sequence[OpNode]]]:
    """Nodes that run together: those of a layer, or fewer where its weights take too much."""
    blocked = blocked_cuts(ir)
    start, held = 0, dict[str, int]()
    for position, node in enumerate(ir.nodes):
        new = {m.name: rooms[m.name] for m in node.inputs if m.name in rooms}
        is_full = sum({**held, **new}.values()) > budget // PIECES
        if start < position and position not in blocked and (is_full or is_border(ir, position)):
            yield start, ir.nodes[start:position]
            start, held = position, {}
        held |= new
    if start < len(ir.nodes):
        yield start, ir.nodes[start:]


def _steps(
    ir: IR,
    keys: Mapping[str, str],
    weights: WeightStream,
    kept: Mapping[str, torch.Tensor],
    budget: int,
) -> Iterator[StreamStep]:
    streamed = {name: key for name, key in keys.items() if name not in kept}
    rooms = {name: weights.room([key]) for name, key in streamed.items()}
    bodies: dict[Hashable, IR] = {}
    dead = dead_after(ir.nodes, kept_values(ir).union(ir.input_names, keys))
    for start, nodes in _runs(ir, rooms, budget):
        path = layer_path(next((n.location.module for n in nodes if n.location), ""))
        run = LayerRun(start, tuple(nodes), path)
        if run.symbols:
            raise CompileError(
                f"node {nodes[0].name!r} needs the size {run.symbols[0]}, which no value shows",
                remedy="Run the program without memory=, or extract it with fixed sizes.",
            )
        results = live_out(ir, nodes)
        body = _writing(function_of(ir, run, results))
        body = bodies.setdefault(function_key(body, path), body)
        takes = tuple([meta.name for meta in run.operands])
        yield StreamStep(
            body,
            path,
            takes,
            tuple([meta.name for meta in results]),
            {name: streamed[name] for name in takes if name in streamed},
            tuple(sorted([name for node in nodes for name in dead.get(node.name, ())])),
            nodes[-1].name,
        )


def _writing(body: IR) -> IR:
    """A body that says what it writes of what it takes."""
    written = [meta for meta in body.graph_inputs if meta.name in body.aliases.written]
    return body.replace(mutations=[Mutation(meta.name, meta) for meta in written])
