"""Rows of a table looked up by number.

Source: torch.nn.functional.embedding, embedding_bag and one_hot in torch's documentation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, rounded, widened, working
from torch_ir.semantics.operators.indexing import in_range
from torch_ir.semantics.registry import denotes


@denotes("aten.embedding.default")
def embedding(
    weight: Array,
    indices: Array,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Array:
    """``result[i, …] = weight[indices[i, …]]``: [n, d], [*] → [*, d].

    What is about gradients changes nothing here.
    """
    return weight[in_range(indices, _rows(weight))]


def _rows(weight: Array) -> int:
    if weight.ndim != 2:
        raise InvalidIRError(f"a table of shape {list(weight.shape)} is no matrix")
    return weight.shape[0]


@denotes("aten.embedding_dense_backward.default")
def embedding_dense_backward(
    grad_output: Array,
    indices: Array,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Array:
    """The gradient of a table: ``result[k] = Σ grad_output[i]`` over i with ``indices[i] = k``.

    Row ``padding_idx`` stays 0. With ``scale_grad_by_freq`` each row is divided by how many
    indices mean it. Shape [num_weights, d].
    """
    width = grad_output.shape[-1]
    places = in_range(indices, num_weights).reshape(-1)
    gradients = grad_output.reshape(places.size, width).astype(working(grad_output.dtype))
    kept = places != padding_idx
    result = np.zeros((num_weights, width), gradients.dtype)
    np.add.at(result, places[kept], gradients[kept])
    if scale_grad_by_freq:
        counts = np.bincount(places, minlength=num_weights)
        result /= np.maximum(counts, 1)[:, None]
    return rounded(result, grad_output.dtype)


@denotes("aten.one_hot.default")
def one_hot(self: Array, num_classes: int = -1) -> Array:
    """``result[…, c] = 1 where self[…] = c, else 0``: int64 of shape [*, num_classes].

    Without a number of classes, the largest element and one.
    """
    if self.dtype != np.int64 or (num_classes < 0 and not self.size):
        raise InvalidIRError(f"{self.dtype} {list(self.shape)} does not number classes")
    count = num_classes if num_classes >= 0 else int(self.max()) + 1
    classes = in_range(self, count)
    return (classes[..., None] == np.arange(count)).astype("int64")


# -- bags -----------------------------------------------------------------------------------------

SUM, MEAN, MAX = 0, 1, 2
"""What is made of a bag's rows, as torch numbers it."""


@denotes("aten._embedding_bag.default")
def embedding_bag(
    weight: Array,
    indices: Array,
    offsets: Array,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Array, Array, Array, Array]:
    """The sum (mode 0), mean (1) or largest (2) of each bag's rows.

    Bag b holds the rows ``indices[offsets[b] : offsets[b + 1]]``, the last one those to the end;
    with ``include_last_offset`` the last offset is that end. Indices equal to ``padding_idx`` are
    left out. With weights for each index, rows are multiplied by them (mode 0 only). An empty bag
    gives zeros.

    Returns:
        The result [bags, d], and three tensors that torch's gradient wants: the bag of each index
        (empty for plain sums of rows that lie one by one), each bag's size (0 for sums), and for
        mode 2 the row that each number came from, else the sizes again. These are int32 where
        indices and offsets both are, else int64.
    """
    rows = in_range(indices.reshape(-1), _rows(weight))
    starts, ends = _bounds(rows.size, offsets, include_last_offset)
    wide = widened(weight)
    if per_sample_weights is not None and mode != SUM:
        raise InvalidIRError("weights for each index are for sums only")
    shape = (len(starts), weight.shape[1])
    result, sources = np.zeros(shape, wide.dtype), np.zeros(shape, "int64")
    owners, sizes = np.zeros(rows.size, "int64"), np.zeros(len(starts), "int64")
    for bag, (start, end) in enumerate(zip(starts, ends, strict=True)):
        owners[start:end] = bag
        kept = np.arange(start, end)[rows[start:end] != padding_idx]
        if not kept.size:
            continue
        sizes[bag] = kept.size if mode != SUM else 0
        held = wide[rows[kept]]
        if mode == MAX:
            first = np.argmax(held, axis=0)
            sources[bag] = rows[kept][first]
            result[bag] = np.take_along_axis(held, first[None], 0)[0]
        else:
            if per_sample_weights is not None:
                held = held * per_sample_weights[kept].astype(wide.dtype)[:, None]
            result[bag] = held.sum(axis=0) / (kept.size if mode == MEAN else 1)
    lie = weight.strides[1] == weight.itemsize and weight.dtype != np.float64
    if mode == SUM and padding_idx < 0 and lie:
        owners = owners[:0]
    both = indices.dtype == offsets.dtype == np.int32
    kept_for_gradient = (owners, sizes, sources if mode == MAX else sizes)
    dtype = np.dtype("int32" if both else "int64")
    found, counts, last = (rounded(value, dtype) for value in kept_for_gradient)
    return rounded(result, weight.dtype), found, counts, last


@denotes("aten._embedding_bag_forward_only.default")
def embedding_bag_forward_only(
    *, offsets: Array, mode: int = 0, **arguments: Any
) -> tuple[Array, Array, Array, Array]:
    """``_embedding_bag``, but of sums a size for each offset, also for the last that is an end."""
    results = embedding_bag(offsets=offsets, mode=mode, **arguments)
    if mode != SUM:
        return results
    sizes = np.zeros(offsets.shape, results[2].dtype)
    return results[0], results[1], sizes, sizes


@denotes("aten.embedding_bag.default", "aten.embedding_bag.padding_idx")
def embedding_bag_without_gradient(
    *, weight: Array, padding_idx: int | None = None, **arguments: Any
) -> tuple[Array, Array, Array, Array]:
    """``_embedding_bag_forward_only``; a negative ``padding_idx`` counts from the table's end."""
    left_out = -1
    if padding_idx is not None:
        if not -_rows(weight) <= padding_idx < _rows(weight):
            raise InvalidIRError(f"padding_idx {padding_idx} is no row of {_rows(weight)}")
        left_out = padding_idx % _rows(weight)
    return embedding_bag_forward_only(weight=weight, padding_idx=left_out, **arguments)


def _bounds(count: int, offsets: Array, include_last_offset: bool) -> tuple[list[int], list[int]]:
    """Where each bag starts and ends among the indices."""
    marks: list[int] = offsets.tolist()
    rising = marks == sorted(marks)
    if (marks and (marks[0] != 0 or marks[-1] > count)) or not rising:
        raise InvalidIRError(f"offsets {marks} are not for {count} indices")
    ends = marks[1:] if include_last_offset else [*marks[1:], count]
    return (marks[:-1] if include_last_offset else marks), ends if marks else []


# -- gradients of bags ----------------------------------------------------------------------------


@denotes("aten._embedding_bag_dense_backward.default")
def embedding_bag_dense_backward(
    grad: Array,
    indices: Array,
    offset2bag: Array,
    bag_size: Array,
    maximum_indices: Array,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Array | None,
    padding_idx: int = -1,
) -> Array:
    """The gradient of a table: each row gets its bags' gradients, as often as these hold it.

    Of means it is divided by the bag's size. Of extremes each number's gradient goes to the row
    that ``maximum_indices`` names, but those of bags of size 0. With ``scale_grad_by_freq`` a
    row of the others is divided by how many indices mean it (torch 2.13 on the CPU takes another
    row's number: pytorch#190063). Shape [num_weights, d].
    """
    gradient = widened(grad)
    bags, width = grad.shape
    result = np.zeros((num_weights, width), gradient.dtype)
    if per_sample_weights is not None and mode != SUM:
        raise InvalidIRError("weights for each index are for sums only")
    if mode == MAX:
        held = np.flatnonzero(bag_size)
        places = in_range(maximum_indices[held], num_weights)
        np.add.at(result, (places, np.arange(width)), gradient[held])
        return rounded(result, grad.dtype)
    places, owners = in_range(indices.reshape(-1), num_weights), in_range(offset2bag, bags)
    factors = np.ones(len(places))
    if per_sample_weights is not None:
        factors = widened(per_sample_weights).astype("float64")
    if scale_grad_by_freq:
        factors = factors / np.bincount(places, minlength=num_weights)[places]
    if mode == MEAN:
        factors = factors / bag_size[owners]
    kept = places != padding_idx
    np.add.at(result, places[kept], (gradient[owners] * factors[:, None])[kept])
    return rounded(result, grad.dtype)


@denotes("aten._embedding_bag_backward.default")
def embedding_bag_backward(
    *, indices: Array, offsets: Array, offset2bag: Array, sparse: bool, **arguments: Any
) -> Array:
    """As ``_embedding_bag_dense_backward``; bags that are not named follow from the offsets."""
    if sparse:
        raise InvalidIRError("a sparse gradient has no dense array")
    owners = _owners(offset2bag, offsets, indices.size)
    return embedding_bag_dense_backward(indices=indices, offset2bag=owners, **arguments)


def _owners(offset2bag: Array, offsets: Array, count: int) -> Array:
    """The bag of each index."""
    if offset2bag.size or not count:
        return offset2bag
    return np.searchsorted(offsets, np.arange(count), "right") - 1


@denotes("aten._embedding_bag_per_sample_weights_backward.default")
def embedding_bag_per_sample_weights_backward(
    grad: Array,
    weight: Array,
    indices: Array,
    offsets: Array,
    offset2bag: Array,
    mode: int,
    padding_idx: int = -1,
) -> Array:
    """The gradient of each index's weight: its row times its bag's gradient; 0 at padding."""
    if mode != SUM:
        raise InvalidIRError("weights for each index are for sums only")
    places = in_range(indices.reshape(-1), _rows(weight))
    owners = in_range(_owners(offset2bag, offsets, places.size), len(grad))
    products = np.sum(widened(grad)[owners] * widened(weight)[places], -1)
    return rounded(np.where(places == padding_idx, 0, products), grad.dtype)
