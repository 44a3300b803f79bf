"""Fingerprints of the members of a model: every call of torch that each makes, and its wiring.

Each call of a member is a record. Values have labels in the order in which a record meets them, so
that two members that do the same with other weights have equal records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TypeAlias, cast

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn
from torch.overrides import TorchFunctionMode

from torch_ir.frontend.gradients.recording import observer
from torch_ir.frontend.regions.replay import PLAIN, TORCH, ReplayedCalls
from torch_ir.torch_api import FakeTensorMode, pytree, storage_of, version_of
from torch_ir.torch_modes import without_torch_functions

_StandIns: TypeAlias = Mapping[int, Callable[[], torch.Tensor]]


@dataclass(eq=False)
class MemberCall:
    """One call of a member of a model.

    Attributes:
        path: The path of the member.
        kind: Its class.
        own: The name of each of its parameters, buffers and tensor attributes, by identity.
        parent: The record of the member that made the call; None for the model itself.
        given: The structure of the arguments, and their leaves.
        tokens: What it calls, as text, and the records of members that it calls.
        foreign: Tensors that it uses and is not given.
        origins: The label of each of the tensors from outside, by identity.
        taken: What it takes from outside, by label, and whether it writes that.
        results: The structure of the results, and their leaves.
        leaks: Whether a value that it makes, and does not give, is used after it.
        objects: Whether a call of torch is given an object that may be written.
    """

    path: str
    kind: type[nn.Module]
    own: dict[int, str]
    parent: MemberCall | None
    given: tuple[Any, list[Any]] = (None, [])
    tokens: list[str | MemberCall] = field(default_factory=list["str | MemberCall"])
    foreign: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    results: tuple[Any, list[Any]] = (None, [])
    leaks: bool = False
    objects: bool = False
    taken: dict[str, tuple[torch.Tensor, bool]] = field(
        default_factory=dict[str, tuple[torch.Tensor, bool]]
    )
    calls: int = 0
    values: int = 0
    outside: str = ""
    labels: dict[int, str] = field(default_factory=dict[int, str])
    origins: dict[int, str] = field(default_factory=dict[int, str])
    versions: list[tuple[torch.Tensor, int]] = field(
        default_factory=list[tuple[torch.Tensor, int]]
    )

    def label(self, tensor: torch.Tensor, version: int | None = None) -> str:
        """Return the label of a tensor; a new one says what tensor it is.

        Args:
            tensor: The tensor.
            version: That of the tensor when it was met, if not now.
        """
        known = self.labels.get(id(tensor)) or self.origins.get(id(tensor))
        if known is not None:
            return known
        if id(tensor) in self.own:
            label = f"own {self.own[id(tensor)]}"
        else:
            label = f"foreign {len(self.foreign)}"
            self.foreign.append(tensor)
        self.origins[id(tensor)] = label
        self.versions.append((tensor, version_of(tensor) if version is None else version))
        return label if label.startswith("own ") else f"{label} {_type(tensor)}"

    def met_in(self, caller: MemberCall) -> str:
        """Let the record of the caller meet what this one met; return its labels of the foreign.

        What a member has of its own is its caller's too, unless that is the model, which labels
        what it calls by path.
        """
        labels: list[str] = []
        for tensor, version in self.versions:
            origin = self.origins[id(tensor)]
            if origin.startswith("foreign "):
                labels.append(caller.label(tensor, version))
            elif origin.startswith("own ") and caller.path:
                caller.label(tensor, version)
        return f"{labels}"

    def new_label(self) -> str:
        """Return the label of a new value."""
        self.values += 1
        return f"value {self.values}"

    def digest(self, folded: frozenset[str] = frozenset()) -> str:
        """Return a hash of all that is called, without what is inside of folded members."""
        found = hashlib.sha256(self.kind.__qualname__.encode())
        for token in self.tokens:
            if isinstance(token, str):
                found.update(token.encode(errors="surrogatepass"))
            elif token.path in folded:
                found.update(b"folded")
            else:
                found.update(f"{token.outside} {token.digest(folded)}".encode())
            found.update(b"\n")
        return found.hexdigest()

    def difference(self, other: MemberCall) -> str:
        """Return the first call in which another record differs, and what it has instead."""
        for mine, theirs in zip_longest(self.tokens, other.tokens, fillvalue="nothing"):
            if isinstance(mine, MemberCall) and isinstance(theirs, MemberCall):
                if mine.digest() != theirs.digest():
                    return mine.difference(theirs)
            elif mine != theirs:
                texts = [t if isinstance(t, str) else t.path for t in (mine, theirs)]
                pairs = enumerate(zip(*texts, strict=False))
                start = max(next((i for i, (a, b) in pairs if a != b), 0) - 20, 0)
                return f"{texts[0]:.60} has {texts[1][start:]:.60} for {texts[0][start:]:.60}"
        return "its calls are the same, and its results are not"


def _type(tensor: torch.Tensor) -> str:
    strides = tensor.stride() if tensor.layout is torch.strided else tensor.layout
    return f"{tensor.dtype} {tuple(tensor.shape)} {strides} {tensor.device.type}"


class _WatchedValues(TorchFunctionMode):
    """What values of records are: by their labels, and who made them."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[MemberCall] = []
        self._makers: dict[int, MemberCall] = {}
        self._alive: list[object] = []  # an identity is one as long as the object lives

    def _token(self, value: Any, record: MemberCall) -> str:
        match value:
            case torch.Tensor():
                self._use(value)
                return f"%{record.label(value)}"
            case _ if isinstance(value, TORCH) or type(value) in PLAIN:
                return repr(value)
            case list() | tuple():
                items = [self._token(item, record) for item in cast(list[Any], value)]
                return f"{type(value).__name__}({', '.join(items)})"
            case dict():
                pairs = [(key, self._token(v, record)) for key, v in cast(Any, value).items()]
                return f"{pairs}"
            case slice():
                ends = (value.start, value.stop, value.step)
                return f"slice{[self._token(end, record) for end in ends]}"
            case np.ndarray() | np.generic() if value.dtype != object:
                array = np.asarray(value)
                record.objects |= isinstance(value, np.ndarray)  # what is made of it is its memory
                return f"{type(value)} {array.dtype} {array.shape} {array.tobytes().hex()}"
            case _:
                record.objects = True
                self._alive.append(value)
                return f"{type(value).__qualname__} {id(value)}"

    def _made(self, value: Any, record: MemberCall) -> str:
        """The results of a call, which are new values of the record, or some that it knows."""
        texts: list[str] = []
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, torch.Tensor):
                self._alive.append(leaf)
                record.calls += 1
                if id(leaf) not in record.origins and id(leaf) not in record.own:
                    if id(leaf) not in record.labels:
                        record.labels[id(leaf)] = record.new_label()
                    self._makers.setdefault(id(leaf), record)
                texts.append(f"{record.label(leaf)} {_type(leaf)}")
        return ", ".join(texts)

    def _rename(
        self,
        result: torch.Tensor,
        given: Sequence[torch.Tensor],
        record: MemberCall,
    ) -> None:
        """Give a result that is an argument, as a whole, and that argument one new label.

        Whether a cast to the same type gives its argument differs from run to run.
        """
        for tensor in given:
            if tensor is result or _place(tensor) == _place(result):
                label = record.new_label()
                record.labels[id(tensor)] = record.labels[id(result)] = label
                self._alive.append(result)
                if tensor is result:  # who reads it after the member reads what that makes
                    self._makers[id(result)] = record
                return

    def _use(self, tensor: torch.Tensor) -> None:
        """Note where a value is used that a finished member made and did not give."""
        maker = self._makers.get(id(tensor))
        while maker is not None and maker not in self.stack:
            if not any(leaf is tensor for leaf in maker.results[1]):
                maker.leaks = True
            maker = maker.parent


class Watch(_WatchedValues):
    """Records the calls of torch while a model runs.

    Args:
        stand_ins: Gives what stands for a tensor in calls, by the tensor's identity.
        mode: The mode of the tensors, where only the records are wanted: no call is made twice.

    Attributes:
        records: The records of each member, by path.
    """

    def __init__(
        self, stand_ins: _StandIns | None = None, mode: FakeTensorMode | None = None
    ) -> None:
        super().__init__()
        self._stand_ins = stand_ins or {}
        self._call = _call if mode is None else ReplayedCalls(mode).call
        self.records: dict[str, list[MemberCall]] = {}
        self._is_paused = False

    def __torch_function__(
        self,
        func: Any,
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Record a call."""
        if not self.stack or self._is_paused:
            return func(*args, **(kwargs or {}))
        record = self.stack[-1]
        if self._stand_ins:
            args, kwargs = _with_stand_ins(self._stand_ins, (args, kwargs))
        is_attribute = getattr(func, "__name__", "") == "__get__"
        result = func(*args, **(kwargs or {})) if is_attribute else None
        if is_attribute and not isinstance(result, torch.Tensor):
            return result  # what it gives shows in what follows
        given = self._token((args, kwargs or {}), record)
        result = result if is_attribute else _called(self._call, func, args, kwargs or {})
        if isinstance(result, torch.Tensor):
            given_tensors = [t for t in args if isinstance(t, torch.Tensor)]
            self._rename(result, given_tensors, record)
        record.tokens.append(f"{_name(func)}{given} -> {self._made(result, record)}")
        return result

    def applied(self, function: Any, args: Sequence[Any], run: Callable[..., Any]) -> Any:
        """Record a call of an autograd function, and what its forward calls."""
        if not self.stack or self._is_paused:
            return run(function, *args)
        record = self.stack[-1]
        name = f"{function.__module__}.{function.__qualname__} {id(function)}"
        with self.observing(False):
            if self._stand_ins:
                args = _with_stand_ins(self._stand_ins, args)
            record.tokens.append(f"{name}{self._token(args, record)}")
        result = run(function, *args)
        given = {id(arg) for arg in args}
        with self.observing(False):
            for leaf in pytree.tree_leaves(result):  # a trace gives others than forward does
                if isinstance(leaf, torch.Tensor) and id(leaf) not in given:
                    record.labels[id(leaf)] = record.new_label()
                    self._makers[id(leaf)] = record
            record.tokens.append(f"{name} -> {self._made(result, record)}")
        self._alive.append(function)
        return result

    def gave(self, gradients: Sequence[Any]) -> None:
        """Record the gradients that an autograd function defines."""
        if self.stack:
            with self.observing(False):
                self.stack[-1].tokens.append(f"gradients {self._token(gradients, self.stack[-1])}")

    @contextmanager
    def observing(self, is_on: bool) -> Generator[None]:
        """Record calls within a ``with`` block, or none."""
        before, self._is_paused = self._is_paused, not is_on
        try:
            yield
        finally:
            self._is_paused = before

    # -- members ----------------------------------------------------------------------------------

    @contextmanager
    def over(self, members: Mapping[str, nn.Module]) -> Generator[None]:
        """MemberCall the calls of members within a ``with`` block; the empty path is the model."""
        with ExitStack() as hooks:
            token = observer.set(self)
            hooks.callback(observer.reset, token)
            hooks.callback(self._abandon)
            for path, member in members.items():

                def begin(
                    module: nn.Module, args: Any, kwargs: Any, path: str = path, of: Any = member
                ) -> None:
                    with without_torch_functions():
                        own = own_tensors(of) if path else {}  # tracing swaps them
                        self._begin(MemberCall(path, type(of), own, None), (args, kwargs))

                def end(module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
                    with without_torch_functions():
                        self._end(result)

                before = member.register_forward_pre_hook(begin, with_kwargs=True)
                after = member.register_forward_hook(end, with_kwargs=True, prepend=True)
                hooks.callback(before.remove)
                hooks.callback(after.remove)
            yield

    def _abandon(self) -> None:
        """Stop recording where the model raised an error."""
        if self.stack:
            self.stack.clear()
            self.__exit__(None, None, None)

    def _begin(self, record: MemberCall, arguments: Any) -> None:
        parent = self.stack[-1] if self.stack else None
        if parent is None:
            self.__enter__()
        else:
            record.parent = parent
            record.outside = self._token(arguments, parent)
            parent.tokens.append(f"{record.path.removeprefix(parent.path)}{record.outside}")
            parent.tokens.append(record)
        leaves, spec = pytree.tree_flatten(arguments)
        record.given = (spec, leaves)
        for leaf in leaves:
            self._alive.append(leaf)
            if isinstance(leaf, torch.Tensor) and id(leaf) not in record.origins:
                record.origins[id(leaf)] = f"argument {len(record.origins)}"
                record.versions.append((leaf, version_of(leaf)))
                record.tokens.append(_type(leaf))
        record.tokens.append(f"{spec} {torch.is_grad_enabled()}{self._token(leaves, record)}")
        self.records.setdefault(record.path, []).append(record)
        self.stack.append(record)

    def _end(self, result: Any) -> None:
        record = self.stack.pop()
        leaves, spec = pytree.tree_flatten(result)
        record.results = (spec, leaves)
        self._alive.extend(leaves)
        outside = [id(leaf) in record.origins for leaf in leaves]
        record.tokens.append(f"return {spec}{self._token(leaves, record)}{outside}")
        for tensor, version in record.versions:
            record.taken[record.origins[id(tensor)]] = tensor, version_of(tensor) != version
        if record.parent is None:
            self.__exit__(None, None, None)
            return
        made = [self._given_back(leaf, record.parent) for leaf in leaves]
        record.parent.tokens.append(f"-> {made}")
        record.outside = record.met_in(record.parent)
        record.parent.calls += record.calls

    def _given_back(self, leaf: object, parent: MemberCall) -> str:
        """The label of the result of a member for its caller."""
        if not isinstance(leaf, torch.Tensor):
            return ""
        if id(leaf) in parent.origins or id(leaf) in parent.own:
            return parent.label(leaf)
        if id(leaf) not in parent.labels:
            parent.labels[id(leaf)] = parent.new_label()
        return parent.labels[id(leaf)]


def _with_stand_ins(stand_ins: _StandIns, arguments: Any) -> Any:
    def stand_in(tensor: torch.Tensor) -> torch.Tensor:
        return stand_ins.get(id(tensor), lambda: tensor)()

    return pytree.tree_map_only(torch.Tensor, stand_in, arguments)


def _call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return func(*args, **kwargs)


def _called(call: Any, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call torch; dropout of nothing gives what it gives where it is exported: strides show it.

    torch 2.13 exports a copy there, torch 2.14 the argument itself.
    """
    result = call(func, args, kwargs)
    is_kept = func in _DROPOUTS and args and result is args[0]
    is_in_place = is_kept and ((len(args) > 3 and args[3]) or kwargs.get("inplace"))
    if not is_kept or is_in_place:
        return result
    return torch.ops.aten.dropout.default.decompose(result, 0.0, False)


_DROPOUTS = (F.dropout, torch.dropout)
"""What torch has a rule of its own for where it exports; their kin give their argument."""


def meet(watch: Watch, tensor: torch.Tensor) -> None:
    """Note that the member that is being called uses a tensor."""
    watch.stack[-1].label(tensor)


def _name(func: Any) -> str:
    holder = getattr(func, "__self__", None)
    name = getattr(func, "__qualname__", None) or getattr(func, "__name__", None) or str(func)
    of = getattr(holder, "__name__", "") if holder is not None else ""
    return f"{getattr(func, '__module__', '')}.{of}.{name}"


def _place(tensor: torch.Tensor) -> Any:
    """Where a tensor lies; None where no storage tells."""
    if tensor.layout is not torch.strided:
        return object()
    return storage_of(tensor), tensor.storage_offset(), _type(tensor)


def own_tensors(member: nn.Module) -> dict[int, str]:
    """Return the path of each parameter, buffer and tensor attribute of a module, by identity."""
    found: dict[int, str] = {}
    for path, module in member.named_modules():
        attributes = vars(module)
        for holder in (attributes["_parameters"], attributes["_buffers"], attributes):
            for name, value in holder.items():
                if isinstance(value, torch.Tensor):
                    found.setdefault(id(value), f"{path}.{name}" if path else name)
    return found
