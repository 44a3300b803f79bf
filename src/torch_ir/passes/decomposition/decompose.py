"""Programs in the core operator set: each other operator is replaced by torch's decomposition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_ir.arguments import public
from torch_ir.dialects.backend.binding import bindings
from torch_ir.errors import PassError, counted, did_you_mean
from torch_ir.infer.engine import outside_of_modes
from torch_ir.infer.fake import Fakes
from torch_ir.infer.resolve import require_allowed, resolve_operator
from torch_ir.ir import IR
from torch_ir.ir.analysis.gradient_stops import with_lost_stops
from torch_ir.ir.diagnostics import Diagnostics
from torch_ir.ir.queries import op_types
from torch_ir.ops.extensions import OWN_NAMESPACES, forget_extension, note_extension
from torch_ir.ops.rules import (
    WRITTEN_IN_PYTHON,
    allow_collectives,
    closest_overload,
    require_overload,
)
from torch_ir.passes.base import Pass, PassResult
from torch_ir.passes.dead_code import eliminate_dead_code
from torch_ir.passes.decomposition.engine import Decomposition, Settings, Shared, is_core, lowered
from torch_ir.passes.decomposition.table import OURS, torch_table
from torch_ir.passes.edge.memory_formats import without_memory_formats
from torch_ir.passes.functionalization import without_writes
from torch_ir.passes.functionalization.copies import with_fresh_results, with_own_results
from torch_ir.passes.functionalization.strided import from_wholes, strides_lost
from torch_ir.steps import uncollected
from torch_ir.torch_api import custom_ops, operator_count

TARGETS = ("core_aten",)


@dataclass(frozen=True)
class Decompose(Pass):
    """Reduces a program to an operator set; see :func:`decompose`."""

    name: ClassVar[str] = "decompose"
    target: str = "core_aten"
    preserve: tuple[str, ...] = ()

    def call(self, ir: IR) -> PassResult:
        """Decompose the program to the target's operators."""
        return PassResult.of(ir, decompose(ir, self.target, preserve=self.preserve))


@uncollected()
@public
def decompose(
    ir: IR,
    target: str = "core_aten",
    *,
    table: Mapping[str, Decomposition] | None = None,
    preserve: Iterable[str] = (),
) -> IR:
    """Replace every operator outside the target set by its decomposition.

    The decompositions are those that ``ExportedProgram.run_decompositions`` uses, traced node by
    node for the recorded shapes, and for strides as they follow from contiguous inputs and
    weights. A node that stands for another has its location, and a name made of its name. Calls
    of the same kind are traced once. Programs in the dialect ``export`` are made functional
    first. Regions under autocast are written out, with the conversions that autocast makes.
    Operators of libraries stay as they are, but for those that are bound to a pattern and have no
    kernel of their own, and those of :func:`register_decomposition`. Results have memory of
    their own, as those of ``functionalize`` have. No call asks for a memory format: a tensor in
    channels last is one that was permuted. An operator whose kernel takes dense tensors
    alone is given a copy where a tensor may not be dense.

    Args:
        ir: The program.
        target: The operator set; ``"core_aten"``.
        table: What stands for an operator, by exact overload: a function that takes the
            operator's arguments. It comes before torch's own, and before the target set.
        preserve: Operators to keep whole, by exact overload, such as what a backend takes.

    Raises:
        CompileError: The program calls what a program may not call
            (:func:`torch_ir.operator_rule`).
        PassError: There is no such target or operator, or nodes have no decomposition; all are
            listed.

    Example:
        >>> from torch_ir import parse
        >>> print(decompose(parse('''
        ... ir "Silu" {
        ...   input %x: f32[2, 3]
        ...   %y: f32[2, 3] = aten.silu.default(%x)
        ...   return %y
        ... }
        ... ''')))
        ir "Silu" {
          dialect "core_aten"
          input %x: f32[2, 3]
          %y_sigmoid: f32[2, 3] = aten.sigmoid.default(%x)
          %y: f32[2, 3] = aten.mul.Tensor(%x, %y_sigmoid)
          return %y
        }
    """
    core = decomposed(ir, target, table=table, preserve=preserve)
    return with_own_results(without_memory_formats(core))


@allow_collectives()
@outside_of_modes()
def decomposed(
    ir: IR,
    target: str = "core_aten",
    *,
    table: Mapping[str, Decomposition] | None = None,
    preserve: Iterable[str] = (),
) -> IR:
    """Decompose as :func:`decompose` does, but return views as views, as in eager."""
    if target not in TARGETS:
        raise PassError(
            f"there is no operator set {target!r:.60}",
            remedy=did_you_mean(str(target), TARGETS) or f"There is {', '.join(TARGETS)}.",
        )
    require_allowed(ir)
    kept = frozenset(preserve)
    _require_operators(ir, kept | set(table or {}))
    own = {**_written_in_python(ir, kept), **_bound_patterns(kept), **_registered(ir, kept)}
    own |= table or {}
    return _decomposed(ir, target, Settings(kept, _table(own, kept), own, is_core))


_REGISTERED: dict[str, Decomposition] = {}


def register_decomposition(op_type: str) -> Callable[[Decomposition], Decomposition]:
    """Let the decorated function stand for an operator where programs are decomposed.

    Args:
        op_type: The exact overload, such as ``acme.softclip.default``. The function takes its
            arguments and computes what it computes with other operators.

    Raises:
        PassError: The operator is torch's own, or has a decomposition already.
        InvalidIRError: The name is no exact overload: nothing would be decomposed.

    Example:
        >>> @register_decomposition("my_library.softsign.default")
        ... def softsign(x):
        ...     return x / (1 + x.abs())
        >>> unregister_decomposition("my_library.softsign.default")
    """
    require_overload(op_type)

    def decorate(function: Decomposition) -> Decomposition:
        if op_type.partition(".")[0] in OWN_NAMESPACES:
            raise PassError(
                f"{op_type} is torch's own", remedy="Give decompose its decomposition in table=."
            )
        if _REGISTERED.setdefault(op_type, function) is not function:
            raise PassError(
                f"{op_type} has a decomposition already",
                remedy=f"Remove it with unregister_decomposition({op_type!r}) first.",
            )
        note_extension("decomposition", op_type, function)
        return function

    return decorate


@public
def unregister_decomposition(op_type: str) -> None:
    """Forget the decomposition that was registered for an operator."""
    _REGISTERED.pop(op_type, None)
    forget_extension("decomposition", op_type)


def _registered(ir: IR, preserve: frozenset[str]) -> dict[str, Decomposition]:
    """The registered decompositions, if the program calls an operator that has one."""
    if _REGISTERED.keys().isdisjoint(op_types(ir)):
        return {}
    return {name: function for name, function in _REGISTERED.items() if name not in preserve}


def _written_in_python(ir: IR, preserve: frozenset[str]) -> dict[str, Decomposition]:
    """The kernels of torch that are functions of Python, of the operators that a program calls."""
    called = {*op_types(ir)} - preserve
    return {
        name: custom_ops.OPDEFS["::".join(name.split(".")[:2])]._init_fn  # pyright: ignore[reportPrivateUsage]  # torch has no public accessor
        for name in sorted(called)
        if name.partition(".")[0] in WRITTEN_IN_PYTHON and resolve_operator(name)
    }


def _bound_patterns(preserve: frozenset[str]) -> dict[str, Decomposition]:
    """The patterns for which operators stand that have no kernel of their own."""
    return {
        op_type: binding.pattern
        for op_type, binding in bindings().items()
        if not binding.has_kernel and op_type not in preserve
    }


def _decomposed(ir: IR, target: str, settings: Settings) -> IR:
    found = Diagnostics()
    functional, _ = from_wholes(without_writes(ir))
    shared = Shared(settings, Fakes(functional))
    result = lowered(functional, shared, "", found)
    found.extend(strides_lost(functional, result))
    found.raise_if_any(
        PassError,
        f"{counted(len(found), 'node')} cannot be decomposed into {target}",
        remedy="Keep operators whole with preserve=, or give their decomposition in table=.",
    )
    result, _ = from_wholes(with_fresh_results(functional, result))
    result = with_lost_stops(functional, result)
    known = set(result.guards)
    new = [guard for guard in dict.fromkeys(shared.fakes.new_guards()) if guard not in known]
    return eliminate_dead_code(result).replace(dialect=target, guards=(*result.guards, *new))


def _require_operators(ir: IR, op_types: Iterable[str]) -> None:
    for op_type in sorted(op_types):
        if ir.schema_of(op_type) is None:
            raise PassError(
                f"there is no operator {op_type!r}",
                remedy=closest_overload(op_type)
                or "Name the exact overload, such as aten.linear.default.",
            )


def _table(own: Mapping[str, Decomposition], preserve: frozenset[str]) -> dict[Any, Decomposition]:
    """torch's table without what is core or preserved, with the user's."""
    known = torch_table(operator_count())
    table = {operator: f for operator, (name, f) in known.items() if name not in preserve}
    added = {name: f for name, f in OURS.items() if name not in preserve}
    for op_type, function in {**added, **own}.items():
        table[resolve_operator(op_type)] = function
    return table
