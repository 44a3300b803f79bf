"""A member of a model as one operator that says only what it gives."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from torch_ir.frontend.regions.fingerprint import MemberCall, Watch, meet
from torch_ir.frontend.regions.own_weights import set_aside
from torch_ir.torch_api import pytree
from torch_ir.torch_modes import without_torch_functions

NAMESPACE = "torch_ir_region"
_LIBRARY = torch.library.Library(NAMESPACE, "DEF")
_LIBRARY.define("call(Tensor[] operands, Tensor(a!)[] written, str results) -> Tensor[]")


def _results(
    operands: Sequence[torch.Tensor], written: Sequence[torch.Tensor], results: str
) -> list[torch.Tensor]:
    return [
        torch.empty_strided(shape, strides, dtype=getattr(torch, dtype), device=device)
        for shape, strides, dtype, device in json.loads(results)[1]
    ]


torch.library.impl(_LIBRARY, "call", "CompositeExplicitAutograd")(_results)
torch.library.register_fake(f"{NAMESPACE}::call", _results, lib=_LIBRARY)


class ChangedCallError(Exception):
    """A member is called with other arguments than when it was recorded."""


@dataclass(frozen=True)
class Site:
    """A call of a member that is one operator in the model's trace.

    Attributes:
        record: What the member does.
        sources: Where each tensor that it takes is found: the argument, a name of its own, or the
            name of a parameter or buffer of the model; by label.
        made: The positions of the results that the member makes.
        unseen: The labels of its parameters that the operator is not given.
    """

    record: MemberCall
    sources: Mapping[str, str]
    made: tuple[int, ...]
    unseen: frozenset[str] = frozenset()

    @property
    def operands(self) -> list[str]:
        """The labels of what the operator is given."""
        return [label for label in self.record.taken if label not in self.unseen]

    @property
    def unseen_paths(self) -> dict[str, str]:
        """The label of each parameter that the operator is not given, by its path in the model."""
        return {f"{self.record.path}.{self.sources[label]}": label for label in self.unseen}

    @property
    def told(self) -> str:
        """What the operator is told: the path of the member, and the types of its results."""
        leaves = self.record.results[1]
        return json.dumps([self.record.path, [_described(leaves[index]) for index in self.made]])

    def call(
        self, model: nn.Module, member: nn.Module, args: Any, kwargs: Any, watch: Watch
    ) -> Any:
        """Call the operator in place of the member; the watch meets what it finds elsewhere.

        Raises:
            ChangedCallError: The arguments are others.
        """
        with without_torch_functions():
            arguments, told = self._arguments((args, kwargs)), self.told

        def find(label: str) -> torch.Tensor:
            source = self.sources[label]
            if label in arguments:
                return arguments[label]
            return attribute(member if label.startswith("own ") else model, source)

        record = self.record
        written = [find(label) for label, (_, is_written) in record.taken.items() if is_written]
        operands = [find(label) for label in self.operands]
        for label, tensor in zip(self.operands, operands, strict=True):
            if label.startswith("foreign "):
                meet(watch, tensor)
        made = torch.ops.torch_ir_region.call(operands, written, told)
        spec, leaves = record.results
        places = dict(zip(self.made, made, strict=True))
        results = [
            places[index]
            if index in places
            else find(record.origins[id(leaf)])
            if isinstance(leaf, torch.Tensor)
            else leaf
            for index, leaf in enumerate(leaves)
        ]
        return pytree.tree_unflatten(results, spec)

    def _arguments(self, given: Any) -> dict[str, torch.Tensor]:
        """The tensors of the call by label, where it is made as it was recorded."""
        leaves, spec = pytree.tree_flatten(given)
        known_spec, known = self.record.given
        if spec != known_spec:
            raise ChangedCallError(self.record.path)
        arguments: dict[str, torch.Tensor] = {}
        labels: dict[int, str] = {}
        for leaf, before in zip(leaves, known, strict=True):
            if not isinstance(leaf, torch.Tensor) or not isinstance(before, torch.Tensor):
                if leaf is not before and (type(leaf) is not type(before) or leaf != before):
                    raise ChangedCallError(self.record.path)
                continue
            label = self.record.origins[id(before)]
            is_other = labels.setdefault(id(leaf), label) != label
            if is_other or _described(leaf) != _described(before):
                raise ChangedCallError(self.record.path)
            arguments[label] = leaf
        return arguments


def attribute(holder: nn.Module, name: str) -> Any:
    """Return what a module has under a path of attributes."""
    found: Any = holder
    for part in name.split(".") if name else ():
        found = getattr(found, part)
    return found


def _described(tensor: torch.Tensor) -> list[Any]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return [list(tensor.shape), list(tensor.stride()), dtype, tensor.device.type]


@contextmanager
def opaque(model: nn.Module, sites: Mapping[str, Site], watch: Watch) -> Generator[None]:
    """Let members be one operator each within a ``with`` block; the watch sees no such call."""
    members = {path: model.get_submodule(path) for path in sites}
    before = {path: vars(member).get("forward") for path, member in members.items()}
    try:
        for path, member in members.items():
            vars(member)["forward"] = _forward(sites[path], model, member, watch)
        with set_aside(model, sites.values()):
            yield
    finally:
        for path, member in members.items():
            if before[path] is None:
                del vars(member)["forward"]
            else:
                vars(member)["forward"] = before[path]


def _forward(site: Site, model: nn.Module, member: nn.Module, watch: Watch) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        with watch.observing(False):
            return site.call(model, member, args, kwargs, watch)

    return forward


@contextmanager
def without_hooks(member: nn.Module) -> Generator[None]:
    """Let a member have no hooks within a ``with`` block: its caller runs them around it."""
    facts = vars(member)
    before = {name: facts[name] for name in ("_forward_pre_hooks", "_forward_hooks")}
    facts.update({name: OrderedDict[int, Any]() for name in before})
    try:
        yield
    finally:
        facts.update(before)


class Alone(nn.Module):
    """A model of one member, under the path that it has, that takes its tensor arguments.

    Args:
        member: The member.
        site: A call of it.
        made: The positions of the results that are wanted.
    """

    def __init__(self, member: nn.Module, site: Site, made: tuple[int, ...]):
        super().__init__()
        self._site = site
        self._made = made
        self._path = site.record.path
        for label, (tensor, _) in site.record.taken.items():
            if label.startswith("foreign "):
                path, _, name = site.sources[label].rpartition(".")
                holder = _holder(self, path)
                if isinstance(tensor, nn.Parameter):
                    holder.register_parameter(name, tensor)
                else:
                    holder.register_buffer(name, tensor)
        path, _, name = self._path.rpartition(".")
        _holder(self, path).add_module(name, member)

    @property
    def arguments(self) -> list[str]:
        """The labels of the arguments that are tensors."""
        return [label for label in self._site.record.taken if label.startswith("argument ")]

    @property
    def example_inputs(self) -> tuple[torch.Tensor, ...]:
        """The tensors that the call was given."""
        taken = self._site.record.taken
        return tuple([taken[label][0] for label in self.arguments])

    @property
    def stand_ins(self) -> dict[int, Callable[[], torch.Tensor]]:
        """What stands for tensors that the member finds elsewhere, by their identity."""
        site = self._site
        return {
            id(tensor): partial(attribute, self, site.sources[label])
            for label, (tensor, _) in site.record.taken.items()
            if label.startswith("foreign ")
        }

    def label_of(self, key: str) -> str | None:
        """Return the label of a parameter, a buffer or another tensor under a path, if any."""
        own = f"own {key.removeprefix(f'{self._path}.')}"
        labels = [own] if key.startswith(f"{self._path}.") else []
        for label, source in self._site.sources.items():
            labels += [label] if label.startswith("foreign ") and source == key else []
        return next((label for label in labels if label in self._site.sources), None)

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Call the member; return what it makes."""
        record = self._site.record
        given = dict(zip(self.arguments, tensors, strict=True))
        spec, leaves = record.given
        leaves = [
            given[record.origins[id(leaf)]] if isinstance(leaf, torch.Tensor) else leaf
            for leaf in leaves
        ]
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        results = pytree.tree_leaves(attribute(self, self._path)(*args, **kwargs))
        return [results[index] for index in self._made]


def _holder(model: nn.Module, path: str) -> nn.Module:
    """The module at a path, made where there is none."""
    for part in path.split(".") if path else ():
        if not hasattr(model, part):
            model.add_module(part, nn.Module())
        model = model.get_submodule(part)
    return model
