"""Attributes and buffers that a model changes while it is traced.

It may count its calls or fill a cache of its own: what runs next must not see that. What it sets a
buffer to is what its next call reads. torch.export writes such a tensor into the buffer where the
outermost module sets it, and drops it where a module inside does.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.nn.modules.module import register_module_buffer_registration_hook

from torch_ir.torch_api import pytree, storage_of

_Container: TypeAlias = "dict[Any, Any] | list[Any] | set[Any] | deque[Any]"
Copies: TypeAlias = "Callable[[list[torch.Tensor]], list[torch.Tensor]]"
_CONTAINERS = (dict, OrderedDict, defaultdict, list, set, deque)
_VALUES = (torch.Tensor, *_CONTAINERS, tuple, int, float, complex, str, bytes, type(None))
_OF_TORCH = frozenset(vars(nn.Module()))
"""What every module has: its parameters, buffers, modules and hooks."""


@contextmanager
def kept_attributes(
    model: nn.Module, *, but_objects: bool = False, copies: Copies | None = None
) -> Generator[None]:
    """Give a model its attributes again after a ``with`` block, and containers what they held.

    Containers stay the objects that they are, since several modules may hold one. Parameters,
    buffers and modules are not looked at.

    Args:
        model: The model.
        but_objects: Leave it new attributes that are objects of the user's classes: what takes
            them as arguments tells them by identity.
        copies: Makes the tensors that stand in the block for those which attributes and what they
            contain hold; without it these are there themselves, and what is written stays.

    Example:
        >>> class Counts(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.calls, self.seen = 0, []
        ...
        ...     def forward(self, x):
        ...         self.calls += 1
        ...         self.seen.append(x)
        ...
        >>> model = Counts()
        >>> with kept_attributes(model):
        ...     model("x")
        ...     print(model.calls, model.seen)
        1 ['x']
        >>> model.calls, model.seen
        (0, [])
    """
    attributes = [(vars(module), _own(vars(module))) for module in model.modules()]
    contents: dict[int, tuple[_Container, _Container]] = {}
    _hold(contents, [value for _, before in attributes for value in before.values()])
    try:
        if copies is not None:
            held = [holder for holder, _ in contents.values() if not isinstance(holder, set)]
            _replace([(facts, [*before]) for facts, before in attributes], held, copies)
        yield
    finally:
        for facts, before in attributes:
            for name, value in _own(facts).items():
                if name not in before and not (but_objects and not isinstance(value, _VALUES)):
                    del facts[name]
            facts.update(before)
        for container, before in contents.values():
            if not _is_same(container, before):
                container.clear()
                add = container.update if isinstance(container, dict | set) else container.extend
                cast("Callable[[Any], None]", add)(before)


def _own(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: facts[name] for name in facts.keys() - _OF_TORCH}


def _hold(contents: dict[int, tuple[_Container, _Container]], values: Iterable[Any]) -> None:
    """Note what containers hold, each once, also those in others."""
    left = [*values]
    while left:
        value = left.pop()
        if type(value) in _CONTAINERS and id(value) not in contents:
            contents[id(value)] = value, value.copy()
            left += value.values() if isinstance(value, dict) else value
        elif isinstance(value, tuple):
            left += tuple.__iter__(value)  # of a subclass, its own may raise or make others


def _replace(
    attributes: Iterable[tuple[dict[str, Any], list[str]]],
    containers: Iterable[dict[Any, Any] | list[Any] | deque[Any]],
    copies: Copies,
) -> None:
    """Put copies in the place of the tensors that attributes, containers and tuples hold."""
    places: list[tuple[Any, Any]] = [
        (facts, name) for facts, names in attributes for name in names
    ]
    for container in containers:
        keys = [*container] if isinstance(container, dict) else range(len(container))
        places += [(container, key) for key in keys]
    found: dict[int, torch.Tensor] = {}

    def swapped(value: Any, made: dict[int, torch.Tensor]) -> Any:
        if isinstance(value, torch.Tensor):
            found.setdefault(id(value), value)
            return made.get(id(value), value)
        if type(value) is not tuple:
            return value
        parts = tuple([swapped(part, made) for part in cast("tuple[Any, ...]", value)])
        return parts if made else value

    for holder, key in places:
        swapped(holder[key], {})
    made = dict(zip(found, copies([*found.values()]), strict=True))
    for holder, key in places:
        holder[key] = swapped(holder[key], made)


def _is_same(container: _Container, before: _Container) -> bool:
    """Whether a container holds the same objects, in the same order."""
    if isinstance(container, dict):
        items = [*container.items()], [*cast("dict[Any, Any]", before).items()]
        now, then = ([part for item in pairs for part in item] for pairs in items)
    else:
        now, then = [*container], [*before]
    return len(now) == len(then) and all(a is b for a, b in zip(now, then, strict=True))


# -- buffers --------------------------------------------------------------------------------------

Assigned: TypeAlias = "dict[tuple[nn.Module, str], torch.Tensor]"
"""The tensor that each buffer was before it was first set, by its module and name."""


@contextmanager
def assigned_buffers(model: nn.Module) -> Generator[Assigned]:
    """Note the buffers that a model sets within a ``with`` block.

    Example:
        >>> norm = nn.BatchNorm1d(2)
        >>> with assigned_buffers(norm) as assigned:
        ...     norm.running_mean = norm.running_mean + 1
        >>> [(name, before) for (_, name), before in assigned.items()]
        [('running_mean', tensor([0., 0.]))]
    """
    modules = {id(vars(module)["_buffers"]): module for module in model.modules()}
    assigned: Assigned = {}

    def note(module: nn.Module, name: str, value: torch.Tensor | None) -> None:
        held = vars(module)["_buffers"]  # what stands for a module in a trace has it too
        before = held.get(name)
        if id(held) in modules and before is not None and before is not value:
            assigned.setdefault((modules[id(held)], name), before)

    hook = register_module_buffer_registration_hook(note)  # pyright: ignore[reportArgumentType]  # torch takes None as the value itself
    try:
        yield assigned
    finally:
        hook.remove()


@contextmanager
def writing_assigned_buffers(model: nn.Module) -> Generator[None]:
    """Let a traced model end by writing what its modules have set buffers to.

    Results keep what the buffers were. Torch writes those of the outermost module again, from what
    they are set to last: each is set to what has been written, which is then itself.
    """
    with assigned_buffers(model) as assigned:

        def write(module: nn.Module, args: Any, result: Any) -> Any:
            before = dict(assigned)
            written = {storage_of(tensor) for tensor in before.values()}

            def apart(leaf: Any) -> Any:
                is_tensor = isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided
                return leaf.clone() if is_tensor and storage_of(leaf) in written else leaf

            given = pytree.tree_map(apart, result)
            held = {key: vars(key[0])["_buffers"] for key in before}
            new = {key: apart(held[key].get(key[1])) for key in before}
            for key, now in new.items():
                if _fits(now, before[key]):
                    done = before[key].copy_(now)
                    if key[0] is module:
                        setattr(module, key[1], done)
                    held[key][key[1]] = done
                elif now is not None and key[0] is not module:
                    _warn(key)
            return given

        hook = model.register_forward_hook(write)
        try:
            yield
        finally:
            hook.remove()


def _fits(now: torch.Tensor | None, before: torch.Tensor) -> bool:
    return now is not None and (now.shape, now.dtype) == (before.shape, before.dtype)


def _warn(key: tuple[nn.Module, str]) -> None:
    warnings.warn(
        f"{type(key[0]).__name__} sets its buffer {key[1]!r} to a tensor of another shape or "
        "dtype, which the program does not keep for its next call",
        stacklevel=2,
    )


_PLACE = ("stack_trace", "nn_module_stack")
"""Where torch notes the source line and the module of a node."""


def with_lines_of_assignments(exported: ExportedProgram) -> ExportedProgram:
    """Give each write of an assigned buffer the place of what is written, as torch does.

    Nothing else is taken: a write of the model's may have no line, too, and what it gives has the
    shape and dtype of what it writes to.
    """
    for node in exported.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        value = node.args[1]
        if not node.meta.get("stack_trace") and value.op != "placeholder":
            place = {key: value.meta[key] for key in _PLACE if value.meta.get(key)}
            node.meta = {**node.meta, **place}
    return exported
