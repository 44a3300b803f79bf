"""Inputs of delegates, as runs of the whole program on torch give them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from torch_ir.backends.delegate import sizes_of
from torch_ir.errors import Raised, attempt, counted
from torch_ir.executor import ExecGraph, IRExecutor
from torch_ir.executor.inputs import flatten_arguments
from torch_ir.executor.listeners import Table
from torch_ir.executor.samples import sample_tensors
from torch_ir.infer.bindings import Bindings, Symbols
from torch_ir.infer.hints import samplings
from torch_ir.ir import IR, OpNode, SymExpr
from torch_ir.ir.queries import symbols_in
from torch_ir.torch_api import is_inexact
from torch_ir.torch_memory import fresh

SETS = 2
"""Random sets of arguments, where none are given; one is drawn in addition to given ones.

In these, integers are 0 or 1, which index into every table; one more set has others. Where all
arguments are integers it takes the place of the last, of which it says more.
"""

_PLACES = (99, 31, 8, 4, 2)
"""The last place of a table that may be that large: some place is special, such as padding."""

_FAR = (300, 70_000)
"""How far some integers of wide types go: beyond those of 8 bits, and beyond float16."""

Call = tuple[tuple[torch.Tensor, ...], Symbols]


class Sample(NamedTuple):
    """Values of a program in a call on torch.

    Attributes:
        values: The tensors, by name.
        symbols: The value of each symbol.
        is_wide: Whether integers may be of any size, so that functions of them say little.
    """

    values: dict[str, torch.Tensor]
    symbols: Symbols
    is_wide: bool


class Samples:
    """Values of a program in some calls on torch, one after the other.

    Args:
        ir: The program, functional.
        weights: Its weights.
        constants: Values that are in no state dict.
        given: Arguments to run with; random ones are added.
    """

    def __init__(
        self,
        ir: IR,
        weights: Mapping[str, torch.Tensor],
        constants: Mapping[str, torch.Tensor] | None,
        given: Sequence[Sequence[Any]] = (),
    ):
        self._ir = ir
        self._executor = IRExecutor(ir, weights, constants)
        calls = given_calls(self._executor.graph, given) if given else []
        self._calls = [*calls, *drawn(ir, SETS if not calls else 1), *special_calls(ir)]
        self._is_far_drawn = any(node.binds or node.functions for node in ir.nodes)
        self._names: frozenset[str] = frozenset()
        self._wide: list[Call] = []
        self._runs: list[Sample] | None = None

    def of(self, names: Iterable[str]) -> list[Sample]:
        """Return these values and the symbols of each call that torch runs through."""
        wanted = frozenset(names)
        if not self._is_far_drawn:
            self._is_far_drawn = True
            last = self._calls[-1:]
            far = [c for d in (_far_integers, _odd_integers) for c in self._redrawn(last, d)]
            if far and self._says_less(last):
                self._calls.pop()
            self._calls.extend(far)
            for draw in (_wide_integers, _largest_integers):
                self._wide.extend(self._redrawn(last, draw))
        if self._runs is None or not wanted <= self._names:
            self._names |= wanted
            self._runs = list(self._run())
        return self._runs

    def _redrawn(self, calls: Iterable[Call], draw: _Draw) -> Iterable[Call]:
        """Arguments with other integers in each place where torch takes them.

        Not where they may be counts of a loop or the length of a result.
        """
        generator = torch.Generator().manual_seed(SETS + 1)
        for tensors, symbols in calls:
            if not self._is_taken(tensors, symbols):
                tensors = without_zeros(tensors)
            made = list(tensors)
            for index, tensor in enumerate(tensors):
                for made[index] in draw(tensor, generator):
                    if self._is_taken(made, symbols):
                        break
                else:
                    made[index] = tensor
            if any(new is not old for new, old in zip(made, tensors, strict=True)):
                yield tuple(made), symbols

    def _says_less(self, last: Sequence[Call]) -> bool:
        """Whether a call says less than one with other integers, and enough others are left.

        What a program of integers means is the dearest of all that is done with a call.
        """
        if any(is_inexact(tensor) for tensors, _ in last for tensor in tensors):
            return False
        return sum(self._is_taken(*call) for call in self._calls[:-1]) >= SETS - 1

    def _is_taken(self, tensors: Sequence[torch.Tensor], symbols: Symbols) -> bool:
        made = attempt(self._executor.graph.run, [tensor.clone() for tensor in tensors], symbols)
        self._executor.graph.reset()
        return not isinstance(made, Raised)  # torch refuses made-up arguments as it likes

    def _run(self) -> Iterable[Sample]:
        graph = self._executor.graph
        graph.reset()
        made = self._names & self._ir.producers.keys()
        external = self._ir.external_values()
        inputs = self._ir.input_names
        for place, (tensors, given) in enumerate([*self._calls, *self._wide]):
            for taken in (tensors, without_zeros(tensors)):  # which torch does not divide by
                state = graph.buffers
                values = {n: t for n, t in zip(inputs, taken, strict=True) if n in self._names}
                values |= {
                    name: state[key]
                    for name, (key, _) in external.items()
                    if key in state and name in self._names
                }
                table = _Table(made, self._ir)
                copies = [tensor.clone() for tensor in taken]
                ran = attempt(graph.run, copies, given, table, reuse=False)
                if isinstance(ran, Raised):  # torch refuses made-up arguments as it likes
                    graph.reset()
                    continue
                is_wide = place >= len(self._calls)
                symbols = {**table.symbols, **given, **ran[1]}
                yield Sample({**values, **table.values}, symbols, is_wide)
                break


def given_calls(graph: ExecGraph, given: Iterable[Sequence[Any]]) -> list[Call]:
    """Return calls with arguments that a caller gives, which torch has to take one by one.

    Args:
        graph: The program, with its weights.
        given: Positional arguments of each call, in the model's own structure; never changed.

    Raises:
        InputError: Arguments do not fit.
        ExecutionError: The program raises for them.
    """
    calls = [flatten_arguments(graph.ir, tuple(args), {}) for args in given]
    graph.reset()
    for tensors, symbols in calls:
        graph.run(fresh(tensors), symbols)
    graph.reset()
    return calls


class _Table(Table):
    """Keeps values, and the symbols that nodes bind: sizes of their results, and numbers read."""

    def __init__(self, names: frozenset[str], ir: IR):
        super().__init__(names, None, torch.clone)
        self.symbols: Symbols = {}
        bindings = Bindings(ir)
        self._bound = {node.name: found for node in ir.nodes if (found := bindings.of(node))}

    def did_run(self, node: OpNode, outputs: Sequence[torch.Tensor]) -> None:
        super().did_run(node, outputs)
        made = {m.producer_output_idx: t for m, t in zip(node.outputs, outputs, strict=True)}
        for binding in self._bound.get(node.name, ()):
            if binding.axis is not None and binding.result in made:
                self.symbols[binding.symbol] = made[binding.result].shape[binding.axis]

    def will_run(self, node: OpNode, inputs: Sequence[torch.Tensor]) -> None:
        if node.op_type in _READS:
            for binding in self._bound.get(node.name, ()):
                self.symbols[binding.symbol] = binding.read([inputs[0].item()])


_READS = frozenset(("aten.item.default", "aten._local_scalar_dense.default"))


NONFINITE = (math.nan, math.inf, -math.inf)
"""Numbers that runtimes treat as they like for speed."""


def holds_nonfinite(given: Iterable[Sequence[Any]]) -> bool:
    """Return whether arguments hold NaN or infinities.

    Example:
        >>> holds_nonfinite([[torch.ones(2), 3]]), holds_nonfinite([[torch.ones(2).log() / 0]])
        (False, True)
    """
    leaves = [leaf for args in given for leaf in tree_leaves(args)]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and is_inexact(leaf)]
    return any(not bool(_wide(tensor).isfinite().all()) for tensor in tensors)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """The values in a type and layout in which torch compares: not those of 8 bits, nor sparse."""
    dense = tensor if tensor.layout is torch.strided else tensor.to_dense()
    is_narrow = dense.is_floating_point() and dense.dtype.itemsize == 1
    return dense.to(torch.float32) if is_narrow else dense


TURNS = 8
"""How often an operator is tried with such numbers."""


def with_nonfinite(tensor: torch.Tensor, turn: int, place: int) -> torch.Tensor:
    """Return a tensor with NaN and infinities among its numbers.

    Args:
        tensor: The tensor; one of integers, or a sparse one, is returned as it is.
        turn: Which try it is for: in the first, there is one of each; then they are some anywhere,
            so that those of several tensors meet.
        place: Which of the operator's inputs it is.
    """
    if not is_inexact(tensor) or not tensor.numel() or tensor.layout is not torch.strided:
        return tensor
    flat = _wide(tensor).flatten().clone()  # a tensor that lies in order is its own flat form
    count = len(NONFINITE)
    if turn < count:
        for index in range(count):
            flat[index * flat.numel() // count] = NONFINITE[(index + turn + place) % count]
    else:
        generator = torch.Generator().manual_seed(turn * 100 + place)
        drawn = torch.rand(flat.numel(), generator=generator)
        for index, value in enumerate(NONFINITE):
            flat[(drawn > index * _OFTEN) & (drawn < (index + 1) * _OFTEN)] = value
    return flat.view_as(tensor).to(tensor.dtype)


_OFTEN = 0.06
"""How often each of these numbers is drawn."""


def unlike(results: Sequence[torch.Tensor], torchs: Sequence[torch.Tensor]) -> str:
    """Say where results have other NaN, infinities, integers or far numbers; empty if nowhere.

    Meanings leave some open: a kernel may round where it reads, or in which order it adds.

    Args:
        results: Those of a runtime, or of the parts of an operator.
        torchs: Those of torch.
    """
    for result, expected in zip(map(_wide, results), map(_wide, torchs), strict=True):
        other = (result != expected) & ~((result != result) & (expected != expected))
        if is_inexact(expected):
            finite = torch.isfinite(expected)
            sizes = expected.masked_fill(~finite, 0).abs()
            far = (result - expected).abs() > _FAR_OFF * sizes.amax() if sizes.numel() else other
            other &= far | ~(finite & torch.isfinite(result))
        if count := int(other.sum()):
            return f"{count} of {counted(other.numel(), 'value')} are not what torch gives"
    return ""


_FAR_OFF = 0.05
"""The part of the largest number that is more than any type rounds."""


def drawn(ir: IR, count: int) -> Iterable[Call]:
    """Yield random arguments: at the first size and at another one where sizes vary.

    The first have parts that are even, the last special numbers.
    """
    found = samplings(ir)
    named = [size.text for size in sizes_of(ir) if size.is_symbol]
    for index in range(count if found else 0):
        symbols = found[-1 - index % len(found)] if count > 1 else found[0]
        tensors = sample_tensors(ir, symbols, index + 1, integers=True)
        if index == 0:
            tensors = [_with_even(tensor) for tensor in tensors]
        if index == count - 1:
            tensors = [_with_special(tensor, place) for place, tensor in enumerate(tensors)]
        given = {name: symbols[name] for name in named}
        yield tuple(tensors), given


def with_integers(
    tensors: Sequence[torch.Tensor], change: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Return arguments with what a function makes of those of integers."""
    return tuple([t if is_inexact(t) or t.dtype is torch.bool else change(t) for t in tensors])


def without_zeros(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return arguments with 1 in place of 0 among integers."""
    return with_integers(tensors, lambda tensor: tensor.masked_fill(tensor == 0, 1))


_EVEN = (0.0, 3.1)
"""What parts of tensors are filled with, from the last on: norms divide by their spread.

The second has no exact square: its mean square less the square of its mean is not 0 either.
"""


def _with_even(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers with the last parts along the first axis that has two filled with one each."""
    axis = next((axis for axis, size in enumerate(tensor.shape) if size > 1), tensor.dim())
    if tensor.is_floating_point() and axis < tensor.dim() - 1:
        parts = range(1, min(tensor.shape[axis] - 1, len(_EVEN)) + 1)
        for part, value in zip(parts, _EVEN, strict=False):
            tensor.select(axis, -part).fill_(value)
    return tensor


_SPECIAL = (0.0, -1.0, -0.0, -8.0, 1.0, 0.1, 8.0, 104.0, -104.0, 0.5, 2.5, 89.0, -89.0)
"""Numbers at which kernels branch, or functions leave float32. Each meets the next one.

exp(89) is no number of float32, and its half, which is cosh(89), is one.
"""

_SMALL = 1 << 16
"""Elements of all values of a program that is cheap to try more often."""


def special_calls(ir: IR) -> Iterable[Call]:
    """Yield random arguments with the special numbers for which small tensors had no room.

    Only for programs of small values: others cost too much to try.
    """
    found = samplings(ir)[:1]
    for symbols in found:
        if _elements(ir, symbols) > _SMALL:
            return
        tensors = sample_tensors(ir, symbols, SETS + 2, integers=True)
        floats = [t.numel() for t in tensors if t.is_floating_point() and t.numel()]
        room = min(floats, default=len(_SPECIAL))
        named = {size.text: symbols[size.text] for size in sizes_of(ir) if size.is_symbol}
        for first in range(room, len(_SPECIAL), room):
            made = [_with_special(t.clone(), i - first) for i, t in enumerate(tensors)]
            yield tuple(made), named


def _elements(ir: IR, symbols: Symbols) -> int:
    """How many elements the values of a program have; none where a size is not known before."""
    metas = [*ir.graph_inputs, *ir.weights, *[m for node in ir.nodes for m in node.outputs]]
    if not symbols_in(metas) <= symbols.keys():
        return _SMALL + 1
    return sum(
        math.prod(int(d.evaluate(symbols)) if isinstance(d, SymExpr) else d for d in meta.shape)
        for meta in metas
    )


def _with_special(tensor: torch.Tensor, place: int) -> torch.Tensor:
    """The numbers with some among them that are special, others than arguments before it have."""
    if not tensor.is_floating_point():
        return tensor
    flat = tensor.flatten()
    special = torch.tensor(_SPECIAL, dtype=tensor.dtype).roll(-place)[: flat.numel()]
    flat[: special.numel()] = special
    return flat.view_as(tensor)


def _far_integers(tensor: torch.Tensor, generator: torch.Generator) -> Iterable[torch.Tensor]:
    """All numbers of a narrow type, small ones of both signs of a wide one, then places in tables.

    Of truth values, a half is all False.
    """
    if is_inexact(tensor) or not tensor.numel():
        return
    if tensor.dtype is torch.bool:
        made = torch.rand(tensor.shape, generator=generator) < 0.5
        made.view(-1)[: tensor.numel() // 2] = False
        yield made
        return
    info = torch.iinfo(tensor.dtype)
    shape = tuple(tensor.shape)
    if info.bits < 32:
        spans = [(info.min, info.max)]
    else:
        drawn = torch.randint(-9, 10, shape, generator=generator)
        for place, end in enumerate(_FAR[: drawn.numel() - 1]):
            further = torch.randint(-end, end + 1, shape, generator=generator)
            drawn = torch.where(torch.rand(shape, generator=generator) < 0.2, further, drawn)
            drawn.view(-1)[place] = end
        yield drawn.to(tensor.dtype)
        spans = [(-9, 9), (1, 9)]  # torch does not divide by zero
    for low, high in [*spans, *[(0, last) for last in _PLACES]]:
        drawn = torch.randint(low, high + 1, shape, generator=generator)
        yield drawn.to(tensor.dtype)


def _odd_integers(tensor: torch.Tensor, generator: torch.Generator) -> Iterable[torch.Tensor]:
    """Odd numbers of a narrow type, whose products are not 0; far ones where there is but one."""
    if is_inexact(tensor) or tensor.dtype is torch.bool:
        return
    info = torch.iinfo(tensor.dtype)
    if info.bits < 32:
        drawn = torch.randint(info.min, info.max + 1, tuple(tensor.shape), generator=generator)
        yield (drawn | 1).to(tensor.dtype)
    elif tensor.numel() == 1:
        for far in reversed(_FAR):
            yield torch.full_like(tensor, far)


def _wide_integers(tensor: torch.Tensor, generator: torch.Generator) -> Iterable[torch.Tensor]:
    """Numbers of both signs and of every size that a wide type has, every other a largest one."""
    if tensor.dtype not in (torch.int32, torch.int64):
        return
    bits, shape = torch.iinfo(tensor.dtype).bits, tuple(tensor.shape)
    drawn = torch.randint(-(1 << 63), (1 << 63) - 1, shape, generator=generator)
    less = torch.randint(0, bits - 1, shape, generator=generator)
    less.view(-1)[::2] %= 4
    yield (drawn >> (64 - bits + less)).to(tensor.dtype)


def _largest_integers(tensor: torch.Tensor, generator: torch.Generator) -> Iterable[torch.Tensor]:
    """Numbers of which any two have a sum and a product beyond a wide type."""
    if tensor.dtype not in (torch.int32, torch.int64):
        return
    last = torch.iinfo(tensor.dtype).max
    drawn = torch.randint(last // 2 + 1, last, tuple(tensor.shape), generator=generator)
    yield (drawn | 1).to(tensor.dtype)  # no product is a multiple of a power of 2, which is 0


_Draw = Callable[[torch.Tensor, torch.Generator], Iterable[torch.Tensor]]
