"""The rules by which calls run on parts of their operands, by the name of the operator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from torch_ir.ops.effects import effects
from torch_ir.ops.flops import FACTORS
from torch_ir.ops.schema import lookup
from torch_ir.ops.spec import tagged_traits
from torch_ir.passes.sharding.layout_rules import LAYOUT_RULES, shifted
from torch_ir.passes.sharding.lookups import moved_dims
from torch_ir.passes.sharding.placements import (
    Owned,
    PlacedCall,
    Placement,
    ShardingRule,
    ShardStep,
    Split,
    aligned,
    dims_of,
)

_KEEPING = frozenset(
    {
        *("to", "_to_copy", "clone", "contiguous", "detach", "alias", "lift_fresh_copy"),
        *("type_as", "float", "zeros_like", "ones_like", "full_like", "empty_like"),
        "_assert_tensor_metadata",
    }
)
"""Operators that work element by element, though torch's tags do not say so of all overloads."""
_OF_ZERO = frozenset(
    {
        *("relu", "gelu", "silu", "tanh", "neg", "abs", "sin", "tan", "asin", "atan", "sinh"),
        *("erf", "sign", "square", "leaky_relu", "elu", "selu", "hardswish", "mish", "sqrt"),
        *("to", "_to_copy", "clone", "contiguous", "detach", "alias", "float", "relu6"),
        "_assert_tensor_metadata",
    }
)
"""Functions of one tensor that are 0 at 0."""
_BESIDE_ROWS = frozenset(
    {*("chunk", "split", "split_with_sizes", "slice"), *("transpose", "unsqueeze", "squeeze")}
)
"""Operators that may leave the order of rows as it is."""


def step_of(call: PlacedCall) -> ShardStep | None:
    """Return how a call runs on the parts of one rank.

    Args:
        call: The call, with an input that is split or owned.

    Returns:
        None if no rule says it: it needs its inputs whole.
    """
    namespace, name, _overload = call.node.op_type.split(".")
    if namespace != "aten" or effects(lookup(call.node.op_type), call.node.attrs).draws:
        return None
    if call.owners:
        found = _of_owned(call, name)
        if found is not None or call.first_split is None:
            return found
    if name in RULES:
        return RULES[name](call)
    if name in _KEEPING:
        return _as_first(call)
    return _pointwise(call) if "pointwise" in tagged_traits(call.node.op_type) else None


def _as_first(call: PlacedCall) -> ShardStep | None:
    """Rule for what has the shape of its first operand, whatever that of another."""
    split, *others = call.placements
    is_named = any(call.node.attrs.get(name) is not None for name in ("size", "stride"))
    if split is None or is_named:
        return None
    return ShardStep((split, *[None] * len(others)), call.given(split))


def _pointwise(call: PlacedCall) -> ShardStep | None:
    node = call.node
    first = call.first_split
    if first is None:
        return None
    rank = max(len(meta.shape) for meta in node.inputs)
    dim = first[1] + rank - len(node.inputs[first[0]].shape)
    taken = tuple([aligned(rank, dim, meta) for meta in node.inputs])
    return ShardStep(taken, call.given(Split(dim)))


# -- values that are owned ------------------------------------------------------------------------


def _of_owned(call: PlacedCall, name: str) -> ShardStep | None:
    """Rule for calls of values that are owned, and of whole ones: what is 0 stays 0."""
    node, owners = call.node, call.owners
    if len(owners) > 1 or call.first_split is not None:
        return None
    (owned,) = owners
    keep = ShardStep(call.placements, call.given(owned))
    count = len(node.inputs)
    everywhere = all(isinstance(placement, Owned) for placement in call.placements)
    cleared = ShardStep(call.placements, call.given(owned), clear=owned.owner)
    safe = cleared if owned.owner in call.masked else None  # for what is not 0 of 0
    if name in _OF_ZERO and count == 1:
        return keep
    if name == "mul" and _same_sizes(call):
        return keep if everywhere and count == 2 else safe
    if name in ("add", "sub") and everywhere and count == 2 and _same_sizes(call):
        return keep
    if name == "div" and isinstance(call.placements[0], Owned):
        by_number = count == 1 and node.argument("other") not in (0, None)
        whole = "rounding_mode" in node.attrs or not _same_sizes(call)
        return None if whole else keep if by_number else safe
    if name in _BESIDE_ROWS and owned.rows and 0 not in moved_dims(node):
        return keep
    if name in (*_BESIDE_ROWS, "view", "reshape", "_unsafe_view", "permute", "expand"):
        return ShardStep(call.placements, call.given(Owned(node.name, rows=False)))
    if name in ("bmm", "matmul", "linear", "mm"):
        return _owned_product(call, owned)
    if name == "index" and isinstance(call.placements[0], Owned) and len(owners) == 1:
        return ShardStep(call.placements, call.given(Owned(node.name, rows=False)))
    if name == "sum":
        return ShardStep(call.placements, call.given(None), reduce="sum")
    is_into = name in ("index_add", "scatter_add") and node.inputs[0].name in call.zeros
    return ShardStep(call.placements, call.given(None), reduce="sum") if is_into else None


def _same_sizes(call: PlacedCall) -> bool:
    """Whether what is owned is not repeated: it has the size of the result."""
    sizes = call.node.outputs[0].shape
    return all(
        meta.shape == sizes
        for meta, placement in zip(call.node.inputs, call.placements, strict=True)
        if isinstance(placement, Owned)
    )


def _owned_product(call: PlacedCall, owned: Owned) -> ShardStep | None:
    """Rule for products: a rank that does not own the rows of a factor gives 0 for them."""
    node, masked = call.node, call.masked.get(owned.owner)
    ranks = {len(meta.shape) for meta in node.inputs}
    is_batch = node.op_type.startswith(("aten.bmm", "aten.matmul")) and ranks == {3}
    everywhere = all(isinstance(placement, Owned) for placement in call.placements)
    if owned.rows and is_batch and (everywhere or masked == 1):
        clear = None if everywhere else owned.owner
        return ShardStep(call.placements, call.given(owned), clear=clear)
    rows = len(node.inputs[0].shape) - 1
    is_first = isinstance(call.placements[0], Owned) and not any(call.placements[1:])
    if not is_first or masked is None or masked > rows or len(node.inputs) > 2:
        return None
    if len(node.inputs[1].shape) != 2:  # its batches would repeat the rows
        return None
    return ShardStep(call.placements, call.given(None), reduce="sum", clear=owned.owner)


# -- products -------------------------------------------------------------------------------------


def _linear(call: PlacedCall) -> ShardStep | None:
    inputs, weight = call.meta("input"), call.split("weight")
    if inputs is None or len(call.node.tensors("weight")[0].shape) != 2:
        return None
    last = len(inputs.shape) - 1
    rows = call.split("input")
    if weight == 0 and call.placement("weight"):
        return ShardStep(call.taken(weight=Split(0), bias=Split(0)), call.given(Split(last)))
    if weight == 1 or rows == last:
        taken = call.taken(input=Split(last), weight=Split(1))
        late = "bias" if call.meta("bias") is not None else None
        return ShardStep(taken, call.given(None), reduce="sum", late=late)
    if rows is not None:
        return ShardStep(call.taken(input=Split(rows)), call.given(Split(rows)))
    return None


def _product(first: str, second: str, added: str, call: PlacedCall) -> ShardStep | None:
    """Rule for a matrix product, of batches too, to which something may be added."""
    late = added or None
    a, b = call.meta(first), call.meta(second)
    if a is None or b is None or min(len(a.shape), len(b.shape)) < 2:
        return None
    if late is not None and any(call.node.attrs.get(n, 1) != 1 for n in ("alpha", "beta")):
        return None
    rank = max(len(a.shape), len(b.shape))
    lift_a, lift_b = rank - len(a.shape), rank - len(b.shape)
    splits = call.split(first), call.split(second)
    at = splits[0] if splits[0] is None else splits[0] + lift_a
    bt = splits[1] if splits[1] is None else splits[1] + lift_b
    addend = None if late is None else call.meta(late)
    if at == rank - 1 or bt == rank - 2:
        wanted: dict[str, Placement] = {
            first: Split(rank - 1 - lift_a),
            second: Split(rank - 2 - lift_b),
        }
        return ShardStep(call.taken(**wanted), call.given(None), reduce="sum", late=late)
    dim = at if at is not None else bt
    if dim is None:
        return None
    if dim >= rank - 2:
        wanted = {first: Split(dim - lift_a)} if at is not None else {second: Split(dim - lift_b)}
    else:
        wanted = {first: aligned(rank, dim, a), second: aligned(rank, dim, b)}
    if addend is not None and late is not None:
        wanted[late] = aligned(rank, dim, addend)
    return ShardStep(call.taken(**wanted), call.given(Split(dim)))


def _attention(call: PlacedCall) -> ShardStep | None:
    """Rule for attention: batches and heads are apart from one another."""
    query, key = call.meta("query"), call.meta("key")
    dims = {d for name in ("query", "key", "value") if (d := call.split(name)) is not None}
    if query is None or key is None or len(dims) != 1:
        return None
    (dim,) = dims
    rank = len(query.shape)
    if dim >= rank - 2 or len(key.shape) != rank:
        return None
    if not (call.divides(query.shape[dim]) and call.divides(key.shape[dim])):
        return None
    mask = call.meta("attn_mask")
    own = None if mask is None else aligned(rank, dim, mask)
    split = Split(dim)
    taken = call.taken(query=split, key=split, value=split, attn_mask=own)
    return ShardStep(taken, call.given(split))


def _convolution(call: PlacedCall) -> ShardStep | None:
    groups = call.node.argument("groups", 1)
    name = call.node.op_type.split(".")[1]
    is_turned = call.node.argument("transposed", False) or "transpose" in name
    out, into = (1, 0) if is_turned else (0, 1)  # the dimensions of the weight
    weight = call.split("weight")
    has_bias = call.meta("bias") is not None
    inputs, weights = call.meta("input"), call.meta("weight")
    if inputs is None or weights is None or len(inputs.shape) != len(weights.shape):
        return None  # one image alone: its dimension 0 is that of channels
    if call.split("input") == 0:
        return ShardStep(call.taken(input=Split(0)), call.given(Split(0)))
    if groups == 1 and weight == out:
        return ShardStep(call.taken(weight=Split(out), bias=Split(0)), call.given(Split(1)))
    if groups == 1 and (weight == into or call.split("input") == 1):
        taken = call.taken(input=Split(1), weight=Split(into))
        if has_bias:  # it would have to be given its spatial dimensions first
            return None
        return ShardStep(taken, call.given(None), reduce="sum")
    if groups != 1 and call.divides(groups) and (weight == 0 or call.split("input") == 1):
        taken = call.taken(input=Split(1), weight=Split(0), bias=Split(0))
        return ShardStep(taken, call.given(Split(1)), {"groups": groups // call.parts})
    return None


def _channels(call: PlacedCall) -> ShardStep | None:
    """Rule for batch norm in evaluation: channels are apart from one another."""
    if call.node.argument("training", False) or call.split("input") is None:
        return None
    if call.split("input") == 1:
        taken = tuple([Split(1 if len(meta.shape) > 1 else 0) for meta in call.node.inputs])
        outputs = [Split(1) if len(m.shape) > 1 else None for m in call.node.outputs]
        return ShardStep(taken, tuple(outputs))
    return None


# -- along dimensions -----------------------------------------------------------------------------


def _along(call: PlacedCall) -> ShardStep | None:
    """Rule for what works along some dimensions, and on the others apart."""
    node, split = call.node, call.split("self")
    if split is None or len(node.inputs) > 1:
        return None
    rank = len(node.inputs[0].shape)
    default = -1 if node.op_type.startswith(("aten.sort", "aten.topk", "aten.glu")) else None
    dims = dims_of(node.attrs.get("dim", node.attrs.get("dims", default)), rank)
    if split in dims:
        return None
    if all(len(meta.shape) == rank for meta in node.outputs):
        return ShardStep(call.placements, call.given(Split(split)))
    return ShardStep(call.placements, call.given(Split(shifted(split, dims))))


_PARTIAL = {"sum": "sum", "mean": "avg", "amax": "max", "amin": "min"}


def _reduction(call: PlacedCall) -> ShardStep | None:
    node, split = call.node, call.split("self")
    if split is None:
        return None
    dims = dims_of(node.attrs.get("dim"), len(node.inputs[0].shape))
    if split not in dims:
        return _along(call)
    reduce = _PARTIAL.get(node.op_type.split(".")[1])
    if reduce is None or len(node.outputs) != 1:
        return None
    return ShardStep(call.placements, call.given(None), reduce=reduce)


def _normalization(call: PlacedCall) -> ShardStep | None:
    inputs, split = call.meta("input"), call.split("input")
    if inputs is None or split is None:
        return None
    if split >= len(inputs.shape) - len(call.node.argument("normalized_shape", ())):
        return None
    return ShardStep(call.taken(input=Split(split)), call.given(Split(split)))


def _pooling(call: PlacedCall) -> ShardStep | None:
    split = call.split("self")
    spatial = int(call.node.op_type.split(".")[1].partition("_pool")[2][0])
    if split is None or split >= len(call.node.inputs[0].shape) - spatial:
        return None
    return ShardStep(call.placements, call.given(Split(split)))


_ALONG = ("softmax", "_softmax", "log_softmax", "_log_softmax", "cumsum", "cumprod", "sort")
RULES: Mapping[str, ShardingRule] = {
    **LAYOUT_RULES,
    "linear": _linear,
    **{
        name: partial(_product, *FACTORS[name])
        for name in ("mm", "bmm", "matmul", "addmm", "baddbmm")
    },
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("convolution", "conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys([f"conv_transpose{count}d" for count in (1, 2, 3)], _convolution),
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training"), _channels),
    **dict.fromkeys((*_ALONG, "topk", "flip", "glu"), _along),
    **dict.fromkeys(
        (*_PARTIAL, "prod", "any", "all", "argmax", "argmin", "max", "min"), _reduction
    ),
    **dict.fromkeys(("var", "std", "logsumexp", "var_mean"), _reduction),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "rms_norm"), _normalization),
    **{
        f"{kind}_pool{count}d": _pooling
        for count in (1, 2, 3)
        for kind in ("max", "avg", "adaptive_avg", "_adaptive_avg", "adaptive_max")
    },
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices"), _pooling),
}
"""The rule of each operator, by its name without namespace and overload."""
