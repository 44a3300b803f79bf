"""Values that torch made of a program, kept for the next comparison of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import NamedTuple

import torch

from torch_ir.debug.comparing.sources import Symbols, TorchSource, Values
from torch_ir.debug.judging.storages import view_of
from torch_ir.debug.reference.eager_call import bind
from torch_ir.ir import IR, OpNode
from torch_ir.ir.expressions import Number
from torch_ir.passes.common_subexpressions import is_repeatable
from torch_ir.torch_memory import has_plain_data, storage_key

KEPT = 128 << 20
"""Bytes of values that are kept for what comes later; more are freed after their last use."""


class MadeCall(NamedTuple):
    """What a node made.

    Attributes:
        given: The very tensors that it took, in order.
        numbers: The symbols of the node.
        made: Its results by name.
    """

    given: tuple[torch.Tensor, ...]
    numbers: Mapping[str, Number | None]
    made: dict[str, torch.Tensor]


@dataclass
class Kept:
    """Values of a program.

    Each node was called on the values that it reads here. Where its results are moved, another
    program's are in their place, from which they may differ by what was allowed.

    Attributes:
        values: What is fed to whatever reads it, by name; not of every node.
        moved: Names of values that their own node did not make of these.
        calls: The calls of nodes that made something else, as far as they are known.
    """

    values: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    moved: set[str] = field(default_factory=set[str])
    calls: dict[str, MadeCall] = field(default_factory=dict[str, MadeCall])

    def add(self, node: OpNode, values: Mapping[str, torch.Tensor], call: MadeCall | None) -> None:
        """Keep what is fed in the place of a node's results, and its call if that differs."""
        self.values |= values
        if call is None or any(values[name] is not made for name, made in call.made.items()):
            self.moved |= values.keys()
            if call is not None:
                self.calls[node.name] = call

    def fitting(self, ir: IR, given: Iterable[torch.Tensor]) -> Kept:
        """Return the values of inputs, and those of nodes that fit in the memory to keep them.

        Args:
            ir: The program.
            given: Weights and constants, which are in memory anyway.
        """
        found, size = Kept({n: self.values[n] for n in ir.input_names if n in self.values}), 0
        seen = storages_of((*given, *found.values.values()))
        for node in ir.nodes:
            made = {m.name: self.values[m.name] for m in node.outputs if m.name in self.values}
            if len(made) < len(node.outputs):
                continue
            call = self.calls.get(node.name)
            size += new_bytes([*made.values(), *(call.made.values() if call else ())], seen)
            if size > KEPT:
                break
            found.values |= made
            found.moved |= self.moved & made.keys()
            found.calls |= {} if call is None else {node.name: call}
        return found


def memory_of(ir: IR, values: Values) -> dict[str, int]:
    """Return how much memory the values of nodes take, by name; views take none."""
    seen = storages_of(values[name] for name in ir.input_names if name in values)
    names = [meta.name for node in ir.nodes for meta in node.outputs if meta.name in values]
    return {name: new_bytes([values[name]], seen) for name in names}


def storages_of(tensors: Iterable[torch.Tensor]) -> set[int]:
    """Return what tells the storages of tensors from others."""
    return {storage_key(tensor) for tensor in tensors}


def new_bytes(made: Iterable[torch.Tensor], seen: set[int]) -> int:
    """Return how much memory tensors take beside the storages seen, and see theirs too."""
    total = 0
    for tensor in made:
        if (key := storage_key(tensor)) not in seen:
            seen.add(key)
            total += tensor.untyped_storage().nbytes() if has_plain_data(tensor) else tensor.nbytes
    return total


def is_laid_out_alike(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether no operator can tell two tensors of equal elements from each other."""
    if not (has_plain_data(tensor) and has_plain_data(other)) or tensor.dtype != other.dtype:
        return False
    sizes = [item.untyped_storage().nbytes() for item in (tensor, other)]
    flags = [(item.is_conj(), item.is_neg()) for item in (tensor, other)]
    return view_of(tensor) == view_of(other) and sizes[0] == sizes[1] and flags[0] == flags[1]


@dataclass
class Room:
    """The memory for values that are kept during a comparison.

    Attributes:
        held: How many bytes are kept.
        calls: The last call of each node of the judged program, as long as there is room.
        recorded: How many of the bytes these have made.
        is_short: Whether there was too little: then no calls are kept.
    """

    held: int = 0
    calls: dict[str, MadeCall] = field(default_factory=dict[str, MadeCall])
    recorded: int = 0
    is_short: bool = False

    @property
    def is_full(self) -> bool:
        """Whether values are to be freed, with calls the first to go."""
        if self.held > KEPT and not self.is_short:
            self.is_short = True
            self.calls.clear()
            self.held -= self.recorded
        return self.held > KEPT

    def record(self, name: str, call: MadeCall) -> None:
        """Keep a call of a node if there is room for what it made."""
        size = 0 if self.is_short else new_bytes(call.made.values(), storages_of(call.given))
        self.held += size
        self.recorded += size
        if not (self.is_full or self.is_short):
            self.calls[name] = call


@dataclass(frozen=True)
class RecordingSource(TorchSource):
    """torch's operators; a call on the very tensors of the node's last call is not made again.

    Attributes:
        room: The memory for the calls.
    """

    room: Room = field(default_factory=Room)

    def results(
        self, program: IR, node: OpNode, values: Values, symbols: dict[str, Number]
    ) -> dict[str, torch.Tensor]:
        """Return what torch makes of one node, by name, and note what it binds."""
        given = tuple([values[meta.name] for meta in node.inputs])
        last = self.room.calls.get(node.name)
        if last is not None and _is_again(last, given, symbols):
            results = {m.producer_output_idx: last.made[m.name] for m in node.outputs}
            bind(node, results, symbols)
            return dict(last.made)
        numbers = {name: symbols.get(name) for name in node.symbols}
        made = super().results(program, node, values, symbols)
        if is_repeatable(program, node):
            self.room.record(node.name, MadeCall(given, numbers, dict(made)))
        return made


def _is_again(last: MadeCall, given: Sequence[torch.Tensor], symbols: Symbols) -> bool:
    return all(map(is_, last.given, given)) and all(
        symbols.get(name) == number for name, number in last.numbers.items()
    )
