"""Programs in Edge: one or more methods, verified, never changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from torch_ir.arguments import public
from torch_ir.dialects.edge.dialect import edge_dialect
from torch_ir.errors import InvalidIRError, PassError, counted, did_you_mean
from torch_ir.frozen import FrozenDict
from torch_ir.ir import IR
from torch_ir.passes import PassResult
from torch_ir.tables import Shown

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

    from torch_ir.backends import Partitioner

EdgePass: TypeAlias = Callable[[IR], IR | PassResult | None]
"""Takes a program and gives the changed one; None where nothing changed."""


@dataclass(frozen=True, slots=True)
class EdgeOptions:
    """How programs are lowered and verified.

    Attributes:
        allow: Exact overloads of ATen to allow although they are not in the core set.
        dim_order: Say layouts by the order of dimensions, not by memory formats.
        strict: Forbid numbers everywhere: as arguments, in what programs take, in what they give.
        verify: Verify every program; without it nothing is promised of them.
    """

    allow: frozenset[str] = frozenset()
    dim_order: bool = True
    strict: bool = False
    verify: bool = True

    def require(self, method: str, ir: IR) -> None:
        """Raise if a program is not Edge.

        Raises:
            DialectError: It is not; the message lists all violations.
        """
        if self.verify:
            kept = edge_dialect(dim_order=self.dim_order, strict=self.strict)
            kept.require(ir, allow=self.allow, method=method)


@public
@dataclass(frozen=True)
class EdgeProgram(Shown):
    """One or more methods in the Edge dialect.

    Attributes:
        programs: Each method's program.
        options: How they are verified.
        state: The tensors that belong to a method, by ``state_dict`` key, where it was lowered
            from an exported program, which has them; it does not count in a comparison.

    Raises:
        DialectError: A method is not Edge; the message names it and lists all violations.
    """

    programs: Mapping[str, IR]
    options: EdgeOptions = field(default_factory=EdgeOptions)
    state: Mapping[str, Mapping[str, torch.Tensor]] = field(
        default_factory=dict[str, Mapping[str, "torch.Tensor"]], repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "programs", FrozenDict(self.programs))
        for method, ir in self.programs.items():
            self.options.require(method, ir)

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the methods."""
        return tuple(self.programs)

    @public
    def ir(self, method: str = "forward") -> IR:
        """Return the program of a method.

        Raises:
            InvalidIRError: There is no such method; the message names those that there are.
        """
        if method not in self.programs:
            hint = did_you_mean(method, self.methods)
            remedy = hint or f"The methods are {', '.join(self.methods) or 'none'}."
            raise InvalidIRError(f"there is no method {method!r}", remedy=remedy)
        return self.programs[method]

    @public
    def transform(
        self, passes: Sequence[EdgePass] | Mapping[str, Sequence[EdgePass]]
    ) -> EdgeProgram:
        """Run passes over the programs; this object itself never changes.

        Args:
            passes: What to run on every method in order, or on each method that is named. A pass
                gives the changed program, a :class:`PassResult`, or None for no change.

        Raises:
            InvalidIRError: A method is named that there is not.
            PassError: A pass changed how many tensors the program takes or gives.
            DialectError: What a pass made is not Edge; the message lists all violations.
        """
        is_named = isinstance(passes, Mapping)
        chosen = passes if is_named else dict.fromkeys(self.methods, passes)
        changed = {
            method: _after(self.ir(method), method, steps) for method, steps in chosen.items()
        }
        if all(ir is self.programs[method] for method, ir in changed.items()):
            return self
        return replace(self, programs={**self.programs, **changed})

    @public
    def to_backend(self, partitioner: Partitioner) -> EdgeProgram:
        """Delegate parts of the programs to a backend; see :func:`torch_ir.to_backend`."""
        from torch_ir.backends import to_backend

        def delegate(ir: IR) -> IR:
            return to_backend(ir, partitioner)

        return self.transform([delegate])

    @public
    def exported_program(
        self, method: str = "forward", weights: Mapping[str, torch.Tensor] | None = None
    ) -> ExportedProgram:
        """Convert a method to torch's ``ExportedProgram``, in ATen operators, with the same bits.

        See :func:`torch_ir.to_exported_program`.

        Args:
            method: The method.
            weights: Tensors by ``state_dict`` key; :attr:`state` where none are given.

        Raises:
            InvalidIRError: There is no such method.
            MissingWeightsError: It has weights, and nobody gave them.
            WeightLoadError: They are not those that it needs.
            PassError: A node has no counterpart.
        """
        from torch_ir.backends.torch.exported_program import to_exported_program

        known = self.state.get(method) if weights is None else weights
        return to_exported_program(self.ir(method), known)

    def __str__(self) -> str:
        return "\n\n".join([f"method {name!r}:\n{ir}" for name, ir in self.programs.items()])

    def __repr__(self) -> str:
        sizes = [f"{name}: {counted(len(ir.nodes), 'node')}" for name, ir in self.programs.items()]
        return f"EdgeProgram({', '.join(sizes)})"


def _after(ir: IR, method: str, passes: Iterable[EdgePass]) -> IR:
    for step in passes:
        made: Any = step(ir)
        changed = ir if made is None else made.ir if isinstance(made, PassResult) else made
        name = getattr(step, "name", None) or getattr(step, "__name__", type(step).__name__)
        if not isinstance(changed, IR):
            raise PassError(
                f"the pass {name} gives a {type(changed).__name__} for method {method!r}",
                remedy="A pass gives the changed program, a PassResult, or None for no change.",
            )
        _require_same_interface(ir, changed, name, method)
        ir = changed
    return ir


def _require_same_interface(before: IR, after: IR, name: str, method: str) -> None:
    for word, noun, old, new in (
        ("takes", "input", len(before.graph_inputs), len(after.graph_inputs)),
        ("gives", "output", len(before.graph_outputs), len(after.graph_outputs)),
    ):
        if old != new:
            raise PassError(
                f"the pass {name} changed what method {method!r} {word}: "
                f"{counted(old, noun)} before, {new} after",
                remedy="A pass keeps what a program takes and gives; the program is unchanged.",
            )
