"""The one door to every way of running a program."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, cast

import torch

from torch_ir.arguments import public
from torch_ir.backends.backend_registry import (
    Backend,
    Options,
    Runner,
    as_backend,
    find_backend,
)
from torch_ir.backends.known_options import joined, require_options
from torch_ir.backends.protocol import DelegateBackend
from torch_ir.backends.support_report import delegate_backend, require_delegate
from torch_ir.errors import BackendError, ExecutionError, code_of
from torch_ir.executor.allocator import keep_memory
from torch_ir.executor.groups import bound_to_groups
from torch_ir.executor.placement import Placement, one_device
from torch_ir.ir import IR, SymExpr
from torch_ir.ops.rules import allow_operators
from torch_ir.serde.archive import has_weights
from torch_ir.serde.programs import read_program
from torch_ir.weights import load_weights


@public
def compile(
    ir: IR | str | PathLike[str],
    weights: Mapping[str, torch.Tensor] | str | PathLike[str] | None = None,
    *,
    backend: str | Backend | type | Sequence[str | DelegateBackend] = "aten",
    dynamic: bool | None = None,
    grad: bool = False,
    allow: Iterable[str] = (),
    groups: Mapping[str, Any] | None = None,
    verify: bool | Sequence[Sequence[Any]] = True,
    tolerance: float | None = None,
    options: Mapping[str, Any] | None = None,
    cache: str | PathLike[str] | None = None,
    seconds: float = 60.0,
    memory: int | str | None = None,
    placement: Placement | None = None,
) -> Runner:
    """Compile a program with its weights to a function, with the model's arguments and results.

    Args:
        ir: The program, or the path of a file that has it.
        weights: Tensors by ``state_dict`` key, or a weight file; None: those in the file ``ir``.
        backend: A name, class or instance: ``"aten"`` is torch's own kernels, bitwise as eager
            (see its ``graph``); ``"reference"`` is the denotation. Runtimes run what they are
            right on, torch the rest (see ``report()``). ``"auto"`` is the fastest; several share.
        dynamic: Require that some sizes of inputs are symbolic (True), or none (False).
        grad: Let torch's autograd differentiate the results.
        allow: Operators to allow all the same; see :func:`torch_ir.allow_operators`.
        groups: The process groups, by the names that the program's collectives have.
        verify: Compare delegates with what they mean; or arguments for that (NaN only if there).
        tolerance: The relative error that a delegate may have; None for that of rounding.
        options: The backend's own, and ``keep_memory`` (:mod:`torch_ir.executor.allocator`).
        cache: The folder of compiled blobs, for one user; by default that of ``TORCH_IR_CACHE``.
        seconds: How long to look for what a runtime refuses.
        memory: What weights and values may take, such as ``"2GB"``: weights are read from files
            while the layer before runs. The option ``progress`` is told the bytes read, and all.
        placement: Where what runs, for ``"aten"``: see :func:`torch_ir.executor.compile_graph`.

    Raises:
        ExecutionError, BackendError: Backend, sizes or placement are not as asked, or it fails.
        CompileError: The program cannot be compiled.
        MissingWeightsError, WeightLoadError, SerializationError: The files are not what it needs.
        CacheError: What a runtime compiled cannot be written to the folder of the cache.

    Example:
        >>> from torch_ir import extract_ir
        >>> model, x = torch.nn.Linear(3, 2), torch.ones(1, 3)
        >>> torch.equal(compile(extract_ir(model, (x,)), model.state_dict())(x), model(x))
        True
    """
    _require_placeable(backend, placement)
    settings = _without_keep_memory(options or {})
    make = _maker(backend, settings) if memory is None else _streaming(backend, memory)
    program, allow = bound_to_groups(ir if isinstance(ir, IR) else _loaded(ir), groups, allow)
    _require_sizes(program, dynamic)
    held = _held(ir, weights, is_read=memory is None)
    with allow_operators(*allow):
        asked = Options(grad, verify, tolerance, settings, _folder(cache), seconds, placement)
        return _made(make, backend, program, held, asked)


def _held(ir: IR | str | PathLike[str], weights: Any, *, is_read: bool) -> Any:
    """The weights that are given, or those in the file of the program if it has any."""
    if weights is None and not isinstance(ir, IR) and has_weights(ir):
        weights = ir
    return load_weights(weights) if is_read and isinstance(weights, str | PathLike) else weights


def _folder(cache: str | PathLike[str] | None) -> Path | None:
    """The folder of the cache, if there is to be one."""
    named = cache or os.environ.get("TORCH_IR_CACHE")
    return Path(named) if named else None


def _made(make: Backend, asked_for: object, *given: Any) -> Runner:
    """What a backend makes of a program, its weights and options; its faults name it."""
    named = asked_for if isinstance(asked_for, str) else getattr(make, "name", repr(make))
    told = code_of(make, f"the backend {named!r:.80}", BackendError)
    # samples and timed calls draw, as often as there is time: the caller's numbers stay the same
    with told, torch.random.fork_rng(devices=()):
        made = make(*given)
    if not callable(made):
        gave = f"a value of type {type(made).__name__}, not a function"
        raise BackendError(
            f"the backend {named!r:.80} gave {gave}",
            remedy="Return a function that takes the model's own arguments.",
        )
    return made


def _require_placeable(backend: object, placement: Placement | None) -> None:
    if placement is not None and backend != "aten":
        raise ExecutionError(
            f"placement= is for the backend 'aten', not {backend!r:.80}",
            remedy="A backend of its own chooses its device itself, by options=.",
        )


def _without_keep_memory(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the backend alone; that of all is in force."""
    settings = dict(options)
    if settings.pop("keep_memory", False):
        keep_memory()
    return settings


def _streaming(backend: object, memory: int | str) -> Backend:
    """What makes a program ready to read its weights while it runs."""

    def streaming(ir: IR, weights: Any, options: Options) -> Runner:
        from torch_ir.backends.streaming import StreamingRunner, memory_bytes
        from torch_ir.weights.stream import WeightStream

        path = weights
        if options.grad or backend != "aten" or not isinstance(path, str | PathLike):
            raise ExecutionError(
                "memory= is for weights in files, the backend 'aten', and no gradients",
                remedy="Give the path of a safetensors file, or of a folder of shards.",
            )
        require_options("aten", options.settings, ("progress",))
        progress: Any = options.settings.get("progress")
        device = one_device(options.placement)
        if device is None:
            raise ExecutionError(
                "with memory= a program runs on one device, and placement= names several",
                remedy="Name one, or cut the program into stages with torch_ir.cut(ir, k).",
            )
        stream, most = WeightStream(ir, path), memory_bytes(memory)
        return StreamingRunner(ir, stream, most, progress, device)

    return streaming


def _require_known(name: str, backend: object, settings: Mapping[str, Any]) -> None:
    if settings:
        known: Any = getattr(backend, "known_options", tuple)
        require_options(name, settings, known())


def _maker(
    backend: str | Backend | type | Sequence[str | DelegateBackend], settings: Mapping[str, Any]
) -> Backend:
    """What makes a program ready: one backend, or several that take parts of it."""
    if not isinstance(backend, str | Sequence):
        backend = cast(DelegateBackend, as_backend(backend))
    if isinstance(backend, str):
        found: Any = find_backend(backend)
        _require_known(backend, found, settings)
        return found
    if not isinstance(backend, Sequence):
        _require_known(getattr(backend, "name", repr(backend)), backend, settings)
        return backend
    parts = [_delegate(item) for item in backend if item != "aten"]
    if settings and parts:
        require_options(parts[0].name, settings, joined([p.known_options() for p in parts]))

    def several(ir: IR, weights: Mapping[str, torch.Tensor] | None, options: Options) -> Runner:
        from torch_ir.backends.native.native_executor import NativeExecutor

        for part in parts:
            part.require_no_grad(options)
        return NativeExecutor(ir, weights, parts, options)

    return several


def _delegate(item: str | DelegateBackend) -> DelegateBackend:
    is_name = isinstance(item, str)
    return delegate_backend(item) if is_name else require_delegate(item, f"{item!r:.60}")


def _loaded(path: Any) -> IR:
    if not isinstance(path, str | PathLike):
        raise ExecutionError(
            f"what is compiled is an IR or the path of one, got {type(path).__name__}",
            remedy="Make one with torch_ir.extract_ir(model, example_inputs).",
        )
    return read_program(path)


def _require_sizes(ir: IR, dynamic: bool | None) -> None:
    """Refuse a program whose inputs have sizes of the kind that is not wanted."""
    if dynamic not in (None, True, False):
        raise ExecutionError(f"dynamic is None, True or False, got {dynamic!r}")
    symbolic = [
        f"{dim} (dimension {axis} of {meta})"
        for meta in ir.graph_inputs
        for axis, dim in enumerate(meta.shape)
        if isinstance(dim, SymExpr)
    ]
    if dynamic is True and not symbolic:
        raise ExecutionError(
            "dynamic=True, but no input of the program has a symbolic size",
            remedy="Extract the model with dynamic_shapes.",
        )
    if dynamic is False and symbolic:
        raise ExecutionError(
            f"dynamic=False, but the program has the symbolic size {symbolic[0]}",
            remedy="Extract the model without dynamic_shapes.",
        )
