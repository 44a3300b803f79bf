"""The values of a program that grows, and new ones that its calls need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from torch_ir.debug.fuzzing.call_recipes import OperandPattern
from torch_ir.debug.fuzzing.call_values import Shape, tensor_of
from torch_ir.debug.fuzzing.dynamic_sizes import SIZE
from torch_ir.infer.types import name_of
from torch_ir.ir import TensorMeta
from torch_ir.ir.builder import Names
from torch_ir.semantics.draws import Draws

MAIN_DTYPES = (
    *("float32",) * 8,
    *("float16", "float16", "bfloat16", "bfloat16", "float64", "float64"),
    *("int64", "int32", "uint8", "int8", "bool"),
)
_KINDS = {"b": "bool", **dict.fromkeys("nilo", "int64"), "P": "float32"}
_WEIGHTS = frozenset({"weight", "bias", "running_mean", "running_var", "scales", "mat2"})
"""Arguments whose new values are weights."""


@dataclass(slots=True)
class PoolValue:
    """A value of the program, with its tensor."""

    meta: TensorMeta
    tensor: torch.Tensor


class ValuePool:
    """Values that calls can take.

    Attributes:
        values: All so far.
        fresh: Those that were made for the call that is being drawn.
        inputs: The tensors of graph inputs, by name.
        weights: Those of weights.
        metas: The types of both.
        sizes: Where sizes of dimensions are drawn from, but for images; small ones if None.
    """

    def __init__(
        self, seed: int, random: Random, dtypes: Sequence[str], sizes: Sequence[int] | None
    ):
        self.random, self.seed, self.sizes = random, seed, sizes
        self.main = random.choice(dtypes)
        self.dtypes = dtypes
        self.names = Names()
        self.values: list[PoolValue] = []
        self.inputs: dict[str, torch.Tensor] = {}
        self.weights: dict[str, torch.Tensor] = {}
        self.metas: dict[str, TensorMeta] = {}
        self.fresh: list[PoolValue] = []

    def operand(
        self, name: str, pattern: OperandPattern, sizes: dict[str, Any], dtype: str, op_type: str
    ) -> PoolValue:
        """A value that fits a pattern: one there is, or a new one."""
        random = self.random
        kind = pattern.kind
        wanted = kind if kind in MAIN_DTYPES else _KINDS.get(kind, dtype)
        if kind in ("", "b", *MAIN_DTYPES) and random.random() < 0.8:
            for value in random.sample(self.values, len(self.values)):
                fits = value.meta.dtype == wanted or not wanted
                bound = _unified(pattern, value.tensor.shape, sizes) if fits else None
                if bound is not None:
                    sizes.update(bound)
                    return value
        wanted = wanted or (self.main if random.random() < 0.85 else random.choice(self.dtypes))
        shape = self._shape(pattern, sizes)
        if pattern.limit.isalpha() and pattern.limit not in sizes:
            sizes[pattern.limit] = self._size()
        limit = int(sizes.get(pattern.limit, pattern.limit or 0))
        own = self.names.fresh("x")
        drawn = Draws(self.seed, own)
        tensor = tensor_of(pattern, shape, wanted, limit, op_type, drawn)
        value = PoolValue(TensorMeta(own, shape, name_of(tensor.dtype)), tensor)
        is_weight = name in _WEIGHTS
        target = self.weights if is_weight and SIZE not in shape else self.inputs
        target[own] = tensor
        self.metas[own] = value.meta
        self.fresh.append(value)
        return value

    def _shape(self, pattern: OperandPattern, sizes: dict[str, Any]) -> Shape:
        random, shape = self.random, list[int]()
        for token in pattern.sizes:
            if token.startswith("*"):
                if token not in sizes:
                    rank = random.choice((0, 1, 1, 2, 2, 2, 3))
                    sizes[token] = tuple([self._size(i == 0) for i in range(rank)])
                shape += sizes[token]
            elif token.isdigit():
                shape.append(int(token))
            else:
                if token not in sizes:
                    sizes[token] = random.choice((4, 5, 6)) if token in "hwl" else self._size()
                shape.append(sizes[token])
        if pattern.broadcasts and random.random() < 0.3:
            shape = [1 if random.random() < 0.4 else n for n in shape][random.choice((0, 0, 1)) :]
        return tuple(shape)

    def _size(self, is_first: bool = False) -> int:
        choices = (2, 3, 4, SIZE, SIZE, SIZE) if is_first else (1, 2, 2, 3, 3, 4, 5)
        return self.random.choice(self.sizes or choices)


def _unified(
    pattern: OperandPattern, shape: Sequence[int], sizes: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The sizes that make a pattern of a shape; None where it does not fit."""
    bound, sizes = dict[str, Any](), dict(sizes)
    rest, tokens = list(shape), list(pattern.sizes)
    stars = [token for token in tokens if token.startswith("*")]
    length = len(rest) - (len(tokens) - len(stars))
    if length < 0 or (not stars and length):
        return None
    if pattern.broadcasts and stars[0] in sizes:
        wide = sizes[stars[0]]
        pairs = zip(reversed(rest), reversed(wide), strict=False)
        return {} if len(rest) <= len(wide) and all(a in (b, 1) for a, b in pairs) else None
    for token in tokens:
        if token.startswith("*"):
            item: Any = tuple(rest[:length])
            rest = rest[length:]
        else:
            item = rest.pop(0)
        known = int(token) if token.isdigit() else sizes.get(token, item)
        if known != item or (token in "hwl" and item < 3):
            return None
        sizes[token] = bound[token] = item
    return bound
