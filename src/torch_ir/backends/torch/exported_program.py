"""A program as torch's ``ExportedProgram``: the way back into what is built on torch.export."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from torch_ir.arguments import public
from torch_ir.backends.delegate import sizes_of
from torch_ir.backends.torch.fx import WITH_TENSORS, FxGraph, value_of
from torch_ir.errors import BackendError, PassError, raised_as
from torch_ir.executor.classes import rebuild
from torch_ir.executor.samples import sample_arguments
from torch_ir.infer.fake import Fakes
from torch_ir.infer.resolve import require_allowed
from torch_ir.infer.types import TensorType, external_types
from torch_ir.ir import IR, Signature, SymExpr, TensorLeaf, TensorMeta, ValueLeaf
from torch_ir.ir.queries import (
    external_keys,
    given_values,
    input_layout_of,
    kept_values,
    names_by_key,
    signature_of,
)
from torch_ir.ir.tree import leaves, unflatten
from torch_ir.ops.rules import allow_operators
from torch_ir.passes.edge.memory_formats import with_memory_formats
from torch_ir.passes.functionalization import without_writes
from torch_ir.passes.view_copies import with_reshapes, with_views
from torch_ir.torch_api import (
    HigherOrderOperator,
    OpOverload,
    constant_tensors,
    module_call_graph,
    number_functions,
    pytree,
    symbol_of,
    value_range,
)
from torch_ir.weights import check_weights
from torch_ir.weights.presence import require_weights


@public
def to_exported_program(
    ir: IR,
    weights: Mapping[str, torch.Tensor] | None = None,
    *,
    allow: Iterable[str] = (),
) -> ExportedProgram:
    """Convert a program to an ``ExportedProgram`` that runs with the same bits.

    Its graph has a call for each node, under the node's name and with its source line; what the
    program writes in place is written when it ends. Programs in Edge are put in operators of ATen:
    copies of views inside are views again, and orders of dimensions memory formats. Conditions on
    sizes are assertions of the graph. A weight that is an ``nn.Parameter`` is a parameter, any
    other a buffer; a constant is a constant, or a buffer that is not stored if the program writes
    it. The tensors are those that are given, not copies. Placeholders are named as the values are,
    with what Python does not take in a name replaced. There are example inputs: of the recorded
    types, with sizes inside their ranges, integers 0, the same each time.

    Args:
        ir: The program.
        weights: Tensors by ``state_dict`` key; may hold more than the program needs.
        allow: Operators to allow although the rules refuse them; see
            :func:`torch_ir.allow_operators`.

    Raises:
        CompileError: It calls what a program may not call (:func:`torch_ir.operator_rule`).
        MissingWeightsError: The program has weights and none are given.
        WeightLoadError: They are not those that it needs; all faults are listed.
        PassError: A node has no counterpart.

    Example:
        >>> from torch_ir import extract_ir
        >>> model = torch.nn.Linear(3, 2)
        >>> x = torch.ones(1, 3)
        >>> exported = to_exported_program(extract_ir(model, (x,)), model.state_dict())
        >>> torch.equal(exported.module()(x), model(x))
        True
    """
    require_weights(ir, weights)
    with allow_operators(*allow):
        return _exported(ir, weights or {})


@public
def body_program(body: IR, payload: Mapping[str, torch.Tensor]) -> ExportedProgram:
    """Convert the body of a delegate to an ``ExportedProgram`` of its own.

    Args:
        body: The body, as :meth:`~torch_ir.backends.DelegateBackend.compile` gets it.
        payload: The tensors of those of its inputs that are the same in every call, by name: they
            become its weights, ``weight_0`` and so on.

    Returns:
        A program that takes the other inputs in order, sizes as ints last, and gives a tuple. Its
        views are reshapes: they are right for inputs in any layout, and for what runtimes make of
        the operators before them.

    Example:
        >>> from torch_ir import parse
        >>> body = parse('''ir {
        ...   input %x: f32[2]
        ...   input %cache.k: f32[2]
        ...   %y: f32[2] = aten.add.Tensor(%x, %cache.k)
        ...   return %y
        ... }''')
        >>> exported = body_program(body, {"cache.k": torch.ones(2)})
        >>> exported.module()(torch.zeros(2)), exported.graph_signature.user_inputs
        ((tensor([1., 1.]),), ('x',))
    """
    held = [meta for meta in body.graph_inputs if meta.name in payload]
    keys = {meta.name: f"weight_{index}" for index, meta in enumerate(held)}
    given = tuple([meta for meta in body.graph_inputs if meta.name not in payload])
    sizes = map(ValueLeaf, sizes_of(body))
    program = with_reshapes(body).replace(
        graph_inputs=given,
        weights=[TensorMeta(keys[meta.name], meta.shape, meta.dtype) for meta in held],
        weight_name_mapping=keys,
        signature=Signature.of([*[meta.name for meta in given], *sizes], body.output_names),
    )
    return _exported(program, {keys[meta.name]: payload[meta.name] for meta in held})


def pt2_bytes(exported: ExportedProgram) -> bytes:
    """Return a program as a file of ``torch.export``, with its tensors.

    Raises:
        BackendError: torch cannot write it.
    """
    tensors = exported.state_dict
    for key, tensor in tensors.items():
        if not tensor.numel():  # torch takes where one lies in a file for where it begins
            tensors[key] = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    buffer = io.BytesIO()
    with raised_as(lambda error: BackendError(f"torch cannot save the program: {error}")):
        torch.export.save(exported, buffer)
    return buffer.getvalue()


def _exported(ir: IR, weights: Mapping[str, torch.Tensor]) -> ExportedProgram:
    require_allowed(ir)
    functional = without_writes(ir)
    if functional.dialect in ("edge", "backend"):
        functional = with_memory_formats(with_views(functional))
    elif functional.functions and functional.dialect in ("core_aten", "prims"):
        functional = with_reshapes(functional)  # of what functions give no strides are known
    payload = check_weights(functional, weights, strict=False)
    return _Exported(functional, payload, Fakes(functional)).program()


@dataclass(slots=True)
class _Exported:
    """One program on its way.

    Attributes:
        ir: The functional program, in operators of torch.
        payload: A tensor for each of its weights.
        fakes: Its symbols and fake tensors.
    """

    ir: IR
    payload: Mapping[str, torch.Tensor]
    fakes: Fakes
    built: FxGraph = field(init=False)
    types: Mapping[str, TensorType] = field(init=False)
    signature: Signature = field(init=False)
    inputs: list[InputSpec] = field(default_factory=list[InputSpec])

    def __post_init__(self) -> None:
        self.built = FxGraph(self.ir, self.fakes)
        self.types = external_types(self.ir)
        self.signature = signature_of(self.ir)

    def program(self) -> ExportedProgram:
        """The exported program."""
        self._external()
        self._user_inputs()
        self._guards()
        self.built.run()
        specs = self._results()
        _require_number_functions(self.built)
        self.fakes.settle()
        self.fakes.env.guards.clear()  # they are assertions of the graph
        return ExportedProgram(
            cast(Any, self.built.modules),
            self.built.graph,
            ExportGraphSignature(self.inputs, specs),
            self._state(),
            self._ranges(),
            module_call_graph(_names(self.signature, self.built.values), *self._structures()),
            example_inputs=sample_arguments(self.ir),
            constants=self._constants(),
        )

    # -- what it takes ----------------------------------------------------------------------------

    def _external(self) -> None:
        """Weights and constants, which come before the arguments: parameters first."""
        unused = self._unused_bases()
        keys = external_keys(self.ir).items()
        names = names_by_key({name: key for name, key in keys if key not in unused})
        kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
        for kind in kinds:
            for key, found in names.items():
                if self._kind(key) is kind:
                    self._takes_external(key, found, kind)

    def _unused_bases(self) -> set[str]:
        """The keys of constants of which only views are used; torch has the views alone."""
        used = kept_values(self.ir).union(self.ir.users)
        keys = {key for name, key in external_keys(self.ir).items() if name in used}
        return {c.view.base for c in self.ir.constants.values() if c.view is not None} - keys

    def _kind(self, key: str) -> InputKind:
        if key not in self.ir.constants:
            is_parameter = isinstance(self.payload[key], torch.nn.Parameter)
            return InputKind.PARAMETER if is_parameter else InputKind.BUFFER
        keys = external_keys(self.ir)
        is_written = any(keys.get(mutation.target) == key for mutation in self.ir.mutations)
        return InputKind.BUFFER if is_written else InputKind.CONSTANT_TENSOR

    def _takes_external(self, key: str, names: list[str], kind: InputKind) -> None:
        metas = [given_values(self.ir)[name] for name in names]
        lies = self.types[names[0]]
        node = self.built.takes(metas[0], names[0].replace(".", "_"), lies)
        held = self.payload.get(key)
        if held is not None and held.layout is not torch.strided:
            node.meta["val"] = self.fakes.mode.from_tensor(held)
        for meta in metas[1:]:
            self.built.gives(meta, node, lies)
        stored = key not in self.ir.constants if kind is InputKind.BUFFER else None
        self.inputs.append(InputSpec(kind, TensorArgument(node.name), key, stored))
        for alias, known in self.ir.weight_aliases.items():
            if known == key:  # torch keeps a tied weight under each of its keys
                tied = self.built.takes_value(value_of(node), f"p_{alias}".replace(".", "_"))
                self.inputs.append(InputSpec(kind, TensorArgument(tied.name), alias, stored))

    def _user_inputs(self) -> None:
        metas = given_values(self.ir)
        for position, leaf in enumerate(leaves(self.signature.inputs)):
            if isinstance(leaf, TensorLeaf):
                node = self.built.takes(metas[leaf.name])
                node.meta["val"] = _laid_out(
                    value_of(node), input_layout_of(self.ir, leaf.name), self.fakes
                )
                spec = _argument(node)
            else:
                node = self.built.takes_value(leaf.value, f"arg_{position}")
                is_number = isinstance(leaf.value, SymExpr)
                spec = (
                    _argument(node)
                    if is_number
                    else ConstantArgument(node.name, cast(Any, leaf.value))
                )
            self.inputs.append(InputSpec(InputKind.USER_INPUT, spec, None))

    def _guards(self) -> None:
        """The conditions on sizes, as assertions."""
        for guard in self.ir.guards:
            message = f"the program was extracted for {guard}"
            condition = self.built.numbers.node(guard)
            node = self.built.graph.call_function(
                torch.ops.aten._assert_scalar.default, (condition, message)
            )
            node.meta["val"] = None

    # -- what it gives ----------------------------------------------------------------------------

    def _results(self) -> list[OutputSpec]:
        """Add the output; its kinds, of which those that are written come first."""
        specs: list[OutputSpec] = []
        nodes: list[Any] = []
        own = self._own_values()
        for mutation in self.ir.mutations:
            value = self.built.values[mutation.value.name]
            if mutation.value.name not in own:
                value = self._copy(value)
            kind, target = self._written(self.built.values[mutation.target])
            specs.append(OutputSpec(kind, TensorArgument(value.name), target))
            nodes.append(value)
        for leaf in leaves(self.signature.outputs):
            value = self.built.results(leaf)
            is_node = isinstance(value, FxNode)
            result = _argument(value) if is_node else ConstantArgument("", value)
            specs.append(OutputSpec(OutputKind.USER_OUTPUT, result, None))
            nodes.append(value)
        self.built.graph.output(tuple(nodes))
        return specs

    def _own_values(self) -> frozenset[str]:
        """The values to write that no other output and no view is: others are copied before."""
        values = [mutation.value.name for mutation in self.ir.mutations]
        outputs = [*values, *self.ir.output_names]
        views = self.ir.replace(
            graph_outputs=[m.value for m in self.ir.mutations]
        ).aliases.shared_results
        return frozenset(
            name
            for name in values
            if name in self.ir.producers and name not in views and outputs.count(name) == 1
        )

    def _copy(self, value: FxNode) -> FxNode:
        node = self.built.graph.call_function(torch.ops.aten.clone.default, (value,))
        with self.fakes.tracing():
            node.meta["val"] = torch.clone(value_of(value))
        return node

    def _written(self, node: FxNode) -> tuple[OutputKind, str]:
        (spec,) = [spec for spec in self.inputs if spec.arg.name == node.name]
        kinds = {
            InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
            InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
            InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
        }
        return kinds[spec.kind], spec.target or node.name

    # -- structures and values --------------------------------------------------------------------

    def _structures(self) -> Iterator[pytree.TreeSpec]:
        for tree in (self.signature.inputs, self.signature.outputs):
            yield pytree.tree_structure(unflatten(tree, _position, rebuild))

    def _state(self) -> dict[str, torch.Tensor]:
        state = {meta.name: self.payload[meta.name] for meta in self.ir.weights}
        return {**state, **{a: state[key] for a, key in self.ir.weight_aliases.items()}}

    def _constants(self) -> dict[str, Any]:
        keys = {key for key, _ in self.ir.external_values().values()} & self.ir.constants.keys()
        keys -= self._unused_bases()
        for key in sorted(keys - self.payload.keys()):
            if self.ir.constants[key].data is None:
                raise PassError(
                    f"the constant {key!r} has no value",
                    remedy="Give it with the weights, by its key.",
                )
        tensors = constant_tensors(self.ir.constants, keys, self.payload)
        return {key: tensors[key] for key in self.ir.constants if key in keys}

    def _ranges(self) -> dict[Any, Any]:
        return {
            symbol_of(self.fakes.symbols[name]): value_range(bounds.lower, bounds.upper)
            for name, bounds in self.ir.symbols.items()
        }


def _laid_out(tensor: torch.Tensor, layout: str, fakes: Fakes) -> torch.Tensor:
    """The fake tensor of an argument with the layout that it had.

    Those of blocks stay dense: a program does not say of which size their blocks are.
    """
    if layout not in ("sparse_coo", "sparse_csr", "sparse_csc"):
        return tensor
    with fakes.mode:
        return torch.empty(tensor.shape, dtype=tensor.dtype, layout=getattr(torch, layout))


def _require_number_functions(built: FxGraph) -> None:
    """Require that torch takes what the graphs compute with numbers.

    Raises:
        PassError: A graph calls a function that an ``ExportedProgram`` may not have.
    """
    bodies = [part for body in built.modules.values() for part in body.modules()]
    graphs = [built.graph, *(body.graph for body in bodies if isinstance(body, GraphModule))]
    called = {node.target for graph in graphs for node in graph.nodes if callable(node.target)}
    functions = {f for f in called if not isinstance(f, OpOverload | HigherOrderOperator)}
    refused = sorted(f.__name__ for f in functions - number_functions())
    if refused:
        named = " and ".join(name.removeprefix("_sym_") for name in refused)
        message = f"an ExportedProgram does not compute {named} of numbers"
        raise PassError(message, remedy=WITH_TENSORS)


def _argument(node: FxNode) -> Any:
    match value_of(node):
        case torch.SymInt():
            return SymIntArgument(node.name)
        case torch.SymFloat():
            return SymFloatArgument(node.name)
        case torch.SymBool():
            return SymBoolArgument(node.name)
        case _:
            return TensorArgument(node.name)


def _names(signature: Signature, values: Mapping[str, FxNode]) -> list[str] | None:
    """The names of the arguments, by which ONNX knows its inputs; None where two are equal."""
    if signature.arguments is None:
        return None
    positional, named = signature.arguments
    names = [
        values[child.name].name if isinstance(child, TensorLeaf) else f"arg_{at}"
        for at, child in enumerate(positional.children)
    ]
    names += map(str, named.keys)
    return names if len({"self", *names}) == len(names) + 1 else None


def _position(leaf: TensorLeaf | ValueLeaf) -> object:
    """Anything that is a leaf to torch."""
    return leaf
