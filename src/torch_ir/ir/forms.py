"""The methods of a program that other modules do: check and compare it, show and store it."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

from torch_ir.arguments import public

if TYPE_CHECKING:
    from torch_ir.ir.diagnostics import Diagnostic
    from torch_ir.ir.diff import Diff
    from torch_ir.ir.graph import IR


class Forms:
    """The methods of :class:`IR` that check and compare it, show and store it."""

    __slots__ = ()

    def check(self, *, strict: bool = False) -> tuple[Diagnostic, ...]:
        """Find everything that is not well-formed, without torch.

        Args:
            strict: Raise the first finding instead of returning all.

        Raises:
            InvalidIRError: With ``strict``, if there is a finding.
        """
        from torch_ir.ir.check import check

        return check(cast("IR", self), strict=strict)

    @public
    def diff(self, other: IR) -> Diff:
        """Compare this IR with another by structure; names of values do not matter.

        ``bool(ir.diff(other))`` is False if the two compute the same; ``print`` shows the
        difference.
        """
        from torch_ir.ir.diff import diff

        return diff(cast("IR", self), other)

    def __repr__(self) -> str:
        ir = cast("IR", self)
        return (
            f"IR(model_name={ir.model_name!r}, nodes={len(ir.nodes)}, "
            f"inputs={len(ir.graph_inputs)}, outputs={len(ir.graph_outputs)}, "
            f"weights={len(ir.weights)})"
        )

    def __str__(self) -> str:
        from torch_ir.ir.text import ir_text

        return ir_text(cast("IR", self))

    def _repr_html_(self) -> str:
        from torch_ir.viz.html import ir_html

        return ir_html(cast("IR", self))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document of this IR, as plain dicts and lists."""
        from torch_ir.serde import ir_to_dict

        return ir_to_dict(cast("IR", self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> IR:
        """Return the IR of a JSON document.

        Raises:
            SerializationError: The document is not that of an IR; the message has the path of the
                first fault.
        """
        from torch_ir.serde import ir_from_dict

        return ir_from_dict(data)

    @public
    def save(self, path: str | PathLike[str], *, weights: Mapping[str, Any] | None = None) -> None:
        """Write this IR: an archive if the name ends in ``.tir``, JSON otherwise.

        A save that fails leaves the old file as it was.

        Args:
            path: Where to.
            weights: Tensors by ``state_dict`` key, to store in an archive with it.

        Raises:
            SerializationError: The file cannot be written.
        """
        from torch_ir.serde import save

        save(cast("IR", self), path, weights=weights)

    @classmethod
    def load(cls, path: str | PathLike[str], *, mmap: bool = True) -> IR:
        """Read an IR that :meth:`save` wrote, or JSON of the same shape.

        Args:
            path: The file.
            mmap: Leave the constants of an archive in the file; see :func:`torch_ir.serde.load`.

        Raises:
            SerializationError: The file cannot be read or is not an IR.
        """
        from torch_ir.serde import load

        return load(path, mmap=mmap)
