"""From a module, an exported program or a ``.pt2`` file to an IR."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.export import Dim, ExportedProgram, ShapesCollection
from torch.fx._lazy_graph_module import _use_lazy_graph_module as lazy_code  # pyright: ignore[reportPrivateUsage]  # torch has no public name
from torch.fx.experimental import proxy_tensor

from torch_ir.arguments import public
from torch_ir.errors import (
    ExportError,
    Raised,
    attempt,
    closest_file,
    counted,
    first_line,
    raised_as,
)
from torch_ir.frontend.gradients.watching import with_custom_gradients
from torch_ir.frontend.kept_attributes import (
    kept_attributes,
    with_lines_of_assignments,
    writing_assigned_buffers,
)
from torch_ir.frontend.meta import fake_mode, is_dense, is_on_meta, on_fake_cpu
from torch_ir.frontend.programs import convert_exported_program
from torch_ir.frontend.regions.extraction import Regions
from torch_ir.ir import IR
from torch_ir.ir.diagnostics import picture_of
from torch_ir.ir.functions import CALLS, inline_scopes, outlined
from torch_ir.ir.process_groups import groups_of, with_group_names
from torch_ir.kernel_switches import has_fused_attention, unfused_attention
from torch_ir.ops.extensions import OWN_NAMESPACES, import_hint
from torch_ir.quiet import silent_log, torch_errors_unlogged
from torch_ir.torch_api import lacking_namespace, pytree
from torch_ir.torch_modes import plain_tensors


@public
def extract_ir(
    model: nn.Module | ExportedProgram | str | os.PathLike[str],
    example_inputs: tuple[Any, ...] = (),
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    model_name: str | None = None,
    strict: bool = False,
    trust: bool = False,
    regions: Literal["auto"] | Sequence[str] | None = None,
    verify_regions: bool = False,
    groups: Mapping[str, Any] | None = None,
) -> IR:
    """Extract the IR of a model, without its weights.

    Args:
        model: A module on any device (meta: nothing is ever allocated), an exported program, or a
            ``.pt2`` file.
        example_inputs: Positional arguments to trace with; unused for what is already exported.
        kwargs: Keyword arguments to trace with.
        dynamic_shapes: Which dimensions may vary, in ``torch.export``'s own forms.
        model_name: A name for people; else the class name.
        strict: Insist that module and inputs are on the meta device.
        trust: Let torch unpickle what a ``.pt2`` file holds; only for files that you trust.
        regions: Modules that are traced once for all that do the same, as calls of one function,
            by path; ``"auto"``: the members of lists and sequences. See ``metadata["regions"]``.
        verify_regions: Extract the model without regions too, and compare.
        groups: A name for each process group of the model's collectives, by that name.

    Raises:
        ExportError: ``torch.export`` refuses the model, or a condition is not met.
        ConversionError: The program holds what cannot be translated; all of it is listed.

    Example:
        >>> ir = extract_ir(nn.Linear(8, 4, device="meta"), (torch.randn(2, 8, device="meta"),))
        >>> print(ir.nodes[0])
        %linear: f32[2, 4] = aten.linear.default(%input, %p_weight, %p_bias)
    """
    if isinstance(model, str | os.PathLike):
        name = model_name if model_name is not None else Path(model).stem
        exported = load_exported_program(model, trust=trust)
        return _with_groups(convert_exported_program(exported, name), groups)
    if isinstance(model, ExportedProgram):
        return _with_groups(convert_exported_program(model, model_name or ""), groups)
    name = get_model_name(model) if model_name is None else model_name
    traced: Any = {"kwargs": kwargs, "dynamic_shapes": dynamic_shapes, "strict": strict}

    def flat() -> IR:
        return convert_exported_program(export_model(model, example_inputs, **traced), name)

    def whole() -> IR:
        if regions is None:
            return flat()
        return _with_regions(model, example_inputs, traced, regions, flat)

    ir = with_custom_gradients(whole)
    if verify_regions:
        _require_same(flat(), ir)
    ir = _with_groups(ir if ir.model_name == name else ir.replace(model_name=name), groups)
    return _extracted_in_training(ir) if model.training else ir


def _with_groups(ir: IR, groups: Mapping[str, Any] | None) -> IR:
    """Name the process groups as the caller does: torch's own names mean nothing elsewhere."""
    names: dict[str, str] = {}
    for name, group in (groups or {}).items():
        if not hasattr(group, "group_name"):
            raise ExportError(
                f"groups has no process group as {name!r:.60}, but a {type(group).__name__}"
            )
        names[str(group.group_name)] = name
    for group, node in groups_of(ir).items():
        if group not in names:
            raise ExportError(
                f"node {node.name!r} is a collective of a process group that has no name",
                picture=picture_of(node),
                remedy='Name it: groups={"tp": group}.',
            )
    return with_group_names(ir, names)


def _with_regions(
    model: nn.Module,
    args: tuple[Any, ...],
    options: Mapping[str, Any],
    wanted: Literal["auto"] | Sequence[str],
    flat: Callable[[], IR],
) -> IR:
    """The program with calls of functions; layers that repeat are found in it if sizes vary."""
    if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
        return flat()  # says why not
    kwargs = dict(options["kwargs"] or {})
    if options["strict"]:
        _require_meta(model, args, kwargs)
    mode = fake_mode()
    buffers = dict(model.named_buffers(remove_duplicate=False))

    def trace(traced: nn.Module, *call: Any) -> ExportedProgram:
        exported = _trace(traced, *call)
        for held in (exported.constants, exported.state_dict):
            held.update({key: buffers[key] for key in held.keys() & buffers.keys()})
        return exported

    finder = Regions(model, wanted, trace, mode)
    if options["dynamic_shapes"] is not None:
        ir = outlined(flat())
        places = {n.location.module: n.functions for n in ir.nodes if n.location and n.functions}
        for path in finder.found:
            used = places.get(path)
            finder.found[path] = (
                {"function": used[0]} if used else {"flat": "no other member does the same"}
            )
    else:
        given = _told_apart((tuple(args), kwargs))
        with _unwritten(model), kept_attributes(model), on_fake_cpu(model, given, mode) as call:
            found = finder.extract(call[0], call[1], get_model_name(model))
        ir = flat() if found is None else found
    return ir.replace(metadata={**ir.metadata, "regions": finder.found})


def _require_same(flat: IR, ir: IR) -> None:
    """Refuse a program that is not what flat extraction gives when its calls are written out.

    Raises:
        ExportError: It is not.
    """
    changes = inline_scopes(flat, CALLS).diff(inline_scopes(ir, CALLS))
    if changes:
        raise ExportError(
            f"with regions the program is another one: {changes.changes[0]}",
            remedy="Extract it without regions, and report it with the model.",
        )


def _extracted_in_training(ir: IR) -> IR:
    """The IR marked as extracted in training mode, with a warning if that changes its results."""
    affected = [
        node
        for node in ir.nodes
        if TRAINING_FLAGS & {k for k, v in node.attrs.items() if v is True}
    ]
    if affected:
        first = affected[0]
        warnings.warn(
            f"the model is in training mode: {counted(len(affected), 'node')} (the first "
            f"is {first.name!r}, {first.op_type}). "
            "Call model.eval() first for inference.",
            stacklevel=4,  # the caller of extract_ir, which is wrapped
        )
    return ir.replace(metadata={**ir.metadata, "training": True})


TRAINING_FLAGS = {"train", "training", "use_input_stats"}
"""Arguments by which operators such as dropout and batch norm are told that the model trains."""


@public
def export_model(
    model: nn.Module,
    example_inputs: tuple[Any, ...],
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    strict: bool = True,
) -> ExportedProgram:
    """Capture a model with ``torch.export``.

    Args:
        model: The module.
        example_inputs: Positional arguments to trace with.
        kwargs: Keyword arguments to trace with.
        dynamic_shapes: Which dimensions may vary.
        strict: Insist that module and inputs are on the meta device; nothing to do with torch's
            own ``strict``.

    Raises:
        ExportError: ``torch.export`` refuses the model, or ``strict`` is not met.
    """
    if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
        raise ExportError(f"a model is an nn.Module, got {type(model).__name__}")
    if not isinstance(example_inputs, tuple | list):  # pyright: ignore[reportUnnecessaryIsInstance]  # as above
        raise ExportError(
            f"example inputs are a tuple of arguments, got {type(example_inputs).__name__}",
            remedy="Write (x,) for one argument.",
        )
    if strict:
        _require_meta(model, example_inputs, kwargs or {})
    name = type(model).__name__
    with raised_as(lambda error: _refused(name, error)):
        args, named = tuple(example_inputs), dict(kwargs or {})
        if not isinstance(dynamic_shapes, ShapesCollection):  # which knows tensors by identity
            args, named = _told_apart((args, named))
        return _export(model, args, named, dynamic_shapes)


def _refused(name: str, error: Exception) -> ExportError:
    unknown = lacking_namespace(error)
    remedy = import_hint(unknown) if unknown and unknown not in OWN_NAMESPACES else ""
    return ExportError(f"torch.export refused {name}: {_first_lines(error)}", remedy=remedy)


def _told_apart(arguments: Any) -> Any:
    """The arguments with a tensor that is given more than once as several tensors of one storage.

    torch.export would take them for one argument, and the program would read only that one.
    """
    seen: set[int] = set()

    def apart(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or id(leaf) not in seen:
            seen.add(id(leaf))
            return leaf
        return leaf.detach().requires_grad_(leaf.requires_grad)

    return pytree.tree_map(apart, arguments)


def _export(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """The program by the first way of tracing that the model takes.

    If it takes none, the error of the first way is raised.
    """
    with _unwritten(model), torch_errors_unlogged():
        return _traced(model, args, kwargs, dynamic_shapes)


@contextmanager
def _unwritten(model: nn.Module) -> Generator[None]:
    """Give tensors that are attributes of a model their values again.

    Parameters and buffers are traced as fake tensors, and other tensors as they are: a model that
    writes one is then written by the trace.
    """
    registered = ("_parameters", "_buffers", "_modules")
    kept = _Kept()
    for module in model.modules():
        others = [value for name, value in vars(module).items() if name not in registered]
        kept.keep(*pytree.tree_leaves(others))
    try:
        yield
    finally:
        kept.give_back()


class _Kept:
    """Tensors with the values that they had before a trace could write them.

    In a ``with`` block it keeps those that traced operators are given, where they are not fake:
    globals, defaults, and what closures and containers hold.
    """

    def __init__(self) -> None:
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def keep(self, *tensors: object) -> None:
        """Copy the tensors with values of their own among these, each when it is met first."""
        for tensor in tensors:
            if is_dense(tensor) and id(tensor) not in self._copies:
                with plain_tensors():
                    self._copies[id(tensor)] = tensor, _copy(tensor.detach())

    def give_back(self) -> None:
        """Write the values again where they have changed."""
        with torch.no_grad():
            for tensor, copy in self._copies.values():
                if not torch.equal(tensor, copy):
                    tensor.copy_(copy)

    def __enter__(self) -> None:
        self._token = _kept.set(self)
        _watch(1)

    def __exit__(self, *_: object) -> None:
        _watch(-1)
        _kept.reset(self._token)
        self.give_back()


_kept: ContextVar[_Kept | None] = ContextVar("_kept", default=None)
_lock = threading.Lock()
_watching = 0
_torch_proxy_call: Any = proxy_tensor.proxy_call


def _watch(change: int) -> None:
    """Watch the calls of operators that are traced while somebody wants it."""
    global _watching  # torch's function is one for all threads
    with _lock:
        _watching += change
        traced: Any = proxy_tensor
        traced.proxy_call = _proxy_call if _watching else _torch_proxy_call


def _proxy_call(mode: Any, func: Any, pre_dispatch: bool, args: Any, kwargs: Any) -> Any:
    kept = _kept.get()
    if kept is not None:
        for value in (*args, *(kwargs or {}).values()):
            kept.keep(*(value if isinstance(value, list | tuple) else (value,)))
    return _torch_proxy_call(mode, func, pre_dispatch, args, kwargs)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor, in the memory of one element where all are alike, as in new caches."""
    bits = _BITS.get(tensor.itemsize)
    if bits is not None and tensor.numel() > 1 and not (tensor.is_complex() or tensor.is_neg()):
        first = tensor[(slice(0, 1),) * tensor.dim()].clone().expand_as(tensor)
        if torch.equal(tensor.view(bits), first.view(bits)):
            return first
    return tensor.clone()


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integers of each size, which tell 0.0 from -0.0."""


def _traced(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    first: Exception | None = None
    paths = (unfused_attention, nullcontext) if has_fused_attention(model) else (nullcontext,)
    for path, trace, as_cpu in product(paths, (_trace, _trace_bytecode), (True, False)):
        with path():
            exported = attempt(_traced_as, as_cpu, trace, model, args, kwargs, dynamic_shapes)
        if isinstance(exported, Raised):  # the user's code
            first = first or exported.error
        elif exported is not None:
            return exported
    raise first or ExportError("nothing was traced")


def _traced_as(
    as_cpu: bool,
    trace: Callable[..., ExportedProgram],
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
) -> ExportedProgram | None:
    """Trace a model as it is, or one on meta as if it were on the CPU: None for any other then."""
    if not as_cpu:
        return trace(model, args, kwargs, dynamic_shapes)
    if not is_on_meta(model, (args, kwargs)):
        return None
    with on_fake_cpu(model, (args, kwargs)) as (fake_args, fake_kwargs):
        return trace(model, fake_args, fake_kwargs, dynamic_shapes)


def _trace(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any = None
) -> ExportedProgram:
    with (
        kept_attributes(model),
        _Kept(),
        writing_assigned_buffers(model),
        caching_casts(model),
        lazy_code(True),
    ):  # no pass of torch's runs the code that each would write
        return with_lines_of_assignments(
            torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
        )


@contextmanager
def caching_casts(model: nn.Module) -> Generator[None]:
    """Let autocast regions of a traced model say that they cache casts, as they do in eager.

    torch turns the cache off while it traces. Where a weight is used twice, the cache decides in
    which precision its gradients are summed.
    """
    is_on = torch.is_autocast_cache_enabled()

    def as_before(module: nn.Module, args: Any) -> None:
        torch.set_autocast_cache_enabled(is_on)

    hook = model.register_forward_pre_hook(as_before, prepend=True)
    try:
        yield
    finally:
        hook.remove()


def _trace_bytecode(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """By torch's bytecode tracer, which takes some models that running the code does not.

    Raises:
        ExportError: A size that may vary became a number, which this tracer does without a word.
    """
    with kept_attributes(model):
        exported = torch.export.export(
            model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=True
        )
    given = pytree.tree_leaves(dynamic_shapes)
    wanted = {leaf.__name__ for leaf in given if type(leaf) is Dim}
    if len(_symbols_of_inputs(exported)) < len(wanted):
        raise ExportError("a size that dynamic_shapes names is a number in the program")
    return exported


def _symbols_of_inputs(exported: ExportedProgram) -> set[Any]:
    """Return the symbols in the shapes of inputs, which leaves out those that data decides."""
    names = set(exported.graph_signature.user_inputs)
    values = (
        node.meta.get("val")
        for node in exported.graph.find_nodes(op="placeholder")
        if node.name in names
    )
    sizes = (size for value in values for size in getattr(value, "shape", (value,)))
    symbolic = (size for size in sizes if isinstance(size, torch.SymInt))
    return {symbol for size in symbolic for symbol in size.node.expr.free_symbols}


def load_exported_program(path: str | os.PathLike[str], *, trust: bool = False) -> ExportedProgram:
    """Load the exported program of a ``.pt2`` file, by torch's own loader.

    Raises:
        ExportError: The file is missing or not a ``.pt2``, or ``trust`` is not given: torch's
            loader may unpickle.
    """
    with raised_as(lambda error: ExportError(f"no path of a program: {first_line(error)}")):
        path = Path(path)
        exists, is_file = path.exists(), path.is_file()
    if not is_file:
        what = f"{path} is not a file" if exists else f"there is no file {path}"
        raise ExportError(what, remedy=None if exists else closest_file(path) or None)
    if not trust:
        raise ExportError(
            f"{path} was not opened: torch.export.load may unpickle its contents, which can run "
            "any code",
            remedy="If you trust the file, pass trust=True (--trust on the command line).",
        )
    refused = raised_as(
        lambda error: ExportError(f"{path} is not an exported program: {_first_lines(error)}")
    )
    with refused, silent_log():
        return torch.export.load(path)


def get_model_name(model: nn.Module) -> str:
    """Return the name of the module's class."""
    return type(model).__name__


def _require_meta(model: nn.Module, args: Any, kwargs: Any) -> None:
    named = [*model.named_parameters(), *model.named_buffers()]
    leaves = pytree.tree_leaves((args, kwargs))
    inputs = [
        (f"input {i}", leaf) for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)
    ]
    found = [
        f"{name} is on {tensor.device}" for name, tensor in [*named, *inputs] if not tensor.is_meta
    ]
    if found:
        more = f", and {len(found) - 3} more" if len(found) > 3 else ""
        raise ExportError(
            f"strict extraction needs everything on the meta device: {', '.join(found[:3])}{more}",
            remedy='Build the model under torch.device("meta"), or pass strict=False.',
        )


def _first_lines(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return "\n".join(lines[:12]) or type(error).__name__
