"""Preconditions of operators that read and write where indices, lengths and offsets say."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from torch_ir.infer.preconditions.faults import (
    Arguments,
    Faults,
    falls,
    holds_outside,
    of_rank,
    of_type,
    outside,
    unlike,
)

# -- pooling --------------------------------------------------------------------------------------


def pooled(rank: int) -> tuple[Callable[[Arguments], Faults], Callable[[Arguments], Faults]]:
    """Return the rules of the backward pass of max pooling over that many dimensions."""

    def shapes(call: Arguments) -> Faults:
        given, grad = call["self"], call["grad_output"]
        yield from of_rank("self", given, rank + 1, rank + 2)
        yield from of_rank("grad_output", grad, len(given.shape))
        yield from unlike("grad_output", grad, [*given.shape[:-rank], *grad.shape[-rank:]])
        yield from unlike("indices", call["indices"], grad.shape)
        if "grad_input" in call:
            yield from unlike("grad_input", call["grad_input"], given.shape)

    def values(call: Arguments) -> Faults:
        size = math.prod(call["self"].shape[-rank:])
        yield from holds_outside("indices", call["indices"], 0, size - 1)
        for name in {"grad_output", "grad_input"} & call.keys():
            yield from of_type(name, call[name], call["self"].dtype)

    return shapes, values


# -- connectionist temporal classification --------------------------------------------------------


def _lengths(value: Any) -> list[int]:
    return value.tolist() if isinstance(value, torch.Tensor) else [*value]


def sequences(call: Arguments) -> Faults:
    """Yield what is wrong with the shapes of ``_ctc_loss``, and with lengths that are numbers."""
    probabilities, targets = call["log_probs"], call["targets"]
    yield from of_rank("log_probs", probabilities, 3)
    yield from of_rank("targets", targets, 1, 2)
    steps, batch, classes = probabilities.shape
    yield from outside("blank", call.get("blank", 0), 0, classes - 1)
    most = targets.shape[-1]
    yield from unlike("targets", targets, [batch, most][-len(targets.shape) :])
    for name, limit in (("input_lengths", steps), ("target_lengths", most)):
        lengths = call[name]
        if hasattr(lengths, "shape"):
            yield from unlike(name, lengths, [batch])
            continue
        if len(lengths) != batch:
            yield f"{name} has {len(lengths)} elements, where log_probs has {batch} sequences"
        for length in lengths:
            yield from outside(f"an element of {name}", length, 0, limit)
    if "grad" in call:
        yield from unlike("grad", call["grad"], [batch])
        yield from unlike("neg_log_likelihood", call["neg_log_likelihood"], [batch])
        yield from of_rank("log_alpha", call["log_alpha"], 3)


def alignments(call: Arguments) -> Faults:
    """Yield what is wrong with the targets and lengths of ``_ctc_loss``, and of its gradient."""
    targets, (steps, batch, classes) = call["targets"], call["log_probs"].shape
    given, wanted = _lengths(call["input_lengths"]), _lengths(call["target_lengths"])
    most = targets.shape[-1]
    for name, lengths, limit in (("input", given, steps), ("target", wanted, most)):
        for length in lengths:
            yield from outside(f"an element of {name}_lengths", length, 0, limit)
    if targets.dim() == 1 and sum(wanted) != most:
        yield f"target_lengths adds up to {sum(wanted)}, where targets has {most} elements"
    if targets.dim() == 2:  # the rest of a row is padding, which nobody reads
        lengths = torch.tensor(wanted, device=targets.device)
        targets = targets[torch.arange(most, device=targets.device) < lengths[:, None]]
    yield from holds_outside("targets", targets, 0, classes - 1)
    if "log_alpha" in call:
        states = 2 * max(wanted, default=0) + 1
        yield from unlike("log_alpha", call["log_alpha"], [batch, steps, states])


# -- bags of embeddings ---------------------------------------------------------------------------

_MEAN, _MAX = 1, 2


def bags(call: Arguments) -> Faults:
    """Yield what is wrong with the shapes of a backward pass of ``_embedding_bag``."""
    grad, indices = call["grad"], call["indices"]
    yield from of_rank("grad", grad, 2)
    yield from of_rank("indices", indices, 1)
    yield from outside("mode", call["mode"], 0, _MAX)
    offset2bag = call["offset2bag"]
    if "offsets" in call:
        yield from of_rank("offsets", call["offsets"], 1)
    if call["mode"] != _MAX and ("offsets" not in call or offset2bag.shape != (0,)):
        yield from unlike("offset2bag", offset2bag, indices.shape)
    if call["mode"] == _MEAN and "bag_size" in call:
        yield from unlike("bag_size", call["bag_size"], grad.shape[:1])
    if call["mode"] == _MAX and "maximum_indices" in call:
        yield from unlike("maximum_indices", call["maximum_indices"], grad.shape)
    if call.get("per_sample_weights") is not None:
        yield from unlike("per_sample_weights", call["per_sample_weights"], indices.shape)
    if "weight" in call:
        yield from unlike("weight", call["weight"], [call["weight"].shape[0], grad.shape[1]])


def bagged(call: Arguments) -> Faults:
    """Yield what is wrong with the indices of a backward pass of ``_embedding_bag``."""
    rows = call["weight"].shape[0] if "weight" in call else call["num_weights"]
    yield from holds_outside("indices", call["indices"], 0, rows - 1)
    count, given = call["grad"].shape[0], call["indices"].shape[0]
    yield from holds_outside("offset2bag", call["offset2bag"], 0, count - 1)
    if "offsets" in call and given and not call["offset2bag"].numel() and call["mode"] != _MAX:
        offsets = call["offsets"]
        yield from holds_outside("offsets", offsets, 0, given)
        yield from holds_outside("the beginning of offsets", offsets[:1], 0, 0)
        filled = int((offsets < given).sum())
        if not 0 < filled <= count:
            yield f"offsets begins {filled} bags, where grad has {count}"
    if call["mode"] == _MAX and "maximum_indices" in call:
        yield from holds_outside("maximum_indices", call["maximum_indices"], 0, rows - 1)


def looked_up(call: Arguments) -> Faults:
    """Yield what is wrong with the shapes of a sum of embeddings by bags."""
    yield from of_rank("weight", call["weight"], 2)
    yield from of_rank("offsets", call["offsets"], 1)
    yield from outside("mode", call.get("mode", 0), 0, _MAX)
    is_empty = 0 in call["indices"].shape and not call.get("include_last_offset")
    if 0 in call["offsets"].shape and not is_empty:
        yield "offsets is empty, and has to begin a bag"
    if call.get("per_sample_weights") is not None:
        yield from unlike("per_sample_weights", call["per_sample_weights"], call["indices"].shape)


def looked_up_rows(call: Arguments) -> Faults:
    """Yield what is wrong with the indices of a sum of embeddings by bags."""
    yield from holds_outside("indices", call["indices"], 0, call["weight"].shape[0] - 1)
    yield from holds_outside("offsets", call["offsets"], 0, call["indices"].numel())
    yield from falls("offsets", call["offsets"])


# -- gathered elements ----------------------------------------------------------------------------


def scattered(call: Arguments) -> Faults:
    """Yield what is wrong with the shapes of ``_gather_sparse_backward``, which looks at none."""
    size, grad, dim = call["self"].shape, call["grad"], call["dim"]
    yield from unlike("index", call["index"], grad.shape)
    yield from of_rank("grad", grad, len(size))
    yield from outside("dim", dim, -len(size), len(size) - 1)
    for axis, (given, most) in enumerate(zip(grad.shape, size, strict=False)):
        if axis != dim % max(len(size), 1):
            yield from outside(f"dimension {axis} of grad", given, 1, most)


def scattered_to(call: Arguments) -> Faults:
    """Yield the indices that are outside of what was gathered from."""
    size = call["self"].shape
    if size:
        yield from holds_outside("index", call["index"], 0, size[call["dim"]] - 1)


def gathered(call: Arguments) -> Faults:
    """Yield what is wrong with the shapes of ``gather_backward``, where it is that operator."""
    if call["sparse_grad"]:
        yield from scattered(call)


def gathered_from(call: Arguments) -> Faults:
    """Yield what is wrong with its indices."""
    if call["sparse_grad"]:
        yield from scattered_to(call)


# -- segments -------------------------------------------------------------------------------------


def segments(call: Arguments) -> Faults:
    """Yield what is wrong with the shapes of a reduction by segments, forwards or backwards."""
    data = call["data"]
    if call.get("unsafe", False):
        yield "unsafe=True turns the checks of the operator off"
    yield from outside("axis", call.get("axis", 0), 0, len(data.shape) - 1)
    axis = call.get("axis", 0)
    limits = [name for name in ("lengths", "offsets") if call.get(name) is not None]
    for name in limits:
        yield from of_rank(name, call[name], axis + 1)
        yield from unlike(name, call[name], [*data.shape[:axis], call[name].shape[axis]])
    if "grad" in call:
        if not limits:
            yield "neither lengths nor offsets is given"
        count = call[limits[0]].shape[axis] - (limits[0] == "offsets")
        shape = [*data.shape[:axis], count, *data.shape[axis + 1 :]]
        yield from unlike("output", call["output"], shape)
        yield from unlike("grad", call["grad"], shape)


def segmented(call: Arguments) -> Faults:
    """Yield what is wrong with the limits of segments."""
    size = call["data"].shape[call.get("axis", 0)]
    if call.get("lengths") is not None:
        yield from holds_outside("lengths", call["lengths"], 0, size)
        yield from holds_outside("the sum of lengths", call["lengths"].sum(-1), size, size)
    if call.get("offsets") is not None:
        yield from holds_outside("offsets", call["offsets"], 0, size)
        yield from falls("offsets", call["offsets"])


# -- compressed rows ------------------------------------------------------------------------------


def compressed(call: Arguments) -> Faults:
    """Yield what is wrong with the shapes of indices of compressed rows."""
    rows, columns = call["crow_indices"], call["col_indices"]
    yield from of_rank("col_indices", columns, 1, 2)
    yield from of_rank("crow_indices", rows, len(columns.shape))
    yield from unlike("crow_indices", rows, [*columns.shape[:-1], rows.shape[-1]])
    if not rows.shape[-1]:
        yield "crow_indices has no elements"


def compressed_rows(call: Arguments) -> Faults:
    """Yield what is wrong with the pointers of compressed rows."""
    rows, size = call["crow_indices"], call["col_indices"].shape[-1]
    yield from holds_outside("crow_indices", rows, 0, size)
    yield from holds_outside("the beginning of crow_indices", rows[..., 0], 0, 0)
    yield from holds_outside("the end of crow_indices", rows[..., -1], size, size)
    yield from falls("crow_indices", rows)


def row_numbers(call: Arguments) -> Faults:
    """Yield what is wrong with the row of each element, which becomes pointers."""
    yield from of_rank("self", call["self"], 1)
    yield from holds_outside("self", call["self"], 0, call["size"] - 1)
    yield from falls("self", call["self"])


# -- Sobol sequences ------------------------------------------------------------------------------

_DIMENSIONS, _BITS = 21_201, 30


def sobol(call: Arguments) -> Faults:
    """Yield what is wrong with the sizes of a state of Sobol's sequences."""
    dimension = call["dimension"]
    yield from outside("dimension", dimension, 1, _DIMENSIONS)
    state = "sobolstate" if "sobolstate" in call else "self"
    yield from unlike(state, call[state], [dimension, _BITS])
    if "ltm" in call:
        yield from unlike("ltm", call["ltm"], [dimension, _BITS, _BITS])
    if state == "sobolstate":
        point = "quasi" if "quasi" in call else "self"
        yield from unlike(point, call[point], [dimension])
        yield from outside("n", call["n"], 0, 1 << _BITS)
        yield from outside("num_generated", call["num_generated"], 0, (1 << _BITS) - call["n"])


# -- floating-point values ------------------------------------------------------------------------


def not_finite(name: str) -> Callable[[Arguments], Faults]:
    """Return the rule that a tensor is finite throughout: else its library ends the process."""

    def rule(call: Arguments) -> Faults:
        value: torch.Tensor = call[name]
        if not torch.isfinite(value).all():
            yield f"{name} holds NaN or an infinity, and has to be finite"

    return rule


# -- sampling -------------------------------------------------------------------------------------

_BILINEAR, _ZEROS = 0, 0
"""Of ``interpolation_mode``, and of ``padding_mode``."""


def sampled_places(call: Arguments) -> Faults:
    """Yield the coordinates that are no numbers where a gradient is kept inside of the plane.

    The kernel keeps a number inside, not NaN, which also comes of what overflows and is mirrored;
    then it writes without a look, where elsewhere it asks whether a place is inside.
    """
    if call["interpolation_mode"] != _BILINEAR or call["padding_mode"] == _ZEROS:
        return
    grid: torch.Tensor = call["grid"]
    if not grid.is_floating_point():
        return
    reach = (grid.abs() + 1) * max(call["input"].shape[2:], default=1)
    lost = grid[~torch.isfinite(reach)]
    if lost.numel():
        yield f"grid holds {lost.ravel()[0].item():g}, which is no place in the plane"


def sampled_places_with_gradient(call: Arguments) -> Faults:
    """Yield what :func:`sampled_places` does where torch will call the gradient by itself."""
    if torch.is_grad_enabled() and (call["input"].requires_grad or call["grid"].requires_grad):
        yield from sampled_places(call)
