"""Passes, and a list of them run in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from torch_ir.arguments import public
from torch_ir.errors import PassError, code_of, counted, did_you_mean
from torch_ir.ir import IR, OpNode
from torch_ir.ir.diagnostics import Diagnostic, about, errors_among, listed
from torch_ir.ops.rules import allow_operators
from torch_ir.tables import Shown

if TYPE_CHECKING:
    from torch_ir.debug.comparing.lineage import Lineage

Verifier: TypeAlias = Callable[[IR], Iterable[Diagnostic]]
"""Finds what is wrong with a program beyond :meth:`IR.check`, such as the rules of its dialect."""

Level: TypeAlias = Literal["off", "stage", "each"]


@dataclass(frozen=True, slots=True)
class PassResult(Shown):
    """What a pass made of a program.

    Attributes:
        ir: The program; the same object where nothing was changed.
        modified: Whether anything was changed.
    """

    ir: IR
    modified: bool

    @classmethod
    def of(cls, before: IR, after: IR) -> PassResult:
        """Return what a pass made of a program that it returns itself where nothing changes."""
        return cls(after, after is not before)


@dataclass(frozen=True)
class Pass(ABC):
    """A change of programs that keeps what they compute; its fields are its options.

    A pass never changes the program that it is given. Each node that it makes has the location of
    the node that it stands for, and says of which nodes it is made: :meth:`OpNode.derived_from`,
    which :class:`~torch_ir.ir.builder.Builder` calls for what it emits. The same program and
    options give the same result.

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

    def explain(self, ir: IR) -> Iterable[str]:
        """Yield a line for each place of a program that the pass nearly changes, and why not."""
        del ir
        return ()

    def __call__(self, ir: IR) -> PassResult:
        """Run the pass between the two checks of its own.

        Raises:
            PassError: The pass refuses the program, or one of the user's raises anything.
        """
        with code_of(self, f"the pass {self.name}", PassError):
            self.requires(ir)
            result = self.call(ir)
            if not isinstance(result, PassResult):  # pyright: ignore[reportUnnecessaryIsInstance]  # another package's
                gave = type(result).__name__
                raise PassError(
                    f"the pass {self.name} gave a value of type {gave}, not a PassResult",
                    remedy="Return PassResult(ir, modified).",
                )
            if not isinstance(result.ir, IR):  # pyright: ignore[reportUnnecessaryIsInstance]  # another package's
                gave = f"a {type(result.ir).__name__} in place of a program"
                raise PassError(
                    f"the pass {self.name} gave {gave}", remedy="Return PassResult(ir, modified)."
                )
            self.ensures(result.ir)
            if not result.modified and result.ir is not ir and result.ir != ir:
                return PassResult(result.ir, True)  # it is compared and told as what it is
            return result

    def __str__(self) -> str:
        options = [
            f"{field.name}={value}"
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        ]
        return f"{self.name}{{{','.join(options)}}}" if options else self.name


@public
def run_passes(
    ir: IR,
    passes: Sequence[Pass],
    *,
    verify: Level = "each",
    verifier: Verifier | None = None,
    allow: Iterable[str] = (),
    validate: Level = "off",
    weights: Mapping[str, Any] | None = None,
    inputs: Sequence[Any] | None = None,
) -> PassResult:
    """Run passes one after the other.

    Args:
        ir: The program; it never changes.
        passes: The passes, in order.
        verify: Check the result after ``"each"`` pass, after all (``"stage"``), or not at all
            (``"off"``). ``"each"`` finds nodes without origins as well.
        verifier: Finds what is wrong beyond :meth:`IR.check`.
        allow: Operators that passes take although the rules refuse them; see
            :func:`torch_ir.allow_operators`. Nothing of it is computed ahead.
        validate: Run the program before and after ``"each"`` pass that changes it, or all
            (``"stage"``), and compare the values of the nodes that both have.
        weights: Tensors to validate with, by ``state_dict`` key.
        inputs: A tensor for each graph input, to validate with.

    Raises:
        PassError: A pass refuses the program, or made one that is not well-formed, that does not
            say where a node is from, or that computes something else; the message names the pass
            and the nodes.

    Example:
        >>> from torch_ir.ir import OpNode, TensorMeta
        >>> from torch_ir.passes import EliminateDeadCode
        >>> x, y = TensorMeta("x", (2,), "float32"), TensorMeta("y", (2,), "float32", "y")
        >>> ir = IR([OpNode("y", "aten.relu.default", [x], [y])], [x], [x], [])
        >>> run_passes(ir, [EliminateDeadCode()])
        PassResult(ir=IR(model_name='', nodes=0, inputs=1, outputs=1, weights=0), modified=True)
    """
    for name, level in (("verify", verify), ("validate", validate)):
        if level not in ("off", "stage", "each"):
            raise PassError(
                f"{name} cannot be {level!r:.40}", remedy='It is "off", "stage" or "each".'
            )
    modified, start = False, ir
    lineage = None if validate == "off" else lineage_of(weights, inputs)
    for position, step in enumerate(passes):
        with allow_operators(*allow):
            result = step(ir)
        modified, before, ir = modified or result.modified, ir, result.ir
        is_last = position == len(passes) - 1
        if verify == "each" or (verify == "stage" and is_last):
            _require_well_formed(ir, str(step) if verify == "each" else "the passes", verifier)
        if verify == "each" and ir is not before:
            _require_origins(before, ir, step)
        if lineage is not None and validate == "each" and result.modified:
            require_same_values(before, ir, str(step), lineage)
    if lineage is not None and validate == "stage" and modified:
        require_same_values(start, ir, "the passes", lineage)
    return PassResult(ir, modified)


def lineage_of(weights: Mapping[str, Any] | None, inputs: Sequence[Any] | None) -> Lineage:
    """Return what compares programs made of one another on some inputs."""
    from torch_ir.debug.comparing.lineage import Lineage  # above this folder: it runs programs

    return Lineage(weights, inputs or ())


def require_same_values(before: IR, after: IR, maker: str, lineage: Lineage) -> None:
    """Check that a program computes what the one computes that it is made of.

    Raises:
        PassError: It does not; the message names the node and its source line.
    """
    found = lineage.compare(before, after).first
    if found is not None:
        raise PassError(
            f"{maker} made a program that computes something else",
            picture=str(found),
            remedy="The program before it is unchanged.",
        )


def _require_origins(before: IR, after: IR, step: Pass) -> None:
    """Raise where a pass made a node without saying of what."""
    found = [
        about(why, node, path)
        for path, old, new in _graph_pairs(before, after)
        for node in new.nodes
        for why in _unsaid(old, node)
    ]
    if found:
        raise PassError(
            f"{step} made {counted(len(found), 'node')} without the nodes that they are made of",
            picture=listed([str(finding) for finding in found], 10),
            remedy="Give new nodes their origins: made.derived_from(node, ...), or "
            "Builder.emit(..., like=node).",
            diagnostics=tuple(found),
        )


def _graph_pairs(before: IR, after: IR, path: str = "") -> Iterator[tuple[str, IR, IR]]:
    """Yield each changed graph, and its functions, before and after."""
    if before is not after:
        yield path, before, after
        for name in before.functions.keys() & after.functions.keys():
            inner = before.functions[name], after.functions[name]
            yield from _graph_pairs(*inner, f"{path}{name}/")


def _unsaid(before: IR, node: OpNode) -> Iterator[Diagnostic]:
    """Yield what is wrong with the origins of a node; one without tensors may have none."""
    if not node.outputs:
        return
    old = before.by_name.get(node.name)
    if not node.origins and (old is None or old.origins):
        yield Diagnostic("no-origins", "it does not say of which nodes it is made")
    known = before.view("origins", lambda: {name for n in before.nodes for name in n.made_of})
    unknown = next((name for name in node.origins if name not in known), None)
    if unknown is not None:
        hint = did_you_mean(unknown, known)
        message = f"its origin {unknown!r} is no node of the program that was extracted"
        yield Diagnostic("no-origins", message, remedy=hint)


def _require_well_formed(ir: IR, maker: str, verifier: Verifier | None) -> None:
    findings = [*errors_among(ir.check()), *(verifier(ir) if verifier is not None else ())]
    if findings:
        raise PassError(
            f"{maker} made a program that is not well-formed: {counted(len(findings), 'fault')}",
            picture=listed([str(finding) for finding in findings], 10),
            remedy="The program before it is unchanged.",
            diagnostics=tuple(findings),
        )
