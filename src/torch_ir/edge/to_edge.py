"""From what torch.export gives, or any program before it, to Edge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

from torch.export import ExportedProgram  # needed to lower

from torch_ir.arguments import public
from torch_ir.dialects.rules import is_custom
from torch_ir.edge.edge_program import EdgeOptions, EdgePass, EdgeProgram
from torch_ir.errors import InvalidIRError, PassError, counted
from torch_ir.frontend import convert_exported_program
from torch_ir.infer.engine import outside_of_modes
from torch_ir.infer.resolve import require_allowed, resolve_operator
from torch_ir.ir import IR
from torch_ir.ir.diagnostics import Diagnostics
from torch_ir.ops.rules import allow_collectives
from torch_ir.ops.spec import spec_of
from torch_ir.passes.decomposition import decomposed
from torch_ir.passes.edge.lower import lower
from torch_ir.passes.edge.memory_formats import with_memory_formats
from torch_ir.passes.edge.strict import without_numbers
from torch_ir.passes.functionalization.strided import from_wholes, strides_lost
from torch_ir.torch_api import operator_schema

Source: TypeAlias = IR | ExportedProgram
"""What can be lowered to Edge."""


@outside_of_modes()
@allow_collectives()
@public
def to_edge(
    programs: Source | Mapping[str, Source],
    *,
    preserve: Iterable[str] = (),
    allow: Iterable[str] = (),
    dim_order: bool = True,
    strict: bool = False,
    verify: bool = True,
    passes: Sequence[EdgePass] | Mapping[str, Sequence[EdgePass]] = (),
) -> EdgeProgram:
    """Lower programs to Edge.

    Views become copies. A number where an operator takes a tensor becomes the constant that eager
    computes with. Operands that eager promotes are converted explicitly. Layouts are said by the
    order of dimensions. The program computes what it did, bit for bit.

    Args:
        programs: An IR, an exported program, or several of them by method name.
        preserve: Functional operators of ATen and of libraries that are not decomposed.
        allow: Operators to allow although they are not in the core set.
        dim_order: Say layouts by the order of dimensions, not by memory formats.
        strict: No numbers anywhere, as the specification has it: where an operator takes one, a
            tensor takes its place, and a number among the results becomes a constant (int64,
            bool, float64). What cannot be said without numbers is an error, which lists all of it.
        verify: Verify the result.
        passes: What to run on the result: on every method in order, or on each that is named, as
            :meth:`EdgeProgram.transform` does.

    Raises:
        InvalidIRError: ``preserve`` names what cannot be preserved.
        ExecutionError: ``preserve`` names an operator of a library that nobody registered.
        CompileError: A program calls what it may not call (:func:`torch_ir.operator_rule`).
        PassError: A program cannot be made functional, or decomposed.
        DialectError: What was made is not Edge; the message lists all violations.

    Example:
        >>> import torch
        >>> from torch_ir import extract_ir
        >>> class Model(torch.nn.Module):
        ...     def forward(self, x):
        ...         return x + 1
        >>> edge = to_edge(extract_ir(Model(), (torch.ones(2),)))
        >>> print(edge.ir().nodes[0])
        %add: f32[2] = aten.add.Tensor(%x, %number)
        >>> edge.ir().constants["number"]
        Constant(f32[])
    """
    kept = tuple(preserve)
    for op_type in kept:
        _require_preservable(op_type)
    options = EdgeOptions(frozenset({*kept, *allow}), dim_order, strict, verify)
    named = programs if isinstance(programs, Mapping) else {"forward": programs}
    sources = cast(Mapping[str, Source], named)
    lowered = {method: _lowered(source, kept, options) for method, source in sources.items()}
    state = {
        method: source.state_dict
        for method, source in sources.items()
        if isinstance(source, ExportedProgram)
    }
    return EdgeProgram(lowered, options, state).transform(passes)


def _require_preservable(op_type: str) -> None:
    if not is_custom(op_type) and not op_type.startswith("aten."):
        raise InvalidIRError(
            f"{op_type} cannot be preserved: only operators of ATen and of libraries "
            "are decomposed",
            remedy="Leave it out.",
        )
    own: dict[str, str] = {}
    if is_custom(op_type):
        own[op_type] = operator_schema(resolve_operator(op_type)).text
    if not spec_of(op_type, own).is_functional:
        raise InvalidIRError(
            f"{op_type} cannot be preserved: it writes or aliases what it is given",
            remedy="Edge has functional operators only.",
        )


def _lowered(source: Source, preserve: tuple[str, ...], options: EdgeOptions) -> IR:
    core = _core(source, preserve)
    edge = lower(without_numbers(core) if options.strict else core)
    found = Diagnostics(strides_lost(core, edge))
    found.raise_if_any(
        PassError,
        f"{counted(len(found), 'node')} cannot be lowered to Edge",
        remedy="Give them what lies in row-major order: x.contiguous().",
    )
    return edge if options.dim_order else with_memory_formats(edge)


def _core(source: Source, preserve: tuple[str, ...]) -> IR:
    """The program in core ATen."""
    if isinstance(source, ExportedProgram):
        source = convert_exported_program(source)
    if not isinstance(source, IR):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
        kind = type(source).__name__
        raise InvalidIRError(
            f"an IR or an exported program is lowered to Edge, got {kind}",
            remedy="Extract a module with extract_ir first.",
        )
    if source.dialect == "core_aten":
        require_allowed(source)
        return from_wholes(source)[0]
    return decomposed(source, "core_aten", preserve=preserve)
