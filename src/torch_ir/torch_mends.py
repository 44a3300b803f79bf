"""Mend what traces of an older torch get wrong.

A trace takes torch's word for the types of results, and goes on with them. So nothing behind it
could mend a program, and a fault is mended for whatever runs in the process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch._decomp.decompositions
from torch.fx import proxy

from torch_ir.torch_versions import torch_is

State = tuple[torch.Tensor, torch.Tensor]


def mend_torch() -> None:
    """Mend what is wrong in a version before 2.13."""
    if torch_is("2.13"):
        return
    written: Any = torch._decomp.decompositions
    written.one_layer_lstm = _with_states_of_two_dimensions(written.one_layer_lstm)
    kinds: Any = proxy._create_arg_bypass  # pyright: ignore[reportPrivateUsage]  # torch has no public name
    kinds[torch.Generator] = _held


def _held(tracer: Any, generator: torch.Generator) -> torch.fx.Node:
    """A generator as an attribute of the graph, as torch 2.13 holds it."""
    name = tracer.tensor_attrs.get(generator)
    if name is None:
        name = tracer.tensor_attrs[generator] = tracer.get_fresh_qualname("_generator")
        setattr(tracer.root, name, generator)
    return tracer.create_node("get_attr", name, (), {})


def _with_states_of_two_dimensions(
    layer: Callable[..., tuple[torch.Tensor, State]],
) -> Callable[..., tuple[torch.Tensor, State]]:
    """One layer of an LSTM whose states keep no dimension of steps, whatever the batch size."""

    @wraps(layer)
    def mended(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, State]:
        out, (hidden, cell) = layer(*args, **kwargs)
        return out, (hidden.view(hidden.shape[-2:]), cell.view(cell.shape[-2:]))

    return mended
