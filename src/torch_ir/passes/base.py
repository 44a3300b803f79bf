"""Passes, and a list of them run in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, TypeAlias

from torch_ir.errors import PassError, counted
from torch_ir.ir import IR
from torch_ir.ir.diagnostics import Diagnostic, errors_among, listed
from torch_ir.ops.rules import allow_operators

Verifier: TypeAlias = Callable[[IR], Iterable[Diagnostic]]
"""Finds what is wrong with a program beyond :meth:`IR.check`, such as the rules of its dialect."""

Level: TypeAlias = Literal["off", "stage", "each"]


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a pass made of a program.

    Attributes:
        ir: The program; the same object where nothing was changed.
        modified: Whether anything was changed.
    """

    ir: IR
    modified: bool


@dataclass(frozen=True)
class Pass(ABC):
    """A change of programs that keeps what they compute; its fields are its options.

    A pass never changes the program that it is given. Each node that it makes has the location of
    the node that it stands for. The same program and options give the same result.

    Example:
        >>> from torch_ir.passes import EliminateDeadCode
        >>> print(EliminateDeadCode())
        eliminate-dead-code
    """

    name: ClassVar[str] = "pass"

    def requires(self, ir: IR) -> None:
        """Raise :class:`PassError` if the program is not one that the pass takes."""
        del ir

    @abstractmethod
    def call(self, ir: IR) -> PassResult:
        """Run the pass."""

    def ensures(self, ir: IR) -> None:
        """Raise :class:`PassError` if the result is not what the pass promises."""
        del ir

    def __call__(self, ir: IR) -> PassResult:
        """Run the pass between the two checks of its own."""
        self.requires(ir)
        result = self.call(ir)
        self.ensures(result.ir)
        return result

    def __str__(self) -> str:
        options = [
            f"{field.name}={value}"
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        ]
        return f"{self.name}{{{','.join(options)}}}" if options else self.name


def run_passes(
    ir: IR,
    passes: Sequence[Pass],
    *,
    verify: Level = "each",
    verifier: Verifier | None = None,
    allow: Iterable[str] = (),
) -> PassResult:
    """Run passes one after the other.

    Args:
        ir: The program; it never changes.
        passes: The passes, in order.
        verify: Check the result after ``"each"`` pass, after all (``"stage"``), or not at all
            (``"off"``).
        verifier: Finds what is wrong beyond :meth:`IR.check`.
        allow: Operators that passes take although the rules refuse them; see
            :func:`torch_ir.allow_operators`. Nothing of it is computed ahead.

    Raises:
        PassError: A pass refuses the program, or made one that is not well-formed; the message
            names the pass and the nodes.

    Example:
        >>> from torch_ir.ir import OpNode, TensorMeta
        >>> from torch_ir.passes import EliminateDeadCode
        >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> ir = IR([OpNode("y", "aten.relu.default", [x], [y])], [x], [x], [])
        >>> run_passes(ir, [EliminateDeadCode()])
        PassResult(ir=IR(model_name='', nodes=0, inputs=1, outputs=1, weights=0), modified=True)
    """
    if verify not in ("off", "stage", "each"):
        raise PassError(
            f"verify cannot be {verify!r:.40}", remedy='It is "off", "stage" or "each".'
        )
    modified = False
    for position, step in enumerate(passes):
        with allow_operators(*allow):
            result = step(ir)
        modified = modified or result.modified
        ir = result.ir
        is_last = position == len(passes) - 1
        if verify == "each" or (verify == "stage" and is_last):
            _require_well_formed(ir, str(step) if verify == "each" else "the passes", verifier)
    return PassResult(ir, modified)


def _require_well_formed(ir: IR, maker: str, verifier: Verifier | None) -> None:
    findings = [*errors_among(ir.check()), *(verifier(ir) if verifier is not None else ())]
    if findings:
        raise PassError(
            f"{maker} made a program that is not well-formed: {counted(len(findings), 'fault')}",
            picture=listed([str(finding) for finding in findings], 10),
            remedy="The program before it is unchanged.",
            diagnostics=tuple(findings),
        )
