"""Mend what traces of torch get wrong, in every version so far or in an older one.

A trace takes torch's word for the types of results, and goes on with them. So nothing behind it
could mend a program, and a fault is mended for whatever runs in the process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch._decomp.decompositions
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.fx import proxy
from torch.fx.experimental import symbolic_shapes

from torch_ir.torch_versions import torch_is

State = tuple[torch.Tensor, torch.Tensor]


def mend_torch() -> None:
    """Mend what is wrong in this version."""
    fakes: Any = fake_impls.op_implementations_dict
    fakes[torch.ops.aten._pack_padded_sequence.default] = _packed
    if torch_is("2.13"):
        return
    written: Any = torch._decomp.decompositions
    written.one_layer_lstm = _with_states_of_two_dimensions(written.one_layer_lstm)
    kinds: Any = proxy._create_arg_bypass  # pyright: ignore[reportPrivateUsage]  # torch has no public name
    kinds[torch.Generator] = _held


def _packed(
    mode: Any, operator: Any, values: torch.Tensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed sequences and their batch sizes, which are integers; data decides both lengths.

    The first is the sum of the lengths of sequences, the second the greatest of them.
    """
    del batch_first  # both of its first two dimensions become one
    env = mode.shape_env
    if env is None or not env.allow_dynamic_output_shape_ops:
        raise DynamicOutputShapeException(operator)
    rows, batches = env.create_unbacked_symint(), env.create_unbacked_symint()
    for size in (rows, batches):
        symbolic_shapes._constrain_range_for_size(size, min=1)  # pyright: ignore[reportPrivateUsage]  # no sequence is empty; torch has no public name
    return values.new_empty((rows, *values.shape[2:])), lengths.new_empty((batches,))


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
