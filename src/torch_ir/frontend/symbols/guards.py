"""The conditions on sizes under which a program was traced, as expressions over its symbols.

torch.export keeps them as text over the arguments, ``L['x'].size()[0] % 2 == 0``; it is read with
:mod:`ast` and never evaluated as code. Which argument a path such as ``L['cache'].keys[0]`` leads
to is known from the paths that torch gives to all of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from torch_ir.errors import InvalidIRError
from torch_ir.ir import SymExpr, TensorLeaf, TensorMeta, Tree, ValueLeaf
from torch_ir.ir.expressions import FUNCTIONS, Algebra, fold
from torch_ir.ir.expressions.language import COMPARISONS, FoldStep, refusals
from torch_ir.ir.expressions.normal_form import NORMAL, Normal, normal_form
from torch_ir.torch_api import pytree

MAX_GUARD = 2**16
"""Characters in one guard, whose paths may be long."""

_SIZE = re.compile(r"\.size\(\)\[(-?\d+)\]$")

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
            algebra = replace(NORMAL, operations=_OPERATIONS, other=self._other)
            with refusals(lambda: f"{text} has no value"):
                guard = SymExpr(fold(text, algebra, max_length=MAX_GUARD).spelled)
        except InvalidIRError as error:
            reason = f"the guard {text} cannot be kept: {error.message}"
            raise InvalidIRError(reason) from None
        if not guard.symbols:
            return None if guard.evaluate({}) else guard
        half = guard.text[: len(guard.text) // 2 - 2]
        return None if guard.text == f"{half} == {half}" else guard  # two inputs of one symbol

    def _is_about_values(self, text: str) -> bool:
        """Whether all that it is about are values that every call is compared with anyway."""
        found = fold(text, _PATHS, max_length=MAX_GUARD)
        leaves = [self.arguments.get(_SIZE.sub("", path)) for path in found]
        return bool(leaves) and all(
            isinstance(leaf, ValueLeaf) and not isinstance(leaf.value, SymExpr) for leaf in leaves
        )

    def _other(self, step: FoldStep, parts: Sequence[Normal]) -> Normal:
        signs = step.operation.split()
        if signs and all(sign in COMPARISONS for sign in signs):
            pairs = zip(signs, parts, parts[1:], strict=False)
            compared = [_OPERATIONS[sign](left, right) for sign, left, right in pairs]
            return _OPERATIONS["and"](*compared)
        leaf = self.arguments.get(_SIZE.sub("", step.text))
        size = _SIZE.search(step.text)
        if size and isinstance(leaf, TensorLeaf):
            return normal_form(str(self.metas[leaf.name].shape[int(size[1])]))
        if isinstance(leaf, ValueLeaf) and isinstance(leaf.value, SymExpr | int | float):
            return normal_form(str(leaf.value))
        raise InvalidIRError(f"{step.text} is not a size or a number")


def _found(step: FoldStep, parts: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    is_path = isinstance(step.node, ast.Subscript | ast.Attribute)
    return (step.text,) if is_path else tuple([path for part in parts for path in part])


_PATHS: Algebra[tuple[str, ...]] = Algebra(lambda value: (), lambda name: (), {}, _found)
"""The paths of arguments in a guard."""

_OPERATIONS: Mapping[str, Callable[..., Normal]] = {
    **NORMAL.operations,
    **{
        f"{dot}{name}": NORMAL.operations[ours]
        for name, ours in {**{name: name for name in FUNCTIONS}, **_NAMES}.items()
        for dot in ("", ".")  # a function of a module, too
    },
}
"""The normal form of each operation under the names that torch gives it."""


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
