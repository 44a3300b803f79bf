"""The lines of generated Python: how a node, an argument and a literal are written."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch

from torch_ir.errors import ExecutionError
from torch_ir.executor.codegen.names import Names, printable
from torch_ir.executor.plan import Plan, Step
from torch_ir.infer.bind import (
    Call,
    Expression,
    Function,
    Listed,
    Literal,
    Named,
    Operand,
    Read,
)
from torch_ir.infer.bindings import Binding
from torch_ir.infer.generators import name_of
from torch_ir.infer.meta import Binding as PythonBinding
from torch_ir.ir import IR, Container, OpNode, SymExpr, TensorLeaf, Tree, ValueLeaf
from torch_ir.ir.expressions import parse_expression
from torch_ir.ir.tensor import type_text
from torch_ir.ir.tree import leaves
from torch_ir.torch_api import HigherOrderOperator, OpOverload

NODES_PER_FUNCTION = 5_000
"""Python takes equally long for each of 100 to 100,000 lines; parts bound the size of a frame."""


class Line(NamedTuple):
    """One line, and the node that it runs.

    Attributes:
        text: The line.
        node: The node.
        is_call: Whether it is the line that calls the node's operator.
    """

    text: str
    node: OpNode | None = None
    is_call: bool = False

    def explained(self) -> str:
        """The line, and, of a call, types, operator and source as comment."""
        node = self.node
        if node is None or not self.is_call:
            return self.text
        types = ", ".join([type_text(meta) for meta in node.outputs])
        place = f"  {node.location}" if node.location is not None else ""
        return self.text + printable(f"  # {types} {node.op_type}{place}")


class Module:
    """What the functions of one module share: names, and objects that are made once."""

    def __init__(self) -> None:
        self.names = Names()
        self.kernels: dict[str, Call] = {}
        self._header: dict[str, str] = {}
        for name in ("bind", "payload", "kernels"):
            self.names.of("own", name)

    def header(self) -> list[str]:
        """The lines that import and make what the functions use."""
        return list(self._header.values())

    def imported(self, home: str, name: str) -> str:
        """The identifier of something in a module."""
        given = self.names.of(home, name)
        renamed = "" if given == name else f" as {given}"
        self._header.setdefault(given, f"from {home} import {name}{renamed}")
        return given

    def made(self, kind: str, name: str, text: str) -> str:
        """The identifier of an object that is made once."""
        given = self.names.of(kind, name)
        self._header.setdefault(given, f"{given} = {text}")
        return given

    def called(self, call: Call, binding: PythonBinding | None) -> str:
        """The identifier of what is called; a method has none."""
        if binding is not None:
            prefix = binding.home.rpartition(".")[2].strip("_")
            path = f"{_HOMES[binding.home]}.{binding.name}"
            return self.made("function", f"{prefix}_{binding.name}", path)
        if call.is_registered:
            self.kernels[call.node.name] = call
            return f"kernels[{call.node.name!a}]"
        return self.operator(cast(Any, call.target))

    def operator(self, operator: OpOverload | HigherOrderOperator) -> str:
        """The identifier of an operator."""
        if isinstance(operator, HigherOrderOperator):
            name = operator.name()
            return self.made("operator", name, f"torch.ops.higher_order.{name}")
        return self.made("operator", str(operator), f"torch.ops.{operator}")

    def scalar(self, value: float, dtype: torch.dtype) -> str:
        """The identifier of a tensor without dimensions."""
        kind = self.literal(dtype, frozen=True)
        text = f"torch.tensor({self.literal(value, frozen=True)}, dtype={kind})"
        return self.made("scalar", f"{kind}_{value!r}", text)

    # -- literals ---------------------------------------------------------------------------------

    def literal(self, value: Any, *, frozen: bool) -> str:
        """A constant; lists as tuples, which cost nothing to make, where ``frozen`` allows."""
        match value:
            case None | bool() | int() | str():
                return ascii(value)
            case float():
                return self._float(value)
            case complex():
                parts = f"{self._float(value.real)}, {self._float(value.imag)}"
                return self.made("complex", f"complex_{value}", f"complex({parts})")
            case torch.dtype() | torch.layout() | torch.memory_format():
                return self.imported("torch", str(value).removeprefix("torch."))
            case torch.device():
                return self.made("device", f"device_{value}", f"torch.device({str(value)!a})")
            case OpOverload() | HigherOrderOperator():
                return self.operator(value)
            case torch.Generator():
                name = name_of(value)
                find = self.imported("torch_ir.infer.generators", "find_generator")
                return self.made("generator", f"generator_{name}", f"{find}({name!a})")
            case list() | tuple():
                items = [self.literal(item, frozen=frozen) for item in cast(list[Any], value)]
                return _sequence(items, is_tuple=frozen or isinstance(value, tuple))
            case dict():
                pairs = cast(dict[str, Any], value).items()
                inner = [f"{key!a}: {self.literal(item, frozen=frozen)}" for key, item in pairs]
                return f"{{{', '.join(inner)}}}"
            case _:
                raise ExecutionError(f"an argument cannot be {type(value).__name__}")

    def _float(self, value: float) -> str:
        if math.isfinite(value):
            return repr(value)
        name = self.imported("math", "nan" if math.isnan(value) else "inf")
        return f"-{name}" if value < 0 else name


_HOMES = {
    "torch": "torch._C._VariableFunctions",
    "torch._C._nn": "torch._C._nn",
    "torch._C._linalg": "torch._C._linalg",
    "torch._C._fft": "torch._C._fft",
    "torch._C._special": "torch._C._special",
}


def _sequence(items: Sequence[str], *, is_tuple: bool) -> str:
    inner = ", ".join(items)
    if not is_tuple:
        return f"[{inner}]"
    return f"({inner},)" if len(items) == 1 else f"({inner})"


class FunctionWriter:
    """Writes a graph as a function.

    Args:
        module: Where it stands.
        plan: The graph's plan.
        path: Its name: ``run``, or that of the function among the graph's functions.
        indent: What stands before each of its lines.
        observed: Whether it tells of every node.
        reuse: Whether results take the place of dead values where the plan says so.
    """

    def __init__(
        self,
        module: Module,
        plan: Plan,
        path: str,
        indent: str,
        *,
        observed: bool = False,
        reuse: bool = True,
    ):
        self.module = module
        self.plan = plan
        self.path = path
        self.is_main = path == "run" and indent != ""
        self.name = module.names.of("function", path)
        self._indent = indent
        self._observed = observed
        self._reuse = reuse
        self._values: dict[str, str] = {}

    def value(self, name: str) -> str:
        """The identifier of a value."""
        given = self._values.get(name)
        if given is None:
            given = self._values[name] = self.module.names.of(f"value of {self.path}", name)
        return given

    def symbol(self, name: str) -> str:
        """The identifier of a symbol."""
        return self.module.names.of(f"symbol of {self.path}", name)

    def lines(self) -> list[Line]:
        """The function, in parts where it is long."""
        head = self._head()
        parts = _parts(self.plan.steps)
        if len(parts) == 1:
            return [*head, *self._nodes(parts[0]), *self._indented(self._end())]
        return self._long(head, parts)

    def _indented(self, lines: Iterable[Line]) -> Iterator[Line]:
        inner = f"{self._indent}    "
        return (Line(inner + text, node, is_call) for text, node, is_call in lines)

    # -- parameters and results -------------------------------------------------------------------

    def _parameters(self) -> list[str]:
        names = [self.value(meta.name) for meta in self.plan.ir.graph_inputs]
        names += [self.symbol(name) for name in given_symbols(self.plan.ir)]
        return [*names, *(["will_run", "did_run"] if self._observed else [])]

    def _head(self) -> list[Line]:
        if self.is_main:
            return [Line(f"{self._indent}def {self.name}({', '.join(self._parameters())}):")]
        lines = [Line(f"{self._indent}def {self.name}(*args):")]
        return [*lines, *self._indented(self._body_arguments())]

    def _body_arguments(self) -> Iterator[Line]:
        """The tensors and symbols among what a higher-order operator gives to its function."""
        ir = self.plan.ir
        names = [self.value(meta.name) for meta in ir.graph_inputs]
        take = self.module.imported(RUN_TIME, "tensors_among")
        if names:
            yield Line(f"{_sequence(names, is_tuple=True)} = {take}(args, {len(names)})")
        known: set[str] = set()
        if ir.signature is not None:
            for position, leaf in enumerate(leaves(ir.signature.inputs)):
                value = leaf.value if isinstance(leaf, ValueLeaf) else None
                if isinstance(value, SymExpr) and value.is_symbol:
                    known.add(value.text)
                    yield Line(f"{self.symbol(value.text)} = args[{position}]")
        for meta in ir.graph_inputs:
            for axis, dim in enumerate(meta.shape):
                if isinstance(dim, SymExpr) and dim.is_symbol and dim.text not in known:
                    known.add(dim.text)
                    size = f"{self.value(meta.name)}.shape[{axis}]"
                    yield Line(f"{self.symbol(dim.text)} = {size}")
        for meta in ir.graph_inputs:
            for axis, dim in enumerate(meta.shape):
                if isinstance(dim, SymExpr) and len(dim.symbols) == 1:
                    (name,) = dim.symbols
                    if name not in known:
                        known.add(name)
                        solve = self.module.imported(RUN_TIME, "solved")
                        size = f"{self.value(meta.name)}.shape[{axis}]"
                        yield Line(f"{self.symbol(name)} = {solve}({dim.text!a}, {size})")

    def _end(self) -> Iterator[Line]:
        """What is written when the program ends, and what it returns."""
        copied: dict[str, str] = {}
        for write in self.plan.writes:
            if write.is_copied_first:
                copied[write.value] = self.module.names.of(f"copy in {self.path}", write.value)
                yield Line(f"{copied[write.value]} = {self.value(write.value)}.clone()")
        for write in self.plan.writes:
            value = copied.get(write.value) or self.value(write.value)
            yield Line(f"{self.value(write.target)}.copy_({value})")
        yield Line(f"return {self._result()}")

    def _result(self) -> str:
        ir = self.plan.ir
        if not self.is_main and ir.signature is not None:
            return self._tree(ir.signature.outputs)
        values = [self.value(meta.name) for meta in ir.graph_outputs]
        if self.is_main:
            copied = self.plan.copied_outputs
            values = [
                f"{value}.clone()" if meta.name in copied else value
                for value, meta in zip(values, ir.graph_outputs, strict=True)
            ]
            values += [self.symbol(name) for name in returned_symbols(ir)]
        return _sequence(values, is_tuple=True)

    def _tree(self, tree: Tree) -> str:
        match tree:
            case TensorLeaf(name=name):
                return self.value(name)
            case ValueLeaf(value=SymExpr() as value):
                return self.expression(value)
            case ValueLeaf(value=value):
                return self.module.literal(value, frozen=True)
            case Container(type="dict", children=children, keys=keys):
                pairs = zip(keys, children, strict=True)
                inner = [
                    f"{self.module.literal(k, frozen=True)}: {self._tree(c)}" for k, c in pairs
                ]
                return f"{{{', '.join(inner)}}}"
            case Container(type="tuple" | "list" as kind, children=children):
                items = [self._tree(child) for child in children]
                return _sequence(items, is_tuple=kind == "tuple")
            case Container(type=kind):
                raise ExecutionError(
                    f"the function {self.path!r} returns a {kind}, which is no tuple, list or dict"
                )

    # -- long functions ---------------------------------------------------------------------------

    def _long(self, head: list[Line], parts: Sequence[range]) -> list[Line]:
        """The function as a chain of parts, which hand on what is still needed in a list.

        Each part empties the list that it takes, so that nothing outlives its last use.
        """
        needed = self._needed(parts)
        names = [
            self.module.names.of(f"part of {self.path}", f"{self.name}_{i + 1}")
            for i in range(len(parts))
        ]
        lines: list[Line] = []
        for number, part in enumerate(parts):
            taken = needed[number]
            lines.append(Line(f"{self._indent}def {names[number]}(live):"))
            begin = [Line(f"{_sequence(taken, is_tuple=False)} = live")] if taken else []
            begin.append(Line("live.clear()"))
            lines += [*self._indented(begin), *self._nodes(part)]
            if number + 1 < len(parts):
                handed = _sequence(needed[number + 1], is_tuple=False)
                lines += self._indented([Line(f"return {handed}")])
            else:
                lines += self._indented(self._end())
            lines.append(Line(""))
        first = f"live = {names[0]}({_sequence(needed[0], is_tuple=False)})"
        calls = [first, *(f"live = {name}(live)" for name in names[1:]), "return live"]
        return [*lines, *head, *self._indented([Line(text) for text in calls])]

    def _needed(self, parts: Sequence[range]) -> list[list[str]]:
        """For each part, the identifiers that it or a later one reads and does not make."""
        needed: list[list[str]] = []
        known = dict.fromkeys(self._end_reads())
        for part in reversed(parts):
            for position in reversed(part):
                step = self.plan.steps[position]
                for made in self._makes(step):
                    known.pop(made, None)
                known.update(dict.fromkeys(self._takes(step)))
            if self._observed:
                known.update(dict.fromkeys(("will_run", "did_run")))
            needed.append(list(known))
        return needed[::-1]

    def _end_reads(self) -> Iterator[str]:
        ir = self.plan.ir
        external = set(self.plan.external)
        names = [*(meta.name for meta in ir.graph_outputs)]
        names += [name for write in self.plan.writes for name in (write.target, write.value)]
        yield from (self.value(name) for name in names if name not in external)
        yield from (self.symbol(name) for name in returned_symbols(ir))

    def _makes(self, step: Step) -> Iterator[str]:
        yield from (self.value(meta.name) for meta in step.call.node.outputs)
        yield from (self.symbol(binding.symbol) for binding in step.symbols)

    def _takes(self, step: Step) -> Iterator[str]:
        external = set(self.plan.external)
        for read in step.call.reads:
            if read.name not in external:
                yield self.value(read.name)
        for operand in step.call.operands:
            yield from (self.symbol(name) for name in symbols_of(operand))

    # -- one node ---------------------------------------------------------------------------------

    def _nodes(self, part: range) -> list[Line]:
        """The lines of some of the nodes."""
        inner = f"{self._indent}    "
        lines: list[Line] = []
        for position in part:
            step = self.plan.steps[position]
            node = step.call.node
            if self._observed:
                inputs = _sequence([self.value(meta.name) for meta in node.inputs], is_tuple=True)
                lines.append(Line(f"{inner}will_run({position}, {inputs})", node))
            first, *others = self._step(position, step)
            lines.append(Line(inner + first, node, is_call=True))
            lines += [Line(inner + statement, node) for statement in others]
        return lines

    def _step(self, position: int, step: Step) -> list[str]:
        """The call of a node, and what follows it."""
        statements = self._statements(step)
        if step.symbols:
            statements += self._bindings(step)
        if self._observed:
            outputs = [self.value(meta.name) for meta in step.call.node.outputs]
            statements.append(f"did_run({position}, {_sequence(outputs, is_tuple=True)})")
        if step.dead:
            statements.append(f"del {', '.join(map(self.value, step.dead))}")
        return statements

    def _statements(self, step: Step) -> list[str]:
        """The call, with its results given to the values of the node."""
        call, node = step.call, step.call.node
        made = self._call(step)
        is_one = call.schema is not None and call.schema.gives_tensor
        if is_one and len(node.outputs) == 1 and node.outputs[0].producer_output_idx == 0:
            return [f"{self.value(node.outputs[0].name)} = {made}"]
        values = [self.value(meta.name) for meta in node.outputs]
        positions = [meta.producer_output_idx for meta in node.outputs]
        returns = [] if call.schema is None else [r.type for r in call.schema.returns]
        if call.schema is not None and all(kind == "Tensor" for kind in returns):
            if not node.outputs:
                return [made]
            if positions == list(range(len(returns))):
                return [f"{', '.join(values)} = {made}"]
        if values and returns == ["Tensor[]"] and positions == list(range(step.results or 0)):
            return [f"{', '.join(values)}{',' if len(values) == 1 else ''} = {made}"]
        if any(binding.axis is None for binding in step.symbols):
            result = self.module.names.of(f"result in {self.path}", f"{node.name}_result")
            return [f"{result} = {made}", *self._picked(result, values, positions)]
        if not node.outputs:
            return [made]
        results = self.module.imported(RUN_TIME, "results")
        picked = _sequence([str(position) for position in positions], is_tuple=True)
        return [f"{_sequence(values, is_tuple=True)} = {results}({made}, {picked})"]

    def _picked(self, result: str, values: list[str], positions: list[int]) -> Iterator[str]:
        if values:
            results = self.module.imported(RUN_TIME, "results")
            picked = _sequence([str(position) for position in positions], is_tuple=True)
            yield f"{_sequence(values, is_tuple=True)} = {results}({result}, {picked})"

    def _bindings(self, step: Step) -> Iterator[str]:
        """The symbols that take their value from the results of a node, and their ranges."""
        for binding in step.symbols:
            symbol = self.symbol(binding.symbol)
            yield f"{symbol} = {self._bound(step, binding)}"
            allowed = self.plan.ir.symbols.get(binding.symbol)
            if allowed is not None and (allowed.lower is not None or allowed.upper is not None):
                check = self.module.imported(RUN_TIME, "require_in_range")
                yield (
                    f"{check}({binding.symbol!a}, {symbol}, {allowed.lower!r}, {allowed.upper!r})"
                )

    def _bound(self, step: Step, binding: Binding) -> str:
        node = step.call.node
        if binding.axis is None:
            result = self.module.names.of(f"result in {self.path}", f"{node.name}_result")
            return f"{self.module.imported(RUN_TIME, 'number')}({result}, {binding.result})"
        value = next(m for m in node.outputs if m.producer_output_idx == binding.result)
        return f"{self.value(value.name)}.shape[{binding.axis}]"

    def _call(self, step: Step) -> str:
        call = step.call
        binding = (step.in_place if self._reuse else None) or step.binding
        frozen = isinstance(call.target, OpOverload)
        if call.is_registered:
            return (
                f"{self.module.called(call, binding)}({self._operand(call.args[0], frozen=False)})"
            )
        args = [self._operand(operand, frozen=frozen) for operand in call.args]
        if step.scalar is not None and isinstance(call.args[1], Literal):
            args[1] = self.module.scalar(call.args[1].value, step.scalar)
        if binding is not None and binding.is_spread:
            args = [*args[:-1], *self._spread(call.args[-1])]
        named = [f"{name}={self._operand(item, frozen=frozen)}" for name, item in call.kwargs]
        if binding is not None and not binding.home:
            return f"{args[0]}.{binding.name}({', '.join([*args[1:], *named])})"
        return f"{self.module.called(call, binding)}({', '.join([*args, *named])})"

    def _spread(self, operand: Operand) -> list[str]:
        if isinstance(operand, Listed):
            return [self._operand(part, frozen=True) for part in operand.parts]
        items: list[Any] = operand.value if isinstance(operand, Literal) else []
        return [self.module.literal(item, frozen=True) for item in items]

    def _operand(self, operand: Operand, *, frozen: bool) -> str:
        match operand:
            case Read(name=name):
                return self.value(name)
            case Literal(value=value):
                return self.module.literal(value, frozen=frozen)
            case Expression(value=value):
                return self.expression(value)
            case Function(name=name):
                path = name if self.is_main else f"{self.path}/{name}"
                return self.module.names.of("function", path)
            case Listed(parts=parts, is_tuple=is_tuple):
                items = [self._operand(part, frozen=frozen) for part in parts]
                return _sequence(items, is_tuple=is_tuple or frozen)
            case Named(parts=parts):
                inner = [f"{key!a}: {self._operand(p, frozen=frozen)}" for key, p in parts]
                return f"{{{', '.join(inner)}}}"

    def expression(self, value: SymExpr) -> str:
        """An expression over symbols, in Python."""
        return spelled(self.module, value, {name: self.symbol(name) for name in value.symbols})


def spelled(module: Module, value: SymExpr, symbols: Mapping[str, str]) -> str:
    """An expression in Python, which is its own syntax.

    Args:
        module: Where it stands.
        value: The expression.
        symbols: The identifier of each of its symbols.
    """
    tree = parse_expression(value.text)
    if any(isinstance(item, ast.Pow) for item in ast.walk(tree)):  # the size of its value counts
        bindings = ", ".join(f"{name!a}: {given}" for name, given in symbols.items())
        evaluate = module.imported("torch_ir.ir.expressions", "evaluate_expression")
        return f"{evaluate}({value.text!a}, {{{bindings}}})"
    return ast.unparse(_Renamed(module, symbols).visit(ast.parse(value.text, mode="eval")))


class _Renamed(ast.NodeTransformer):
    """Gives symbols and functions of an expression their identifiers in the module."""

    def __init__(self, module: Module, symbols: Mapping[str, str]):
        self._module = module
        self._symbols = symbols

    def visit_Call(self, node: ast.Call) -> ast.Call:  # ast's name
        """A function of the language of expressions."""
        name = cast(ast.Name, node.func).id
        table = self._module.imported("torch_ir.ir.expressions", "FUNCTIONS")
        given = self._module.made("expression", f"symbolic_{name}", f"{table}[{name!a}]")
        arguments = [self.visit(argument) for argument in node.args]
        return ast.Call(ast.Name(given, ast.Load()), arguments, [])

    def visit_Name(self, node: ast.Name) -> ast.Name:  # ast's name
        """A symbol."""
        return ast.Name(self._symbols[node.id], ast.Load())


RUN_TIME = "torch_ir.executor.codegen.run_time"


def symbols_of(operand: Operand) -> Iterator[str]:
    """The symbols that an argument is computed from."""
    match operand:
        case Expression(value=value):
            yield from value.symbols
        case Listed(parts=parts):
            for part in parts:
                yield from symbols_of(part)
        case Named(parts=parts):
            for _, part in parts:
                yield from symbols_of(part)
        case _:
            pass


def given_symbols(ir: IR) -> tuple[str, ...]:
    """The symbols that a call's arguments give, in order of name."""
    found = {
        name
        for meta in ir.graph_inputs
        for dim in meta.shape
        if isinstance(dim, SymExpr)
        for name in dim.symbols
    }
    if ir.signature is not None:
        for leaf in leaves(ir.signature.inputs):
            if isinstance(leaf, ValueLeaf) and isinstance(leaf.value, SymExpr):
                found.update(leaf.value.symbols)
    return tuple(sorted(found))


def returned_symbols(ir: IR) -> tuple[str, ...]:
    """The symbols from which results that are numbers are computed, in order of name."""
    if ir.signature is None:
        return ()
    found = {
        name
        for leaf in leaves(ir.signature.outputs)
        if isinstance(leaf, ValueLeaf) and isinstance(leaf.value, SymExpr)
        for name in leaf.value.symbols
    }
    return tuple(sorted(found))


def _parts(steps: Sequence[Step]) -> list[range]:
    count = max(len(steps), 1)
    return [
        range(start, min(start + NODES_PER_FUNCTION, len(steps)))
        for start in range(0, count, NODES_PER_FUNCTION)
    ]
