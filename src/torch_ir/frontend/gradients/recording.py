"""Autograd functions in a trace: forward and backward as the bodies of one call."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, track_tensor_tree
from torch.nn.modules._functions import BackwardHookFunction
from torch.utils.checkpoint import CheckpointFunction

from torch_ir.frontend.gradients.autograd_function import (
    CallWithGradient,
    Gradient,
    autograd_function,
)
from torch_ir.torch_api import (
    SYMBOLIC_TYPES,
    SingleLevelFunction,
    draws,
    is_inexact,
    pytree,
    requires_grad,
    version_of,
)

_autograd: Any = torch.autograd
_outer: ContextVar[Recording | None] = ContextVar("_outer", default=None)
"""The call whose backward is being traced, through which second gradients may pass."""


class Observer(Protocol):
    """Sees the calls of autograd functions, and of torch in their forward."""

    def applied(self, function: Any, args: Sequence[Any], run: Callable[..., Any]) -> Any:
        """Return what ``run`` gives for a function and its arguments."""
        ...

    def gave(self, gradients: Sequence[Any]) -> None:
        """Record what a backward gives."""
        ...

    def observing(self, is_on: bool) -> AbstractContextManager[None]:
        """See calls of torch within a ``with`` block, or none."""
        ...


applying: ContextVar[Any] = ContextVar("applying", default=None)
"""The autograd function that is applied for a recording."""
observer: ContextVar[Observer | None] = ContextVar("observer", default=None)
"""Who sees what autograd functions call, in a trace or not."""


trying: ContextVar[bool] = ContextVar("trying", default=False)
"""Whether the formula of a gradient is tried, whose errors eager may never see."""


def observed(is_on: bool) -> AbstractContextManager[None]:
    """Show calls of torch within a ``with`` block: forward's alone are the model's own."""
    found = observer.get()
    return nullcontext() if found is None else found.observing(is_on)


class _NotTranslated(Exception):  # noqa: N818  # a signal, not an error
    """The function does what the bodies of a call cannot say."""


@dataclass
class _Context:
    """What a function is given as ``ctx``; what it saves stays as it was traced."""

    needs_input_grad: tuple[bool, ...]
    saved_tensors: tuple[Any, ...] = ()
    constant: tuple[Any, ...] = ()
    written: tuple[Any, ...] = ()
    materializes: bool = True

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Ignore what forward mode would need."""

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.constant = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        self.written = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self.materializes = value


@dataclass
class Recording:
    """One call of an autograd function in a trace.

    Attributes:
        cls: The function.
        args: What it is given.
        everywhere: Gradients are wanted of all floating-point arguments, not only of those that
            require them while they are traced.
        reason: Why its backward is not in the trace; None if it is.
        once: Its gradients have no gradients.
        tracer: What traces it, if anything does.
        graph: The graph of the trace.
        middle: The last node of forward.
    """

    cls: Any
    args: tuple[Any, ...]
    everywhere: bool
    reason: Exception | None = None
    once: bool = False
    tracer: Any = None
    graph: Any = None
    middle: Any = None
    made: list[Any] = field(default_factory=list[Any])
    cotangents: list[Any] = field(default_factory=list[Any])
    gradients: dict[int, Any] = field(default_factory=dict[int, Any])

    def run(self) -> Any:
        """Call the function, and replace what that records by one node if that can be done."""
        outer = _outer.get()
        is_any = self.everywhere or outer is not None
        wanted = [requires_grad(a) or (is_any and _may_require(a)) for a in self.args]
        if not ((outer or torch.is_grad_enabled()) and any(wanted)):
            with observed(True):
                return _applied(self.cls, *self.args)
        mode: Any = get_proxy_mode()
        is_written_out = self.cls is CheckpointFunction and any(map(requires_grad, self.args))
        self.context = _Context(tuple(wanted))
        kind = type(self.cls.__name__, (_TracedFormula,), {})
        if mode is None:  # an observer wants to know what a trace will have
            with observed(is_written_out):
                return _applied(*((self.cls,) if is_written_out else (kind, self)), *self.args)
        self.tracer, self.graph = mode.tracer, mode.tracer.graph
        if is_written_out:
            return _written_out(self)
        start = _last(self.graph)
        result = _applied(kind, self, *self.args)
        if self.reason is None:
            try:
                return self._outlined(start, result)
            except _NotTranslated as reason:
                self.reason = reason
        if outer is not None:
            outer.once, self.reason = True, None
        return result

    # -- the function, without gradients ----------------------------------------------------------

    def traced(self) -> Any:
        """Call forward, and backward on cotangents as they may come."""
        given = [arg for arg in self.args if isinstance(arg, torch.Tensor)]
        versions = [*map(version_of, given)]
        with observed(True):
            result = _called_forward(self.cls, self.context, self.args)
        items = result if isinstance(result, tuple) else (result,)
        if not self.context.written:
            same = {*map(id, given)}
            items = tuple([i.view_as(i) if id(i) in same else i for i in items])
        self.made = [item for item in items if isinstance(item, torch.Tensor)]
        tracked = [(tensor, self.node_of(tensor)) for tensor in (*given, *self.made)]
        self.middle = None if self.graph is None else _last(self.graph)
        token = trying.set(True)
        try:
            self._require_plain(items)
            with observed(True):
                self._backward()
            if versions != [*map(version_of, given)]:
                raise _NotTranslated("it writes to its arguments")
        except Exception as error:  # noqa: BLE001  # the user's code, which eager may never run
            self.reason = error
            for tensor, node in tracked:
                if node is not None:
                    self.track(tensor, node)
            if self.graph is not None:
                _erase([*_between(self.middle, _last(self.graph))])
        finally:
            trying.reset(token)
        return items if isinstance(result, tuple) else items[0]

    def _require_plain(self, items: Sequence[Any]) -> None:
        tensors = [leaf for leaf in pytree.tree_leaves(items) if isinstance(leaf, torch.Tensor)]
        if issubclass(self.cls, BackwardHookFunction):
            raise _NotTranslated("hooks are registered with it")
        if self.context.written:
            raise _NotTranslated("it marks arguments as dirty")
        if len(tensors) != len(self.made) or len({*map(id, tensors)}) != len(tensors):
            raise _NotTranslated("its results are no tuple of different tensors")
        if not self.context.materializes and len(self.differentiable) > 1:
            raise _NotTranslated("it is told which of its results have no cotangent")

    @property
    def differentiable(self) -> tuple[int, ...]:
        """The positions among the tensors of the result of those that have gradients."""
        constant = {*map(id, self.context.constant)}
        made = enumerate(self.made)
        return tuple([i for i, t in made if id(t) not in constant and is_inexact(t)])

    def _backward(self) -> None:
        positions = self.differentiable
        self.cotangents = [torch.empty_like(self.made[position]) for position in positions]
        versions = [*map(version_of, self.cotangents)]
        known = dict(zip(positions, self.cotangents, strict=True))
        given = [
            torch.zeros_like(tensor)
            if i not in known and self.context.materializes
            else known.get(i)
            for i, tensor in enumerate(self.made)
        ]
        token = _outer.set(self)
        try:
            with _no_accumulation(), _no_autocast():
                found = _pulled_back(self.cls, self.context, given)
        finally:
            _outer.reset(token)
        if (seen := observer.get()) is not None:
            seen.gave(found)
        if versions != [*map(version_of, self.cotangents)]:
            raise _NotTranslated("its backward writes to what it is given")
        pairs = zip(self.context.needs_input_grad, found, strict=False)
        wanted = [(i, gradient) for i, (flag, gradient) in enumerate(pairs) if flag]
        self.gradients = {i: gradient for i, gradient in wanted if gradient is not None}
        if len(found) < len(self.args) or not self.gradients:
            raise _NotTranslated("its backward gives no gradients")

    # -- the graph --------------------------------------------------------------------------------

    def own_node(self, tensor: Any) -> fx.Node:
        """The node of a traced tensor."""
        if (found := self.node_of(tensor)) is None:
            raise _NotTranslated("it uses a tensor that is not traced")
        return found

    def node_of(self, tensor: Any) -> fx.Node | None:
        """Return the node of a tensor, or None if it is not traced."""
        slot: Any = self.tracer and get_proxy_slot(tensor, self.tracer, None)
        return None if slot is None else slot.proxy.node

    def _outlined(self, start: fx.Node, result: Any) -> Any:
        """Make two bodies of the nodes after ``start``, and one call of them."""
        root, name = self.tracer.root, self.cls.__name__
        results = [*map(self.own_node, self.made)]
        cotangents = [*map(self.own_node, self.cotangents)]
        gradients = [*map(self.own_node, self.gradients.values())]
        forward = _inner(root, start, self.middle)
        after = _inner(root, self.middle, _last(self.graph))
        last = [node for node in after if node not in cotangents]
        backward = _needed(last, gradients)
        saved = [n for n in _taken(backward, gradients) if n not in cotangents]
        inside = {*forward}
        results += [n for n in saved if n in inside and n not in results]
        arguments = [self.args[position] for position in self.gradients]
        operands = [*map(self.own_node, arguments)]
        others = [*_taken(forward, results), *(n for n in saved if n not in results)]
        operands += [node for node in dict.fromkeys(others) if node not in operands]
        if not {*operands}.isdisjoint({*forward, *cotangents, *backward}):
            raise _NotTranslated("it gives what its backward computes")
        fwd = _body(root, name, forward, operands, results)
        bwd = _body(root, f"{name}_backward", backward, [*saved, *cotangents], gradients)
        known = [*operands, *results]
        gradient = Gradient(
            fx.Interpreter(root.get_submodule(bwd)).run,
            saved=[known.index(node) for node in saved],
            differentiable=[*self.differentiable],
            wanted=[*range(len(arguments))],
            once=self.once
            or hasattr(self.cls.backward, "__wrapped__")
            or any(map(_switches, last)),
        )
        _erase([*forward, *cotangents, *last])

        def called(*values: Any) -> list[Any]:
            del values
            return _recorded_call(self, (fwd, bwd), gradient, operands, results)

        values = [*arguments, *(node.meta["val"] for node in operands[len(arguments) :])]
        for node, value in zip(operands, values, strict=True):
            self.track(value, node)
        made = iter(_applied(CallWithGradient, called, gradient, *values))
        items = result if isinstance(result, tuple) else (result,)
        items = tuple([next(made) if isinstance(i, torch.Tensor) else i for i in items])
        return items if isinstance(result, tuple) else items[0]

    def track(self, value: Any, node: fx.Node) -> None:
        """Let a traced tensor be what a node gives."""
        track_tensor_tree(value, fx.Proxy(node, self.tracer), constant=None, tracer=self.tracer)


def _recorded_call(
    recording: Recording,
    bodies: Sequence[str],
    gradient: Gradient,
    operands: Sequence[fx.Node],
    results: Sequence[fx.Node],
) -> list[Any]:
    """Record the call; what it gives, as new traced tensors."""
    named = ("nn_module_stack", "stack_trace", "torch_fn", "custom")
    place = {key: recording.middle.meta[key] for key in named if key in recording.middle.meta}
    held = [recording.graph.get_attr(path) for path in bodies]
    options = {key: value for key, value in gradient._asdict().items() if key != "bwd"}
    call = recording.graph.call_function(autograd_function, (*held, *operands), options)
    made = [node.meta["val"] for node in results]
    for node in (*held, call):
        node.meta = dict(place)
    call.meta["val"] = tuple(made)
    for position, value in enumerate(made):
        item = recording.graph.call_function(operator.getitem, (call, position))
        item.meta = dict(place)
        recording.track(value, item)
    return made


def replaced_by(recording: Recording, tensor: torch.Tensor) -> bool:
    """Run, and let what comes later see the result in place of the tensor.

    Nothing may have used it whose gradient would pass by.
    """
    mode: Any = get_proxy_mode()
    recording.tracer = mode.tracer
    node = recording.node_of(tensor)
    if node is None or not all(_is_constant(user.meta.get("val")) for user in node.users):
        return False
    made = recording.run()
    if recording.reason is not None or made is tensor:
        return False
    recording.track(tensor, recording.own_node(made))
    return True


def _written_out(recording: Recording) -> Any:
    """Call once what a reentrant checkpoint computes twice."""
    function, keeps_state, *args = recording.args
    start, given = _last(recording.graph), {*map(id, args)}
    with observed(True):
        result = function(*args)
    items = result if isinstance(result, tuple) else (result,)
    items = tuple([i.view_as(i) if id(i) in given and _is_tensor(i) else i for i in items])
    if any(_is_tensor(i) and is_inexact(i) and not i.requires_grad for i in items):
        recording.reason = _NotTranslated(
            "eager lets results that depend on nothing require gradients"
        )
    elif not keeps_state and any(map(draws, _between(start, _last(recording.graph)))):
        recording.reason = _NotTranslated("its backward draws other numbers than its forward")
    if recording.reason is not None:
        kind = type(recording.cls.__name__, (_Lost,), {})
        items = tuple([_applied(kind, i) if _is_tensor(i) else i for i in items])
    return items if isinstance(result, tuple) else items[0]


class _TracedFormula(torch.autograd.Function):
    """Runs a function; gradients pass through its formula as it is traced."""

    @staticmethod
    def forward(ctx: Any, recording: Recording, *args: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # torch passes what apply is given
        result = recording.traced()
        ctx.recording = recording
        constant = [t for i, t in enumerate(recording.made) if i not in recording.differentiable]
        ctx.mark_non_differentiable(*constant)
        ctx.mark_dirty(*recording.context.written)
        ctx.set_materialize_grads(recording.context.materializes)
        return result

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # as above
        recording = ctx.recording
        return (None, *_pulled_back(recording.cls, recording.context, cotangents))


class _Lost(torch.autograd.Function):
    """Marks a value whose gradient the trace does not say."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]  # torch passes what apply is given
        return value.view_as(value)


def _inner(root: Any, start: fx.Node, end: fx.Node) -> list[fx.Node]:
    """The nodes after ``start``, up to ``end``, that become part of a body.

    Tensors that the graph holds, and numbers computed outside, are handed to it.
    """
    found: list[fx.Node] = []
    inside: set[fx.Node] = set()
    for node in _between(start, end):
        held = getattr(root, str(node.target), None)
        is_tensor = node.op == "get_attr" and isinstance(held, torch.Tensor)
        is_number = isinstance(node.meta.get("val"), SYMBOLIC_TYPES)
        if not is_tensor and not (is_number and inside.isdisjoint(node.all_input_nodes)):
            found.append(node)
            inside.add(node)
    return found


def _body(
    root: Any,
    name: str,
    nodes: Sequence[fx.Node],
    given: Sequence[fx.Node],
    made: Sequence[fx.Node],
) -> str:
    """Add a graph of some nodes to what the trace holds; return its name there.

    Gradients are off in it anyway: where they are switched says nothing.
    """
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in given:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in nodes:
        if not _switches(node):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple([copies[node] for node in made]))
    graph.eliminate_dead_code()
    names = (f"{name}{i or ''}" for i in count())
    free = next(name for name in names if not hasattr(root, name))
    root.register_module(free, _BodyWithBodies(root, graph))
    return free


class _BodyWithBodies(fx.GraphModule):
    """A body that keeps its own bodies where torch deletes modules that the graph above calls not.

    They are the functions that a backward applies.
    """

    def __delattr__(self, name: str) -> None:
        if name not in self._modules:
            super().__delattr__(name)


def _pulled_back(cls: Any, context: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
    """What the backward of a function gives, by whichever of its names the function has it."""
    is_vjp = cls.backward is torch.autograd.Function.backward
    found = (cls.vjp if is_vjp else cls.backward)(context, *cotangents)
    return found if isinstance(found, tuple) else (found,)


def _applied(function: Any, *args: Any) -> Any:
    """Apply a function as torch does, without another recording."""
    token = applying.set(function)
    try:
        return super(SingleLevelFunction, function).apply(*args)
    finally:
        applying.reset(token)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_constant(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not is_inexact(value)


def _called_forward(cls: Any, context: _Context, args: Sequence[Any]) -> Any:
    """Call the forward of a function, in either of its two styles."""
    if cls.setup_context is SingleLevelFunction.setup_context:
        return cls.forward(context, *args)
    result = cls.forward(*args)
    cls.setup_context(context, args, result)
    return result


def _may_require(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and is_inexact(value)


def _switches(node: fx.Node) -> bool:
    return node.target is torch._C._set_grad_enabled  # pyright: ignore[reportPrivateUsage]  # what torch traces


def _last(graph: fx.Graph) -> fx.Node:
    return next(iter(reversed(graph.nodes)))


def _between(start: fx.Node, end: fx.Node) -> Iterator[fx.Node]:
    """Yield the nodes after one, up to another."""
    while start is not end:
        start = start.next
        yield start


def _taken(nodes: Sequence[fx.Node], results: Iterable[fx.Node]) -> list[fx.Node]:
    """The nodes that some nodes take, or give as results, and are not among them."""
    inner = {*nodes}
    taken = [given for node in nodes for given in node.all_input_nodes]
    return [given for given in dict.fromkeys([*taken, *results]) if given not in inner]


def _needed(nodes: Sequence[fx.Node], results: Iterable[fx.Node]) -> list[fx.Node]:
    """Those among some nodes on which results depend, or that write."""
    needed, found = {*results}, list[fx.Node]()
    for node in reversed(nodes):
        if node in needed or node.is_impure():
            needed.update(node.all_input_nodes)
            found.insert(0, node)
    return found


@contextmanager
def _no_autocast() -> Generator[None]:
    """Switch autocast off, as where backward runs; a trace does not see it."""
    devices = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    for device in devices:
        torch.set_autocast_enabled(device, False)
    try:
        yield
    finally:
        for device in devices:
            torch.set_autocast_enabled(device, True)


@contextmanager
def _no_accumulation() -> Generator[None]:
    """Refuse that backward stores gradients in ``.grad``, which is lost in a trace."""
    run: Any = _autograd._engine_run_backward

    def checked(*args: Any, **kwargs: Any) -> Any:
        if kwargs["accumulate_grad"]:
            raise _NotTranslated("its backward stores gradients in .grad")
        return run(*args, **kwargs)

    _autograd._engine_run_backward = checked
    try:
        yield
    finally:
        _autograd._engine_run_backward = run


def _erase(nodes: Sequence[fx.Node]) -> None:
    for node in reversed(nodes):
        node.graph.erase_node(node)
