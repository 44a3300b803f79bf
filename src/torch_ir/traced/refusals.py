"""Refusals of what a program cannot say: each tells the line and the remedy."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn.parameter import Buffer, Parameter

from torch_ir.errors import Raised, TraceError, attempt, first_line
from torch_ir.frontend.meta import fake_tensor_mode
from torch_ir.kernel_switches import kernel_switches
from torch_ir.torch_api import (
    FakeTensor,
    OpOverload,
    ShapeEnv,
    draws,
    extent_of,
    pytree,
    requires_grad,
    storage_of,
    version_of,
)
from torch_ir.torch_modes import outside_of_traces
from torch_ir.traced.call_key import value_token
from torch_ir.traced.guards.captured_names import is_library
from torch_ir.traced.modes import NAMES, modes

_OUTSIDE = "Do it outside the traced function."
_TORCH = str(Path(torch.__file__).parent)
_TENSOR_CODE = (f"{_TORCH}/_tensor.py", f"{_TORCH}/overrides.py")
_MOST_ELEMENTS = 1 << 22
"""Calls on larger tensors are not made again to learn what eager says of them."""

_GRAD: Any = torch.Tensor.grad
_DATA: Any = torch.Tensor.data
_CALLED: dict[Any, tuple[str, str]] = {
    torch.Tensor.backward: (
        "stores gradients in .grad",
        "Use torch.autograd.grad, and return the gradients.",
    ),
    torch.Tensor.data_ptr: ("reads an address", _OUTSIDE),
    _GRAD.__get__: ("reads .grad", "Use torch.autograd.grad."),
    _GRAD.__set__: ("sets .grad", "Return the gradient."),
    _DATA.__set__: ("sets .data", "Use copy_ under torch.no_grad()."),
    **dict.fromkeys(
        (torch.Tensor.numpy, torch.Tensor.__array__), ("gives a tensor to NumPy", _OUTSIDE)
    ),
    **dict.fromkeys(
        (torch.Tensor.apply_, torch.Tensor.map_),
        ("calls Python for each element of a tensor", "Use functions of torch."),
    ),
}
"""What is refused whoever calls it."""
_READS: dict[Any, str] = {
    getattr(torch.Tensor, name).__get__: name for name in ("_version", "grad_fn", "is_leaf")
} | {
    torch.Tensor.storage_offset: "storage_offset()",
    torch.Tensor.untyped_storage: "the storage",
    torch.Tensor.storage: "the storage",
    torch.Tensor.__repr__: "the text (print, str, repr, format)",
    torch.Tensor.__format__: "the text (print, str, repr, format)",
}
"""What tells tensors apart that are of one type, and so is in no key."""


# -- where -------------------------------------------------------------------------------------


def user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of code that belongs to no installed package."""
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def at_user(error: BaseException | None = None) -> str:
    """Describe the user's line that an error passed, or else the current one, for a message."""
    if error is not None:
        found = user_line(error.__traceback__)
        return "" if found is None else f" (at {found[0]}:{found[1]})"
    frame = user_frame(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]  # cheaper than the whole stack
    return "" if frame is None else f" (at {frame.f_code.co_filename}:{frame.f_lineno})"


def user_line(traceback: TracebackType | None) -> tuple[str, int, str] | None:
    """Return file, line and source of the innermost user frame that an error passed."""
    found = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not is_library(code.co_filename):
            found = code.co_filename, traceback.tb_lineno
        traceback = traceback.tb_next
    return None if found is None else (*found, source_line(*found))


def source_line(file: str, line: int) -> str:
    """Read a line of a source file, or nothing where it cannot be read."""
    import linecache

    return linecache.getline(file, line).strip()


# -- calls of torch's functions -------------------------------------------------------------------


def require_traceable(func: Callable[..., Any], frame: FrameType | None) -> None:
    """Refuse a call that no program can say.

    Args:
        func: What is called.
        frame: Who calls it; libraries may ask for more than the user's own code.
    """
    if func in _CALLED:
        what, remedy = _CALLED[func]
        raise TraceError(f"the function {what}, which cannot be traced{at_user()}", remedy=remedy)
    if func in _READS:
        while frame is not None and frame.f_code.co_filename in _TENSOR_CODE:
            frame = frame.f_back
        if frame is not None and not is_library(frame.f_code.co_filename):
            raise TraceError(
                f"the function reads {_READS[func]} of a tensor, on which a program cannot "
                f"depend{at_user()}",
                remedy=_OUTSIDE,
            )


_WRITTEN_ALL_THE_SAME = "Inplace update to inference tensor outside InferenceMode"


def error_of(
    func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception
) -> Exception:
    """Return what a call raises untraced, which may be of another type than the traced one's.

    The call is made on zeros. It is a refusal where zeros go through, and where torch raises the
    error after it has written.
    """
    if _WRITTEN_ALL_THE_SAME in str(error):
        return TraceError(
            f"the function writes outside of inference mode to a tensor that was made in it, "
            f"which torch does and then refuses{at_user()}",
            remedy="Call it under torch.inference_mode(), or give it a copy (clone).",
        )
    leaves = pytree.tree_leaves((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    is_called = any(map(callable, leaves))
    if is_called or not all(type(n) is int for t in tensors for n in (*t.shape, *t.stride())):
        return error
    if sum(map(extent_of, tensors)) > _MOST_ELEMENTS:
        return error
    with outside_of_traces():
        given: Any = pytree.tree_map_only(torch.Tensor, _zeros_like, (args, dict(kwargs)))
        made = attempt(func, *given[0], **given[1])
    if isinstance(made, Raised):
        return made.error.with_traceback(None)
    return TraceError(
        f"torch cannot trace {getattr(func, '__name__', func)}: {first_line(error)}{at_user()}",
        remedy=_OUTSIDE,
    )


def _zeros_like(tensor: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode(tensor.is_inference()):
        memory = torch.zeros(extent_of(tensor), dtype=tensor.dtype, device=tensor.device)
        made = memory.as_strided(tensor.shape, tensor.stride())
    if tensor.requires_grad:
        made.requires_grad_()
    return made if tensor.is_leaf else made.clone()


# -- a function that fails ------------------------------------------------------------------------


def failed(error: Exception) -> TraceError:
    """Return the refusal of a function that fails in torch's own code as it is traced."""
    return TraceError(
        f"the function fails as torch traces it: {type(error).__name__}: {first_line(error)}"
        f"{at_user(error)}",
        remedy="If it fails untraced too, mend it. What torch cannot trace belongs outside the "
        "traced function.",
    )


class EffectWatch:
    """What a function does to tensors that are given and closed over until it fails.

    Args:
        tensors: The traced tensors that stand for them.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]):
        self._counting = [tensor for tensor in tensors if not tensor.is_inference()]
        self._versions = list(map(version_of, self._counting))
        self._flags = list(map(requires_grad, tensors))
        self._tensors = tensors
        self._is_told = len(self._counting) == len(tensors)  # those of inference count no writes

    def require_own(self, error: Exception) -> None:
        """Refuse an error that is torch's as it traces, or comes after effects of the function.

        Others are raised by the function untraced too.
        """
        frames = error.__traceback__
        while frames is not None and frames.tb_next is not None:
            frames = frames.tb_next
        file = "" if frames is None else frames.tb_frame.f_code.co_filename
        if file.startswith(_TORCH) or _OF_TRACES.search(str(error)):
            raise failed(error) from error
        if self._have_writes() or _traced(draws):
            raise TraceError(
                f"the function writes to tensors or draws random numbers, and then raises "
                f"{type(error).__name__}: {first_line(error)}{at_user(error)}",
                remedy="Raise errors before anything is written or drawn.",
            ) from error

    def _have_writes(self) -> bool:
        is_written = list(map(version_of, self._counting)) != self._versions
        is_written |= list(map(requires_grad, self._tensors)) != self._flags
        return is_written or _traced(_writes_given) or (not self._is_told and _traced(_writes))


_OF_TRACES = re.compile(r"\b(FakeTensor|Sym(Int|Float|Bool))\b")
"""The classes of what stands for tensors and sizes: an error that names one is none of eager."""


class WatchedSizes(ShapeEnv):
    """torch's symbols, which tell of numbers from data that the user's own code branches on.

    Attributes:
        note: Takes the error; torch's own code may catch it, and go on as eager does.
    """

    note: Callable[[Exception], None]

    def evaluate_sym_node(self, *args: Any, **kwargs: Any) -> Any:
        """The number that a symbolic one is."""
        try:
            return super().evaluate_sym_node(*args, **kwargs)
        except GuardOnDataDependentSymNode as error:
            frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # who asks
            while frame.f_back is not None and frame.f_code.co_filename.startswith(_NUMBERS):
                frame = frame.f_back
            if not is_library(frame.f_code.co_filename):
                self.note(error)
            raise


_NUMBERS = (f"{_TORCH}/__init__.py", f"{_TORCH}/fx/experimental/", __file__)
"""The code behind symbolic numbers."""


def _writes(node: torch.fx.Node) -> bool:
    """Whether a node of torch's graphs calls an operator that writes to an argument."""
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable  # pyright: ignore[reportPrivateUsage]  # torch has no public name


def _writes_given(node: torch.fx.Node) -> bool:
    """Whether a node writes to what is given, through ``x.data`` too, which counts no writes."""
    if not _writes(node):
        return False
    base: Any = node.args[0] if node.args else None
    while isinstance(base, torch.fx.Node) and isinstance(base.target, OpOverload):
        returns = base.target._schema.returns  # pyright: ignore[reportPrivateUsage]  # as above
        if not returns or returns[0].alias_info is None:
            return False  # it has memory of its own
        base = base.args[0]
    return isinstance(base, torch.fx.Node)


def _traced(does: Callable[[torch.fx.Node], bool]) -> bool:
    """Whether a call that has been traced so far does something."""
    mode = get_proxy_mode()
    return mode is not None and any(map(does, mode.tracer.graph.nodes))


# -- results --------------------------------------------------------------------------------------


class Results:
    """What a function returns, beside what it is given.

    Args:
        given: The traced tensors that stand for what is given and closed over.
    """

    def __init__(self, given: Sequence[torch.Tensor]):
        self._given = {id(tensor): tensor for tensor in given}

    def require_sayable(self, leaf: Any) -> None:
        """Refuse a result that a program does not make."""
        if isinstance(leaf, torch.Tensor):
            self._require_plain(leaf)
        elif type(leaf) is int and leaf in self._given:
            raise TraceError("the function returns the identity of a tensor", remedy=_OUTSIDE)
        elif value_token(leaf) is None:
            raise TraceError(
                f"the function returns a {type(leaf).__name__}, which may hold tensors that are "
                "not found",
                remedy="Return tuples, lists and dicts, or register the class with "
                "torch.export.register_dataclass or torch.utils._pytree.register_pytree_node.",
            )

    def require_no_attributes(self) -> None:
        """Refuse attributes of tensors that are given: a run would not set them."""
        for tensor in self._given.values():
            _require_no_attributes(tensor)

    def _require_plain(self, tensor: torch.Tensor) -> None:
        _require_no_attributes(tensor)
        if id(tensor) in self._given:
            return
        if isinstance(tensor, (Parameter, Buffer)):
            raise TraceError(
                "the function makes a parameter or buffer, which programs give as a tensor",
                remedy="Return the tensor, and make the parameter outside the traced function.",
            )
        if tensor.is_meta:
            raise TraceError(
                "the function returns a tensor without data, of the device meta", remedy=_OUTSIDE
            )

    def inference(self, results: Sequence[torch.Tensor], *, needs_grad: bool) -> bool:
        """Return whether the program runs in inference mode, as the function asks for itself.

        Raises:
            TraceError: Only a part of what it computes is made in it.
        """
        now = torch.is_inference_mode_enabled()
        memory = {*map(_place, self._given.values())}
        made = [t for t in results if _place(t) not in memory]
        if all(t.is_inference() is now for t in made):
            return False
        if now or needs_grad or not all(t.is_inference() for t in made):
            raise TraceError(
                "the function makes some of its results in inference mode, and others outside",
                remedy="Use torch.no_grad(), or torch.inference_mode() around all of it.",
            )
        return True


def _place(tensor: torch.Tensor) -> object:
    """What tells the memory of a tensor, or the tensor itself where it has no storage."""
    return storage_of(tensor) if tensor.layout is torch.strided else id(tensor)


@cache
def _names_of_fakes() -> frozenset[str]:
    """The attributes that traced tensors have of their own, those that stand for buffers more."""
    with outside_of_traces(), fake_tensor_mode() as mode:
        return frozenset(vars(mode.from_tensor(Buffer(torch.empty(0)))))


def _require_no_attributes(tensor: torch.Tensor) -> None:
    if not isinstance(tensor, FakeTensor):
        return
    for name in vars(tensor):
        if name[0] != "_" and name not in _names_of_fakes():
            raise TraceError(
                f"the function sets the attribute {name} of a tensor, which no program keeps",
                remedy="Return the value, or keep it in an object of yours.",
            )


# -- the state of torch ---------------------------------------------------------------------------


def require_switches(before: tuple[object, ...]) -> None:
    """Refuse to trace an operator under other switches than the function was called under.

    Raises:
        TraceError: They are others, as in a with block of ``sdpa_kernel``.
    """
    if before != kernel_switches():
        raise TraceError(
            "the function calls torch under other switches of torch.backends than it is called "
            f"under, which a program does not keep{at_user()}",
            remedy="Set them around the call of the traced function.",
        )


@contextmanager
def same_modes() -> Generator[None]:
    """Refuse that a function leaves torch in other modes than it was called in."""
    before, switches = modes(), kernel_switches()
    try:
        yield
    finally:
        after = modes()
        torch.set_grad_enabled(before[NAMES.index("grad mode")])
        torch.set_default_dtype(before[NAMES.index("default dtype")])
        torch.use_deterministic_algorithms(
            before[NAMES.index("deterministic algorithms")],
            warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        )
    changed = [name for name, a, b in zip(NAMES, before, after, strict=True) if a != b]
    if switches != kernel_switches():
        changed.append("switches of torch.backends")
    if changed:
        raise TraceError(
            f"the function changes a mode of torch's for what comes after it ({changed[0]})",
            remedy="Change it in a with block, or outside the traced function.",
        )
