"""Which calls of torch have no meaning: neither their own nor that of what they are made of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_ir import IR, OpNode, TensorMeta
from torch_ir.debug.reference.denotation import Meanings
from torch_ir.errors import TorchIRError
from torch_ir.frontend.attributes import attribute_from_torch
from torch_ir.torch_api import operator_schema
from torch_samples import first_samples


def reason(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: Any) -> str:
    """Why a call has no meaning; empty if it has one."""
    named = (
        dict(zip([a.name for a in operator_schema(overload).arguments], args, strict=False))
        | kwargs
    )
    inputs: list[TensorMeta] = []
    operands: dict[str, Any] = {}
    attributes: dict[str, Any] = {}

    def put(value: Any) -> int | None:
        if value is None:
            return None
        inputs.append(_meta(f"x{len(inputs)}", value))
        return len(inputs) - 1

    for name, value in named.items():
        if isinstance(value, torch.Tensor):
            operands[name] = put(value)
        elif isinstance(value, list | tuple) and any(isinstance(i, torch.Tensor) for i in value):
            operands[name] = tuple(map(put, value))
        else:
            attributes[name] = attribute_from_torch(value, None)
    made = list(results) if isinstance(results, list | tuple) else [results]
    outputs = [
        _meta("y" if len(made) == 1 else f"y.{index}", value, "y", index)
        for index, value in enumerate(made)
        if isinstance(value, torch.Tensor)
    ]
    node = OpNode("y", str(overload), inputs, outputs, attributes, operands)
    ir = IR([node], inputs, outputs, [], model_name="call")
    meaning = Meanings(ir).of(node)
    return meaning if isinstance(meaning, str) else ""


def _meta(name: str, value: torch.Tensor, producer: str | None = None, i: int = 0) -> TensorMeta:
    return TensorMeta(name, tuple(value.shape), str(value.dtype)[6:], producer, i)


class Undenoted(TorchDispatchMode):
    """Collects the overloads that are called and have no meaning, with the reason."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.found: dict[str, str] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        results = func(*args, **(kwargs or {}))
        name = str(func)
        if name not in self.seen and name.startswith("aten."):
            self.seen.add(name)
            try:
                said = reason(func, args, kwargs or {}, results)
            except TorchIRError as error:
                said = error.message
            if said:
                self.found[name] = said
        return results


def of_samples(operators: Iterable[Any], count: int, *, backward: bool) -> Undenoted:
    """The calls of the first samples of torch's own tests, with their gradients."""
    mode = Undenoted()
    for operator in operators:
        grad = backward and operator.supports_autograd
        if not operator.supports_dtype(torch.float32, "cpu"):
            continue
        for sample in first_samples(operator, torch.float32, count, requires_grad=grad):
            with contextlib.suppress(RuntimeError, ValueError, TypeError, IndexError), mode:
                made = tree_leaves(operator(sample.input, *sample.args, **sample.kwargs))
                ends = [t for t in made if getattr(t, "requires_grad", False)]
                if grad and ends:
                    torch.autograd.backward([end.abs().sum() for end in ends])
    return mode
