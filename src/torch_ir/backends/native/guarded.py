"""Delegates as they run: on their runtime as long as it is right, else on torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torch_ir.backends.aten import BodyOnTorch
from torch_ir.backends.native.attempts import (
    Attempt,
    dims_of,
    is_same,
    judged_call,
    said,
    shared_places,
)
from torch_ir.backends.native.building import DeclinedError, into_arguments
from torch_ir.backends.native.samples import SETS
from torch_ir.backends.protocol import WithFallback
from torch_ir.errors import Raised, attempt


class Guarded(WithFallback):
    """A delegate that runs on torch where its runtime fails, from then on.

    One that could not be judged on as many samples as there have to be is judged in its first
    real calls of other arguments each, which give torch's results.

    Args:
        attempt: What was made of it.

    Attributes:
        is_used: Whether the runtime runs it.
        us: Microseconds of a call; nan if it was not timed.
        other_us: Those of a call on torch.
        on_torch: Runs it on torch.
    """

    def __init__(self, attempt: Attempt):
        self.attempt = attempt
        self.is_used = True
        self.us = self.other_us = math.nan
        assert attempt.call is not None  # noqa: S101  # what is refused has no delegate
        self._call, self._places = attempt.call, attempt.call.places
        body = attempt.body
        self._names = [name for name in body.input_names if name not in attempt.held]
        self.on_torch = BodyOnTorch(body, attempt.held)
        self._left = 0 if attempt.judge is None else max(SETS - attempt.runs, 0)
        self._last: list[Any] = []
        self.settled = None if self._left else self._call

    def on(self, given: tuple[Any, ...], /) -> Sequence[torch.Tensor]:
        """Run it on the arguments of a call."""
        if (self._left and self._is_news(given)) or not self.is_used:
            return self._with_torch(given)
        try:
            return self._call.on(given)
        except Exception as error:  # noqa: BLE001  # a runtime may refuse sizes when it sees them
            return self.recovered(error, given)

    def recovered(self, error: Exception, given: tuple[Any, ...], /) -> Sequence[torch.Tensor]:
        """Return what torch gives: from now on, unless the runtime declined this call alone."""
        if isinstance(error, DeclinedError):
            return self._with_torch(given)
        return self.replaced(said(error), given)

    def replaced(self, reason: str, given: tuple[Any, ...], /) -> Sequence[torch.Tensor]:
        """Leave the delegate to torch from now on, and return what torch gives.

        Args:
            reason: Why.
            given: The arguments of the call in which it failed.
        """
        self._refuse(reason)
        return self._with_torch(given)

    def _is_news(self, given: Sequence[Any]) -> bool:
        """Whether no call was judged that is empty as this one is, if it is."""
        return not self.attempt.is_empty or self.attempt.shows(given)

    def _with_torch(self, given: Sequence[Any]) -> Sequence[torch.Tensor]:
        results = self.on_torch(given)
        if self.is_used and self._left:
            self._judge(given, results)
        # what takes them counts on memory of their own
        shared = shared_places([*given, *self.attempt.held.values()], results)
        results = [r.clone() if i in shared else r for i, r in enumerate(results)]
        return into_arguments(self._places, given, results)

    def _judge(self, given: Sequence[Any], results: Sequence[torch.Tensor]) -> None:
        """Judge the runtime by a real call."""
        body = self.attempt.body
        known = {**self.attempt.held, **dict(zip(self._names, given, strict=False))}
        known |= dict(zip(body.output_names, results, strict=True))
        symbols = dims_of(body, known)
        numbers = given[len(self._names) :]
        judged = attempt(judged_call, self.attempt, known, numbers, symbols)
        if isinstance(judged, Raised):
            if isinstance(judged.error, DeclinedError):
                return
            self.attempt.reason = said(judged.error)
        if self.attempt.reason:
            self._refuse(self.attempt.reason)
        elif self.attempt.shows(given):
            is_other = not self._repeats(given)
            self._left -= is_other
            self.attempt.runs += is_other
            if not self._left:
                self._last, self.attempt.last = [], ()
            self.settled = None if self._left else self._call
        else:
            self.attempt.is_empty = True

    def _repeats(self, given: Sequence[Any]) -> bool:
        """Whether the call has the arguments of the last that was judged, which proves nothing."""
        last, self._last = self._last, []
        if self._left > 1:
            self._last = [t.clone() if isinstance(t, torch.Tensor) else t for t in given]
        elif last:
            self._last = last
        return bool(last) and all(
            first.shape == second.shape and is_same(first, second)
            if isinstance(first, torch.Tensor)
            else first == second
            for first, second in zip(last, given, strict=True)
        )

    def _refuse(self, reason: str) -> None:
        self.is_used, self.settled = False, None
        self._last, self.attempt.last = [], ()
        self.attempt.reason = reason
