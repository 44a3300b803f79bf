"""The cost of a program: operations, bytes and roofline time, without a run or torch.

The counts are those of :func:`torch_ir.profile` for the same sizes: of operations the formulas of
:mod:`torch_ir.ops.flops`, of bytes each operand once and each result once. A view moves nothing,
and a look-up reads its rows, not its table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import prod
from typing import Any, ClassVar, cast

from torch_ir.arguments import public
from torch_ir.errors import InvalidIRError, counted, printable
from torch_ir.ir.aliases import declared_sources, possible_sources
from torch_ir.ir.analysis.calibrations import Calibration
from torch_ir.ir.analysis.groups import Grouped
from torch_ir.ir.analysis.layouts import (
    Layout,
    Shape,
    is_contiguous,
    node_layouts,
    viewed,
)
from torch_ir.ir.analysis.workloads import Workload, workload
from torch_ir.ir.dtypes import DTYPES
from torch_ir.ir.functions import written_out
from torch_ir.ir.graph import IR
from torch_ir.ir.node import OpNode, module_of, source_place
from torch_ir.ir.queries import require_symbols, symbols_in
from torch_ir.ir.symbols import SymExpr, shape_at
from torch_ir.ir.tensor import Constant, TensorMeta
from torch_ir.ir.values import row_major
from torch_ir.ops.aliases import Sharing
from torch_ir.ops.flops import LOOK_UPS, flops
from torch_ir.tables import Rows, bytes_text, number_text, report_text, table, time_text


@dataclass(frozen=True, slots=True)
class NodeCost:
    """What one node costs.

    Attributes:
        node: Its name.
        operator: The exact overload.
        module: Path of the module that made the call; empty for the root.
        location: The user's source line, or the empty string.
        flops: Arithmetic operations, or None if no formula is known.
        bytes_read: Bytes of the elements that it reads.
        bytes_written: Bytes of the elements that it writes; a view reads and writes none.
        intensity: Operations for each byte; None where they are unknown or it moves no bytes.
        seconds: The greater of operations by peak and bytes by bandwidth, at least, or what a
            calibration says; None where none was given.
        bound: ``"compute"`` where the first is greater, else ``"memory"``; empty without seconds.
    """

    node: str
    operator: str
    module: str
    location: str
    flops: int | None
    bytes_read: int
    bytes_written: int
    intensity: float | None
    seconds: float | None
    bound: str


@dataclass(frozen=True, slots=True)
class CostGroup:
    """Some nodes together; operations and seconds are at least these where ``unknown`` is not 0.

    Attributes:
        name: What they have in common.
        nodes: How many they are.
        flops: Operations of those whose number is known.
        bytes: Bytes that they read and write.
        seconds: Their time, or None.
        unknown: How many have no known number of operations.
    """

    name: str
    nodes: int
    flops: int
    bytes: int
    seconds: float | None
    unknown: int


@dataclass(frozen=True, slots=True)
class Cost(Grouped[NodeCost, CostGroup]):
    """What a program costs.

    Attributes:
        model_name: Name of the program.
        nodes: Every node, in program order.
        peak_flops: Operations per second, if given.
        bandwidth: Bytes per second, if given.
    """

    noun: ClassVar[str] = "a cost"

    model_name: str
    nodes: tuple[NodeCost, ...] = field(repr=False)
    peak_flops: float | None = None
    bandwidth: float | None = None

    @property
    def flops(self) -> int:
        """Operations of the nodes whose number is known."""
        return sum(node.flops or 0 for node in self.nodes)

    @property
    def unknown(self) -> int:
        """How many nodes have no known number of operations."""
        return sum(node.flops is None for node in self.nodes)

    @property
    def bytes(self) -> int:
        """Bytes that all nodes read and write."""
        return sum(node.bytes_read + node.bytes_written for node in self.nodes)

    @property
    def seconds(self) -> float | None:
        """The sum over all nodes; None without peak and bandwidth."""
        return _seconds(self.nodes)

    def _group(self, name: str, nodes: Sequence[NodeCost]) -> CostGroup:
        return CostGroup(
            *(name, len(nodes), sum(node.flops or 0 for node in nodes)),
            sum(node.bytes_read + node.bytes_written for node in nodes),
            _seconds(nodes),
            sum(node.flops is None for node in nodes),
        )

    def _weight(self, group: CostGroup) -> tuple[float, int, int]:
        return group.seconds or 0.0, group.bytes, group.flops

    @public
    def table(self, by: str = "operator", top: int | None = None) -> str:
        """Format the groups as a table under a line on the whole.

        Args:
            by: ``"node"``, ``"operator"`` or ``"module"``.
            top: Show only so many, the most costly; None for all.

        Raises:
            InvalidIRError: There are no such groups.
        """
        rows, more = self._rows(by, top)
        lines = [printable(self._headline()), "", table(rows)]
        return "\n".join([*lines, *([f"and {more} more"] if more else [])])

    def _rows(self, by: str, top: int | None) -> tuple[list[tuple[str, ...]], int]:
        shown, more = self._top(by, top)
        timed = self.seconds is not None
        heads = (by, "nodes", "FLOPs", "bytes", *(["time"] if timed else []))
        rows = [heads, *[_cells(group, timed=timed) for group in shown]]
        return rows, more

    def _headline(self) -> str:
        least = ">= " if self.unknown else ""
        seconds = self.seconds
        told = "" if seconds is None else f", {least}{time_text(seconds)}"
        return (
            f"{self.model_name or '(no name)'}: {counted(len(self.nodes), 'node')}, "
            f"{least}{number_text(self.flops)} FLOPs, {bytes_text(self.bytes)} moved{told}"
        )

    def __str__(self) -> str:
        return report_text(self.table().split("\n"))

    def _grid(self) -> Rows:
        return self._rows("operator", 50)[0]

    def to_dict(self) -> dict[str, Any]:
        """Convert the cost to plain data, with the groups."""
        return {
            **asdict(self),
            "flops": self.flops,
            "unknown": self.unknown,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "operators": [asdict(group) for group in self.by_operator()],
            "modules": [asdict(group) for group in self.by_module()],
        }


@public
def cost(
    ir: IR,
    *,
    symbols: Mapping[str, int] | None = None,
    peak_flops: float | None = None,
    bandwidth: float | None = None,
    calibration: Calibration | None = None,
) -> Cost:
    """Count operations and bytes of every node from the program alone, without a run.

    What runs inside a branch or a loop counts for the node that has it, as in a profile; a node
    of a function counts at each call, as ``layers_1.relu``.

    Args:
        ir: The program.
        symbols: The value of each symbol in its shapes.
        peak_flops: Operations per second of the machine.
        bandwidth: Bytes per second that it moves.
        calibration: What a machine was seen to take, of :func:`torch_ir.calibrate`, instead of
            these two: each node's time is that of its kind.

    Raises:
        InvalidIRError: A symbol has no value, a machine's number is not positive, or there are
            numbers and a calibration.
        InputError: A value is given to a symbol that the program does not have.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[s0, 4]
        ...   %y: f32[s0, 4] = aten.relu.default(%x)
        ...   return %y
        ... }''')
        >>> found = cost(ir, symbols={"s0": 2}, peak_flops=1e9, bandwidth=1e9).nodes[0]
        >>> found.flops, found.bytes_read, found.bytes_written, found.seconds, found.bound
        (8, 32, 32, 6.4e-08, 'memory')
    """
    for name, value in (("peak_flops", peak_flops), ("bandwidth", bandwidth)):
        if value is not None and not value > 0:
            raise InvalidIRError(f"{name} is a positive number, got {value!r}")
    program = written_out(ir)
    require_symbols(program, symbols or {})
    sizes = _Sizes(program, dict(symbols or {}))
    nodes = sizes.costs(peak_flops, bandwidth)
    if calibration is not None:
        if peak_flops is not None or bandwidth is not None:
            raise InvalidIRError("calibration= excludes peak_flops= and bandwidth=")
        nodes = _calibrated(program, nodes, sizes.work, calibration)
    return Cost(ir.model_name, tuple(nodes), peak_flops, bandwidth)


def workloads(ir: IR) -> list[Workload]:
    """Return what kind of work each node of a program of static sizes is.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   %y: f32[2] = aten.relu.default(%x)
        ...   return %y
        ... }''')
        >>> workloads(ir)
        [Workload(kind='pointwise', sizes=(16,), times=1.0, computes=False)]
    """
    sizes = _Sizes(ir, {})
    sizes.costs(None, None)
    return sizes.work


def _calibrated(
    ir: IR, costs: Sequence[NodeCost], loads: Sequence[Workload], calibration: Calibration
) -> list[NodeCost]:
    """The costs with the seconds that a machine takes."""
    sizes = {name: known_bytes(value) for name, (_, value) in ir.external_values().items()}
    total = sum(sizes.values())
    found: list[NodeCost] = []
    for node, known, work in zip(ir.nodes, costs, loads, strict=True):
        weights = min(sum(sizes.get(meta.name, 0) for meta in node.inputs), known.bytes_read)
        moved = known.bytes_read + known.bytes_written
        seconds, bound = calibration.predict(work, moved, weights, total)
        found.append(replace(known, seconds=seconds, bound=bound))
    return found


def known_bytes(value: TensorMeta | Constant) -> int:
    """Return the bytes of a value, each symbolic dimension taken for one."""
    return prod([d for d in value.shape if isinstance(d, int)]) * DTYPES[value.dtype].itemsize


class _Sizes:
    """The shapes and layouts of a program's values, for given symbols."""

    def __init__(self, ir: IR, symbols: dict[str, int]):
        self.ir = ir
        self.symbols = symbols
        metas = [m for n in ir.nodes for m in (*n.inputs, *n.outputs)]
        metas += [*ir.graph_inputs, *ir.graph_outputs]
        wanted = symbols_in(meta for meta in metas if not meta.is_static)
        if missing := sorted(wanted - symbols.keys()):
            listed = ", ".join(missing[:5])
            raise InvalidIRError(
                f"the sizes depend on {counted(len(missing), 'symbol')} without a value: {listed}",
                remedy=f"Give each one, as in symbols={{{missing[0]!r}: 8}} or --symbol "
                f"{missing[0]}=8.",
            )
        self.layouts: dict[str, Layout] = {}
        self.work: list[Workload] = []
        for meta in ir.graph_inputs:
            self._note(meta.name, meta)
        for name, (_, value) in ir.external_values().items():
            self._note(name, value)

    def _note(self, name: str, meta: TensorMeta | Constant) -> None:
        shape = self._shape(meta)
        view = meta.view if isinstance(meta, Constant) else None
        self.layouts[name] = shape, row_major(shape) if view is None else view.strides

    def _shape(self, meta: TensorMeta | Constant) -> Shape:
        return shape_at(meta.shape, self.symbols)

    def costs(self, peak: float | None, bandwidth: float | None) -> list[NodeCost]:
        return [self._cost(node, peak, bandwidth) for node in self.ir.nodes]

    def _cost(self, node: OpNode, peak: float | None, bandwidth: float | None) -> NodeCost:
        given = [self.layouts.get(m.name) or self._plain(m) for m in node.inputs]
        made = [self._shape(meta) for meta in node.outputs]
        for meta, shape, strides in zip(
            node.outputs, made, node_layouts(node, given, made), strict=True
        ):
            self.layouts[meta.name] = shape, strides
        read, written = self._bytes(node, given, made)
        arguments = {n: self._known(v) for n, v in node.arguments([s for s, _ in given]).items()}
        count = None if node.operands is None else flops(node.op_type, arguments, made)
        known = {} if node.operands is None else arguments
        self.work.append(workload(node.op_type, known, made, count, read + written))
        seconds, bound = _roofline(count, read + written, peak, bandwidth)
        return NodeCost(
            *(node.name, node.op_type, module_of(node), source_place(node)),
            *(count, read, written),
            None if count is None or not read + written else count / (read + written),
            *(seconds, bound),
        )

    def _plain(self, meta: TensorMeta) -> Layout:
        shape = self._shape(meta)
        return shape, row_major(shape)

    def _known(self, value: Any) -> Any:
        if isinstance(value, SymExpr):
            known = set(value.symbols) <= self.symbols.keys()
            return value.evaluate(self.symbols) if known else value
        return value

    def _bytes(
        self, node: OpNode, given: Sequence[Layout], made: Sequence[Shape]
    ) -> tuple[int, int]:
        """Bytes read and written; a result that shares the storage of an input is a view of it."""
        is_written = bool(self.ir.effects(node).writes)
        layouts = {meta.name: layout for meta, layout in zip(node.inputs, given, strict=True)}
        sizes = [_size(meta, shape) for meta, shape in zip(node.outputs, made, strict=True)]
        fresh = [
            size
            for meta, shape, size in zip(node.outputs, made, sizes, strict=True)
            if is_written or not self._is_view(node, meta, shape, layouts)
        ]
        if node.outputs and not fresh:
            return 0, 0
        taken = [_size(meta, shape) for meta, (shape, _) in zip(node.inputs, given, strict=True)]
        if taken and node.op_type.rpartition(".")[0] in LOOK_UPS:
            taken[0] = min(taken[0], sum(fresh))
        return sum(taken), sum(fresh)

    def _is_view(
        self, node: OpNode, output: TensorMeta, shape: Shape, given: Mapping[str, Layout]
    ) -> bool:
        """Whether a call gives a result in the storage of an input, for these layouts."""
        if node.op_type.startswith("higher_order."):
            return False
        sources, is_sure = possible_sources(self.ir, node, output)
        schema = self.ir.schema_of(node.op_type)
        if is_sure or not sources or schema is None:
            return is_sure
        declared = declared_sources(schema, node, output.producer_output_idx)
        layout = given[sources[0].name]
        if all(source.when is not Sharing.BY_LAYOUT for source in declared):
            return layout[0] == shape and sources[0].dtype == output.dtype
        if node.op_type == "aten.contiguous.default":
            return "memory_format" not in node.attrs and is_contiguous(layout)
        return viewed(layout, shape) is not None


def _size(meta: TensorMeta, shape: Shape) -> int:
    return cast(int, meta.replace(shape=shape).nbytes)


def _roofline(
    count: int | None, moved: int, peak: float | None, bandwidth: float | None
) -> tuple[float | None, str]:
    if peak is None and bandwidth is None:
        return None, ""
    compute = (count or 0) / peak if peak is not None else 0.0
    memory = moved / bandwidth if bandwidth is not None else 0.0
    return max(compute, memory), "compute" if compute > memory else "memory"


def _seconds(nodes: Sequence[NodeCost]) -> float | None:
    if any(node.seconds is None for node in nodes):
        return None
    return sum(node.seconds or 0.0 for node in nodes)


def _cells(group: CostGroup, *, timed: bool) -> tuple[str, ...]:
    least = ">=" if group.unknown else ""
    known = f"{least}{number_text(group.flops)}" if group.unknown < group.nodes else "unknown"
    cells = (group.name or "(root)", str(group.nodes), known, bytes_text(group.bytes))
    return (*cells, f"{least}{time_text(group.seconds or 0.0)}") if timed else cells
