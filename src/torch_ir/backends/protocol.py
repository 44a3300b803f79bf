"""The protocol of backends: support for single operators, and compilation of subgraphs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from torch_ir.arguments import public
from torch_ir.backends.known_options import Known
from torch_ir.errors import BackendError, ExecutionError, code_of
from torch_ir.ir import IR, OpNode

if TYPE_CHECKING:
    import torch

    from torch_ir.backends.backend_registry import Options, Runner


class Supporting(Protocol):
    """The part of a backend that a partitioner asks."""

    @property
    def name(self) -> str:
        """The name of the backend."""
        ...

    def supports(self, node: OpNode, ir: IR) -> Support:
        """Return whether the backend runs a node."""
        ...


@public
@dataclass(frozen=True, slots=True)
class Support:
    """Whether a backend runs a node, and why not.

    Attributes:
        is_supported: Whether it does.
        reason: Why it does not; empty where it does.

    Raises:
        ExecutionError: A refusal has no reason.

    Example:
        >>> bool(Support.refused("it has int64 operands")), bool(SUPPORTED)
        (False, True)
    """

    is_supported: bool
    reason: str = ""

    def __post_init__(self) -> None:
        if not self.is_supported and not self.reason:
            raise ExecutionError("a backend that refuses a node says why")

    def __bool__(self) -> bool:
        return self.is_supported

    @classmethod
    @public
    def refused(cls, reason: str) -> Support:
        """Return that a node is not supported, for this reason."""
        return cls(False, reason)


SUPPORTED = Support(True)
"""That a node is supported."""


def support_of(backend: Supporting, node: OpNode, ir: IR) -> Support:
    r"""Return what a backend says of a node.

    Args:
        backend: The backend.
        node: The node.
        ir: The program that it is part of.

    Raises:
        BackendError: It raises an error, or gives something else.

    Example:
        >>> from torch_ir import parse
        >>> class Sure:
        ...     name = "sure"
        ...     def supports(self, node, ir):
        ...         return True
        >>> text = "input %x: f32[2]\n  %y: f32[2] = aten.relu.default(%x)\n  return %y"
        >>> ir = parse(f"ir {{\n  {text}\n}}")
        >>> support_of(Sure(), ir.nodes[0], ir)
        Traceback (most recent call last):
            ...
        torch_ir.errors.BackendError: asked for node 'y' (aten.relu.default), the backend ...
        Return torch_ir.backends.SUPPORTED, or Support.refused(reason).
    """
    asked = f"asked for node {node.name!r} ({node.op_type}), the backend {backend.name!r}"
    with code_of(backend, asked, BackendError):
        said = backend.supports(node, ir)
    if not isinstance(said, Support):  # pyright: ignore[reportUnnecessaryIsInstance]  # another package's
        raise BackendError(
            f"{asked} gave a value of type {type(said).__name__}, not a Support",
            remedy="Return torch_ir.backends.SUPPORTED, or Support.refused(reason).",
        )
    return said


Delegated: TypeAlias = "Callable[..., Sequence[torch.Tensor]]"
"""A compiled subgraph: see :meth:`DelegateBackend.compile`."""


class DelegateBackend(ABC):
    """A backend that takes parts of a program; torch runs the rest.

    A subclass says what it supports, and compiles subgraphs of that. An instance is what
    :func:`~torch_ir.backends.register_backend` takes: ``torch_ir.compile(ir, weights,
    backend=NAME)`` then partitions the program and runs it, and ``torch-ir support`` reports on
    it.

    Attributes:
        name: The name under which it is registered, and by which its subgraphs are named.
    """

    name: str

    @abstractmethod
    def supports(self, node: OpNode, ir: IR) -> Support:
        """Return whether the backend runs a node, by what is known before the program runs.

        Args:
            node: The call, with the shapes and element types of its inputs and outputs.
            ir: The program that it is part of.
        """

    @abstractmethod
    def compile(self, ir: IR, payload: Mapping[str, torch.Tensor]) -> Delegated:
        """Compile a subgraph, every node of which is supported, to a function.

        Args:
            ir: The subgraph: functional, without weights of its own.
            payload: Those of its inputs that are the same in every call, by name: weights and
                constants that the program does not write.

        Returns:
            A function that takes the other inputs in order (a size is an ``int``), and gives the
            outputs in order.
        """

    def __call__(
        self, ir: IR, weights: Mapping[str, torch.Tensor] | None, options: Options
    ) -> Runner:
        """The program with what is supported on this backend, and the rest on torch.

        Raises:
            ExecutionError: Gradients are asked for: a delegate has none.
            MissingWeightsError: The program has weights and none were given.
            WeightLoadError: The weights are not those that it needs.
        """
        from torch_ir.backends.delegating import DelegatingExecutor

        self.require_no_grad(options)
        return DelegatingExecutor(ir, weights, self)

    def prepare(self, ir: IR) -> IR:
        """Return the program as the backend would have it partitioned: by default as it is."""
        return ir

    def known_options(self) -> Known:
        """Return the options that :func:`torch_ir.compile` may pass on.

        Their names, or a mapping from these to what each takes: a type, a tuple of names of which
        it takes one, a frozenset of names of which it takes a list, or None for anything.
        """
        return ()

    def require_no_grad(self, options: Options) -> None:
        """Refuse gradients, which no delegate has.

        Raises:
            ExecutionError: They are asked for.
        """
        if options.grad:
            raise ExecutionError(
                f"the backend {self.name!r} has no gradients", remedy="Use the backend 'aten'."
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={getattr(self, 'name', None)!r})"


def compiled_by(backend: DelegateBackend, body: IR, held: Mapping[str, torch.Tensor]) -> Delegated:
    """Return what a backend compiles a subgraph to.

    Args:
        backend: The backend.
        body: The subgraph.
        held: Those of its inputs that are the same in every call.

    Raises:
        BackendError: It is nothing that can be called, or compiling writes to what is held. What
            compiling raises comes through.
    """
    from torch_ir.torch_memory import writes_to

    before = writes_to(held.values())
    made = backend.compile(body, held)
    if name := _written(held, before):
        raise BackendError(
            f"the backend {backend.name!r} writes to the weight %{name} while it compiles",
            remedy=_KEEP,
        )
    if not callable(made):
        raise BackendError(
            f"asked to compile {body.model_name!r}, the backend {backend.name!r} gave a value of "
            f"type {type(made).__name__}, not a function",
            remedy="Return a function that takes the inputs in order and gives the outputs.",
        )
    return made if isinstance(made, TupleCalled) else _Watched(backend.name, made, held)


_KEEP = "It has to write to copies: what it is given is the caller's."


def _written(tensors: Mapping[str, torch.Tensor], before: Sequence[int]) -> str:
    """The first tensor that was written to since its writes were counted."""
    from torch_ir.torch_memory import writes_to

    now = writes_to(tensors.values())
    return next((n for n, a, b in zip(tensors, before, now, strict=True) if a != b), "")


class _Watched:
    """A compiled subgraph that is told where it writes to what it holds."""

    def __init__(self, backend: str, compiled: Delegated, held: Mapping[str, torch.Tensor]):
        self._backend, self._compiled, self._held = backend, compiled, held

    def __call__(self, *given: Any) -> Sequence[torch.Tensor]:
        """Run it.

        Raises:
            ExecutionError: It writes to a weight.
        """
        from torch_ir.torch_memory import writes_to

        before = writes_to(self._held.values())
        made = self._compiled(*given)
        if name := _written(self._held, before):
            raise ExecutionError(
                f"the backend {self._backend!r} writes to the weight %{name}", remedy=_KEEP
            )
        return made


class TupleCalled(ABC):
    """A compiled subgraph that takes its arguments as one tuple, which is not taken apart anew."""

    @abstractmethod
    def on(self, given: tuple[Any, ...], /) -> Sequence[torch.Tensor]:
        """Run it on the arguments of a call."""

    def on_plain(self, given: tuple[Any, ...], /) -> Sequence[torch.Tensor]:
        """Run it on arguments whose tensors lie in order in memory of their own."""
        return self.on(given)

    def __call__(self, *given: Any) -> Sequence[torch.Tensor]:
        """Run it; see :meth:`on`."""
        return self.on(given)


class WithFallback(TupleCalled):
    """A compiled subgraph that torch runs where it fails.

    Attributes:
        settled: What runs it as it is; None where :meth:`on` has to see to more.
        on_torch: What torch runs in its place, on the same arguments.
    """

    settled: TupleCalled | None = None
    on_torch: Callable[[Sequence[Any]], Sequence[torch.Tensor]]

    @abstractmethod
    def recovered(self, error: Exception, given: tuple[Any, ...], /) -> Sequence[torch.Tensor]:
        """Return what torch gives for a call in which :attr:`settled` failed."""

    @abstractmethod
    def replaced(self, reason: str, given: tuple[Any, ...], /) -> Sequence[torch.Tensor]:
        """Leave it to torch from now on, for a reason, and return what torch gives."""


def tuple_call(called: Delegated) -> Callable[[tuple[Any, ...]], Any]:
    """Return what runs a compiled subgraph on its arguments as one tuple.

    Example:
        >>> tuple_call(min)((3, 2))
        2
    """
    return called.on if isinstance(called, TupleCalled) else lambda given: called(*given)
