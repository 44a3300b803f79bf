"""The distinct calls of some programs, with how often and where each of them occurs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from torch_ir.arguments import public
from torch_ir.ir import IR, FunctionRef, OpNode, SymbolRange, SymExpr, TensorMeta
from torch_ir.ir.analysis.fingerprints import fingerprint
from torch_ir.ir.builder import with_attributes
from torch_ir.ir.expressions.language import renamed
from torch_ir.ir.functions import written_out
from torch_ir.ir.queries import graphs
from torch_ir.ir.symbols import as_dim
from torch_ir.ir.values import Attribute, default_attribute, is_plain, map_attribute, row_major
from torch_ir.ops.flops import flops
from torch_ir.passes.operator_calls.case_set import Case, CaseOperand, CaseSet, Origin, plain

NAMES = frozenset({"identifier"})
"""Arguments that are names, and change nothing."""


@public
def cases(
    programs: Mapping[str, IR] | Iterable[IR], *, strides: bool = True, functions: bool = True
) -> CaseSet:
    """Collect every distinct call of some programs.

    Two calls are the same case if they have the same overload, operands of the same dtype, shape
    and strides in each argument of the schema, and the same attributes with defaults filled in.
    Names, source lines and the keys of weights do not count; symbols count by first appearance.

    Args:
        programs: The programs by name, or just some; these are called by their ``model_name``.
        strides: Whether strides count; they come from torch's fake tensors. Without them no torch
            is needed.
        functions: Whether the nodes of functions count: once for each call, and once for each
            branch or loop.

    Example:
        >>> from torch_ir import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   %a: f32[2] = aten.add.Tensor(%x, %x)
        ...   %b: f32[2] = aten.add.Tensor(%a, %x, alpha=1)
        ...   return %b
        ... }''')
        >>> [(case.operator, case.count) for case in cases([ir], strides=False)]
        [('aten.add.Tensor', 2)]
    """
    named: dict[str, IR] = _by_name(programs)
    found: dict[str, _FoundCase] = {}
    for name, ir in named.items():
        ir = written_out(ir) if functions else ir
        for path, graph in graphs(ir) if functions else [("", ir)]:
            known = _strides(graph) if strides else None
            for node in graph.nodes:
                call = _NamelessCall(graph, node, known)
                item = found.setdefault(call.key, _FoundCase(call))
                place = "" if node.location is None else str(node.location)
                item.origins.append(Origin(name, path + node.name, place))
    made = [item.case(key) for key, item in found.items()]
    return CaseSet(tuple(sorted(made, key=lambda case: case.id)))


def _by_name(programs: Mapping[str, IR] | Iterable[IR]) -> dict[str, IR]:
    if isinstance(programs, Mapping):
        return {str(name): cast(IR, ir) for name, ir in programs.items()}
    found: dict[str, IR] = {}
    for number, ir in enumerate(programs):
        name = ir.model_name or f"program_{number}"
        found[name if name not in found else f"{name}_{number}"] = ir
    return found


def _strides(ir: IR) -> Mapping[str, tuple[Any, ...]]:
    from torch_ir.infer.fake import value_types

    return {name: kind.strides for name, kind in value_types(ir).items()}


@dataclass
class _FoundCase:
    """A case while it is collected."""

    call: _NamelessCall
    origins: list[Origin] = field(default_factory=list[Origin])

    def case(self, key: str) -> Case:
        digits = hashlib.sha256(key.encode()).hexdigest()[:10]
        operator = self.call.node.op_type
        return self.call.case(f"{operator}-{digits}", tuple(self.origins))


class _NamelessCall:
    """One call without names: what makes it the same as another."""

    def __init__(self, ir: IR, node: OpNode, strides: Mapping[str, tuple[Any, ...]] | None):
        self.ir = ir
        self.node = node
        self.strides = strides
        self.symbols: dict[str, str] = {}
        self.operands = [self._operand(meta, f"input.{i}") for i, meta in enumerate(node.inputs)]
        self.arguments = {name: self._argument(name) for name in self._names()}
        called = {name: fingerprint(ir.functions[name]) for name in node.functions}
        made = {name: ir.symbols.get(name) for name in self.symbols}
        ranges = {self.symbols[n]: [r.lower, r.upper] for n, r in made.items() if r is not None}
        operands = [operand.key for operand in self.operands]
        whole = [node.op_type, self.arguments, operands, ranges, sorted(called.values())]
        self.key = json.dumps(whole, separators=(",", ":"), sort_keys=True)
        self.outputs = [self._operand(meta, f"output.{i}") for i, meta in enumerate(node.outputs)]

    def _names(self) -> Iterator[str]:
        schema = self.ir.schema_of(self.node.op_type)
        given = {**dict.fromkeys(self.node.slots), **dict.fromkeys(self.node.attrs)}
        known = [a.name for a in schema.arguments] if schema is not None else []
        defaults = {a.name for a in schema.arguments if a.default is not None} if schema else set()
        yield from [name for name in known if name in given or name in defaults]
        yield from sorted(given.keys() - set(known) - NAMES)

    def _argument(self, name: str) -> Any:
        slots = self.node.slots.get(name)
        if isinstance(slots, tuple):
            values: Any = self.node.attrs.get(name) or (None,) * len(slots)
            pairs = zip(slots, values, strict=True)
            return [self._plain(v) if i is None else {"tensor": f"input.{i}"} for i, v in pairs]
        if slots is not None:
            return {"tensor": f"input.{slots}"}
        schema = self.ir.schema_of(self.node.op_type)
        argument = None if schema is None else schema.argument(name)
        default = None if argument is None else default_attribute(argument)
        return self._plain(self.node.attrs.get(name, default))

    def _plain(self, value: Attribute) -> Any:
        return plain(value if is_plain(value) else map_attribute(value, self._leaf))

    def _leaf(self, value: Attribute) -> Attribute:
        if isinstance(value, FunctionRef):
            return f"&{fingerprint(self.ir.functions[value.name])}"
        return self._dim(value) if isinstance(value, SymExpr) else value

    def _dim(self, value: SymExpr) -> SymExpr:
        for symbol in value.symbols:
            kind = "z" if symbol.startswith("z") else "s"
            self.symbols.setdefault(symbol, f"{kind}{len(self.symbols)}")
        text = renamed(value.text, lambda word: self.symbols.get(word, word))
        return SymExpr(text)

    def _operand(self, meta: TensorMeta, name: str) -> CaseOperand:
        shape = tuple([d if isinstance(d, int) else as_dim(self._dim(d)) for d in meta.shape])
        strides = None if self.strides is None else self._strides_of(meta)
        return CaseOperand(name, meta.dtype, shape, strides)

    def _strides_of(self, meta: TensorMeta) -> tuple[int, ...] | None:
        """Strides in which sizes of 1 do not count; None where one is no number or empty."""
        known = (self.strides or {}).get(meta.name)
        if known is None or not meta.is_static or 0 in meta.shape:
            return None
        sizes = [int(str(dim)) for dim in meta.shape]
        if len(known) != len(sizes) or not all(isinstance(step, int) for step in known):
            return None
        made = tuple([1 if n == 1 else int(s) for n, s in zip(sizes, known, strict=True)])
        plain_strides = zip(sizes, row_major(tuple(sizes)), strict=True)
        rows = tuple([1 if n == 1 else s for n, s in plain_strides])
        return rows if made == rows else made

    def case(self, name: str, origins: tuple[Origin, ...]) -> Case:
        """The case of this call."""
        program = self._program()
        count: int | None = None
        metas = (*program.graph_inputs, *program.graph_outputs)
        if all(meta.is_static for meta in metas) and self.node.operands is not None:
            shapes: list[Any] = [meta.shape for meta in program.nodes[0].inputs]
            made: list[Any] = [meta.shape for meta in program.nodes[0].outputs]
            count = flops(self.node.op_type, self.node.arguments(shapes), made)
        return Case(
            *(name, self.node.op_type, self.arguments, tuple(self.operands), tuple(self.outputs)),
            *(len(origins), count, origins, program),
        )

    def _program(self) -> IR:
        """A program of exactly this call, its operands as inputs."""
        inputs = [TensorMeta(o.name, o.shape, o.dtype) for o in self.operands]
        outputs = [
            TensorMeta(o.name, o.shape, o.dtype, "call", meta.producer_output_idx)
            for o, meta in zip(self.outputs, self.node.outputs, strict=True)
        ]

        def leaf(value: Attribute) -> Attribute:
            return self._dim(value) if isinstance(value, SymExpr) else value

        node = with_attributes(self.node, leaf).replace(
            name="call",
            inputs=inputs,
            outputs=outputs,
            binds={self.symbols.get(s, s): i for s, i in self.node.binds.items()},
            location=None,
            origins=(),
        )
        ranges = {
            new: self.ir.symbols.get(old, SymbolRange(None, None))
            for old, new in self.symbols.items()
        }
        functions = {name: self.ir.functions[name] for name in self.node.functions}
        schema = self.ir.operators.get(self.node.op_type)
        operators = {} if schema is None else {self.node.op_type: schema}
        return IR(
            *([node], inputs, outputs, []),
            symbols=ranges,
            functions=functions,
            dialect=self.ir.dialect,
            operators=operators,
        )
