"""Registers the operators of the Backend dialect with torch; importing this module does it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch  # noqa: TID253  # this module is imported where torch runs these operators

from torch_ir.dialects.backend.binding import bind_pattern_to_op, has_kernel
from torch_ir.dialects.backend.quantized import PATTERNS, example
from torch_ir.dialects.backend.schemas import BACKEND_SCHEMAS
from torch_ir.dialects.executorch import executorch_first
from torch_ir.torch_api import overload
from torch_ir.torch_modes import plain_tensors

PRIMS = torch.library.Library("executorch_prims", "FRAGMENT")
QUANTISED = torch.library.Library("quantized_decomposed", "FRAGMENT")

_PRIMS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name)
    for name in ("add", "mul", "sub", "floordiv", "gt", "lt", "ge", "le", "eq")
}


def _register() -> None:
    executorch_first()
    for op_type, schema in BACKEND_SCHEMAS.items():
        namespace, packet, kind = op_type.split(".")
        known = overload(namespace, packet, kind)
        text = schema.partition("::")[2]
        if namespace == "executorch_prims":
            if known is None or not has_kernel(known):
                PRIMS.define(text)
                PRIMS.impl(f"{packet}.{kind}", _PRIMS[packet], "CompositeExplicitAutograd")
        else:
            name = f"{packet}.{kind}"
            target = text if known is None else text.partition("(")[0]
            bind_pattern_to_op(QUANTISED, target, example_inputs=example(name))(PATTERNS[name])


with plain_tensors():  # the first use of an operator may be while something is traced
    _register()
