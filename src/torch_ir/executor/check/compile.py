"""The checked compile: from a graph and its weights to a function without checks left to make."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch

from torch_ir.arguments import public
from torch_ir.executor.autograd.differentiable import require_gradients
from torch_ir.executor.check.types import Derivation
from torch_ir.executor.codegen.module import CompiledModule, compile_source
from torch_ir.executor.codegen.source import write_source
from torch_ir.executor.graph import ExecGraph
from torch_ir.executor.groups import bound_to_groups
from torch_ir.executor.placement import PlacedProgram, Placement, placed_or_on
from torch_ir.executor.plan import Plan, make_plan
from torch_ir.executor.program import CompiledProgram
from torch_ir.infer.binder import BoundCall, resolve
from torch_ir.infer.bindings import Bindings
from torch_ir.infer.hints import samplings
from torch_ir.infer.meta import MetaResult
from torch_ir.infer.slots import Slots
from torch_ir.infer.types import TensorType
from torch_ir.ir import IR, Constant, Device, Dim, OpNode, TensorMeta
from torch_ir.ir.diagnostics import Diagnostic, DiagnosticError, compile_error, errors_among
from torch_ir.ir.queries import has_default_dtype, layout_of, makes_sparse, op_types
from torch_ir.ir.tensor import type_text
from torch_ir.ir.values import RUN_DEVICE, attribute_leaves, layout_name
from torch_ir.ops.bodies import AUTOCAST_REGION
from torch_ir.ops.rules import allow_collectives, allow_operators, allowances
from torch_ir.ops.schema import KNOWN_NAMESPACES
from torch_ir.steps import steps, uncollected
from torch_ir.torch_api import constant_tensors, is_sparse, overload
from torch_ir.torch_modes import outside_of_traces
from torch_ir.weights.tensor_registry import registered_kernel


@public
def compile_graph(
    ir: IR,
    payload: Mapping[str, torch.Tensor] | None = None,
    *,
    device: torch.device | str | None = None,
    collect: bool = False,
    check_types: bool = True,
    grad: bool | Collection[str] = False,
    allow: Iterable[str] = (),
    groups: Mapping[str, Any] | None = None,
    placement: Placement | None = None,
) -> ExecGraph:
    """Compile a graph with its weights into straight-line Python.

    The nodes are walked once. Each operand becomes a typed slot, which must have been defined
    before with the recorded type; each operator is resolved to the exact overload; what it gives
    is derived anew and must be what is recorded. What is returned has no checks left but those of
    the inputs of a call.

    Args:
        ir: The graph.
        payload: Weights by ``state_dict`` key, and constants that take the place of the IR's own.
            They are used as they are where they are on the device, and else moved once; of
            buffers that the program writes the graph keeps copies.
        device: What ``Device("run")`` stands for; that of the payload if not given, else the CPU.
        collect: Find everything that is wrong, not the first thing only.
        check_types: Derive types. Without it the graph is believed, calls cost more, and results
            never take the place of values that are dead.
        grad: Record gradients through the run, where an input requires them or a weight does.
            Names of inputs and weights say that formulas are looked for on the way from these
            alone; others may be written.
        allow: Operators to allow although the rules refuse them; see
            :func:`torch_ir.allow_operators`.
        groups: The process group for each name of the program's collectives, which may not be
            called without it.
        placement: Where what runs: a device, or devices by the beginnings of module paths, by
            weights and functions, ``""`` for all others; also a ``device_map`` of Hugging Face.

    Raises:
        ExecutionError: The placement names no device, or nothing in the program.
        CompileError: A node is malformed, lies about its types, is unsupported or may not be
            called, or the payload lacks something. The message is about the first finding.

    Example:
        >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> graph = compile_graph(IR([OpNode("y", "aten.relu.default", [x], [y])], [x], [y], []))
        >>> graph.eval((torch.tensor([-1.0, 2.0]),))
        (tensor([0., 2.]),)
    """
    ir, allow = bound_to_groups(ir, groups, allow)
    with (
        allow_operators(*allow),
        uncollected(),
        outside_of_traces(),
        torch.inference_mode(False),
    ):  # what the graph keeps may be written outside of it too
        where = placed_or_on(ir, placement, device, payload or {})
        return _compile(where, dict(payload or {}), collect, check_types, grad)


def _compile(
    where: PlacedProgram,
    tensors: dict[str, torch.Tensor],
    collect: bool,
    check_types: bool,
    grad: bool | Collection[str],
) -> ExecGraph:
    ir, run_device = where.ir, where.device
    grad = grad if isinstance(grad, Collection) else bool(grad)
    recorded = grad is not False
    compiler = _Compiler(run_device, collect, check_types, recorded)
    values = where.moved(compiler.payload(ir, tensors))

    default = torch.get_default_dtype()

    def compiled() -> tuple[Plan, CompiledModule]:
        compiler.structure(ir)
        compiler.on_cpu = _is_on_cpu(where)
        known = default if has_default_dtype(ir) else None
        plan = compiler.plan(ir, values)
        plan = replace(plan, input_devices=where.inputs, default_dtype=known)
        compiler.raise_findings()
        return plan, compile_source(
            write_source(plan, run_device, recorded=recorded), ir.model_name
        )

    strides = tuple([_strides(tensor) for tensor in values.values()])
    operators = tuple([_registered(op_type) for op_type in op_types(ir)])
    key = "compiled", run_device, check_types, recorded, strides, operators, allowances(), default
    if compiler.findings:
        compiled()
    plan, module = ir.view(key, compiled)  # a graph that is compiled again is not looked at again
    if grad is not False:
        wanted = _leaves(ir, values) if grad is True else grad
        require_gradients(plan, values, wanted, collect=collect)
    return ExecGraph(CompiledProgram(plan, module, values, run_device, grad=recorded))


def _is_on_cpu(where: PlacedProgram) -> bool:
    """Whether every value of a program lies on the CPU."""
    asked = {
        leaf.name
        for _, _, node in where.ir.walk()
        for value in node.attrs.values()
        for leaf in attribute_leaves(value)
        if isinstance(leaf, Device)
    }
    places = {where.device, *where.external.values(), *where.inputs.values()}
    return asked <= {RUN_DEVICE, "cpu"} and all(place.type == "cpu" for place in places)


def _key(finding: Diagnostic) -> tuple[str, str]:
    """What two findings about one thing have in common."""
    return finding.code, finding.node or finding.message


def _leaves(ir: IR, payload: Mapping[str, torch.Tensor]) -> list[str]:
    """What may require gradients: the inputs of a call, and weights that do already."""
    weights = [name for name, tensor in payload.items() if tensor.requires_grad]
    return [*ir.input_names, *weights]


def _strides(tensor: torch.Tensor) -> tuple[int, ...] | torch.layout:
    return tensor.stride() if tensor.layout == torch.strided else tensor.layout


def _registered(op_type: str) -> object:
    """What is registered under a name now; operators of torch itself never change."""
    namespace, *rest = op_type.split(".")
    found = registered_kernel(op_type)
    if found is not None or namespace in KNOWN_NAMESPACES or len(rest) != 2:
        return found
    return overload(namespace, *rest)


@allow_collectives()
@public
def check_types(ir: IR) -> tuple[Diagnostic, ...]:
    """Return all nodes that torch refuses, or whose results are not of the recorded types.

    The operators run on tensors without data, inside functions too. Symbols take values from
    their ranges, and a second time others where the ranges and guards allow it: a size that is
    equal by accident is told from one that has to be. A result that depends on data is believed.
    Findings have the codes of :func:`torch_ir.executor.compile_graph`: ``refused-arguments``,
    ``wrong-type``, ``impossible-shape``, and those for calls that cannot be made at all.

    Example:
        >>> x, y = TensorMeta("x", (2, 3), "float32"), TensorMeta("y", (2, 3), "float32", "y")
        >>> node = OpNode("y", "aten.sum.dim_IntList", [x], [y], {"dim": [1]})
        >>> print(*check_types(IR([node], [x], [y], [])))  # doctest: +NORMALIZE_WHITESPACE
        [wrong-type] node 'y': %y is not what aten.sum.dim_IntList gives (expected f32[2], got
        f32[2, 3])
    """
    compiler = _Compiler(torch.device("cpu"), collect=True, derives=True, grad=False)
    declared = {name: _declared(value) for name, (_, value) in ir.external_values().items()}
    compiler.plan(ir, declared)
    return tuple(compiler.findings)


@dataclass
class _Compiler:
    """One compilation, and what it has found."""

    device: torch.device
    collect: bool
    derives: bool
    grad: bool
    on_cpu: bool = False
    findings: list[Diagnostic] = field(default_factory=list[Diagnostic])
    first: OpNode | None = None
    _known: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def found(self, fault: DiagnosticError, node: OpNode | None, path: str = "") -> None:
        """Record a fault.

        Raises:
            CompileError: Only the first was asked for.
        """
        finding = fault.at(node, path)
        if _key(finding) in self._known:
            return
        self._record(finding, node)

    def _record(self, finding: Diagnostic, node: OpNode | None) -> None:
        self._known.add(_key(finding))
        self.findings.append(finding)
        self.first = self.first or node
        if not self.collect:
            self.raise_findings()

    def raise_findings(self) -> None:
        """Raise what was found, if anything was.

        Raises:
            CompileError: About the first.
        """
        if self.findings:
            raise compile_error(self.findings, self.first)

    def structure(self, ir: IR) -> None:
        """What does not concern single calls: names, outputs, mutations, the signature.

        Raises:
            CompileError: Only the first was asked for.
        """
        for finding in errors_among(ir.check()):
            self._record(finding, ir.by_name.get(finding.node))

    # -- the payload ------------------------------------------------------------------------------

    def payload(self, ir: IR, given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The tensor behind each name under which nodes use a weight or constant."""
        values: dict[str, torch.Tensor] = {}
        external = ir.external_values()
        missing = {key for key, _ in external.values() if key in ir.constants} - given.keys()
        constants = constant_tensors(ir.constants, missing, given, self.device)
        for name, (key, declared) in external.items():
            tensor = given.get(key)
            if tensor is None:
                tensor = next(
                    (given[a] for a, k in ir.weight_aliases.items() if k == key and a in given),
                    None,
                )
            if tensor is None:
                tensor = constants.get(key)
            if isinstance(tensor, torch.Tensor) and _fits(tensor, declared):
                values[name] = tensor
                continue
            try:
                fitting = _fitting(TensorMeta(key, *_type(declared)), tensor)
                values[name] = _with_layout(ir, key, fitting)
            except DiagnosticError as fault:
                self.found(fault, None)
        return values

    # -- the nodes --------------------------------------------------------------------------------

    def plan(self, ir: IR, payload: Mapping[str, torch.Tensor], path: str = "") -> Plan:
        """The plan of a graph or of one of its functions."""
        derivations = self._derivations(ir, payload, path)
        calls = list(self._calls(ir, path))
        outcomes = self._outcomes(calls, derivations, path)
        functions = self._function_plans(ir, calls, path)
        if self.findings:  # nothing will run it
            return make_plan(
                ir.replace(nodes=(), graph_outputs=(), mutations=()), [], [], [], {}, reuse=False
            )
        bindings = Bindings(ir)
        symbols = [bindings.of(call.node) for call in calls]
        # in the place of a dense value, a sparse result would be dense
        is_dense = not (makes_sparse(ir) or any(map(is_sparse, payload.values())))
        reuse = is_dense and not (self.grad or path) and self.device.type != "meta"
        return make_plan(ir, calls, outcomes, symbols, functions, reuse=reuse, on_cpu=self.on_cpu)

    def _function_plans(self, ir: IR, calls: list[BoundCall], path: str) -> dict[str, Plan]:
        """The plans of the functions that nodes refer to."""
        plans: dict[str, Plan] = {}
        for call in calls:
            derives = self.derives
            # under autocast an operator gives other types than it says
            self.derives = derives and call.node.op_type != AUTOCAST_REGION
            for name in call.functions:
                if name in ir.functions and name not in plans:
                    plans[name] = self.plan(ir.functions[name], {}, f"{path}{name}/")
            self.derives = derives
        return plans

    def _calls(self, ir: IR, path: str) -> Iterator[BoundCall]:
        slots = Slots()
        for meta in ir.graph_inputs:
            slots.define(meta)
        for name, (_, value) in ir.external_values().items():
            slots.define(TensorMeta(name, value.shape, value.dtype))
        for node in steps(ir.nodes) if self.collect else ir.nodes:
            try:
                call = resolve(node, slots, self.device)
                _require_functions(ir, call)
                _require_autocast_here(node, self.device)
                yield call
            except DiagnosticError as fault:
                self.found(fault, node, path)
                for meta in node.outputs:
                    if meta.name not in slots:
                        slots.define(meta)

    # -- types ------------------------------------------------------------------------------------

    def _derivations(
        self, ir: IR, payload: Mapping[str, torch.Tensor], path: str
    ) -> list[Derivation]:
        """One for each sampling of the symbols; none where types are believed."""
        found: list[Derivation] = []
        for symbols in samplings(ir) if self.derives else ():
            derivation = Derivation(symbols, ir)
            try:
                for meta in ir.graph_inputs:
                    derivation.believe(meta)
                for name, tensor in payload.items():
                    if tensor.layout == torch.strided:
                        derivation.take(name, TensorType.of(tensor))
            except DiagnosticError as fault:
                self.found(fault, None, path)
                return []
            found.append(derivation)
        return found

    def _outcomes(
        self, calls: list[BoundCall], derivations: list[Derivation], path: str
    ) -> list[MetaResult | None]:
        if self.findings:
            return []
        outcomes: list[MetaResult | None] = []
        for call in calls:
            found: list[MetaResult | None] = []
            try:
                found = [derivation.step(call) for derivation in derivations]
            except DiagnosticError as fault:
                self.found(fault, call.node, path)
            outcomes.append(_common(found))
        return outcomes


def _common(found: list[MetaResult | None]) -> MetaResult | None:
    """Keep the facts that hold under all size hints."""
    if len(found) == 1:
        return found[0]
    known = [result for result in found if result is not None]
    if not known or len(known) < len(found):
        return None
    first = known[0]
    if all(result == first for result in known):
        return first
    common = replace(
        first,
        binding=first.binding if all(r.binding == first.binding for r in known) else None,
        in_place=first.in_place if all(r.in_place == first.in_place for r in known) else None,
        takes_tensor=all(r.takes_tensor for r in known),
    )
    if all((r.kind, r.shares) == (first.kind, first.shares) for r in known):
        return common
    return replace(common, results=(), shares=(), kind="data-dependent")


def _require_functions(ir: IR, call: BoundCall) -> None:
    for name in call.functions:
        if name not in ir.functions:
            raise DiagnosticError("undefined-function", f"the graph has no function {name!r}")


def _require_autocast_here(node: OpNode, device: torch.device) -> None:
    """Refuse a region whose conversions would not be made: what it says of types was traced."""
    region = node.attrs.get("device_type")
    if (
        node.op_type != AUTOCAST_REGION
        or region == device.type
        or node.attrs.get("enabled") is False
    ):
        return
    raise DiagnosticError(
        "autocast-elsewhere",
        f"on {device} nothing is converted under autocast for {region!r}, and results would have "
        "other types than recorded",
        remedy="Write the conversions out first: torch_ir.decompose(ir)."
        if region == "cpu"
        else f"Run it on {region}, or extract it where it is to run.",
    )


def _declared(value: TensorMeta | Constant) -> torch.Tensor:
    """A tensor without values like a weight or constant; a weight is taken to be contiguous."""
    dtype, shape = getattr(torch, value.dtype), cast(Any, value.shape)
    if isinstance(value, TensorMeta):
        return torch.empty(shape, dtype=dtype, device="meta")
    return torch.empty_strided(shape, value.strides, dtype=dtype, device="meta")


def _type(declared: TensorMeta | Constant) -> tuple[tuple[Dim, ...], str]:
    return declared.shape, declared.dtype


def _fits(tensor: torch.Tensor, declared: TensorMeta | Constant) -> bool:
    same_type = tensor.dtype is getattr(torch, declared.dtype)
    is_dense = tensor.layout is torch.strided
    return same_type and is_dense and tuple(tensor.shape) == declared.shape


def _with_layout(ir: IR, key: str, tensor: torch.Tensor) -> torch.Tensor:
    layout, expected = layout_name(tensor.layout), layout_of(ir, key)
    if layout != expected and tensor.layout is not torch.strided:
        raise DiagnosticError(
            "wrong-payload",
            f"{key!r} is not what the program was extracted with",
            expected="a dense tensor" if expected == "strided" else f"a {expected} tensor",
            found=f"a {layout} one",
            remedy="Make it dense with to_dense(), or extract the model as it is now.",
        )
    return tensor


def _fitting(declared: TensorMeta, tensor: torch.Tensor | None) -> torch.Tensor:
    key = declared.name
    if tensor is None:
        raise DiagnosticError(
            "missing-payload",
            f"the graph needs {key!r} {type_text(declared)}, which was not given",
        )
    if not isinstance(tensor, torch.Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
        raise DiagnosticError(
            "wrong-payload", f"{key!r} must be a tensor, got {type(tensor).__name__}"
        )
    found = TensorMeta(key, tuple(tensor.shape), str(tensor.dtype))
    if (found.shape, found.dtype) != (declared.shape, declared.dtype):
        raise DiagnosticError(
            "wrong-payload",
            f"{key!r} is not what the graph needs",
            expected=type_text(declared),
            found=type_text(found),
        )
    return tensor
