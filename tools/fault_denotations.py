"""What can be wrong with a denotation alone: its formula, its rounding, its types, its edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Function = Callable[..., Any]


@dataclass(frozen=True)
class Wrong:
    """A wrong denotation, with the call that shows it.

    Attributes:
        op: The operator.
        what: What is wrong.
        tensors: The tensors of the call, by argument.
        attrs: Its other arguments.
        function: Makes the wrong denotation from the right one.
    """

    op: str
    what: str
    tensors: Mapping[str, Any]
    attrs: Mapping[str, Any]
    function: Callable[[Function], Function]


_GENERATOR = torch.Generator().manual_seed(2)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=_GENERATOR)


def after(change: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """What changes the result; the first of several."""

    def make(right: Function) -> Function:
        def wrong(**arguments: Any) -> Any:
            made = right(**arguments)
            return (change(made[0]), *made[1:]) if isinstance(made, tuple) else change(made)

        return wrong

    return make


def instead(function: Function) -> Callable[[Function], Function]:
    """What takes the place of the denotation."""

    def make(right: Function) -> Function:
        del right
        return lambda **arguments: function(**arguments)

    return make


# -- broadcasting, rounding, types, places --------------------------------------------------------


def left_aligned(right: Function) -> Function:
    def wrong(**arguments: Any) -> Any:
        ranks = [value.ndim for value in arguments.values() if isinstance(value, np.ndarray)]
        aligned = {
            name: value.reshape(value.shape + (1,) * (max(ranks) - value.ndim))
            if isinstance(value, np.ndarray)
            else value
            for name, value in arguments.items()
        }
        return right(**aligned)

    return wrong


def through(dtype: str) -> Callable[[Any], Any]:
    return lambda made: made.astype(dtype).astype(made.dtype)


def towards_zero(made: Any) -> Any:
    """Keeps 12 bits of float32: to lose fewer of a sum is within what kernels may do."""
    if made.dtype != np.float32:  # the bound asks for the meaning in float64
        return made
    return (np.ascontiguousarray(made).view(np.int32) & ~np.int32(0xFFF)).view(np.float32)


def shifted(made: Any) -> Any:
    return np.roll(made, 1, -1)


def as_type(dtype: str) -> Callable[[Any], Any]:
    return lambda made: made.astype(dtype)


_BROADCASTS = (
    ("aten.add.Tensor", "self", "other"),
    ("aten.sub.Tensor", "self", "other"),
    ("aten.mul.Tensor", "self", "other"),
    ("aten.div.Tensor", "self", "other"),
    ("aten.maximum.default", "self", "other"),
    ("aten.minimum.default", "self", "other"),
    ("aten.atan2.default", "self", "other"),
    ("aten.ge.Tensor", "self", "other"),
    ("aten.lt.Tensor", "self", "other"),
    ("aten.fmod.Tensor", "self", "other"),
)
_ROUNDED: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("aten.exp.default", {"self": normal(16)}, {}),
    ("aten.tanh.default", {"self": normal(16)}, {}),
    ("aten.sum.dim_IntList", {"self": normal(4, 8)}, {"dim": [1]}),
    ("aten.mean.dim", {"self": normal(4, 8)}, {"dim": [1]}),
    ("aten.mm.default", {"self": normal(4, 8), "mat2": normal(8, 4)}, {}),
    ("aten.softmax.int", {"self": normal(4, 8)}, {"dim": 1}),
    ("aten.mul.Tensor", {"self": normal(16), "other": normal(16)}, {}),
    ("aten.add.Tensor", {"self": normal(16), "other": normal(16)}, {}),
)
_MOVED: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("aten.view.default", {"self": normal(2, 6)}, {"size": [3, 4]}),
    ("aten.permute.default", {"self": normal(3, 4)}, {"dims": [1, 0]}),
    ("aten.cat.default", {"tensors": [normal(2, 3), normal(2, 3)]}, {"dim": 1}),
    (
        "aten.gather.default",
        {"self": normal(3, 3), "index": torch.tensor([[0, 2, 1]])},
        {"dim": 0},
    ),
    ("aten.clone.default", {"self": normal(5)}, {}),
    ("aten.expand.default", {"self": normal(1, 4)}, {"size": [3, 4]}),
)
_INTEGERS = torch.tensor([[-7, 3, 5], [8, -2, 4]])


def _generic() -> list[Wrong]:
    found: list[Wrong] = []
    for op, first, second in _BROADCASTS:
        tensors = {first: normal(3, 3), second: normal(3)}
        found.append(Wrong(op, "left-aligned broadcast", tensors, {}, left_aligned))
    for op, tensors, attrs in _ROUNDED:
        found.append(Wrong(op, "computed in float16", tensors, attrs, after(through("float16"))))
        found.append(Wrong(op, "rounding towards zero", tensors, attrs, after(towards_zero)))
        found.append(Wrong(op, "result in float64", tensors, attrs, after(as_type("float64"))))
    for op, tensors, attrs in _MOVED:
        found.append(Wrong(op, "off by one place", tensors, attrs, after(shifted)))
    for op, attrs in (("aten.sum.dim_IntList", {"dim": [1]}), ("aten.cumsum.default", {"dim": 1})):
        wrong = after(as_type("int32"))
        found.append(Wrong(op, "wrong dtype rule", {"self": _INTEGERS}, attrs, wrong))
    mixed = {"self": _INTEGERS, "other": normal(3)}
    found.append(
        Wrong("aten.add.Tensor", "wrong dtype rule", mixed, {}, after(as_type("float64")))
    )
    both = {"self": _INTEGERS, "other": _INTEGERS}
    found.append(Wrong("aten.div.Tensor", "wrong dtype rule", both, {}, after(as_type("int64"))))
    return found


# -- formulas and edges ---------------------------------------------------------------------------

_X = normal(4, 6)
_EDGES = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.5, 0.0, 2.0])


def _moments(x: Any) -> tuple[Any, Any]:
    wide = x.astype("float64")
    return wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)


def _eps_outside(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    mean, variance = _moments(input)
    made = (input - mean) / (np.sqrt(variance) + eps) * weight + bias
    rest = (mean, 1 / np.sqrt(variance + eps))
    return made.astype("float32"), *[part.astype("float32") for part in rest]


def _unbiased_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    mean, variance = _moments(input)
    count = input.shape[-1]
    scale = 1 / np.sqrt(variance * count / (count - 1) + eps)
    made = (input - mean) * scale * weight + bias
    return made.astype("float32"), mean.astype("float32"), scale.astype("float32")


def _softmax_of_large(self: Any, dim: int, half_to_float: bool) -> Any:
    exponentials = np.exp(self)
    return exponentials / exponentials.sum(dim, keepdims=True)


def _half_up(self: Any) -> Any:
    return np.floor(self + 0.5).astype(self.dtype)


def _exclusive(self: Any, dim: int) -> Any:
    return np.cumsum(self, dim, dtype=self.dtype) - self


def _flipped(right: Function) -> Function:
    def wrong(**arguments: Any) -> Any:
        return right(**{**arguments, "weight": arguments["weight"][:, :, ::-1, ::-1]})

    return wrong


def _zero_pad(right: Function) -> Function:
    def wrong(**arguments: Any) -> Any:
        made, indices = right(**arguments)
        made = made.copy()
        made[..., 0] = np.maximum(made[..., 0], 0)
        return made, indices

    return wrong


_BYTES = {"self": torch.tensor([120, 5]).char(), "other": torch.tensor([9, 9]).char()}
_NORM = {"input": normal(3, 4) * 0.1, "weight": normal(4), "bias": normal(4)}
_CONVOLVED = {
    "stride": [1, 1],
    "padding": [1, 1],
    "dilation": [1, 1],
    "transposed": False,
    "output_padding": [0, 0],
    "groups": 1,
}


def _unary(op: str, what: str, function: Function, value: torch.Tensor | None = None) -> Wrong:
    given = _EDGES if value is None else value
    return Wrong(f"aten.{op}", what, {"self": given}, {}, instead(function))


def _formulas() -> list[Wrong]:
    shape = {"normalized_shape": [4], "eps": 1e-2}
    large = {"self": _X * 100}
    edges = {"self": _EDGES, "other": _EDGES.flip(0)}
    image = {"input": normal(1, 2, 5, 5), "weight": normal(3, 2, 3, 3), "bias": normal(3)}
    window = {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1]}
    norm = "aten.native_layer_norm.default"
    negative = {"self": normal(1, 1, 6, 6).abs() * -1}
    return [
        Wrong(norm, "eps outside the root", _NORM, shape, instead(_eps_outside)),
        Wrong(norm, "unbiased variance", _NORM, shape, instead(_unbiased_norm)),
        Wrong(
            "aten._softmax.default",
            "overflows: no maximum is subtracted",
            large,
            {"dim": 1, "half_to_float": False},
            instead(_softmax_of_large),
        ),
        Wrong(
            "aten.logsumexp.default",
            "overflows: no maximum is subtracted",
            large,
            {"dim": [1]},
            instead(lambda self, dim: np.log(np.exp(self).sum(tuple(dim)))),
        ),
        Wrong("aten.maximum.default", "ignores NaN", edges, {}, instead(_fmax)),
        Wrong("aten.cumsum.default", "exclusive", {"self": _X}, {"dim": 1}, instead(_exclusive)),
        Wrong("aten.convolution.default", "flips the filter", image, _CONVOLVED, _flipped),
        Wrong("aten.max_pool2d_with_indices.default", "pads with 0", negative, window, _zero_pad),
        Wrong(
            "aten._to_copy.default",
            "rounds to the nearest integer",
            {"self": _X},
            {"dtype": torch.int64},
            instead(lambda self, dtype: np.rint(self).astype(dtype)),
        ),
        Wrong(
            "aten.gelu.default",
            "by tanh where erf is meant",
            {"self": _X},
            {},
            lambda right: lambda **a: right(**{**a, "approximate": "tanh"}),
        ),
        Wrong("aten.add.Tensor", "saturates", _BYTES, {}, instead(_saturating)),
        Wrong(
            "aten.topk.default",
            "one place further",
            {"self": _X},
            {"k": 2},
            lambda right: lambda **a: _second(right, **a),
        ),
    ]


def _edges() -> list[Wrong]:
    halves = torch.tensor([-2.5, -1.5, 0.5, 2.5])
    return [
        _unary("round.default", "rounds halves up", _half_up, halves),
        _unary("round.default", "rounds towards zero", lambda self: np.trunc(self), halves),
        _unary("floor.default", "rounds towards zero", lambda self: np.trunc(self)),
        _unary("relu.default", "turns NaN into 0", lambda self: np.fmax(self, np.float32(0))),
        _unary("sqrt.default", "sqrt(-x) is 0", lambda self: np.sqrt(np.fmax(self, 0 * self))),
        _unary("log.default", "log of |x|", lambda self: np.log(np.abs(self))),
        _unary("sign.default", "sign(0) is 1", lambda self: np.where(self == 0, 1, np.sign(self))),
        _unary("isnan.default", "is false for NaN", lambda self: np.isinf(self)),
        _unary("sigmoid.default", "is tanh(x / 2)", lambda self: np.tanh(self / 2), _X),
        _unary("exp.default", "a series of 6 terms", _short_series, _X),
        _unary("reciprocal.default", "1/0 is 0", lambda self: np.where(self, 1 / self, self)),
    ]


def _fmax(self: Any, other: Any) -> Any:
    return np.fmax(self, other)


def _short_series(self: Any) -> Any:
    return sum(self**k / np.float32(f) for k, f in enumerate((1, 1, 2, 6, 24, 120))).astype(
        "float32"
    )


def _saturating(self: Any, other: Any) -> Any:
    return np.clip(self.astype(int) + other, -128, 127).astype("int8")


def _second(right: Function, **arguments: Any) -> Any:
    values, indices = right(**{**arguments, "k": 3})
    return values[..., 1:], indices[..., 1:]


WRONG: list[Wrong] = [*_generic(), *_formulas(), *_edges()]
