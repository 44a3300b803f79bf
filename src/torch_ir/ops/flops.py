"""Arithmetic operations of an operator's call, counted from its shapes alone.

The conventions: a multiply-add counts as two; products, convolutions and attention count as
:mod:`torch.utils.flop_counter` counts them (without bias and softmax, padding and causal masks
not discounted). A pointwise operator counts one per element that it makes, whatever its function,
and a reduction one per element that it reads; softmax and the normalizations count a few per
element. Views, copies, look-ups and fills count zero. An operator that none of this is about has
no count: it is unknown, not zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias, TypeVar

from torch_ir.errors import ExecutionError, InvalidIRError, code_of
from torch_ir.ops.extensions import DENOTATIONS, import_for, note_extension
from torch_ir.ops.rules import require_overload
from torch_ir.ops.spec import spec_of

Shape: TypeAlias = tuple[int, ...]

LOOK_UPS = frozenset({"aten.embedding", "aten.gather", "aten.index", "aten.index_select"})
"""Operators that read as many elements of their table as they write."""

GATES: Mapping[str, int] = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""How many vectors of the hidden size a step of a recurrent net computes, each from two."""

FACTORS: Mapping[str, tuple[str, str, str]] = {
    "mm": ("self", "mat2", ""),
    "bmm": ("self", "mat2", ""),
    "matmul": ("self", "other", ""),
    "mv": ("self", "vec", ""),
    "dot": ("self", "tensor", ""),
    "linear": ("input", "weight", "bias"),
    "addmm": ("mat1", "mat2", "self"),
    "addmv": ("mat", "vec", "self"),
    "baddbmm": ("batch1", "batch2", "self"),
}
"""The two factors of a product of matrices or vectors, and what is added to it, if anything."""


@dataclass(frozen=True, slots=True)
class _CountedCall:
    """One call: its arguments and results, with shapes for tensors."""

    op_type: str
    arguments: Mapping[str, Any]
    results: Sequence[Shape]

    def shape(self, argument: str) -> Shape:
        return self.arguments[argument]

    def shapes(self, argument: str) -> list[Shape]:
        return [shape for shape in self.arguments.get(argument) or () if shape is not None]

    def get(self, argument: str) -> Any:
        return self.arguments.get(argument)

    @property
    def made(self) -> int:
        """Elements of the first result."""
        return math.prod(self.results[0]) if self.results else 0

    @property
    def read(self) -> int:
        """Elements of the first argument."""
        first = next(iter(self.arguments.values()), 0)
        return math.prod(first) if isinstance(first, tuple) else 0


Formula: TypeAlias = Callable[[_CountedCall], int | None]


Counter: TypeAlias = Callable[[Mapping[str, Any], Sequence[Shape]], int | None]
"""Takes the arguments by name, with shapes for tensors, and the shapes of the results."""
C = TypeVar("C", bound=Counter)
_REGISTERED: dict[str, Counter] = {}


def counts_operations(*op_types: str) -> Callable[[C], C]:
    """Declare that the decorated function counts the operations of these overloads.

    A package does so in its module of ``torch_ir.denotations``, which needs no torch.

    Raises:
        InvalidIRError: A name is no exact overload: nothing would ask for its count.

    Example:
        >>> @counts_operations("example.scale.default")
        ... def scale(arguments, results):
        ...     return math.prod(results[0])
        >>> flops("example.scale.default", {"x": (2, 3)}, [(2, 3)])
        6
    """
    for op_type in op_types:
        require_overload(op_type)

    def decorate(counter: C) -> C:
        _REGISTERED.update(dict.fromkeys(op_types, counter))
        for op_type in op_types:
            note_extension("operation count", op_type, counter)
        return counter

    return decorate


def flops(op_type: str, arguments: Mapping[str, Any], results: Sequence[Shape]) -> int | None:
    """Count the floating-point operations of one call; None where no formula is known.

    Args:
        op_type: The exact overload.
        arguments: The call's arguments by name, in the schema's order; a tensor stands as its
            shape, a tuple, and a list of tensors as a list of shapes.
        results: The shapes of the results.

    Example:
        >>> flops("aten.linear.default", {"input": (2, 3), "weight": (4, 3)}, [(2, 4)])
        48
    """
    import_for(DENOTATIONS, op_type.partition(".")[0])
    if op_type in _REGISTERED:
        counter = _REGISTERED[op_type]
        with code_of(counter, f"the operation count of {op_type}", ExecutionError):
            counted = counter(arguments, results)
            is_number = isinstance(counted, Real)  # pyright: ignore[reportUnnecessaryIsInstance]  # packages may be untyped
            if counted is not None and not (is_number and 0 <= counted < math.inf):
                raise TypeError(f"it gave {counted!r:.60}, which counts nothing")
            return counted
    call = _CountedCall(op_type, arguments, results)
    operator = op_type.rpartition(".")[0]
    if operator in _FORMULAS:
        return _FORMULAS[operator](call)
    try:
        traits = spec_of(op_type).traits
    except InvalidIRError:  # of a library, or of a later torch
        return None
    if traits & {"view", "view-copy"}:
        return 0
    if "pointwise" in traits:
        return sum(math.prod(shape) for shape in results)
    if "reduction" in traits:
        return call.read
    return None


def _product(left: str) -> Formula:
    """A product of matrices: two operations per element of the result and of the inner size."""
    return lambda call: 2 * call.made * call.shape(left)[-1]


def _convolution(call: _CountedCall) -> int:
    is_transposed = "transpose" in call.op_type or call.get("transposed") is True
    points = call.shape("input") if is_transposed else call.results[0]
    return 2 * math.prod(points) * math.prod(call.shape("weight")[1:])


def _attention(call: _CountedCall) -> int:
    query, key, value = (call.shape(name) for name in ("query", "key", "value"))
    return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _recurrent(call: _CountedCall) -> int | None:
    """Every weight matrix once for each step of each sequence."""
    sequence, matrices = call.get("input") or call.get("data"), call.shapes("params")
    if not matrices:
        return None
    steps = math.prod(sequence[:-1])
    return 2 * steps * sum(math.prod(shape) for shape in matrices if len(shape) == 2)


def _einsum(call: _CountedCall) -> int | None:
    """Two operands without an ellipsis: two operations for each combination of indices."""
    terms = str(call.get("equation")).replace(" ", "").partition("->")[0].split(",")
    shapes = call.shapes("tensors")
    fits = len(terms) == 2 and [len(t) for t in terms] == [len(s) for s in shapes]
    if not fits or "." in "".join(terms):
        return None
    pairs = zip("".join(terms), (size for shape in shapes for size in shape), strict=True)
    sizes: dict[str, int] = {}
    for index, size in pairs:
        sizes[index] = max(size, sizes.get(index, 1))
    return 2 * math.prod(sizes.values())


def _pool(call: _CountedCall) -> int:
    """One operation for each element of each window."""
    kernel = call.arguments["kernel_size"]
    sizes: list[int] = [int(k) for k in kernel] if isinstance(kernel, Sequence) else [int(kernel)]
    dimensions = int(call.op_type.partition("_pool")[2][0])
    window = math.prod(sizes * dimensions if len(sizes) == 1 else sizes)
    return call.made * window


def _per_element(count: int) -> Formula:
    return lambda call: count * call.read


def _batch_norm(call: _CountedCall) -> int:
    return (7 if call.get("training") is True else 4) * call.read


def _dropout(call: _CountedCall) -> int:
    return 2 * call.read if call.get("train") is True else 0


def _index_put(call: _CountedCall) -> int:
    return math.prod(call.shape("values")) if call.get("accumulate") is True else 0


def _none(_: _CountedCall) -> int:
    """What moves, looks up or makes values without arithmetic."""
    return 0


def _each(formula: Formula, names: str) -> Mapping[str, Formula]:
    return {f"aten.{name}": formula for name in names.split()}


_FORMULAS: Mapping[str, Formula] = {
    **{f"aten.{name}": _product(first) for name, (first, _, _) in FACTORS.items()},
    **_each(_product("self"), "vdot"),
    **_each(_convolution, "convolution _convolution conv1d conv2d conv3d"),
    **_each(_convolution, "conv_transpose1d conv_transpose2d conv_transpose3d"),
    **_each(
        _attention,
        "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu "
        "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
        "_scaled_dot_product_cudnn_attention",
    ),
    **_each(_recurrent, " ".join(GATES)),
    **_each(_einsum, "einsum"),
    **_each(_pool, "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d"),
    **_each(_pool, "max_pool2d_with_indices max_pool3d_with_indices"),
    # maximum, difference, exponential, sum, quotient
    **_each(_per_element(5), "softmax _softmax log_softmax _log_softmax"),
    # sum, difference, square, sum of squares, scale, weight, bias
    **_each(_per_element(7), "layer_norm native_layer_norm group_norm native_group_norm"),
    **_each(_per_element(4), "rms_norm var std"),
    **_each(_batch_norm, "batch_norm _native_batch_norm_legit"),
    **_each(_per_element(4), "_native_batch_norm_legit_no_training"),
    **_each(_dropout, "dropout feature_dropout alpha_dropout native_dropout"),
    **_each(
        _per_element(1),
        "cumsum cumprod adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
        "_adaptive_avg_pool2d _adaptive_avg_pool3d",
    ),
    **_each(_index_put, "index_put index_put_"),
    **_each(
        _none,
        "alias cat chunk clone contiguous constant_pad_nd copy copy_ detach detach_ "
        "embedding empty empty_like empty_permuted empty_strided expand_copy fill fill_ "
        "flatten flip full full_like gather index index_select lift_fresh "
        "lift_fresh_copy masked_select movedim narrow new_empty new_full new_ones "
        "new_zeros ones ones_like pad pixel_shuffle pixel_unshuffle reflection_pad1d "
        "reflection_pad2d reflection_pad3d repeat repeat_interleave replication_pad1d "
        "replication_pad2d replication_pad3d reshape roll scalar_tensor scatter "
        "select_scatter slice_scatter stack to _to_copy tril triu upsample_nearest1d "
        "upsample_nearest2d upsample_nearest3d zero_ zeros zeros_like _assert_async "
        "_assert_scalar _assert_tensor_metadata sym_size sym_numel one_hot",
    ),
}
