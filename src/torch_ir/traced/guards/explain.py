"""A call in words, and how two calls differ: why a function is traced once more."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import CodeType
from typing import Any

import torch

from torch_ir.frozen import Same
from torch_ir.ir.tensor import type_text
from torch_ir.torch_api import pytree
from torch_ir.traced.call_key import Token, plain_repr, value_token
from torch_ir.traced.guards.closure import Closure
from torch_ir.traced.modes import NAMES

Description = Mapping[str, str]
"""What a call is, by what can be told apart in it: an argument, a mode, a closed-over value."""

Given = tuple[tuple[Any, ...], dict[str, Any]]


def explain_call(
    function: Callable[..., Any],
    given: Given,
    state: Sequence[Any],
    executors: Sequence[str],
    closure: Closure,
) -> Description:
    """Return a call in words.

    Args:
        function: What is called.
        given: Its arguments.
        state: The value of each of torch's modes.
        executors: What runs it.
        closure: What the function closes over.
    """
    found: dict[str, str] = {"executor": ", ".join(executors)}
    found |= {name: str(value) for name, value in zip(NAMES, state, strict=True)}
    names: dict[int, str] = {}
    for path, leaf in leaves_of(function, given):
        if isinstance(leaf, torch.Tensor):
            first = names.setdefault(id(leaf), path)
            found[path] = _tensor(leaf) if first == path else f"the same tensor as {first}"
            if (position := closure.position_of(leaf)) is not None:
                found[path] += f", which is {closure.paths[position]}"
        else:
            found[path] = _value(leaf)
    for path, token in closure.tokens:
        key = f"{path} (closed over)"
        found[key] = f"{found[key]}; {_token(token)}" if key in found else _token(token)
    return found


def _value(leaf: Any) -> str:
    if isinstance(leaf, str | int | float) and not isinstance(leaf, Enum):
        return plain_repr(leaf)
    return repr(leaf if value_token(leaf) is not None else Same(leaf))


def leaves_of(function: Callable[..., Any], given: Given) -> list[tuple[str, Any]]:
    """Return each leaf of the arguments, under its parameter's name and its place in it."""
    args, kwargs = given
    try:
        named: Mapping[str, Any] = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # a builtin does not say what it takes
        named = {**{f"x{position}": value for position, value in enumerate(args)}, **kwargs}
    return [
        (f"{name}{pytree.keystr(path)}", leaf)
        for name, value in named.items()
        for path, leaf in pytree.tree_flatten_with_path(value)[0]
    ]


def differences(known: Description, call: Description) -> list[str]:
    """List the differences of two calls, one sentence each."""
    found: list[str] = []
    for name in {**known, **call}:
        before, now = known.get(name), call.get(name)
        if before is None:
            found.append(f"{name} is new: {now}")
        elif now is None:
            found.append(f"{name} is gone; it was {before}")
        elif before != now:
            found.append(f"{name} was {before:.120}, and is {now:.120}")
    return found


def _tensor(tensor: torch.Tensor) -> str:
    text = type_text(tensor)
    if tensor.layout is not torch.strided:
        return f"{text}, {tensor.layout}"
    parts = [text]
    if not tensor.is_contiguous():
        parts.append(f"strides {list(tensor.stride())}")
    if tensor.device.type != "cpu":
        parts.append(f"on {tensor.device}")
    if tensor.requires_grad:
        parts.append("requires a gradient")
    if type(tensor) is not torch.Tensor:
        parts.append(f"a {type(tensor).__name__}")
    return ", ".join(parts)


def _token(token: Token) -> str:
    kind, *rest = token
    match kind:
        case "tensor":
            described = rest[0]
            return ", ".join(map(str, described[1:]))
        case "function":
            code: CodeType = rest[0]
            return f"the function at {code.co_filename}:{code.co_firstlineno}"
        case str():
            return " ".join([kind, *map(repr, rest)])
        case _:
            values = [str(item) if kind in (float, complex) else repr(item) for item in rest]
            return values[0] if len(values) == 1 else f"{kind.__name__}({', '.join(values)})"
