"""The check that a graph has gradients, for every call that they would pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from torch_ir.executor.autograd.derivatives import Autocast, Formula, prove_formula
from torch_ir.executor.check.types import Derivation
from torch_ir.executor.plan import Plan
from torch_ir.infer.binder import BoundCall, Literal
from torch_ir.infer.hints import samplings
from torch_ir.infer.meta import MetaResult
from torch_ir.infer.types import TensorType
from torch_ir.ir import IR, OpNode, TensorMeta
from torch_ir.ir.aliases import written_tensors
from torch_ir.ir.analysis.gradient_stops import STOPS
from torch_ir.ir.diagnostics import Diagnostic, DiagnosticError, compile_error
from torch_ir.ir.queries import custom_gradients, given_values
from torch_ir.torch_api import HigherOrderOperator


def require_gradients(
    plan: Plan,
    payload: Mapping[str, torch.Tensor],
    wanted: Iterable[str],
    *,
    forward: bool = False,
    collect: bool = False,
) -> None:
    """Refuse a graph of which a gradient is wanted that torch cannot take.

    Args:
        plan: The graph's plan.
        payload: The tensor behind each external name.
        wanted: The inputs, weights and constants that gradients are wanted of.
        forward: Tangents are to be carried forward instead of gradients back.
        collect: Find every operator without a formula, not the first only.

    Raises:
        CompileError: ``no-gradient``: an operator has no formula; ``written-input``: the program
            writes to an input; ``custom-gradient``: it was traced from an autograd function with
            a gradient of its own, which is lost.
    """
    search = _GraphSearch(payload, forward, collect)
    names = frozenset(wanted)
    search.refuse_custom_gradients(plan.ir)
    search.refuse_written_inputs(plan.ir, names)
    search.walk(plan, names)
    search.raise_findings()


def is_differentiable(meta: TensorMeta) -> bool:
    """Return whether a value of this type can have a gradient."""
    dtype: torch.dtype = getattr(torch, meta.dtype)
    return dtype.is_floating_point or dtype.is_complex


@dataclass(frozen=True, slots=True)
class _Region:
    """The modes that a node runs in, and where it stands.

    Attributes:
        is_recorded: Whether gradients are recorded.
        autocast: The autocast region, if any.
        path: The functions around it.
    """

    is_recorded: bool = True
    autocast: Autocast | None = None
    path: str = ""


@dataclass
class _GraphSearch:
    """One look at a graph, and what it has found."""

    payload: Mapping[str, torch.Tensor]
    forward: bool
    collect: bool
    findings: list[Diagnostic] = field(default_factory=list[Diagnostic])
    first: OpNode | None = None

    def found(self, fault: DiagnosticError, node: OpNode | None, path: str = "") -> None:
        self.findings.append(fault.at(node, path))
        self.first = self.first or node
        if not self.collect:
            self.raise_findings()

    def raise_findings(self) -> None:
        if self.findings:
            raise compile_error(self.findings, self.first)

    def refuse_custom_gradients(self, ir: IR) -> None:
        lost = custom_gradients(ir)
        if names := ", ".join([name for name in lost if name not in STOPS]):
            self._lost(
                f"the model applies {names}: torch.export keeps the operators of its forward, "
                "whose gradient may be another than that of its backward",
                "Make it an operator, with torch.library.custom_op and register_autograd, or "
                "extract a model without it.",
            )
        if names := ", ".join([name for name in lost if name in STOPS]):
            self._lost(
                f"gradients end where the model calls {names}, and this program does not call it: "
                "it was lowered since, or torch wrote it out",
                "Take the gradients of the program as it was extracted, of a model without vmap.",
            )

    def _lost(self, said: str, remedy: str) -> None:
        self.found(DiagnosticError("custom-gradient", said, remedy=remedy), None)

    def refuse_written_inputs(self, ir: IR, wanted: frozenset[str]) -> None:
        inputs, external = set(ir.input_names), ir.external_values()
        keys = {external[name][0] for name in wanted if name in external}
        for mutation in ir.mutations:
            target = mutation.target
            key = external[target][0] if target in external else None
            if target in wanted & inputs:
                what = f"its input %{target}, of which there is then no gradient"
                remedy = "Extract a model that works on a copy of it."
            elif key in keys:
                what = f"its weight @{key}, of which a run has its own copy, without a gradient"
                remedy = "Let the weight require no gradient, or trace the model with make_traced."
            else:
                continue
            said = f"the program writes to {what}"
            fault = DiagnosticError("written-input", said, remedy=remedy)
            self.found(fault, None)

    def walk(self, plan: Plan, wanted: frozenset[str], region: _Region | None = None) -> bool:
        """Look at every node; whether a result depends differentiably on what is wanted."""
        values = _GradientValues(plan.ir, wanted)
        derivation = self._derivation(plan.ir, {} if region else self.payload)
        for step in plan.steps:
            try:
                self._node(plan, step.call, values, derivation, region or _Region())
            except DiagnosticError as fault:
                self.found(fault, step.call.node, region.path if region else "")
        written = [name for m in plan.ir.mutations for name in (m.target, m.value.name)]
        for node, fault in dict.fromkeys(values.behind((*plan.ir.output_names, *written))):
            self.found(fault, node, region.path if region else "")
        return any(meta.name in values.recorded for meta in plan.ir.graph_outputs)

    def _derivation(self, ir: IR, payload: Mapping[str, torch.Tensor]) -> Derivation:
        derivation = Derivation(next(iter(samplings(ir)), {}), ir)
        for meta in ir.graph_inputs:
            derivation.believe(meta)
        for name, tensor in payload.items():
            derivation.take(name, TensorType.of(tensor))
        return derivation

    def _node(
        self,
        plan: Plan,
        call: BoundCall,
        values: _GradientValues,
        derivation: Derivation,
        region: _Region,
    ) -> None:
        found = None
        if region.autocast is None:
            found = derivation.step(call)
        else:  # an operator gives other types there than it says
            for meta in call.node.outputs:
                derivation.believe(meta)
        values.share(call, found)
        mask = tuple([meta.name in values.recorded for meta in call.node.inputs])
        if not any(mask):
            return
        behind = next(values.behind([meta.name for meta in call.node.inputs]), None)
        if isinstance(call.target, HigherOrderOperator):
            if behind is not None:
                raise behind[1]
            if self._functions(plan, call, call.target, mask, region):
                values.record(call.node.outputs)
        elif region.is_recorded:
            found = self._formula(call, derivation, mask, region)
            if found.refusal:
                behind = call.node, _no_gradient(call, found.refusal)
            flags = found.recorded
            made = [meta for meta in call.node.outputs if flags[meta.producer_output_idx]]
            values.record(made, behind)
            values.record_written(call, behind)

    def _formula(
        self, call: BoundCall, derivation: Derivation, mask: tuple[bool, ...], region: _Region
    ) -> Formula:
        """Which results of a node depend differentiably on what is wanted.

        One that has no gradient is refused only where a gradient would come to it: a comparison
        lets none pass.

        Raises:
            DiagnosticError: ``no-gradient``.
        """
        if call.is_registered:
            raise _no_gradient(call, "it runs with a kernel that was registered for it")
        signature = derivation.signature(call)
        if signature is None:
            raise _no_gradient(call, "its arguments are not known before it runs")
        formula = prove_formula(signature, mask, forward=self.forward, autocast=region.autocast)
        if formula.refusal and (self.forward or not formula.recorded):
            raise _no_gradient(call, formula.refusal, forward=self.forward)
        return formula

    def _functions(
        self,
        plan: Plan,
        call: BoundCall,
        operator: HigherOrderOperator,
        mask: tuple[bool, ...],
        region: _Region,
    ) -> bool:
        """Whether a result of a call of functions depends differentiably on what is wanted."""
        if operator.name() == "autograd_function":
            if self.forward:
                raise _no_gradient(call, "torch carries no tangents through it", forward=True)
            return region.is_recorded
        inner = _inner_region(call, operator.name(), region)
        is_plain = operator.name() in _REGIONS
        if self.forward and inner.is_recorded and not is_plain:
            raise _no_gradient(call, "torch carries no tangents through it", forward=True)
        if self.forward and not inner.is_recorded:
            raise _no_gradient(call, "tangents would pass where no gradient does", forward=True)
        depends = False
        for name in call.functions:
            function = plan.functions[name]
            metas = function.ir.graph_inputs
            flags = mask if is_plain and len(mask) == len(metas) else (True,) * len(metas)
            pairs = zip(metas, flags, strict=True)
            wanted = frozenset([meta.name for meta, flag in pairs if flag])
            path = f"{region.path}{name}/"
            depends |= self.walk(
                function, wanted, _Region(inner.is_recorded, inner.autocast, path)
            )
        return depends


_REGIONS = ("wrap_with_set_grad_enabled", "wrap_with_autocast")


def _inner_region(call: BoundCall, operator: str, region: _Region) -> _Region:
    """The region that a call makes for its functions."""
    values: list[Any] = [item.value if isinstance(item, Literal) else None for item in call.args]
    if operator == "wrap_with_set_grad_enabled":
        return _Region(bool(values[0]), region.autocast)
    if operator == "wrap_with_autocast":
        dtype = values[1] if isinstance(values[1], torch.dtype) else torch.bfloat16
        return _Region(region.is_recorded, Autocast(dtype, bool(values[2])))
    return region


def _no_gradient(call: BoundCall, reason: str, *, forward: bool = False) -> DiagnosticError:
    mode = " in forward mode" if forward else ""
    return DiagnosticError("no-gradient", f"{call.node.op_type} has no gradient{mode}: {reason}")


Missing: TypeAlias = tuple[OpNode, DiagnosticError]
"""A call that has no gradient, and what is said of it."""


class _GradientValues:
    """The values of a graph: which may carry a gradient, and which may share their storage.

    Attributes:
        recorded: The names of those that depend differentiably on what is wanted.
    """

    def __init__(self, ir: IR, wanted: frozenset[str]):
        self._ir = ir
        self._metas = dict(given_values(ir))
        given = self._metas.values()
        self.recorded = {m.name for m in given if m.name in wanted and is_differentiable(m)}
        self._groups: dict[str, set[str]] = {name: {name} for name in self._metas}
        self._behind: dict[str, Missing] = {}

    def record(self, metas: Iterable[TensorMeta], behind: Missing | None = None) -> None:
        """Note values that depend on what is wanted, and the call without a gradient behind."""
        names = [meta.name for meta in metas if is_differentiable(meta)]
        self.recorded.update(names)
        if behind is not None:
            self._behind.update(dict.fromkeys(names, behind))

    def record_written(self, call: BoundCall, behind: Missing | None) -> None:
        """What a call writes to depends on its arguments, under every name that it has."""
        for meta in written_tensors(self._ir, call.node) or ():
            self.record([self._metas[other] for other in self._groups[meta.name]], behind)

    def behind(self, names: Iterable[str]) -> Iterator[Missing]:
        """Yield the calls without a gradient to which gradients of values would come."""
        return (self._behind[name] for name in names if name in self._behind)

    def share(self, call: BoundCall, found: MetaResult | None) -> None:
        """Note which arguments the results of a call may share storage with."""
        inputs = [meta.name for meta in call.node.inputs]
        for meta in call.node.outputs:
            self._metas[meta.name] = meta
            group = {meta.name}
            for name in _shared(meta, inputs, found):
                group |= self._groups[name]
            for name in group:
                self._groups[name] = group


def _shared(meta: TensorMeta, inputs: Sequence[str], found: MetaResult | None) -> Sequence[str]:
    index = meta.producer_output_idx
    if found is None or found.kind != "ok" or index >= len(found.results):
        return inputs
    return [inputs[position] for position in found.shares[index]]
