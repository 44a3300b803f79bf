"""Preconditions of recurrent operators, whose kernels read as far as the sizes let them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch_ir.infer.preconditions.faults import Arguments, Faults, of_rank, unlike

_LSTM = 2  # what torch calls it among the modes of a layer


@dataclass(frozen=True, slots=True)
class _LayerSizes:
    """The sizes that the layers of a recurrent network share.

    Attributes:
        width: Of the input.
        hidden: Of a state.
        given: Of what a layer hands on, which is projected where this is not ``hidden``.
        gates: How often the weights hold a state's width.
    """

    width: int
    hidden: int
    given: int
    gates: int

    def shapes(self, layers: int, directions: int, *, has_biases: bool) -> Iterator[list[int]]:
        """Yield the shape of each parameter in order."""
        rows = self.gates * self.hidden
        for layer in range(layers):
            width = self.given * directions if layer else self.width
            for _ in range(directions):
                yield from ([rows, width], [rows, self.given])
                yield from ([rows], [rows]) if has_biases else ()
                if self.given != self.hidden:
                    yield [self.given, self.hidden]


def recurrent(gates: int) -> Callable[[Arguments], Faults]:
    """Return the rule of ``rnn_*``, ``gru`` (3 gates) and ``lstm`` (4), of both overloads."""
    return lambda call: _recurrent(call, gates)


def _recurrent(call: Arguments, gates: int) -> Faults:
    is_packed = "data" in call
    given: Any = call["data"] if is_packed else call["input"]
    states: list[Any] = [*call["hx"]] if gates == 4 else [call["hx"]]
    names = ["hx[0]", "hx[1]"] if gates == 4 else ["hx"]
    yield from of_rank("data" if is_packed else "input", given, 2 if is_packed else 3)
    if len(states) != len(names):
        yield f"hx has {len(states)} states, and has to have {len(names)}"
    for name, state in zip(names, states, strict=True):
        yield from of_rank(name, state, 3)
    if is_packed:
        yield from of_rank("batch_sizes", call["batch_sizes"], 1)
        if not call["batch_sizes"].shape[0]:
            yield "batch_sizes has no elements"
        batch = states[0].shape[1]
    else:
        batch = given.shape[0 if call["batch_first"] else 1]
    layers, directions = call["num_layers"], 1 + call["bidirectional"]
    if layers < 1:
        yield f"num_layers is {layers}"
    sizes = _LayerSizes(given.shape[-1], states[-1].shape[2], states[0].shape[2], gates)
    for name, state in zip(names, states, strict=True):
        yield from unlike(name, state, [layers * directions, batch, state.shape[2]])
    yield from _parameters(call, sizes, layers, directions)


def _parameters(call: Arguments, sizes: _LayerSizes, layers: int, directions: int) -> Faults:
    params: Sequence[Any] = call["params"]
    each = 2 + 2 * bool(call["has_biases"]) + (sizes.given != sizes.hidden)
    if len(params) != each * layers * directions:
        yield f"params has {len(params)} tensors, and has to have {each * layers * directions}"
    shapes = sizes.shapes(layers, directions, has_biases=call["has_biases"])
    for position, (param, shape) in enumerate(zip(params, shapes, strict=True)):
        yield from unlike(f"params[{position}]", param, shape)


def packed_sequences(call: Arguments) -> Faults:
    """Yield what is wrong with the values of ``batch_sizes``."""
    sizes: list[int] = call["batch_sizes"].tolist()
    rows = call["data"].shape[0]
    if not sizes:
        yield "batch_sizes has no elements"
    falls = all(left >= right for left, right in pairwise(sizes))
    if min(sizes) < 1 or not falls:
        yield f"batch_sizes is {sizes!s:.80}, and has to fall and to stay over 0"
    state: Any = call.get("hx")
    if isinstance(state, list | tuple):
        state = state[0]  # pyright: ignore[reportUnknownVariableType]  # of a call's arguments
    if state is not None and sizes[0] != (batch := state.shape[1]):
        yield f"batch_sizes begins with {sizes[0]}, where hx has {batch} sequences"
    if sum(sizes) != rows:
        yield f"batch_sizes adds up to {sum(sizes)}, where data has {rows} rows"


def one_layer(call: Arguments) -> Faults:
    """Yield what is wrong with the call of one layer of oneDNN."""
    given, hidden = call["input"], call["hidden_size"]
    yield from of_rank("input", given, 3)
    if call["mode"] != _LSTM or call["num_layers"] != 1 or call["bidirectional"]:
        yield "one layer of an LSTM in one direction is all that it computes"
    if call["batch_sizes"]:
        yield "batch_sizes has to be empty, as sequences are padded here"
    if hidden < 1:
        yield f"hidden_size is {hidden}"
    if not given.shape[0]:
        yield "input has no steps, of which it leaves states as memory was"
    batch, width, rows = given.shape[1], given.shape[2], 4 * hidden
    shapes = {"weight0": [rows, width], "weight1": [rows, hidden]}
    if call["has_biases"]:
        shapes.update(weight2=[rows], weight3=[rows])
    for name, shape in shapes.items():
        yield from unlike(name, call[name], shape)
    for name in ("hx_", "cx_"):
        yield from unlike(name, call[name], [1, batch, hidden])
