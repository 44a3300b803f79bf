"""Requirements of passes on the programs that they are given."""

from __future__ import annotations

from collections.abc import Iterator

from torch_ir.errors import PassError, counted
from torch_ir.ir import IR
from torch_ir.ir.diagnostics import Diagnostic, about, at, listed
from torch_ir.ir.queries import shown_writes

SHOWN = 10


def require_functional(ir: IR, task: str, *, ordered: bool = False) -> None:
    """Refuse a program in which a node writes to what it takes, in functions too.

    Args:
        ir: The program.
        task: What cannot be done with such a program, as the subject of the message.
        ordered: Refuse uses of values before they are made too; see :func:`require_definitions`.

    Raises:
        PassError: There are such nodes; the message lists them.
    """
    if ordered:
        require_definitions(ir, task)
    writing = list(_writing(ir))
    if writing:
        lines = [f"{w.node}: {w.op_type}{at(w.location, ' {}')}" for w in writing]
        writes = "writes" if len(writing) == 1 else "write"
        raise PassError(
            f"{task} needs a functional program, and {counted(len(writing), 'node')} of this one "
            f"{writes} to memory",
            picture=listed(lines, SHOWN),
            remedy="Make it functional first: torch_ir.functionalize(ir), or torch-ir lower "
            "--to aten.",
            diagnostics=tuple(writing),
        )


def require_definitions(ir: IR, task: str) -> None:
    """Refuse a program in which a node uses a value before it is made, as a cycle of nodes does.

    Args:
        ir: The program; its functions are not looked at.
        task: What cannot be done with such a program, as the subject of the message.

    Raises:
        PassError: There is such a node; the message names the first.
    """
    defined = {*ir.input_names, *ir.external_values()}
    for node in ir.nodes:
        for meta in node.inputs:
            if meta.name not in defined:
                raise PassError(
                    f"{task} needs a program in order, and node {node.name!r} uses %{meta.name}, "
                    "which no node before it makes",
                    picture=str(node),
                    node=node.name,
                )
        defined.update([meta.name for meta in node.outputs])


def is_functional(ir: IR) -> bool:
    """Return whether no node of a program writes its inputs, in functions too.

    Nor may views among its results show what it writes as it ends, which values do not.
    """
    if next(_writing(ir), None) is not None:
        return False
    return ir.dialect != "export" or not shown_writes(ir)


def _writing(ir: IR) -> Iterator[Diagnostic]:
    for path, graph, node in ir.walk():
        if graph.effects(node).writes:
            yield about(Diagnostic("not-functional", "it writes to memory"), node, path)
