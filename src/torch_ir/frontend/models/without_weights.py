"""Modules whose parameters have no values, and all whose other tensors have theirs."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

_Known = dict[int, tuple[weakref.ref[torch.Tensor], nn.Parameter]]
_KNOWN: ContextVar[_Known | None] = ContextVar("parameters that have lost their values")


@contextmanager
def without_weights() -> Generator[None]:
    """Build modules whose parameters are on the meta device within a ``with`` block.

    A parameter that a module registers loses its values; buffers and tensors that are plain
    attributes are computed as ever: a program that is extracted from such a model has them as
    constants, and runs with the checkpoint alone. Tied parameters stay tied, and each keeps its
    class and ``requires_grad``. No memory is touched for a parameter that is made empty, as those
    of torch's layers are, and one for which there is no room is on meta at once. Initializers do
    nothing. Other threads build modules as ever. A lazy parameter stays lazy.

    Example:
        >>> with without_weights():
        ...     layer = nn.BatchNorm1d(3)
        >>> layer.weight.is_meta, layer.running_var
        (True, tensor([1., 1., 1.]))
    """
    token = _KNOWN.set({})
    hook = register_module_parameter_registration_hook(cast(Any, _without_values))
    try:
        with _WithoutValues():
            yield
    finally:
        hook.remove()
        _KNOWN.reset(token)


class _WithoutValues(TorchFunctionMode):
    """Makes empty tensors that are larger than what may be allocated on the meta device.

    Initializers of tensors on meta are not called: models of many layers have thousands.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call torch."""
        given = dict(kwargs or {})
        if _is_initializer(func) and given["tensor"].is_meta:
            return given["tensor"]
        try:
            return func(*args, **given)
        except RuntimeError as error:
            if func is not torch.empty or "allocate memory" not in str(error):
                raise
            return func(*args, **{**given, "device": "meta"})


def _is_initializer(func: Any) -> bool:
    """Whether torch passes on a function as an initializer: its own, or what stands for it."""
    name = getattr(func, "__name__", "")
    return func is not None and func is vars(nn.init).get(name)


def _without_values(
    module: nn.Module, name: str, parameter: nn.Parameter | None
) -> nn.Parameter | None:
    """The parameter that is registered in place of one."""
    known = _KNOWN.get(None)
    if known is None or parameter is None or parameter.is_meta or is_lazy(parameter):
        return parameter
    seen = known.get(id(parameter))
    if seen is not None and seen[0]() is parameter:
        return seen[1]
    made = nn.Parameter(torch.empty_like(parameter, device="meta"), parameter.requires_grad)
    made.__class__ = type(parameter)
    vars(made).update(vars(parameter))
    known[id(parameter)] = weakref.ref(parameter), made
    return made
