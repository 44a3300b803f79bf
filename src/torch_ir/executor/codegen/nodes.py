"""The lines of one node: its call, what the call gives, and which values die after it."""

from __future__ import annotations

from collections.abc import Iterator
from keyword import iskeyword
from typing import Any

from torch_ir.executor.codegen.lines import CodeLine, sequence
from torch_ir.executor.codegen.local_names import LocalNames
from torch_ir.executor.codegen.outside import outside_symbols
from torch_ir.executor.plan import Plan, Step
from torch_ir.infer.binder import (
    BoundCall,
    Expression,
    Function,
    Listed,
    Literal,
    Named,
    Operand,
    Read,
)
from torch_ir.infer.bindings import Binding
from torch_ir.infer.preconditions.table import PRECONDITIONS
from torch_ir.ir import Container, TensorLeaf, TensorMeta
from torch_ir.ir.functions import CALL
from torch_ir.torch_api import OpOverload
from torch_ir.weights.tensor_registry import DirectKernel

RUN_TIME = "torch_ir.executor.codegen.run_time"


class NodeWriter:
    """Writes the nodes of a function.

    Args:
        names: The identifiers of the function.
        plan: The plan of its graph.
        indent: What stands before each line.
        observed: Whether the function tells of every node.
        reuse: Whether results take the place of dead values where the plan says so.
    """

    def __init__(self, names: LocalNames, plan: Plan, indent: str, *, observed: bool, reuse: bool):
        self._names = names
        self._value = names.value
        self._module = names.module
        self._plan = plan
        self._indent = indent
        self._observed = observed
        self._reuse = reuse

    def lines(self, part: range) -> list[CodeLine]:
        """Return the lines of some of the nodes."""
        inner = self._indent
        lines: list[CodeLine] = []
        for position in part:
            step = self._plan.steps[position]
            node = step.call.node
            if self._observed:
                inputs = sequence([self._value(meta.name) for meta in node.inputs], is_tuple=True)
                lines.append(CodeLine(f"{inner}will_run({position}, {inputs})", node))
            if node.op_type in PRECONDITIONS and not step.call.is_registered:
                lines.append(CodeLine(inner + self._precondition(step.call), node))
            first, *others = self._step(position, step)
            lines.append(CodeLine(inner + first, node, is_call=True))
            lines += [CodeLine(inner + statement, node) for statement in others]
        return lines

    def _precondition(self, call: BoundCall) -> str:
        """The line before the call of a kernel that trusts its caller."""
        require = self._module.imported("torch_ir.infer.preconditions.table", "require_arguments")
        args = sequence([self._operand(item, frozen=True) for item in call.args], is_tuple=True)
        named = [f"{name!a}: {self._operand(item, frozen=True)}" for name, item in call.kwargs]
        return f"{require}({call.node.op_type!a}, {args}, {{{', '.join(named)}}})"

    def _step(self, position: int, step: Step) -> list[str]:
        """The call of a node, and what follows it."""
        statements = self._statements(step)
        if step.symbols:
            statements += self._bindings(step)
        if self._observed:
            outputs = [self._value(meta.name) for meta in step.call.node.outputs]
            statements.append(f"did_run({position}, {sequence(outputs, is_tuple=True)})")
        if step.dead:
            statements.append(f"del {', '.join(map(self._value, step.dead))}")
        return statements

    def _statements(self, step: Step) -> list[str]:
        """The call, with its results given to the values of the node."""
        call, node = step.call, step.call.node
        made = self._call(step)
        if node.op_type == CALL and not call.is_registered and self._gives_tensors(call):
            values = [self._value(meta.name) for meta in node.outputs]
            return [f"{sequence(values, is_tuple=True)} = {made}"] if values else [made]
        is_one = call.schema is not None and call.schema.gives_tensor
        if is_one and len(node.outputs) == 1 and node.outputs[0].producer_output_idx == 0:
            return [f"{self._value(node.outputs[0].name)} = {made}"]
        values = [self._value(meta.name) for meta in node.outputs]
        positions = [meta.producer_output_idx for meta in node.outputs]
        if isinstance(call.target, DirectKernel):
            return [f"[{', '.join(values)}] = {made}"]
        returns = [] if call.schema is None else [r.type for r in call.schema.returns]
        if call.schema is not None and all(kind == "Tensor" for kind in returns):
            if not node.outputs:
                return [made]
            if positions == list(range(len(returns))):
                return [f"{', '.join(values)} = {made}"]
        if values and returns == ["Tensor[]"] and positions == list(range(step.results or 0)):
            return [f"{', '.join(values)}{',' if len(values) == 1 else ''} = {made}"]
        if any(binding.axis is None for binding in step.symbols):
            result = self._names.result(node.name)
            return [f"{result} = {made}", *self._picked(result, values, positions)]
        if not node.outputs:
            return [made]
        return [*self._picked(made, values, positions)]

    def _gives_tensors(self, call: BoundCall) -> bool:
        """Whether a function gives a tuple of just the tensors that the node of its call has."""
        body = self._plan.functions[call.node.functions[0]].ir
        found = body.output_names
        if body.signature is not None:
            tree = body.signature.outputs
            children = tree.children if isinstance(tree, Container) else (tree,)
            found = tuple([c.name for c in children if isinstance(c, TensorLeaf)])
            if not isinstance(tree, Container) or len(found) < len(children):
                return False
        positions = [meta.producer_output_idx for meta in call.node.outputs]
        return positions == list(range(len(found)))

    def _picked(self, result: str, values: list[str], positions: list[int]) -> Iterator[str]:
        if values:
            results = self._module.imported(RUN_TIME, "results")
            picked = sequence([str(position) for position in positions], is_tuple=True)
            yield f"{sequence(values, is_tuple=True)} = {results}({result}, {picked})"

    def _bindings(self, step: Step) -> Iterator[str]:
        """The symbols that take their value from the results of a node, and their ranges."""
        for binding in step.symbols:
            symbol = self._names.symbol(binding.symbol)
            yield f"{symbol} = {self._bound(step, binding)}"
            allowed = self._plan.ir.symbols.get(binding.symbol)
            if allowed is not None and (allowed.lower is not None or allowed.upper is not None):
                check = self._module.imported(RUN_TIME, "require_in_range")
                ends = f"{allowed.lower!r}, {allowed.upper!r}"
                place = ""
                if binding.axis is not None:
                    name = _bound_value(step, binding).name
                    place = f", {f'dimension {binding.axis} of %{name}'!a}"
                yield f"{check}({binding.symbol!a}, {symbol}, {ends}{place})"

    def _bound(self, step: Step, binding: Binding) -> str:
        node = step.call.node
        if binding.axis is None:
            result = self._names.result(node.name)
            return f"{self._module.imported(RUN_TIME, 'number')}({result}, {binding.result})"
        return f"{self._value(_bound_value(step, binding).name)}.shape[{binding.axis}]"

    def _call(self, step: Step) -> str:
        call = step.call
        binding = (step.in_place if self._reuse else None) or step.binding
        frozen = isinstance(call.target, OpOverload)
        if call.is_registered and not isinstance(call.target, DirectKernel):
            listed = self._operand(call.args[0], frozen=False)
            return f"{self._module.called(call, binding)}({listed})"
        args = [self._operand(operand, frozen=frozen) for operand in call.args]
        if call.node.op_type == CALL and not call.is_registered:
            return f"{args[0]}({', '.join(args[2:])})"  # torch's own call takes 100 us more
        if step.scalar is not None and isinstance(call.args[1], Literal):
            args[1] = self._module.scalar(call.args[1].value, step.scalar)
        if binding is not None and binding.is_spread:
            args = [*args[:-1], *self._spread(call.args[-1])]
        named = [_named(name, self._operand(item, frozen=frozen)) for name, item in call.kwargs]
        if binding is not None and not binding.home:
            return f"{args[0]}.{binding.name}({', '.join([*args[1:], *named])})"
        return f"{self._module.called(call, binding)}({', '.join([*args, *named])})"

    def _spread(self, operand: Operand) -> list[str]:
        if isinstance(operand, Listed):
            return [self._operand(part, frozen=True) for part in operand.parts]
        items: list[Any] = operand.value if isinstance(operand, Literal) else []
        return [self._module.literal(item, frozen=True) for item in items]

    def _function(self, name: str) -> str:
        """A body, with the symbols that its arguments do not tell it."""
        path = self._names.path_of(name)
        outside = [
            f"{self._module.names.of(f'symbol of {path}', symbol)}={self._names.symbol(symbol)}"
            for symbol in outside_symbols(self._plan.functions[name])
        ]
        function = self._names.function(name)
        if not outside:
            return function
        partial = self._module.imported("functools", "partial")
        return f"{partial}({', '.join([function, *outside])})"

    def _operand(self, operand: Operand, *, frozen: bool) -> str:
        match operand:
            case Read(name=name):
                return self._value(name)
            case Literal(value=value):
                return self._module.literal(value, frozen=frozen)
            case Expression(value=value):
                return self._names.expression(value)
            case Function(name=name):
                return self._function(name)
            case Listed(parts=parts, is_tuple=is_tuple):
                items = [self._operand(part, frozen=frozen) for part in parts]
                return sequence(items, is_tuple=is_tuple or frozen)
            case Named(parts=parts):
                inner = [f"{key!a}: {self._operand(p, frozen=frozen)}" for key, p in parts]
                return f"{{{', '.join(inner)}}}"


def _named(name: str, value: str) -> str:
    """An argument by name, which may be a word of Python's own, as ``from`` is."""
    return f"**{{{name!a}: {value}}}" if iskeyword(name) else f"{name}={value}"


def _bound_value(step: Step, binding: Binding) -> TensorMeta:
    """The value whose size a symbol is."""
    outputs = step.call.node.outputs
    return next(meta for meta in outputs if meta.producer_output_idx == binding.result)
