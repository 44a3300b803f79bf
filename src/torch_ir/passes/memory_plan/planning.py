"""Memory plans: the place of every value of a program in one arena, and the arena's size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from torch_ir.arguments import public
from torch_ir.errors import PassError, counted, printable
from torch_ir.frozen import FrozenDict
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.aliases import declared_sources
from torch_ir.ir.diagnostics import at
from torch_ir.ir.dtypes import DTYPES
from torch_ir.ir.queries import kept_values, last_uses
from torch_ir.ops.aliases import KEEP_ORDER, Sharing
from torch_ir.ops.spec import tagged_traits
from torch_ir.passes.memory_plan.bounds import upper_bound
from torch_ir.passes.memory_plan.offsets import Piece, least_arena, overlapping
from torch_ir.passes.memory_plan.packing import spread
from torch_ir.passes.memory_plan.scheduling import scheduled
from torch_ir.passes.requirements import require_functional
from torch_ir.tables import Shown, report_text

_NEVER_IN_PLACE = frozenset({"aten.clone.default"})


MAX_ROWS = 16
"""So many pieces are listed for people; the others are summed."""
MAX_VALUES = 4
"""So many values of a piece are named."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """A piece of the arena.

    Attributes:
        name: The value for which it is made, or ``NODE/workspace`` for what the functions that a
            node calls need while they run.
        node: The node that makes it; empty for an input of the program.
        offset: Its first byte.
        size: Its bytes, at the upper bounds of symbolic sizes.
        birth: The position of the first node during which it is needed.
        death: That of the last one; the number of nodes for what is needed after the program.
        values: All values that lie in it: the first, its views, and results that take its place.
        bank: The bank that it lies in; empty where there is one arena.
    """

    name: str
    node: str
    offset: int
    size: int
    birth: int
    death: int
    values: tuple[str, ...]
    bank: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Convert the allocation to plain values."""
        names = ("name", "node", "offset", "size", "birth", "death")
        bank = {"bank": self.bank} if self.bank else {}
        return {**{n: getattr(self, n) for n in names}, "values": list(self.values), **bank}


@dataclass(frozen=True, slots=True)
class MemoryPlan(Shown):
    """One arena for all that a program computes.

    Weights, constants and buffers are outside of it: they overlap nothing.

    Attributes:
        ir: The program, its nodes in the order that is planned.
        allocations: The pieces, by birth and name.
        size: Bytes of the arena; of all banks together.
        lower_bound: The bytes that are needed at one time, with what aligned offsets waste: no
            arena is smaller.
        alignment: What every offset is a multiple of.
        live: The bytes that are needed during each node.
        banks: The bytes that are used of each bank, where there are some.
    """

    ir: IR
    allocations: tuple[Allocation, ...] = field(repr=False)
    size: int
    lower_bound: int
    alignment: int
    live: tuple[int, ...] = field(repr=False)
    banks: Mapping[str, int] = FrozenDict()

    @property
    def peak(self) -> OpNode | None:
        """The first node during which most bytes are needed; None without nodes."""
        return self.ir.nodes[self.live.index(max(self.live))] if self.live else None

    def at(self, node: OpNode) -> tuple[Allocation, ...]:
        """Return the allocations that are live during a node, the largest first."""
        step = [other.name for other in self.ir.nodes].index(node.name)
        found = [a for a in self.allocations if a.birth <= step <= a.death]
        return tuple(sorted(found, key=lambda a: (-a.size, a.offset, a.name)))

    def to_dict(self) -> dict[str, Any]:
        """Convert the plan to plain values."""
        peak = self.peak
        place = None if peak is None else peak.location
        return {
            "model": self.ir.model_name,
            "size": self.size,
            "lower_bound": self.lower_bound,
            "alignment": self.alignment,
            **({"banks": dict(self.banks)} if self.banks else {}),
            "peak": {
                "node": "" if peak is None else peak.name,
                "location": "" if place is None else str(place),
                "allocations": [] if peak is None else [a.name for a in self.at(peak)],
            },
            "nodes": [
                {"node": node.name, "operator": node.op_type, "live": live}
                for node, live in zip(self.ir.nodes, self.live, strict=True)
            ],
            "allocations": [allocation.to_dict() for allocation in self.allocations],
        }

    def _picture(self) -> str:
        from torch_ir.viz.plots import plot

        return plot(self).svg

    def table(self) -> str:
        """Format the plan, a line for each node: live bytes, and what it makes where."""
        made: dict[str, list[str]] = {}
        for allocation in self.allocations:
            text = f"{allocation.offset:,}+{allocation.size:,} %{allocation.name}"
            made.setdefault(allocation.node, []).append(text)
        lines = [f"{'live':>15}  node"]
        for node, live in zip(self.ir.nodes, self.live, strict=True):
            pieces = ", ".join(made.get(node.name, ())) or "nothing new"
            lines.append(f"{live:>15,}  {node.name} ({node.op_type}): {pieces}")
        return "\n".join(map(printable, lines))

    def __str__(self) -> str:
        more = self.size - self.lower_bound
        share = f"{more / self.lower_bound:.1%} more" if self.lower_bound else "nothing more"
        lines = [
            f"{self.ir.model_name or 'the program'}: an arena of {self.size:,} bytes for "
            f"{counted(len(self.allocations), 'piece')}, aligned to {self.alignment}",
            f"no arena is smaller than {self.lower_bound:,} bytes"
            + (f"; this one has {share}" if more else "; this one is as small"),
            *[f"{bank}: {size:,} bytes" for bank, size in self.banks.items()],
        ]
        peak = self.peak
        if peak is not None:
            place = at(peak.location, " {}")
            lines += ["", f"most is needed during {peak.name} ({peak.op_type}){place}"]
            live = self.at(peak)
            for allocation in live[:MAX_ROWS]:
                values = ", ".join(f"%{value}" for value in allocation.values[:MAX_VALUES])
                more = len(allocation.values) - MAX_VALUES
                values += f" and {more} more" if more > 0 else ""
                bank = f" of {allocation.bank}" if allocation.bank else ""
                lines.append(
                    f"{allocation.size:>15,}  at {allocation.offset:>13,}{bank}  {values}"
                )
            if left := live[MAX_ROWS:]:
                size = sum(allocation.size for allocation in left)
                lines.append(f"{size:>15,}  in {counted(len(left), 'more piece')}")
        return report_text(lines)


@public
def plan_memory(
    ir: IR,
    *,
    alignment: int = 64,
    inputs: bool = False,
    outputs: bool = True,
    in_place: bool = True,
    capacity: int | Mapping[str, int] | None = None,
    reorder: bool = False,
) -> MemoryPlan:
    """Give every value that a program makes a place in one arena.

    A view lies in what it shows. A result of a pointwise operator takes the place of an operand of
    the same shape that nothing needs any more. Whether ``reshape`` and its like copy is decided
    by the plan: they do where the elements do not lie one after the other. Functions that a node
    calls have an arena of their own within this one while they run. Symbolic sizes count with
    their upper bounds. The plan depends on nothing but the program and the options.

    Args:
        ir: A functional program; it does not change.
        alignment: What every offset is a multiple of, in bytes.
        inputs: Whether the inputs of the program lie in the arena too.
        outputs: Whether its outputs do.
        in_place: Whether results may take the place of operands.
        capacity: The bytes that the arena may have. Where best fit needs more, a search looks for
            offsets that fit, for up to a minute. Or the bytes of several banks by name, the
            preferred first: what does not fit in one lies in the next.
        reorder: Whether nodes may come in another order, where that lowers what is needed at one
            time; ``plan.ir`` has it.

    Raises:
        PassError: A node writes to memory or uses what nothing made, a size has no upper bound,
            the alignment is not positive, or the values do not fit in the capacity.

    Example:
        >>> from torch_ir import parse
        >>> plan = plan_memory(parse('''ir "Net" {
        ...   input %x: f32[8, 16]
        ...   input %w: f32[16, 4]
        ...   %a: f32[8, 4] = aten.mm.default(%x, %w)
        ...   %b: f32[8, 4] = aten.relu.default(%a)
        ...   %c: f32[32] = aten.view.default(%b, size=[32])
        ...   return %c
        ... }'''))
        >>> plan.size, plan.lower_bound, plan.allocations[0].values
        (128, 128, ('a', 'b', 'c'))
    """
    if not (alignment >= 1 and alignment % 1 == 0):
        raise PassError(f"the alignment of a memory plan is a positive integer, got {alignment}")
    require_functional(ir, "a memory plan", ordered=True)
    options = {"alignment": alignment, "in_place": in_place}
    ir, storages = _ordered(ir, options, reorder, inputs=inputs, outputs=outputs)
    return _planned(ir, storages, alignment, capacity)


def _planned(
    ir: IR,
    storages: list[_Storage],
    alignment: int,
    capacity: int | Mapping[str, int] | None,
) -> MemoryPlan:
    pieces = [*map(_piece, storages)]
    banks = capacity if isinstance(capacity, Mapping) else {"": capacity}
    for given in banks.values():
        if given is not None and given < 0:
            raise PassError(f"the capacity of an arena is not negative, got {given}")
    allocations = _allocations(storages, spread(pieces, alignment, banks))
    used = {
        bank: max([a.offset + a.size for a in allocations if a.bank == bank], default=0)
        for bank in banks
    }
    live = _live(pieces, len(ir.nodes))
    return MemoryPlan(
        ir,
        tuple(sorted(allocations, key=lambda a: (a.birth, a.name))),
        sum(used.values()),
        least_arena(pieces, alignment if len(banks) == 1 else 1),
        alignment,
        live,
        FrozenDict(used if isinstance(capacity, Mapping) else {}),
    )


def _ordered(
    ir: IR, options: Mapping[str, Any], reorder: bool, *, inputs: bool, outputs: bool
) -> tuple[IR, list[_Storage]]:
    """Return the program in the order that is planned, and what has memory of its own."""
    storages = _Storages(ir, options, inputs=inputs, outputs=outputs).found()
    if not reorder:
        return ir, storages
    apart = _Storages(ir, {**options, "in_place": False}, inputs=False, outputs=True).found()
    other = scheduled(ir, [(s.size, s.values) for s in apart])
    found = _Storages(other, options, inputs=inputs, outputs=outputs).found()
    least, now = [
        least_arena(map(_piece, stored), options["alignment"]) for stored in (found, storages)
    ]
    return (other, found) if least < now else (ir, storages)


def _piece(storage: _Storage) -> Piece:
    return Piece(storage.name, storage.size, storage.birth, storage.death)


def _allocations(
    storages: list[_Storage], places: Mapping[str, tuple[str, int]]
) -> list[Allocation]:
    """Return the pieces at their places, proven to share no byte while they are needed."""
    found = [
        Allocation(s.name, s.node, at, s.size, s.birth, s.death, tuple(s.values), bank)
        for s in storages
        for bank, at in [places[s.name]]
    ]
    for bank in {a.bank for a in found}:
        inside = [a for a in found if a.bank == bank]
        pieces = [Piece(a.name, a.size, a.birth, a.death) for a in inside]
        for one, other in overlapping(pieces, {a.name: a.offset for a in inside}):
            raise PassError(
                f"the plan puts %{one} and %{other} in one place",
                remedy="This is a fault of torch-ir: please report it with the program.",
            )
    return found


def _live(pieces: list[Piece], steps: int) -> tuple[int, ...]:
    changes = [0] * (steps + 2)
    for piece in pieces:
        changes[piece.birth] += piece.size
        changes[piece.death + 1] -= piece.size
    return tuple(accumulate(changes))[:steps]


# -- storages -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Storage:
    """Memory of its own, and the values that lie in it."""

    name: str
    node: str
    size: int
    birth: int
    death: int
    values: list[str] = field(default_factory=list[str])


class _Storages:
    """One walk over a program: what has memory of its own, and for how long."""

    def __init__(
        self,
        ir: IR,
        options: Mapping[str, Any],
        *,
        inputs: bool,
        outputs: bool,
    ):
        self.ir = ir
        self.options = options
        self.function_sizes: dict[str, int] = {}
        self.outputs = outputs
        self.all: list[_Storage] = []
        self.of: dict[str, _Storage | None] = {}  # None: outside of the arena
        self.dense: set[str] = set()  # the values that are all of their memory, in order
        targets = [mutation.target for mutation in self.ir.mutations]
        self.last_use = last_uses(self.ir.nodes, [*kept_values(self.ir), *targets])
        for meta in ir.graph_inputs:
            self._put(meta.name, self._new(meta, "", 0) if inputs else None, 0)
        for name in ir.external_values():
            self._put(name, None, 0)
        self.dense.update(self.of)

    def found(self) -> list[_Storage]:
        """Everything that has memory of its own in the arena."""
        for step, node in enumerate(self.ir.nodes):
            workspace = max([self._size_of_function(name) for name in node.functions], default=0)
            if workspace:
                name = f"{node.name}/workspace"
                self.all.append(_Storage(name, node.name, workspace, step, step, [name]))
            for meta in node.outputs:
                self._define(node, meta, step)
        return self.all if self.outputs else self._without_outputs()

    def _new(self, meta: TensorMeta, node: str, step: int) -> _Storage:
        size = DTYPES[meta.dtype].itemsize * math.prod(self._sizes(meta, node))
        storage = _Storage(meta.name, node, size, step, step)
        self.all.append(storage)
        return storage

    def _sizes(self, meta: TensorMeta, node: str) -> Iterator[int]:
        for dim in meta.shape:
            try:
                yield upper_bound(dim, self.ir.symbols)
            except PassError as error:
                maker = self.ir.by_name.get(node)
                where = None if maker is None or maker.location is None else maker.location
                raise PassError(
                    f"%{meta.name}: {error.message}",
                    picture=at(where) or None,
                    remedy=error.remedy,
                ) from None

    def _define(self, node: OpNode, meta: TensorMeta, step: int) -> None:
        shown = self._shown(node, meta)
        if shown is not None:
            storage = self.of[shown.name]
            if shown.name in self.dense and node.op_type in KEEP_ORDER:
                self.dense.add(meta.name)
        else:
            storage = self._in_place(node, meta, step) or self._new(meta, node.name, step)
            self.dense.add(meta.name)
        self._put(meta.name, storage, step)

    def _put(self, value: str, storage: _Storage | None, step: int) -> None:
        """Let a value lie in a storage from a step on."""
        self.of[value] = storage
        if storage is not None:
            storage.values.append(value)
            storage.death = max(storage.death, step, self.last_use.get(value, step))

    def _shown(self, node: OpNode, meta: TensorMeta) -> TensorMeta | None:
        """The input whose memory a result shows; None if it has its own.

        What only a call can decide is planned as a copy. Complex numbers show none: views of them
        may be conjugated when they are read.
        """
        schema = self.ir.schema_of(node.op_type)
        index = meta.producer_output_idx
        sources = [] if schema is None else declared_sources(schema, node, index)
        inputs = {source.meta.name: (source.meta, source.when) for source in sources}
        if len(inputs) != 1:
            return None
        ((shown, kind),) = inputs.values()
        if kind is Sharing.BY_VALUE or "complex" in f"{shown.dtype} {meta.dtype}":
            return None
        if kind is Sharing.ALWAYS:
            return shown
        return shown if shown.name in self.dense and shown.dtype == meta.dtype else None

    def _in_place(self, node: OpNode, meta: TensorMeta, step: int) -> _Storage | None:
        """The memory of an operand that a result may take the place of.

        Element for element, the result replaces what it is computed from.
        """
        if not self.options["in_place"] or len(node.outputs) != 1:
            return None
        if "pointwise" not in tagged_traits(node.op_type) or node.op_type in _NEVER_IN_PLACE:
            return None
        width = DTYPES[meta.dtype].itemsize
        for operand in node.inputs:
            storage = self.of[operand.name]
            fits = operand.shape == meta.shape and DTYPES[operand.dtype].itemsize == width
            if storage is None or not fits:
                continue
            shown = [m.name for m in node.inputs if self.of[m.name] is storage]
            in_order = all(name in self.dense for name in shown)
            if storage.death == step and in_order:
                return storage
        return None

    def _size_of_function(self, name: str) -> int:
        """The arena of a function that lies in this one while it runs."""
        if name not in self.function_sizes:
            body = self.ir.functions[name]
            body = body.replace(symbols={**self.ir.symbols, **body.symbols})
            self.function_sizes[name] = plan_memory(body, **self.options).size
        return self.function_sizes[name]

    def _without_outputs(self) -> list[_Storage]:
        returned = set(self.ir.output_names)
        return [s for s in self.all if returned.isdisjoint(s.values)]
