"""An exported program as an IR."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast

import torch
from torch._higher_order_ops.wrap import wrap_with_set_grad_enabled
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, TensorArgument
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from torch_ir.errors import ConversionError, InvalidIRError, counted, first_line, raised_as
from torch_ir.frontend.autocast.kernel_types import types_under_autocast
from torch_ir.frontend.gradients.autograd_function import autograd_function
from torch_ir.frontend.graphs import Context, GraphTranslator
from torch_ir.frontend.lifted_constants import with_constants
from torch_ir.frontend.meta import is_of_transform
from torch_ir.frontend.program_inputs import ProgramInputs
from torch_ir.frontend.symbols.guards import GuardReader, argument_paths
from torch_ir.frontend.symbols.symbol_names import with_canonical_symbols
from torch_ir.frontend.trees import tree_from_spec
from torch_ir.ir import (
    IR,
    Container,
    Mutation,
    Signature,
    SymbolRange,
    SymExpr,
    TensorMeta,
    ValueLeaf,
)
from torch_ir.ir.analysis.gradient_stops import DETACH, NO_GRAD, with_lost_gradients
from torch_ir.ir.builder import mutations_in_place
from torch_ir.ir.functions import merged_functions
from torch_ir.ir.queries import INPUT_LAYOUTS, LAYOUTS
from torch_ir.torch_api import guards_of, pytree, range_ends, storage_of
from torch_ir.torch_memory import overlap

Place: TypeAlias = Callable[[IR, Mapping[str, torch.Tensor]], tuple[IR, dict[str, torch.Tensor]]]
_RESULTS = {OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT}
_GRADIENTS = {OutputKind.GRADIENT_TO_PARAMETER, OutputKind.GRADIENT_TO_USER_INPUT}
_MUTATIONS = {
    OutputKind.BUFFER_MUTATION,
    OutputKind.USER_INPUT_MUTATION,
    OutputKind.PARAMETER_MUTATION,
}


def convert_exported_program(
    exported: ExportedProgram,
    model_name: str = "",
    strict: bool = False,
    *,
    place: Place | None = None,
) -> IR:
    """Convert an exported program to an IR.

    A joint forward and backward graph returns two things: the model's own result, and a dict with
    the gradient of each parameter and input.

    Args:
        exported: What ``torch.export.export`` returned, before or after its decompositions.
        model_name: A name for people.
        strict: Accepted for callers of pytorch-ir; conversion is always strict.
        place: A change of the program, and of the values of its constants, before it is asked what
            it writes.

    Raises:
        ConversionError: The program holds things that cannot be translated; the message lists all
            of them.
    """
    if not isinstance(exported, ExportedProgram):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
        kind = type(exported).__name__
        raise ConversionError(
            f"an exported program is converted, got {kind}", remedy="Use extract_ir for a module."
        )
    lost = list[str]()
    if _calls_functorch(exported):
        lost += _own_gradients(exported)
        exported = _decomposed(exported)
    with types_under_autocast(exported.graph_module):
        return with_lost_gradients(_Program(exported).translate(model_name, place), lost)


def _decomposed(exported: ExportedProgram) -> ExportedProgram:
    """The program without functorch levels.

    Where torch has taken a value of a level for a constant, it has no memory: kernels that read it
    may end the process.
    """
    if any(map(is_of_transform, exported.constants.values())):
        raise ConversionError(
            "torch.export does not trace the gradients of torch.func in a model: it took values "
            "of their trace for constants",
            remedy="Trace the function with make_traced, or take the gradient outside the model.",
        )
    with raised_as(
        lambda error: ConversionError(
            "the program switches functorch levels, and torch cannot write them out: "
            f"{first_line(error)}"
        )
    ):
        return exported.run_decompositions({})


def _own_gradients(exported: ExportedProgram) -> Iterator[str]:
    """Name what is reached by gradients and has others than its operators, as torch writes it."""
    signature = exported.graph_signature
    reached = {*signature.inputs_to_parameters, *signature.user_inputs}
    for node in exported.graph.nodes:
        given = [argument for argument in node.all_input_nodes if argument.name in reached]
        if not any(map(_has_fractions, given)):
            continue
        reached.add(node.name)
        if node.target is wrap_with_set_grad_enabled and not node.args[0]:
            yield NO_GRAD
        elif node.target is torch.ops.aten.detach.default:
            yield DETACH
        elif node.target is autograd_function:
            yield from [n.target for n in node.all_input_nodes if n.op == "get_attr"][:1]


def _has_fractions(node: FxNode) -> bool:
    values = pytree.tree_leaves(node.meta.get("val"))
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return not tensors or any(t.is_floating_point() or t.is_complex() for t in tensors)


def _calls_functorch(exported: ExportedProgram) -> bool:
    """Whether the program switches vmap levels as it runs.

    torch's decomposition writes out what they mean.
    """
    graphs = [m.graph for m in exported.graph_module.modules() if isinstance(m, GraphModule)]
    modules = {getattr(node.target, "__module__", "") for graph in graphs for node in graph.nodes}
    return "torch._functorch.predispatch" in modules


class _Program:
    """The translation of one exported program."""

    def __init__(self, exported: ExportedProgram):
        self.exported = exported
        self.signature = exported.graph_signature
        self.context = Context(_run_devices(exported))
        self.body = GraphTranslator(exported.graph_module, self.context)
        self.inputs = ProgramInputs(exported, self.context)
        self.gradients: dict[str, FxNode] = {}

    def translate(self, model_name: str, place: Place | None) -> IR:
        self._symbols()
        placeholders = self.exported.graph.find_nodes(op="placeholder")
        for node, spec in zip(placeholders, self.signature.input_specs, strict=True):
            try:
                self.body.values[node] = self.inputs.value(node, spec)
            except InvalidIRError as error:
                self.context.refuse(node, error)
                self.body.values[node] = None
                if spec.kind is InputKind.USER_INPUT:
                    self.inputs.arguments.append(ValueLeaf())
        self.body.run()
        self.inputs.add_constants(self.body.captures.own)
        results, mutations = self._outputs()
        signature = self._signature(results)
        guards = () if signature is None else tuple(dict.fromkeys(self._guards()))
        self._raise_refusals()
        layouts = (LAYOUTS, self.inputs.layouts), (INPUT_LAYOUTS, self.inputs.input_layouts)
        ir = IR(
            nodes=tuple(self.body.nodes),
            graph_inputs=tuple(self.inputs.graph_inputs),
            graph_outputs=tuple(self.body.tensors([*results, *self.gradients.values()])),
            weights=tuple(self.inputs.weights.values()),
            weight_name_mapping=self.inputs.mapping,
            model_name=model_name,
            pytorch_version=str(torch.__version__),
            symbols=self.context.symbols,
            functions=self.body.functions,
            operators=self.body.operators,
            guards=guards,
            signature=signature,
            weight_aliases=_aliases(self.exported, self.inputs.weights),
            mutations=mutations,
            metadata={key: found for key, found in layouts if found},
        )
        if place is not None:
            ir, self.inputs.known = place(ir, self.inputs.known)
        return with_canonical_symbols(merged_functions(self._with_constants(ir)))

    def _with_constants(self, ir: IR) -> IR:
        """The program with the values that it keeps, and all that it writes."""
        written = ir.aliases.written
        try:
            self._require_own_memory({self.inputs.mapping.get(name, name) for name in written})
            known = with_constants(ir, self.inputs.known, written)
        except InvalidIRError as error:
            self.context.refuse(None, error)
            self._raise_refusals()
            raise
        if len(known.nodes) > len(ir.nodes):
            written = known.aliases.written
        return known.replace(mutations=(*known.mutations, *mutations_in_place(known, written)))

    def _require_own_memory(self, written: set[str]) -> None:
        """A weight that the program writes is no view of another one.

        A state dict holds each by itself, so that the other would keep its old values.

        Raises:
            InvalidIRError: One is.
        """
        values = {**self.exported.constants, **self.exported.state_dict}
        keys = self.inputs.weights.keys() - self.inputs.known
        stored = {
            key: v for key, v in values.items() if isinstance(v, torch.Tensor) if key in keys
        }
        tensors = {**self.inputs.known, **stored}
        together: dict[int, list[str]] = {}
        for key, tensor in tensors.items():
            if tensor.layout is torch.strided:
                together.setdefault(storage_of(tensor), []).append(key)
        for key in sorted(written & {key for keys in together.values() for key in keys}):
            for other in together[storage_of(tensors[key])]:
                is_of_both = key != other and (key in stored or other in stored)
                if is_of_both and overlap(tensors[key], tensors[other]):
                    raise InvalidIRError(
                        f"the program writes {key!r}, which shares its memory with {other!r}; a "
                        "state dict holds them apart",
                        remedy="Make one a buffer, and take the view of it in forward.",
                    )

    def _raise_refusals(self) -> None:
        found = self.context.refused
        things = counted(len(found), "thing")
        remedies = dict.fromkeys([item.remedy for item in found if item.remedy])
        found.raise_if_any(
            ConversionError,
            f"the program holds {things} that cannot be translated",
            remedy=" ".join(remedies) or None,
        )

    # -- inputs -----------------------------------------------------------------------------------

    def _symbols(self) -> None:
        for symbol, bounds in self.exported.range_constraints.items():
            if not str(symbol).isidentifier():
                continue  # a derived size: its range follows from that of its symbol
            self.context.symbols[str(symbol)] = SymbolRange(*range_ends(bounds))

    # -- outputs ----------------------------------------------------------------------------------

    def _outputs(self) -> tuple[list[Any], list[Mutation]]:
        """The values that the caller gets, and what a functionalized program writes back."""
        traced = cast(tuple[Any, ...], self.exported.graph.output_node().args[0])
        results: list[Any] = []
        mutations: list[Mutation] = []
        placeholders = {spec.target: name for name, spec in self._named_inputs()}
        for value, spec in zip(traced, self.signature.output_specs, strict=True):
            if spec.kind in _RESULTS:
                results.append(value)
            elif spec.kind in _GRADIENTS:
                self.gradients[str(spec.target)] = value
            elif spec.kind in _MUTATIONS:
                target = (
                    spec.target
                    if spec.kind is OutputKind.USER_INPUT_MUTATION
                    else placeholders[spec.target]
                )
                mutations.append(Mutation(str(target), self.body.values[value]))
            else:
                kind = spec.kind.name
                error = InvalidIRError(f"an output of kind {kind} is not translated yet")
                self.context.refuse(None, error)
        return results, mutations

    def _named_inputs(self) -> Iterator[tuple[str, InputSpec]]:
        for spec in self.signature.input_specs:
            if isinstance(spec.arg, TensorArgument):
                yield spec.arg.name, spec

    def _guards(self) -> Iterator[SymExpr]:
        """The conditions on sizes under which torch traced the program."""
        texts = guards_of(self.exported)
        if not texts:
            return
        call = cast(Any, self.exported.module_call_graph[0].signature)
        paths = argument_paths(
            call.in_spec, self.inputs.given, self.inputs.arguments, call.forward_arg_names or ()
        )
        reader = GuardReader(paths, {meta.name: meta for meta in self.inputs.graph_inputs})
        for text in texts:
            try:
                guard = reader.read(text)
            except InvalidIRError as error:
                self.context.refuse(None, error)
            else:
                if guard is not None:
                    yield guard

    def _signature(self, results: list[Any]) -> Signature | None:
        spec = cast(Any, self.exported.module_call_graph[0].signature)
        try:
            inputs = tree_from_spec(spec.in_spec, iter(self.inputs.arguments))
            outputs = tree_from_spec(spec.out_spec, map(self.body.leaf, results))
            if self.gradients:
                leaves = tuple(map(self.body.leaf, self.gradients.values()))
                outputs = Container(
                    "tuple", (outputs, Container("dict", leaves, tuple(self.gradients)))
                )
        except InvalidIRError as error:
            self.context.refuse(None, error)
            return None
        return Signature(inputs, outputs)


def _run_devices(exported: ExportedProgram) -> frozenset[torch.device]:
    """The devices of the program's inputs and weights; not the CPU if there are others."""
    values = [node.meta.get("val") for node in exported.graph.find_nodes(op="placeholder")]
    # a fake tensor of a meta module says "meta" even where torch traces it as another device
    devices = {value.device for value in values if isinstance(value, torch.Tensor)}
    if torch.device("meta") in devices:
        return frozenset({torch.device("meta")})
    if not devices:
        return frozenset({torch.get_default_device()})
    return frozenset({device for device in devices if device.type != "cpu"} or devices)


def _aliases(exported: ExportedProgram, weights: dict[str, TensorMeta]) -> dict[str, str]:
    """The keys of a state dict that name a tensor which the program uses under another key."""
    first: dict[int, str] = {
        id(exported.state_dict[key]): key for key in weights if key in exported.state_dict
    }
    return {
        key: first[id(tensor)]
        for key, tensor in exported.state_dict.items()
        if key not in weights and id(tensor) in first
    }
