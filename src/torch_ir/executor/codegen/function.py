"""A graph as a generated function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from torch_ir.errors import ExecutionError
from torch_ir.executor.codegen.lines import CodeLine, GeneratedModule, sequence
from torch_ir.executor.codegen.local_names import LocalNames
from torch_ir.executor.codegen.nodes import RUN_TIME, NodeWriter
from torch_ir.executor.codegen.outside import outside_symbols, symbols_read
from torch_ir.executor.codegen.state_lines import StateWriter
from torch_ir.executor.plan import Plan, Step
from torch_ir.ir import Container, SymExpr, TensorLeaf, Tree, ValueLeaf
from torch_ir.ir.tree import leaves

NODES_PER_FUNCTION = 5_000
"""Python takes equally long for each of 100 to 100,000 lines; parts bound the size of a frame."""


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
        module: GeneratedModule,
        plan: Plan,
        path: str,
        indent: str,
        *,
        observed: bool = False,
        reuse: bool = True,
    ):
        self.name = module.names.of("function", path)
        self.names = LocalNames(module, path, is_main=path == "run" and indent != "")
        self._plan = plan
        self._indent = indent
        self._observed = observed
        self.state = StateWriter(self.names, plan, observed=observed)
        inner = f"{indent}    "
        self._nodes = NodeWriter(self.names, plan, inner, observed=observed, reuse=reuse)

    def lines(self) -> list[CodeLine]:
        """Write the function, in parts where it is long."""
        head = self._head()
        parts = _parts(self._plan.steps)
        head += self._indented(self.state.before())
        if len(parts) == 1:
            return [*head, *self._nodes.lines(parts[0]), *self._indented(self._end())]
        return self._long(head, parts)

    def _indented(self, lines: Iterable[CodeLine]) -> Iterator[CodeLine]:
        inner = f"{self._indent}    "
        return (line._replace(text=inner + line.text) for line in lines)

    # -- parameters and results -------------------------------------------------------------------

    def _parameters(self) -> list[str]:
        names = [self.names.value(meta.name) for meta in self._plan.ir.graph_inputs]
        names += [self.names.symbol(name) for name in sorted(self._plan.ir.given_symbols)]
        return [*names, *(["will_run", "did_run"] if self._observed else [])]

    def _head(self) -> list[CodeLine]:
        if self.names.is_main:
            return [CodeLine(f"{self._indent}def {self.name}({', '.join(self._parameters())}):")]
        outside = [self.names.symbol(name) for name in outside_symbols(self._plan)]
        lines = [CodeLine(f"{self._indent}def {self.name}({', '.join(['*args', *outside])}):")]
        return [*lines, *self._indented(self._body_arguments())]

    def _body_arguments(self) -> Iterator[CodeLine]:
        """The tensors and symbols among what a higher-order operator gives to its function."""
        ir = self._plan.ir
        names = [self.names.value(meta.name) for meta in ir.graph_inputs]
        take = self.names.module.imported(RUN_TIME, "tensors_among")
        if names:
            yield CodeLine(f"{sequence(names, is_tuple=True)} = {take}(args, {len(names)})")
        known: set[str] = set()
        if ir.signature is not None:
            for position, leaf in enumerate(leaves(ir.signature.inputs)):
                value = leaf.value if isinstance(leaf, ValueLeaf) else None
                if isinstance(value, SymExpr) and value.is_symbol:
                    known.add(value.text)
                    yield CodeLine(f"{self.names.symbol(value.text)} = args[{position}]")
        for meta in ir.graph_inputs:
            for axis, dim in enumerate(meta.shape):
                if isinstance(dim, SymExpr) and dim.is_symbol and dim.text not in known:
                    known.add(dim.text)
                    size = f"{self.names.value(meta.name)}.shape[{axis}]"
                    yield CodeLine(f"{self.names.symbol(dim.text)} = {size}")
        for meta in ir.graph_inputs:
            for axis, dim in enumerate(meta.shape):
                if isinstance(dim, SymExpr) and len(dim.symbols) == 1:
                    (name,) = dim.symbols
                    if name not in known:
                        known.add(name)
                        solve = self.names.module.imported(RUN_TIME, "solved")
                        size = f"{self.names.value(meta.name)}.shape[{axis}]"
                        yield CodeLine(
                            f"{self.names.symbol(name)} = {solve}({dim.text!a}, {size})"
                        )

    def _end(self) -> Iterator[CodeLine]:
        """What is written when the program ends, and what it returns."""
        yield from self.state.after()
        yield from self._copied_results()
        yield CodeLine(f"return {self._result()}")

    def _copied_results(self) -> Iterator[CodeLine]:
        """Copy the storage of results that show written state, once for all that show it."""
        if self._copied:
            copy = self.names.module.imported(RUN_TIME, "in_copied_storage")
            copies = sequence([self.names.copy(name) for name in self._copied], is_tuple=True)
            values = sequence([self.names.value(name) for name in self._copied], is_tuple=True)
            yield CodeLine(f"{copies} = {copy}({values})")

    @property
    def _copied(self) -> list[str]:
        copied = self._plan.copied_outputs if self.names.is_main else frozenset[str]()
        return [name for name in dict.fromkeys(self._plan.ir.output_names) if name in copied]

    def _result(self) -> str:
        ir = self._plan.ir
        if not self.names.is_main and ir.signature is not None:
            return self._tree(ir.signature.outputs)
        values = [self.names.value(meta.name) for meta in ir.graph_outputs]
        if self.names.is_main:
            copies = {name: self.names.copy(name) for name in self._copied}
            values = [
                copies.get(meta.name, value)
                for value, meta in zip(values, ir.graph_outputs, strict=True)
            ]
            values += [self.names.symbol(name) for name in sorted(ir.returned_symbols)]
        return sequence(values, is_tuple=True)

    def _tree(self, tree: Tree) -> str:
        match tree:
            case TensorLeaf(name=name):
                return self.names.value(name)
            case ValueLeaf(value=SymExpr() as value):
                return self.names.expression(value)
            case ValueLeaf(value=value):
                return self.names.module.literal(value, frozen=True)
            case Container(type="dict", children=children, keys=keys):
                pairs = zip(keys, children, strict=True)
                inner = [
                    f"{self.names.module.literal(k, frozen=True)}: {self._tree(c)}"
                    for k, c in pairs
                ]
                return f"{{{', '.join(inner)}}}"
            case Container(type="tuple" | "list" as kind, children=children):
                items = [self._tree(child) for child in children]
                return sequence(items, is_tuple=kind == "tuple")
            case Container(type=kind):
                raise ExecutionError(
                    f"the function {self.names.path!r} returns a {kind}, "
                    "which is no tuple, list or dict"
                )

    # -- long functions ---------------------------------------------------------------------------

    def _long(self, head: list[CodeLine], parts: Sequence[range]) -> list[CodeLine]:
        """The function as a chain of parts, which hand on what is still needed in a list.

        Each part empties the list that it takes, so that nothing outlives its last use.
        """
        outside = frozenset(self._plan.external) - self.state.buffers.keys()
        needed = live_identifiers(self.names, self._plan, parts, outside, observed=self._observed)
        names = [self.names.part(f"{self.name}_{i + 1}") for i in range(len(parts))]
        lines: list[CodeLine] = []
        for number, part in enumerate(parts):
            taken = needed[number]
            lines.append(CodeLine(f"{self._indent}def {names[number]}(live):"))
            begin = [CodeLine(f"{sequence(taken, is_tuple=False)} = live")] if taken else []
            begin.append(CodeLine("live.clear()"))
            lines += [*self._indented(begin), *self._nodes.lines(part)]
            if number + 1 < len(parts):
                handed = sequence(needed[number + 1], is_tuple=False)
                lines += self._indented([CodeLine(f"return {handed}")])
            else:
                lines += self._indented(self._end())
            lines.append(CodeLine(""))
        first = f"live = {names[0]}({sequence(needed[0], is_tuple=False)})"
        calls = [first, *(f"live = {name}(live)" for name in names[1:]), "return live"]
        return [*lines, *head, *self._indented([CodeLine(text) for text in calls])]


def _parts(steps: Sequence[Step]) -> list[range]:
    count = max(len(steps), 1)
    return [
        range(start, min(start + NODES_PER_FUNCTION, len(steps)))
        for start in range(0, count, NODES_PER_FUNCTION)
    ]


# -- liveness -------------------------------------------------------------------------------------


def live_identifiers(
    names: LocalNames,
    plan: Plan,
    parts: Sequence[range],
    external: AbstractSet[str],
    *,
    observed: bool,
) -> list[list[str]]:
    """Return for each part the identifiers that it or a later one reads and does not make.

    Args:
        names: The identifiers of the function.
        plan: The plan of its graph.
        parts: The positions of the nodes of each part.
        external: The names of values that are known outside the function.
        observed: Whether every part tells of its nodes.
    """
    ir = plan.ir
    read = [meta.name for meta in ir.graph_outputs]
    read += [name for write in plan.writes for name in (write.target, write.value)]
    values = dict.fromkeys([name for name in read if name not in external])
    symbols = dict.fromkeys(sorted(ir.returned_symbols))
    has_symbols = bool(ir.given_symbols or outside_symbols(plan))
    has_symbols = has_symbols or any(step.symbols for step in plan.steps)
    found: list[list[str]] = []
    for part in reversed(parts):
        for position in reversed(part):
            step = plan.steps[position]
            for meta in step.call.node.outputs:
                values.pop(meta.name, None)
            for taken in step.call.reads:
                if taken.name not in external:
                    values[taken.name] = None
            if has_symbols:
                for binding in step.symbols:
                    symbols.pop(binding.symbol, None)
                symbols.update(dict.fromkeys(symbols_read(plan, step)))
        watched = ["will_run", "did_run"] if observed else []
        found.append([*map(names.value, values), *map(names.symbol, symbols), *watched])
    return found[::-1]
