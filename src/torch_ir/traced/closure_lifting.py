"""Tracing modes: closed-over tensors become inputs, and what cannot be traced is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import torch
import torch.fx.traceback as fx_traceback
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode

from torch_ir.errors import TorchIRError, TraceError
from torch_ir.frontend.gradients.recording import trying
from torch_ir.ir.values import dtype_name
from torch_ir.kernel_switches import kernel_switches
from torch_ir.torch_api import LEAVE_VMAP, UNKNOWN_RESULT, pytree
from torch_ir.torch_modes import is_in_forward_level, is_transforming
from torch_ir.traced.call_key import TENSORS
from torch_ir.traced.guards.random_numbers import RandomNumbers
from torch_ir.traced.refusals import (
    at_user,
    error_of,
    require_switches,
    require_traceable,
    source_line,
    user_frame,
)
from torch_ir.traced.transforms import is_of_a_transform


class BelowAutogradNeeded(Exception):  # noqa: N818  # a signal, not an error
    """The function takes derivatives in a way that only a trace below autograd records."""


REFUSALS = (TorchIRError, BelowAutogradNeeded, GuardOnDataDependentSymNode, *UNKNOWN_RESULT)
"""Errors that eager does not raise."""

_DATA: Any = torch.Tensor.data
_DATA_OF: Any = _DATA.__get__
_DETACH = (torch.Tensor.detach, torch.detach, _DATA_OF, torch.ops.aten.detach.default)
_DETACH_IN_PLACE = (torch.Tensor.detach_, torch.detach_)
_RECORDED = (torch.ops.aten.detach.default, torch.ops.aten.alias.default)
"""What a call of detach is recorded as below autograd: torch 2.14 writes alias."""
_COMPARED = (
    torch.ops.aten.is_same_size.default,
    torch.ops.aten._has_same_storage_numel.default,
)

OF_THE_FUNCTION = "torch_ir_of_the_function"
"""The key under which a node of the trace says that the function itself detaches."""


class ClosureLifter(TorchFunctionMode):
    """Puts traced tensors in the place of those that a function closes over.

    Args:
        table: What stands for each closed-over tensor, by the identity of the tensor.
        random: What is told of generators that are drawn from.
        below_autograd: Whether operators are recorded below autograd, where derivatives have been
            written out.
    """

    hooked: Callable[[], bool] = bool
    """Whether a tensor among those has a hook on its gradient; asked where one is taken."""

    def __init__(self, table: Mapping[int, Any], random: RandomNumbers, *, below_autograd: bool):
        super().__init__()
        self.table = table
        self.random = random
        self.below_autograd = below_autograd
        self.switches = kernel_switches()
        self.last = ""
        self.refused: list[tuple[Exception, str]] = []
        self.made: dict[int, torch.Tensor] = {}

    def note(self, error: Exception) -> None:
        """Note that a call is refused: the function may catch the error, which eager never raises.

        It is kept with the last tensor that was taken. Where a formula of a gradient is tried, the
        gradient is what is lost.
        """
        if not self.refused and not trying.get():
            self.refused.append((error, self.last))

    def replaced(self, value: Any) -> Any:
        """Return the traced tensor that stands for a tensor."""
        if type(value) not in TENSORS or id(value) in self.made or is_of_a_transform(value):
            return value
        if id(value) not in self.table:
            if not value.untyped_storage().resizable():
                return value  # it shows memory of NumPy's, whose arrays are watched
            error = TraceError(
                f"the function uses a tensor {_short(value)} that is found neither in its "
                f"arguments nor in what it closes over{at_user()}",
                remedy="Give it as an argument, or let a variable or an attribute hold it.",
            )
            self.note(error)
            raise error
        return self.table[id(value)]

    def _replaced_in(self, leaf: Any) -> Any:
        """Replace tensors in a leaf of torch's pytree, which knows no slices and no subclasses."""
        if isinstance(leaf, torch.Tensor):
            return self.replaced(leaf)
        if type(leaf) is slice:
            return slice(*map(self._replaced_in, (leaf.start, leaf.stop, leaf.step)))
        if isinstance(leaf, list | tuple):
            items = [self._replaced_in(item) for item in cast(Sequence[Any], leaf)]
            if all(new is old for new, old in zip(items, cast(Sequence[Any], leaf), strict=True)):
                return cast(Any, leaf)
            return items if isinstance(leaf, list) else tuple(items)
        return leaf

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch's on traced tensors."""
        if torch.compiler.is_compiling():  # a body of torch.cond, which has no closures any more
            return func(*args, **(kwargs or {}))
        try:
            require_traceable(func, sys._getframe(1))  # pyright: ignore[reportPrivateUsage]  # who asks
            require_switches(self.switches)
            given: Any = pytree.tree_map(self._replaced_in, (args, dict(kwargs or {})))
            result = self._call(func, *given)
        except REFUSALS as error:
            self.note(error)
            raise
        if args and result is given[0][0] and result is not args[0]:
            return args[0]  # written in place: it is the same tensor for those who hold it
        return result

    def _call(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
        if not self.below_autograd and (is_transforming() or is_in_forward_level()):
            if func is LEAVE_VMAP:  # in vain, but the level must not stay in this thread
                return func(*args, **kwargs)
            raise BelowAutogradNeeded
        if func in _DETACH_IN_PLACE and self.below_autograd:
            raise TraceError(
                "the function detaches in place, and takes derivatives of what is traced below "
                f"autograd{at_user()}",
                remedy="Use detach().",
            )
        tensor = next((a for a in args if isinstance(a, torch.Tensor)), None)
        if tensor is not None:
            self.last = f"{_short(tensor)}"
        if func is torch._C._set_grad_enabled and self.below_autograd and not args[0]:  # pyright: ignore[reportPrivateUsage]  # torch.no_grad calls it
            self.switched = True
        if func is torch.autograd.grad:
            self._require_no_hooks()
        generators = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Generator)]
        _set_location()
        if func is torch.Tensor.tolist:
            return _numbers(args[0])
        with _of_the_function() if func in _DETACH else nullcontext():
            if getattr(func, "__module__", None) == torch.nn.init.__name__:
                self.switched |= self.below_autograd
                with torch.no_grad():  # as each of them does, where no mode is told of it
                    result = _called(func, args, kwargs)
            else:
                result = _called(func, args, kwargs)
        self.random.drawn_from(generators)
        if type(result) in TENSORS:  # with values that are known, as from an array of NumPy's
            self.made[id(result)] = result
        if func is torch.autograd.grad and not kwargs.get("create_graph"):
            with _of_the_function():
                return tuple([None if r is None else r.detach() for r in result])
        return result

    def _require_no_hooks(self) -> None:
        if self.hooked():
            raise TraceError(
                "the function takes derivatives, and a tensor that it is given or closes over has "
                f"a hook on its gradient, which no program calls{at_user()}",
                remedy="Remove the hook, or call its function inside on the gradient.",
            )

    switched = False


def _called(func: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
    """Call a function, whose errors are those of untraced calls."""
    try:
        return func(*args, **kwargs)
    except REFUSALS:
        raise
    except Exception as error:
        _forget_failed()
        raise error_of(func, args, kwargs, error) from error


def _forget_failed() -> None:
    """Remove the call that failed from the trace: the function may go on without it."""
    mode = get_proxy_mode()
    if mode is None:
        return
    for node in reversed([*mode.tracer.graph.nodes]):
        if node.op != "call_function" or node.users or "val" in node.meta:
            return
        mode.tracer.graph.erase_node(node)


@contextmanager
def _of_the_function() -> Generator[None]:
    """Mark what is traced as called by the function: below autograd, autograd detaches too."""
    with fx_traceback.annotate({OF_THE_FUNCTION: True}):
        yield


def without_saving(module: GraphModule) -> None:
    """Remove, in place, what autograd adds to a trace of operators below it.

    It detaches a result that a formula needs when it is saved, and once more when it is used.
    Gradients of the trace pass there all the same, as the formula is part of it; they stop where
    the function detaches. Forward derivatives compare sizes.
    """
    for node in list(module.graph.nodes):
        if node.target in _COMPARED and not node.users:
            module.graph.erase_node(node)
        elif node.target in _RECORDED and _is_of_the_function(node):
            node.target = torch.ops.aten.detach.default
        elif _is_saving(node) and _is_saving(saved := node.args[0]):
            node.replace_all_uses_with(saved.args[0])
            module.graph.erase_node(node)
            if not saved.users:
                module.graph.erase_node(saved)


def _is_saving(node: Any) -> bool:
    return (
        isinstance(node, torch.fx.Node)
        and node.target in _RECORDED
        and not _is_of_the_function(node)
    )


def _is_of_the_function(node: torch.fx.Node) -> bool:
    return OF_THE_FUNCTION in node.meta.get("custom", {})


def _numbers(tensor: torch.Tensor) -> Any:
    """The elements as nested lists of numbers that are read when the program runs."""
    if tensor.dim() == 0:
        return tensor.item()
    return [_numbers(part) for part in tensor.unbind()]


def _short(tensor: torch.Tensor) -> str:
    return f"{dtype_name(tensor.dtype, strict=False)}{list(tensor.shape)}"


def _set_location() -> None:
    """Tell torch the user's line that operators come from."""
    frame = user_frame(sys._getframe(3))  # pyright: ignore[reportPrivateUsage]  # cheaper than the whole stack
    if frame is None:
        return
    code = frame.f_code
    line = source_line(code.co_filename, frame.f_lineno)
    text = f'File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}\n    {line}\n'
    fx_traceback.current_meta["stack_trace"] = text
