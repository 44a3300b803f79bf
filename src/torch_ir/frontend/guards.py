"""The conditions on sizes under which a program was traced, as expressions over its symbols.

torch.export keeps them as text over the arguments, ``L['x'].size()[0] % 2 == 0``; it is read with
:mod:`ast` and never evaluated as code.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from torch_ir.errors import InvalidIRError
from torch_ir.ir import Container, SymExpr, TensorLeaf, TensorMeta, Tree, ValueLeaf
from torch_ir.ir.expressions import FUNCTIONS
from torch_ir.ir.tree import leaves

_NAMES = {"sym_max": "max", "sym_min": "min", "Max": "max", "Min": "min", "trunc": "int"}


@dataclass(frozen=True, slots=True)
class GuardReader:
    """Reads the guards of one program.

    Attributes:
        inputs: The structure of the arguments: a tuple of positional and a dict of keyword ones.
        parameters: The names of the model's parameters, in order.
        metas: The tensors among the arguments, by name.
    """

    inputs: Tree
    parameters: Sequence[str]
    metas: Mapping[str, TensorMeta]

    def read(self, text: str) -> SymExpr | None:
        """The expression of a guard; None where it holds for every call.

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
        found = [self._argument(node) for node in ast.walk(ast.parse(text)) if _is_path(node)]
        return bool(found) and all(
            isinstance(leaf, ValueLeaf) and not isinstance(leaf.value, SymExpr)
            for leaf in found
            if not isinstance(leaf, Container)
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

    def _argument(self, node: ast.expr) -> Tree | None:
        """The part of the arguments that a path such as ``L['d']['a'][0]`` leads to."""
        match node:
            case ast.Subscript(
                value=ast.Subscript(value=ast.Name(id="L"), slice=ast.Constant(value="flat_args")),
                slice=ast.Constant(value=int(index)),
            ):
                flat = list(leaves(self.inputs))
                return flat[index] if index < len(flat) else None
            case ast.Subscript(value=ast.Name(id="L"), slice=ast.Constant(value=str(name))):
                return self._parameter(name)
            case ast.Subscript(value=value, slice=ast.Constant(value=key)):
                return _child(self._argument(value), key)
            case _:
                return None

    def _parameter(self, name: str) -> Tree | None:
        positional, keywords = _child(self.inputs, 0), _child(self.inputs, 1)
        given = _child(keywords, name)
        if given is not None:
            return given
        return _child(positional, self.parameters.index(name)) if name in self.parameters else None


def _is_tautology(guard: SymExpr) -> bool:
    """Whether both sides of an equation are the same: two inputs of one symbol."""
    match ast.parse(guard.text, mode="eval").body:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return ast.dump(left) == ast.dump(right)
        case _:
            return False


def _is_path(node: ast.AST) -> TypeGuard[ast.Subscript]:
    return isinstance(node, ast.Subscript) and not isinstance(node.value, ast.Call)


def _child(tree: Tree | None, key: object) -> Tree | None:
    if not isinstance(tree, Container):
        return None
    if tree.keys:
        return tree.children[tree.keys.index(key)] if key in tree.keys else None
    if not isinstance(key, int) or not 0 <= key < len(tree.children):
        return None
    return tree.children[key]
