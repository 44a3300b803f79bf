"""Attempts at delegates: built, run on sample inputs, and judged."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from torch_ir.backends.backend_registry import Options
from torch_ir.backends.delegate import function_of, sizes_of
from torch_ir.backends.delegating import held_tensors, misfit
from torch_ir.backends.native.building import DeclinedError, Safe, built, copy_of
from torch_ir.backends.native.samples import SETS, Samples
from torch_ir.backends.state_writes import updated
from torch_ir.errors import CacheError, OptionalDependencyError, first_line
from torch_ir.infer.bindings import Symbols
from torch_ir.ir import IR, OpNode, SymExpr, TensorMeta
from torch_ir.ir.expressions import Number
from torch_ir.ir.queries import live_out
from torch_ir.ops.choices import leaves_order_open
from torch_ir.torch_api import has_storage, is_inexact

if TYPE_CHECKING:
    from torch_ir.backends.native.native_backend import NativeBackend
    from torch_ir.debug.judging.trial import ProgramJudge

Values = Mapping[str, torch.Tensor]
Judge = Callable[[Values, Sequence[torch.Tensor | None], Values, Symbols], Any]


@dataclass(slots=True)
class Attempt:
    """A delegate that was tried.

    Attributes:
        body: The function that it stands for.
        held: Those of its inputs that are the same in every call, by name.
        call: What the runtime made of it; None if it refuses.
        judge: Says how far results are off; None where nothing is verified.
        part: The worst error as a part of the allowed one; nan if it did not run.
        reason: Why it cannot be used; empty if it can.
        runs: How many sets of inputs it was judged on, in which no size and no number is 0.
        is_empty: Whether it was judged on other ones, which say nothing of elements.
        sample: The arguments of one call, where it is to be timed.
        last: The results of the last call that was judged, as long as more have to be.
        written: The inputs in whose memory outputs are given, by the name of the output.
    """

    body: IR
    held: Mapping[str, torch.Tensor]
    call: Safe | None = None
    judge: Judge | None = None
    part: float = math.nan
    reason: str = ""
    runs: int = 0
    is_empty: bool = False
    sample: tuple[Any, ...] | None = None
    last: Sequence[torch.Tensor] = ()
    written: Mapping[str, str] = field(default_factory=dict[str, str])

    def shows(self, given: Sequence[Any]) -> bool:
        """Return whether a call shows what becomes of elements: no size that varies is 0.

        Args:
            given: The arguments: tensors, and the numbers after them.
        """
        metas = [meta for meta in self.body.graph_inputs if meta.name not in self.held]
        numbers = given[len(metas) :]
        pairs = zip(metas, given, strict=False)
        return all(numbers) and all(meta.is_static or t.numel() for meta, t in pairs)


@dataclass(slots=True)
class Attempts:
    """Tries delegates of one backend in one program; what was tried is remembered.

    Attributes:
        ir: The program, functional.
        backend: The backend.
        payload: The program's weights.
        samples: Inputs to try on.
        options: What was asked for.
        deadline: When no more is tried, by the monotonic clock.
        judge: Judges delegates of other backends too; None where there are none.
        nonfinite: Whether the caller's own inputs hold NaN or infinities.
    """

    ir: IR
    backend: NativeBackend
    payload: Mapping[str, torch.Tensor]
    samples: Samples
    options: Options
    deadline: float
    judge: ProgramJudge | None = None
    nonfinite: bool = False
    _known: dict[tuple[str, ...], Attempt] = field(default_factory=dict[tuple[str, ...], Attempt])

    @property
    def is_late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.deadline

    def of(self, nodes: Sequence[OpNode]) -> Attempt:
        """Return the attempt at some nodes as one delegate."""
        key = tuple([node.name for node in nodes])
        if key not in self._known:
            self._known[key] = self._tried(nodes)
        return self._known[key]

    def _tried(self, nodes: Sequence[OpNode]) -> Attempt:
        returned = live_out(self.ir, nodes)
        body = _in_order(function_of(self.ir, nodes, returned, "delegate", self.backend.name))
        written = updated(self.ir, nodes, self.backend.in_place)
        attempt = Attempt(body, held_tensors(self.ir, body, self.payload), written=written)
        try:
            attempt.call = built(
                *(self.backend, body, attempt.held, self.options.settings, self.options.cache),
                attempt.written,
            )
            if self.options.verify is not False:
                attempt.judge = judge_for(body, self.options.tolerance, self.judge)
                _verify(attempt, self.samples)
        except (OptionalDependencyError, CacheError):
            raise
        except Exception as error:  # noqa: BLE001  # whatever a runtime raises, it refuses
            attempt.reason = said(error)
        return attempt


def _in_order(body: IR) -> IR:
    """A body that asks for the order of the meaning where any is right: so all is compared."""
    return body.replace(
        nodes=[
            node.replace(attrs={**node.attrs, "sorted": True})
            if leaves_order_open(node.op_type, node.attrs)
            else node
            for node in body.nodes
        ]
    )


def said(error: BaseException) -> str:
    """Return what a runtime says: the first lines, as the very first often names a file."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3]) or first_line(error)}"


def _verify(attempt: Attempt, samples: Samples) -> None:
    """Run a delegate on the samples, judge it, and see that results stay."""
    body = attempt.body
    names = {*body.input_names, *body.output_names} - attempt.held.keys()
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    for values, symbols, is_wide in samples.of(names):
        known = {**attempt.held, **values}
        sizes = numbers_for(body, known, symbols)
        if sizes is None or any(n not in known for n in (*body.input_names, *body.output_names)):
            continue
        if is_wide and all(is_inexact(known[name]) for name in body.output_names):
            continue
        bound = {**symbols, **dims_of(body, known)}
        try:
            results = judged_call(attempt, known, sizes, bound, exact_only=is_wide)
        except DeclinedError:
            continue
        if attempt.reason:
            return
        kept.extend((result, result.clone()) for result in results)
        given = [known[name] for name in body.input_names if name not in attempt.held]
        if attempt.sample is None:
            own = {*attempt.call.places.values()} if attempt.call is not None else ()
            given = [t.clone() if i in own else t for i, t in enumerate(given)]
            attempt.sample = (*given, *sizes)
        shows = attempt.shows((*given, *sizes))
        attempt.runs += shows and not is_wide
        attempt.is_empty |= not shows
    attempt.last = attempt.last if attempt.runs < SETS else ()
    if not all(is_same(result, copy) for result, copy in kept):
        attempt.part, attempt.reason = math.inf, "a later call changes the results of an earlier"


def judged_call(
    attempt: Attempt,
    known: Mapping[str, torch.Tensor],
    sizes: Sequence[Number],
    symbols: Symbols,
    *,
    exact_only: bool = False,
) -> Sequence[torch.Tensor]:
    """Call a delegate and judge what it gives; the attempt has the verdict afterwards.

    Args:
        attempt: The delegate.
        known: Its inputs and torch's results, by name.
        sizes: The numbers that it takes beside tensors.
        symbols: The value of each symbol.
        exact_only: Whether to judge only results of integers and truth values.
    """
    body = attempt.body
    given = [known[name].contiguous() for name in body.input_names if name not in attempt.held]
    copies = [tensor.clone() for tensor in given]
    assert attempt.call is not None  # noqa: S101  # what is judged was made
    with torch.no_grad():
        results = list(attempt.call(*copies, *sizes))
    fault = misfit(body.graph_outputs, results) or _misshaped(body.graph_outputs, results, symbols)
    if fault:
        attempt.part, attempt.reason = math.inf, f"it gives {fault}"
        return ()
    places = attempt.call.places
    pairs = [
        pair for i, pair in enumerate(zip(given, copies, strict=True)) if i not in places.values()
    ]
    if not all(is_same(*pair) for pair in pairs):
        attempt.part, attempt.reason = math.inf, "it writes to its inputs"
        return ()
    others = [*copies, *attempt.held.values(), *attempt.last]
    attempt.last = results = _owned(attempt.call, others, results)
    assert attempt.judge is not None  # noqa: S101  # nothing is called here unverified
    judged = [None if exact_only and is_inexact(result) else result for result in results]
    error = attempt.judge(known, judged, known, symbols)
    part = error.part if not error.reason else max(error.part, math.nextafter(1, 2))
    attempt.part = part if math.isnan(attempt.part) else max(attempt.part, part)
    attempt.reason = error.reason
    return results


def _owned(
    call: Safe, others: Sequence[torch.Tensor], results: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The results with memory of their own, in order; from now on, each call copies the others."""
    apart = {i for i, r in enumerate(results) if r.stride() != r.new_empty(r.shape).stride()}
    copied = {*call.copied, *shared_places(others, results), *apart} - call.places.keys()
    call.copied = tuple(sorted(copied))
    return [copy_of(r) if i in copied else r for i, r in enumerate(results)]


def shared_places(others: Sequence[Any], results: Sequence[torch.Tensor]) -> set[int]:
    """Return the positions of the results that have the memory of another, or of a tensor given.

    Example:
        >>> x = torch.ones(2)
        >>> shared_places([x, 3], [x + 1, x.view(1, 2)])
        {1}
    """
    tensors = [t for t in others if isinstance(t, torch.Tensor) and has_storage(t)]
    taken = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    shared: set[int] = set()
    for position, result in enumerate(results):
        if not has_storage(result):
            continue
        place = result.untyped_storage().data_ptr()
        if place and place in taken:
            shared.add(position)
        taken.add(place)
    return shared


def _misshaped(
    outputs: Sequence[TensorMeta], results: Sequence[torch.Tensor], symbols: Symbols
) -> str:
    for meta, result in zip(outputs, results, strict=True):
        sizes = [
            dim.evaluate(symbols) if isinstance(dim, SymExpr) and _is_known(dim, symbols) else dim
            for dim in meta.shape
        ]
        if any(type(s) is int and s != got for s, got in zip(sizes, result.shape, strict=True)):
            return f"a tensor of shape {list(result.shape)} in place of {sizes}"
    return ""


def _is_known(dim: SymExpr, symbols: Symbols) -> bool:
    return all(symbol in symbols for symbol in dim.symbols)


def is_same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two tensors have the same values; NaN equals NaN."""
    return torch.equal(first, second) or bool(
        ((first == second) | ((first != first) & (second != second))).all()
    )


def dims_of(body: IR, known: Mapping[str, torch.Tensor]) -> Symbols:
    """Return the symbols that the sizes of a body's inputs show."""
    return {
        dim.text: size
        for meta in body.graph_inputs
        if meta.name in known
        for dim, size in zip(meta.shape, known[meta.name].shape, strict=True)
        if isinstance(dim, SymExpr) and dim.is_symbol
    }


def numbers_for(
    body: IR, known: Mapping[str, torch.Tensor], symbols: Symbols
) -> list[Number] | None:
    """Return the numbers that a body takes beside tensors; None where one is not known."""
    all_known = {**symbols, **dims_of(body, known)}
    sizes = sizes_of(body)
    if not all(_is_known(size, all_known) for size in sizes):
        return None
    return [size.evaluate(all_known) for size in sizes]


def judge_for(body: IR, tolerance: float | None, program: ProgramJudge | None) -> Judge:
    """Return what says how far results are off: by their meaning, or by a relative tolerance."""
    from torch_ir.debug.judging.trial import judge_of, relative_judge

    if tolerance is not None:
        return relative_judge(body, tolerance)
    return judge_of(body) if program is None else program.judge_of(body)
