"""Branches, loops and calls: what operators mean that take functions of the program.

A function takes and gives a list of values, tensors and numbers; ``step`` names the call, so that
random numbers in a body differ from one iteration to the next.
Source: torch's documentation of ``torch.cond``, ``torch.while_loop`` and of the operators in
``torch._higher_order_ops``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from torch_ir.errors import InvalidIRError
from torch_ir.semantics.dtypes import Array, rounded
from torch_ir.semantics.registry import denotation, denotes


class Body(Protocol):
    """A function of the program."""

    def __call__(self, values: Sequence[Any], step: str = "") -> list[Any]:
        """Its results, flattened."""
        ...


def truth(value: Any) -> bool:
    """Return whether a number, or the one element of a tensor, is not 0.

    Raises:
        InvalidIRError: The tensor has not one element.
    """
    if isinstance(value, np.ndarray) and value.size != 1:
        raise InvalidIRError(f"a tensor of shape {list(value.shape)} is not one truth value")
    return bool(np.asarray(value).reshape(()))


@denotes("higher_order.cond")
def cond(pred: Any, true_fn: Body, false_fn: Body, operands: Sequence[Any] = ()) -> list[Any]:
    """The results of one of two functions of the operands: the first where ``pred`` holds."""
    return true_fn(operands, "true") if truth(pred) else false_fn(operands, "false")


@denotes("higher_order.while_loop")
def while_loop(
    cond_fn: Body,
    body_fn: Body,
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any] = (),
    mutated_arg_indices: str = "",
) -> list[Any]:
    """The values carried when the condition no longer holds.

    ``carried ← body(carried, additional)`` for as long as ``cond(carried, additional)``.
    """
    carried, count = list(carried_inputs), 0
    while truth(cond_fn([*carried, *additional_inputs], f"{count}")[0]):
        carried = body_fn([*carried, *additional_inputs], f"{count}")
        count += 1
    return carried


@denotes("higher_order.scan")
def scan(
    combine_fn: Body, init: Sequence[Any], xs: Sequence[Array], additional_inputs: Sequence[Any]
) -> list[Any]:
    """The values carried at the end, and what each step gave, stacked along dimension 0.

    ``carried, yᵢ ← combine(carried, xsᵢ, additional)`` for each ``i`` along dimension 0 of xs,
    which has a size of 1 or more.
    """
    carried, given = list(init), list[list[Array]]()
    for index in range(_length(xs)):
        rows = [x[index] for x in xs]
        results = combine_fn([*carried, *map(np.asarray, rows), *additional_inputs], f"{index}")
        carried = results[: len(carried)]
        given.append(results[len(carried) :])
    return [*carried, *_stacked(given)]


@denotes("higher_order.map_impl")
def map_impl(f: Body, xs: Sequence[Array], pos_args: Sequence[Any] = ()) -> list[Any]:
    """``f(xsᵢ, pos_args)`` for each ``i`` along dimension 0 of xs (1 or more), stacked there."""
    return _stacked(
        [
            f([*(np.asarray(x[index]) for x in xs), *pos_args], f"{index}")
            for index in range(_length(xs))
        ]
    )


@denotes("higher_order.associative_scan")
def associative_scan(
    combine_fn: Body, xs: Sequence[Array], additional_inputs: Sequence[Any] = ()
) -> list[Any]:
    """``y₀ = xs₀``, ``yᵢ = combine(yᵢ₋₁, xsᵢ, additional)``, stacked along dimension 0."""
    results = [[np.asarray(x[0]) for x in xs]] if _length(xs) else []
    for index in range(1, _length(xs)):
        rows = [np.asarray(x[index]) for x in xs]
        results.append(combine_fn([*results[-1], *rows, *additional_inputs], f"{index}"))
    return _stacked(results)


def _length(xs: Sequence[Array]) -> int:
    lengths = {x.shape[0] if x.ndim else 0 for x in xs}
    if len(lengths) != 1 or 0 in lengths:
        raise InvalidIRError(f"a loop goes over one length, not {sorted(lengths)}")
    return lengths.pop()


def _stacked(rows: Sequence[Sequence[Array]]) -> list[Any]:
    return [np.stack(list(column)) for column in zip(*rows, strict=True)]


# -- calls ----------------------------------------------------------------------------------------


@denotes("higher_order.invoke_subgraph")
def invoke_subgraph(
    subgraph: Body, identifier: str | None = None, operands: Sequence[Any] = ()
) -> list[Any]:
    """The results of the function."""
    return subgraph(operands)


@denotes("higher_order.autograd_function")
def autograd_function(
    fwd: Body,
    bwd: Body,
    args: Sequence[Any] = (),
    saved: Sequence[int] = (),
    differentiable: Sequence[int] = (),
    wanted: Sequence[int] = (),
    once: bool = False,
) -> list[Any]:
    """The results of the function: gradients are no part of what it computes."""
    return fwd(args)


@denotes("higher_order.wrap_with_set_grad_enabled")
def wrap_with_set_grad_enabled(
    enable_grad: bool, wrapped_func: Body, args: Sequence[Any] = ()
) -> list[Any]:
    """The results of the function: gradients are no part of what it computes."""
    return wrapped_func(args)


@denotes("higher_order.wrap_with_autocast")
def wrap_with_autocast(
    device_type: str,
    dtype: Any,
    enabled: bool,
    cache_enabled: bool | None,
    wrapped_func: Body,
    args: Sequence[Any] = (),
) -> list[Any]:
    """The results of the function, where autocast is off; on, it makes other calls of them."""
    if enabled:
        raise InvalidIRError(
            "autocast changes the types of calls that are not written down",
            remedy="Decompose the program: that writes the conversions down.",
        )
    return wrapped_func(args)


@denotes("higher_order.tag_activation_checkpoint")
def tag_activation_checkpoint(gmod: Body, args: Sequence[Any] = (), **options: Any) -> list[Any]:
    """The results of the function: what is kept for its gradient is no part of them."""
    return gmod(args)


@denotes("higher_order.strict_mode")
def strict_mode(callable: Body, operands: Sequence[Any] = ()) -> list[Any]:
    """The results of the function."""
    return callable(operands)


@denotes("higher_order.out_dtype")
def out_dtype(op: str, output_dtype: np.dtype[Any], args: Sequence[Any] = ()) -> Any:
    """What ``op`` gives for its operands converted to the wider type first."""
    converted = [
        rounded(value, output_dtype) if isinstance(value, np.ndarray) else value for value in args
    ]
    return denotation(op).function(*converted)
