"""Requirements of passes on the programs that they are given."""

from __future__ import annotations

from collections.abc import Iterator

from torch_ir.errors import PassError, counted
from torch_ir.ir import IR
from torch_ir.ir.effects import written_arguments

SHOWN = 10


def require_functional(ir: IR, task: str) -> None:
    """Refuse a program in which a node writes to what it takes, in functions too.

    Args:
        ir: The program.
        task: What cannot be done with such a program, as the subject of the message.

    Raises:
        PassError: There are such nodes; the message lists them.
    """
    writing = list(_writing(ir, ""))
    if writing:
        more = [f"and {len(writing) - SHOWN} more"] if len(writing) > SHOWN else []
        writes = "writes" if len(writing) == 1 else "write"
        raise PassError(
            f"{task} needs a functional program, and {counted(len(writing), 'node')} of this one "
            f"{writes} to memory",
            picture="\n".join([*writing[:SHOWN], *more]),
            remedy="Make it functional first: torch_ir.functionalize(ir), or torch-ir lower "
            "--to aten.",
        )


def is_functional(ir: IR) -> bool:
    """Return whether no node of a program writes its inputs, in functions too."""
    return next(_writing(ir, ""), None) is None


def _writing(ir: IR, path: str) -> Iterator[str]:
    for node in ir.nodes:
        if written_arguments(ir, node):
            place = "" if node.location is None else f" at {node.location}"
            yield f"{path}{node.name}: {node.op_type}{place}"
    for name, body in ir.functions.items():
        yield from _writing(body, f"{path}{name}/")
