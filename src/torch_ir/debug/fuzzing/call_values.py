"""Arguments of random calls that are no tensors, and values of tensors that are made for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import torch

from torch_ir.debug.fuzzing.call_recipes import OperandPattern
from torch_ir.ir import Constant, DType
from torch_ir.ops.schema import Argument, Schema
from torch_ir.passes.operator_calls.vectors import in_domain
from torch_ir.semantics.draws import Draws
from torch_ir.semantics.dtypes import Array, numpy_dtype, rounded

Shape = tuple[int, ...]

OMITTED = frozenset({"Device", "Layout", "MemoryFormat", "Generator"})
"""Types of arguments that are left out."""
SKIPPED = frozenset({"pin_memory", "non_blocking", "sparse", "implicit", "sparse_grad", "sorter"})
_TEXTS: Mapping[str, Sequence[str]] = {
    "rounding_mode": ("trunc", "floor"),
    "approximate": ("none", "tanh"),
    "indexing": ("ij", "xy"),
    "mode": ("constant",),
    "reduce": ("sum", "amax"),
    "side": ("left", "right"),
}
DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "int8", "uint8", "bool")


def tensor_of(
    pattern: OperandPattern, shape: Shape, dtype: str, limit: int, op_type: str, draws: Draws
) -> torch.Tensor:
    """Draw a tensor for an operand of a call, in the domain of its operator."""
    if pattern.kind in ("i", "s"):
        array: Array = draws.integers(0, max(limit, 1), shape)
        if pattern.kind == "s":
            array = np.sort(draws.integers(0, 4, shape), axis=-1)
            array = rounded(array, numpy_dtype(dtype))
    elif pattern.kind in ("l", "o"):
        ends = np.sort(draws.integers(0, limit + 1, shape))
        ends[-1:] = limit
        array = np.diff(ends, prepend=0)
        if pattern.kind == "o":
            array = ends - array
    elif pattern.kind == "n":
        array = draws.integers(0, 4, shape)
    else:
        kind = np.dtype(bool) if pattern.kind == "b" else numpy_dtype(dtype)
        is_positive = pattern.kind in ("p", "P")
        array = in_domain(op_type, shape, kind, draws, is_positive=is_positive)
    return Constant.from_numpy(array).torch().clone()


class AttributeDraws:
    """Draws arguments of a call that are no tensors.

    Args:
        random: The source of choices.
        schema: The operator's.
        shape: The shape of its first tensor.
        dtype: The dtype of that.
    """

    def __init__(self, random: Random, schema: Schema, shape: Shape, dtype: str):
        self.random = random
        self.base = schema.op_type.split(".")[1]
        self.shape, self.dtype = shape, dtype
        self.rank = len(shape)
        self.axis = random.randrange(self.rank) if self.rank else 0

    def value(self, argument: Argument) -> Any:
        """Draw a value of an argument."""
        random, kind = self.random, argument.type.removesuffix("?")
        if argument.is_optional and argument.default is None and random.random() < 0.3:
            return None
        match kind:
            case "bool":
                return random.random() < 0.5
            case "float":
                return random.choice((0.5, 1.0, 2.0))
            case "Scalar":
                is_whole = not (self.dtype.startswith(("float", "bfloat", "complex")))
                whole = self.dtype == "bool" or is_whole
                return random.choice((1, 2, 3) if whole else (0.5, 2, -1.5, 1, 3.0))
            case "ScalarType":
                return DType(random.choice((self.dtype, *DTYPES)))
            case "str":
                return random.choice(_TEXTS.get(argument.name, ("none",)))
            case "int" | "SymInt":
                return self._number(argument.name)
            case _:
                return self._numbers(argument.name, kind)

    def _dim(self) -> int:
        size = max(self.rank, 1)
        return self.axis - (size if self.random.random() < 0.3 else 0)

    def _number(self, name: str) -> int:
        random = self.random
        size = self.shape[self.axis] if self.rank else 1
        if name in ("dim", "dimension"):
            more = self.base in ("unsqueeze", "unsqueeze_copy", "stack")
            return random.randrange(-self.rank - 1, self.rank + 1) if more else self._dim()
        if name in ("dim0", "dim1", "axis0", "axis1", "source", "destination", "end_dim"):
            return random.randrange(-self.rank, self.rank) if self.rank else 0
        if name in ("k", "sections", "chunks", "split_size", "length", "size"):
            return random.randint(1, max(size, 1))
        if name in ("index", "start", "end"):
            return random.randrange(-size, size) if size else 0
        if name in ("diagonal", "offset"):
            return random.choice((-1, 0, 1))
        return random.choice((1, 1, 2, 3, 0))

    def _numbers(self, name: str, kind: str) -> Any:
        random, shape, rank = self.random, self.shape, self.rank
        if kind.startswith("float"):
            return (2.0,) * max(rank - 2, 1)
        if kind.startswith("bool"):
            return tuple([True] * 3)
        if name in ("size", "shape", "sizes") and self.base not in ("expand", "broadcast_to"):
            return _resized(random, shape if name != "sizes" else shape[self.axis :][:1])
        if name in ("size",):
            return (*([2] if random.random() < 0.3 else []), *[3 if n == 1 else n for n in shape])
        if name == "dims" and self.base in ("permute", "permute_copy"):
            return tuple(random.sample(range(rank), rank))
        if name in ("repeats", "dims") and self.base in ("repeat", "tile"):
            return tuple([random.choice((1, 2)) for _ in shape])
        if name == "pad":
            return tuple(
                [random.choice((0, 1, 2)) for _ in range(2 * random.randint(1, rank or 1))]
            )
        if name in ("split_sizes", "split_size"):
            size = shape[self.axis] if rank else 1
            first = random.randint(0, size)
            return (first, size - first)
        if name == "indices":
            return (1,)
        if name in ("shifts",):
            return (random.choice((-1, 1, 2)),)
        count = 2 if self.base == "rot90" else random.randint(1, max(rank, 1))
        if self.base == "roll":
            count = 1
        return tuple(random.sample(range(max(rank, 1)), min(count, max(rank, 1))))


def _resized(random: Random, shape: Shape) -> Shape:
    """Another shape with as many elements."""
    merged = list(shape)
    if len(merged) > 1 and random.random() < 0.5:
        place = random.randrange(len(merged) - 1)
        merged[place : place + 2] = [merged[place] * merged[place + 1]]
    elif merged and random.random() < 0.7:
        place = random.randrange(len(merged))
        if merged[place] % 2 == 0:
            merged[place : place + 1] = [2, merged[place] // 2]
    else:
        merged.insert(random.randint(0, len(merged)), 1)
    if merged and random.random() < 0.3:
        merged[random.randrange(len(merged))] = -1
    return tuple(merged)
