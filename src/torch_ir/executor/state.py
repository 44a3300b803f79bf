"""The buffers that a program writes: their values, and whose turn it is to change them."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import torch

from torch_ir.errors import ExecutionError
from torch_ir.ir import IR
from torch_ir.ir.queries import external_keys, op_types
from torch_ir.ops.variants import IN_PLACE_VIEWS


class State:
    """Holds the buffers that a program writes, from one run to the next.

    Runs of a program that has some take turns. Where the last run failed between two writes, the
    buffers are half written, and no other run begins before they are reset.

    Args:
        ir: The program.
        payload: The tensors that it is given, by the names that nodes use; never changed.

    Attributes:
        tensors: The buffers, by the names that nodes use; tied ones are one tensor.
        turn: The lock that a run holds; None where there are no buffers.
    """

    def __init__(self, ir: IR, payload: Mapping[str, torch.Tensor]):
        self.tensors = _first_values(ir, payload)
        self.turn = threading.RLock() if self.tensors else None
        self._first = payload
        self._is_torn = False
        self._is_saved = False  # whether gradients may have saved the memory of a buffer
        self._reshaped = self.tensors if changes_shapes(ir) else {}

    @contextmanager
    def in_turn(self) -> Generator[None]:
        """Hold the turn: yield when the runs that have begun before are done."""
        if self.turn is None:
            yield
        else:
            with self.turn:
                yield

    def require_outside(self) -> None:
        """Check that no run is under way in this thread, which has read what it has yet to write.

        Raises:
            ExecutionError: One is.
        """
        if self.turn is not None and self.turn._is_owned():  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # by which Condition asks any lock; typeshed lacks it
            raise ExecutionError(
                "the program is called within a call of it, and both would write its buffers",
                remedy="Compile the program once more for calls within a call, which then has "
                "buffers of its own.",
            )

    def copies(self) -> dict[str, torch.Tensor]:
        """Return a copy of every buffer as it is now, by the names that nodes use."""
        with self.in_turn():
            return {name: tensor.clone() for name, tensor in self.tensors.items()}

    def reset(self) -> None:
        """Give every buffer its first value again."""
        with self.in_turn():
            self._is_torn = True  # until all have them
            with torch.no_grad():
                for name, tensor in self.tensors.items():
                    first = self._first[name]
                    if self._is_saved or tensor.shape != first.shape:
                        like = tensor if tensor.shape == first.shape else first
                        memory = torch.empty_like(like)
                        tensor.set_(memory.untyped_storage(), 0, memory.shape, memory.stride())
                    tensor.copy_(first)
            self._is_saved = False
            self._is_torn = False

    def tear(self) -> None:
        """Note that a run has failed between two writes."""
        self._is_torn = bool(self.tensors)

    def require_whole(self) -> None:
        """Check that the last run has left the buffers as a run may find them.

        Raises:
            ExecutionError: It has failed between two writes, or given one another shape.
        """
        for name, tensor in self._reshaped.items():
            before, now = [*self._first[name].shape], [*tensor.shape]
            if now != before:
                raise ExecutionError(
                    f"the last call gave %{name} the shape {now}, and the program was traced "
                    f"for {before}",
                    remedy="Call reset() to start again with first values, or extract the model "
                    "again: with such a buffer it is another program.",
                )
        if self._is_torn:
            raise ExecutionError(
                "the buffers are half written: the last call failed between two writes",
                remedy="Call reset() to start again with their first values.",
            )

    def detach(self) -> None:
        """End a run that autograd recorded: gradients are those of one call."""
        self._is_saved = True
        for tensor in self.tensors.values():
            if tensor.requires_grad:
                tensor.detach_()


def _first_values(ir: IR, payload: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copy each buffer that is or may be written; a tied one once, under all its names."""
    keys = written_buffers(ir)
    copies = {
        # a program may show parts of a constant that it writes, by their places in row-major order
        key: payload[name]
        .detach()
        .clone(
            memory_format=torch.contiguous_format if key in ir.constants else torch.preserve_format
        )
        for name, key in keys.items()
    }
    return {name: copies[key] for name, key in keys.items()}


def written_buffers(ir: IR) -> dict[str, str]:
    """Return the keys of the buffers that a program writes or may write, by all their names."""
    external, targets = external_keys(ir), {mutation.target for mutation in ir.mutations}
    is_written = ir.aliases.is_written
    keys = {key for name, key in external.items() if name in targets or is_written(name)}
    return {name: key for name, key in external.items() if key in keys}


def changes_shapes(ir: IR) -> bool:
    """Return whether a program may give one of its tensors another shape, in place."""
    return not IN_PLACE_VIEWS.keys().isdisjoint(op_types(ir))
