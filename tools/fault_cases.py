"""The calls in which faults are planted, each with what is planted in it.

An alteration is planted twice: in the compiled graph, which then calls another operator or the
same with other arguments, and in the denotation, which is then asked for the altered call. Every
alteration changes the result on the inputs given here: the tool refuses one that does not. So
there is none that nothing can show: no other axis of size 1, no ``beta`` where nothing is added,
no other order of operands that commute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

Tensors = dict[str, Any]


@dataclass(frozen=True)
class Alter:
    """What is wrong with a call.

    Attributes:
        what: In words.
        op: The operator that is called instead; empty for the right one.
        put: Arguments that are others.
        drop: Arguments that are forgotten.
        swap: Two tensors that take each other's place.
        turn: A list of tensors that is turned round.
        places: Where it is planted.
    """

    what: str
    op: str = ""
    put: Mapping[str, Any] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    swap: tuple[str, str] | None = None
    turn: str = ""
    places: tuple[str, ...] = ("graph", "denotation")


@dataclass(frozen=True)
class Case:
    """One call: its operator, tensors, other arguments, and what can be wrong with it."""

    op: str
    tensors: Tensors
    attrs: Mapping[str, Any]
    alterations: tuple[Alter, ...]


def put(what: str, **values: Any) -> Alter:
    return Alter(what, put=values)


def drop(*names: str) -> Alter:
    return Alter(f"dropped {' and '.join(names)}", drop=names)


def swap(first: str, second: str) -> Alter:
    return Alter(f"swapped {first} and {second}", swap=(first, second))


def other(op: str) -> Alter:
    return Alter(f"calls {op}", op=f"aten.{op}")


def no_bias() -> Alter:
    """Only in a denotation: the altered graph must take the same tensors."""
    return Alter("dropped bias", put={"bias": None}, places=("denotation",))


def axis(**values: Any) -> Alter:
    return Alter("wrong axis", put=values)


class Values:
    """Tensors from a fixed seed."""

    def __init__(self) -> None:
        self._generator = torch.Generator().manual_seed(0)

    def normal(self, *shape: int) -> torch.Tensor:
        """Of the normal distribution."""
        return torch.randn(shape, generator=self._generator)

    def positive(self, *shape: int) -> torch.Tensor:
        """Between 0.5 and 1.5."""
        return torch.rand(shape, generator=self._generator) + 0.5

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Of ``low`` to ``high - 1``."""
        return torch.randint(low, high, shape, generator=self._generator)

    def bools(self, *shape: int) -> torch.Tensor:
        """Either."""
        return torch.rand(shape, generator=self._generator) < 0.5


def cases() -> list[Case]:
    """Every call, with tensors from a fixed seed."""
    values = Values()
    parts = (
        _arithmetic,
        _functions,
        _reductions,
        _products,
        _movement,
        _indices,
        _norms,
        _layers,
    )
    return [case for part in parts for case in part(values)]


def _case(op: str, tensors: Tensors, attrs: Mapping[str, Any], *alterations: Alter) -> Case:
    return Case(f"aten.{op}", tensors, attrs, alterations)


def _arithmetic(v: Values) -> list[Case]:
    n, p = v.normal, v.positive
    two = {"self": n(4, 4), "other": n(4, 4)}
    ints = {"self": v.integers(-9, 9, 5, 5), "other": v.integers(1, 4, 5, 5)}
    ties = {"self": v.integers(0, 3, 5, 5), "other": v.integers(0, 3, 5, 5)}
    bits = {"self": v.bools(4, 4), "other": v.bools(4, 4)}
    pair = swap("self", "other")
    return [
        _case("add.Tensor", two, {"alpha": 2}, drop("alpha"), put("wrong alpha", alpha=3), pair),
        _case("add.Tensor", {"self": n(3, 3), "other": n(3)}, {}, other("sub.Tensor")),
        _case("sub.Tensor", two, {"alpha": 2}, drop("alpha"), pair, other("add.Tensor")),
        _case("rsub.Scalar", {"self": n(4)}, {"other": 1.5, "alpha": 2}, drop("alpha")),
        _case("mul.Tensor", two, {}, other("div.Tensor"), other("add.Tensor")),
        _case("mul.Scalar", {"self": n(4)}, {"other": 1.5}, put("wrong constant", other=1.501)),
        _case("div.Tensor", {"self": n(4), "other": p(4)}, {}, pair, other("mul.Tensor")),
        _case(
            "div.Tensor_mode",
            ints,
            {"rounding_mode": "floor"},
            put("rounding towards zero", rounding_mode="trunc"),
        ),
        _case("floor_divide.default", {"self": n(5) * 9, "other": p(5)}, {}, pair),
        _case("remainder.Tensor", ints, {}, other("fmod.Tensor")),
        _case("fmod.Tensor", ints, {}, other("remainder.Tensor")),
        _case("pow.Tensor_Tensor", {"self": p(4), "exponent": n(4)}, {}, swap("self", "exponent")),
        _case("pow.Tensor_Scalar", {"self": n(4)}, {"exponent": 3}, put("wrong", exponent=2)),
        _case("atan2.default", two, {}, pair),
        _case("maximum.default", two, {}, other("minimum.default")),
        _case("minimum.default", two, {}, other("maximum.default")),
        _case(
            "clamp.default",
            {"self": n(9)},
            {"min": -0.5, "max": 0.5},
            drop("min"),
            drop("max"),
            put("wrong bound", max=0.6),
        ),
        _case("ge.Tensor", ties, {}, other("gt.Tensor"), pair),
        _case("lt.Tensor", ties, {}, other("le.Tensor"), pair),
        _case("eq.Tensor", ties, {}, other("ne.Tensor")),
        _case("le.Scalar", {"self": ties["self"]}, {"other": 1}, other("lt.Scalar")),
        _case("logical_and.default", bits, {}, other("logical_or.default")),
        _case("bitwise_or.Tensor", bits, {}, other("bitwise_xor.Tensor")),
        _case("where.self", {"condition": bits["self"], **two}, {}, pair),
        _case("lerp.Scalar", {"self": n(4), "end": n(4)}, {"weight": 0.3}, swap("self", "end")),
        _case(
            "addcmul.default",
            {"self": n(4), "tensor1": n(4), "tensor2": n(4)},
            {"value": 0.5},
            drop("value"),
            swap("self", "tensor1"),
        ),
        _case(
            "addcdiv.default",
            {"self": n(4), "tensor1": n(4), "tensor2": p(4)},
            {"value": 0.5},
            drop("value"),
            swap("tensor1", "tensor2"),
        ),
    ]


def _functions(v: Values) -> list[Case]:
    n, p = v.normal, v.positive
    halves = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.7])
    pairs = (
        ("exp", "expm1"),
        ("sin", "cos"),
        ("tanh", "sigmoid"),
        ("erf", "tanh"),
        ("neg", "abs"),
        ("relu", "abs"),
    )
    positive = (("log", "log1p"), ("rsqrt", "sqrt"), ("sqrt", "rsqrt"), ("log2", "log"))
    return [
        *[_case(f"{a}.default", {"self": n(6)}, {}, other(f"{b}.default")) for a, b in pairs],
        *[_case(f"{a}.default", {"self": p(6)}, {}, other(f"{b}.default")) for a, b in positive],
        _case("round.default", {"self": halves}, {}, other("floor.default")),
        _case("floor.default", {"self": halves}, {}, other("trunc.default")),
        _case("ceil.default", {"self": halves}, {}, other("round.default")),
        _case("trunc.default", {"self": halves}, {}, other("floor.default")),
        _case(
            "leaky_relu.default", {"self": n(6)}, {"negative_slope": 0.2}, drop("negative_slope")
        ),
        _case("elu.default", {"self": n(6)}, {"alpha": 1.5}, drop("alpha")),
        _case("gelu.default", {"self": n(6)}, {"approximate": "tanh"}, drop("approximate")),
        _case(
            "hardtanh.default", {"self": n(6)}, {"min_val": -0.4, "max_val": 0.3}, drop("max_val")
        ),
        _case("softplus.default", {"self": n(6)}, {"beta": 2}, drop("beta")),
        _case("fill.Scalar", {"self": n(3)}, {"value": 2.0}, put("wrong constant", value=2.5)),
        _case(
            "arange.start_step", {}, {"start": 1, "end": 9, "step": 2}, put("off by one", start=0)
        ),
        _case("full.default", {}, {"size": [3], "fill_value": 0.1}, put("wrong", fill_value=0.11)),
    ]


def _reductions(v: Values) -> list[Case]:
    n = v.normal
    x = {"self": n(4, 4)}
    return [
        _case("sum.dim_IntList", x, {"dim": [1]}, axis(dim=[0]), other("mean.dim")),
        _case("mean.dim", x, {"dim": [0]}, axis(dim=[1]), other("sum.dim_IntList")),
        _case("sum.dim_IntList", {"self": n(3, 3, 3)}, {"dim": [0, 2]}, axis(dim=[0, 1])),
        _case("prod.dim_int", x, {"dim": 1}, axis(dim=0)),
        _case("amax.default", x, {"dim": [1]}, axis(dim=[0]), other("amin.default")),
        _case("amin.default", x, {"dim": [0]}, axis(dim=[1])),
        _case("argmax.default", x, {"dim": 1}, axis(dim=0), other("argmin.default")),
        _case("any.dim", {"self": v.integers(0, 2, 4, 4) > 0}, {"dim": 1}, axis(dim=0)),
        _case(
            "var.correction",
            x,
            {"dim": [1], "correction": 1},
            put("biased variance", correction=0),
            axis(dim=[0]),
        ),
        _case("var_mean.correction", x, {"dim": [1]}, put("biased variance", correction=0)),
        _case("cumsum.default", x, {"dim": 1}, axis(dim=0)),
        _case("cumprod.default", x, {"dim": 0}, axis(dim=1)),
        _case("logsumexp.default", x, {"dim": [1]}, axis(dim=[0])),
        _case("softmax.int", x, {"dim": 1}, axis(dim=0)),
        _case("_softmax.default", x, {"dim": 0, "half_to_float": False}, axis(dim=1)),
        _case(
            "_log_softmax.default",
            x,
            {"dim": 1, "half_to_float": False},
            axis(dim=0),
            other("_softmax.default"),
        ),
        _case(
            "linalg_vector_norm.default",
            x,
            {"ord": 2, "dim": [1]},
            put("wrong order", ord=1),
            axis(dim=[0]),
        ),
        _case("max.dim", x, {"dim": 1}, axis(dim=0), other("min.dim")),
    ]


def _products(v: Values) -> list[Case]:
    n = v.normal
    image, filters = n(2, 4, 6, 6), n(4, 4, 3, 3)
    convolved = {
        "stride": [1, 1],
        "padding": [1, 1],
        "dilation": [1, 1],
        "transposed": False,
        "output_padding": [0, 0],
        "groups": 1,
    }
    return [
        _case("mm.default", {"self": n(4, 4), "mat2": n(4, 4)}, {}, swap("self", "mat2")),
        _case("bmm.default", {"self": n(2, 4, 4), "mat2": n(2, 4, 4)}, {}, swap("self", "mat2")),
        _case("matmul.default", {"self": n(3, 3), "other": n(3, 3)}, {}, swap("self", "other")),
        _case(
            "addmm.default",
            {"self": n(4), "mat1": n(4, 4), "mat2": n(4, 4)},
            {"beta": 0.5, "alpha": 2},
            drop("beta"),
            drop("alpha"),
            swap("mat1", "mat2"),
        ),
        _case(
            "linear.default",
            {"input": n(4, 4), "weight": n(4, 4), "bias": n(4)},
            {},
            no_bias(),
            swap("input", "weight"),
        ),
        _case(
            "convolution.default",
            {"input": image, "weight": filters, "bias": n(4)},
            convolved,
            put("wrong dilation", padding=[2, 2], dilation=[2, 2]),
            put("off-by-one pad", padding=[2, 1]),
            put("transposed", transposed=True),
            no_bias(),
        ),
        _case(
            "conv2d.default",
            {"input": image, "weight": n(4, 2, 3, 3)},
            {"groups": 2, "padding": [1, 1]},
            put("off-by-one pad", padding=[1, 0]),
            put("wrong stride", stride=[2, 1]),
        ),
    ]


def _movement(v: Values) -> list[Case]:
    n = v.normal
    x, cube = {"self": n(4, 4)}, {"self": n(3, 3, 3)}
    parts = [n(3, 3), n(3, 3), n(3, 3)]
    line = {"self": n(1, 2, 6)}
    return [
        _case("permute.default", cube, {"dims": [1, 2, 0]}, axis(dims=[2, 0, 1])),
        _case("transpose.int", cube, {"dim0": 0, "dim1": 1}, axis(dim1=2)),
        _case("flip.default", x, {"dims": [0]}, axis(dims=[1])),
        _case("roll.default", x, {"shifts": [1], "dims": [0]}, put("other way", shifts=[-1])),
        _case("roll.default", x, {"shifts": [1], "dims": [1]}, axis(dims=[0])),
        _case(
            "slice.Tensor",
            {"self": n(6, 6)},
            {"dim": 0, "start": 1, "end": 4},
            put("off-by-one slice", start=0, end=3),
            put("off-by-one end", end=5),
        ),
        _case(
            "slice.Tensor", {"self": n(6)}, {"start": 0, "end": 6, "step": 2}, put("off", start=1)
        ),
        _case(
            "select.int", x, {"dim": 0, "index": 1}, axis(dim=1), put("off-by-one index", index=2)
        ),
        _case("cat.default", {"tensors": parts}, {"dim": 0}, Alter("turned", turn="tensors")),
        _case(
            "stack.default",
            {"tensors": parts},
            {"dim": 0},
            axis(dim=1),
            Alter("turned", turn="tensors"),
        ),
        _case("unbind.int", x, {"dim": 0}, axis(dim=1)),
        _case("split.Tensor", {"self": n(4, 4)}, {"split_size": 2, "dim": 0}, axis(dim=1)),
        _case("tril.default", x, {"diagonal": 0}, put("off by one", diagonal=-1)),
        _case("triu.default", x, {"diagonal": 1}, put("off by one", diagonal=0)),
        _case("diagonal.default", cube, {"dim1": 0, "dim2": 1}, axis(dim2=2)),
        _case(
            "constant_pad_nd.default",
            line,
            {"pad": [1, 2], "value": 0.5},
            put("turned pad", pad=[2, 1]),
            put("wrong value", value=0.0),
            put("off-by-one pad", pad=[1, 1]),
        ),
        _case(
            "reflection_pad1d.default", line, {"padding": [1, 2]}, put("turned", padding=[2, 1])
        ),
        _case("replication_pad1d.default", line, {"padding": [2, 1]}, put("off", padding=[1, 2])),
        _case("expand.default", {"self": n(3, 1)}, {"size": [3, 3]}, put("wrong", size=[2, 3, 3])),
        _case("repeat.default", {"self": n(2, 2)}, {"repeats": [2, 1]}, axis(repeats=[1, 2])),
    ]


def _indices(v: Values) -> list[Case]:
    n = v.normal
    x, index = n(4, 4), v.integers(0, 4, 4, 4)
    row = torch.tensor([2, 0, 3, 1])
    source = n(4, 4)
    return [
        _case("gather.default", {"self": x, "index": index}, {"dim": 0}, axis(dim=1)),
        _case("index_select.default", {"self": x, "index": row}, {"dim": 0}, axis(dim=1)),
        _case(
            "scatter.src",
            {"self": x, "index": torch.stack([row] * 4).t().contiguous(), "src": source},
            {"dim": 0},
            axis(dim=1),
        ),
        _case(
            "scatter_add.default",
            {"self": x, "index": index, "src": source},
            {"dim": 0},
            axis(dim=1),
        ),
        _case(
            "index_add.default",
            {"self": x, "index": row, "source": source},
            {"dim": 0, "alpha": 2},
            drop("alpha"),
            axis(dim=1),
        ),
        _case(
            "masked_fill.Scalar", {"self": x, "mask": x > 0}, {"value": 1.0}, put("w", value=2.0)
        ),
        _case("topk.default", {"self": x}, {"k": 2}, put("smallest", largest=False), axis(dim=0)),
        _case(
            "sort.default", {"self": x}, {"dim": 1}, axis(dim=0), put("turned", descending=True)
        ),
    ]


def _norms(v: Values) -> list[Case]:
    n, p = v.normal, v.positive
    small = {"input": n(3, 4) * 0.05, "weight": n(4), "bias": n(4)}
    batch = {
        "input": n(2, 3, 4),
        "weight": n(3),
        "bias": n(3),
        "running_mean": n(3),
        "running_var": p(3),
    }
    return [
        _case(
            "native_layer_norm.default",
            small,
            {"normalized_shape": [4], "eps": 1e-5},
            put("wrong eps", eps=1e-3),
            swap("weight", "bias"),
        ),
        _case("layer_norm.default", small, {"normalized_shape": [4]}, put("wrong eps", eps=1e-3)),
        _case(
            "_native_batch_norm_legit_no_training.default",
            batch,
            {"momentum": 0.1, "eps": 1e-5},
            put("wrong eps", eps=1e-2),
            swap("weight", "bias"),
            swap("running_mean", "bias"),
        ),
        _case(
            "native_group_norm.default",
            {"input": n(2, 4, 3), "weight": n(4), "bias": n(4)},
            {"N": 2, "C": 4, "HxW": 3, "group": 2, "eps": 1e-5},
            put("wrong eps", eps=1e-2),
            swap("weight", "bias"),
        ),
    ]


def _layers(v: Values) -> list[Case]:
    n = v.normal
    image = {"self": n(2, 2, 6, 6)}
    query = {"query": n(1, 2, 4, 8), "key": n(1, 2, 4, 8), "value": n(1, 2, 4, 8)}
    pooled = {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1]}
    return [
        _case(
            "avg_pool2d.default",
            image,
            {**pooled, "count_include_pad": False},
            drop("count_include_pad"),
            put("off-by-one pad", padding=[1, 0]),
        ),
        _case(
            "max_pool2d_with_indices.default",
            image,
            pooled,
            put("wrong window", kernel_size=[2, 3]),
        ),
        _case(
            "scaled_dot_product_attention.default",
            query,
            {"is_causal": True},
            drop("is_causal"),
            put("wrong scale", scale=1.0),
            swap("query", "key"),
            swap("key", "value"),
        ),
        _case(
            "upsample_bilinear2d.default",
            {"self": n(1, 1, 4, 4)},
            {"output_size": [8, 8], "align_corners": False},
            put("aligned corners", align_corners=True),
        ),
        _case(
            "_adaptive_avg_pool2d.default",
            image,
            {"output_size": [2, 3]},
            axis(output_size=[3, 2]),
        ),
        _case(
            "grid_sampler_2d.default",
            {"input": n(1, 1, 4, 4), "grid": n(1, 3, 3, 2)},
            {"interpolation_mode": 0, "padding_mode": 0, "align_corners": False},
            put("aligned corners", align_corners=True),
            put("wrong border", padding_mode=1),
            put("nearest", interpolation_mode=1),
        ),
        _case(
            "_cdist_forward.default",
            {"x1": n(3, 2), "x2": n(3, 2)},
            {"p": 2.0, "compute_mode": None},
            put("p", p=1.0),
        ),
    ]
