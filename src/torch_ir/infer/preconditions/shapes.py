"""Preconditions of operators whose kernels take the sizes of one tensor for all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from torch_ir.infer.preconditions.faults import (
    Arguments,
    Faults,
    holds_outside,
    not_dense,
    of_rank,
    of_type,
    outside,
    unlike,
)
from torch_ir.ops.quotients import overflows


def batch_norm(call: Arguments) -> Faults:
    """Yield what is wrong with the statistics of a batch norm, forwards or backwards."""
    given = call["input"]
    if len(given.shape) < 2:
        yield f"input is {[*given.shape]}, and has to have 2 dimensions at least"
    if "grad_out" in call:
        yield from unlike("grad_out", call["grad_out"], given.shape)
    trains = bool(call.get("training", call.get("train", call.get("update", True))))
    batch = ("save_mean", "save_invstd", "save_var")
    for name in ("weight", "bias", "running_mean", "running_var", *batch):
        value = call.get(name)
        if value is not None and not (name in batch and not trains and [*value.shape] == [0]):
            yield from unlike(name, value, given.shape[1:2])
    is_backward = "grad_out" in call
    needed = batch if is_backward and trains else ("running_mean", "running_var")
    if not trains and "training" in call and "running_mean" not in call:
        yield "training=False reads statistics that the operator does not take"
    for name in needed if is_backward or not trains else ():
        if name in call and call[name] is None:
            yield f"{name} is not given"


def batch_norm_as_is(call: Arguments) -> Faults:
    """Yield what is wrong with a batch norm that uses the statistics it is given."""
    yield from batch_norm({**call, "update": False})


def layer_norm_gradient(call: Arguments) -> Faults:
    """Yield what is wrong with the backward pass of a layer norm."""
    given, sizes = call["input"], [*call["normalized_shape"]]
    count = len(given.shape) - len(sizes)
    if count < 0 or [*given.shape[count:]] != sizes:
        yield f"input is {[*given.shape]}, which does not end with {sizes}"
    yield from unlike("grad_out", call["grad_out"], given.shape)
    rows = math.prod(given.shape[:count])
    for name in ("mean", "rstd"):
        if math.prod(call[name].shape) != rows:
            yield f"{name} is {[*call[name].shape]}, and has to have {rows} elements"
    for name in ("weight", "bias"):
        if call.get(name) is not None:
            yield from unlike(name, call[name], sizes)


def group_norm_layouts(call: Arguments) -> Faults:
    """Yield the tensors that the backward pass of a group norm reads in another order."""
    yield from not_dense("mean", "rstd", "weight")(call)
    given, gradient = call["input"], call["grad_out"]
    orders = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
    ranks = (None, 4, 5)
    if not any(
        rank in (None, given.dim())
        and given.is_contiguous(memory_format=order)
        and gradient.is_contiguous(memory_format=order)
        for order, rank in zip(orders, ranks, strict=True)
    ):
        yield "input and grad_out have to be contiguous, or both in channels last"


def spread(rank: int, *, padded: bool = False) -> Callable[[Arguments], Faults]:
    """Return the rule of a backward pass of pooling, or of padding, over some dimensions."""

    def rule(call: Arguments) -> Faults:
        given, grad = call["self"], call["grad_output"]
        yield from of_rank("self", given, rank + 1, rank + 2)
        yield from of_rank("grad_output", grad, len(given.shape))
        yield from unlike("grad_output", grad, [*given.shape[:-rank], *grad.shape[-rank:]])
        if not all(given.shape[-rank:]):
            yield f"self is {[*given.shape]}, and has to have elements to spread over"
        if padded and len(call["padding"]) != 2 * rank:
            yield f"padding has {len(call['padding'])} elements, and has to have {2 * rank}"

    return rule


def fractional(rank: int) -> Callable[[Arguments], Faults]:
    """Return the rule of the backward pass of fractional max pooling."""

    def rule(call: Arguments) -> Faults:
        yield from spread(rank)(call)
        grad = call["grad_output"]
        yield from unlike("indices", call["indices"], grad.shape)
        if [*call["output_size"]] != [*grad.shape[-rank:]]:
            yield f"output_size is {[*call['output_size']]}, where grad_output is {[*grad.shape]}"

    return rule


_FARTHEST = 2**31
"""Positions are numbers before they are indices: what is much greater has no index."""


def resampled(call: Arguments) -> Faults:
    """Yield the scales by which a place stands beyond all elements; kernels turn it into an index.

    A scale that is not positive is as none.
    """
    for name, scale, count, _ in _scaled(call):
        if not count / scale < _FARTHEST:
            yield f"{name} is {scale}, which is too small for {count} places"


def antialiased(reach: int) -> Callable[[Arguments], Faults]:
    """Return the rule of filters that read the first element they reach, if there is one or not.

    Args:
        reach: How many elements a filter reaches to each side, at a scale of 1.
    """

    def rule(call: Arguments) -> Faults:
        yield from resampled(call)
        for name, scale, count, size in _scaled(call):
            if size == count:
                continue  # such an axis is left out
            step = 1 / scale
            first = (count - 0.5) * step - reach * max(step, 1) + 0.5
            if not step <= size + 1 or not first * (1 + 2**-22) < size:  # in float32
                yield f"{name} is {scale}, where {size} elements become {count}"

    return rule


def _scaled(call: Arguments) -> Iterator[tuple[str, float, int, int]]:
    """Yield each scale that is used, with its name, the places and the elements of its axis."""
    sizes = call["input_size"] if "input_size" in call else call["self"].shape
    names = [n for n in ("scales", "scales_d", "scales_h", "scales_w") if n in call]
    for name, count, size in zip(names, call["output_size"], sizes[2:], strict=False):
        scale = call[name]
        if scale is not None and scale > 0 and not call.get("align_corners"):
            yield name, scale, count, size


def stepped(call: Arguments) -> Faults:
    """Yield a step of ``range`` that is 0 as an integer: it divides integers by it."""
    made = call.get("dtype")
    is_inexact = made is None or made.is_floating_point or made.is_complex
    if not is_inexact and not abs(call.get("step", 1)) >= 1:
        yield f"step is {call['step']}, which is 0 as an integer"


def counted(call: Arguments) -> Faults:
    """Yield a step of ``arange`` that is 0 as an integer: torch 2.11 divides by it."""
    made = call.get("dtype") if "out" not in call else call["out"].dtype
    if made == torch.int64 and not abs(call.get("step", 1)) >= 1:
        yield f"step is {call['step']}, which is 0 as an integer"


def alike(*names: str) -> Callable[[Arguments], Faults]:
    """Return the rule that tensors have the shape of the first."""

    def rule(call: Arguments) -> Faults:
        for name in names[1:]:
            yield from unlike(name, call[name], call[names[0]].shape)

    return rule


def filled_matrix(name: str) -> Callable[[Arguments], Faults]:
    """Return the rule that a tensor is a matrix with elements."""

    def rule(call: Arguments) -> Faults:
        yield from of_rank(name, call[name], 2)
        yield from with_elements(name)(call)

    return rule


def with_elements(name: str) -> Callable[[Arguments], Faults]:
    """Return the rule that a tensor has elements."""

    def rule(call: Arguments) -> Faults:
        if 0 in call[name].shape:
            yield f"{name} is {[*call[name].shape]}, and has to have elements"

    return rule


def points(call: Arguments) -> Faults:
    """Yield what is wrong with points whose distances are wanted."""
    yield from of_rank("self", call["self"], 2)


def observed(call: Arguments) -> Faults:
    """Yield what is wrong with a moving average of what quantization sees.

    The kernel reads a number of each state, or one of each row, as it is.
    """
    axis, given = call["ch_axis"], call["self"].shape
    is_by_row = call.get("per_row_fake_quant", False)
    if is_by_row:
        yield from outside("ch_axis", axis, 0, len(given) - 1)
    count = given[axis] if is_by_row and 0 <= axis < len(given) else 1
    for name in ("observer_on", "fake_quant_on"):
        if math.prod(call[name].shape) != 1:
            yield f"{name} is {[*call[name].shape]}, and has to have 1 element"
    if is_by_row and 0 in call["running_min"].shape:
        return  # the first call gives them their sizes
    for name in ("running_min", "running_max", "scale", "zero_point"):
        if math.prod(call[name].shape) != count:
            yield f"{name} is {[*call[name].shape]}, and has to have {count} elements"


def observed_types(call: Arguments) -> Faults:
    """Yield the states of other element types than the kernel reads."""
    if not call["self"].is_floating_point():
        yield f"self is {call['self'].dtype}, and has to be floating"
    floats = dict.fromkeys(("running_min", "running_max", "scale"), torch.float32)
    for name, dtype in {**floats, "zero_point": torch.int32}.items():
        if call[name].dtype != dtype:
            yield f"{name} is {call[name].dtype}, and has to be {dtype}"


def of_one_type(call: Arguments) -> Faults:
    """Yield a result of another element type than its gradient."""
    output, gradient = call["output"].dtype, call["grad_output"].dtype
    if output != gradient:
        yield f"output is {output}, where grad_output is {gradient}"


def written(call: Arguments) -> Faults:
    """Yield an output of another element type than the operator writes."""
    wanted = torch.float32 if call.get("half_to_float") else call["self"].dtype
    yield from of_type("out", call["out"], wanted)


def grid_gradient(call: Arguments) -> Faults:
    """Yield what is wrong with the backward pass of sampling by a grid."""
    given, grid = call["input"], call["grid"]
    rank = len(given.shape) - 2
    yield from of_rank("input", given, 4, 5)
    yield from unlike("grid", grid, [given.shape[0], *grid.shape[1:-1], rank])
    yield from of_rank("grid", grid, len(given.shape))
    yield from unlike("grad_output", call["grad_output"], [*given.shape[:2], *grid.shape[1:-1]])


def embedding_gradient(call: Arguments) -> Faults:
    """Yield what is wrong with the shapes of the gradient of an embedding."""
    grad, indices = call["grad_output"], call["indices"]
    yield from of_rank("grad_output", grad, len(indices.shape) + 1)
    yield from unlike("grad_output", grad, [*indices.shape, grad.shape[-1]])


def embedding_gradient_of(call: Arguments) -> Faults:
    """Yield the same of the operator that calls it."""
    yield from embedding_gradient({**call, "grad_output": call["grad"]})


def embedded(call: Arguments) -> Faults:
    """Yield what is wrong with the indices of the gradient of an embedding."""
    yield from holds_outside("indices", call["indices"], 0, call["num_weights"] - 1)


def transformed(call: Arguments) -> Faults:
    """Yield what is wrong with the dimensions of a Fourier transform."""
    shape = call["self"].shape
    for dim in call["dim"]:
        yield from outside("an element of dim", dim, 0, len(shape) - 1)  # no kernel wraps it
    if len({*call["dim"]}) != len(call["dim"]):
        yield f"dim is {[*call['dim']]}, and has to name each dimension once"
    if "last_dim_size" in call and call["dim"]:
        size, wanted = shape[call["dim"][-1]], call["last_dim_size"] // 2 + 1
        if size != wanted:
            yield f"dimension {call['dim'][-1]} of self is {size}, and has to be {wanted}"


def attended(call: Arguments) -> Faults:
    """Yield what is wrong with the sizes that a flash kernel divides its work by."""
    for name in ("query", "key"):
        if 0 in call[name].shape[1:3]:
            shape = [*call[name].shape]
            yield f"{name} is {shape}, and has to have a head and a row at least"
    yield from unlike("value", call["value"], [*call["key"].shape[:3], *call["value"].shape[3:]])


def grouped_heads(call: Arguments) -> Faults:
    """Yield what is wrong with the heads by whose number those of the queries are divided."""
    for name in ("key", "value") if call.get("enable_gqa") else ():
        if len(shape := call[name].shape) >= 3 and shape[-3] == 0:
            yield f"{name} is {[*shape]}, and has to have a head at least"


def masked_index(call: Arguments) -> Faults:
    """Yield what is wrong with the dimensions that indices are clamped to."""
    shape, indices = call["self"].shape, call["indices"]
    if len(indices) > len(shape):
        yield f"indices has {len(indices)} elements, and self {len(shape)} dimensions"
    for dim, (size, index) in enumerate(zip(shape, indices, strict=False)):
        if size == 0 and index is not None:
            yield f"dimension {dim} of self is empty, and indices holds a tensor for it"


def packed_codes(call: Arguments) -> Faults:
    """Yield what is wrong with the columns that a kernel of bfloat16 takes sixteen at a time."""
    rows = call["self"]
    if rows.dtype == torch.bfloat16 and rows.shape and rows.shape[-1] % 16:
        yield f"self has {rows.shape[-1]} columns of bfloat16, and has to have a multiple of 16"


def weight_norm(call: Arguments) -> Faults:
    """Yield what is wrong with the norms of a weight along its first or last dimension."""
    weight, norms, dim = call["v"], call["g"], call.get("dim", 0)
    last = len(weight.shape) - 1
    if dim in (0, last):
        shape = [size if axis == dim else 1 for axis, size in enumerate(weight.shape)]
        yield from unlike("g", norms, shape)
        if not weight.shape or not math.prod(weight.shape):
            yield f"v is {[*weight.shape]}, and has to have elements"


def distances(call: Arguments) -> Faults:
    """Yield what is wrong with the backward pass of distances between points."""
    if "pdist" in call:
        yield from of_rank("self", call["self"], 2)
        points = call["self"].shape[0]
        yield from outside("the number of points", points, 1, 1 << 31)
        shape = [points * (points - 1) // 2]
        yield from unlike("pdist", call["pdist"], shape)
    else:
        left, right = call["x1"], call["x2"]
        for name, value in (("x1", left), ("x2", right), ("cdist", call["cdist"])):
            if len(value.shape) < 2:
                yield f"{name} is {[*value.shape]}, and has to have 2 dimensions at least"
        yield from unlike("x2", right, [*right.shape[:-1], left.shape[-1]])
        batch = _broadcast(left.shape[:-2], right.shape[:-2])
        shape = [*batch, left.shape[-2], right.shape[-2]]
        yield from unlike("cdist", call["cdist"], shape)
    yield from unlike("grad", call["grad"], shape)


def _broadcast(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """The shape that two broadcast to; of sizes that do not fit, which torch refuses, one."""
    rank = max(len(first), len(second))
    ones = [[*[1] * (rank - len(shape)), *shape] for shape in (first, second)]
    return [other if size == 1 else size for size, other in zip(*ones, strict=True)]


def pivots(call: Arguments) -> Faults:
    """Yield what is wrong with the shape of the pivots of a factorization."""
    data = call["LU_data"] if "LU_data" in call else call["LD"]
    name = "LU_pivots" if "LU_data" in call else "pivots"
    if len(data.shape) < 2:
        yield f"the factors are {[*data.shape]}, and have to have 2 dimensions at least"
    yield from unlike(name, call[name], [*data.shape[:-2], min(data.shape[-2:])])


def factored(call: Arguments) -> Faults:
    """Yield what is wrong with the shapes of ``linalg_ldl_solve``, which repeats one matrix alone.

    Its kernel goes on from one matrix of a batch to the next for each matrix of the solution.
    """
    yield from pivots(call)
    batch, other = call["LD"].shape[:-2], call["B"].shape[:-2]
    if batch and [*batch] != _broadcast(batch, other):
        yield f"LD has a batch of {[*batch]}, and has to have that of B, {[*other]}, or none"


def permuted(call: Arguments) -> Faults:
    """Yield what is wrong with the pivots of ``lu_unpack``."""
    yield from holds_outside("LU_pivots", call["LU_pivots"], 1, call["LU_data"].shape[-2])


def paired(call: Arguments) -> Faults:
    """Yield what is wrong with pivots of ``linalg_ldl_solve``: negative ones are pairs."""
    rows: torch.Tensor = call["pivots"]
    yield from holds_outside("the size of pivots", rows.abs(), 1, rows.shape[-1])
    for row in rows.reshape(-1, rows.shape[-1]).tolist() if rows.numel() else ():
        run = 0
        for value in [*row, 1]:
            if value > 0 and run % 2:
                yield f"pivots holds {row!s:.60}, where a negative one stands alone"
            run = run + 1 if value < 0 else 0


def quotients(call: Arguments) -> Faults:
    """Yield what is wrong with a division that cuts: its quotient may be no integer of the type.

    The processor ends the process there.
    """
    left, right = call["self"], call["other"]
    dtype = torch.result_type(left, right)
    if call.get("rounding_mode", "trunc") != "trunc" or dtype not in (torch.int32, torch.int64):
        return
    least = torch.iinfo(dtype).min
    if bool(overflows(left, torch.as_tensor(right), least).any()):
        yield f"self holds {least} where other holds -1, and {-least} is outside of {dtype}"


def common_multiples(call: Arguments) -> Faults:
    """Yield a least integer whose common divisor wraps to -1, by which the kernel divides it."""
    left, right = call["self"], call["other"]
    dtype = torch.result_type(left, right)
    if dtype not in (torch.int32, torch.int64):
        return
    least = torch.iinfo(dtype).min
    if bool((left == least).any()) and bool(
        overflows(left, torch.gcd(left.to(dtype), right.to(dtype)), least).any()
    ):
        yield f"self holds {least}, which is divided by -1, and {-least} is outside of {dtype}"


def smoothed(call: Arguments) -> Faults:
    """Yield a ``beta`` that is 0 as an integer: dividing integers by it ends the process.

    It is the width below which a loss is smooth.
    """
    given = [call[name].dtype for name in ("grad_output", "self", "target")]
    is_whole = not any(dtype.is_floating_point or dtype.is_complex for dtype in given)
    if is_whole and not abs(call["beta"]) >= 1:
        yield f"beta is {call['beta']}, which is 0 as an integer"


def cholesky(call: Arguments) -> Faults:
    """Yield what is wrong with the shapes of a system of equations and its factor."""
    left, right = call["A"], call["self"]
    for name, value in (("A", left), ("self", right)):
        if len(value.shape) < 2:
            yield f"{name} is {[*value.shape]}, and has to have 2 dimensions at least"
    rows = right.shape[-2]
    yield from unlike("A", left, [*right.shape[:-2], rows, rows])


def unfolded(call: Arguments) -> Faults:
    """Yield what is wrong with the backward pass of ``unfold``."""
    shape: list[Any] = [*call["input_sizes"]]
    if not shape:  # a number is unfolded into one window
        yield from unlike("grad_in", call["grad_in"], [min(call["size"], 1)])
        return
    yield from outside("dim", call["dim"], -len(shape), len(shape) - 1)
    yield from outside("step", call["step"], 1, 1 << 62)
    yield from outside("size", call["size"], 0, shape[call["dim"]])
    shape[call["dim"]] = (shape[call["dim"]] - call["size"]) // call["step"] + 1
    yield from unlike("grad_in", call["grad_in"], [*shape, call["size"]])


def aliased(call: Arguments) -> Faults:
    """Yield what is wrong with sizes and strides that show a tensor's memory anew."""
    tensor: torch.Tensor = call["self"]
    size: Sequence[int] = call["size"]
    stride: Sequence[int] = call["stride"]
    if len(size) != len(stride):
        yield f"size has {len(size)} elements, and stride {len(stride)}"
    if not all(size):
        return
    yield from (f"stride holds {step}" for step in stride if step < 0)
    last: Any = sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    room = int(elements - tensor.storage_offset())
    yield from outside("the last element", last, 0, room - 1)
