"""Delegates of native runtimes: built or read from a cache, and called safely."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from torch_ir.backends.native.blobs import Blobs
from torch_ir.backends.native.places import Limit, NothingEmpty, limits_of
from torch_ir.backends.protocol import Delegated, TupleCalled, tuple_call
from torch_ir.backends.torch.exported_program import body_program
from torch_ir.errors import BackendError, Raised, attempt
from torch_ir.ir import IR
from torch_ir.torch_api import lies_in_order

if TYPE_CHECKING:
    from torch_ir.backends.native.native_backend import NativeBackend


def built(
    backend: NativeBackend,
    body: IR,
    held: Mapping[str, torch.Tensor],
    options: Mapping[str, Any],
    cache: str | PathLike[str] | None,
    written: Mapping[str, str] = MappingProxyType({}),
) -> Safe:
    """Build a body, or read what was built before.

    Args:
        backend: The runtime.
        body: The body.
        held: Those of its inputs that are the same in every call, by name.
        options: The runtime's.
        cache: The folder of blobs; None for none.
        written: The inputs whose memory outputs are to be given in, by the name of the output.
    """
    program = body_program(body, held)
    limits = limits_of(body, held)
    taken = [name for name in body.input_names if name not in held]
    places = {body.output_names.index(new): taken.index(old) for new, old in written.items()}

    def safe(made: Delegated) -> Safe:
        made = backend.into(made, places) if places else made
        return Safe(made, backend.is_thread_safe, limits, places)

    if cache is None:
        return safe(backend.build(program, options))
    blobs = Blobs(cache)
    key = blobs.key(backend, body, held, options)
    blob = blobs.read(key)
    if blob is not None:
        read = attempt(backend.unpack, blob, program, options)
        if not isinstance(read, Raised):  # what a runtime does not read is built anew
            return safe(read)
    made = backend.build(program, options)
    packed = backend.pack(made)
    if packed is not None:
        blobs.write(key, packed)
    return safe(made)


def _plain(item: Any) -> Any:
    """A tensor that lies in order, with its values in memory: a view may show them negated.

    A parameter is given as a tensor, which runtimes ask for. Zeros of derivatives may have no
    memory before they are copied.

    Raises:
        DeclinedError: A tensor has no memory of its own, as a sparse one, or is of a class of
            its own, whose operators have other results.
    """
    if not isinstance(item, torch.Tensor):
        return item
    if item.layout is not torch.strided or item.__class__ not in _CLASSES:
        raise DeclinedError("a tensor is sparse, or of a class of its own")
    plain = item.as_subclass(torch.Tensor).contiguous().resolve_neg()
    if not plain.data_ptr():
        plain = plain.clone()
        if plain.numel() and not plain.data_ptr():
            raise DeclinedError("a tensor has no memory of its own")
    return plain


_CLASSES = (torch.Tensor, torch.nn.Parameter)


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor that lies in order."""
    return tensor.clone(memory_format=torch.contiguous_format)


def into_arguments(
    places: Mapping[int, int], given: Sequence[Any], made: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Return results of which some are arguments, which have the new values afterwards.

    Args:
        places: The position of the argument by that of the result.
        given: The arguments.
        made: The results, each in memory of its own or that of its argument.
    """
    results = list(made)
    for position, place in places.items():
        if results[position] is not given[place]:
            given[place].copy_(results[position])
            results[position] = given[place]
    return results


class DeclinedError(BackendError):
    """A delegate leaves one call to torch, and takes others."""


class Safe(TupleCalled):
    """A compiled delegate: calls take turns, inputs are contiguous, results are their own.

    Args:
        call: What was compiled.
        is_thread_safe: Whether calls need not take turns.
        limits: Of inputs that hold places in tensors, and of sizes. Other calls are torch's, which
            refuses places; runtimes count those before the first from the end, and OpenVINO gives
            0 for those behind the last. Means of nothing are 0 there, and ExecuTorch ends.
        places: The results that are given in the memory of arguments: the position of each
            argument by that of the result.

    Attributes:
        copied: Positions of results that have to be copied: they have the memory of something
            else, or lie in no order, as empty arrays of NumPy do.
    """

    def __init__(
        self,
        call: Delegated,
        is_thread_safe: bool,
        limits: Sequence[Limit | NothingEmpty] = (),
        places: Mapping[int, int] = MappingProxyType({}),
    ):
        self._call = tuple_call(call)
        self._call_plain = call.on_plain if isinstance(call, TupleCalled) else self._call
        self._turn = None if is_thread_safe else threading.Lock()
        self._limits = tuple(limits)
        self.places = places
        self._resident: dict[int, Any] = dict.fromkeys(places.values())
        self.copied: tuple[int, ...] = ()

    def on(self, given: tuple[Any, ...], /) -> Sequence[torch.Tensor]:
        """Run it on the arguments of a call.

        Raises:
            DeclinedError: It is given a place that torch refuses.
        """
        own = given
        for item in self._moving(given) if self.places else given:
            if not lies_in_order(item):
                given = tuple(map(_plain, given))
                break
        return self._run(self._call, given, own)

    def on_plain(self, given: tuple[Any, ...], /) -> Sequence[torch.Tensor]:
        """Run it on arguments whose tensors lie in order in memory of their own.

        Raises:
            DeclinedError: It is given a place that torch refuses.
        """
        if self._limits or self.places or self.copied:
            return self._run(self._call_plain, given, given)
        if self._turn is None:
            return self._call_plain(given)
        with self._turn:  # here, as in _run: a function more is a part of a small call
            return self._call_plain(given)

    def _run(
        self,
        call: Callable[[tuple[Any, ...]], Any],
        given: tuple[Any, ...],
        own: tuple[Any, ...],
    ) -> Sequence[torch.Tensor]:
        for limit in self._limits:
            if not limit.takes(given):
                raise DeclinedError(limit.reason)
        if self._turn is None:
            made = call(given)
        else:
            with self._turn:  # no interrupt comes between this and what releases it
                made = call(given)
        if self.places:
            made = into_arguments(self.places, own, made)
        if self.copied:
            made = list(made)
            for position in self.copied:
                made[position] = copy_of(made[position])
        return made

    def _moving(self, given: tuple[Any, ...]) -> list[Any]:
        """The arguments that have to be looked at: buffers are the same ones in each call.

        To look at a tensor costs more than a microsecond where a large model ran since.
        """
        resident = self._resident
        items = [t for i, t in enumerate(given) if i not in resident or resident[i] is not t]
        if len(items) > len(given) - len(resident):
            for i in resident:
                resident[i] = given[i] if given[i].is_contiguous() else None
        return items
