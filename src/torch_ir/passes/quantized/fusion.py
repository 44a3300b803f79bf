"""Calls of quantized operators in the place of dequantizing, an operator, and quantizing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from torch_ir.arguments import public
from torch_ir.dialects.backend.schemas import BACKEND_SCHEMAS
from torch_ir.ir import IR, DType, OpNode, TensorMeta
from torch_ir.ir.builder import Builder, split_arguments
from torch_ir.ir.queries import positions
from torch_ir.ops.schema import parse_schema
from torch_ir.ops.variants import view_of
from torch_ir.passes.base import Pass, PassResult
from torch_ir.passes.patterns.elements import Match, Pattern
from torch_ir.passes.patterns.matcher import Matcher, written
from torch_ir.passes.quantized.codes import (
    DEQUANTIZE,
    LIBRARY,
    QUANTIZE,
    REARRANGE,
    Codes,
    Parameters,
    bounds,
    gives_back,
    parameters,
)
from torch_ir.passes.quantized.rows import RELU, TABLE, Row, bits_of, rows


@dataclass(frozen=True)
class FuseQuantized(Pass):
    """Puts quantized operators where numbers are dequantized and quantized again.

    See :func:`fuse_quantized`.
    """

    name: ClassVar[str] = "fuse-quantized"

    def call(self, ir: IR) -> PassResult:
        """Fuse the program's quantized operators."""
        return PassResult.of(ir, fuse_quantized(ir))


@public
def fuse_quantized(ir: IR) -> IR:
    """Fuse dequantize, operator, quantize into one ``quantized_decomposed`` operator.

    Sums, sums with a number, products, ``relu``, convolutions and linear layers, each with a
    ``relu`` behind it or not, become one operator of codes; its pattern is what stood there, so
    the result has the same bits. What only moves elements (``cat``, slices, views, the largest
    element of a window) works on the codes where the scale and zero point stay the same. Rows of
    a quantized table become ``embedding_byte``, or ``embedding_4bit`` and ``embedding_2bit`` of
    the packed table where codes are declared to have so few bits; its zero points are cast to the
    type of its scales, which represents exactly what lies among codes.

    The codes of one call are all ``uint8`` or all ``int8``, but for weights, which may be either.
    A place is left alone where something else uses what is inside, or something writes to it.
    Programs of every dialect are taken, their functions too. The same object if there is nothing
    to do.

    Example:
        >>> from torch_ir import parse
        >>> text = '''
        ... ir "Positive" {
        ...   input %q: u8[4]
        ...   %x: f32[4] = LIBRARY.dequantize_per_tensor.default(%q, 0.5, 3, 0, 255, torch.uint8)
        ...   %y: f32[4] = aten.relu.default(%x)
        ...   %r: u8[4] = LIBRARY.quantize_per_tensor.default(%y, 0.25, 0, 0, 255, torch.uint8)
        ...   return %r
        ... }
        ... '''
        >>> ir = parse(text.replace("LIBRARY", "quantized_decomposed"))
        >>> [node.op_type for node in fuse_quantized(ir).nodes]
        ['quantized_decomposed.relu.default']
    """
    return _fused(ir, ir.dialect)


def _fused(ir: IR, dialect: str) -> IR:
    return _Fuser(ir, dialect).run()


class _Fuser:
    def __init__(self, ir: IR, dialect: str):
        self.ir = ir
        self.builder = Builder(ir)
        self.builder.map_functions(lambda body: _fused(body, dialect))
        self.codes = Codes(self.builder, is_edge=dialect in ("edge", "backend"))
        self.matcher = Matcher(ir, self.codes.memory)
        self.order: Callable[[OpNode], int] = lambda node: positions(ir)[node.name]
        self.claimed: dict[str, str] = {}  # the first result in new memory, by its owner

    def run(self) -> IR:
        for node in self.ir.nodes:
            self.codes.learn(node)
            if not (self._give_back(node) or self._fuse(node) or self._take_rows(node)):
                self.builder.keep(node)
        self.builder.nodes = self._needed()
        return self.builder.finish()

    def _needed(self) -> list[OpNode]:
        """The new nodes without those that were passed over and that nothing uses any more."""
        ends = (*self.ir.graph_outputs, *[mutation.value for mutation in self.ir.mutations])
        used = {self.builder.value(meta).name for meta in ends}
        kept: list[OpNode] = []
        for node in reversed(self.builder.nodes):
            if node.name in self.codes.passed and not any(m.name in used for m in node.outputs):
                continue
            used.update(meta.name for meta in node.inputs)
            kept.append(node)
        return kept[::-1]

    # -- one quantize -----------------------------------------------------------------------------

    def _wanted(self, node: OpNode) -> Parameters | None:
        is_quantize = node.op_type == QUANTIZE and self.codes.is_fixed(node.outputs[0])
        return parameters(node) if is_quantize else None

    def _give_back(self, node: OpNode) -> bool:
        """Put codes that there are in the place of a quantize."""
        wanted = self._wanted(node)
        known = self.codes.known.get(node.inputs[0].name) if wanted is not None else None
        if wanted is None or known is None:
            return False
        (numbers,), (result,) = node.inputs, node.outputs
        if not gives_back(known.parameters, wanted, known.low, known.high):
            return False
        codes = self.codes.of(numbers)
        users = self.ir.users.get(result.name, ())
        is_seen = self._is_returned(result) or any(u.op_type != DEQUANTIZE for u in users)
        may_be = self._may_be(result, known.owner) and not self._is_laid_out(result, known.node)
        if not may_be or (is_seen and codes.name in self.codes.gaps):
            codes = self.codes.copy(codes, node)
        self.builder.replace(result, codes)
        self.codes.bounds[result.name] = (known.low, known.high)
        return True

    def _is_returned(self, result: TensorMeta) -> bool:
        return result.name in self.matcher.returned

    def _is_laid_out(self, result: TensorMeta, node: OpNode) -> bool:
        """Whether a node lays out anew what it moves, if it makes a result of the program.

        Executors run the copying views of Edge as views, but for what a program gives away.
        """
        is_copy = view_of(node.op_type) is not None
        return self.codes.is_edge and self._is_returned(result) and is_copy

    def _may_be(self, result: TensorMeta, owner: str) -> bool:
        """Whether a result may lie in memory that there is, without anybody seeing it."""
        if owner not in self.codes.known:
            return self.codes.memory.join(result.name, owner)
        first = self.claimed.setdefault(owner, result.name)
        return first == result.name or self.codes.memory.join(result.name, first)

    @cached_property
    def rows(self) -> tuple[tuple[Row, Pattern], ...]:
        """What to look for, made where the program quantizes."""
        return rows(self.ir, self.codes.is_known)

    def _behind(self, node: OpNode) -> set[str]:
        """The operators behind a quantize: what rearranges, relu, and the first other one."""
        found: set[str] = set()
        while node.inputs and (made := self.ir.producers.get(node.inputs[0].name)):
            found.add(made.op_type)
            if made.op_type not in REARRANGE and made.op_type != RELU:
                break
            node = made
        return found

    def _fuse(self, node: OpNode) -> bool:
        """Fuse an operator whose result is quantized; return whether that was possible."""
        wanted = self._wanted(node)
        if wanted is None:
            return False
        behind = self._behind(node)
        for row, pattern in self.rows:
            if behind.isdisjoint(row.pattern.op_types):
                continue
            for match in self.matcher.at(pattern, node):
                attrs = row.attributes(match.nodes["op"])
                known = [self.codes.known[m.name] for m in map(match.values.get, "ab") if m]
                kinds = {found.parameters.dtype for found in known} | {node.outputs[0].dtype}
                if attrs is None or len(kinds) > 1 or not self.matcher.is_whole(pattern, match):
                    continue
                self._replace(node, row, match, attrs, wanted)
                return True
        return False

    def _replace(
        self, node: OpNode, row: Row, match: Match, attrs: Mapping[str, Any], wanted: Parameters
    ) -> None:
        codes = self.codes
        chain = (*match.chains["moves"], *match.chains.get("before", ()))
        codes.passed |= {n.name for n in (*match.nodes.values(), *chain) if n is not node}
        result, at = node.outputs[0], match.nodes["op"]
        packet, _, kind = row.packet.partition(".")
        name = self.builder.names.fresh(f"{node.name}_{packet}") if chain else node.name
        packet = f"{packet}_relu" if "relu" in match.nodes else packet
        kind = "per_channel" if "table" in match.nodes else kind or "default"
        dtypes = dict.fromkeys(("a_dtype", "out_dtype"), DType(wanted.dtype))
        given = {**self._given(match), **attrs, **wanted.attributes("out"), **dtypes}
        made = result.replace(name=name, producer_node=name, shape=at.outputs[0].shape)
        whole = at.derived_from(*sorted([node, *match.nodes.values()], key=self.order))
        self._emit(f"{packet}.{kind}", whole, {**given, "qa": given["a"]}, made)
        for move in reversed(chain):
            codes.made[move.inputs[0].name] = made
            is_last = move is chain[0] and not self._is_laid_out(result, move)
            step = node.name if is_last else self.builder.names.fresh(f"{move.name}_codes")
            (made,) = codes.move(move, {move.inputs[0].name}, wanted.dtype, step).outputs
        if made.name != result.name:
            self.builder.replace(result, codes.copy(made, at))

    def _given(self, match: Match) -> dict[str, Any]:
        """What an operator of codes is given by a match: tensors, and how codes are numbers."""
        given: dict[str, Any] = {}
        for name, meta in match.values.items():
            known = self.codes.known.get(meta.name) if name in ("a", "b", "weight") else None
            if known is not None:
                given |= known.parameters.attributes(name)
            given[name] = self.builder.value(meta) if known is None else self.codes.of(meta)
        if (table := match.nodes.get("table")) is not None:
            given["weight_axis"] = table.attrs.get("axis")
            given["weight_quant_min"], given["weight_quant_max"] = bounds(table) or (0, 0)
        return given

    def _emit(
        self, name: str, at: OpNode, given: Mapping[str, Any], output: TensorMeta
    ) -> TensorMeta:
        """Add a call of one of our operators, with the place of another node."""
        op_type = f"{LIBRARY}.{name}"
        text = self.builder.operators[op_type] = BACKEND_SCHEMAS[op_type]
        arguments = {a.name: given.get(a.name) for a in parse_schema(text).arguments}
        inputs, attrs, slots = split_arguments(arguments)
        own = output.producer_node or ""
        call = OpNode(own, op_type, inputs, [output], attrs, slots, at.location)
        self.builder.nodes.append(call.derived_from(at))
        return output

    # -- tables -----------------------------------------------------------------------------------

    def _take_rows(self, node: OpNode) -> bool:
        """Put an embedding of codes in the place of one of the numbers of a table."""
        found = (
            match for out in node.outputs for match in self.matcher.element(TABLE, out, Match())
        )
        match = next(found, None)
        if match is None or written(self.matcher.memory, match):
            return False
        given, bits = self._given(match), bits_of(match)
        if bits < 8:
            given["weight"] = self._packed(node, given["weight"], bits)
        scales, zero_points = given["weight_scales"], given.get("weight_zero_points")
        if zero_points is not None and zero_points.dtype != scales.dtype:
            given["weight_zero_points"] = self.codes.cast(zero_points, scales.dtype, node)
        elif zero_points is None and bits == 8:
            given["weight_zero_points"] = self.codes.zeros(scales, node)
        packet = "embedding_byte" if bits == 8 else f"embedding_{bits}bit"
        whole = node.derived_from(*sorted([node, *match.nodes.values()], key=self.order))
        self._emit(f"{packet}.default", whole, given, node.outputs[0])
        self.codes.passed.add(match.nodes["table"].name)
        return True

    def _packed(self, node: OpNode, weight: TensorMeta, bits: int) -> TensorMeta:
        name = self.builder.names.fresh(f"{node.name}_packed")
        rows, columns = weight.shape
        shape = (rows, columns * bits // 8 if isinstance(columns, int) else columns)
        made = TensorMeta(name, shape, "uint8", name)
        return self._emit(f"pack_{bits}bit.default", node, {"codes": weight}, made)
