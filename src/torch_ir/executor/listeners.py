"""Listeners, which see every node as it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from torch_ir.ir import OpNode


class Listener(Protocol):
    """Sees every node as it runs.

    The tensors are those that the program works with: a later node may write to them, so that
    what is kept has to be copied.
    """

    def will_run(self, node: OpNode, inputs: Sequence[torch.Tensor]) -> None:
        """Receive the tensors of ``node.inputs`` before a node runs."""
        ...

    def did_run(self, node: OpNode, outputs: Sequence[torch.Tensor]) -> None:
        """Receive the tensors that a node made, in the order of ``node.outputs``."""
        ...


class ListenerError(Exception):
    """Carries what a listener raised past those who explain what nodes raise."""


def guarded(nodes: Sequence[OpNode], tell: Callable[[OpNode, Any], None]) -> Callable[..., None]:
    """Wrap a listener's method for generated code, which calls it with a node's position."""

    def call(position: int, tensors: Sequence[torch.Tensor]) -> None:
        try:
            tell(nodes[position], tensors)
        except Exception as error:  # whatever it is, it is not the node's
            raise ListenerError from error

    return call


class Table:
    """A listener that keeps the results of every node, or of some.

    Args:
        names: The values to keep; None for all.
        stop_at: A node after which nothing more runs; None for the whole program.
        copy: Copies what is kept, where a later node may write to it.
    """

    def __init__(
        self,
        names: frozenset[str] | None,
        stop_at: str | None,
        copy: Callable[[torch.Tensor], torch.Tensor] | None,
    ):
        self.values: dict[str, torch.Tensor] = {}
        self._names = names
        self._stop_at = stop_at
        self._copy = copy

    def will_run(self, node: OpNode, inputs: Sequence[torch.Tensor]) -> None:
        """Ignore the inputs of a node."""

    def did_run(self, node: OpNode, outputs: Sequence[torch.Tensor]) -> None:
        """Keep the results that were asked for."""
        for meta, tensor in zip(node.outputs, outputs, strict=True):
            if self._names is None or meta.name in self._names:
                self.values[meta.name] = self._copy(tensor) if self._copy else tensor
        if node.name == self._stop_at:
            raise StopError


class StopError(Exception):
    """The node to stop at has run."""
