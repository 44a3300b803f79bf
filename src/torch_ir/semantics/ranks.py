"""The denotation of a program over several ranks: what collectives of their groups give.

Source: the collectives of torch.distributed's documentation. Every rank is evaluated in a thread
of its own; in a collective the ranks of a group wait for one another. The results depend on no
order of threads: sums are taken in the order of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, copy_context
from functools import reduce
from threading import Condition, Thread
from typing import Any, TypeAlias

import numpy as np

from torch_ir.arguments import public
from torch_ir.errors import ExecutionError, InvalidIRError, TorchIRError, did_you_mean
from torch_ir.ir.graph import IR
from torch_ir.semantics.dtypes import Array, rounded, widened

Groups: TypeAlias = Mapping[str, Sequence[Sequence[int]]]
"""For each name, the ranks of each group of that name: every rank in at most one."""


@public
def denote_ranks(
    ir: IR | Sequence[IR],
    payloads: Sequence[Mapping[str, Any]],
    inputs: Sequence[Sequence[Any] | Mapping[str, Any]],
    *,
    groups: Groups,
    seed: int = 0,
) -> list[tuple[Array, ...]]:
    """Compute the results of a program on several ranks: for each rank, those of ``denote``.

    Args:
        ir: The program of all ranks, or one for each.
        payloads: The weights of each rank, as :func:`torch_ir.denote` takes them.
        inputs: The inputs of each rank.
        groups: The ranks of the groups that the program names: ``{"tp": [[0, 1], [2, 3]]}``.
        seed: The seed of random numbers, the same on all ranks.

    Raises:
        InvalidIRError: The lists differ in length, or a group has a rank that there is not.
        ExecutionError: Ranks of a group call different collectives, or one ends while others wait
            for it. Also what :func:`torch_ir.denote` raises.

    Example:
        >>> from torch_ir.ir.text import parse
        >>> ir = parse('''ir {
        ...   input %x: f32[2]
        ...   %y: f32[2] = _c10d_functional.broadcast.default(input=%x, src=1, group_name="tp")
        ...   return %y
        ... }''')
        >>> ones = np.ones(2, "float32")
        >>> denote_ranks(ir, [{}, {}], [[ones], [2 * ones]], groups={"tp": [[0, 1]]})
        [(array([2., 2.], dtype=float32),), (array([2., 2.], dtype=float32),)]
    """
    from torch_ir.semantics.denote import denote

    count = len(payloads)
    programs = [ir] * count if isinstance(ir, IR) else list(ir)
    if not len(programs) == len(inputs) == count:
        raise InvalidIRError(
            f"{len(programs)} programs, {count} payloads and {len(inputs)} lists of inputs are "
            "not one for each rank"
        )
    _require_ranks(groups, count)
    return _together(
        count, groups, lambda rank: denote(programs[rank], payloads[rank], inputs[rank], seed=seed)
    )


def _together(
    count: int, groups: Groups, of_rank: Callable[[int], tuple[Array, ...]]
) -> list[tuple[Array, ...]]:
    """Evaluate all ranks at once; raise what the first that fails of itself raises."""
    meeting = _Meeting(groups)
    results: dict[int, tuple[Array, ...]] = {}
    errors: list[TorchIRError] = []

    def run(rank: int) -> None:
        _RANK.set(_Rank(rank, meeting))
        try:
            results[rank] = of_rank(rank)
        except TorchIRError as error:
            errors.append(error)
        finally:
            meeting.leave(rank)

    threads = [Thread(target=copy_context().run, args=(run, rank)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in sorted(errors, key=lambda error: _LEFT in error.message):
        raise error
    return [results[rank] for rank in range(count)]


def _require_ranks(groups: Groups, count: int) -> None:
    for name, parts in groups.items():
        ranks = [rank for part in parts for rank in part]
        if len({*ranks}) < len(ranks) or not all(0 <= rank < count for rank in ranks):
            raise InvalidIRError(f"the group {name!r} is not of distinct ranks below {count}")


# -- where ranks meet -----------------------------------------------------------------------------

_LEFT = "has ended before it calls"


class _Meeting:
    """Where the ranks of a group hand each other what they have."""

    def __init__(self, groups: Groups):
        self.groups = groups
        self._changed = Condition()
        self._rounds: dict[tuple[tuple[int, ...], int], dict[int, Any]] = {}
        self._left: set[int] = set()

    def exchange(self, group: Sequence[int], turn: int, rank: int, item: Any) -> list[Any]:
        """Wait for all ranks of a group; return what they have, in the group's order."""
        members = tuple(group)
        with self._changed:
            self._rounds.pop((members, turn - 2), None)  # everybody has taken it
            here = self._rounds.setdefault((members, turn), {})
            here[rank] = item
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: len(here) == len(members) or self._left & {*members} - {*here}
            )
            if len(here) < len(members):
                gone = min(self._left & {*members} - {*here})
                raise ExecutionError(f"rank {gone} {_LEFT} this collective")
        return [here[member] for member in members]

    def leave(self, rank: int) -> None:
        with self._changed:
            self._left.add(rank)
            self._changed.notify_all()


class _Rank:
    """One rank while it is evaluated."""

    def __init__(self, rank: int, meeting: _Meeting):
        self.rank, self.meeting = rank, meeting
        self.turns: dict[str, int] = {}

    def exchange(self, group: str, kind: str, item: Any) -> tuple[int, list[Any]]:
        """Return the position in the group, and what all of the group have."""
        known = self.meeting.groups
        if group not in known:
            raise InvalidIRError(
                f"the group {group!r} is not given", remedy=did_you_mean(group, known) or None
            )
        members = next((part for part in known[group] if self.rank in part), None)
        if members is None:
            raise InvalidIRError(f"no group {group!r} has rank {self.rank}")
        turn = self.turns[group] = self.turns.get(group, -1) + 1
        all_ = self.meeting.exchange(members, turn, self.rank, (kind, item))
        for member, (other, _) in zip(members, all_, strict=True):
            if other != kind:
                raise ExecutionError(f"rank {member} calls {other} where this one calls {kind}")
        return list(members).index(self.rank), [item for _, item in all_]


_RANK: ContextVar[_Rank | None] = ContextVar("rank that is evaluated", default=None)


def _exchanged(group: str, kind: str, item: Any) -> tuple[int, list[Any]]:
    rank = _RANK.get()
    if rank is None:
        raise InvalidIRError(
            f"{kind} has no meaning on one rank alone",
            remedy="Give the program of every rank: torch_ir.denote_ranks.",
        )
    return rank.exchange(group, kind, item)


# -- collectives ----------------------------------------------------------------------------------

_REDUCTIONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "avg": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}


def _reduced(parts: Sequence[Array], reduce_op: str) -> Array:
    """Reduce in the order of ranks, in working precision, and round once."""
    if reduce_op not in _REDUCTIONS:
        raise InvalidIRError(
            f"{reduce_op!r} is no reduction", remedy=did_you_mean(reduce_op, _REDUCTIONS) or None
        )
    wide = [widened(part) for part in parts]
    with np.errstate(all="ignore"):
        found = reduce(_REDUCTIONS[reduce_op], wide)
        found = found / len(parts) if reduce_op == "avg" else found
    return rounded(found, parts[0].dtype)


def _require_size(parts: Sequence[Any], group_size: int) -> None:
    if len(parts) != group_size:
        raise InvalidIRError(f"it is made for {group_size} ranks, and the group has {len(parts)}")


def _all_reduce(input: Array, reduce_op: str, group_name: str) -> Array:
    return _reduced(_exchanged(group_name, "all_reduce", input)[1], reduce_op)


def _all_gather(input: Array, group_size: int, group_name: str) -> Array:
    _, parts = _exchanged(group_name, "all_gather_into_tensor", input)
    _require_size(parts, group_size)
    return np.concatenate(parts)


def _reduce_scatter(input: Array, reduce_op: str, group_size: int, group_name: str) -> Array:
    place, parts = _exchanged(group_name, "reduce_scatter_tensor", input)
    _require_size(parts, group_size)
    if len(input) % group_size:
        raise InvalidIRError(f"{len(input)} rows cannot be shared by {group_size} ranks")
    return np.split(_reduced(parts, reduce_op), group_size)[place]


def _all_to_all(
    input: Array,
    output_split_sizes: Sequence[int],
    input_split_sizes: Sequence[int],
    group_name: str,
) -> Array:
    place, parts = _exchanged(group_name, "all_to_all_single", (input, [*input_split_sizes]))
    got = [np.split(rows, np.cumsum(sizes)[:-1])[place] for rows, sizes in parts]
    if [len(part) for part in got] != [*output_split_sizes]:
        raise InvalidIRError(
            f"rows {[len(part) for part in got]} come, and {[*output_split_sizes]} are expected"
        )
    return np.concatenate(got)


def _broadcast(input: Array, src: int, group_name: str) -> Array:
    _, parts = _exchanged(group_name, "broadcast", input)
    if not 0 <= src < len(parts):
        raise InvalidIRError(f"the group has no rank {src}")
    return parts[src].copy()


def _each(function: Callable[..., Array]) -> Callable[..., list[Array]]:
    """Return the coalesced form: the same for each of a list."""

    def each(inputs: Sequence[Array], *args: Any, **kwargs: Any) -> list[Array]:
        return [function(given, *args, **kwargs) for given in inputs]

    return each


def _wait(tensor: Array) -> Array:
    return tensor


def _wait_all(tensors: Sequence[Array]) -> list[Array]:
    return list(tensors)


MEANINGS: Mapping[str, Callable[..., Any]] = {
    "all_gather_into_tensor": _all_gather,
    "all_gather_into_tensor_coalesced": _each(_all_gather),
    "all_reduce": _all_reduce,
    "all_reduce_coalesced": _each(_all_reduce),
    "all_to_all_single": _all_to_all,
    "broadcast": _broadcast,
    "reduce_scatter_tensor": _reduce_scatter,
    "reduce_scatter_tensor_coalesced": _each(_reduce_scatter),
    "wait_tensor": _wait,
    "wait_tensors": _wait_all,
}
"""What each collective means on the rank that is evaluated, by its name."""
