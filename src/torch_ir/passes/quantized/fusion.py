"""Calls of quantized operators in the place of dequantizing, an operator, and quantizing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_ir.dialects.backend.schemas import BACKEND_SCHEMAS
from torch_ir.dialects.rules import DIM_ORDER_SCHEMAS
from torch_ir.ir import IR, DType, OpNode, TensorMeta
from torch_ir.ir.builder import Names, renamed, with_inputs
from torch_ir.ops.schema import Schema, parse_schema
from torch_ir.passes.base import Pass, PassResult
from torch_ir.passes.constant_folding import without_unused
from torch_ir.passes.memory import Memory, in_functions, rewired
from torch_ir.passes.quantized.operators import RELUS, Call, Table, call_of, operand, table_of
from torch_ir.passes.quantized.values import (
    BOUNDS,
    DEQUANTIZE,
    LIBRARY,
    QUANTIZE,
    REARRANGE,
    Parameters,
    gives_back,
    is_kept_by_moves,
    is_view,
    may_have_gaps,
    moved,
    parameters,
)
from torch_ir.passes.view_copies import view_of

_SCHEMAS: Mapping[str, Schema] = {op: parse_schema(text) for op, text in BACKEND_SCHEMAS.items()}


@dataclass(frozen=True)
class FuseQuantized(Pass):
    """Puts quantized operators where numbers are dequantized and quantized again.

    See :func:`fuse_quantized`.
    """

    name: ClassVar[str] = "fuse-quantized"

    def call(self, ir: IR) -> PassResult:
        """Fuse the program's quantized operators."""
        result = fuse_quantized(ir)
        return PassResult(result, result is not ir)


def fuse_quantized(ir: IR) -> IR:
    """Fuse dequantize, operator, quantize into one ``quantized_decomposed`` operator.

    Sums, sums with a number, products, ``relu``, convolutions and linear layers, each with a
    ``relu`` behind it or not, become one operator of codes; its pattern is what stood there, so
    the result has the same bits. What only moves elements (``cat``, slices, views, the largest
    element of a window) works on the codes where the scale and zero point stay the same. Rows of
    a quantized table become ``embedding_byte``, or ``embedding_4bit`` and ``embedding_2bit`` of
    the packed table where codes are declared to have so few bits.

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
    return _Fuser(in_functions(ir, lambda body: _fused(body, dialect)), dialect).run()


@dataclass(frozen=True, slots=True)
class _Known:
    """Numbers that stand for codes: how, and between which bounds.

    Attributes:
        parameters: How.
        low: No code is less.
        high: No code is larger.
        node: What gives the numbers.
        owner: The codes of the program whose memory these would be; where they would be in memory
            of their own, the numbers for which that is made.
    """

    parameters: Parameters
    low: int
    high: int
    node: OpNode
    owner: str


class _Fuser:
    def __init__(self, ir: IR, dialect: str):
        self.ir = ir
        self.is_edge = dialect in ("edge", "backend")
        self.memory = Memory(ir)
        self.names = Names.of(ir)
        self.returned = {meta.name for meta in ir.graph_outputs}
        self.returned |= {mutation.value.name for mutation in ir.mutations}
        self.known: dict[str, _Known] = {}  # by the name of the numbers
        self.bounds: dict[str, tuple[int, int]] = {}  # by the name of the codes
        self.codes: dict[str, TensorMeta] = {}  # by the name of the numbers, once there are nodes
        self.gaps: set[str] = set()  # codes that may not be dense
        self.gapless: set[str] = set()  # numbers of such codes, where quantizing made them dense
        self.copies: dict[str, TensorMeta] = {}
        self.claimed: dict[str, str] = {}  # the first result in new memory, by its owner
        self.values: dict[str, TensorMeta] = {}
        self.nodes: list[OpNode] = []
        self.passed: set[str] = set()
        self.operators: dict[str, str] = {}
        self.is_changed = False

    def run(self) -> IR:
        for node in self.ir.nodes:
            self._learn(node)
            if self._quantize(node) or self._take_rows(node):
                self.is_changed = True
            else:
                self.nodes.append(with_inputs(node, self.values))
        if not self.is_changed:
            return self.ir
        nodes = self._needed()
        operators = {**self.ir.operators, **self.operators}
        done = rewired(self.ir, nodes, self.values, operators=operators)
        return without_unused(self.ir, done)

    def _needed(self) -> list[OpNode]:
        """The new nodes without those that were passed over and that nothing uses any more."""
        values = self.values
        used = {values[name].name if name in values else name for name in self.returned}
        kept: list[OpNode] = []
        for node in reversed(self.nodes):
            if node.name in self.passed and not any(m.name in used for m in node.outputs):
                continue
            used.update(meta.name for meta in node.inputs)
            kept.append(node)
        return kept[::-1]

    # -- what is known ----------------------------------------------------------------------------

    def _learn(self, node: OpNode) -> None:
        """Remember of which codes a node's results are the numbers."""
        found = parameters(node)
        if found is not None and node.op_type == QUANTIZE:
            self.bounds[node.outputs[0].name] = (found.low, found.high)
        elif found is not None:
            if self._is_fixed(node.inputs[0]) and self._is_fixed(node.outputs[0]):
                low, high = self.bounds.get(node.inputs[0].name, BOUNDS[found.dtype])
                known = _Known(found, low, high, node, node.inputs[0].name)
                self.known[node.outputs[0].name] = known
        elif sources := moved(node):
            self._learn_moved(node, sources)

    def _learn_moved(self, node: OpNode, sources: tuple[TensorMeta, ...]) -> None:
        known = [self.known.get(meta.name) for meta in sources]
        first = known[0]
        if first is None or not is_kept_by_moves(first.parameters, node):
            return
        if not all(self._is_fixed(meta) for meta in (*node.inputs, *node.outputs)):
            return
        low, high = first.low, first.high
        for other in known[1:]:
            if other is None or not _is_same(first.parameters, other.parameters):
                return
            low, high = min(low, other.low), max(high, other.high)
        is_new = not is_view(self.ir, node)
        for meta in node.outputs:
            if meta.dtype == "float32":
                owner = meta.name if is_new else first.owner
                self.known[meta.name] = _Known(first.parameters, low, high, node, owner)

    def _is_fixed(self, meta: TensorMeta) -> bool:
        return not self.memory.is_written(meta.name)

    def _is_inside(self, meta: TensorMeta) -> bool:
        """Whether one node uses a value, and nothing else sees it."""
        users = self.ir.users.get(meta.name, ())
        return len(users) == 1 and meta.name not in self.returned and self._is_fixed(meta)

    # -- codes ------------------------------------------------------------------------------------

    def _codes_of(self, numbers: TensorMeta) -> TensorMeta:
        """The codes for which known numbers stand; nodes are added that move them alike."""
        pending = [numbers.name]
        while pending:
            name = pending[-1]
            node = self.known[name].node
            sources = () if node.op_type == DEQUANTIZE else moved(node)
            lacking = [meta.name for meta in sources if meta.name not in self.codes]
            if lacking and name not in self.codes:
                pending += lacking
                continue
            pending.pop()
            if name not in self.codes:
                self._add_codes(node, name, sources)
        return self.codes[numbers.name]

    def _add_codes(self, node: OpNode, name: str, sources: tuple[TensorMeta, ...]) -> None:
        self.passed.add(node.name)
        if not sources:
            codes = self.codes[name] = self._now(node.inputs[0])
            if codes.name in self.gaps:
                self.gapless.add(name)
            return
        dtype = self.known[name].parameters.dtype
        names = {meta.name for meta in sources}
        new = self._moved(node, names, dtype, self.names.fresh(f"{node.name}_codes"))
        for old, meta in zip(node.outputs, new.outputs, strict=True):
            if old.name in self.known:
                self.codes[old.name] = meta

    def _moved(self, node: OpNode, sources: set[str], dtype: str, name: str) -> OpNode:
        """The node that moves codes as another moves the numbers for which they stand."""
        inputs = [
            self._source(meta, node) if meta.name in sources else self._now(meta)
            for meta in node.inputs
        ]
        new = renamed(node.replace(inputs=inputs), name)
        outputs = [
            meta.replace(dtype=dtype) if meta.dtype == "float32" else meta for meta in new.outputs
        ]
        new = new.replace(outputs=outputs)
        self.nodes.append(new)
        has_gaps = node.op_type in REARRANGE and inputs[0].name in self.gaps
        if has_gaps or may_have_gaps(node):
            self.gaps.update(meta.name for meta in outputs)
        return new

    def _source(self, numbers: TensorMeta, node: OpNode) -> TensorMeta:
        """The codes that a node moves in the place of numbers."""
        codes = self.codes[numbers.name]
        asks = node.op_type in REARRANGE and numbers.name in self.gapless
        if not asks:
            return codes
        if codes.name not in self.copies:
            self.copies[codes.name] = self._copy(codes, node)
        return self.copies[codes.name]

    def _copy(self, codes: TensorMeta, node: OpNode) -> TensorMeta:
        """The codes in memory of their own, as quantizing would lay them out there."""
        by_order = "dim_order_ops._clone_dim_order.default"
        op_type = by_order if self.is_edge else "aten.clone.default"
        if self.is_edge:
            self.operators[op_type] = DIM_ORDER_SCHEMAS[op_type]
        name = self.names.fresh(f"{codes.name.split('.')[0]}_copy")
        copy = codes.replace(name=name, producer_node=name, producer_output_idx=0)
        self.nodes.append(OpNode(name, op_type, [codes], [copy], {}, {"self": 0}, node.location))
        return copy

    def _now(self, meta: TensorMeta) -> TensorMeta:
        return self.values.get(meta.name, meta)

    # -- one quantize -----------------------------------------------------------------------------

    def _quantize(self, node: OpNode) -> bool:
        """Whether codes that there are, or those of a quantized operator, take its place."""
        wanted = parameters(node) if node.op_type == QUANTIZE else None
        if wanted is None or not self._is_fixed(node.outputs[0]):
            return False
        return self._give_back(node, wanted) or self._fuse(node, wanted)

    def _give_back(self, node: OpNode, wanted: Parameters) -> bool:
        (numbers,), (result,) = node.inputs, node.outputs
        known = self.known.get(numbers.name)
        if known is None or not gives_back(known.parameters, wanted, known.low, known.high):
            return False
        codes = self._codes_of(numbers)
        users = self.ir.users.get(result.name, ())
        is_seen = result.name in self.returned or any(u.op_type != DEQUANTIZE for u in users)
        may_be = self._may_be(result, known.owner) and not self._is_laid_out(result, known.node)
        if not may_be or (is_seen and codes.name in self.gaps):
            codes = self._copy(codes, node)
        self.values[result.name] = codes
        self.bounds[result.name] = (known.low, known.high)
        return True

    def _is_laid_out(self, result: TensorMeta, node: OpNode) -> bool:
        """Whether a node lays out anew what it moves, if it makes a result of the program.

        Executors run the copying views of Edge as views, but for what a program gives away.
        """
        is_returned = result.name in self.returned
        return self.is_edge and is_returned and view_of(node.op_type) is not None

    def _may_be(self, result: TensorMeta, owner: str) -> bool:
        """Whether a result may lie in memory that there is, without anybody seeing it."""
        if owner not in self.known:
            return self.memory.join(result.name, owner)
        first = self.claimed.setdefault(owner, result.name)
        return first == result.name or self.memory.join(result.name, first)

    def _fuse(self, node: OpNode, wanted: Parameters) -> bool:
        """Put a quantized operator in the place of what is quantized."""
        chain, relu, made = self._chain(node.inputs[0])
        if relu is not None and relu.inputs[0].name in self.known:
            call, at = Call("relu", codes={"a": relu.inputs[0]}), relu
        elif made is not None and (found := call_of(self.ir, made)) is not None:
            call, at = found, made
        else:
            return False
        follows = relu if at is not relu else None
        if not self._fits(call, at, wanted, with_relu=follows is not None):
            return False
        self.passed |= {n.name for n in (*chain, *call.passed, at)}
        self.passed |= set() if follows is None else {follows.name}
        result = node.outputs[0]
        name = self.names.fresh(f"{node.name}_{call.packet}") if chain else node.name
        output = result.replace(name=name, producer_node=name, shape=at.outputs[0].shape)
        new = self._call(call, at, wanted, output, relu=follows is not None)
        self.nodes.append(new)
        codes = output
        for move in reversed(chain):
            self.codes[move.inputs[0].name] = codes
            is_last = move is chain[0] and not self._is_laid_out(result, move)
            step = node.name if is_last else self.names.fresh(f"{move.name}_codes")
            (codes,) = self._moved(move, {move.inputs[0].name}, wanted.dtype, step).outputs
        if codes.name != result.name:
            self.values[result.name] = self._copy(codes, at)
        return True

    def _chain(self, value: TensorMeta) -> tuple[list[OpNode], OpNode | None, OpNode | None]:
        """What stands before a quantize: rearrangements, a ``relu``, and what both work on."""
        chain: list[OpNode] = []
        relu: OpNode | None = None
        while self._is_inside(value):
            node = self.ir.producers.get(value.name)
            if node is None or len(node.outputs) != 1:
                break
            if node.op_type in REARRANGE and len(node.inputs) == 1:
                chain.append(node)
            elif node.op_type in RELUS and relu is None:
                relu = node
                if node.inputs[0].name in self.known:
                    break
            else:
                return chain, relu, node
            value = node.inputs[0]
        return chain, relu, None

    def _fits(self, call: Call, at: OpNode, wanted: Parameters, *, with_relu: bool) -> bool:
        """Whether a call has an operator, and its operands are codes of one type."""
        if with_relu and call.kind == "scalar":
            return False
        if at.outputs[0].dtype != "float32" or len(at.outputs) != 1:
            return False
        if not all(self._is_fixed(meta) for meta in call.tensors.values()):
            return False
        for name, numbers in call.codes.items():
            known = self.known.get(numbers.name)
            if known is None:
                return False
            if name != "weight" and known.parameters.dtype != wanted.dtype:
                return False
        return True

    def _call(
        self, call: Call, at: OpNode, wanted: Parameters, output: TensorMeta, *, relu: bool
    ) -> OpNode:
        packet = f"{call.packet}_relu" if relu else call.packet
        attrs = {**call.attrs, **wanted.attributes("out")}
        tensors = {name: self._now(meta) for name, meta in call.tensors.items()}
        for name, numbers in call.codes.items():
            attrs |= self.known[numbers.name].parameters.attributes(name)
            tensors[name] = self._codes_of(numbers)
        if call.kind == "scalar":
            tensors["qa"] = tensors.pop("a")
            attrs["a_dtype"] = attrs["out_dtype"] = DType(wanted.dtype)
        return self._node(f"{LIBRARY}.{packet}.{call.kind}", at, tensors, attrs, output)

    def _node(
        self,
        op_type: str,
        at: OpNode,
        tensors: Mapping[str, TensorMeta],
        attrs: Mapping[str, Any],
        output: TensorMeta,
    ) -> OpNode:
        """A call of one of our operators, with the location of another node."""
        self.operators[op_type] = BACKEND_SCHEMAS[op_type]
        arguments = _SCHEMAS[op_type].arguments
        names = [argument.name for argument in arguments]
        given = [name for name in names if name in tensors]
        absent = {a.name: None for a in arguments if a.is_optional and a.name not in tensors}
        attrs = {**attrs, **absent}
        return OpNode(
            output.producer_node or output.name,
            op_type,
            [tensors[name] for name in given],
            [output],
            {name: attrs[name] for name in names if name in attrs},
            {name: position for position, name in enumerate(given)},
            at.location,
        )

    # -- tables -----------------------------------------------------------------------------------

    def _take_rows(self, node: OpNode) -> bool:
        """Put an embedding of codes in the place of one of the numbers of a table."""
        table, indices = table_of(self.ir, node), operand(node, "indices")
        if table is None or indices is None:
            return False
        result = node.outputs[0]
        involved = (*table.tensors.values(), indices, result, table.source.outputs[0])
        if not all(self._is_fixed(meta) for meta in involved):
            return False
        tensors = {name: self._now(meta) for name, meta in table.tensors.items()}
        tensors["indices"] = self._now(indices)
        if table.bits == 8:
            packet = "embedding_byte"
            if "weight_zero_points" not in tensors:
                tensors["weight_zero_points"] = self._zeros(node, tensors["weight_scales"])
        else:
            packet = f"embedding_{table.bits}bit"
            tensors["weight"] = self._packed(node, tensors["weight"], table)
        bounds = {"weight_quant_min": table.low, "weight_quant_max": table.high}
        self.nodes.append(self._node(f"{LIBRARY}.{packet}.default", node, tensors, bounds, result))
        self.passed.add(table.source.name)
        return True

    def _zeros(self, node: OpNode, scales: TensorMeta) -> TensorMeta:
        name = self.names.fresh(f"{node.name}_zero_points")
        made = TensorMeta(name, scales.shape, "int64", name)
        attrs = {"size": tuple(scales.shape), "fill_value": 0, "dtype": DType("int64")}
        self.nodes.append(OpNode(name, "aten.full.default", [], [made], attrs, {}, node.location))
        return made

    def _packed(self, node: OpNode, weight: TensorMeta, table: Table) -> TensorMeta:
        name = self.names.fresh(f"{node.name}_packed")
        shape = (weight.shape[0], table.columns * table.bits // 8)
        made = TensorMeta(name, shape, "uint8", name)
        op_type = f"{LIBRARY}.pack_{table.bits}bit.default"
        self.nodes.append(self._node(op_type, node, {"codes": weight}, {}, made))
        return made


def _is_same(first: Parameters, second: Parameters) -> bool:
    """Whether the same code stands for the same number in both."""
    return (first.scale, first.zero_point, first.dtype) == (
        second.scale,
        second.zero_point,
        second.dtype,
    )
