"""Dimensions that may vary, on the command line: ``x:0=batch:2..64``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

FORM = "INPUT:DIMENSION=NAME[:LOW..HIGH], such as x:0=batch:2..64"


@dataclass(frozen=True, slots=True)
class DynamicSpec:
    """One ``--dynamic``.

    Attributes:
        parameter: A parameter of the model's ``forward``.
        dimension: The number of one of its dimensions.
        name: A name; dimensions of one name have one size.
        lower: The smallest size, or None.
        upper: The largest size, or None.
    """

    parameter: str
    dimension: int
    name: str
    lower: int | None
    upper: int | None


def dynamic_of(value: str) -> DynamicSpec:
    """Read ``INPUT:DIMENSION=NAME[:LOW..HIGH]``; either end of the range may be left out.

    Raises:
        BadParameter: It has another form.

    Example:
        >>> spec = dynamic_of("x:0=batch:2..64")
        >>> spec.parameter, spec.dimension, spec.name, spec.lower, spec.upper
        ('x', 0, 'batch', 2, 64)
    """
    match = re.fullmatch(
        r"([A-Za-z_]\w*):(\d{1,3})=([A-Za-z_]\w*)(?::(\d{0,18})\.\.(\d{0,18}))?", value
    )
    if match is None:
        raise click.BadParameter(f"{value!r} is not {FORM}")
    lower, upper = [int(end) if end else None for end in match.group(4, 5)]
    if lower is not None and upper is not None and lower >= upper:
        raise click.BadParameter(f"{value!r}: {lower}..{upper} leaves nothing to vary")
    return DynamicSpec(match[1], int(match[2]), match[3], lower, upper)


def dynamic_shapes(
    specs: Sequence[DynamicSpec], model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the ``dynamic_shapes`` argument of ``torch.export``; None if nothing varies.

    Args:
        specs: The dimensions that vary.
        model: The module that is exported.
        args: Positional arguments.
        kwargs: Keyword arguments.

    Raises:
        UsageError: A parameter is not given or no tensor, a dimension is not there, or one name
            has two ranges.
    """
    if not specs:
        return None
    import inspect

    import torch

    from torch_ir.errors import did_you_mean

    given = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    dimensions: dict[str, tuple[DynamicSpec, Any]] = {}
    shapes: dict[str, Any] = dict.fromkeys(given)
    for spec in specs:
        tensor = given.get(spec.parameter)
        if not isinstance(tensor, torch.Tensor):
            hint = did_you_mean(spec.parameter, given) or f"The inputs are {', '.join(given)}."
            raise click.UsageError(f"--dynamic: {spec.parameter!r} is not a tensor input. {hint}")
        if spec.dimension >= tensor.dim():
            raise click.UsageError(
                f"--dynamic: {spec.parameter!r} has {tensor.dim()} dimensions, "
                f"none has the number {spec.dimension}"
            )
        made = torch.export.Dim(spec.name, min=spec.lower, max=spec.upper)
        first, dimension = dimensions.setdefault(spec.name, (spec, made))
        if (first.lower, first.upper) != (spec.lower, spec.upper):
            raise click.UsageError(f"--dynamic: the name {spec.name!r} has two ranges")
        shapes[spec.parameter] = {**(shapes[spec.parameter] or {}), spec.dimension: dimension}
    return shapes
