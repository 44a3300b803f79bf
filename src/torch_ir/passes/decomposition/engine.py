"""One walk over a graph that puts, for each operator outside a set, what it is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias, cast

import torch
import torch._decomp

from torch_ir.errors import PassError, counted
from torch_ir.infer.engine import autocast
from torch_ir.infer.fake import Fakes
from torch_ir.infer.resolve import resolve_operator
from torch_ir.infer.types import Region, TensorType, contiguous, external_types, recorded
from torch_ir.ir import IR, Attribute, Constant, DType, MemoryFormat, OpNode, TensorMeta
from torch_ir.ir.builder import Builder, renamed, with_inputs
from torch_ir.ir.diagnostics import Diagnostic, Diagnostics, about
from torch_ir.ir.queries import result_names
from torch_ir.ir.values import as_argument
from torch_ir.ops.bodies import AUTOCAST_REGION
from torch_ir.ops.schema import Schema, lookup
from torch_ir.ops.spec import DENSE_OPERANDS, spec_of
from torch_ir.passes.decomposition.cache import INPUT, Fragment, Tracer
from torch_ir.passes.decomposition.sparse import UndecomposedValues
from torch_ir.steps import steps
from torch_ir.torch_api import state_of_torch

Decomposition: TypeAlias = Callable[..., Any]
"""Computes what an operator computes, from the same arguments, with other operators."""

_OURS = ("aten", "prims")
"""The namespaces of which operators are decomposed; those of libraries stay."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the lowering of all graphs of a program shares.

    Attributes:
        preserve: Operators that stay.
        decompositions: torch's table and the user's, by operator.
        own: The user's, by name.
        is_target: Whether an operator is in the target.
        dialect: The dialect of the target.
        avoided: Operators that nothing is taken apart into; what would be stays.
        is_partial: Whether what cannot be taken apart stays; if not, it is a reason to refuse.
    """

    preserve: frozenset[str]
    decompositions: Mapping[Any, Decomposition]
    own: Mapping[str, Decomposition]
    is_target: Callable[[str], bool]
    dialect: str = "core_aten"
    avoided: frozenset[str] = frozenset()
    is_partial: bool = False

    def function(self, node: OpNode) -> Decomposition | None:
        """Return the decomposition of a node's operator; None to call the operator itself."""
        return self.own.get(node.op_type) or self.decompositions.get(
            resolve_operator(node.op_type)
        )

    @property
    def is_torchs(self) -> bool:
        """Whether decompositions are torch's, of all that is not in the core set."""
        return self.is_target is is_core and not self.own and not self.preserve

    def stays(self, node: OpNode) -> bool:
        """Return whether a node is in the target already, or is to be kept."""
        if node.op_type in self.own:
            return False
        if node.op_type.partition(".")[0] not in _OURS:
            return True
        return node.op_type in self.preserve or self.is_target(node.op_type)


@cache
def is_core(op_type: str) -> bool:
    """Return whether an operator is in the core ATen set.

    Example:
        >>> is_core("aten.sigmoid.default"), is_core("aten.silu.default")
        (True, False)
    """
    return lookup(op_type) is not None and spec_of(op_type).is_core


@cache
def spare_decompositions() -> dict[Any, Decomposition]:
    """Return torch's decompositions of all operators, by operator."""
    return cast(dict[Any, Decomposition], torch._decomp.decomposition_table)  # pyright: ignore[reportPrivateUsage]  # torch has no public name


_TRACED: dict[Any, dict[Any, Fragment]] = {}
"""What calls without symbols become by torch's decompositions, by all that these depend on."""

MAX_TRACED = 20_000


class Shared:
    """What the walks over a program and its functions share.

    What calls without symbols become by torch's own decompositions is kept for later programs,
    since models repeat their calls, and so do those who lower them.
    """

    def __init__(self, settings: Settings, fakes: Fakes):
        self.settings = settings
        self.fakes = fakes
        self.tracer = Tracer(fakes, settings.decompositions)
        self.fragments: dict[Any, Fragment] = {}
        if settings.is_torchs and not fakes.symbols:
            self.fragments = _TRACED.setdefault(state_of_torch(), {})
            if len(self.fragments) > MAX_TRACED:
                _TRACED.clear()


def lowered(ir: IR, shared: Shared, path: str, found: Diagnostics) -> IR:
    """Decompose a graph to the target's operators; what makes that impossible is added."""
    walk = _Decomposition(ir, shared, path)
    for node in steps(ir.nodes):
        walk.node(node, ())
    with_dense_operands(walk.builder, walk.types)
    found.extend(walk.found)
    return walk.builder.finish()


def _with_one_size(node: OpNode) -> OpNode:
    """The overload of ``upsample_nearest2d`` that is core, whose kernel is the same.

    It takes sizes or scales. torch's decomposition takes other elements where a scale such as 1.1
    leaves a size as it is.
    """
    made = as_argument("SymInt[2]", node.attrs.get("output_size"))
    scales = tuple([node.attrs.get(name) for name in ("scales_h", "scales_w")])
    attrs: dict[str, Attribute] = {"output_size": made, "scale_factors": None}
    if scales != (None, None):
        numbers: Any = (*node.inputs[0].shape[-2:], *scales)
        if not all(isinstance(number, int | float) for number in numbers):
            return node
        height, width, high, wide = numbers
        if [int(height * high), int(width * wide)] != list(cast(Sequence[int], made)):
            return node
        attrs = {"output_size": None, "scale_factors": scales}
    return node.replace(op_type="aten.upsample_nearest2d.vec", attrs=attrs, operands={"input": 0})


_CORE_FORMS: Mapping[str, Callable[[OpNode], OpNode]] = {
    "aten.item.default": lambda node: node.replace(op_type="aten._local_scalar_dense.default"),
    "aten.upsample_nearest2d.default": _with_one_size,
}
"""What says the same with an operator of the core set, where one does."""


def _scopes_in(node: OpNode, scopes: tuple[Region, ...]) -> tuple[Region, ...]:
    """The regions of autocast for the CPU inside of a region."""
    dtype, device = node.attrs.get("dtype"), str(node.attrs.get("device_type"))
    is_on = node.attrs.get("enabled") is not False
    if device == "cpu":
        return (*scopes, (device, dtype.name if isinstance(dtype, DType) else "", is_on))
    if is_on:
        raise PassError(f"autocast for {device!r} is not written out, only that for the CPU")
    return scopes  # none is on around it that it would switch off: that is refused


class _Decomposition:
    def __init__(self, ir: IR, shared: Shared, path: str):
        self.ir = ir
        self.shared = shared
        self.path = path
        self.bodies = ir.functions
        self.builder = Builder(ir)
        self.builder.functions = {}  # those that are called, lowered
        self.types = external_types(ir)
        self.found = Diagnostics()
        self.sparse = UndecomposedValues(ir)

    def node(self, node: OpNode, scopes: tuple[Region, ...]) -> None:
        """Add what stands for a node."""
        node = self.sparse.core_form(self.builder.mapped(node))
        form = _CORE_FORMS.get(node.op_type)
        is_own = node.op_type in self.shared.settings.own
        if form is not None and not (is_own or self._stays(node)):
            core = form(node)
            node = core if self._stays(core) else node
        try:
            if node.op_type == AUTOCAST_REGION:
                self._region(node, scopes)
            elif node.op_type.startswith("higher_order."):
                self._call(node, scopes)
            elif self._stays(node) and (not scopes or node.binds):
                self._keep(node)
            else:
                self._replace(node, scopes)
        except PassError as error:
            if self.shared.settings.is_partial and not scopes:
                self._keep(node)
                return
            self.found.add(about(Diagnostic("not-decomposable", error.message), node, self.path))
            self.builder.nodes.append(node)

    def _stays(self, node: OpNode) -> bool:
        return self.shared.settings.stays(node)

    def _types(self, node: OpNode) -> tuple[TensorType, ...]:
        return tuple([self.types.get(meta.name) or contiguous(meta) for meta in node.inputs])

    # -- nodes that stay --------------------------------------------------------------------------

    def _keep(self, node: OpNode) -> None:
        self.sparse.keep(node)
        self.builder.nodes.append(node)
        outcome = self.shared.fakes.outcome(node, self._types(node))
        for meta in node.outputs:
            self.types[meta.name] = recorded(meta, outcome.result(meta))

    def _call(self, node: OpNode, scopes: tuple[Region, ...]) -> None:
        names = node.functions
        self.sparse.require_none(node)
        if scopes and names:
            raise PassError("control flow under autocast is not written out")
        for name in names:
            if name not in self.builder.functions:
                path = f"{self.path}{name}/"
                body = lowered(self.bodies[name], self.shared, path, self.found)
                body = body.replace(dialect=self.shared.settings.dialect)
                self.builder.functions[name] = body
        self.builder.nodes.append(node)

    # -- regions under autocast -------------------------------------------------------------------

    def _region(self, node: OpNode, scopes: tuple[Region, ...]) -> None:
        (name,) = node.functions
        body = self.bodies[name]
        self.sparse.require_none(node)
        inner = _scopes_in(node, scopes)
        values = dict(zip(body.input_names, node.inputs, strict=True))
        outer, self.bodies = self.bodies, body.functions
        for item in body.nodes:
            copy = renamed(with_inputs(item, values), self.builder.names.fresh(item.name))
            copy = copy.derived_from(node)
            self.node(copy, inner)
            for old, new in zip(item.outputs, copy.outputs, strict=True):
                values[old.name] = self.builder.value(new)
        self.bodies = outer
        results = result_names(body)
        for output in node.outputs:
            self.builder.replace(output, values[results[output.producer_output_idx]])

    # -- nodes that are replaced ------------------------------------------------------------------

    def _replace(self, node: OpNode, scopes: tuple[Region, ...]) -> None:
        inputs = self._types(node)
        key = (node.op_type, node.attrs, node.operands, inputs, scopes)
        fragment = self.shared.fragments.get(key)
        if fragment is None:
            try:
                fragment = self._traced(node, inputs, scopes)
            except PassError:
                self.sparse.require_none(node)  # that is why, and not what torch says of it
                raise
            if fragment.reusable:
                self.shared.fragments[key] = fragment
        self.sparse.require_none(node, unless=fragment.nodes)
        if any(item.op_type in self.shared.settings.avoided for item in fragment.nodes):
            self._keep(node)
        else:
            self._splice(node, fragment)

    def _traced(
        self, node: OpNode, inputs: tuple[TensorType, ...], scopes: tuple[Region, ...]
    ) -> Fragment:
        """The fragment in the target's operators.

        torch has decompositions that it does not use for the core set; they are taken where
        nothing else leads to it.
        """
        more, function = dict[Any, Decomposition](), self.shared.settings.function(node)
        contexts = [partial(autocast, scope) for scope in scopes]
        while True:
            fragment = self.shared.tracer.trace(node, inputs, function, contexts, more)
            others = {n.op_type for n in fragment.nodes if not self.shared.settings.stays(n)}
            if not others:
                return fragment
            known = self.shared.settings.decompositions
            found = {op: f for op, f in spare_decompositions().items() if str(op) in others}
            is_spent = not found.keys() - more.keys()
            is_known = is_spent or all(resolve_operator(o) in known for o in others)
            if is_known and node.op_type not in others:
                return self._lowered_again(fragment, node, inputs)
            if is_spent:
                raise PassError(f"there is no decomposition of {', '.join(sorted(others))}")
            more |= found
            function = function or found.get(resolve_operator(node.op_type))

    def _lowered_again(
        self, fragment: Fragment, node: OpNode, types: Sequence[TensorType]
    ) -> Fragment:
        """A fragment that was made functional after it was traced, its nodes decomposed."""
        ir = fragment.program(node, self.shared.fakes)
        walk = _Decomposition(ir, self.shared, self.path)
        walk.types = {meta.name: kind for meta, kind in zip(ir.graph_inputs, types, strict=True)}
        for item in fragment.nodes:
            walk.node(item, ())
        done = walk.builder.finish()
        if walk.found or len(done.constants) > len(ir.constants):
            reasons = "; ".join([found.line for found in walk.found])
            raise PassError(reasons or "its decomposition holds a tensor")
        return fragment.made_of(done)

    def _splice(self, node: OpNode, fragment: Fragment) -> None:
        """Add the nodes of a fragment, and note what the results of the node are now."""
        values = {INPUT.format(i): meta for i, meta in enumerate(node.inputs)}
        for name, constant in fragment.constants.items():
            values[name] = self._constant(node, constant)
        results = _results(node, fragment, self.builder.ir.schema_of(node.op_type))
        wanted = self._wanted(node, fragment)
        types = {results[meta.name].name: meta for meta in node.outputs}
        for item in fragment.nodes:
            packet = item.op_type.split(".")[1].strip("_")
            fresh = self.builder.names.fresh
            name = node.name if item.name == wanted else fresh(f"{node.name}_{packet}")
            inputs = tuple([values.get(meta.name, meta) for meta in item.inputs])
            outputs = tuple(
                [_renamed(old, item, name, types.get(old.name)) for old in item.outputs]
            )
            copy = OpNode(
                name, item.op_type, inputs, outputs, item.attrs, item.operands, node.location
            )
            copy = copy.replace(binds=item.binds) if item.binds else copy
            self.builder.nodes.append(copy.derived_from(node))
            self.sparse.keep(copy)
            values.update(zip([old.name for old in item.outputs], outputs, strict=True))
        for meta in node.outputs:
            made = values[results[meta.name].name]
            self.builder.replace(meta, made)
            kind = fragment.types[meta.producer_output_idx]
            if kind is not None:
                self.types[made.name] = kind

    def _wanted(self, node: OpNode, fragment: Fragment) -> str:
        """The node of a fragment that takes the name of a node with a single result."""
        if len(node.outputs) != 1 or node.outputs[0].name != node.name:
            return ""
        result = fragment.results[node.outputs[0].producer_output_idx]
        producer = result.producer_node if result is not None else None
        made = [n for n in fragment.nodes if n.name == producer and len(n.outputs) == 1]
        return made[0].name if made and made[0].outputs[0].name == made[0].name else ""

    def _constant(self, node: OpNode, constant: Constant) -> TensorMeta:
        """A tensor that a decomposition writes down, as a constant of the program."""
        if self.path:
            raise PassError("its decomposition holds a tensor, and functions have no constants")
        return self.builder.constant(constant, f"{node.name}_constant")


def _renamed(made: TensorMeta, node: OpNode, name: str, recorded: TensorMeta | None) -> TensorMeta:
    """A result of a node under another name.

    Its shape is as it was recorded, which may spell sizes in another way.
    """
    shape = made.shape
    if recorded is not None and len(recorded.shape) == len(shape):
        shape = recorded.shape
    suffix = made.name[len(node.name) :] if made.name.startswith(node.name) else ""
    return TensorMeta(name + suffix, shape, made.dtype, name, made.producer_output_idx)


def _results(node: OpNode, fragment: Fragment, schema: Schema | None) -> dict[str, TensorMeta]:
    """What the fragment gives for each result of a node.

    Raises:
        PassError: It gives something else than is recorded.
    """
    wanted = [] if schema is None else [result.type for result in schema.returns]
    found = len(fragment.results)
    if set(wanted) == {"Tensor"} and found != len(wanted):
        raise PassError(f"its decomposition gives {counted(found, 'result')}, not {len(wanted)}")
    results: dict[str, TensorMeta] = {}
    for meta in node.outputs:
        made = fragment.results[meta.producer_output_idx]
        if made is None:
            raise PassError(f"its decomposition makes no tensor as %{meta.name}")
        if not _may_be(made, meta):
            told = TensorMeta(meta.name, made.shape, made.dtype)
            raise PassError(f"its decomposition makes {told}, not {meta}")
        results[meta.name] = made
    return results


def _may_be(made: TensorMeta, meta: TensorMeta) -> bool:
    """Return whether a result may have the type that is recorded; sizes have many spellings."""
    if (made.dtype, len(made.shape)) != (meta.dtype, len(meta.shape)):
        return False
    pairs = zip(made.shape, meta.shape, strict=True)
    return not any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)


# -- dense operands -------------------------------------------------------------------------------


_FOLLOWING = frozenset({"pointwise", "view"})
"""Traits of operators whose results are laid out as their arguments are."""

_COPIES = frozenset({"aten.clone.default", "aten._to_copy.default"})

_ROW_MAJOR = MemoryFormat("contiguous_format")


def with_dense_operands(builder: Builder, types: Mapping[str, TensorType]) -> None:
    """Give operators that need dense tensors a copy of each that is not known to be dense.

    Eager copies them inside of the composite operator, by their strides. Those are unknown here
    for graph inputs, and where a dimension has one element.

    Args:
        builder: The graph, with all of its nodes.
        types: What is known of the layout of its values.
    """
    if not any(node.op_type in DENSE_OPERANDS for node in builder.nodes):
        return
    dense = {name for name in builder.ir.external_values() if _is_given_dense(name, types)}
    nodes, builder.nodes = builder.nodes, []
    for node in nodes:
        given = {
            name: node.inputs[slot]
            for name in DENSE_OPERANDS.get(node.op_type, ())
            if isinstance(slot := node.slots.get(name), int)
        }
        copies = {
            meta.name: _copied(builder, node, meta)
            for meta in given.values()
            if meta.name not in dense
        }
        inputs = [copies.get(meta.name, meta) for meta in node.inputs]
        builder.nodes.append(node.replace(inputs=inputs) if copies else node)
        dense |= {meta.name for meta in node.outputs if _is_dense(node, meta, types, dense)}


def _is_given_dense(name: str, types: Mapping[str, TensorType]) -> bool:
    known = types[name]
    return known.strides == contiguous(TensorMeta(name, known.shape, known.dtype)).strides


def _copied(builder: Builder, node: OpNode, meta: TensorMeta) -> TensorMeta:
    attrs = {"self": meta, "memory_format": _ROW_MAJOR}
    types, name = [(meta.shape, meta.dtype)], f"{node.name}_dense"
    return builder.emit("aten.clone.default", attrs, like=node, results=types, name=name)[0]


def _is_dense(
    node: OpNode, meta: TensorMeta, types: Mapping[str, TensorType], dense: set[str]
) -> bool:
    """Return whether a result lies in row-major order whatever the layout of graph inputs is."""
    known = types.get(meta.name)
    if known is None or not _is_row_major(known, meta):
        return False
    if lookup(node.op_type) is None:
        return False
    order = node.attrs.get("memory_format") if node.op_type in _COPIES else None
    if order == _ROW_MAJOR:
        return True
    if node.op_type in _COPIES or spec_of(node.op_type).traits & _FOLLOWING:
        return all(given.name in dense for given in node.inputs if given.shape)
    return True


def _is_row_major(known: TensorType, meta: TensorMeta) -> bool:
    pairs = zip(meta.shape, known.strides, contiguous(meta).strides, strict=False)
    return all(size == 1 or a == b for size, a, b in pairs)
