"""The conditions on sizes under which a program was traced, as expressions over its symbols.

torch.export keeps them as text over the arguments, ``L['x'].size()[0] % 2 == 0``; it is read with
:mod:`ast` and never evaluated as code. Which argument a path such as ``L['cache'].keys[0]`` leads
to is known from the paths that torch gives to all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch_ir.errors import InvalidIRError
from torch_ir.ir import SymExpr, TensorLeaf, TensorMeta, Tree, ValueLeaf
from torch_ir.ir.expressions import FUNCTIONS
from torch_ir.torch_api import pytree

Leaf: TypeAlias = Tree
"""A leaf, or what stands in the place of one: a member of an enumeration."""

_NAMES = {
    "sym_max": "max",
    "sym_min": "min",
    "Max": "max",
    "Min": "min",
    "trunc": "int",
    "sym_float": "float",
    "sym_int": "int",
    "ToFloat": "float",
    "TruncToInt": "int",
    **{f"_sym_{name}": name for name in ("sqrt", "exp", "log", "log2", "sin", "cos", "tan")},
}


@dataclass(frozen=True, slots=True)
class GuardReader:
    """Reads the guards of one program.

    Attributes:
        arguments: The leaves of the arguments by their paths: :func:`argument_paths`.
        metas: The tensors among the arguments, by name.
    """

    arguments: Mapping[str, Leaf]
    metas: Mapping[str, TensorMeta]

    def read(self, text: str) -> SymExpr | None:
        """Read a guard as an expression; None where it holds for every call.

        Raises:
            InvalidIRError: The guard is about something else than sizes and numbers.
        """
        if self._is_about_values(text):
            return None
        try:
            guard = SymExpr(ast.unparse(self._expression(ast.parse(text, mode="eval").body)))
        except InvalidIRError as error:
            reason = f"the guard {text} cannot be kept: {error.message}"
            raise InvalidIRError(reason) from None
        if not guard.symbols:
            return None if guard.evaluate({}) else guard
        return None if _is_tautology(guard) else guard

    def _is_about_values(self, text: str) -> bool:
        """Whether all that it is about are values that every call is compared with anyway."""
        found = [self._argument(node) for node in _paths(ast.parse(text))]
        return bool(found) and all(
            isinstance(leaf, ValueLeaf) and not isinstance(leaf.value, SymExpr) for leaf in found
        )

    def _expression(self, node: ast.expr) -> ast.expr:
        """The same with arguments replaced by what stands for them."""
        match node:
            case ast.Subscript(
                value=ast.Call(func=ast.Attribute(value=base, attr="size"), args=[]),
                slice=ast.Constant(value=int(axis)),
            ):
                leaf = self._argument(base)
                if isinstance(leaf, TensorLeaf):
                    return ast.parse(str(self.metas[leaf.name].shape[axis]), mode="eval").body
            case ast.Subscript() | ast.Attribute():
                leaf = self._argument(node)
                if isinstance(leaf, ValueLeaf) and isinstance(leaf.value, SymExpr | int | float):
                    return ast.parse(str(leaf.value), mode="eval").body
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments):
                name = _NAMES.get(name, name)
                if name in FUNCTIONS:
                    return ast.Call(ast.Name(name), [self._expression(a) for a in arguments], [])
            case ast.Constant():
                return node
            case ast.BinOp(left=left, op=op, right=right):
                return ast.BinOp(self._expression(left), op, self._expression(right))
            case ast.UnaryOp(op=op, operand=operand):
                return ast.UnaryOp(op, self._expression(operand))
            case ast.BoolOp(op=op, values=values):
                return ast.BoolOp(op, [self._expression(value) for value in values])
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [self._expression(side) for side in (left, *others)]
                pairs = [ast.Compare(sides[i], [op], [sides[i + 1]]) for i, op in enumerate(ops)]
                return pairs[0] if len(pairs) == 1 else ast.BoolOp(ast.And(), list(pairs))
            case _:
                pass
        raise InvalidIRError(f"{ast.unparse(node)} is not a size or a number")

    def _argument(self, node: ast.expr) -> Leaf | None:
        """The leaf that a path such as ``L['d']['a'][0]`` leads to."""
        return self.arguments.get(ast.unparse(node))


def argument_paths(
    structure: Any, values: Sequence[object], leaves: Sequence[Leaf], names: Sequence[str]
) -> dict[str, Leaf]:
    """Return each leaf of the arguments by the paths under which guards may name it.

    Args:
        structure: The pytree of the arguments: a tuple of positional and a dict of keyword ones.
        values: What the leaves hold while torch traces.
        leaves: The leaves.
        names: The names of the model's parameters, in order.
    """
    arguments = pytree.tree_unflatten(list(values), structure)
    named: dict[str, Leaf] = {}
    variadic: dict[str, Leaf] = {}
    paths: list[tuple[Any, Any]] = pytree.tree_flatten_with_path(arguments)[0]
    for index, ((path, _), leaf) in enumerate(zip(paths, leaves, strict=True)):
        kind, key, *below = path
        is_positional = kind.idx == 0 and key.idx < len(names)
        name = str(names[key.idx] if is_positional else key.key)
        rest = pytree.keystr(tuple(below))
        named[f"L[{name!r}]{rest}"] = named[f"L['flat_args'][{index}]"] = leaf
        several, _, position = name.rpartition("_")  # *rest is called rest_0, rest_1, ...
        variadic[f"L[{several!r}][{position}]{rest}"] = leaf
    return variadic | named


def _is_tautology(guard: SymExpr) -> bool:
    """Whether both sides of an equation are the same: two inputs of one symbol."""
    match ast.parse(guard.text, mode="eval").body:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return ast.dump(left) == ast.dump(right)
        case _:
            return False


def _paths(node: ast.AST) -> Iterator[ast.expr]:
    """The whole paths of arguments in a guard."""
    match node:
        case ast.Call(func=ast.Attribute(value=base, attr="size")):
            yield base
        case ast.Subscript(value=ast.Call()):
            yield from _paths(node.value)
        case ast.Subscript() | ast.Attribute():
            yield node
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _paths(child)
