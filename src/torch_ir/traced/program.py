"""A traced call as an IR."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx.node import map_arg

from torch_ir.errors import InvalidIRError, TraceError, counted
from torch_ir.frontend.attributes import tensor_meta
from torch_ir.frontend.graphs import Context, GraphTranslator
from torch_ir.frontend.lifted_constants import with_constants
from torch_ir.frontend.symbols.scalars import expression_text
from torch_ir.frontend.symbols.symbol_names import with_canonical_symbols
from torch_ir.frontend.trees import tree_from_spec
from torch_ir.ir import (
    IR,
    Container,
    OpNode,
    Signature,
    SymbolRange,
    SymExpr,
    TensorLeaf,
    TensorMeta,
    Tree,
    ValueLeaf,
)
from torch_ir.ir.builder import mutations_in_place
from torch_ir.ir.tree import leaves
from torch_ir.ir.values import DType
from torch_ir.ops.schema import lookup
from torch_ir.torch_api import FakeTensor, pytree, range_ends
from torch_ir.torch_mends import gradient_scopes
from torch_ir.traced.call_key import value_token
from torch_ir.traced.capture import Leaf, Trace, constants_of

_SET_GRAD = torch._C._set_grad_enabled  # pyright: ignore[reportPrivateUsage]  # what torch traces


@dataclass(frozen=True, slots=True)
class Program:
    """A traced call: a program, and what its inputs and results are.

    Attributes:
        ir: The program in the dialect ``export``; closed-over tensors are its weights.
        closed: The key of each closed-over tensor that it uses, to its position among those of
            the closure.
        spec: torch's specification of the result.
        leaves: Each leaf of the result: a number or expression, or None for the next output.
        needs_grad: Whether gradients pass through it.
        requires_grad: Whether each output of the program requires them.
        written_grad: The inputs and closed-over tensors that require them when all is written.
        generators: The generators that it draws from, by the name under which operators have them.
        own_leaves: The positions of the outputs that the function itself lets require gradients.
        inference: Whether it runs in inference mode, whatever the caller's.
    """

    ir: IR
    closed: dict[str, int]
    spec: Any
    leaves: tuple[Leaf | SymExpr | None, ...]
    needs_grad: bool
    requires_grad: tuple[bool, ...]
    written_grad: frozenset[str]
    generators: dict[str, torch.Generator]
    own_leaves: tuple[int, ...] = ()
    inference: bool = False


def program_of(
    trace: Trace,
    names: Sequence[str],
    paths: Sequence[str],
    arguments: tuple[tuple[Any, ...], dict[str, Any]],
    positions: dict[int, int],
    title: str,
) -> Program:
    """Build the IR of a trace.

    Args:
        trace: The trace.
        names: A name for each tensor of the call.
        paths: Where each tensor of the closure was found.
        arguments: The arguments of the call.
        positions: The position of each tensor of the call, by identity.
        title: A name for the program.

    Raises:
        TraceError: The program holds things that no IR can say; all are listed.
    """
    module = _with_regions(trace.module, trace.needs_grad)
    builder = _ProgramBuilder(trace, module, names, paths)
    return builder.build(arguments, positions, title)


def _with_regions(module: GraphModule, needs_grad: bool) -> GraphModule:
    """The graph in which switches of the grad mode are calls of a body, or gone if none is on."""
    if needs_grad:
        return gradient_scopes(module)[0]
    for part in module.modules():
        if isinstance(part, GraphModule):
            for node in part.graph.find_nodes(op="call_function", target=_SET_GRAD):
                part.graph.erase_node(node)
    return module


def _named_generators(trace: Trace, module: GraphModule) -> dict[str, torch.Generator]:
    """Replace generators by names, the default one by None, and return those that are named.

    Operators that take none draw from the default one.
    """
    named: dict[str, torch.Generator] = {}
    for node in list(module.graph.find_nodes(op="get_attr")):
        value = trace.generators.get(str(node.target))
        if value is None:
            continue
        given = None if value is torch.default_generator else _name_of(value, named)
        for user in list(node.users):
            names = {node: given}
            user.args = map_arg(user.args, lambda item, names=names: names.get(item, item))
            user.kwargs = map_arg(user.kwargs, lambda item, names=names: names.get(item, item))
        module.graph.erase_node(node)
    return named


def _name_of(generator: torch.Generator, named: dict[str, torch.Generator]) -> str:
    for name, known in named.items():
        if known is generator:
            return name
    name = f"generator_{len(named)}"
    named[name] = generator
    return name


class _ProgramBuilder:
    def __init__(
        self, trace: Trace, module: GraphModule, names: Sequence[str], paths: Sequence[str]
    ):
        self.trace = trace
        self.module = module
        self.names = names
        self.paths = paths
        self.context = Context(())
        self.body = GraphTranslator(module, self.context)
        self.inputs: list[TensorMeta] = []
        self.weights: list[TensorMeta] = []
        self.mapping: dict[str, str] = {}
        self.closed: dict[str, int] = {}
        self.known: dict[str, torch.Tensor] = {}
        self._held: set[torch.fx.Node] = set()
        self._with_grad: list[str] = []
        self.generators: dict[str, torch.Generator] = {}
        self._taken = {node.name for node in module.graph.nodes}

    def build(
        self,
        arguments: tuple[tuple[Any, ...], dict[str, Any]],
        positions: dict[int, int],
        title: str,
    ) -> Program:
        self._constants()
        self.generators = _named_generators(self.trace, self.module)
        self._placeholders()
        self._symbols()
        self.body.run()
        for name, value in self.body.captures.own.items():
            _require_real(value)
            self.known[name] = value.detach()
        returned = self.module.graph.output_node().args[0]
        outputs = tuple(self.body.tensors(returned))
        found = self._leaves(returned)
        self._raise_refusals()
        ir = IR(
            nodes=tuple(map(_with_dtype, self.body.nodes)),
            graph_inputs=tuple(self.inputs),
            graph_outputs=outputs,
            weights=(*self.weights, *starmap(tensor_meta, self.known.items())),
            weight_name_mapping=self.mapping,
            model_name=title,
            pytorch_version=str(torch.__version__),
            symbols=self.context.symbols,
            functions=self.body.functions,
            operators=self.body.operators,
            guards=self._guards(),
        )
        if self.trace.foreign:
            _require_apart(ir, self.trace.foreign)
        if self.known:
            ir = with_constants(ir, self.known, ir.aliases.written)
        given, made = self._inputs_tree(arguments, positions), self._outputs_tree(found, outputs)
        ir = ir.replace(mutations=mutations_in_place(ir), signature=Signature(given, made))
        ir = with_canonical_symbols(ir)
        results = [_result(leaf, item) for leaf, item in zip(_outputs(ir), found, strict=True)]
        return Program(
            ir,
            self.closed,
            self.trace.spec,
            tuple(results),
            self.trace.needs_grad,
            self.trace.requires_grad,
            frozenset(self._with_grad),
            self.generators,
            self.trace.own_leaves,
            self.trace.inference,
        )

    def _inputs_tree(
        self, arguments: tuple[tuple[Any, ...], dict[str, Any]], positions: dict[int, int]
    ) -> Tree:
        """The arguments in the caller's structure; the tensors alone, where it cannot be told.

        No structure tells that two arguments are the same tensor.
        """

        def leaf(value: Any) -> TensorLeaf | ValueLeaf:
            if isinstance(value, torch.Tensor):
                return TensorLeaf(self.inputs[positions[id(value)]].name)
            if value_token(value) is None:  # its class may say anything of itself
                raise InvalidIRError(f"no attribute is a {type(value).__name__}")
            return ValueLeaf(self.context.attribute(value))

        values, spec = pytree.tree_flatten(arguments)
        count = sum(isinstance(value, torch.Tensor) for value in values)
        with contextlib.suppress(InvalidIRError):
            if count == len(self.inputs):
                return tree_from_spec(spec, iter([leaf(value) for value in values]))
        return Signature.of([meta.name for meta in self.inputs], ()).inputs

    def _outputs_tree(self, found: Sequence[Any], outputs: Sequence[TensorMeta]) -> Tree:
        tensors = iter(outputs)
        made: list[TensorLeaf | ValueLeaf] = []
        for item in found:
            if item is None:
                made.append(TensorLeaf(next(tensors).name))
                continue
            try:
                made.append(ValueLeaf(self.context.attribute(_plain(item))))
            except InvalidIRError:
                made.append(ValueLeaf(None))
        try:
            return tree_from_spec(self.trace.spec, iter(made))
        except InvalidIRError:
            return Container("tuple", tuple(made))

    def _name(self, wanted: str) -> str:
        name = re.sub(r"\W+", "_", wanted).strip("_") or "x"
        name = name if not name[0].isdigit() else f"x{name}"
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _placeholders(self) -> None:
        count = len(self.names)
        found = self.module.graph.find_nodes(op="placeholder")
        placeholders = [node for node in found if node not in self._held]
        for position, node in enumerate(placeholders):
            value = node.meta["val"]
            if position < count:
                meta = tensor_meta(self._name(self.names[position]), value)
                self.inputs.append(meta)
                self.body.values[node] = meta
            elif node.users:
                where = self.trace.lifted[position - count]
                path = self.paths[where]
                key = path if path not in self.closed else f"{path}#{where}"
                self.closed[key] = where
                meta = tensor_meta(self._name(path), value)
                self.mapping[meta.name] = key
                self.weights.append(meta.replace(name=key))
                self.body.values[node] = meta
            if node in self.body.values and self.trace.given_grad[position]:
                self._with_grad.append(self.body.values[node].name)

    def _constants(self) -> None:
        """Tensors that the function writes down become values that the program has."""
        for node, value in list(constants_of(self.module)):
            _require_real(value)
            target = str(node.target)
            self.known.setdefault(target, value.detach())
            with self.module.graph.inserting_before(node):
                held = self.module.graph.placeholder(f"held_{node.name}")
            held.meta["val"] = value
            node.replace_all_uses_with(held)
            self.module.graph.erase_node(node)
            self.body.values[held] = tensor_meta(target, value)
            self._held.add(held)

    def _leaves(self, returned: Any) -> tuple[Any, ...]:
        """Each leaf of the result; an expression for a number that is not known yet."""
        nodes = iter(returned)
        found: list[Any] = []
        for leaf in self.trace.leaves:
            if leaf is not None:
                found.append(leaf)
                continue
            node = next(nodes)
            value = self.body.values[node] if isinstance(node, torch.fx.Node) else node
            found.append(None if isinstance(value, TensorMeta) else value)
        return tuple(found)

    def _symbols(self) -> None:
        for symbol, bounds in self.trace.shape_env.var_to_range.items():
            self.context.symbols[str(symbol)] = SymbolRange(*range_ends(bounds))

    def _guards(self) -> tuple[SymExpr, ...]:
        """What the trace takes for true of sizes; the sizes of inputs say which are fixed."""
        env = self.trace.shape_env
        found = [env.replace(guard.expr) for guard in env.guards]
        texts = [expression_text(expr) for expr in found if expr.free_symbols]
        return tuple([SymExpr(text) for text in dict.fromkeys(texts)])

    def _raise_refusals(self) -> None:
        found = self.context.refused
        things = counted(len(found), "thing")
        found.raise_if_any(TraceError, f"the function does {things} that no program can say")


_LIFTING = ("aten.lift_fresh_copy.default", "aten.lift.default")


def _require_real(value: torch.Tensor) -> None:
    """Refuse a traced tensor that a graph holds as if it were a constant."""
    if isinstance(value, FakeTensor):
        raise TraceError(
            "the function uses a tensor that torch loses sight of as it traces",
            remedy="Give it as an argument, or compute it with torch's functions.",
        )


def _require_apart(ir: IR, foreign: Set[str]) -> None:
    """Refuse to write, or to give away, the memory of arrays that the caller sees.

    A program takes such a tensor as a copy (``lift_fresh_copy``).
    """
    copies = [n for n in ir.nodes if any(meta.name in foreign for meta in n.inputs)]
    made = [meta.name for n in copies for meta in n.outputs if n.op_type in _LIFTING]
    for name in (*sorted(foreign), *made):
        is_written = ir.aliases.is_written(name)
        if is_written or any(ir.aliases.may_share(name, other) for other in ir.output_names):
            what = "writes to" if is_written else "returns"
            raise TraceError(
                f"the function {what} a tensor in the memory of an array or buffer that its "
                "caller sees",
                remedy="Give the tensor (torch.from_numpy) as an argument, or copy it (clone).",
            )


def _with_dtype(node: OpNode) -> OpNode:
    """The node with the type of what it makes from nothing: the default may be another later."""
    schema = None if node.inputs or len(node.outputs) != 1 else lookup(node.op_type)
    if schema is None or schema.argument("dtype") is None or node.attrs.get("dtype") is not None:
        return node
    return node.replace(attrs={**node.attrs, "dtype": DType(node.outputs[0].dtype)})


def _outputs(ir: IR) -> Iterator[TensorLeaf | ValueLeaf]:
    return leaves(ir.signature.outputs) if ir.signature is not None else iter(())


def _plain(item: Any) -> Any:
    return item.value if isinstance(item, Leaf) else item


def _result(leaf: TensorLeaf | ValueLeaf, item: Any) -> Leaf | SymExpr | None:
    """What a leaf of the result is: itself, an expression, or the next output."""
    if item is None or isinstance(item, Leaf):
        return item
    value = leaf.value if isinstance(leaf, ValueLeaf) else None
    return value if isinstance(value, SymExpr) else Leaf(item)
